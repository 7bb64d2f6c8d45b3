"""What a verdict says to people: the claim, the estimate, both sides, what could be seen, and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable

from pytest_ngraph import units
from pytest_ngraph.claims.decide import Decision
from pytest_ngraph.claims.doubts.lacking import lacks_builds
from pytest_ngraph.quantities.explained import what_ran_lines
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


# What a metric is called in the first words of a message, where that is not its name.
_SHORT = {
    "speedup": "speed-up", "cpu_percent": "CPU", "compile_seconds": "compile time", "peak_memory_bytes": "memory",
    "throughput_ratio": "throughput ratio", "time_to_first_token": "first token", "time_per_token": "per token",
    "tokens_per_second": "tokens per second",
}  # fmt: skip
_OF_A_BATCH = ("rtr", "ase", "bsr", "friction")


def short_name(quantity: Quantity) -> str:
    """Return what a message calls a quantity in its first words, such as ``bsr@8``."""
    name = _SHORT.get(quantity.metric.name, quantity.metric.name)
    return f"{name}@{quantity.subject.workload.batch}" if quantity.metric.name in _OF_A_BATCH else name


def headline(name: str, quantity: Quantity, bound: Bound, decision: Decision) -> str:
    """Return a verdict in a few words that begin with its numbers, such as ``bsr@8 0.31 < 0.90``.

    A list of failed tests has room for no more.
    """
    write, value = quantity.metric.format, decision.estimate.value
    side, limit = bound.words.replace("_", " "), decision.unknown_bound or write(bound.value)
    if not decision.estimate.launches:
        return f"{name} not measured, {side} {limit}"
    is_beyond = value < bound.value if bound.at_least else value > bound.value
    if decision.verdict is not Verdict.FAIL or not is_beyond:
        verdict = "" if decision.verdict is Verdict.NOT_JUDGED else f", {decision.verdict}"
        return f"{name} {write(value)}{verdict}: {side} {limit}"
    # Two numbers that look alike are told apart by how far they are from one another.
    is_alike = write(value) == limit and bound.value
    by = f" by {units.fraction(abs(value / bound.value - 1))}" if is_alike else ""
    return f"{name} {write(value)} {'<' if bound.at_least else '>'} {limit}{by}"


def explain(helper: str, quantity: Quantity, bound: Bound, decision: Decision, name: str = "") -> str:
    """Write a verdict for people: its numbers, the claim, the estimate, both sides, what could be seen and what to do.

    ``name`` is of what the numbers are, where that is not the metric.
    """
    write = quantity.metric.format
    linear = bound.scale == "linear"
    estimate = decision.estimate
    first = f"{headline(name or short_name(quantity), quantity, bound, decision)}: {helper}: {quantity.label}"
    lines = [first, f"  claimed {_claimed(bound, write, decision.unknown_bound)}"]
    if not estimate.launches:
        what = advice(quantity, bound, decision)
        advised = [f"  what to do: {what}"] if what else []
        return "\n".join([*lines, f"  {decision.verdict}: {decision.reason}", *advised])
    source = quantity.source
    error = "deviation" if source.repetitions else "error"
    spread = f"{_at_least(decision.confidence)} interval" if source.error_control else f"+- one standard {error}"
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
        lines.append(f"    {part.label}: {part.present(values) if values else 'not shown beside others'}")
    lines += thread_notes(quantity)
    lines += [f"  note: {note}" for note in decision.notes]
    if decision.smallest_visible is not None:
        visible = write(decision.smallest_visible) if linear else units.fraction(decision.smallest_visible)
        lines.append(f"  smallest effect this gate could have seen: {visible}; most noise is {decision.noise}")
    if decision.verdict is Verdict.FAIL:
        lines += what_ran_lines(quantity)
    if what := advice(quantity, bound, decision):
        lines.append(f"  what to do: {what}")
    return "\n".join(lines)


def _at_least(confidence: float) -> str:
    """Write how sure an interval is, rounded down to what may be said of it: ``99 %``, from there on ``99.9 %``."""
    digits = 0 if confidence < 0.999 else 1
    # The last bits of a level must not take a per cent away.
    return f"{math.floor(100 * confidence * 10**digits + 1e-6) / 10**digits:g} %"


def _claimed(bound: Bound, write: Callable[[float], str], unknown: str = "") -> str:
    """Return what is claimed, and from where on it passes: with a tolerance that is not the bound."""
    beyond = "above" if bound.at_least else "below"
    if bound.is_strict:
        return f"to be shown {beyond} {write(bound.value)}, without tolerance"
    tolerance = write(bound.tolerance) if bound.scale == "linear" else f"{100 * bound.tolerance:g} %"
    words = "at least" if bound.at_least else "at most"
    if unknown:
        return f"{words} {unknown} (tolerance {tolerance})"
    return f"{words} {write(bound.value)} (tolerance {tolerance}: what is shown {beyond} {write(bound.passing)} passes)"


def terms(bound: Bound, tolerance: float) -> str:
    """Write a bound as the store knows its claim, in plain numbers. ``tolerance`` is the one that was given."""
    if bound.is_strict:
        return f"{bound.words} {bound.value:g} (no tolerance)"
    # That of a linear metric is a fraction of what was measured.
    passes = f": passes {'above' if bound.at_least else 'below'} {bound.passing:g}" if bound.scale == "log" else ""
    return f"{bound.words} {bound.value:g} (tolerance {tolerance:g}{passes})"


def advice(quantity: Quantity, bound: Bound, decision: Decision) -> str:
    """Return what helps against what kept a gate from being decided, and nothing of one that was decided."""
    if decision.verdict not in (Verdict.INCONCLUSIVE, Verdict.INVALID):
        return ""
    if decision.advice:
        return decision.advice
    if lacks_builds(quantity) and (decision.verdict is Verdict.INCONCLUSIVE or not decision.estimate.launches):
        return _REBUILD
    if decision.verdict is Verdict.INVALID:
        return "end what else runs on this machine, or measure on another (ngraph doctor --noise)"
    if bound.is_strict and decision.estimate.launches:
        return _IS_EQUAL
    closed = next((what for option, what in _WHERE_CLOSED.items() if f"({option})" in decision.reason), "")
    if closed or not decision.estimate.launches:
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
