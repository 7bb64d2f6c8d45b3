"""ONNX files with further open dimensions: static copies of each size, ids that are valid, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.workloads import references
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import Suite, skip_without
from tests.support import small_bert
from tests.support.references import must_give
from tests.workloads.test_workloads_onnx import Node, Shape, build, save_model

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _onnx() -> None:
    skip_without("onnx", "onnxruntime")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformer with an open batch and an open sequence, as PyTorch exports it."""
    skip_without("torch", "onnx", "onnxscript")
    path = tmp_path_factory.mktemp("bert") / "bert.onnx"
    small_bert.export(path)
    return path


def two_open(path: Path, **dims: int) -> ModelRef:
    """Return a model of [N, S, 3] and [N, S] with an output of [N, 3], at sizes of its open dimensions."""
    nodes: list[Node] = [
        ("Unsqueeze", ["w", "last"], ["wide"], {}),
        ("Mul", ["x", "wide"], ["scaled"], {}),
        ("ReduceSum", ["scaled", "second"], ["y"], {"keepdims": 0}),
    ]
    import numpy as np

    weights = {"last": np.array([2]), "second": np.array([1])}
    inputs: dict[str, tuple[str, Shape]] = {"x": ("FLOAT", ["N", "S", 3]), "w": ("FLOAT", ["N", "S"])}
    save_model(path, nodes, inputs, {"y": "FLOAT"}, weights)
    inner = ",".join(f"{name}={size}" for name, size in dims.items())
    return parse_model(f"onnx:{path}[{inner}]" if inner else f"onnx:{path}")


def shapes(loaded: Any) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in loaded.inputs.items()}


def test_an_open_dimension_is_fixed_at_the_size_that_was_given(tmp_path: Path) -> None:
    import onnx

    loaded = build(two_open(tmp_path / "m.onnx", S=5), tmp_path / "artifacts", 4)
    assert shapes(loaded) == {"x": (4, 5, 3), "w": (4, 5)}
    assert must_give(loaded)[0].shape == (4, 3)
    graph = onnx.load(loaded.onnx_path).graph
    given = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in (*graph.input, *graph.output)]
    assert given == [[4, 5, 3], [4, 5], [4, 3]]


def test_each_size_has_an_artifact_of_its_own(tmp_path: Path) -> None:
    built = [build(two_open(tmp_path / "m.onnx", S=size), tmp_path / "artifacts", 4).artifact for size in (5, 6)]
    assert len({artifact.key for artifact in built if artifact is not None}) == 2


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({}, r"dimension 1 \(S\) of input 'x' is open; give it a size: dims=\{\"S\": 128\}, or \[S=128\] behind the"),
        ({"T": 5}, r"no open dimension 'T' \(open beside the batch: S; inputs: x \[N, S, 3\]; w \[N, S\]\)"),
        ({"N": 5, "S": 5}, r"'N' is its batch, not a dimension of dims; write batch=5"),
    ],
)
def test_a_name_that_is_missing_unknown_or_the_batchs_is_refused(
    tmp_path: Path, dims: dict[str, int], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        build(two_open(tmp_path / "m.onnx", **dims), tmp_path / "artifacts", 4)


def test_no_size_is_asked_for_by_a_name_that_cannot_be_written(tmp_path: Path) -> None:
    save_model(tmp_path / "m.onnx", [("Relu", ["x"], ["y"], {})], {"x": ("FLOAT", ["N", "S,T"])}, {"y": "FLOAT"})
    said = (
        r"dimension 1 \(S,T\) of input 'x' is open; fix it, or rename it, as its name cannot be written in a "
        r"reference: it has one of \[ \] , =, with onnx.tools.update_model_dims"
    )
    with pytest.raises(SpecError, match=said):
        build(parse_model(f"onnx:{tmp_path}/m.onnx"), tmp_path / "artifacts", 4)


def test_an_input_may_be_one_number(tmp_path: Path) -> None:
    nodes: list[Node] = [("Mul", ["x", "gain"], ["y"], {})]
    save_model(tmp_path / "m.onnx", nodes, {"x": ("FLOAT", ["N", 3]), "gain": ("FLOAT", [])}, {"y": "FLOAT"})
    loaded = build(parse_model(f"onnx:{tmp_path}/m.onnx"), tmp_path / "artifacts", 4)
    assert shapes(loaded) == {"x": (4, 3), "gain": ()}
    assert must_give(loaded)[0] == pytest.approx(loaded.inputs["x"] * loaded.inputs["gain"])
    found = references.find(tmp_path / "artifacts", loaded.artifact.key)  # type: ignore[union-attr]
    assert found is not None
    for number in range(found.calls):
        call = found.call(number)
        assert {name: array.shape for name, array in call.inputs.items()} == shapes(loaded)
        assert call.outputs[0] == pytest.approx(call.inputs["x"] * call.inputs["gain"])


def test_a_static_dimension_takes_no_size(tmp_path: Path) -> None:
    nodes: list[Node] = [("Relu", ["x"], ["y"], {})]
    save_model(tmp_path / "m.onnx", nodes, {"x": ("FLOAT", ["N", 7])}, {"y": "FLOAT"})
    said = r"no open dimension 'S' \(open beside the batch: none that has a name; inputs: x \[N, 7\]\)"
    with pytest.raises(SpecError, match=said):
        build(parse_model(f"onnx:{tmp_path}/m.onnx[S=7]"), tmp_path / "artifacts", 4)


def test_a_static_batch_leaves_the_first_dimension_of_another_input_to_dims(tmp_path: Path) -> None:
    nodes: list[Node] = [("MatMul", ["x", "z"], ["y"], {})]
    save_model(tmp_path / "m.onnx", nodes, {"x": ("FLOAT", [2, "S"]), "z": ("FLOAT", ["S", 3])}, {"y": "FLOAT"})
    loaded = build(parse_model(f"onnx:{tmp_path}/m.onnx[S=5]"), tmp_path / "artifacts", 2)
    assert shapes(loaded) == {"x": (2, 5), "z": (5, 3)}


def test_a_size_that_is_the_batchs_number_is_another_dimension_all_the_same(tmp_path: Path) -> None:
    loaded = build(two_open(tmp_path / "m.onnx", S=4), tmp_path / "artifacts", 4)
    assert shapes(loaded) == {"x": (4, 4, 3), "w": (4, 4)}
    assert must_give(loaded)[0].shape == (4, 3)


@pytest.mark.parametrize("held", ["initializer", "constant", "cast", "quantised"])
def test_ids_are_those_of_the_embedding_however_the_file_holds_it(tmp_path: Path, held: str) -> None:
    import numpy as np
    from onnx import numpy_helper

    table = np.ones((9, 4), np.float32)
    nodes: list[Node] = [("Gather", ["table", "ids"], ["y"], {})]
    weights: dict[str, Any] = {}
    if held == "initializer":
        weights["table"] = table
    elif held == "constant":
        nodes.insert(0, ("Constant", [], ["table"], {"value": numpy_helper.from_array(table)}))
    elif held == "cast":
        weights["small"] = table.astype(np.float16)
        nodes.insert(0, ("Cast", ["small"], ["table"], {"to": 1}))
    else:
        weights |= {"small": table.astype(np.int8), "scale": np.float32(1), "zero": np.int8(0)}
        nodes.insert(0, ("DequantizeLinear", ["small", "scale", "zero"], ["table"], {}))
    save_model(tmp_path / "m.onnx", nodes, {"ids": ("INT64", ["N", "S"])}, {"y": "FLOAT"}, weights)
    loaded = build(parse_model(f"onnx:{tmp_path}/m.onnx[S=200]"), tmp_path / "artifacts", 2)
    ids = loaded.inputs["ids"]
    assert (ids.shape, ids.min(), ids.max()) == ((2, 200), 0, 8)


@pytest.mark.parametrize("length", [3, small_bert.POSITIONS])
def test_a_transformer_runs_at_each_length_in_both_runtimes(bert: Path, tmp_path: Path, length: int) -> None:
    import numpy as np

    skip_without("openvino")
    loaded = build(parse_model(f"onnx:{bert}[S={length}]"), tmp_path / "artifacts", 2)
    assert shapes(loaded) == {"input_ids": (2, length), "attention_mask": (2, length)}
    ids, mask = loaded.inputs["input_ids"], loaded.inputs["attention_mask"]
    assert 0 <= ids.min() <= ids.max() < small_bert.WORDS
    assert set(np.unique(mask)) <= {0, 1}
    if length > 3:
        assert ids.max() > 1
    [expected] = must_give(loaded)
    import onnxruntime
    import openvino

    session = onnxruntime.InferenceSession(loaded.onnx_path, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, dict(loaded.inputs))[0], expected, atol=1e-5)
    model = openvino.Core().compile_model(str(loaded.onnx_path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    assert all(port.partial_shape.is_static for port in model.inputs)
    np.testing.assert_allclose(model(dict(loaded.inputs))[0], expected, atol=1e-4)


def test_a_length_that_the_model_has_no_positions_for_is_its_own_failure(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"is a valid ONNX file, and .*without reference outputs nothing of it can be"):
        build(parse_model(f"onnx:{bert}[S={small_bert.POSITIONS + 1}]"), tmp_path / "artifacts", 2)


def test_a_suite_measures_two_lengths_with_two_compilers(bert: Path, suite: Suite) -> None:
    skip_without("openvino")
    (suite.path / "bert.onnx").write_bytes(bert.read_bytes())
    suite.write("""
@pytest.mark.ngraph(model="onnx:bert.onnx", dims=[{"S": 4}, {"S": 16}], batch=2)
def test_close(ngraph_cell):
    from pytest_ngraph import assert_outputs_match
    assert_outputs_match(ngraph_cell, at_most=1e-4)
""")
    options = ("--ngraph-compiler=onnxruntime,openvino", "--ngraph-protocol=quick")
    result = suite.bare(*options, "--ngraph-export=t.csv")
    result.assert_outcomes(passed=4)
    table = (suite.path / "t.csv").read_text()
    assert {"onnxruntime", "openvino"} <= {line.split(",")[1] for line in table.splitlines()}
    assert "onnx:bert.onnx[S=4]" in table
    assert "onnx:bert.onnx[S=16]" in table
    again = suite.bare(*options, "--ngraph-model=onnx:bert.onnx[S=16]")
    again.assert_outcomes(passed=2)
    again.stdout.fnmatch_lines(["measured 0 launches*"])
