"""``ngraph runs``: what runs a store holds, by the number that ``--run`` takes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_ngraph.commands.base import Commands, add_command, add_store, say
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.masking import masked_command

_COMMAND = 14  # columns, of 80


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "runs", _run, "List the runs of the store, by the number that --run takes")
    parser.add_argument("--all", action="store_true", help="All runs, with whole commands (default: the latest 20)")
    add_store(parser, "Store of results")


def _run(given: argparse.Namespace) -> None:
    for line in run_lines(store_path(given.store), everything=given.all):
        say(line)


def run_lines(path: Path, *, everything: bool) -> list[str]:
    """Return a line for each run, the latest last. Raise SpecError where there is no store."""
    from pytest_ngraph.store.sqlite import Store

    if not path.exists():
        raise SpecError(f"--store: no file {path} (run pytest with ngraph tests first, or name another store)")
    with Store.open(path, read_only=True) as store:
        runs, counts = store.runs(), store.run_counts()
        damaged = store.damage_lines
    if not runs:
        return [f"{path} holds no run yet"]
    shown = runs if everything else runs[-20:]
    lines = [f"{'run':>4}  {'began (UTC)':<16}  {'status':<11}  {'protocol':<8}  launches  cells  command"]
    for run in shown:
        launches, cells = counts.get(run.id, (0, 0))
        command = " ".join([Path(word).name if not n else word for n, word in enumerate(masked_command(run.command))])
        if not everything and len(command) > _COMMAND:
            command = f"{command[: _COMMAND - 1]}…"
        began = run.started_at[:16].replace("T", " ")
        what = f"{run.id:>4}  {began:<16}  {run.status:<11}  {run.protocol or '?':<8}"
        lines.append(f"{what}  {launches:>8}  {cells:>5}  {command}")
    if len(shown) < len(runs):
        lines.append(f"and {len(runs) - len(shown)} before these (--all)")
    for line in damaged:
        sys.stderr.write(f"{line}\n")
    return [line.rstrip() for line in lines]
