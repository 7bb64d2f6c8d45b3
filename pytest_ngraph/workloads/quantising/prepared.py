"""A graph as quantisers want it: normalisations folded into weights, every node with a name."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.workloads.onnx_files.tensors import is_large

if TYPE_CHECKING:
    import onnx

_OPSET = 13  # the first whose QuantizeLinear takes a scale for each channel


def prepared(source: Path) -> onnx.ModelProto:
    """Return the model of a file. Raise Unsupported for one that quantisers cannot take."""
    import onnx
    import onnxruntime

    model = onnx.load(source)
    if is_large(model):
        raise Unsupported("it has more than 2 GB of weights, which the quantiser does not take")
    if next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx")) < _OPSET:
        model = onnx.version_converter.convert_version(model, _OPSET)
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    settings.log_severity_level = 4  # a failure is raised as well
    with TemporaryDirectory() as folder:
        settings.optimized_model_filepath = str(Path(folder) / "model.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        model = onnx.load(settings.optimized_model_filepath)
    used = {"", "ai.onnx", *(node.domain for node in model.graph.node)}
    opsets = [each for each in model.opset_import if each.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(opsets)
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    # Without this mark ONNX Runtime's quantiser advises to do what has just been done.
    onnx.helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    return model
