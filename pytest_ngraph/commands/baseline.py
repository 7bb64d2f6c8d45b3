"""``ngraph baseline``: save what a run measured in a file for git, list, show and drop such files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.commands.base import Commands, add_store, say
from pytest_ngraph.commands.rootdir import rootdir_here, store_path
from pytest_ngraph.commands.stored import stored_run
from pytest_ngraph.errors import SpecError
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.settings import nearby

if TYPE_CHECKING:
    from pytest_ngraph.report.baselines.saved import Saved, SavedMetric


def add(commands: Commands) -> None:
    """Add the command and those below it."""
    about = "Save what a run measured in a file for git, which later runs are held against"
    parser = commands.add_parser("baseline", help=about, description=about)
    below = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    kinds: tuple[tuple[str, Callable[[argparse.Namespace], int | None], str], ...] = (
        ("save", _save, "Save a run of the store under a name"),
        ("list", _list, "List the baselines that are there"),
        ("show", _show, "Show what a baseline holds, and of which machines"),
        ("drop", _drop, "Delete a baseline"),
    )
    for name, run, help in kinds:
        mine = below.add_parser(name, help=help, description=help)
        mine.set_defaults(run=run)
        if name == "show":
            mine.add_argument("name", metavar="NAME|FILE", help="Name of the baseline, or its file")
        elif name != "list":
            mine.add_argument("name", metavar="NAME", help="Name of the baseline, such as main")
        if name == "save":
            mine.add_argument(
                "--run", type=int, default=None, metavar="NUMBER", dest="number", help="Run (default: the latest)"
            )
            mine.add_argument("--replace", action="store_true", help="Replace a baseline of this name")
            add_store(mine, "Store of results")


def _save(given: argparse.Namespace) -> None:
    from pytest_ngraph.report.baselines.file import path_of, write
    from pytest_ngraph.report.baselines.saving import baseline_of_run

    rootdir = rootdir_here()
    path = path_of(given.name, rootdir)
    if path.exists() and not given.replace:
        raise SpecError(f"baseline {given.name!r} is there already: {nearby(path)} (--replace replaces it)")
    with stored_run(store_path(given.store), given.number) as (store, run):
        saved = baseline_of_run(store, run, given.name, rootdir)
    write(saved, path)
    cells = units.count(len(saved.cells), "cell")
    if saved.sweeps:
        cells += f" and {units.count(len(saved.sweeps), 'metric')} of their sweeps"
    say(f"saved {cells} of run {run.id} as {given.name}: {nearby(path)}")
    say("  commit it, and hold later runs against it with: pytest --ngraph-compare=" + given.name)


def _list(given: argparse.Namespace) -> None:
    from pytest_ngraph.report.baselines.file import FOLDER, names_in, path_of, read

    rootdir = rootdir_here()
    names = names_in(rootdir)
    if not names:
        say(f"no baseline in {nearby(rootdir / FOLDER)} (ngraph baseline save NAME makes one of the latest run)")
        return
    say(f"{'saved (UTC)':<16}  {'commit':<9}  cells  name, machines")
    for name in names:
        try:
            saved = read(path_of(name, rootdir))
        except SpecError as error:
            # The others are of use all the same.
            say(f"{'?':<16}  {'':<9}  {'':>5}  {name}: cannot be read: {error}")
            continue
        machines = ", ".join(dict.fromkeys(machine.name for machine in saved.machines.values()))
        when, commit = saved.saved_at[:16].replace("T", " "), saved.origin.get("commit", "")[:9]
        say(f"{when:<16}  {commit:<9}  {len(saved.cells):>5}  {name}, {machines}")


def _show(given: argparse.Namespace) -> None:
    from pytest_ngraph.report.baselines.file import named, read

    for line in show_lines(read(named(given.name, rootdir_here(), Path.cwd()))):
        say(line)


def show_lines(saved: Saved) -> Iterator[str]:
    """Yield what a baseline holds."""
    of = saved.origin
    commit = f", commit {of['commit']}" if of.get("commit") else ""
    yield f"baseline {saved.name}, saved {saved.saved_at} by {saved.made_by}"
    yield f"  of run {of.get('run', '?')} of {of.get('started_at', '?')[:16].replace('T', ' ')}{commit}"
    yield f"  protocol {saved.protocol}, seed {saved.seed}"
    for device, machine in saved.machines.items():
        yield f"device {device}: {machine.name}, {machine.hardware.get('cpu', '?')}"
        for cell in saved.cells:
            if cell.device != device:
                continue
            state = f", state {cell.state}" if cell.state else ""
            yield f"  {cell.label}{state}"
            for name, one in cell.metrics.items():
                yield f"    {METRICS[name].title}: {_written(name, one)}"
        for sweep in saved.sweeps or ():
            if sweep.device == device:
                state = f", state {sweep.state}" if sweep.state else ""
                yield f"  {sweep.label}{state}"
                yield f"    {_written(sweep.metric, sweep.saved)}"
    if saved.sweeps is None:
        yield "saved before sweeps were: BSR, slope and others are not in it (save it again)"


def _written(name: str, one: SavedMetric) -> str:
    write, sessions = METRICS[name].format, len(one.mean.sessions)
    return f"{write(one.value)}{units.spread(one.low, one.high, one.mean.launches, write)}" + (
        f" in {sessions} sessions" if sessions > 1 else ""
    )


def _drop(given: argparse.Namespace) -> None:
    from pytest_ngraph.report.baselines.file import names_in, path_of

    rootdir = rootdir_here()
    path = path_of(given.name, rootdir)
    try:
        path.unlink()
    except FileNotFoundError:
        there = ", ".join(names_in(rootdir)) or "none"
        raise SpecError(f"no baseline {given.name!r} in {nearby(path.parent)} (there: {there})") from None
    except OSError as error:
        raise SpecError(f"{nearby(path)}: {error.strerror or error}") from None
    say(f"deleted {nearby(path)}")
