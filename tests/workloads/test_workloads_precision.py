"""Precisions: f32 on the outside and in the reference, the precision in the graph, one sample for all of them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.axes import PRECISIONS
from pytest_ngraph.compilers.toolkit.equality import compare
from pytest_ngraph.errors import Unsupported
from pytest_ngraph.spec.cells import ModelRef, Workload, digest
from pytest_ngraph.workloads import artifacts, folders, keys, references
from pytest_ngraph.workloads.artifacts import Artifact
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.loaded import LoadedWorkload
from tests.conftest import skip_without
from tests.support.references import must_give

_OWN = "pytest_ngraph.conformance.models"
CONV = Workload(parse_model(f"{_OWN}:ConvNet"), 2)
MEMOISED = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, values):
        return self.layer(values)

    def example_inputs(self, batch):
        return torch.randn(batch, 3)

NET = Net()
"""
BUILD = """
import sys
from pathlib import Path
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads import artifacts, references
workload = Workload(parse_model(sys.argv[1]), 2, precision="int8")
print(artifacts.build(workload, 0, Path(sys.argv[2]), True).onnx)
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of all tests that only read what is built: each precision of a model is exported once."""
    return tmp_path_factory.mktemp("precisions")


def own(name: str, precision: str, batch: int = 3) -> Workload:
    return Workload(parse_model(f"{_OWN}:{name}"), batch, precision=precision)


def load(workload: Workload, root: Path, want_onnx: bool = False) -> LoadedWorkload:
    skip_without("torch", *(("onnx", "onnxscript", "onnxruntime") if want_onnx else ()))
    built = artifacts.build(workload, 0, root, want_onnx)
    assert artifacts.find(workload, 0, root, want_onnx) == built
    return LoadedWorkload(workload, 0, built)


def artifact(workload: Workload, root: Path, want_onnx: bool = True) -> Artifact:
    found = load(workload, root, want_onnx).artifact
    assert found is not None
    return found


def graph(workload: Workload, root: Path) -> Any:
    """Return the graph of a workload's ONNX file."""
    skip_without("torch", "onnx", "onnxscript", "onnxruntime")
    path = artifact(workload, root).onnx
    import onnx

    assert path is not None
    onnx.checker.check_model(str(path), full_check=True)
    return onnx.load(path)


def kinds(values: Any) -> list[str]:
    import onnx

    return [onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type) for value in values]


def run(loaded: LoadedWorkload) -> list[np.ndarray[Any, Any]]:
    """Return what the module gives, eagerly."""
    import torch

    positional, keywords = loaded.arguments(loaded.inputs)
    with torch.inference_mode():
        return [tensor.numpy() for tensor in loaded.flatten(loaded.module()(*positional, **keywords))]


def test_f32_has_the_keys_that_it_had_before_there_were_other_precisions() -> None:
    def versions(*names: str) -> dict[str, str]:
        installed = {each.metadata["Name"] for each in importlib.metadata.distributions()}
        return {name: importlib.metadata.version(name) if name in installed else "absent" for name in names}

    workload = Workload(parse_model("block:mha"), 2)
    request = {"recipe": 2, "scheme": "block", "axes": {"depth": 1, "width": 128}, "batch": 2, "precision": "f32"}
    sample = digest({**request, "seed": 0, "made_by": versions("torch"), "model": "mha", "files": []})
    assert keys.sample_key(workload, 0, {}) == sample
    made_by = versions("onnx", "onnxscript", "onnx-ir")
    assert keys.onnx_key(workload, sample) == digest({"sample": sample, "made_by": made_by, "export_recipe": 2})


def test_all_precisions_have_one_sample_and_each_graph_a_key_of_its_own() -> None:
    workloads = [Workload(parse_model("block:mha"), precision=precision) for precision in PRECISIONS]
    assert len({keys.sample_key(each, 0, {}) for each in workloads}) == 1
    graphs = {each.precision: keys.onnx_key(each, "sample") for each in workloads}
    assert graphs["tf32"] == graphs["f32"]
    assert len(set(graphs.values())) == len(PRECISIONS) - 1


@pytest.mark.real
@pytest.mark.parametrize("precision", ["f16", "bf16", "int8"])
def test_the_reference_is_that_of_f32_and_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    plain = artifact(CONV, tmp_path, want_onnx=False)
    before = (references.folder_of(tmp_path, plain.key) / "timed.npz").stat()
    from pytest_ngraph.workloads.source import TorchSource

    def run_again(self: TorchSource) -> None:
        raise AssertionError("the reference was computed a second time")

    monkeypatch.setattr(TorchSource, "_run", run_again)
    other = artifact(replace(CONV, precision=precision), tmp_path)
    assert other.directory == plain.directory
    assert (references.folder_of(tmp_path, plain.key) / "timed.npz").stat() == before
    assert {each["dtype"] for each in (*other.meta["inputs"], *other.meta["outputs"])} == {"float32"}


@pytest.mark.real
def test_tf32_has_the_module_and_the_file_of_f32(built: Path) -> None:
    plain, tf32 = (artifact(replace(CONV, precision=each), built) for each in ("f32", "tf32"))
    assert plain.onnx == tf32.onnx
    assert plain.meta["model_bytes"] == tf32.meta["model_bytes"]
    module = load(replace(CONV, precision="tf32"), built).module()
    assert {str(each.dtype) for each in module.parameters()} == {"torch.float32"}


@pytest.mark.real
@pytest.mark.parametrize("precision", ["f16", "bf16"])
@pytest.mark.parametrize("model", ["ConvNet", "Transformer", "Tokens", "NamedInputs", "NestedOutputs"])
def test_a_module_is_cast_inside_and_f32_outside(tmp_path: Path, model: str, precision: str) -> None:
    loaded = load(own(model, precision), tmp_path)
    kept = {str(each.dtype) for each in loaded.module().parameters()}
    assert kept == {"torch.float16" if precision == "f16" else "torch.bfloat16"}
    outputs = run(loaded)
    assert [each.dtype for each in outputs] == [each.dtype for each in must_give(loaded)]
    agreement = compare(outputs, must_give(loaded), precision)
    assert agreement.reason == ""
    assert agreement.max_error > 1e-5, "it was computed in f32"


@pytest.mark.real
def test_casting_leaves_a_module_that_its_factory_remembers_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "memoised.py").write_text(MEMOISED)
    model = parse_model("memoised.py:NET", (tmp_path,))
    loaded = {each: load(Workload(model, 2, precision=each), tmp_path / "artifacts") for each in ("f32", "f16")}
    plain, cast = (loaded[each].module() for each in ("f32", "f16"))
    assert {str(each.dtype) for each in cast.parameters()} == {"torch.float16"}
    assert {str(each.dtype) for each in plain.parameters()} == {"torch.float32"}
    assert compare(run(loaded["f32"]), must_give(loaded["f32"]), "f32").reason == ""


@pytest.mark.real
@pytest.mark.parametrize(("precision", "kind"), [("f16", "FLOAT16"), ("bf16", "BFLOAT16")])
def test_casts_stand_at_the_edges_of_the_onnx_file(built: Path, precision: str, kind: str) -> None:
    model = graph(replace(CONV, precision=precision), built)
    import onnx

    names = onnx.TensorProto.DataType.Name
    assert kinds(model.graph.input) == kinds(model.graph.output) == ["FLOAT"]
    casts = {
        (node.input[0], node.output[0]): names(node.attribute[0].i)
        for node in model.graph.node
        if node.op_type == "Cast"
    }
    entered = [to for (value, _), to in casts.items() if value == model.graph.input[0].name]
    left = [to for (_, value), to in casts.items() if value == model.graph.output[0].name]
    assert (entered, left) == ([kind], ["FLOAT"])
    assert len(casts) == 2
    assert {names(each.data_type) for each in model.graph.initializer} <= {kind, "INT64"}


@pytest.mark.real
def test_integers_pass_the_edges_as_they_are(built: Path) -> None:
    model = graph(own("Tokens", "f16"), built)
    assert kinds(model.graph.input) == ["INT64"]
    assert kinds(model.graph.output) == ["FLOAT", "INT64"]
    assert not [node for node in model.graph.node if node.op_type == "Cast" and node.input[0] == "input"]


@pytest.mark.real
def test_int8_is_the_f32_file_with_a_scale_for_each_channel(built: Path) -> None:
    model = graph(replace(CONV, precision="int8"), built)
    assert kinds(model.graph.input) == kinds(model.graph.output) == ["FLOAT"]
    assert {node.domain for node in model.graph.node} == {""}
    convolutions = list(fed_to_convolutions(model))
    assert len(convolutions) == 3
    for activation, weight, offset in convolutions:
        assert [each.dtype for each in activation[1:]] == [np.float32, np.uint8]
        values, scale, zero = weight
        assert values.dtype == np.int8
        assert scale.shape == (values.shape[0],)
        assert not zero.any()
        assert offset[0].dtype == np.int32


@pytest.mark.real
def test_int8_has_a_twin_without_zero_points_and_integer_offsets(built: Path) -> None:
    loaded = load(replace(CONV, precision="int8"), built, want_onnx=True)
    import onnx
    from onnx import numpy_helper

    onnx.checker.check_model(str(loaded.symmetric_onnx_path), full_check=True)
    model = onnx.load(loaded.symmetric_onnx_path)
    stored = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    rounded = [node for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    assert len(rounded) > 10
    for node in rounded:
        assert stored[node.input[2]].dtype == np.int8
        assert not stored[node.input[2]].any()
        assert (stored[node.input[1]] > 0).all()
    for _, weight, offset in fed_to_convolutions(model):
        assert weight[0].dtype == np.int8
        assert offset[0].dtype == np.float32
    assert loaded.symmetric_onnx_path != loaded.onnx_path
    plain = load(CONV, built, want_onnx=True)
    assert plain.symmetric_onnx_path == plain.onnx_path


def fed_to_convolutions(model: Any) -> Iterator[list[list[Any]]]:
    """Yield what each convolution is fed: of each input the stored arrays that it comes from."""
    from onnx import numpy_helper

    stored = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    makers = {node.output[0]: node for node in model.graph.node}
    for conv in (node for node in model.graph.node if node.op_type == "Conv"):
        yield [[stored.get(name) for name in (makers[each].input if each in makers else [each])] for each in conv.input]


@pytest.mark.real
@pytest.mark.parametrize("model", ["ConvNet", "Transformer", "Hybrid", "Depthwise", "Tokens", "NestedOutputs"])
def test_int8_outputs_point_where_the_reference_does(built: Path, model: str) -> None:
    loaded = load(own(model, "int8"), built, want_onnx=True)
    import onnxruntime

    for path in (loaded.onnx_path, loaded.symmetric_onnx_path):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        agreement = compare(session.run(None, loaded.inputs), must_give(loaded), "int8")
        assert agreement.reason == ""
        assert agreement.max_error > 1e-4, "it was computed in f32"


@pytest.mark.real
def test_int8_leaves_the_products_of_activations_in_f32(built: Path) -> None:
    model = graph(own("Transformer", "int8"), built)
    quantised = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    products = [node for node in model.graph.node if node.op_type in ("MatMul", "Gemm")]
    whole = [node for node in products if quantised.issuperset(node.input[:2])]
    stored = {each.name for each in model.graph.initializer}
    weights = {
        node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in stored
    }
    assert whole
    assert all(node.input[1] in weights for node in whole)
    assert len(whole) < len(products)


@pytest.mark.real
def test_int8_is_the_same_file_in_every_process(tmp_path: Path) -> None:
    model = onnx_model(tmp_path)
    digests = set()
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", BUILD, model.text, str(tmp_path / seed)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        digests.add(hashlib.sha256(Path(done.stdout.strip()).read_bytes()).hexdigest())
    assert len(digests) == 1


@pytest.mark.real
def test_int8_has_no_pytorch_module(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="int8 is in the ONNX file, there is no PyTorch module in it"):
        load(replace(CONV, precision="int8"), tmp_path).module()


@pytest.mark.real
def test_a_model_that_cannot_be_exported_has_no_int8_for_that_reason(tmp_path: Path) -> None:
    reference = parse_model("workload_models/shapes.py:BranchesOnData", (ROOT / "tests" / "support",))
    made = artifact(Workload(reference, 2, precision="int8"), tmp_path)
    assert made.onnx is None
    assert "cannot be exported to ONNX" in made.meta["onnx_unsupported"]


@pytest.mark.real
def test_a_model_that_the_quantiser_cannot_take_is_refused_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("torch", "onnx", "onnxscript", "onnxruntime")
    import onnxruntime.quantization

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ValueError("no scale for 'conv_1'")

    monkeypatch.setattr(onnxruntime.quantization, "quantize_static", refuse)
    with pytest.raises(Unsupported, match=r"ConvNet batch2 int8: it cannot be quantised: ValueError: no scale"):
        artifacts.build(replace(CONV, precision="int8"), 0, tmp_path, True)


@pytest.mark.real
def test_what_a_model_weighs_follows_its_precision(built: Path) -> None:
    made = {each: artifact(replace(CONV, precision=each), built) for each in ("f32", "f16", "bf16", "int8")}
    whole = {each: made[each].meta["model_bytes"] for each in made}
    integers = 3 * 8  # each BatchNorm counts its batches in 64 bits
    assert whole["f16"] == whole["bf16"] == (whole["f32"] - integers) // 2 + integers
    assert made["int8"].onnx is not None
    assert whole["int8"] == made["int8"].onnx.stat().st_size
    assert made["int8"].meta["onnx_bytes"] == whole["int8"]
    assert {each.meta["parameters"] for each in made.values()} == {made["f32"].meta["parameters"]}
    assert made["int8"].meta["export_seconds"] > made["f32"].meta["export_seconds"]


@pytest.mark.real
def test_a_sample_from_before_there_were_precisions_serves_them_too(tmp_path: Path) -> None:
    file = artifact(CONV, tmp_path, want_onnx=False).directory / "meta.json"
    content = json.loads(file.read_text())
    del content["meta"]["cast_bytes"], content["digest"]
    content["digest"] = folders._digest_of_marker(content)
    file.write_text(json.dumps(content))
    assert artifact(replace(CONV, precision="f16"), tmp_path, want_onnx=False).meta["model_bytes"] is None


def onnx_model(folder: Path) -> ModelRef:
    """Write a file of opset 11 with a convolution and a normalisation that is not folded into it."""
    skip_without("torch", "onnx", "onnxruntime")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    shapes = {"w": (8, 3, 3, 3), "gain": (8,), "offset": (8,), "mean": (8,), "variance": (8,)}
    weights = {name: random.uniform(0.1, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    made = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["features"]),
            helper.make_node("BatchNormalization", ["features", "gain", "offset", "mean", "variance"], ["normal"]),
            helper.make_node("Relu", ["normal"], ["y"]),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 11)], ir_version=8), folder / "m.onnx")
    return parse_model(f"onnx:{folder / 'm.onnx'}")


@pytest.mark.real
@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_an_onnx_file_is_not_cast(tmp_path: Path, precision: str) -> None:
    workload = Workload(onnx_model(tmp_path), 2, precision=precision)
    said = rf"m\.onnx batch2 {precision}: an ONNX file is measured in the precision that it is written in, so not in"
    with pytest.raises(Unsupported, match=said):
        artifacts.build(workload, 0, tmp_path / "artifacts", True)


@pytest.mark.real
def test_an_onnx_file_runs_in_tf32_as_it_is_and_in_int8_quantised(tmp_path: Path) -> None:
    model, root = onnx_model(tmp_path), tmp_path / "artifacts"
    plain, tf32, int8 = (artifact(Workload(model, 2, precision=each), root) for each in ("f32", "tf32", "int8"))
    assert plain.onnx == tf32.onnx != int8.onnx
    assert plain.directory == int8.directory
    assert int8.meta["parameters"] == plain.meta["parameters"]
    quantised = graph(Workload(model, 2, precision="int8"), root)
    operators = Counter(node.op_type for node in quantised.graph.node)
    assert operators["Conv"] == 1
    assert operators["BatchNormalization"] == 0
    assert [each.version for each in quantised.opset_import] == [13]
