"""What a profile does not see of a cell: what runs beside it where it is measured, and how calls arrive there."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_ngraph.explain.compare import LEAST_COVERAGE
from pytest_ngraph.explain.explanation import Explanation, RanNode
from pytest_ngraph.explain.lines import WIDTH, comparison_lines, explanation_lines
from pytest_ngraph.load.neighbours import parse, with_neighbour
from pytest_ngraph.quantities import explained
from pytest_ngraph.quantities.explained import as_measured, compared, measured_pair, what_ran_lines
from pytest_ngraph.quantities.quantity import Estimate, Measurer, Quantity, Source
from pytest_ngraph.report.layers import stored
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.workloads.kinds import parse_model
from tests.support.measuring import cell

MHA = parse_model("block:mha")
SLOW, FAST = cell("identity"), cell("onnxruntime")


def beside(one: Cell, text: str = "block:mha@onnxruntime") -> Cell:
    return replace(one, workload=with_neighbour(one.workload, parse(text), MHA))


def arriving(one: Cell, rate: int = 20) -> Cell:
    return replace(one, workload=replace(one.workload, scenario=f"server[rate={rate}]"))


def found(one: Cell, seconds: float) -> Explanation:
    node = RanNode("conv", "Conv", "Conv", seconds, parts=("conv",))
    return Explanation(one.label, (node,), seconds, seconds, 10, "a profiler", notes=("profiled in a session",))


def times(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> Source:
    """Return a source whose launches say how long a call of each compiler takes, and the ratio of two within them."""

    def estimate(quantity: Quantity) -> Estimate:
        each = [seconds[one.compiler.name] for one in quantity.cells]
        value = each[1] / each[0] if len(each) > 1 else each[0]
        return Estimate(quantity.metric.name, value, 0.99 * value, 1.01 * value, 4)

    monkeypatch.setattr(explained, "_estimate", estimate)
    return Source()


def said(lines: Any) -> str:
    lines = list(lines)
    assert max(map(len, lines)) <= WIDTH
    return " ".join(" ".join(lines).split())


def test_a_cell_says_that_its_profile_has_no_neighbour_and_no_arrivals() -> None:
    near, served = beside(FAST), arriving(FAST, 60)
    of_near, of_served = (said(explanation_lines(as_measured(found(one, 0.002), one))) for one in (near, served))

    assert (
        "note: profiled without its neighbour block:mha@onnxruntime: what that does to the measured calls is in no node"
    ) in of_near
    assert (
        "note: profiled one call after the other: 60 calls a second arrive where it is measured, and what they wait in "
        "line is in no node"
    ) in of_served
    # What the profile says of itself stays, and a cell alone has nothing to say.
    assert "note: profiled in a session" in of_near
    assert as_measured(found(FAST, 0.002), FAST) == found(FAST, 0.002)


def test_what_is_stored_is_the_profile_alone() -> None:
    """Notes are of the cell that is looked at: kept with a profile they would be read back as what it said."""
    near = beside(FAST)
    kept = found(near, 0.002)
    assert as_measured(Explanation.from_json(kept.to_json()), near).notes[1:] == kept.notes
    assert len(as_measured(kept, near).notes) == 2


def test_no_node_is_blamed_for_a_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would pass on garbage: a cell beside a neighbour is slower than another one, whose nodes are slower, too."""
    source = times(monkeypatch, identity=0.006, onnxruntime=0.002)
    slow, fast = found(SLOW, 0.006), found(FAST, 0.002)
    assert slow.coverage > LEAST_COVERAGE

    fair = compared(source, (FAST, SLOW), (fast, slow))
    apart = compared(source, (FAST, beside(SLOW)), (fast, slow))
    both = compared(source, (beside(FAST), beside(SLOW)), (fast, slow))
    other = compared(source, (beside(FAST, "block:mha+batch=8@null"), beside(SLOW)), (fast, slow))

    assert fair.is_said
    assert both.is_said
    for one in (apart, other):
        assert not one.is_said
        assert (
            "no sentence: they are not beside the same neighbour, and profiles are made with nothing beside them"
        ) in said(comparison_lines(one))


def test_calls_that_arrive_are_compared_by_no_profile_and_by_no_rate_of_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many calls are answered as arrive: by that two cells would be equally fast, however long their calls take."""
    source = times(monkeypatch, identity=0.006, onnxruntime=0.002)
    cells = arriving(FAST), arriving(SLOW)

    one = compared(source, cells, (found(FAST, 0.002), found(SLOW, 0.006)))
    mixed = measured_pair(source, FAST, arriving(SLOW))

    assert not one.is_said
    assert "no sentence: calls that arrive wait in line, and profiles have no line" in one.sentence
    assert (one.measured.second, one.measured.source) == (0.006, "launches of each apart")
    assert mixed is not None
    assert mixed.source == "launches of each apart"


class Kept(Measurer):
    """A test's door to a session in which some cells were explained."""

    def __init__(self, known: dict[Cell, Explanation]) -> None:
        explain = lambda one: known[one].to_json() if one in known else None  # noqa: E731
        self.session = cast("Any", SimpleNamespace(explained=explain))


def red(source: Source, cells: tuple[Cell, Cell]) -> str:
    quantity = cast("Quantity", SimpleNamespace(source=source, metric=SimpleNamespace(name="speedup"), cells=cells))
    return " ".join(" ".join(what_ran_lines(quantity)).split())


def test_a_red_gate_names_what_no_profile_says_and_no_command_that_would_not_say_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times(monkeypatch, identity=0.002, onnxruntime=0.006)
    near, other = beside(FAST), beside(SLOW)
    known = {near: found(near, 0.006), other: found(other, 0.002)}

    assert "what ran: no profile says it: they are not beside the same neighbour" in red(Kept({}), (near, FAST))
    assert "what ran: no profile says it: calls that arrive wait in line" in red(Kept({}), (arriving(FAST),) * 2)
    assert red(Kept({}), (near, other)).startswith("what ran: ngraph explain 'local:identity")
    whole = red(Kept(known), (near, other))
    assert "what ran: onnxruntime is 3 times slower than identity: 1 Conv that takes longer is 100 % of it" in whole
    assert whole.endswith("(profiled without block:mha@onnxruntime beside them)")


def test_the_page_has_the_same_notes_and_no_other_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    source = times(monkeypatch, identity=0.006, onnxruntime=0.002)
    monkeypatch.setattr(stored, "measured_call", lambda *_: None)
    near = beside(FAST)
    known = {near: (found(near, 0.002), "then"), SLOW: (found(SLOW, 0.006), "then")}

    one = stored._explained(near, known, SLOW, cast("Any", source))

    assert one.explanation.notes[0].startswith("profiled without its neighbour block:mha@onnxruntime")
    assert one.compared is not None
    assert not one.compared.is_said
