"""From what measuring raises and finds to outcomes of tests: failed, skipped with the reason, undecided."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ngraph.claims.assertions import InconclusiveWarning
from pytest_ngraph.claims.changes import CHANGE, Together, assert_no_slower
from pytest_ngraph.errors import ClaimError, NgraphError, SpecError, Unsupported
from pytest_ngraph.front.fixtures import measured_by
from pytest_ngraph.front.run import STATE, State, id_of
from pytest_ngraph.quantities.quantity import CellFailed, NarrowedAway, NotStored
from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.texts.shown import excerpt

if TYPE_CHECKING:
    from pytest_ngraph.plan.items import ItemPlan
    from pytest_ngraph.quantities.sweeps import Measurement


# What a run asks of a test once its body is over, given the item and its plan.
Ask = Callable[..., None]
# The numbers of a claim, and the helper that made it.
_OF_A_CLAIM = re.compile(r"\S[^\n]*: assert_[a-z_]+: ")
# A warning as pytest writes it: place, class, text.
_UNDECIDED = re.compile(rf"[^\n]*?:\d+: {InconclusiveWarning.__name__}: ")


def function_of(item: pytest.Item) -> str:
    """Return the id of the test function that an item is of."""
    # Folders may have brackets in their names, too.
    callspec = getattr(item, "callspec", None)
    return id_of(item) if callspec is None else id_of(item).removesuffix(f"[{callspec.id}]")


def has_to_run(item: pytest.Item, plan: ItemPlan) -> str | None:
    """Return why a test must not be skipped for what its compiler lacks, or None."""
    settings = item.config.stash[STATE].settings
    if settings.strict:
        return "--ngraph-strict"
    named = settings.compilers is not None or plan.marker.compilers is not None
    return "a compiler that is named has to run where CI is set" if named and os.environ.get("CI") else None


def cannot_run(item: pytest.Item, plan: ItemPlan, reason: str, what: str = "") -> None:
    """Skip a test, or fail it where it has to run. ``what`` is the reason without the cell, where that is another."""
    __tracebackhide__ = True
    why = has_to_run(item, plan)
    if why is not None:
        raise pytest.fail.Exception(f"{reason} ({why})", pytrace=False) from None
    item.config.stash[STATE].leave_out(function_of(item), reason, what or reason)
    # Where the test is, not where this was found out.
    raise pytest.skip.Exception(reason, _use_item_location=True) from None


@contextlib.contextmanager
def as_outcomes(item: pytest.Item, plan: ItemPlan) -> Iterator[None]:
    """Turn what measuring raises into outcomes of the test: only what cannot be run in principle is a skip."""
    __tracebackhide__ = True
    try:
        yield
    except NarrowedAway as narrowed:
        raise pytest.skip.Exception(str(narrowed), _use_item_location=True) from None
    except CellFailed as failed:
        cell, record = failed.cell, failed.record
        # pytest itself puts "Failed: " in front.
        outcome = "" if record.outcome is Outcome.FAILED else f"{record.outcome}: "
        text = excerpt(f"{outcome}{cell.label}: {record.reason}")
        if record.outcome in (Outcome.UNSUPPORTED, Outcome.UNAVAILABLE):
            cannot_run(item, plan, text, f"{cell.compiler} on {cell.device}: {record.reason}")
        raise pytest.fail.Exception(text, pytrace=False) from None
    except NotStored as missing:
        if any(row.is_open for row in item.config.stash[STATE].claims):
            # The test's own claim has said so.
            return
        item.config.stash[STATE].not_stored[id_of(item)] = message = f"inconclusive: {missing}"
        choice = item.config.stash[STATE].settings.inconclusive
        if choice == "fail":
            raise pytest.fail.Exception(f"{excerpt(message)}{_place_of(missing)}", pytrace=False) from None
        if choice == "skip":
            raise pytest.skip.Exception(message, _use_item_location=True) from None
        item.warn(InconclusiveWarning(message))
    except Unsupported as error:
        what = f"{plan.compiler} on {plan.device}: {error}"
        cannot_run(item, plan, excerpt(f"unsupported: {what}"), what)
    except (ClaimError, SpecError) as error:
        raise pytest.fail.Exception(f"{excerpt(str(error))}{_place_of(error)}", pytrace=False) from None
    except NgraphError as error:
        raise pytest.fail.Exception(excerpt(str(error)), pytrace=False) from None


def _place_of(error: Exception) -> str:
    """Return the user's line that an error came from, for a message without a traceback, or nothing without any."""
    import traceback

    skipped = (str(Path(__file__).parents[1]), str(Path(pytest.__file__).parents[1]), contextlib.__file__)
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(skipped)]
    return f"\n  at {theirs[-1].filename}:{theirs[-1].lineno}: {theirs[-1].line}" if theirs else ""


def numbers_first(report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
    """Have pytest's own list of what failed begin with the numbers of a claim, without the name of an exception."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if (
        call.excinfo is None
        or crash is None
        or not isinstance(call.excinfo.value, AssertionError | pytest.fail.Exception)
    ):
        return
    text = str(call.excinfo.value)
    if _OF_A_CLAIM.match(text):
        crash.message = text


def is_undecided(state: State, nodeid: str, report: pytest.TestReport) -> bool:
    """Return whether a test has left a gate undecided in this phase and was neither failed nor skipped for it.

    One whose fixture is not stored could not go on, which is no reason to skip it either.
    """
    if not state.leaves_undecided(nodeid, report.when or ""):
        return False
    if report.when == "setup":
        return report.skipped and nodeid in state.not_stored and state.settings.inconclusive == "warn"
    return report.passed


def without_undecided(reporter: pytest.TerminalReporter | None) -> None:
    """Take gates that were not decided out of pytest's list of warnings.

    Each has its letter, is counted as undecided, and is explained in the summary.
    """
    stats = getattr(reporter, "stats", {})
    kept = [each for each in stats.get("warnings", ()) if not _UNDECIDED.match(each.message)]
    if kept:
        stats["warnings"] = kept
    else:
        stats.pop("warnings", None)


def prepare(item: pytest.Function, plan: ItemPlan) -> None:
    """Compile what a test calls in this process, before its body begins. Skip it for what is not installed."""
    __tracebackhide__ = True
    if plan.missing is not None:
        cannot_run(item, plan, plan.missing)
    in_process: Any = item.funcargs.get("ngraph_callable")
    if in_process is not None:
        in_process.compile()


def measure_what_is_left(item: pytest.Function, plan: ItemPlan) -> None:
    """Measure the cells of a test that its body never touched."""
    __tracebackhide__ = True
    if plan.cells and not is_settled(item):
        measured_by(item, plan).ensure()


@contextlib.contextmanager
def with_what_the_run_asks(item: pytest.Function, plan: ItemPlan, compare: Ask | None) -> Iterator[None]:
    """Hold the cells of a test to what the run asks of all after its body, also where what that claims does not hold.

    ``compare`` holds them against a saved baseline, where there is one. What ends the body otherwise - an error,
    ``pytest.fail``, ``pytest.skip`` - ends the test at once: nobody asks for more.
    """
    __tracebackhide__ = True
    kept: BaseException | None = None
    try:
        yield
    except (AssertionError, *_NO_NUMBER) as error:
        kept = error
    except pytest.skip.Exception as error:
        if not _is_skipped_by_a_claim(item):
            raise
        kept = error
    for ask in _asked_of_all(item, compare, has_failed=kept is not None):
        try:
            ask(item, plan)
        except (*_FAILS, pytest.skip.Exception, Warning) as error:
            kept = error if kept is None else _said_of_both(kept, error)
            if isinstance(error, NgraphError) and _is_fail(error):
                # What comes next would meet it again.
                break
    if kept is not None:
        # Its own, with whatever the user gave as its cause.
        raise kept


# What there is no number of, which is no fail by itself: a cell without a time may be a skip.
_NO_NUMBER = (CellFailed, NarrowedAway, NotStored)
# What a run finds by itself: a confirmed fail, or that what it is asked for cannot be; and what has no number.
_FAILS = (pytest.fail.Exception, NgraphError)


def _is_fail(error: BaseException) -> bool:
    return isinstance(error, _FAILS) and not isinstance(error, _NO_NUMBER)


def _asked_of_all(item: pytest.Function, compare: Ask | None, *, has_failed: bool) -> Iterator[Ask]:
    """Yield what a run asks of a test after its body, in this order."""
    # What is called in this process is not measured.
    if "ngraph_callable" in item.funcargs:
        return
    if item.config.stash[STATE].settings.gate_changes:
        yield hold_changes
    if compare is not None or not has_failed:
        # What failed without a time needs none, unless that is compared.
        yield measure_what_is_left
    if compare is not None:
        yield partial(compare, has_failed=has_failed)


def _said_of_both(first: BaseException, second: BaseException) -> BaseException:
    """Return what says the most of two that end a test, and both where both are fails."""
    if _is_fail(second):
        if isinstance(first, AssertionError):
            # With the user's line, and as what a test that is expected to fail may name.
            return AssertionError("\n\n".join(filter(None, map(str, (first, second))))).with_traceback(
                first.__traceback__
            )
        ordered = (first, second) if _is_fail(first) else (second, first)
        return pytest.fail.Exception("\n\n".join(map(str, ordered)), pytrace=False)
    if isinstance(first, AssertionError) or _is_fail(first) or isinstance(second, Warning):
        # Of warnings that are errors, too.
        return first
    # A skip would hide what has no time, and what was not there says less than what could not be decided.
    return second if isinstance(first, NarrowedAway | NotStored) or isinstance(second, CellFailed) else first


def _is_skipped_by_a_claim(item: pytest.Function) -> bool:
    """Return whether a skip in a test is what became of a claim, and not its author's: it ends with the first such."""
    state = item.config.stash[STATE]
    return state.settings.inconclusive == "skip" and any(row.is_open for row in state.claims)


def hold_changes(item: pytest.Function, plan: ItemPlan) -> None:
    """Claim of every cell of a test that it is no slower than on the other side, where the run is asked to.

    That is of those that the test has not claimed it of itself.
    """
    __tracebackhide__ = True
    state = item.config.stash[STATE]
    if not state.sides:
        return
    # Two cells of this side are claimed by the same helper.
    claimed = {row.extra.get("subject") for row in state.claims if row.metric == CHANGE}
    together = Together()
    for one in _cells_of(item, plan):
        if one.other is not None and one.cell.label not in claimed:
            with together.judging():
                assert_no_slower(one)
    if together.failed:
        raise pytest.fail.Exception(together.failed, pytrace=False)
    together.raise_what_was_kept()


def _cells_of(item: pytest.Function, plan: ItemPlan) -> list[Measurement]:
    """Return what a test measures: the cells of its item, and those of its calls of ngraph.measure."""
    called: Any = item.funcargs.get("ngraph")
    made: Iterable[Measurement] = called.made if called is not None else ()
    own: Any = measured_by(item, plan) if plan.cells else {}
    return [*(own.values() if isinstance(own, Mapping) else [own]), *made]


def is_settled(item: pytest.Function) -> bool:
    """Return whether all that a test claims was known without a timing, so that nothing has to be timed."""
    claims = item.config.stash[STATE].claims
    known = (row.extra.get("untimed") or (row.extra.get("unmeasured") and not row.launches) for row in claims)
    return bool(claims) and all(known)
