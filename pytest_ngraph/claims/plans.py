"""By which plan a gate is judged, and by which it was first: another budget looks at the same launches otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from pytest_ngraph.stats.sessions import KnownScatter
from pytest_ngraph.stats.verdict import CONFIRMING_LOOKS, ERROR_RATE

if TYPE_CHECKING:
    from pytest_ngraph.quantities.quantity import Measurer
    from pytest_ngraph.spec.cells import Cell

ANOTHER_PLAN = "another plan than its first"
# By how many fresh launches a fail is confirmed, and what verdicts that name nothing were confirmed by.
CONFIRMATION, _CONFIRMATION_BEFORE = f"{', '.join(map(str, CONFIRMING_LOOKS[:-1]))} or {CONFIRMING_LOOKS[-1]}", "4"
FRESH = "evidence was started again (--ngraph-fresh)"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a judgement: up to how many launches, on which evidence, and what is to be said of it, if anything.

    ``evidence`` stands for the content of all cells of the claim and for the epoch of their launches.
    """

    launches: int
    evidence: str
    note: str = ""
    error_rate: float = ERROR_RATE
    known: KnownScatter | None = None

    @property
    def kept(self) -> Mapping[str, Any]:
        """Return what is kept with a verdict, so that a later run knows the plan of this one."""
        return {
            "planned_launches": self.launches,
            "confirmation": CONFIRMATION,
            "evidence": self.evidence,
            "error_rate": self.error_rate,
            "plan": self.note,
            **({} if self.known is None else {"noise_history": list(astuple(self.known))}),
        }


def test_of(measurer: Measurer) -> str:
    """Return the id of the test that a claim is made in."""
    return measurer.session.item(measurer.nodeid).test


def plan_of_claim(measurer: Measurer, claim: str, cells: Sequence[Cell], known: KnownScatter | None = None) -> Plan:
    """Return the plan by which a claim is judged now, ``known`` being how its launches scattered in earlier runs.

    The first judgement of a claim on some evidence fixes its plan. Another budget spends the error rate over other
    looks and may come to another verdict on the very same launches, so it is another plan and says so, with what the
    first one said. So is another error rate, other noise of earlier runs (which may have been pruned since), or another
    way to confirm a fail, which an earlier version may have had.
    Another bound or tolerance is another claim, by its words.
    """
    session = measurer.session
    evidence, first = session.first_judgement(test_of(measurer), claim, cells)
    launches, rate = measurer.most_launches, measurer.error_rate
    planned = first.extra.get("planned_launches") if first is not None else None
    if first is not None and planned is not None:
        confirmed = first.extra.get("confirmation", _CONFIRMATION_BEFORE)
        now, before = [], []
        if planned != launches:
            now, before = [f"up to {launches} launches"], [f"up to {planned}"]
        # Of before there was a choice.
        judged_at = first.extra.get("error_rate", ERROR_RATE)
        if judged_at != rate:
            now, before = [*now, f"an error rate of {rate:g}"], [*before, f"{judged_at:g}"]
        if first.extra.get("noise_history") != (None if known is None else list(astuple(known))):
            was = first.extra.get("noise_history")
            now = [*now, _noise_words(None if known is None else known.runs)]
            before = [*before, _noise_words(None if was is None else int(was[-1]))]
        if confirmed != CONFIRMATION:
            now, before = [*now, f"confirmed by {CONFIRMATION} fresh ones"], [*before, f"confirmed by {confirmed}"]
        if now:
            said = f"{' and '.join(now)} now, {' and '.join(before)} when it was first judged, {first.verdict}"
            return Plan(launches, evidence, f"{ANOTHER_PLAN}: {said}", rate, known)
    return Plan(launches, evidence, FRESH if session.settings.fresh else "", rate, known)


def _noise_words(runs: int | None) -> str:
    return "without the noise of earlier runs" if runs is None else f"with the noise of {runs} earlier runs"
