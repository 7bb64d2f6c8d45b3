"""What a verdict says to people: the claim, the estimate, both sides, what could be seen, and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable

from pytest_ngraph import units
from pytest_ngraph.claims.decide import Decision, lacks_builds
from pytest_ngraph.quantities.quantity import Quantity
from pytest_ngraph.stats.verdict import Bound, Verdict

_REBUILD = "rebuild=True in the marker: every launch then compiles again and gives a compile time of its own"

# What helps where an option keeps launches from being added, by the option that the reason names.
_WHERE_CLOSED = {
    "--ngraph-offline": "measure more launches: run without --ngraph-offline",
    "--ngraph-run-budget": "run again, which goes on from the launches that are stored, or with a larger "
    "--ngraph-run-budget",
}
_IS_EQUAL = (
    "a larger --ngraph-budget shows a smaller difference; what only has to keep up is claimed with assert_no_slower"
)


def explain(helper: str, quantity: Quantity, bound: Bound, decision: Decision) -> str:
    """Write a verdict for people: the claim, the estimate, both sides, what could be seen, and what to do."""
    write = quantity.metric.format
    linear = bound.scale == "linear"
    estimate = decision.estimate
    lines = [f"{helper}: {quantity.label}", f"  claimed {_claimed(bound, write)}"]
    if not estimate.launches:
        rebuild = [f"  what to do: {_REBUILD}"] if lacks_builds(quantity) else []
        return "\n".join([*lines, f"  {decision.verdict}: {decision.reason}", *rebuild])
    source = quantity.source
    error = "deviation" if source.repetitions else "error"
    spread = "99 % interval" if source.error_control else f"+- one standard {error}"
    launches = units.count(estimate.launches, "launch", "launches")
    over = f"{spread} {write(estimate.low)} to {write(estimate.high)}, {launches}"
    if not math.isfinite(estimate.high - estimate.low):
        over = f"no interval from {launches}"
    state = f", state {decision.state_words}" if decision.state_words else ""
    reason = f"; {decision.reason}" if decision.reason else ""
    lines.append(f"  {decision.verdict}: {write(estimate.value)}, {over}{state}{reason}")
    for part in quantity.parts:
        values = part.values()
        # Beside others a ratio is shown, and what it is made of is not.
        lines.append(f"    {part.label}: {part.present(values) if values else 'not shown beside other processes'}")
    lines += thread_notes(quantity)
    lines += [f"  note: {note}" for note in decision.notes]
    if decision.smallest_visible is not None:
        visible = write(decision.smallest_visible) if linear else units.fraction(decision.smallest_visible)
        lines.append(f"  smallest effect this gate could have seen: {visible}; most noise is {decision.noise}")
    if decision.verdict in (Verdict.INCONCLUSIVE, Verdict.INVALID):
        what = _IS_EQUAL if bound.is_strict and decision.verdict is Verdict.INCONCLUSIVE else advice(quantity, decision)
        lines.append(f"  what to do: {what}")
    return "\n".join(lines)


def _claimed(bound: Bound, write: Callable[[float], str]) -> str:
    """Return what is claimed, and from where on it passes: with a tolerance that is not the bound."""
    beyond = "above" if bound.at_least else "below"
    if bound.is_strict:
        return f"to be shown {beyond} {write(bound.value)}, without tolerance"
    tolerance = write(bound.tolerance) if bound.scale == "linear" else f"{100 * bound.tolerance:g} %"
    words = "at least" if bound.at_least else "at most"
    return f"{words} {write(bound.value)} (tolerance {tolerance}: what is shown {beyond} {write(bound.passing)} passes)"


def terms(bound: Bound, tolerance: float) -> str:
    """Write a bound as the store knows its claim, in plain numbers. ``tolerance`` is the one that was given."""
    if bound.is_strict:
        return f"{bound.words} {bound.value:g} (no tolerance)"
    # That of a linear metric is a fraction of what was measured.
    passes = f": passes {'above' if bound.at_least else 'below'} {bound.passing:g}" if bound.scale == "log" else ""
    return f"{bound.words} {bound.value:g} (tolerance {tolerance:g}{passes})"


def advice(quantity: Quantity, decision: Decision) -> str:
    """Return what helps against what kept a gate from being decided."""
    if decision.verdict is Verdict.INVALID:
        return "end what else runs on this machine, or measure on another (ngraph doctor --noise)"
    if lacks_builds(quantity):
        return _REBUILD
    closed = next((what for option, what in _WHERE_CLOSED.items() if f"({option})" in decision.reason), None)
    if closed is not None:
        return closed
    return {
        "drift": "bring the machine to a steady state first (clocks, heat; ngraph doctor --noise), then run again "
        "with --ngraph-fresh",
        "between launches": "a larger --ngraph-budget, a wider tolerance=, or a steadier machine (ngraph doctor "
        "--noise)",
        "within a launch": "a quieter machine (ngraph doctor --noise), a larger --ngraph-budget, or a wider tolerance=",
    }.get(decision.noise, "a larger --ngraph-budget or a wider tolerance=")


def thread_notes(quantity: Quantity) -> list[str]:
    """Return where a relative claim compares compilers that were given different numbers of threads."""
    usual = quantity.measurer.session.device.threads
    given = {cell.compiler: int(dict(cell.compiler.options).get("threads") or usual) for cell in quantity.cells}
    if len(set(given.values())) < 2:
        return []
    return ["  note: different threads: " + ", ".join(f"{compiler} has {count}" for compiler, count in given.items())]
