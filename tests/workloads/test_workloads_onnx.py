"""ONNX files: a static batch, inputs from the signature, a reference, and a PyTorch module where that can be had."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.errors import SpecError, Unsupported
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads import artifacts, folders
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.loaded import LoadedWorkload
from tests.support.references import must_give

pytestmark = pytest.mark.real

# Those of the wheel's nine that are small; bvlc_alexnet, vgg19 and zfnet512 hold 240 to 575 MB and convert as well.
LIGHT = ["densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet"]
NOT_CONVERTED = {"inception_v1": "AvgPool with non symmetrical padding is not implemented"}

Shape = Sequence[int | str | None]
Node = tuple[str, Sequence[str], Sequence[str], Mapping[str, Any]]  # operator, inputs, outputs, attributes


@pytest.fixture(autouse=True)
def _onnx() -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")


def save_model(
    path: Path,
    nodes: Sequence[Node],
    inputs: Mapping[str, tuple[str, Shape]],
    outputs: Mapping[str, str],
    weights: Mapping[str, Any] | None = None,
    external: bool = False,
) -> ModelRef:
    """Write a model of nodes over typed inputs, outputs and weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, kind: str, shape: Shape | None) -> Any:
        return helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)

    graph = helper.make_graph(
        [helper.make_node(kind, taken, given, **attributes) for kind, taken, given, attributes in nodes],
        "graph",
        [value(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [value(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=external, location="weights.bin", size_threshold=0)
    return parse_model(f"onnx:{path}")


def relu(path: Path, shape: Shape) -> ModelRef:
    return save_model(path, [("Relu", ["x"], ["y"], {})], {"x": ("FLOAT", shape)}, {"y": "FLOAT"})


def build(model: ModelRef, root: Path, batch: int = 1, seed: int = 0) -> LoadedWorkload:
    workload = Workload(model, batch)
    artifact = artifacts.build(workload, seed, root, False)
    assert artifacts.find(workload, seed, root, True) == artifact
    return LoadedWorkload(workload, seed, artifact)


def light(name: str) -> ModelRef:
    import onnx

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return parse_model(f"onnx:{folder / f'light_{name}.onnx'}")


@pytest.mark.parametrize("name", LIGHT)
def test_light_models_get_weights_that_tell_and_become_torch_modules_or_say_why_not(tmp_path: Path, name: str) -> None:
    import numpy as np
    import onnx

    loaded = build(light(name), tmp_path)
    assert loaded.artifact is not None
    assert "seeded random values" in loaded.artifact.meta["notes"][0]
    assert loaded.artifact.meta["parameters"] > 1_000_000
    onnx.checker.check_model(str(loaded.onnx_path))
    [output] = must_give(loaded)
    assert np.isfinite(output).all()
    # A softmax over 1000 classes is 0.001 everywhere where nothing reaches it, and 0 or 1 where too much does.
    assert output.std() > 0.1 * output.mean()
    assert output.max() < 20
    assert output.min() != 0
    assert len(np.unique(output)) > 500

    if find_spec("torch") is None or find_spec("onnx2torch") is None:
        pytest.skip("onnx2torch is not installed")
    if name in NOT_CONVERTED:
        with pytest.raises(Unsupported, match=f"onnx2torch cannot convert it: .*{NOT_CONVERTED[name]}"):
            loaded.module()
    else:
        assert not loaded.module().training  # its outputs were compared before it was handed out


def test_another_seed_gives_other_weights_and_inputs(tmp_path: Path) -> None:
    import numpy as np

    one, other = (build(light("shufflenet"), tmp_path, seed=seed) for seed in (0, 1))
    assert not np.array_equal(one.inputs["gpu_0/data_0"], other.inputs["gpu_0/data_0"])
    assert one.onnx_path.read_bytes() != other.onnx_path.read_bytes()


def test_the_precision_is_that_of_the_file(tmp_path: Path) -> None:
    import numpy as np

    def of(kind: str, name: str) -> str:
        weights = {"w": np.full((4, 4), 0.5, name), "one": np.ones(1, np.float32)}
        nodes: list[Node] = [("MatMul", ["x", "w"], ["y"], {}), ("Relu", ["one"], ["z"], {})]
        outputs = {"y": kind, "z": "FLOAT"}
        model = save_model(tmp_path / f"{name}.onnx", nodes, {"x": (kind, ["N", 4])}, outputs, weights)
        return build(model, tmp_path / "artifacts").graph_precision

    assert (of("FLOAT", "float32"), of("FLOAT16", "float16")) == ("f32", "f16")


def test_a_graph_that_quantises_is_int8_whatever_its_weights() -> None:
    from onnx import helper

    from pytest_ngraph.workloads.onnx_files.tensors import precision_of

    for kind in ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "MatMulInteger"):
        node = helper.make_node(kind, ["x", "y"], ["z"])
        assert precision_of(helper.make_model(helper.make_graph([node], "graph", [], []))) == "int8"
    assert precision_of(helper.make_model(helper.make_graph([], "graph", [], []))) == "f32"


def in_eight_bits(layers: int, *others: str, activations: bool = True, size: int = 4) -> Any:
    """Return a graph of matrix products, the first ``layers`` of them quantised, and one of each other kind."""
    import numpy as np
    from onnx import helper, numpy_helper

    kinds = {"f32": np.float32, "f16": np.float16, "cast": np.float16}
    scale = [
        numpy_helper.from_array(np.array(value), name) for name, value in (("s", np.float32(0.1)), ("z", np.int8(0)))
    ]
    nodes, stored, last = [], scale, "x"
    for number in range(layers):
        if activations:
            nodes.append(helper.make_node("QuantizeLinear", [last, "s", "z"], [f"q{number}"]))
            nodes.append(helper.make_node("DequantizeLinear", [f"q{number}", "s", "z"], [f"d{number}"]))
            last = f"d{number}"
        stored.append(numpy_helper.from_array(np.ones((4, 4), np.int8), f"w{number}"))
        nodes.append(helper.make_node("DequantizeLinear", [f"w{number}", "s", "z"], [f"v{number}"]))
        nodes.append(helper.make_node("MatMul", [last, f"v{number}"], [f"y{number}"]))
        last = f"y{number}"
    for number, kind in enumerate(others):
        stored.append(numpy_helper.from_array(np.ones((4, size), kinds[kind]), f"m{number}"))
        matrix = f"m{number}"
        if kind == "cast":
            nodes.append(helper.make_node("Cast", [matrix], [f"c{number}"], to=1))
            matrix = f"c{number}"
        nodes.append(helper.make_node("MatMul", ["x", matrix], [f"o{number}"]))
    given = helper.make_tensor_value_info("x", 10 if "f16" in others else 1, [1, 4])
    return helper.make_model(helper.make_graph(nodes, "graph", [given], [], stored))


def test_a_file_is_held_to_the_bounds_of_eight_bits_only_where_most_of_it_is_in_eight_bits() -> None:
    from onnx import helper

    from pytest_ngraph.workloads.onnx_files.tensors import precision_of
    from pytest_ngraph.workloads.quantising.layers import computes_in

    assert computes_in(in_eight_bits(3)) == computes_in(in_eight_bits(2, "f32")) == "int8"
    one_of_three, weights_only = in_eight_bits(1, "f32", "f32"), in_eight_bits(3, activations=False)
    small_ones = in_eight_bits(3, "f32", size=4000)
    for model in (one_of_three, in_eight_bits(1, "f32"), weights_only, small_ones):
        assert (precision_of(model), computes_in(model)) == ("int8", "f32")
    assert computes_in(in_eight_bits(0, "f16", "f16")) == "f16"
    stored_only = in_eight_bits(0, "cast", "cast")
    assert (precision_of(stored_only), computes_in(stored_only)) == ("f16", "f32")
    for kind in ("QLinearConv", "MatMulInteger"):
        node = helper.make_node(kind, ["x", "y"], ["z"])
        assert computes_in(helper.make_model(helper.make_graph([node], "graph", [], []))) == "int8"
    assert computes_in(helper.make_model(helper.make_graph([], "graph", [], []))) == "f32"


def test_a_sample_from_before_it_was_known_what_layers_compute_in_is_made_again(tmp_path: Path) -> None:
    import json

    import onnx

    model = in_eight_bits(2)
    model.opset_import[0].version, model.ir_version = 17, 8
    model.graph.output.append(onnx.helper.make_tensor_value_info("y1", 1, [1, 4]))
    onnx.save(model, tmp_path / "m.onnx")
    root, workload = tmp_path / "artifacts", Workload(parse_model(f"onnx:{tmp_path / 'm.onnx'}"))
    key = artifacts.build(workload, 0, root, True).key
    bounds = [artifacts.bounds_of(root, key, precision) for precision in ("f32", "tf32", "f16", "int8")]
    assert bounds == ["int8", "int8", "f16", "int8"]
    [file] = root.glob("sample-*/meta.json")
    marker = json.loads(file.read_text())
    del marker["meta"]["computes_in"], marker["digest"]
    file.write_text(json.dumps({**marker, "digest": folders._digest_of_marker(marker)}))
    assert artifacts.bounds_of(root, key, "f32") == "f32"
    assert artifacts.find(workload, 0, root, True) is None
    assert artifacts.build(workload, 0, root, True).key == key
    assert artifacts.bounds_of(root, key, "f32") == "int8"


def test_true_weights_are_left_as_they_are(tmp_path: Path) -> None:
    import numpy as np

    weights = {"w": np.full((4, 4), 0.5, np.float32), "size": np.array([4], np.int64)}
    nodes: list[Node] = [
        ("ConstantOfShape", ["size"], ["b"], {}),
        ("Gemm", ["x", "w", "b"], ["y"], {}),
    ]
    model = save_model(tmp_path / "m.onnx", nodes, {"x": ("FLOAT", ["N", 4])}, {"y": "FLOAT"}, weights)
    loaded = build(model, tmp_path / "artifacts", 2)
    assert loaded.artifact is not None
    assert loaded.artifact.meta["notes"] == []
    np.testing.assert_allclose(must_give(loaded)[0], loaded.inputs["x"] @ weights["w"], atol=1e-6)


def test_true_weights_are_left_as_they_are_beside_a_large_constant_that_is_no_weight(tmp_path: Path) -> None:
    import numpy as np
    import onnx

    weights = {
        "w": np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32),
        "scale": np.full(4, 0.5, np.float32),
        "size": np.array([64, 64, 4], np.int64),
    }
    nodes: list[Node] = [
        ("ConstantOfShape", ["size"], ["state"], {}),
        ("ConstantOfShape", ["size"], ["mask"], {"value": onnx.helper.make_tensor("one", 1, [1], [1.0])}),
        ("MatMul", ["x", "w"], ["made"], {}),
        ("Mul", ["made", "scale"], ["scaled"], {}),
        ("Add", ["scaled", "state"], ["sum"], {}),
        ("Mul", ["sum", "mask"], ["y"], {}),
    ]
    model = save_model(tmp_path / "m.onnx", nodes, {"x": ("FLOAT", ["N", 4])}, {"y": "FLOAT"}, weights)
    loaded = build(model, tmp_path / "artifacts", 1)
    assert loaded.artifact is not None
    assert loaded.artifact.meta["notes"] == []
    np.testing.assert_allclose(must_give(loaded)[0][0, 0], loaded.inputs["x"][0] @ weights["w"] * 0.5, atol=1e-6)


@pytest.mark.parametrize("shape", [["N", 3], [None, 3], [0, 3], [5, 3]])
def test_an_open_or_equal_first_dimension_becomes_the_batch(tmp_path: Path, shape: Shape) -> None:
    import onnx

    loaded = build(relu(tmp_path / "m.onnx", shape), tmp_path / "artifacts", 5)
    assert loaded.inputs["x"].shape == (5, 3)
    graph = onnx.load(loaded.onnx_path).graph
    for value in (graph.input[0], graph.output[0]):
        assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [5, 3]


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ([4, 3], "its batch is fixed at 4 in the file, not 5"),
        (["N", "tokens"], r"dimension 1 \(tokens\) of input 'x' is open; give it a size: dims="),
        ([4, None], "its batch is fixed at 4 in the file, not 5"),
        (["N", 3, None], r"dimension 2 \(unnamed\) of input 'x' is open; fix it, or name it, with onnx\.tools"),
        (None, "input 'x' is not a tensor of known rank"),
    ],
)
def test_other_shapes_are_refused_with_the_reason(tmp_path: Path, shape: Shape, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        build(relu(tmp_path / "m.onnx", shape), tmp_path / "artifacts", 5)


def test_the_batch_is_fixed_wherever_its_name_stands(tmp_path: Path) -> None:
    nodes: list[Node] = [("MatMul", ["x", "z"], ["y"], {})]
    model = save_model(tmp_path / "m.onnx", nodes, {"x": ("FLOAT", ["N", 3]), "z": ("FLOAT", [3, "N"])}, {"y": "FLOAT"})
    loaded = build(model, tmp_path / "artifacts", 4)
    assert must_give(loaded)[0].shape == (4, 4)


def test_a_second_name_for_the_first_dimension_is_not_guessed(tmp_path: Path) -> None:
    nodes: list[Node] = [("Add", ["x", "z"], ["y"], {})]
    model = save_model(tmp_path / "m.onnx", nodes, {"x": ("FLOAT", ["N", 3]), "z": ("FLOAT", ["M", 3])}, {"y": "FLOAT"})
    with pytest.raises(SpecError, match=r"dimension 0 \(M\) of input 'z' is open"):
        build(model, tmp_path / "artifacts", 4)


def test_inputs_have_the_types_and_ranges_of_the_signature(tmp_path: Path) -> None:
    import numpy as np

    nodes: list[Node] = [
        ("Unsqueeze", ["ids", "axis"], ["raised"], {}),
        ("Cast", ["raised"], ["wide"], {"to": 7}),
        ("Gather", ["table", "wide"], ["rows"], {}),
        ("Gather", ["short", "columns"], ["picked"], {"axis": 1}),
        ("Where", ["mask", "half", "half"], ["chosen"], {}),
        ("Identity", ["kinds"], ["kept"], {}),
    ]
    weights = {
        "table": np.ones((1000, 2), np.float32),
        "short": np.ones((50, 3), np.float32),
        "axis": np.array([0], np.int64),
    }
    inputs: dict[str, tuple[str, Shape]] = {
        "ids": ("INT32", ["N", 400]),
        "columns": ("INT64", ["N", 400]),
        "mask": ("BOOL", ["N", 400]),
        "half": ("FLOAT16", ["N", 400]),
        "kinds": ("UINT8", ["N", 400]),
    }
    outputs = {"rows": "FLOAT", "picked": "FLOAT", "chosen": "FLOAT16", "kept": "UINT8"}
    made = build(save_model(tmp_path / "m.onnx", nodes, inputs, outputs, weights), tmp_path / "artifacts", 2).inputs
    assert list(made) == list(inputs)
    assert [str(array.dtype) for array in made.values()] == ["int32", "int64", "bool", "float16", "uint8"]
    assert made["ids"].min() >= 0
    assert 900 < made["ids"].max() < 1000
    assert set(made["columns"].ravel()) == {0, 1, 2}
    assert set(made["kinds"].ravel()) == {0, 1}
    assert set(made["mask"].ravel()) == {False, True}
    assert 0.8 < made["half"].astype(float).std() < 1.1
    assert abs(made["half"]).max() <= 3


def test_an_input_of_strings_is_refused(tmp_path: Path) -> None:
    nodes: list[Node] = [("Identity", ["x"], ["y"], {})]
    model = save_model(tmp_path / "m.onnx", nodes, {"x": ("STRING", ["N"])}, {"y": "STRING"})
    with pytest.raises(SpecError, match="input 'x' is of type STRING"):
        build(model, tmp_path / "artifacts")


def test_initializers_listed_as_inputs_are_no_inputs(tmp_path: Path) -> None:
    import numpy as np
    import onnx

    weights = {"w": np.eye(3, dtype=np.float32)}
    inputs: dict[str, tuple[str, Shape]] = {"w": ("FLOAT", [3, 3]), "x": ("FLOAT", ["N", 3])}
    model = save_model(tmp_path / "m.onnx", [("MatMul", ["x", "w"], ["y"], {})], inputs, {"y": "FLOAT"}, weights)
    loaded = build(model, tmp_path / "artifacts", 2)
    assert list(loaded.inputs) == ["x"]
    assert [value.name for value in onnx.load(loaded.onnx_path).graph.input] == ["x"]


def test_a_changed_external_file_is_a_miss(tmp_path: Path) -> None:
    import numpy as np

    weights = {"w": np.full((3, 3), 1.0, np.float32)}
    nodes: list[Node] = [("MatMul", ["x", "w"], ["y"], {})]
    model = save_model(tmp_path / "m.onnx", nodes, {"x": ("FLOAT", ["N", 3])}, {"y": "FLOAT"}, weights, external=True)
    root = tmp_path / "artifacts"
    first = build(model, root, 2)
    assert first.artifact is not None
    assert {Path(path).name for path in first.artifact.meta["project_files"]} == {"m.onnx", "weights.bin"}
    (tmp_path / "weights.bin").write_bytes((2 * weights["w"]).tobytes())
    assert artifacts.find(first.spec, 0, root, True) is None
    second = build(model, root, 2)
    np.testing.assert_allclose(must_give(second)[0], 2 * must_give(first)[0], rtol=1e-6)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(SpecError, match=r"cannot read .*weights\.bin"):
        artifacts.build(first.spec, 0, root, True)


def test_a_model_too_large_for_one_message_keeps_its_weights_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript")
    from pytest_ngraph.workloads.onnx_files import tensors

    monkeypatch.setattr(tensors, "_MOST_INLINE_BYTES", 1000)
    exported = artifacts.build(Workload(parse_model("block:mha"), 2), 0, tmp_path, True)
    copied = build(parse_model(f"onnx:{exported.onnx}"), tmp_path, 2)
    assert exported.onnx is not None
    for path in (exported.onnx, copied.onnx_path):
        assert path.stat().st_size < 100_000
    assert {file.suffix for file in exported.onnx.parent.iterdir()} == {".onnx", ".bin"}
    files = {file.name for file in copied.onnx_path.parent.iterdir()}
    assert files == {"meta.json", "model.onnx", "model.onnx.data"}
    assert copied.module()


def test_a_file_that_is_no_onnx_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x89PNG not a model")
    with pytest.raises(SpecError, match=r"m\.onnx is not an ONNX file"):
        build(parse_model(f"onnx:{tmp_path / 'm.onnx'}"), tmp_path / "artifacts")


def test_a_model_that_the_reference_runtime_cannot_run_is_refused(tmp_path: Path) -> None:
    nodes: list[Node] = [("Add", ["x", "z"], ["y"], {})]
    model = save_model(tmp_path / "m.onnx", nodes, {"x": ("FLOAT", ["N", 3]), "z": ("FLOAT", ["N", 4])}, {"y": "FLOAT"})
    with pytest.raises(SpecError, match=r"(?s)m\.onnx is not a valid ONNX file: .*Incompatible dimensions"):
        build(model, tmp_path / "artifacts")


def test_reference_outputs_are_made_where_a_process_has_no_cpus_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on macOS.
    monkeypatch.delattr(os, "sched_getaffinity")
    assert build(relu(tmp_path / "m.onnx", ["N", 3]), tmp_path / "artifacts", 2).inputs["x"].shape == (2, 3)


def test_an_exported_model_comes_back_as_a_module(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    exported = artifacts.build(Workload(parse_model("block:mha"), 2), 0, tmp_path, True)
    loaded = build(parse_model(f"onnx:{exported.onnx}"), tmp_path, 2)
    assert sum(tensor.numel() for tensor in loaded.module().state_dict().values()) >= 66_048


def test_files_of_buckets_are_converted_for_those_who_read_modules_only(tmp_path: Path) -> None:
    pytest.importorskip("onnx2torch")
    model = relu(tmp_path / "m.onnx", ["N", "sequence", 3])
    workload = Workload(model, 2, sequence=4, shapes="mix[sequence=3x1+4x1,buckets=4]")

    for want_onnx, converted in ((True, 0), (False, 2)):
        root = tmp_path / str(want_onnx)
        made = artifacts.build(workload, 0, root, want_onnx)
        assert artifacts.find(workload, 0, root, want_onnx) == made
        # Of the bucket, and of the further length: nothing is compiled from the whole.
        assert len(list(root.glob("torch-*"))) == converted


def test_a_conversion_that_gives_other_outputs_is_refused(tmp_path: Path) -> None:
    import numpy as np

    pytest.importorskip("torch")
    from pytest_ngraph.workloads.onnx_files.to_torch import convert, disagreement

    loaded = build(relu(tmp_path / "m.onnx", ["N", 3]), tmp_path / "artifacts", 2)
    for reference, said in (
        (must_give(loaded), ""),
        ([must_give(loaded)[0] + np.float32(0.1)], "onnx2torch converts it, but its outputs are off by 0.1"),
        ([must_give(loaded)[0].T], "onnx2torch converts it, but to outputs of other shapes"),
    ):
        assert disagreement(convert(loaded.onnx_path), loaded.inputs, reference) == said


def test_a_conversion_that_gives_other_imaginary_parts_is_refused() -> None:
    import numpy as np

    pytest.importorskip("torch")
    import torch

    from pytest_ngraph.workloads.onnx_files.to_torch import disagreement

    class Turned(torch.nn.Module):  # type: ignore[misc]
        def forward(self, values: Any) -> Any:
            return torch.complex(values, -values)

    inputs = {"x": np.ones((2, 3), np.float32)}
    assert disagreement(Turned(), inputs, [inputs["x"] * np.complex64(1 - 1j)]) == ""
    assert "off by 2" in disagreement(Turned(), inputs, [inputs["x"] * np.complex64(1 + 1j)])


def test_a_conversion_is_held_to_the_reference_when_the_artifact_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx2torch = pytest.importorskip("onnx2torch")
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(onnx2torch, "convert", lambda model: torch.nn.Tanh())
    loaded = build(relu(tmp_path / "m.onnx", ["N", 3]), tmp_path / "artifacts", 2)
    monkeypatch.undo()
    with pytest.raises(Unsupported, match=r"m\.onnx batch2: onnx2torch converts it, but its outputs are off by"):
        loaded.module()
