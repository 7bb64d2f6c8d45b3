"""Mixes of lengths in launches: one build that is open for them, and static builds that calls are padded to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from pytest_ngraph.checks.mixed import MixedCalls
from pytest_ngraph.claims.assertions import assert_faster, assert_order, assert_speedup
from pytest_ngraph.claims.changes import assert_no_slower
from pytest_ngraph.claims.resources.energy import assert_energy
from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.compilers.bucketed import Bucketed, compile_buckets
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.errors import ClaimError, CompileFailed
from pytest_ngraph.launches.client import Job
from pytest_ngraph.quantities.comparisons import refuse_other_calls
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, Device, Outcome, Workload
from pytest_ngraph.spec.shapes.mixes import Shape, parse
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.shapes.padding import Padding
from tests.conftest import skip_without
from tests.support.measuring import ROOT, TIMED, job, launch

LENGTHS = "mix[sequence=8x1+20x2]"
PADDED = "mix[sequence=8x1+20x2,buckets=16+24]"


class Doubles(Executable):
    """Gives twice what it is fed, and remembers the shapes."""

    placement: Mapping[str, str | int] = {"provider": "doubles"}

    def __init__(self, bytes_: int | None = 5) -> None:
        self.bound: list[tuple[int, ...]] = []
        self.model_bytes = bytes_
        self.closed = False

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self.inputs = inputs["x"]
        self.bound.append(self.inputs.shape)

    def run(self) -> None:
        self.given = 2 * self.inputs

    def outputs(self) -> Sequence[np.ndarray]:
        return [self.given]

    def close(self) -> None:
        self.closed = True


def cell(compiler: str, shapes: str, name: str = "Masked", **more: Any) -> Cell:
    model = parse_model(f"tests/support/workload_models/masked.py:{name}", (ROOT,))
    return Cell("local", CompilerSpec.parse(compiler), Workload(model, 2, sequence=20, shapes=shapes, **more))


def test_a_call_goes_to_the_next_bucket_and_gives_what_was_asked_for() -> None:
    padding = Padding(parse(PADDED), {"x": (1,)}, ((1,),))
    builds = {16: Doubles(), 24: Doubles()}
    bucketed = Bucketed(builds, padding)

    for length in (8, 16, 20):
        bucketed.bind({"x": np.full((2, length), 3.0)})
        bucketed.run()
        bucketed.synchronize()
        [given] = bucketed.outputs() or []
        assert given.tolist() == [[6.0] * length] * 2

    assert (builds[16].bound, builds[24].bound) == ([(2, 16), (2, 16)], [(2, 24)])
    assert bucketed.model_bytes == 10
    assert Bucketed({16: Doubles(None), 24: Doubles()}, padding).model_bytes is None
    facts = dict(bucketed.placement)
    assert facts["buckets"] == "16, 24"
    assert facts["computed_per_asked"] == "1.33 tokens, 25.0 % are padding to buckets"
    bucketed.close()
    assert all(each.closed for each in builds.values())


@pytest.mark.parametrize(
    ("loaded", "whole", "partly"),
    [
        ((True, True), True, False),
        ((False, False), False, False),
        ((True, False), False, True),
        ((None, None), None, False),
        ((True, None), None, True),
    ],
)
def test_builds_of_which_some_are_read_back_are_neither_compiled_nor_loaded(
    loaded: tuple[bool | None, bool | None], whole: bool | None, partly: bool
) -> None:
    builds = {16: Doubles(), 24: Doubles()}
    for one, known in zip(builds.values(), loaded, strict=True):
        one.loaded = known
    bucketed = Bucketed(builds, Padding(parse(PADDED), {"x": (1,)}, ((1,),)))

    assert (bucketed.loaded, bucketed.partly_loaded) == (whole, partly)


@pytest.mark.parametrize(("counts", "said"), [((0, 0), 0), ((0, 2), 2), ((None, 1), None), ((None, None), None)])
def test_what_is_compiled_again_is_counted_over_all_builds(
    counts: tuple[int | None, int | None], said: int | None
) -> None:
    builds = {16: Doubles(), 24: Doubles()}
    for one, count in zip(builds.values(), counts, strict=True):
        one.recompiles = count
    assert Bucketed(builds, Padding(parse(PADDED), {"x": (1,)}, ((1,),))).recompiles == said


def test_a_build_that_fails_says_which_and_leaves_none_behind() -> None:
    made: list[Doubles] = []

    def compiling(error: Exception) -> SimpleNamespace:
        def compile_one(workload: Any, device: Any, options: Any) -> Executable:
            if made:
                raise error
            made.append(Doubles())
            return made[-1]

        return SimpleNamespace(compile=compile_one)

    shelf = Mock()
    workload = SimpleNamespace(builds={24: SimpleNamespace(kept=None), 16: SimpleNamespace(kept=shelf)})
    for error in (MemoryError("no 3 GiB"), CompileFailed("it broke")):
        made.clear()
        shelf.close.reset_mock()
        with pytest.raises(type(error)) as raised:
            compile_buckets(compiling(error), workload, Device(), {})  # type: ignore[arg-type]
        assert str(raised.value) == f"the build for 24 tokens (2 of 2, which are held at once): {error}"
        assert made[0].closed
        # What was built for this process only goes with it.
        shelf.close.assert_called_once()


def test_a_turn_has_inputs_of_each_length_and_knows_the_call_that_was_first() -> None:
    inner = Doubles()
    mix = parse("mix[batch=1x1+2x1,sequence=8x1+20x2]")
    further = {8: {"x": np.zeros((2, 8))}}
    turns = MixedCalls(inner, mix, 0, {"x": np.zeros((2, 20))}, further)

    turns.run()

    assert inner.bound == [(shape.batch, shape.sequence) for shape in mix.order(0)]
    assert [inputs["x"].shape for inputs in turns.turn] == inner.bound
    inner.bound.clear()
    seconds = turns.first_calls(7.5)
    # Batch 2 of 20 tokens was called when it was built: that was its first call.
    assert seconds[Shape(2, 20)] == 7.5
    assert inner.bound == [(1, 8), (1, 20), (2, 8)]
    # Of lengths that go with batches no call may be as large as both.
    apart = MixedCalls(inner, parse("mix[batch:sequence=1:20x1+2:8x1]"), 0, {"x": np.zeros((2, 20))}, further)
    assert 7.5 not in apart.first_calls(7.5).values()


def test_who_builds_for_static_shapes_only_takes_buckets_and_no_open_lengths() -> None:
    catalogue, device = Catalogue(), Device()

    assert catalogue.why_not(cell("tvm", LENGTHS), device) == "shapes dynamic (it runs static)"
    for name in ("tvm", "identity", "onnxruntime", "inductor[aot]"):
        assert catalogue.why_not(cell(name, PADDED), device) is None, name
    assert catalogue.why_not(cell("tvm[tuned]", PADDED), device) == (
        "buckets (it tunes one build of a cell, and each bucket is one)"
    )
    assert catalogue.why_not(cell("null", PADDED), device) == (
        "buckets (it reads nothing of the model, so it knows no lengths)"
    )
    assert catalogue.why_not(cell("identity", PADDED, scenario="throughput"), device) == (
        "scenario throughput of a mix of shapes, whose calls come one after the other"
    )


def test_a_ratio_is_of_the_same_calls() -> None:
    def measured(shapes: str) -> Any:
        one = cell("identity", shapes)
        return SimpleNamespace(workload=one.workload, cell=one)

    refuse_other_calls("assert_speedup: over", measured(PADDED), measured(LENGTHS))
    refuse_other_calls("assert_speedup: over", measured("static"), measured("dynamic"))
    for other in ("mix[sequence=8x2+20x1]", "static", "mix[batch=1x1+2x1]"):
        with pytest.raises(ClaimError, match="are not of the same calls"):
            refuse_other_calls("assert_speedup: over", measured(PADDED), measured(other))


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(lambda a, b: assert_speedup(a, over=b, at_least=1), id="assert_speedup"),
        pytest.param(assert_faster, id="assert_faster"),
        pytest.param(assert_no_slower, id="assert_no_slower"),
        pytest.param(lambda a, b: assert_order([a, b], [a.workload.label, b.workload.label]), id="assert_order"),
        pytest.param(lambda a, b: assert_energy(a, over=b, at_most=1), id="assert_energy"),
    ],
)
def test_no_claim_is_about_two_cells_that_answer_other_calls(
    claim: Callable[[Measurement, Measurement], object],
) -> None:
    source, cells = Stored([], [], PROTOCOLS["gate"], 1), [cell("identity", shapes) for shapes in (PADDED, "static")]
    one, other = (Measurement(source, each, each) for each in cells)
    with pytest.raises(ClaimError, match="are not of the same calls"):
        claim(one, other)


# In launches


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job in whose folder everything is built that the cells of this file read."""
    skip_without("torch", "onnxscript", "onnxruntime")
    return job(tmp_path_factory.mktemp("buckets"), timeout=300)


@pytest.mark.real
def test_lengths_are_timed_open_and_padded_and_held_to_the_model_unpadded(work: Job) -> None:
    skip_without("openvino")
    cells = [cell(name, shapes) for name in ("onnxruntime", "openvino") for shapes in (LENGTHS, PADDED)]
    cells.append(cell("open", "mix[batch:sequence=1:20x1+2:8x2]"))

    found = launch(work, *cells)

    for each in cells:
        record = found.records[each]
        assert record.outcome in TIMED, (each.label, record.reason)
        facts = dict(record.placement)
        assert facts["shapes"] == each.workload.shapes
        assert record.new_shape_seconds is not None
        visits = [visit for (visited, _), visit in found.visits.items() if visited == each]
        assert {visit.calls % 3 for visit in visits} == {0}
        if each.workload.shapes == PADDED:
            assert facts["computed_per_asked"].startswith("1.33 tokens, 25.0 %")
            assert "tried_at" not in facts
            assert facts.get("spinning", "") == ("stops after each call" if str(each.compiler) == "onnxruntime" else "")
        else:
            assert "sequence " in str(facts["tried_at"])
    assert "sequence" in str(dict(found.records[cells[0]].placement)["input_shapes"])


@pytest.mark.real
@pytest.mark.parametrize(
    ("what", "shapes", "outcome", "said"),
    [
        ("unmasked", PADDED, Outcome.MISMATCH, ""),
        ("unmasked", "mix[sequence=8x1+20x2,buckets=16+20]", Outcome.MISMATCH, "at sequence 8 of its mix: "),
        ("honest", PADDED, Outcome.OK, ""),
        ("exhausted", PADDED, Outcome.OOM, "the build for 24 tokens (2 of 2, which are held at once): no 3 GiB"),
        ("fixed", LENGTHS, Outcome.UNSUPPORTED, "sequence 13, too, does not run there: RuntimeError"),
        ("remembered", LENGTHS, Outcome.MISMATCH, "not seen before, at "),
    ],
)
def test_what_pads_wrongly_or_answers_from_another_length_has_no_time(
    work: Job, what: str, shapes: str, outcome: Outcome, said: str
) -> None:
    one = cell(f"open[do={what}]", shapes)

    record = launch(work, one).records[one]

    assert record.outcome is outcome or (outcome is Outcome.OK and record.outcome in TIMED), record.reason
    assert said in record.reason


@pytest.mark.real
def test_what_one_cell_has_built_is_part_of_no_compile_time_of_another(tmp_path: Path) -> None:
    skip_without("torch")
    here = job(tmp_path, timeout=300)
    padded = cell("open[do=kept]", PADDED)
    static = replace(padded, workload=replace(padded.workload, sequence=16, shapes="static"))

    first = launch(here, static).records[static]
    partly, after = (launch(here, padded).records[padded] for _ in range(2))

    assert (first.loaded, first.compile_seconds is None) == (False, False), first.reason
    assert (partly.loaded, partly.compile_seconds, partly.built_seconds) == (False, None, None), partly.reason
    # Both were built then, and nobody knows how long that takes together.
    assert (after.loaded, after.compile_seconds is None, after.built_seconds) == (True, False, None), after.reason
