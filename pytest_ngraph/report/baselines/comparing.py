"""Cells of a run held against a saved baseline: which numbers may be compared, and what the difference says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_ngraph.claims.controls import violated_control
from pytest_ngraph.machine.kinship import Kinship, Machine
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.baselines.equal_code import between_sessions
from pytest_ngraph.report.baselines.file import Saved, SavedCell, SavedMetric, key_of
from pytest_ngraph.report.baselines.values import METRICS_KEPT, Measured, saved_cells
from pytest_ngraph.report.noise.profile import MachineProfile
from pytest_ngraph.spec.cells import Cell, Protocol
from pytest_ngraph.spec.states import alike, state_named
from pytest_ngraph.stats.launches import Interval
from pytest_ngraph.stats.sessions import difference
from pytest_ngraph.stats.verdict import Bound, Verdict, judge
from pytest_ngraph.store.sqlite import Store

RATIO = "saved_ratio"
NO_TERM = (
    "how much sessions of the same code differ is not known here, so this warns and never fails "
    "(ngraph doctor --noise --sessions=10 measures it)"
)


@dataclass(frozen=True, slots=True)
class Compared:
    """A metric of a cell against its saved value: how many times as good it is now, and what that says.

    ``ratio`` is now over then where more is better, else then over now: below 1 it is worse. ``warns`` where a
    difference was seen that would fail if it might.
    """

    cell: Cell
    metric: str
    verdict: Verdict
    ratio: Estimate
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

    def now(self, evidence: Mapping[Cell, str], baselines: Mapping[Cell, Cell]) -> Iterator[tuple[Cell, SavedCell]]:
        """Yield what would be saved of these cells now."""
        for cell, one, _ in saved_cells(self.store, evidence, baselines, self.protocol, self.rootdir):
            yield cell, one

    def compare(
        self, cells: Mapping[Cell, float], evidence: Mapping[Cell, str], baselines: Mapping[Cell, Cell]
    ) -> Iterator[Compared]:
        """Yield each metric of these cells, given with their tolerance, that is measured now and was saved."""
        for cell, now, found in saved_cells(self.store, evidence, baselines, self.protocol, self.rootdir):
            then = self.cell(cell)
            if cell not in cells or then is None:
                continue
            refused, harmless = self._why_refused(then, now), self._why_only_warns(then, now)
            is_equal = then.evidence == now.evidence and then.baseline == now.baseline
            for name, measured in found.items():
                if name in then.metrics:
                    judged = self._judged(cell, name, measured, then.metrics[name], cells[cell])
                    yield self._said(judged, now.state, refused, harmless, is_equal=is_equal)

    def _why_refused(self, then: SavedCell, now: SavedCell) -> str:
        """Return why numbers of two machines are not to be compared, with what differs side by side, or nothing."""
        theirs = self.saved.machines[then.device]
        differing = theirs.differing(self.machine) if theirs.kinship(self.machine) is Kinship.OTHER else []
        if then.threads != now.threads:
            differing = [*differing, ("threads", then.threads or "not known", now.threads or "not known")]
        if not differing:
            return ""
        fields = "; ".join(f"{field}: {there} there, {here} here" for field, there, here in differing)
        return f"not comparable: it was saved on another machine ({fields})"

    def _why_only_warns(self, then: SavedCell, now: SavedCell) -> str:
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

    def _judged(self, cell: Cell, name: str, now: Measured, then: SavedMetric, tolerance: float) -> Compared:
        """Return what the difference of two means says, with a reason where it decides nothing."""
        between = between_sessions(self.store, now.quantity, name, self.machine, self.profile)
        spread = difference(*((now.mean, then.mean) if METRICS_KEPT[name] else (then.mean, now.mean)), between)
        bound = Bound(1.0, True, tolerance, "log")
        verdict, said = judge(spread, bound), []
        if now.quantity.timed and (violated := violated_control(now.records)):
            return Compared(cell, name, Verdict.INVALID, _ratio(spread), violated)
        if between is None:
            warns = verdict is Verdict.FAIL
            return Compared(cell, name, Verdict.NOT_JUDGED, _ratio(spread), NO_TERM, warns=warns)
        if verdict is Verdict.INCONCLUSIVE:
            sd = math.sqrt(between.variance)
            said.append(
                f"sessions of equal code scatter by {100 * sd:.1f} % here ({between.source}): a wider tolerance, or a "
                "baseline of more sessions, decides it"
            )
        if spread.low > -bound.edge:
            again = f"ngraph baseline save {self.saved.name} --replace"
            said.append(f"better by more than the tolerance: save it ({again})")
        theirs = self.saved.machines[cell.device]
        if verdict is not Verdict.PASS and (changed := theirs.differing(self.machine)):
            fields = ", ".join(f"{field} {there} then, {here} now" for field, there, here in changed)
            said.append(f"changed on this machine: {fields}")
        return Compared(cell, name, verdict, _ratio(spread), "; ".join(said))

    @staticmethod
    def _said(judged: Compared, state: str, refused: str, harmless: str, *, is_equal: bool) -> Compared:
        """Return the same as what may be said of it: refused, a warning, unchanged or the verdict."""
        verdict, reason, warns = judged.verdict, judged.reason, judged.warns
        if refused:
            nothing = Estimate(RATIO, math.nan, math.nan, math.nan, 0)
            return Compared(judged.cell, judged.metric, Verdict.INVALID, nothing, refused, state)
        if is_equal and verdict is not Verdict.INVALID:
            verdict, reason, warns = Verdict.PASS, "unchanged: the same code, versions and machine as saved", False
        elif harmless and verdict is not Verdict.INVALID:
            verdict, reason, warns = Verdict.NOT_JUDGED, harmless, warns or verdict is Verdict.FAIL
        return Compared(judged.cell, judged.metric, verdict, judged.ratio, reason, state, warns)


def _ratio(spread: Interval) -> Estimate:
    low, value, high = (math.exp(one) if one < 700 else math.inf for one in (spread.low, spread.theta, spread.high))
    return Estimate(RATIO, value, low, high, spread.launches)


def words_of(compared: Compared, name: str, tolerance: float) -> str:
    """Return a comparison as a claim."""
    title = METRICS[compared.metric].title
    return f"compare: {title} of {compared.cell.label} as good as saved in {name} (tolerance {tolerance:g})"
