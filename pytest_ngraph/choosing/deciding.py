"""What would decide a front or a choice: a test that measures until it is decided, and the commands that run it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from pytest_ngraph.axes import AXES
from pytest_ngraph.choosing.choice import Choice, Kept
from pytest_ngraph.choosing.comparing import OF_CONFIGURATION, Candidate
from pytest_ngraph.choosing.front import Front, Place
from pytest_ngraph.choosing.objectives import is_share
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import Cell

# So many launches where nobody knows better: twice as many as a gate has by default.
_LAUNCHES = 16
FILE = Path("test_choice.py")


def open_of_front(front: Front) -> list[Candidate]:
    """Return the configurations of which it is open whether they are on the front."""
    return [each.candidate for each in front.at(Place.UNDECIDED)]


def launches_of_front(front: Front) -> int:
    """Return a budget that should decide a front."""
    needed = [rival.launches for each in front.at(Place.UNDECIDED) for rival in each.open]
    return max([_LAUNCHES, *(each for each in needed if each)])


def commands(arguments: Sequence[str], file: Path, launches: int) -> list[str]:
    """Return the commands that decide what ``ngraph`` with these arguments left open: write, measure, ask again."""
    again = ["ngraph", *arguments]
    return [
        shlex.join([*again, "--write", str(file)]),
        shlex.join(["pytest", str(file), f"--ngraph-budget={launches}"]),
        shlex.join(again),
    ]


def test_of_front(front: Front) -> str:
    """Return a test that measures a front until it is known of each configuration whether it is on it.

    Raises SpecError where none can.
    """
    names = {one.cell.label for one in open_of_front(front)}
    over = ", ".join(json.dumps(each.name) for each in front.over)
    claims = [
        f"assert_pareto(known[{json.dumps(label)}], among=known.values(), over=({over},))" for label in sorted(names)
    ]
    return _written(front, ["assert_pareto"], claims)


def launches_of_choice(choice: Choice) -> int:
    """Return a budget that should decide a choice."""
    needed = [checked.launches for option in choice.options for checked in option.checked]
    return max([_LAUNCHES, *(each for each in needed if each)])


def no_test_of(choice: Choice) -> str:
    """Return why no test would decide a choice, or nothing."""
    if why := no_test_on(choice.front):
        return why
    if _lines_of(choice)[1]:
        return ""
    lacking = {
        f"{checked.limit.objective.name} of {option.candidate.name}"
        for option in filter(None, [choice.best, *(option for option, _ in choice.open)])
        for checked in option.checked
        if checked.kept in (Kept.OPEN, Kept.UNKNOWN)
    }
    return f"nothing that can be claimed decides {', '.join(sorted(lacking)) or 'it'} (leave that limit away)"


def no_test_on(front: Front) -> str:
    """Return why no test would measure the configurations of a front again, or nothing."""
    if front.task.side:
        return f"these are cells of another side, {front.task.side}, which the run that compares sides measures"
    if rebuilt := [one.name for one in front.candidates if one.cell.rebuild]:
        return f"{rebuilt[0]} is built again for every launch, which the test that asks for that measures"
    return ""


def test_of_choice(choice: Choice) -> str:
    """Return a test that measures until limits are kept to or not, and the best one is known.

    Raises SpecError where none can.
    """
    if why := no_test_of(choice):
        raise SpecError(f"no test would decide it: {why}")
    return _written(choice.front, *_lines_of(choice))


def _lines_of(choice: Choice) -> tuple[Sequence[str], Sequence[str]]:
    """Return the helpers that the claims of a test need, and the claims as calls."""
    helpers, lines = set(), list[str]()
    opened = [choice.best, *(option for option, _ in choice.open)]
    for option in filter(None, opened):
        for checked in option.checked:
            helper = checked.limit.objective.helper
            if checked.kept in (Kept.OPEN, Kept.UNKNOWN) and helper:
                helpers.add(helper)
                # Claims about shares of samples have no tolerance.
                exactly = "" if is_share(checked.limit.objective.metric) else ", tolerance=0"
                of = f", of={json.dumps(checked.limit.objective.of)}" if checked.limit.objective.of else ""
                limit = f"{checked.limit.side}={checked.limit.value:.12g}{exactly}{of}"
                lines.append(f"{helper}(known[{json.dumps(option.candidate.cell.label)}], {limit})")
    if choice.best is not None and any(compared is not None for _, compared in choice.open):
        helpers.add("assert_pareto")
        best = json.dumps(choice.best.candidate.cell.label)
        rivals = [json.dumps(option.candidate.cell.label) for option, _ in choice.open]
        among = f"[{', '.join(f'known[{each}]' for each in rivals)}]"
        lines.append(f"assert_pareto(known[{best}], among={among}, over=({json.dumps(choice.by.name)},))")
    return sorted(helpers), lines


def _written(front: Front, helpers: Sequence[str], claims: Sequence[str]) -> str:
    """Return a test that measures the configurations of a front, no others, and makes all of these claims."""
    if why := no_test_on(front):
        raise SpecError(f"no test would decide it: {why}")
    cells = [one.cell for one in front.candidates]
    task = cells[0].workload
    fixed = {
        row.name: value
        for row in AXES
        if row.name not in ("model", *OF_CONFIGURATION) and row.is_shown(value := task.value(row.name))
    }
    points = dict.fromkeys(json.dumps(_point(cell)) for cell in cells)
    listed = "".join(f"            {point},\n" for point in points)
    given = [f"model={json.dumps(task.model.text)}"]
    given += [f"{name}={json.dumps(value)}" for name, value in fixed.items()]
    measured = f"        points=[\n{listed}        ],\n" + "".join(f"        {each},\n" for each in given)
    compiler, device = json.dumps(str(cells[0].compiler)), json.dumps(cells[0].device)
    return (
        f'"""Measures what is open about {_safe(str(front.task))}; a red test is an answer, too."""\n\n'
        f"import pytest\nfrom pytest_ngraph import {', '.join(helpers)}\n\n\n"
        f"@pytest.mark.ngraph(compilers=[{compiler}], devices=[{device}])\n"
        f"def test_choice(ngraph):\n    cells = ngraph.measure(\n{measured}    )\n"
        "    known = {one.cell.label: one for one in cells}\n" + _claimed(claims)
    )


def _point(cell: Cell) -> dict[str, object]:
    """Return what a configuration has of its own, as ``ngraph.measure`` takes it."""
    axes = {name: value for name in OF_CONFIGURATION if (value := cell.workload.value(name)) is not None}
    return {"compiler": str(cell.compiler), **axes}


def _claimed(claims: Sequence[str]) -> str:
    """Return the lines that make claims: all of them, also where one fails."""
    if len(claims) < 2:
        return "".join(f"    {claim}\n" for claim in claims)
    each = "".join(f"        lambda: {claim},\n" for claim in claims)
    return (
        f"    failed = []\n    for claim in (\n{each}    ):\n        try:\n            claim()\n"
        "        except AssertionError as error:\n            failed.append(str(error))\n"
        '    assert not failed, "\\n".join(failed)\n'
    )


def _safe(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")
