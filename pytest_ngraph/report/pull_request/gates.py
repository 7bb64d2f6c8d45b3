"""What the gates of a run come to, in the order in which a pull request is read: fails, undecided, better, the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_ngraph import units
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.report.results.verdicts import OF_SESSIONS, notes_of, without_terms
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.rows import VerdictRow

NO_VERDICT = "no verdict"
# What they claim is a comparison, with a bound of 1: better than it is better than the other.
_COMPARISONS = ("assert_no_slower", "assert_no_larger", *OF_SESSIONS)
# So begins the reason of a comparison of the same code, which is no faster whatever its numbers are.
_UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Noted:
    """Where a test is, and what became of it besides its verdicts. Plain values: pytest-xdist carries them.

    ``why`` is what it failed for without a verdict, or what of it is not stored where ``is_open``. ``is_expected``
    where its author expects it to fail. ``line`` counts from 1; ``path`` is as pytest gives it, from the rootdir.
    """

    path: str
    line: int
    why: str = ""
    is_open: bool = False
    is_expected: bool = False


@dataclass(frozen=True, slots=True)
class Gate:
    """One claim as a row: texts of others are not escaped yet. A test without a verdict has no numbers."""

    nodeid: str
    verdict: str
    claim: str
    measured: str = ""
    bound: str = ""
    launches: int = 0
    why: str = ""
    noted: Noted | None = None


@dataclass(slots=True)
class Gates:
    """The gates of a run by what a reader has to do about them. ``skipped`` counts tests by what could not run."""

    failed: list[Gate] = field(default_factory=list)
    broken: list[Gate] = field(default_factory=list)
    undecided: list[Gate] = field(default_factory=list)
    warned: list[Gate] = field(default_factory=list)
    improved: list[Gate] = field(default_factory=list)
    better: list[Gate] = field(default_factory=list)
    passed: list[Gate] = field(default_factory=list)
    others: list[Gate] = field(default_factory=list)
    skipped: Mapping[str, int] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """Say in one sentence what they come to."""
        decided = len(self.failed) + len(self.improved) + len(self.better) + len(self.passed)
        judged = decided + sum(gate.claim != NO_VERDICT for gate in self.undecided)
        parts = []
        if self.failed:
            parts.append(f"{len(self.failed)} of {units.count(judged, 'gate')} failed")
        if self.broken:
            parts.append(f"{units.count(len(self.broken), 'test')} failed without a verdict")
        if self.undecided:
            parts.append(f"{len(self.undecided)} undecided")
        if self.warned:
            parts.append(f"{len(self.warned)} beyond the bound but not judged")
        if self.improved:
            parts.append(f"{len(self.improved)} better than what it is compared with")
        if self.better or self.passed:
            count = len(self.better) + len(self.passed)
            passed = f"{count} passed" if parts else f"{units.count(count, 'gate')} passed"
            spare = f" ({len(self.better)} by more than the tolerance)" if self.better else ""
            parts.append(passed + spare)
        if self.others:
            parts.append(f"{len(self.others)} shown and not judged")
        if self.skipped:
            parts.append(f"{units.count(sum(self.skipped.values()), 'test')} skipped")
        if not judged and not self.undecided and not self.broken:
            parts.insert(0, "no gate was judged")
        return f"ngraph: {', '.join(parts)}."


def gates_of(rows: Iterable[VerdictRow], noted: Mapping[str, Noted], skipped: Mapping[str, int]) -> Gates:
    """Sort verdicts, each claim as it was judged last, and tests that failed or stayed open without any."""
    gates = Gates(skipped=skipped)
    last = {(row.nodeid, row.claim): row for row in rows}
    for row in last.values():
        test = noted.get(row.nodeid)
        gate = _gate(row, test)
        if row.verdict == Verdict.FAIL:
            (gates.others if test is not None and test.is_expected else gates.failed).append(gate)
        elif row.is_open:
            gates.undecided.append(gate)
        elif row.verdict == Verdict.PASS:
            is_compared = row.extra.get("helper") in _COMPARISONS
            is_same = str(row.extra.get("reason") or "").startswith(_UNCHANGED)
            better = gates.improved if is_compared else gates.better
            (better if is_better_by_the_tolerance(row) and not is_same else gates.passed).append(gate)
        else:
            (gates.warned if _is_beyond(row) else gates.others).append(gate)
    for nodeid, test in noted.items():
        if test.why:
            gate = Gate(nodeid, "undecided" if test.is_open else "failed", NO_VERDICT, why=test.why, noted=test)
            (gates.undecided if test.is_open else gates.broken).append(gate)
    return gates


def is_better_by_the_tolerance(row: VerdictRow) -> bool:
    """Return whether the whole interval of a pass is better than the bound by more than the tolerance.

    The looks of a gate share its error rate, so this errs as rarely as the pass itself. It says that the bound is met
    with room to spare, and nothing about what came before, unless the claim compares with that. Where equal code would
    fail (no tolerance) there is no such thing.
    """
    if row.bound is None or row.low is None or row.high is None or not row.tolerance or not math.isfinite(row.high):
        return False
    is_log = METRICS[row.metric].scale == "log"
    if row.at_least:
        return row.low > (row.bound * (1 + row.tolerance) if is_log else row.bound + row.tolerance)
    return row.high < (row.bound / (1 + row.tolerance) if is_log else row.bound - row.tolerance)


def _is_beyond(row: VerdictRow) -> bool:
    """Return whether a whole interval is on the wrong side of the bound."""
    if row.bound is None or row.low is None or row.high is None or not row.launches:
        return False
    return row.high < row.bound if row.at_least else row.low > row.bound


def _gate(row: VerdictRow, noted: Noted | None) -> Gate:
    expected = ["its author expects it to fail"] if noted is not None and noted.is_expected else []
    said = [str(row.extra.get("reason") or ""), *notes_of(row), *_visible(row), *expected]
    return Gate(
        row.nodeid,
        row.verdict,
        without_terms(row.claim),
        _measured(row),
        _bound(row),
        row.launches,
        "; ".join(filter(None, said)),
        noted,
    )


def _measured(row: VerdictRow) -> str:
    if row.estimate is None or math.isnan(row.estimate) or not row.launches:
        return "not measured"
    write = METRICS[row.metric].format
    return write(row.estimate) + units.spread(row.low, row.high, row.launches, write).rpartition(",")[0]


def _bound(row: VerdictRow) -> str:
    if row.bound is None:
        return ""
    write = METRICS[row.metric].format
    is_log = METRICS[row.metric].scale == "log"
    if not row.tolerance:
        return f"{'at least' if row.at_least else 'at most'} {write(row.bound)}, no tolerance"
    allowed = units.fraction(row.tolerance) if is_log else write(row.tolerance)
    return f"{'at least' if row.at_least else 'at most'} {write(row.bound)}, tolerance {allowed}"


def _visible(row: VerdictRow) -> Sequence[str]:
    if not row.is_open or row.smallest_effect is None:
        return ()
    is_log = METRICS[row.metric].scale == "log"
    if is_log and row.smallest_effect > 1:
        return ("it could have seen no effect of less than 100 %",)
    effect = units.fraction(row.smallest_effect) if is_log else METRICS[row.metric].format(row.smallest_effect)
    return (f"the smallest effect it could have seen is {effect}",)
