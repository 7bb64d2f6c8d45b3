"""``ngraph choose``: which configuration to deploy, by limits and an objective, with what is undecided about it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from pytest_ngraph.commands.base import Commands, add_command, say
from pytest_ngraph.commands.pareto import (
    about_run,
    add_front,
    arguments_of,
    asked_of,
    read_fronts,
    say_commands,
    several,
    write_test,
)
from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    from pytest_ngraph.choosing.front import Front
    from pytest_ngraph.choosing.objectives import Limit, Objective
    from pytest_ngraph.report.fronts.stored import Asked

# Written here, since the table of objectives is not read before it is needed.
_LIMITS = {
    "latency": ("TIME", "Longest call, such as 20ms"),
    "throughput": ("RATE", "Least samples per second, such as 250"),
    "accuracy": ("SHARE", "Least top-1 accuracy, such as 0.9 or 90%%; map=0.5 of another score of the evaluation"),
    "agreement": ("SHARE", "Least agreement with the dense f32 model, such as 0.99"),
    "memory": ("SIZE", "Largest peak memory, such as 200MiB"),
    "size": ("SIZE", "Largest model, such as 10MiB"),
    "packed": ("SIZE", "Largest compressed model, such as 5MiB"),
}


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "choose", _run, "Say which configuration of a run to deploy, and what is undecided")
    for name, (metavar, help) in _LIMITS.items():
        parser.add_argument(f"--{name}", default=None, metavar=metavar, help=help)
    best = parser.add_mutually_exclusive_group()
    best.add_argument(
        "--minimise", default=None, metavar="NAME", help="Of those within the limits the least (default: latency)"
    )
    best.add_argument("--maximise", default=None, metavar="NAME", help="Or the most, such as throughput")
    add_front(parser)
    parser.epilog = "Exit status: 0 one configuration, 1 none keeps to the limits, 2 an error, 3 undecided."


def _run(given: argparse.Namespace) -> int:
    from pytest_ngraph.choosing import deciding
    from pytest_ngraph.choosing.choice import Answer, choose
    from pytest_ngraph.choosing.written import choice_json, choice_lines

    asked, limits, by = _asked(given)
    run, fronts = read_fronts(given, asked)
    choice = choose(_one(fronts), limits, by)
    is_open = choice.answer is Answer.UNDECIDED
    if given.write is not None:
        if not is_open:
            raise SpecError("--write: nothing is undecided (leave it away for the answer)")
        write_test(given.write, deciding.test_of_choice(choice))
        return 0
    arguments = ["choose", *arguments_of(given, choice.front), *_words(given)]
    launches = deciding.launches_of_choice(choice)
    if given.json:
        is_decidable = is_open and not deciding.no_test_of(choice)
        what = deciding.commands(arguments, deciding.FILE, launches) if is_decidable else []
        made = {"run": run.id, "status": run.status, **choice_json(choice, what)}
        print(json.dumps(made, indent=1, allow_nan=False))
        return int(choice.answer)
    say(about_run(run))
    say("")
    for line in choice_lines(choice):
        say(line)
    if is_open:
        say_commands(arguments, launches, deciding.no_test_of(choice))
    return int(choice.answer)


def _asked(given: argparse.Namespace) -> tuple[Asked, list[Limit], Objective]:
    """Return the front that is asked for, its limits and by what the best is known. Raise SpecError."""
    from pytest_ngraph.choosing.objectives import limit, objective

    tolerances = dict(asked_of(given, None).tolerances)
    limits = [limit(name, text, tolerances) for name in _LIMITS if (text := getattr(given, name)) is not None]
    is_most = given.maximise is not None
    said = given.maximise if is_most else given.minimise
    option = "--maximise" if is_most else "--minimise"
    by = objective("latency" if said is None else said, option, tolerances)
    if said is not None and by.is_higher_better != is_most:
        raise SpecError(
            f"{option}: {by.name} is better where it is {by.metric.better} (expected --{_OTHER[option]} {by.name})"
        )
    names = list(dict.fromkeys([by.name, *(each.objective.name for each in limits)]))
    return asked_of(given, names), limits, by


_OTHER = {"--maximise": "minimise", "--minimise": "maximise"}


def _one(fronts: list[Front]) -> Front:
    if len(fronts) != 1:
        raise SpecError(f"the run has {len(fronts)} tasks, and a choice is of one {several(fronts)}")
    return fronts[0]


def _words(given: argparse.Namespace) -> list[str]:
    names = (*_LIMITS, "minimise", "maximise")
    return [f"--{name}={value}" for name in names if (value := getattr(given, name)) is not None]
