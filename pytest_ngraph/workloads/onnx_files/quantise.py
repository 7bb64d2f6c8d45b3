"""An int8 copy of a static ONNX file: Q/DQ nodes around what runs in integers, calibrated on example inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.machine import clock
from pytest_ngraph.machine.imports import require
from pytest_ngraph.workloads.onnx_files.tensors import drop_unused, graph_inputs, is_large

if TYPE_CHECKING:
    import numpy as np
    import onnx

# Layers with weights, the sums and joins between them, and what only moves numbers. Normalisations, softmaxes and gates
# stay in f32: they gain nothing and lose most.
_OPERATORS = (
    "Add", "AveragePool", "Clip", "Concat", "Conv", "ConvTranspose", "Flatten", "Gemm", "GlobalAveragePool", "MatMul",
    "MaxPool", "Relu", "Reshape", "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip
_FORM = {
    # A product of matrices is mostly followed by what runs in f32, where its output would be rounded for nothing.
    "OpTypesToExcludeOutputQuantization": ["Gemm", "MatMul"],
    # They can hide in the rounding only where zero points may be other than zero.
    "QDQKeepRemovableActivations": True,
}
_OPSET = 13  # the first whose QuantizeLinear takes a scale for each channel
_STEPS, _HALF = 255, 127  # of eight bits, and on either side of zero


def quantise(
    source: Path, target: Path, twin: Path, samples: Iterable[Mapping[str, np.ndarray[Any, Any]]], label: str
) -> dict[str, Any]:
    """Write a file with unsigned activations, scaled per tensor, and signed weights, scaled per channel.

    ONNX Runtime has fast kernels on x86 for these types only, and to OpenVINO they are as good as others. ``twin`` is
    written for TensorRT, which takes neither zero points nor offsets in integers. ``samples`` are inputs by name:
    activations are scaled to the numbers met on them. Returns what to know of the file: ``quantise_seconds`` and
    ``onnx_bytes``. Raises Unsupported that starts with ``label`` where ONNX Runtime's quantiser cannot take the model.
    """
    require(label, "onnxruntime", "onnx", "onnxruntime")
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    start = clock.seconds()
    try:
        model = _prepared(source)
        quantize_static(
            model,
            target,
            _Samples(samples, [value.name for value in graph_inputs(model)]),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(_OPERATORS),
            nodes_to_exclude=[*_products(model), *_residual_sums(model)],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            extra_options=_FORM,
        )
        seconds = clock.seconds() - start
        onnx.save(_symmetric(onnx.load(target)), twin)
        for path in (target, twin):
            onnx.checker.check_model(str(path))
    except Unsupported as error:
        raise Unsupported(f"{label}: {error}") from error
    except Exception as error:  # the quantiser raises whatever it runs into
        raise Unsupported(f"{label}: it cannot be quantised: {type(error).__name__}: {error}") from error
    return {"quantise_seconds": seconds, "onnx_bytes": target.stat().st_size}


def _symmetric(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a quantised model, changed in place, with zero points of zero and without offsets in integers.

    Where an activation had 255 steps between the smallest and the largest number, it has 127 on either side of zero.
    """
    import numpy as np
    from onnx import numpy_helper

    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    arrays = {name: numpy_helper.to_array(tensor) for name, tensor in stored.items()}
    changed: dict[str, np.ndarray[Any, Any]] = {}
    for node in list(graph.node):
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        values, scale, zero = node.input
        if zero in arrays and arrays[zero].dtype == np.uint8:
            lowest, highest = ((end - arrays[zero].astype(np.float32)) * arrays[scale] for end in (0, _STEPS))
            wider = (np.maximum(-lowest, highest) / _HALF).astype(np.float32)
            changed[scale], changed[zero] = wider, np.zeros_like(arrays[zero], np.int8)
            if values in arrays:
                exact = (arrays[values].astype(np.float32) - arrays[zero]) * arrays[scale]
                changed[values] = np.rint(exact / wider).clip(-_HALF, _HALF).astype(np.int8)
        elif values in arrays and arrays[values].dtype == np.int32:
            graph.node.remove(node)
            exact = (arrays[values] * arrays[scale].astype(np.float64)).astype(np.float32)
            graph.initializer.append(numpy_helper.from_array(exact, node.output[0]))
    for name, array in changed.items():
        stored[name].CopyFrom(numpy_helper.from_array(array, name))
    drop_unused(graph)
    return model


class _Samples:
    """What the quantiser calibrates on, one after the other, without the inputs that the graph does not use."""

    def __init__(self, samples: Iterable[Mapping[str, np.ndarray[Any, Any]]], names: list[str]) -> None:
        self._left: Iterator[dict[str, np.ndarray[Any, Any]]] = (
            {name: sample[name] for name in names} for sample in samples
        )

    def get_next(self) -> dict[str, np.ndarray[Any, Any]] | None:
        """Return the next sample, or None after the last."""
        return next(self._left, None)


def _prepared(source: Path) -> onnx.ModelProto:
    """Return the model as the quantiser wants it: normalisations folded into weights, every node with a name."""
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
    # Without this mark the quantiser advises to do what has just been done.
    onnx.helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    return model


def _products(model: onnx.ModelProto) -> list[str]:
    """Name the products of two activations, as in attention: only layers with weights are quantised."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return [node.name for node in model.graph.node if node.op_type == "MatMul" and not stored.intersection(node.input)]


def _residual_sums(model: onnx.ModelProto) -> list[str]:
    """Name the sums that normalisations read: what a transformer carries from layer to layer.

    Its range is many times that of what a layer adds to it. In eight bits a random ViT keeps a cosine of 0.96 to its
    reference, without these sums 0.9997.
    """
    normalised = {node.input[0] for node in model.graph.node if node.op_type == "LayerNormalization"}
    return [node.name for node in model.graph.node if node.op_type == "Add" and normalised.intersection(node.output)]
