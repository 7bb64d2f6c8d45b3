"""Fronts and choices for people, in a terminal, and for programs, as JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_ngraph import units
from pytest_ngraph.choosing.choice import Answer, Checked, Choice, Kept, Option
from pytest_ngraph.choosing.comparing import Candidate, Compared, factor_of
from pytest_ngraph.choosing.front import Front, Place, Rival, Standing
from pytest_ngraph.choosing.objectives import Objective, is_share
from pytest_ngraph.quantities.quantity import Estimate

_IN_ORDER = (Place.FRONT, Place.UNDECIDED, Place.OFF, Place.OUT)
_MARKS = {Place.FRONT: "+", Place.UNDECIDED: "?", Place.OFF: "-", Place.OUT: "x"}
_MOST_RIVALS, _WIDTH = 3, 80


def front_lines(front: Front, width: int = _WIDTH) -> Iterator[str]:
    """Yield a front for a terminal: its configurations, those on it first, each with its numbers and its reason."""
    yield from _wrapped(str(front.task), width, "")
    over = ", ".join(each.name for each in front.over)
    yield from _wrapped(f"over {over}; {how_sure(front)}" if over else "nothing to compare", width, "  ")
    for line in front.left_out:
        yield from _wrapped(f"note: {line}", width, "  ")
    if not front.standings:
        yield "  no configuration was measured"
    for place in _IN_ORDER:
        for standing in front.at(place):
            yield from _standing_lines(front, standing, width)


def how_sure(front: Front) -> str:
    """Write what a front promises, and of how many configurations it is."""
    count = len(front.candidates)
    return promised(front) + (f"; {units.count(count, 'configuration')} compared" if not front.by_points else "")


def promised(front: Front) -> str:
    """Write what a front promises."""
    if front.by_points:
        return f"by points: the protocol {front.protocol} controls no error, so that places may be chance"
    tolerances = dict.fromkeys(tolerance_words(each) for each in front.over)
    return (
        f"at most {100 * front.rate:g} % of such fronts throw off a configuration that nothing dominates; "
        f"{' and '.join(tolerances)} count as equal"
    )


def tolerance_words(objective: Objective) -> str:
    """Write how large a difference counts as none."""
    if objective.metric.scale == "log":
        return f"{100 * objective.tolerance:g} %"
    return f"{objective.tolerance:g} of {objective.name}"


def _standing_lines(front: Front, standing: Standing, width: int) -> Iterator[str]:
    yield from _wrapped(
        f"{_MARKS[standing.place]} {standing.candidate.name}: {place_words(front, standing)}", width, ""
    )
    if standing.place is Place.OUT:
        return
    yield from _wrapped(numbers(front, standing.candidate), width, "    ")
    for line in reasons(front, standing):
        yield from _wrapped(line, width, "    ")


def place_words(front: Front, standing: Standing) -> str:
    """Write where a configuration stands, by points where it is that."""
    if standing.place is Place.OUT:
        return f"{standing.place}, {standing.candidate.why_not}"
    return f"{standing.place}{' by points' if front.by_points else ''}"


def numbers(front: Front, candidate: Candidate) -> str:
    """Write what a configuration was measured by, each with its interval at 99 %."""
    return ", ".join(f"{each.name} {_written(candidate.estimate(each))}" for each in front.over)


def reasons(front: Front, standing: Standing) -> list[str]:
    """Write why a configuration stands where it stands: what dominates it, or what is open with which other ones."""
    rivals = standing.by or standing.open
    # One that dominates it is enough; of what is open each matters.
    most = 1 if standing.by else _MOST_RIVALS
    lines = [_reason(front, rival, is_open=not standing.by) for rival in rivals[:most]]
    if len(rivals) > most:
        more = len(rivals) - most
        lines.append(f"and {'by ' if standing.by else ''}{units.count(more, 'other one', 'other ones')}")
    return lines


def _reason(front: Front, rival: Rival, *, is_open: bool) -> str:
    name = front.candidates[rival.number].name
    said = ", ".join(each.text(front.level) for each in rival.compared)
    if not is_open:
        return f"dominated by {name}: {said}"
    enough = launches_words(rival.launches)
    return f"{name} may dominate it, open by {', '.join(rival.open) or 'all of it'}{enough}: {said}"


def launches_words(launches: int | None) -> str:
    """Write how many launches would be enough, where that is known."""
    return f" (about {launches} launches would show it)" if launches else ""


def _written(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not measured"
    return str(estimate).partition(" (no interval")[0]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


# Choices


def choice_lines(choice: Choice, width: int = _WIDTH) -> Iterator[str]:
    """Yield a choice for a terminal: what to deploy, why, why not the others, and what is open."""
    front, best = choice.front, choice.best
    yield from _wrapped(str(front.task), width, "")
    asked = ", ".join(str(each) for each in choice.limits) or "no limits"
    direction = "highest" if choice.by.is_higher_better else "lowest"
    yield from _wrapped(f"asked: {asked}; then the {direction} {choice.by.name}", width, "  ")
    yield from _wrapped(_sure(choice), width, "  ")
    points = " by points" if front.by_points else ""
    if choice.answer is Answer.NONE:
        yield f"none{points}: no configuration keeps to the limits"
    elif choice.answer is Answer.ONE and best is not None:
        yield from _wrapped(f"deploy this{points}: {best.candidate.name}", width, "")
    else:
        leads = f"{best.candidate.name} leads" if best is not None else "nothing leads"
        yield from _wrapped(f"undecided: {leads}", width, "")
    if best is not None:
        yield from _wrapped(numbers(front, best.candidate), width, "    ")
        for checked in best.checked:
            yield from _wrapped(_checked_words(checked), width, "    ")
    for option, compared in choice.open:
        yield from _wrapped(f"? {option.candidate.name}: {_why_open(front, option, compared)}", width, "")
    opened = {id(option) for option, _ in choice.open}
    for option in choice.options:
        if option is not best and id(option) not in opened:
            yield from _wrapped(f"- {option.candidate.name}: {_why_not(choice, option)}", width, "")
    for standing in front.at(Place.OUT):
        yield from _wrapped(f"x {standing.candidate.name}: {standing.candidate.why_not}", width, "")


def _sure(choice: Choice) -> str:
    front = choice.front
    if front.by_points:
        return f"by points: the protocol {front.protocol} controls no error, so that the answer may be chance"
    return f"at most {100 * front.rate:g} % of such answers are wrong; {tolerance_words(choice.by)} count as equal"


def _checked_words(checked: Checked) -> str:
    if checked.kept is Kept.UNKNOWN:
        return f"{checked.limit}: {checked.why}"
    enough = launches_words(checked.launches) if checked.kept is Kept.OPEN else ""
    if checked.kept is Kept.OPEN and is_share(checked.limit.objective.metric):
        enough = " (more samples would show it)"
    return f"{checked.limit}: {checked.kept}, {_written(checked.estimate)}{enough}"


def _why_open(front: Front, option: Option, compared: Compared | None) -> str:
    said = [_checked_words(each) for each in option.checked if each.kept is not Kept.YES]
    level = front.rate / (2 * max(1, len(front.candidates)))
    if compared is not None:
        said.append(f"may be better, {compared.text(level)}")
    return "; ".join(said)


def _why_not(choice: Choice, option: Option) -> str:
    broken = [_checked_words(each) for each in option.checked if each.kept is Kept.NO]
    if broken or choice.best is None:
        return "; ".join(broken)
    level = choice.front.rate / (2 * max(1, len(choice.front.candidates)))
    compared = choice.front.comparison.compared(choice.best.number, option.number, choice.by)
    return f"{choice.best.candidate.name} is as good or better, {compared.text(level)}"


# For programs


def front_json(front: Front) -> dict[str, Any]:
    """Return a front as plain values: no infinity and no NaN, which JSON has not."""
    return {
        "device": front.task.device,
        "model": front.task.model,
        "axes": list(front.task.axes),
        "side": front.task.side or None,
        "over": [
            {"name": each.name, "metric": each.metric.name, "unit": each.metric.unit, "better": each.metric.better,
             "tolerance": each.tolerance}
            for each in front.over
        ],
        "protocol": front.protocol,
        "judged": not front.by_points,
        "error_rate": None if front.by_points else front.rate,
        "notes": list(front.left_out),
        "configurations": [_standing_json(front, each) for each in front.standings],
    }  # fmt: skip


def _standing_json(front: Front, standing: Standing) -> dict[str, Any]:
    candidate = standing.candidate
    return {
        **candidate_json(front, candidate),
        "place": standing.place.value,
        "why_not": candidate.why_not or None,
        "dominated_by": [_rival_json(front, each) for each in standing.by],
        "undecided_with": [_rival_json(front, each) for each in standing.open],
    }


def candidate_json(front: Front, candidate: Candidate) -> dict[str, Any]:
    """Return a configuration with its numbers."""
    workload = candidate.cell.workload
    return {
        "name": candidate.name,
        "cell": candidate.cell.label,
        "compiler": str(candidate.cell.compiler),
        **{axis: workload.value(axis) for axis in ("batch", "precision", "optimize")},
        "values": {each.name: _estimate_json(candidate.estimate(each)) for each in front.over}
        if not candidate.why_not
        else {},
    }


def _rival_json(front: Front, rival: Rival) -> dict[str, Any]:
    return {
        "name": front.candidates[rival.number].name,
        "open": list(rival.open),
        "launches": rival.launches,
        "contrasts": [_compared_json(each, front.level) for each in rival.compared],
    }


def _compared_json(compared: Compared, level: float) -> dict[str, Any]:
    is_log = compared.objective.metric.scale == "log"
    theta, (low, high) = compared.contrast.theta, compared.contrast.ends(level)
    return {
        "objective": compared.objective.name,
        "how": compared.how,
        "why": compared.why or None,
        "launches": compared.launches,
        "scale": "factor" if is_log else "difference",
        **{name: _plain(factor_of(each) if is_log else each) for name, each in
           (("value", theta), ("low", low), ("high", high))},
    }  # fmt: skip


def _estimate_json(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    # Of one launch the ends of a logarithm are 0 and infinity.
    is_bounded = math.isfinite(estimate.low) and math.isfinite(estimate.high)
    low, high = (estimate.low, estimate.high) if is_bounded else (None, None)
    return {"value": _plain(estimate.value), "low": low, "high": high, "launches": estimate.launches}


def _plain(number: float) -> float | None:
    return number if math.isfinite(number) else None


def choice_json(choice: Choice, command: Sequence[str] = ()) -> dict[str, Any]:
    """Return a choice as plain values, with the front that it is made on. ``command`` is what would decide it."""
    front, best = choice.front, choice.best
    return {
        "answer": choice.answer.name.lower(),
        "deploy": candidate_json(front, best.candidate) if best is not None and choice.answer is Answer.ONE else None,
        "leads": best.candidate.name if best is not None else None,
        "by": choice.by.name,
        "limits": [
            {"name": each.objective.name, each.side: each.value, "unit": each.objective.metric.unit}
            for each in choice.limits
        ],
        "configurations": [
            {
                "name": each.candidate.name,
                "limits": {one.limit.objective.name: one.kept.value for one in each.checked},
                "place": each.place.value,
            }
            for each in choice.options
        ],
        "undecided_with": [option.candidate.name for option, _ in choice.open],
        "would_decide": list(command),
        "front": front_json(front),
    }
