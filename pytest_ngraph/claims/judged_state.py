"""In which state of the machine a claim was judged, whether that is the usual one, and what that one says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.spec.states import alike, state_words

if TYPE_CHECKING:
    from pytest_ngraph.claims.decide import Decision
    from pytest_ngraph.quantities.quantity import Quantity
    from pytest_ngraph.spec.cells import Reading


@dataclass(frozen=True, slots=True)
class JudgedState:
    """The state of a verdict in words, empty where the machine has none, and what must be said of it, if any."""

    words: str = ""
    note: str = ""


def state_of_claim(quantity: Quantity, decision: Decision) -> JudgedState:
    """Return in which state of the machine a claim was judged.

    What was judged in another one than the usual says so, and by how much the two differ where both were measured: a
    machine that moves its CPUs apart moves the truth of a ratio, too.
    """
    if decision.state is None:
        return JudgedState()
    source = quantity.source
    held = source.holding(quantity)
    usual = source.chosen or (held[0].usual if held else None)
    words = state_words(decision.state, usual, is_chosen=source.chosen is not None)
    if usual is None or alike(usual, decision.state):
        return JudgedState(words)
    note = f"judged in another state of the machine: {words}"
    return JudgedState(words, "; ".join(filter(None, [note, _apart(quantity, decision, usual)])))


def _apart(quantity: Quantity, decision: Decision, usual: Reading) -> str:
    """Return what the launches in the usual state say, and how far that is from the verdict's, if there are any.

    A percentile of calls is no mean of launches: how far these are from one another says nothing of the state.
    """
    if not decision.of_launches:
        return ""
    there = [
        value
        for record in quantity.source.holding(quantity)
        if record.home is not None and alike(record.home, usual) and (value := quantity.of_launch(record)) is not None
    ]
    if not there:
        return ""
    other, write = quantity.present(there), quantity.metric.format
    launches = units.count(other.launches, "launch", "launches")
    here = decision.estimate.value
    if quantity.metric.scale == "linear":
        apart = f"{write(abs(here - other.value))} {'more' if here > other.value else 'less'} here"
    else:
        apart = f"{100 * abs(here / other.value - 1):.1f} % {'more' if here > other.value else 'less'} here"
    return f"there it is {write(other.value)} in {launches}, {apart}"
