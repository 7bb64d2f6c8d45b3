"""What a CI system gets to know: the properties of a JUnit testcase, and whether a run decided any gate at all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_ngraph import units
from pytest_ngraph.spec.cells import target_parts
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.texts.shown import one_line

if TYPE_CHECKING:
    from pytest_ngraph.store.rows import VerdictRow

PREFIX = "ngraph."
# Each stands behind the prefix and the number of the claim in its test, such as ``ngraph.1.verdict``.
PROPERTIES = (
    "device", "compiler", "workload", "claim", "metric", "bound", "tolerance", "estimate", "low", "high", "launches",
    "verdict", "reason", "state", "plan",
)  # fmt: skip
_DECIDED = (Verdict.PASS, Verdict.FAIL)
_MOST_REASONS = 5
# Of a property, in what becomes an attribute of XML.
_LETTERS = 4000


def properties(rows: Iterable[VerdictRow]) -> list[tuple[str, str]]:
    """Return names and texts for ``item.user_properties``: the claims of one test, numbered from 1 as it made them.

    Numbers are in the unit of the metric. What there is not - the estimate of a gate that was never measured, the
    reason of one that simply passed - is left out.
    """
    return [
        (f"{PREFIX}{number}.{name}", text)
        for number, row in enumerate(rows, 1)
        for name, text in _texts(row).items()
        if text
    ]


def _texts(row: VerdictRow) -> dict[str, str]:
    device, compiler = target_parts(str(row.extra["target"]))
    texts = {
        "device": device,
        "compiler": compiler,
        "workload": str(row.extra["subject"]).removeprefix(str(row.extra["target"])).strip(),
        "claim": row.claim,
        "metric": row.metric,
        "bound": _number(row.bound),
        "tolerance": _number(row.tolerance),
        "estimate": _number(row.estimate),
        "low": _number(row.low),
        "high": _number(row.high),
        "launches": str(row.launches),
        "verdict": row.verdict,
        "reason": str(row.extra.get("reason") or ""),
        "state": str(row.extra.get("state") or ""),
        "plan": str(row.extra.get("plan") or ""),
    }
    return {name: one_line(texts[name], _LETTERS) for name in PROPERTIES}


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.6g}"


@dataclass(slots=True)
class Gates:
    """What became of a run's gates, in plain values that pytest-xdist carries from its workers to the controller.

    ``undecided`` counts claims by verdict and reason. ``skipped`` has a test function and the reason for each test that
    could not run for what its compiler lacks. ``claimless`` the functions of which a test ran and claimed nothing.
    ``left_out`` counts the skipped tests by compiler, device and why, whatever their cell.
    """

    decided: int = 0
    undecided: dict[str, int] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    claimless: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    def judged(self, rows: Iterable[VerdictRow]) -> None:
        """Count claims. One that was judged again, in a re-run of its test, counts as it was judged last."""
        last = {(row.nodeid, row.claim): row for row in rows}
        for row in last.values():
            if row.verdict in _DECIDED:
                self.decided += 1
            # What no protocol was asked to judge is not left open.
            elif row.verdict != Verdict.NOT_JUDGED:
                reason = row.extra.get("reason")
                self.left_open(f"{row.verdict}: {reason}" if reason else row.verdict)

    def left_open(self, reason: str, claims: int = 1) -> None:
        """Count claims that were not decided, for a reason."""
        self.undecided[reason] = self.undecided.get(reason, 0) + claims

    def add(self, other: Mapping[str, Any]) -> None:
        """Take in what another process counted, as ``dataclasses.asdict`` gives it."""
        self.decided += other["decided"]
        for reason, claims in other["undecided"].items():
            self.left_open(reason, claims)
        self.skipped += [(function, reason) for function, reason in other["skipped"]]
        self.claimless += other["claimless"]
        for what, tests in other["left_out"].items():
            self.left_out[what] = self.left_out.get(what, 0) + tests

    def none_was_decided(self, *, offline: bool) -> list[str]:
        """Return what to print of a run that decided no gate: that, why, and what to do. Nothing of any other run.

        A run that claims nothing has no gates. A skipped test counts as one, unless another test of its function,
        which could run, claimed nothing.
        """
        skipped = Counter(reason for function, reason in self.skipped if function not in self.claimless)
        if self.decided or not (self.undecided or skipped):
            return []
        claims = Counter(self.undecided)
        lines = ["no gate was decided, and where CI is set a run that decides none fails"]
        lines += _listed("claim", claims)
        lines += _listed("test skipped", skipped, "tests skipped")
        advice = []
        if skipped:
            advice.append("install what is missing, or name the compilers that are meant (--ngraph-compiler)")
        if claims and offline:
            advice.append("measure first: run without --ngraph-offline")
        elif claims:
            advice.append("a quieter machine (ngraph doctor), a larger --ngraph-budget or a wider tolerance=")
        return [*lines, f"  what to do: {'; '.join(advice)}"]


def _listed(thing: str, counts: Counter[str], plural: str = "") -> list[str]:
    most: Sequence[tuple[str, int]] = counts.most_common(_MOST_REASONS)
    lines = [f"  {units.count(count, thing, plural)}: {reason}" for reason, count in most]
    left = counts.total() - sum(count for _, count in most)
    return [*lines, f"  and {units.count(left, thing, plural)} for other reasons"] if left else lines
