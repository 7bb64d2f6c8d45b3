"""What would decide a front or a choice: a test that measures until it is decided, and the commands that run it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_ngraph.axes import AXES
from pytest_ngraph.choosing.choice import Choice, Kept, Option
from pytest_ngraph.choosing.comparing import OF_CONFIGURATION, Candidate, Compared
from pytest_ngraph.choosing.front import Front, Place, Rival
from pytest_ngraph.choosing.objectives import Objective, is_share
from pytest_ngraph.errors import SpecError
from pytest_ngraph.quantities.accuracy import AGREEMENT, SAMPLES
from pytest_ngraph.quantities.quantity import CellFailed, NotStored
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
    if why := no_test_on(front):
        raise SpecError(f"no test would decide it: {why}")
    names = {one.cell.label for one in _decidable(front)}
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
    if why := _not_measured_again(choice.front):
        return why
    if _lines_of(choice)[1]:
        return ""
    shares, lacking = list[Objective](), set[str]()
    for option in filter(None, [choice.best, *(option for option, _ in choice.open)]):
        for checked in option.checked:
            of = checked.limit.objective
            if checked.kept is Kept.OPEN and is_share(of.metric):
                shares.append(of)
            elif checked.kept in (Kept.OPEN, Kept.UNKNOWN):
                lacking.add(f"{of.name} of {option.candidate.name}")
    if is_share(choice.by.metric) and any(not _is_ahead(choice, compared) for _, compared in choice.open):
        shares.append(choice.by)
    reasons = [_more_samples(shares)] if shares else []
    if lacking or not shares:
        what = ", ".join(sorted(lacking)) or "it"
        reasons.append(f"nothing that can be claimed decides {what} (leave that limit away)")
    return "; ".join(reasons)


def no_test_on(front: Front) -> str:
    """Return why no test would decide which configurations are on a front, or nothing."""
    if (why := _not_measured_again(front)) or not open_of_front(front) or _decidable(front):
        return why
    names = {name for each in front.at(Place.UNDECIDED) for rival in each.open for name in _open_by(front, rival)}
    opened = [each for each in front.over if each.name in names]
    open_ones = front.at(Place.UNDECIDED)
    numbers = {rival.number for each in open_ones for rival in each.open}
    among = [*(each.candidate for each in open_ones), *(front.candidates[number] for number in sorted(numbers))]
    # An evaluation that gave other scores gives those again.
    lacking = (f"{one.name}: {why}" for each in opened for one in among if (why := one.why_none(each)))
    return next(lacking, "") or _more_samples(opened)


def _decidable(front: Front) -> list[Candidate]:
    """Return the undecided configurations of which further launches, or samples not asked for yet, may say more."""

    def may_say_more(candidate: Candidate, rival: Rival) -> bool:
        pair, names = (candidate, front.candidates[rival.number]), _open_by(front, rival)
        return any(not _is_spent(pair, each) for each in front.over if each.name in names)

    return [
        each.candidate
        for each in front.at(Place.UNDECIDED)
        if any(may_say_more(each.candidate, rival) for rival in each.open)
    ]


def _open_by(front: Front, rival: Rival) -> Sequence[str]:
    return rival.open or [each.name for each in front.over]


def _is_spent(candidates: Iterable[Candidate], objective: Objective) -> bool:
    """Return whether no run says more of an objective: a share that each of the cells was asked for.

    What a cell gave is kept by its evidence, so that the same samples come back.
    """
    return is_share(objective.metric) and all(_was_asked(each, objective) for each in candidates)


def _was_asked(candidate: Candidate, objective: Objective) -> bool:
    measurement, cell = candidate.measurement, candidate.cell
    try:
        if objective.metric.name == AGREEMENT:
            measurement.source.agreement(cell, measurement.dense, SAMPLES)
        else:
            measurement.source.evaluation(cell)
    except (NotStored, CellFailed):
        return False
    return True


def _more_samples(objectives: Iterable[Objective]) -> str:
    """Return what open shares need, which is no further launch."""
    names = {each.name: each.metric.name for each in objectives}
    evaluated = [name for name, metric in names.items() if metric != AGREEMENT]
    said = []
    if evaluated:
        verb = "needs" if len(evaluated) == 1 else "need"
        said.append(
            f"{' and '.join(evaluated)} {verb} more samples in the model's evaluate(predict): asked again it shows "
            "the same ones"
        )
    if len(evaluated) < len(names):
        said.append(
            f"agreement is made of a fixed number of samples, {SAMPLES} unless assert_agreement(samples=) asks for "
            "more, and they are the same ones each time"
        )
    return "; ".join(said)


def _not_measured_again(front: Front) -> str:
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
            objective = checked.limit.objective
            helper, is_open = objective.helper, checked.kept in (Kept.OPEN, Kept.UNKNOWN)
            if is_open and helper and not _is_spent([option.candidate], objective):
                helpers.add(helper)
                # Claims about shares of samples have no tolerance.
                exactly = "" if is_share(objective.metric) else ", tolerance=0"
                of = f", of={json.dumps(objective.of)}" if objective.of else ""
                limit = f"{checked.limit.side}={checked.limit.value:.12g}{exactly}{of}"
                lines.append(f"{helper}(known[{json.dumps(option.candidate.cell.label)}], {limit})")
    if choice.best is not None and (open_rivals := _open_rivals(choice, choice.best)):
        helpers.add("assert_pareto")
        best = json.dumps(choice.best.candidate.cell.label)
        rivals = [json.dumps(option.candidate.cell.label) for option in open_rivals]
        among = f"[{', '.join(f'known[{each}]' for each in rivals)}]"
        lines.append(f"assert_pareto(known[{best}], among={among}, over=({json.dumps(choice.by.name)},))")
    return sorted(helpers), lines


def _open_rivals(choice: Choice, best: Option) -> list[Option]:
    """Return those of which another run may say whether they are better than the best one."""
    return [
        option
        for option, compared in choice.open
        if not _is_ahead(choice, compared) and not _is_spent([best.candidate, option.candidate], choice.by)
    ]


def _is_ahead(choice: Choice, compared: Compared | None) -> bool:
    """Return whether one is shown to be better than the best one, so that its limits alone leave it open."""
    level = choice.front.rate / (2 * max(1, len(choice.front.candidates)))
    return compared is not None and compared.contrast.ends(level)[0] > compared.contrast.zone


def _written(front: Front, helpers: Sequence[str], claims: Sequence[str]) -> str:
    """Return a test that measures the configurations of a front, no others, and makes all of these claims."""
    if why := _not_measured_again(front):
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
