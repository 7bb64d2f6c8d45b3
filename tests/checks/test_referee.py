"""Whoever compares does not trust whom it compares: outputs are judged where no compiler runs, and judged again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.launches.client import Job
from pytest_ngraph.launches.launch import memory_pass
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, CompilerSpec, ModelRef, Outcome, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.support import measuring
from tests.support.measuring import SMALL, TIMED, build, launch, nothing_left_behind

pytestmark = pytest.mark.real


@pytest.fixture
def model(tmp_path: Path) -> ModelRef:
    """Write a linear layer and a softmax, which no two inputs have the same outputs of."""
    np = pytest.importorskip("numpy")
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("x", kind, ["N", 3])],
        [helper.make_tensor_value_info("y", kind, None)],
        [onnx.numpy_helper.from_array(np.random.default_rng(0).normal(size=(3, 4)).astype("float32"), "w")],
    )
    path = tmp_path / "layer.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return parse_model(f"onnx:{path}")


@pytest.fixture
def in_eight_bits(tmp_path: Path) -> ModelRef:
    """Write four layers whose weights and inputs are rounded to eight bits, and whose outputs are in f32."""
    np = pytest.importorskip("numpy")
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, random = onnx.helper, np.random.default_rng(0)
    nodes, stored, last = [], {"zero": np.int8(0), "scale": np.float32(4 / 127)}, "x"
    for number in range(4):
        weights = random.normal(size=(64, 64)) / 8
        stored[f"s{number}"] = np.float32(abs(weights).max() / 127)
        stored[f"w{number}"] = np.round(weights / stored[f"s{number}"]).astype(np.int8)
        stored[f"b{number}"] = random.normal(size=64).astype(np.float32) * np.float32(0.1)
        nodes += [
            helper.make_node("QuantizeLinear", [last, "scale", "zero"], [f"q{number}"]),
            helper.make_node("DequantizeLinear", [f"q{number}", "scale", "zero"], [f"d{number}"]),
            helper.make_node("DequantizeLinear", [f"w{number}", f"s{number}", "zero"], [f"v{number}"]),
            helper.make_node("MatMul", [f"d{number}", f"v{number}"], [f"m{number}"]),
            helper.make_node("Add", [f"m{number}", f"b{number}"], [f"y{number}"]),
        ]
        last = f"y{number}"
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )
    path = tmp_path / "eight.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return parse_model(f"onnx:{path}")


def job(folder: Path) -> Job:
    places = {"liar": "tests.support.lying_compilers:COMPILER"}
    known = measuring.job(folder)
    return replace(known, places={**known.places, **places})


def cell(model: ModelRef, compiler: str, batch: int = 2) -> Cell:
    return Cell("local", CompilerSpec.parse(compiler), Workload(model, batch))


def judged(folder: Path, model: ModelRef, how: str, protocol: str = "") -> tuple[CompileRecord, list[int]]:
    """Return what became of a cell that lies beside an honest one, and the blocks in which it was visited."""
    work, one, honest = job(folder), cell(model, f"liar[how={how}]"), cell(model, "onnxruntime")
    with nothing_left_behind():
        found = launch(work, one, honest, protocol=PROTOCOLS[protocol] if protocol else SMALL)
    assert found.records[honest].outcome in TIMED, found.records[honest].reason
    assert not list((folder / "artifacts").glob(".making-*"))
    return found.records[one], found.blocks_of(one)


def test_right_outputs_have_their_figures_in_the_record(tmp_path: Path, model: ModelRef) -> None:
    record, blocks = judged(tmp_path, model, "honest")
    assert record.outcome in TIMED, record.reason
    assert blocks == [0, 1] or sorted(blocks) == [0, 1]
    assert record.max_error is not None
    assert record.max_error < 1e-5
    assert record.cosine == pytest.approx(1.0)
    assert record.centred_cosine == pytest.approx(1.0)
    assert record.outputs_told_apart is True


@pytest.mark.parametrize("how", ["remembers", "timed_only", "first_call", "disk"])
@pytest.mark.parametrize("protocol", ["", "quick"])
def test_what_is_right_only_where_it_is_timed_is_found_out_after_it(
    tmp_path: Path, model: ModelRef, how: str, protocol: str
) -> None:
    record, blocks = judged(tmp_path, model, how, protocol)
    assert record.outcome is Outcome.MISMATCH
    assert record.reason.startswith("on inputs that it had not seen before: output 0 is off by"), record.reason
    assert blocks, "it was timed before it was found out"
    assert (record.call_seconds, record.compile_seconds, record.warmup_seconds) == (None, None, ())


@pytest.mark.parametrize(
    ("how", "outcome", "said"),
    [
        ("nothing_later", Outcome.MISMATCH, "on inputs that it had not seen before: None outputs where the reference"),
        ("dies_later", Outcome.CRASH, "the worker exited with status 3 during 'check'"),
    ],
)
def test_what_breaks_when_it_is_compared_again_has_no_time(
    tmp_path: Path, model: ModelRef, how: str, outcome: Outcome, said: str
) -> None:
    record, blocks = judged(tmp_path, model, how)
    assert record.outcome is outcome
    assert said in record.reason
    assert blocks


def test_a_neighbour_in_a_process_that_dies_is_compared_in_its_next_one(tmp_path: Path, model: ModelRef) -> None:
    # The first cell of the seat ends the process that both had.
    cells = [cell(model, "liar[how=dies_later]", 2), cell(model, "liar[how=dies_later]", 3)]
    found = launch(job(tmp_path), *cells)
    assert [found.records[one].outcome for one in cells] == [Outcome.CRASH, Outcome.CRASH]
    assert all(found.blocks_of(one) for one in cells)


@pytest.mark.parametrize("how", ["objects", "texts"])
def test_outputs_that_are_no_numbers_never_come_over(tmp_path: Path, model: ModelRef, how: str) -> None:
    record, blocks = judged(tmp_path, model, how)
    assert record.outcome in (Outcome.FAILED, Outcome.MISMATCH)
    assert "Object arrays cannot be saved" in record.reason or "no numbers that can be compared" in record.reason
    assert blocks == []


def test_a_memory_pass_compares_on_unseen_inputs_too(tmp_path: Path, model: ModelRef) -> None:
    work, one, liar = job(tmp_path), cell(model, "onnxruntime"), cell(model, "liar[how=timed_only]")
    build(work, one)
    with nothing_left_behind():
        right, peak = memory_pass(work, one, SMALL, 1)
        wrong, none = memory_pass(work, liar, SMALL, 1)
    assert (right.outcome, right.peak_memory_bytes) == (Outcome.OK, peak)
    assert peak is not None
    assert (wrong.outcome, none) == (Outcome.MISMATCH, None)
    assert wrong.reason.startswith("on inputs that it had not seen before")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("zeros", "output 0 is off by 1"),
        ("larger", "output 0 was handed over with shape (2, 12) where 8 numbers are wanted"),
        ("transposed", "output 0 has shape (4, 2) where the reference has (2, 4)"),
        ("integers", "output 0 is int64 where the reference is float32"),
        ("one_more", "2 outputs where the reference has 1"),
    ],
)
def test_wrong_outputs_are_refused_before_anything_is_timed(
    tmp_path: Path, model: ModelRef, how: str, said: str
) -> None:
    record, blocks = judged(tmp_path, model, how)
    assert record.outcome is Outcome.MISMATCH
    assert said in record.reason
    assert blocks == []


def test_a_file_in_eight_bits_is_held_to_the_bounds_of_eight_bits(tmp_path: Path, in_eight_bits: ModelRef) -> None:
    work, one = job(tmp_path), cell(in_eight_bits, "onnxruntime[graph=all]", 64)
    record = launch(work, one).records[one]
    assert record.outcome in TIMED, record.reason
    # A number that is rounded the other way by another order of additions is off by a step of 256.
    assert record.max_error is not None
    assert record.max_error > 1e-3
    assert record.centred_cosine == pytest.approx(1.0, abs=1e-3)
    assert record.outputs_told_apart is True
    assert record.held_to == "int8"


@pytest.mark.parametrize("how", ["zeros", "remembers", "timed_only"])
def test_wrong_outputs_of_a_file_in_eight_bits_are_refused(tmp_path: Path, in_eight_bits: ModelRef, how: str) -> None:
    one = cell(in_eight_bits, f"liar[how={how}]", 64)
    record = launch(job(tmp_path), one).records[one]
    assert record.outcome is Outcome.MISMATCH
    assert "the bound of int8 is" in record.reason
