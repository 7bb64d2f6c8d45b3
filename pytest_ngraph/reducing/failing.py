"""How a cell fails, and whether something else fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pytest_ngraph.errors import SpecError
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Outcome
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.texts.shown import one_line

# What a compiler makes of a graph. Others are of the machine, or of what is installed.
BY_OUTCOME = (Outcome.UNSUPPORTED, Outcome.FAILED, Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT, Outcome.OOM)
# Claims that can be made of a part of a model, as a factor over a baseline.
BY_CLAIM = ("assert_speedup", "assert_throughput", "assert_latency", "assert_faster")
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`")
_WORD = re.compile(r"[A-Za-z_]{2,}")
_PATH = re.compile(r"\S*/\S*")
_LEAST_SHARED = 0.5


@dataclass(frozen=True, slots=True)
class Failure:
    """How a cell of a test fails: by its outcome, or by being slower than ``at_least`` times a baseline.

    ``reason`` is what was said of it, ``claim`` the helper and the bound of the claim as the test has it: the factor of
    a latency is another one in every run.
    """

    cell: Cell
    outcome: Outcome
    reason: str
    baseline: CompilerSpec | None = None
    at_least: float | None = None
    tolerance: float = 0.0
    claim: str = ""

    @property
    def is_slow(self) -> bool:
        """Return whether it fails by its time."""
        return self.at_least is not None

    @property
    def words(self) -> str:
        """Return how it fails in a line."""
        if self.is_slow:
            return f"slow: less than {self.at_least:.4g} times as fast as {self.baseline}"
        return f"{self.outcome}: {one_line(first_line(self.reason), 200)}"


def by_outcome(cell: Cell, record: CompileRecord) -> Failure | None:
    """Return the failure that a record says, None where it is none that a graph could have."""
    return Failure(cell, record.outcome, record.reason) if record.outcome in BY_OUTCOME else None


def by_claim(cell: Cell, baseline: CompilerSpec, row: VerdictRow, baseline_value: float | None) -> Failure:
    """Return the failure that a claim's verdict says, as a factor over a baseline.

    ``baseline_value`` is the baseline's own value of the metric, where the claim is one of seconds or samples. Raises
    SpecError for a claim that means nothing for a part of a model.
    """
    helper, bound, tolerance = str(row.extra.get("helper")), row.bound, row.tolerance or 0.0
    fits = helper in BY_CLAIM and bound and row.verdict == Verdict.FAIL
    if not fits or row.at_least is (helper == "assert_latency") or "percentile" in row.claim:
        raise SpecError(
            f"{row.claim} fails, which says nothing of a part of the model (what can be reduced: at_least= of "
            "assert_speedup, assert_throughput and assert_faster, at_most= of assert_latency, and cells that have "
            "no time)"
        )
    if rate_of(cell.workload.scenario) is not None:
        raise SpecError(
            f"{row.claim} fails, which says nothing of a part of the model: calls arrive at a rate, and a part has a "
            "queue of its own (allowed: scenario='latency', 'throughput'); reduce a cell of these that is slow, too"
        )
    assert bound is not None
    claim = f"{helper} {bound:.12g}"
    if helper in ("assert_throughput", "assert_latency"):
        if not baseline_value:
            raise SpecError(f"{row.claim} fails, and {baseline}, which parts are compared with, has no time")
        bound = bound / baseline_value if helper == "assert_throughput" else baseline_value / bound
    return Failure(cell, Outcome.OK, one_line(str(row.extra.get("reason", "")), 200), baseline, bound, tolerance, claim)


def is_same(failure: Failure, record: CompileRecord | None, names: Collection[str]) -> bool:
    """Return whether a record says the same as a failure by outcome. ``names`` are those of the graph's values.

    Outputs that differ may differ by anything. Of what is said otherwise names, numbers and paths do not count: the
    words that are left must be words of the failure, and half of those at least. So another operator that a compiler
    does not know is another failure.
    """
    if record is None or record.outcome is not failure.outcome:
        return False
    if failure.outcome in (Outcome.MISMATCH, Outcome.TIMEOUT, Outcome.OOM):
        return True
    theirs, ours = words_of(failure.reason, names), words_of(record.reason, names)
    return ours <= theirs and len(ours) >= _LEAST_SHARED * len(theirs)


def words_of(reason: str, names: Collection[str]) -> frozenset[str]:
    """Return the words of the first line of a reason that are no names of a graph, no numbers and no paths."""
    line = _PATH.sub(" ", first_line(reason))
    for quoted in _QUOTED.findall(line):
        if quoted[1:-1] in names:
            line = line.replace(quoted, " ")
    # A long name may have a short one in it.
    for name in sorted((name for name in names if name and name in line), key=len, reverse=True):
        line = re.sub(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", " ", line)
    return frozenset(_WORD.findall(line))


def first_line(reason: str) -> str:
    """Return the first line of a reason that has letters."""
    return next((line.strip() for line in reason.splitlines() if re.search(r"[A-Za-z]", line)), "")


def names_in(values: Iterable[str], nodes: Sequence[str], operators: Collection[str]) -> frozenset[str]:
    """Return the names that a reason may mention: those of values and nodes that are not called as an operator is."""
    return frozenset(name for name in (*values, *nodes) if name and name not in operators)
