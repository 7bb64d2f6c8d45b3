"""Why a gate got no further launch, and whether another one would serve it."""

from __future__ import annotations

from pytest_ngraph import units
from pytest_ngraph.claims.doubts.controls import last_shared, never_settles, stays_shared, too_shared
from pytest_ngraph.quantities.quantity import Quantity
from pytest_ngraph.spec.resources.peaks import COMPILING, GPU, HOST, METRIC_OF
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.texts.shown import one_line

# Numbers that a launch may not give, because a cache did.
COMPILE_PEAKS = (METRIC_OF[HOST, COMPILING], METRIC_OF[GPU, COMPILING])
ONCE = ("compile_seconds", "load_seconds", "export_seconds", *COMPILE_PEAKS)
SPENT = "the budget is spent"


def undecided(quantity: Quantity) -> Verdict:
    """Return what a gate is that got too few launches: invalid where launch after launch did not count."""
    is_given_up = quantity.source.fruitless(quantity).is_given_up or too_shared(quantity)
    return Verdict.INVALID if is_given_up else Verdict.INCONCLUSIVE


def why_no_more(quantity: Quantity, count: int) -> str:
    """Return why a gate that has ``count`` launches with a value got no further one."""
    source = quantity.source
    launches, fruitless = len(source.records(quantity)), source.fruitless(quantity)
    invalid = fruitless.reasons
    if (shared := too_shared(quantity)) and not fruitless.is_given_up:
        return shared if stays_shared(quantity) else "; ".join(filter(None, [shared, _why_not_again(quantity)]))
    if source.closed and not fruitless.is_given_up:
        if not launches and source.holding(quantity):
            return f"too few launches in the usual state of the machine; {source.closed}"
        return source.closed
    if lacks_builds(quantity):
        return f"{count} of {launches} launches gave this number; the others took a cached result"
    unstable = _unstable(quantity)
    if unstable:
        return f"{launches - count} of {launches} launches do not count: {unstable}"
    if fruitless.is_given_up:
        return f"{len(invalid)} launches do not count, and no further one was tried: {invalid[-1]}"
    if count < launches and (shared := last_shared(quantity)):
        return f"{count} of {launches} launches gave this number: {shared}"
    if count < launches and (unread := _unread(quantity)):
        return f"{count} of {units.count(launches, 'pass', 'passes')} gave this number: {unread}"
    if count < launches:
        return f"only {count} of {launches} launches had usable visits: too much else ran on this machine"
    return SPENT + (f"; launches that do not count: {len(invalid)}, {invalid[-1]}" if invalid else "")


def _why_not_again(quantity: Quantity) -> str:
    """Return why a gate that others spoilt in an earlier run got too few launches in this one, or nothing."""
    return quantity.source.closed or ("" if quantity.metric.name in ONCE else SPENT)


def _unread(quantity: Quantity) -> str:
    """Return why the latest pass that could not read a number could not, or nothing."""
    records = reversed(quantity.source.records(quantity))
    reasons = (dict(record.prepared[quantity.subject].unread).get(quantity.metric.name) for record in records)
    return next(filter(None, reasons), "")


def _unstable(quantity: Quantity) -> str:
    """Return why a cell of the claim is unstable in some launch, or nothing."""
    for record in quantity.source.records(quantity):
        cell = record.unsettled(quantity.cells)
        if cell is not None:
            return one_line(f"{cell.label}: {record.prepared[cell].reason}")
    return ""


def hardly_serves(quantity: Quantity) -> bool:
    """Return whether another launch would hardly say more of a quantity."""
    return lacks_builds(quantity) or stays_shared(quantity) or never_settles(quantity)


def lacks_builds(quantity: Quantity) -> bool:
    """Return whether a compile time gets no further sample: launches load what an earlier one had built."""
    cell = quantity.subject
    if quantity.metric.name != "compile_seconds" or cell.rebuild:
        return False
    return any(record.prepared[cell].loaded for record in quantity.source.records(quantity))
