"""``ngraph pareto``: the front of each device and model of a run, over what its configurations were measured by."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.axes import AXES
from pytest_ngraph.commands.base import Commands, add_command, add_store, path, say
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.commands.stored import stored_run
from pytest_ngraph.errors import SpecError, known
from pytest_ngraph.options.settings import read_value
from pytest_ngraph.stats.verdict import ERROR_RATE

if TYPE_CHECKING:
    from pytest_ngraph.choosing.front import Front
    from pytest_ngraph.report.fronts.stored import Asked
    from pytest_ngraph.spec.cells import Cell
    from pytest_ngraph.store.rows import RunRow

_NARROWING = ("device", "side", "compiler", *(row.name for row in AXES))
# What an axis that is not set goes by, and the side of what is here.
_NOT_SET, _HERE = "default", "here"
_MOST_NAMED = 8


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "pareto", _run, "Show which configurations no other one is shown to be better than")
    parser.add_argument(
        "--over",
        default=None,
        metavar="NAMES",
        help="Objectives with commas: latency, throughput, memory, size, ... (default: those that all of them have)",
    )
    add_front(parser)


def add_front(parser: argparse.ArgumentParser) -> None:
    """Give a command the options that say which fronts are meant, and how sure they have to be."""
    for name in _NARROWING:
        parser.add_argument(
            option_of(name),
            action="append",
            default=[],
            metavar="NAME",
            help=f"Only this {name.replace('_', ' ')}; may be repeated",
        )
    parser.add_argument(
        "--tolerance",
        action="append",
        default=[],
        metavar="FRACTION",
        help="Smaller differences count as none: 0.05, or latency=0.02; may be repeated (default: 0.05, accuracy=0.01)",
    )
    parser.add_argument(
        "--error-rate", default=None, metavar="FRACTION", help="How often a front may be wrong (default: 0.01)"
    )
    parser.add_argument("--json", action="store_true", help="Print JSON for programs")
    parser.add_argument(
        "--write", type=path, default=None, metavar="FILE.py", help="Write a test that measures what is undecided"
    )
    parser.add_argument(
        "--run", type=int, default=None, metavar="NUMBER", dest="number", help="Run (default: the latest)"
    )
    add_store(parser, "Store of results")


def _run(given: argparse.Namespace) -> int:
    from pytest_ngraph.choosing import deciding
    from pytest_ngraph.choosing.written import front_json, front_lines

    over = None if given.over is None else given.over.split(",")
    run, fronts = read_fronts(given, asked_of(given, over))
    undecided = [front for front in fronts if deciding.open_of_front(front)]
    if given.write is not None:
        if not undecided:
            raise SpecError("--write: no front is undecided, so that there is nothing to measure")
        if len(undecided) > 1:
            raise SpecError(
                f"--write: {len(undecided)} of {len(fronts)} fronts are undecided, and a test is of one "
                f"{several(undecided)}"
            )
        write_test(given.write, deciding.test_of_front(undecided[0]))
        return 0
    if given.json:
        made = [front_json(front) for front in fronts]
        print(json.dumps({"run": run.id, "status": run.status, "fronts": made}, indent=1, allow_nan=False))
        return 0
    say(about_run(run))
    for front in fronts:
        say("")
        for line in front_lines(front):
            say(line)
        if deciding.open_of_front(front) and not front.by_points:
            arguments = ["pareto", *arguments_of(given, front)]
            say_commands(arguments, deciding.launches_of_front(front), deciding.no_test_on(front))
    return 0


def about_run(run: RunRow) -> str:
    """Name the run that is read: nothing of another one, and of no other protocol, is compared."""
    node = str(run.environment.get("node", "")) or "an unnamed machine"
    said = f"run {run.id}, {run.started_at[:16].replace('T', ' ')} UTC, protocol {run.protocol}, on {node}"
    return (
        said if run.status == "finished" else f"{said}\nnote: it is {run.status}: what it has not measured is missing"
    )


def asked_of(given: argparse.Namespace, over: Sequence[str] | None) -> Asked:
    """Return which fronts are asked for. Raise SpecError for what is not allowed."""
    from pytest_ngraph.choosing.objectives import read_tolerances
    from pytest_ngraph.report.fronts.stored import Asked

    rate = ERROR_RATE
    if given.error_rate is not None:
        rate = read_value("error_rate", given.error_rate, lambda row, value: f"--error-rate={value}")
    if over is not None:
        from pytest_ngraph.choosing.objectives import objectives

        objectives(over, "--over")
    return Asked(over, (), read_tolerances(given.tolerance, "--tolerance"), rate, _keeps(given))


def _keeps(given: argparse.Namespace) -> Callable[[Cell], bool]:
    wanted = {name: set(getattr(given, name)) for name in _NARROWING if getattr(given, name)}

    def keeps(cell: Cell) -> bool:
        return all(values & set(_names(cell, name)) for name, values in wanted.items())

    return keeps


def _names(cell: Cell, name: str) -> Sequence[str]:
    """Return by which names a cell may be asked for: its compiler with its options or without."""
    if name == "compiler":
        return str(cell.compiler), cell.compiler.name
    known_by = {"device": cell.device, "side": cell.side or _HERE, "model": cell.workload.model.text}
    value = known_by.get(name) or cell.workload.value(name)
    return (_NOT_SET if value is None else str(value),)


def option_of(name: str) -> str:
    """Return the option that narrows a run by something."""
    return f"--{name.replace('_', '-')}"


def several(fronts: Sequence[Front]) -> str:
    """Name the tasks of fronts of which one is meant, and the options that tell them apart."""
    from pytest_ngraph.choosing.comparing import OF_CONFIGURATION

    cells = [front.standings[0].candidate.cell for front in fronts if front.standings]
    apart = [
        option_of(name)
        for name in _NARROWING
        if name not in ("compiler", *OF_CONFIGURATION) and len({_names(cell, name) for cell in cells}) > 1
    ]
    more = f"; and {len(fronts) - _MOST_NAMED} more" if len(fronts) > _MOST_NAMED else ""
    there = "; ".join(str(front.task) for front in fronts[:_MOST_NAMED])
    return f"({there}{more}); name one by {', '.join(apart) or '--device and --model'}"


def read_fronts(given: argparse.Namespace, asked: Asked) -> tuple[RunRow, list[Front]]:
    """Return a run with its fronts. Raise SpecError where what was named is not in it."""
    from pytest_ngraph.report.fronts.stored import fronts_of, tasks_of

    with stored_run(store_path(given.store), given.number) as (store, run):
        cells = [cell for cell, _ in store.cells(run.id) if not cell.replica]
        for name in _NARROWING:
            there = sorted({each for cell in cells for each in _names(cell, name)})
            for value in getattr(given, name):
                if value not in there:
                    raise SpecError(f"{option_of(name)}: {value!r} is not in run {run.id} ({known(value, there)})")
        if not tasks_of(cell for cell in cells if asked.keeps(cell)):
            narrowed = "of what was named" if cells else "with cells"
            raise SpecError(f"run {run.id} has nothing {narrowed} to compare (it has {len(cells)} cells)")
        return run, fronts_of(store, run, asked)


def arguments_of(given: argparse.Namespace, front: Front) -> list[str]:
    """Return the arguments that ask for one front again, of the run that is then the latest."""
    from pytest_ngraph.choosing.comparing import OF_CONFIGURATION

    words = [f"--device={front.task.device}", f"--model={front.task.model}"]
    words += [f"--side={front.task.side}"] if front.task.side else []
    cell = front.standings[0].candidate.cell
    for row in AXES:
        is_of_task = row.name not in ("model", *OF_CONFIGURATION)
        if is_of_task and (row.is_shown(cell.workload.value(row.name)) or getattr(given, row.name)):
            words += [f"{option_of(row.name)}={each}" for each in _names(cell, row.name)]
    again = ("tolerance", "compiler", *OF_CONFIGURATION)
    words += [f"{option_of(name)}={each}" for name in again for each in getattr(given, name)]
    words += [f"--error-rate={given.error_rate}"] if given.error_rate is not None else []
    words += [f"--store={given.store}"] if given.store is not None else []
    return [*words, f"--over={given.over}"] if getattr(given, "over", None) else words


def say_commands(arguments: Sequence[str], launches: int, why_not: str = "") -> None:
    """Print what would decide what is undecided, or why nothing does."""
    import textwrap

    from pytest_ngraph.choosing.deciding import FILE, commands

    if why_not:
        for line in textwrap.wrap(f"no test would decide it: {why_not}", 80, subsequent_indent="  "):
            say(line)
        return
    say("what would decide it:")
    for line in commands(arguments, FILE, launches):
        say(f"  {line}")


def write_test(file: Path, text: str) -> None:
    """Write a test. Raise SpecError where the name is no test file's, or something is there already."""
    from pytest_ngraph.report.export.files import write_text

    if file.suffix != ".py" or not file.name.startswith("test_"):
        raise SpecError(
            f"--write: {str(file)!r} is not allowed (expected the name of a test file, such as test_choice.py)"
        )
    if file.exists() or file.is_symlink():
        raise SpecError(f"--write: {file} is there already (remove it, or name another file)")
    write_text(text, file)
    say(f"written: {file}")
