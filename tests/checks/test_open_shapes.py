"""A build for open shapes is one: it is held to the model at sizes that are not measured, and recompiles are said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_ngraph.checks.mixed import MixedCalls
from pytest_ngraph.checks.other_sizes import call_elsewhere, facts
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.local import LocalBench
from pytest_ngraph.errors import SpecError, Unsupported
from pytest_ngraph.front.in_process import compiled
from pytest_ngraph.launches.client import Job
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Device, Outcome, Workload
from pytest_ngraph.spec.shapes.mixes import parse
from pytest_ngraph.workloads import artifacts, keys
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.shapes.elsewhere import Sizes, elsewhere, open_axes, open_sizes, where, why_not
from tests.conftest import skip_without
from tests.support.measuring import TIMED, build, job, launch

MHA = Workload(parse_model("block:mha"), 2, width=32, shapes="dynamic")


def open_cell(compiler: str, batch: int = 2, **more: str) -> Cell:
    return Cell("local", CompilerSpec.parse(compiler), replace(MHA, batch=batch, **more))  # type: ignore[arg-type]


# Where a build is tried


@pytest.mark.parametrize("batch", [1, 2, 5, 7, 256])
def test_a_build_is_tried_at_a_batch_that_is_neither_measured_nor_traced(batch: int) -> None:
    other = elsewhere(replace(MHA, batch=batch, precision="bf16", scenario="throughput"))

    assert other is not None
    assert other.batch not in (1, 2, batch)
    # The length of a kind's default is open, too.
    assert other.sequence not in (None, 10, 1, batch, other.batch)
    sizes = open_sizes(replace(MHA, batch=batch))
    numbers = [number for each in sizes.values() for number in (each.traced, each.tried)]
    assert len({*numbers, batch, 10}) == 6
    assert (other.shapes, other.precision, other.scenario) == ("static", "f32", "latency")
    assert where(replace(MHA, batch=batch)) == f"batch {other.batch}, sequence {other.sequence}"


def test_a_mix_is_tried_at_a_batch_that_is_not_in_it() -> None:
    of_mix = replace(MHA, batch=8, shapes="mix[batch=5x1+7x1+8x1]")
    assert where(of_mix) == "batch 11"
    assert where(replace(of_mix, shapes="mix[batch=1x1+8x1]")) == "batch 5"
    # What a mix has one of stays as it is.
    assert where(replace(MHA, sequence=128, shapes="mix[sequence=32x1+128x1]")) == "sequence 89"
    assert where(replace(of_mix, sequence=128, shapes="mix[batch=2x1+8x1,sequence=97x1+128x1]")) == (
        "batch 5, sequence 89"
    )


def test_no_build_is_traced_at_a_size_of_its_mix() -> None:
    assert open_sizes(replace(MHA, batch=8, shapes="mix[batch=2x1+8x1]")) == {"batch": Sizes(3, 5)}
    assert open_sizes(replace(MHA, batch=8, shapes="mix[batch=2x1+3x1+4x1+5x1+8x1]")) == {"batch": Sizes(6, 7)}
    lengths = replace(MHA, batch=8, sequence=128, shapes="mix[sequence=88x1+89x1+128x1]")
    assert open_sizes(lengths) == {"sequence": Sizes(82, 83)}
    # It is near what is measured, for what is compiled is chosen by it, and no longer.
    assert open_sizes(replace(MHA, sequence=512)) == {"batch": Sizes(3, 5), "sequence": Sizes(382, 383)}


def test_a_static_workload_is_tried_nowhere_else_and_keeps_its_keys() -> None:
    static = replace(MHA, shapes="static")

    assert elsewhere(static) is None
    assert why_not(static) is None
    sample = keys.sample_key(static, 0, {})
    assert keys.sample_key(MHA, 0, {}) == sample
    assert keys.onnx_key(MHA, sample) != keys.onnx_key(static, sample)


def test_open_axes_are_those_whose_length_follows_the_size() -> None:
    here, there = {"ids": (2, 7), "scale": (1,)}, {"ids": (5, 7), "scale": (1,)}

    assert open_axes(here, there, "net") == {"ids": (0,), "scale": ()}
    with pytest.raises(SpecError, match="net: its inputs have the same shapes at another batch"):
        open_axes(here, here, "net")
    with pytest.raises(SpecError, match="other names or ranks"):
        open_axes(here, {"ids": (5, 7)}, "net")


def test_compilers_that_do_not_say_so_build_for_no_open_shapes() -> None:
    catalogue, device = Catalogue(), Device()

    for name in ("tvm", "null"):
        assert catalogue.why_not(open_cell(name), device) == "shapes dynamic (it runs static)"
    for name in ("identity", "torchscript", "onnxruntime", "openvino"):
        assert catalogue.why_not(open_cell(name), device) is None
    said = catalogue.why_not(open_cell("onnxruntime[openvino]"), device)
    assert said == "shapes dynamic on the provider for openvino, which builds again for other shapes"
    assert why_not(replace(MHA, precision="int8")) == (
        "shapes=dynamic of int8: a quantised file is calibrated and written for one batch"
    )
    assert why_not(replace(MHA, sequence=16, decode=4)) == (
        "shapes=dynamic of decode=4: its steps are built for lengths of their own"
    )


def test_a_record_of_static_shapes_says_nothing_of_new_ones() -> None:
    plain = CompileRecord(Outcome.OK)

    assert "new_shape_seconds" not in plain.to_json()
    found = replace(plain, new_shape_seconds=0.25)
    assert CompileRecord.from_json(found.to_json()) == found


# In launches


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job in whose folder everything is built that the cells of this file read."""
    skip_without("torch", "onnxscript", "onnxruntime")
    made = job(tmp_path_factory.mktemp("shapes"), timeout=300)
    build(made, open_cell("identity"), open_cell("onnxruntime"), open_cell("onnxruntime", 1))
    return made


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.real
def test_what_is_built_for_open_shapes_is_timed_and_says_so(work: Job) -> None:
    skip_without("openvino")
    cells = [open_cell(name, batch) for name in ("onnxruntime", "openvino") for batch in (1, 2)]
    cells += [open_cell("identity"), open_cell("torchscript"), open_cell("open")]

    found = launch(work, *cells).records

    for cell in cells:
        record = found[cell]
        assert record.outcome in TIMED, (cell.label, record.reason)
        assert dict(record.placement)["shapes"] == "dynamic"
        assert dict(record.placement)["tried_at"] == "batch 5, sequence 7"
        assert record.new_shape_seconds is not None
        assert record.max_error is not None
    assert dict(found[cells[0]].placement)["input_shapes"].startswith("input [batch,")
    assert dict(found[cells[2]].placement)["input_shapes"].startswith("input [?,")


@pytest.mark.real
def test_one_file_is_for_all_batches(work: Job) -> None:
    import onnx

    files = [artifacts.find(replace(MHA, batch=batch), 0, work.artifacts, True) for batch in (1, 2)]

    assert None not in files
    one, two = (onnx.load(each.onnx, load_external_data=False) for each in files if each is not None)
    assert one.graph.SerializeToString() == two.graph.SerializeToString()
    assert one.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.real
@pytest.mark.parametrize(
    ("what", "outcome", "said"),
    [
        (
            "fixed",
            Outcome.UNSUPPORTED,
            "shapes=dynamic for batch 5, sequence 7, too, does not run there: RuntimeError: got invalid",
        ),
        ("padded", Outcome.MISMATCH, "at batch 5, sequence 7, which the same build is for: "),
        ("remembered", Outcome.MISMATCH, "not seen before, at batch 5, sequence 7, which the same build is for: "),
        ("recompiling", Outcome.UNSTABLE, "while it was timed, so that its calls are of more than one program"),
    ],
)
def test_what_is_for_one_shape_or_compiles_for_each_has_no_time(
    work: Job, what: str, outcome: Outcome, said: str
) -> None:
    cell = open_cell(f"open[do={what}]")

    record = launch(work, cell).records[cell]

    assert record.outcome is outcome
    assert said in record.reason
    assert "second line" not in record.reason
    if what == "recompiling":
        assert int(dict(record.placement)["recompiles_while_timed"]) >= 1


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.real
def test_a_model_that_fixes_its_batch_is_not_built_for_others(tmp_path: Path) -> None:
    skip_without("torch", "onnxscript", "onnxruntime")
    net = tmp_path / "fixes_its_batch.py"
    net.write_text(
        "import torch\n"
        "class Net(torch.nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(8, 8)\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) * float(x.shape[0])\n"
        "    def example_inputs(self, batch):\n"
        "        return torch.randn(batch, 8)\n"
    )
    model = parse_model(f"{net}:Net", (tmp_path,))
    cells = [
        Cell("local", CompilerSpec(name), Workload(model, 4, shapes="dynamic"))
        for name in ("onnxruntime", "torchscript")
    ]

    found = launch(job(tmp_path, timeout=300), *cells).records

    exported, traced = (found[cell] for cell in cells)
    assert exported.outcome is Outcome.UNSUPPORTED
    assert exported.reason.endswith("with open shapes: the exporter fixes axis 0 of 'input' at 2")
    # Traced at a batch of two, which it multiplies by at four.
    assert traced.outcome is Outcome.MISMATCH


MIX = "mix[batch=1x7+2x2+8x1]"


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.real
def test_a_mix_is_timed_over_its_turns_and_checked_at_each_batch(work: Job) -> None:
    cells = [open_cell(name, 8, shapes=MIX) for name in ("identity", "onnxruntime")]

    found = launch(work, *cells)

    for cell in cells:
        record = found.records[cell]
        assert record.outcome in TIMED, (cell.label, record.reason)
        assert dict(record.placement)["shapes"] == MIX
        assert record.new_shape_seconds is not None
        # Visits count the calls of whole turns, and what a launch waits for is a turn.
        visits = [visit for (visited, _), visit in found.visits.items() if visited == cell]
        assert {visit.calls % 10 for visit in visits} == {0}


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.real
def test_a_mix_that_answers_from_another_shapes_outputs_has_no_time(work: Job) -> None:
    for what, outcome in (
        ("remembered", Outcome.MISMATCH),
        ("padded", Outcome.MISMATCH),
        ("recompiling", Outcome.UNSTABLE),
    ):
        cell = open_cell(f"open[do={what}]", 8, shapes=MIX)

        record = launch(work, cell).records[cell]

        assert record.outcome is outcome, record.reason


def test_a_turn_of_a_mix_binds_each_batch_in_its_order() -> None:
    import numpy as np

    class Counts:
        def __init__(self) -> None:
            self.bound: list[int] = []
            self.calls = 0

        def bind(self, inputs: dict[str, np.ndarray]) -> None:
            self.bound.append(len(inputs["x"]))

        def run(self) -> None:
            self.calls += 1

        def synchronize(self) -> None:
            pass

    inner, mix = Counts(), parse(MIX)
    turns = MixedCalls(inner, mix, 3, {"x": np.zeros((8, 2))})  # type: ignore[arg-type]
    turns.run()

    assert inner.bound == [shape.batch for shape in mix.order(3)]
    assert inner.calls == turns.calls_in_a_run == 10
    assert [shape.batch for shape in turns.first_calls(1.0)] == [1, 2, 8]
    with pytest.raises(Unsupported, match="has no row for each of 8 samples"):
        MixedCalls(inner, mix, 3, {"x": np.zeros((2, 8))})  # type: ignore[arg-type]


def test_compilers_that_build_for_no_open_shapes_take_no_mix() -> None:
    catalogue, device = Catalogue(), Device()

    assert catalogue.why_not(open_cell("null", 8, shapes=MIX), device) == "shapes dynamic (it runs static)"
    assert catalogue.why_not(open_cell("identity", 8, shapes=MIX), device) is None
    several = open_cell("identity", 8, shapes=MIX, scenario="throughput")
    assert catalogue.why_not(several, device) == (
        "scenario throughput of a mix of shapes, whose calls come one after the other"
    )
    loaded = open_cell("identity", 8, shapes=MIX, scenario="server[rate=20]")
    assert catalogue.why_not(loaded, device) == (
        "scenario server[rate=20] of a mix of shapes, whose calls come one after the other"
    )


def test_a_mix_is_not_called_as_if_it_were_one_batch() -> None:
    session = SimpleNamespace(bench=LocalBench.__new__(LocalBench))
    with (
        pytest.raises(Unsupported, match=r"calls of one batch; measure mix\[batch=1x1\+8x1\] with ngraph_cell"),
        compiled(session, open_cell("identity", 8, shapes="mix[batch=1x1+8x1]")),  # type: ignore[arg-type]
    ):
        pytest.fail("it was compiled")


def test_a_call_elsewhere_leaves_what_is_timed_bound() -> None:
    import numpy as np

    class Loaded:
        def __init__(self) -> None:
            self.inputs = self.copied_inputs = {"x": np.ones((2, 3), np.float32)}
            self.inputs_elsewhere = {"x": np.zeros((5, 3), np.float32)}
            self.spec = MHA

    class Twice:
        recompiles = None
        calls = 0

        def bind(self, inputs: dict[str, np.ndarray]) -> None:
            self.x = inputs["x"]

        def run(self) -> None:
            self.calls += 1
            self.y = 2 * self.x

        def synchronize(self) -> None:
            pass

        def outputs(self) -> list[np.ndarray]:
            return [self.y]

    executable = Twice()
    outputs, seconds = call_elsewhere(executable, Loaded())  # type: ignore[arg-type]

    assert [each.shape for each in outputs] == [(5, 3)]
    assert seconds >= 0
    assert executable.y.shape == (2, 3)
    assert executable.calls == 2
    assert facts(executable, Loaded()) == {  # type: ignore[arg-type]
        "shapes": "dynamic",
        "tried_at": "batch 5, sequence 7",
    }
