"""Cells and sweeps of a run held against a saved baseline: what may be compared, and what the difference says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_ngraph.claims.doubts.controls import violated_control
from pytest_ngraph.machine.kinship import Kinship, Machine
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.baselines.equal_code import between_sessions
from pytest_ngraph.report.baselines.saved import Saved, SavedCell, SavedMetric, SavedSweep, key_of
from pytest_ngraph.report.baselines.values import Kept, Measured, kept_of
from pytest_ngraph.report.noise.profile import MachineProfile
from pytest_ngraph.spec.cells import Cell, Protocol
from pytest_ngraph.spec.states import alike, state_named
from pytest_ngraph.stats.launches import Interval
from pytest_ngraph.stats.sessions import difference
from pytest_ngraph.stats.verdict import Bound, Verdict, judge
from pytest_ngraph.store.sqlite import Store

RATIO, DIFFERENCE = "saved_ratio", "saved_difference"
NO_TERM = (
    "how much sessions of the same code differ is not known here, so this warns and never fails "
    "(ngraph doctor --noise --sessions=10 measures it)"
)


@dataclass(frozen=True, slots=True)
class Compared:
    """A metric of a cell or sweep against its saved value: how much better it is now, and what that says.

    ``label`` names it, ``cell`` is what it is about. ``change`` is a ratio where the metric is one: now over then where
    more is better, else then over now, so that below 1 it is worse. Else it is a difference, worse below 0. ``bound``
    is what it is held to. ``warns`` where a difference was seen that would fail if it might.
    """

    cell: Cell
    metric: str
    label: str
    bound: Bound
    verdict: Verdict
    change: Estimate
    reason: str
    state: str = ""
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Against:
    """What cells are held against: a saved baseline, on this machine, with what is known of its sessions."""

    saved: Saved
    store: Store
    machine: Machine
    protocol: Protocol
    seed: int
    rootdir: Path
    profile: MachineProfile | None = None

    def cell(self, cell: Cell) -> SavedCell | None:
        """Return what is saved of a cell, or None."""
        return self.saved.cell(key_of(cell, self.rootdir))

    def now(self, evidence: Mapping[Cell, str], baselines: Mapping[Cell, Cell]) -> list[Kept]:
        """Return what would be saved of these cells now."""
        return list(kept_of(self.store, evidence, baselines, self.protocol, self.rootdir, lambda _: self.machine))

    def compare(
        self, kept: Iterable[Kept], cells: Mapping[Cell, float], sweeps: Mapping[str, float]
    ) -> Iterator[Compared]:
        """Yield each metric of these cells and sweeps that was saved, of what is measured now.

        Cells are given with their tolerance, and sweeps by their keys.
        """
        for some in kept:
            for cell, (now, found) in some.cells.items():
                then = self.saved.cell(now.key)
                if then is None or cell not in cells:
                    continue
                is_equal = (then.evidence, then.baseline) == (now.evidence, now.baseline)
                for name in (name for name in found if name in then.metrics):
                    label = f"{METRICS[name].title} of {cell.label}"
                    judged = self._judged(label, found[name], then.metrics[name], cells[cell], 1.0)
                    yield self._said(judged, then, now, is_equal=is_equal)
            for _, sweep, measured in some.sweeps:
                before = self.saved.sweep(sweep.key)
                if before is not None and sweep.key in sweeps:
                    judged = self._judged(sweep.label, measured, before.saved, sweeps[sweep.key], before.scale)
                    yield self._said(judged, before, sweep, is_equal=before.evidence == sweep.evidence)

    def _why_refused(self, then: SavedCell | SavedSweep, now: SavedCell | SavedSweep) -> str:
        """Return why numbers of two machines are not to be compared, with what differs side by side, or nothing."""
        theirs = self.saved.machines[then.device]
        differing = theirs.differing(self.machine) if theirs.kinship(self.machine) is Kinship.OTHER else []
        if then.threads != now.threads:
            differing = [*differing, ("threads", then.threads or "not known", now.threads or "not known")]
        if not differing:
            return ""
        fields = "; ".join(f"{field}: {there} there, {here} here" for field, there, here in differing)
        return f"not comparable: it was saved on another machine ({fields})"

    def _why_only_warns(self, then: SavedCell | SavedSweep, now: SavedCell | SavedSweep) -> str:
        """Return why a difference may warn and never fail, or nothing."""
        theirs = self.saved.machines[then.device]
        if theirs.kinship(self.machine) is Kinship.CLASS:
            return f"of {theirs.name}, a machine of the same class as {self.machine.name}: this warns and never fails"
        if self.saved.protocol != self.protocol.name or self.saved.seed != str(self.seed):
            there, here = f"{self.saved.protocol}, seed {self.saved.seed}", f"{self.protocol.name}, seed {self.seed}"
            return f"measured otherwise ({there} there; {here} here): this warns and never fails"
        if then.state and now.state and not alike(state_named(then.state), state_named(now.state)):
            return f"another state of the machine ({then.state} there, {now.state} here): this warns and never fails"
        return ""

    def _judged(self, label: str, now: Measured, then: SavedMetric, tolerance: float, scale: float) -> Compared:
        """Return what the difference of two means says, with a reason where it decides nothing.

        ``scale`` is what the tolerance is a fraction of.
        """
        metric, cell = now.quantity.metric, now.quantity.subject
        between = between_sessions(self.store, now.quantity, metric.name, self.machine, self.profile)
        is_more_better = metric.better == "higher"
        spread = difference(*((now.mean, then.mean) if is_more_better else (then.mean, now.mean)), between)
        is_ratio = metric.scale == "log"
        bound = Bound(1.0, True, tolerance, "log") if is_ratio else Bound(0.0, True, tolerance * scale, "linear")
        change = _ratio(spread) if is_ratio else _difference(spread)

        def compared(verdict: Verdict, reason: str, *, warns: bool = False) -> Compared:
            return Compared(cell, metric.name, label, bound, verdict, change, reason, warns=warns)

        verdict, said = judge(spread, bound), []
        if now.quantity.timed and (violated := violated_control(now.records)):
            return compared(Verdict.INVALID, violated)
        if between is None:
            return compared(Verdict.NOT_JUDGED, NO_TERM, warns=verdict is Verdict.FAIL)
        if verdict is Verdict.INCONCLUSIVE:
            sd = math.sqrt(between.variance)
            by = f"{100 * sd:.1f} %" if is_ratio else f"{metric.format(sd)} {metric.unit}"
            said.append(
                f"sessions of equal code scatter by {by} here ({between.source}): a wider tolerance, or a baseline of "
                "more sessions, decides it"
            )
        if spread.low > -bound.edge:
            again = f"ngraph baseline save {self.saved.name} --replace"
            said.append(f"better by more than the tolerance: save it ({again})")
        theirs = self.saved.machines[cell.device]
        if verdict is not Verdict.PASS and (changed := theirs.differing(self.machine)):
            fields = ", ".join(f"{field} {there} then, {here} now" for field, there, here in changed)
            said.append(f"changed on this machine: {fields}")
        return compared(verdict, "; ".join(said))

    def _said(
        self, judged: Compared, then: SavedCell | SavedSweep, now: SavedCell | SavedSweep, *, is_equal: bool
    ) -> Compared:
        """Return the same as what may be said of it: refused, a warning, unchanged or the verdict."""
        refused, harmless = self._why_refused(then, now), self._why_only_warns(then, now)
        if refused:
            nothing = Estimate(judged.change.metric, math.nan, math.nan, math.nan, 0)
            return replace(
                judged, verdict=Verdict.INVALID, change=nothing, reason=refused, state=now.state, warns=False
            )
        verdict, reason, warns = judged.verdict, judged.reason, judged.warns
        if is_equal and verdict is not Verdict.INVALID:
            verdict, reason, warns = Verdict.PASS, "unchanged: the same code, versions and machine as saved", False
        elif harmless and verdict is not Verdict.INVALID:
            verdict, reason, warns = Verdict.NOT_JUDGED, harmless, warns or verdict is Verdict.FAIL
        return replace(judged, verdict=verdict, reason=reason, state=now.state, warns=warns)


def _ratio(spread: Interval) -> Estimate:
    low, value, high = (math.exp(one) if one < 700 else math.inf for one in (spread.low, spread.theta, spread.high))
    return Estimate(RATIO, value, low, high, spread.launches)


def _difference(spread: Interval) -> Estimate:
    return Estimate(DIFFERENCE, spread.theta, spread.low, spread.high, spread.launches)


def words_of(compared: Compared, name: str, tolerance: float) -> str:
    """Return a comparison as a claim."""
    return f"compare: {compared.label} as good as saved in {name} (tolerance {tolerance:g})"
