"""ONNX Runtime's static quantiser, with its three ways to find the range of an activation."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pytest_ngraph.spec.precisions import ENTROPY, MINMAX, Precision
from pytest_ngraph.workloads.onnx_files.tensors import graph_inputs
from pytest_ngraph.workloads.quantising.calibration import PERCENTILE_KEPT, Calibration

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Arrays = Mapping[str, np.ndarray[Any, Any]]

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
# As many as the levels that it is to be cut to leave entropy nothing to choose from, and 128 are its default.
_BINS, _LEVELS = 512, 128


def quantise(model: onnx.ModelProto, target: Path, calibration: Calibration, precision: Precision) -> None:
    """Write a file with unsigned activations, scaled per tensor, and signed weights.

    ONNX Runtime has fast kernels on x86 for these types only, and to OpenVINO they are as good as others.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    excluded = [*_products(model), *_residual_sums(model)]
    names = [value.name for value in graph_inputs(model)]
    if precision.calibrate == MINMAX:
        quantize_static(
            model,
            target,
            _Samples(calibration.calls(), names),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(_OPERATORS),
            nodes_to_exclude=excluded,
            per_channel=precision.per_channel,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            extra_options=_FORM,
        )
        return
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.quant_utils import save_and_reload_model_with_shape_infer

    with contextlib.redirect_stdout(io.StringIO()):  # they say how far they are
        ranges = _ranges(model, calibration, names, precision.calibrate)
    quantizer = QDQQuantizer(
        save_and_reload_model_with_shape_infer(model),
        precision.per_channel,
        False,  # weights in seven bits
        QuantType.QInt8,
        QuantType.QUInt8,
        ranges,
        [],
        excluded,
        list(_OPERATORS),
        dict(_FORM),
    )
    quantizer.quantize_model()
    quantizer.model.save_model_to_file(target, False)


def _ranges(model: onnx.ModelProto, calibration: Calibration, names: list[str], method: str) -> Any:
    """Return the range of each activation by its histogram over all samples.

    The bins are laid over what all samples together reach, which a pass of its own finds out. ONNX Runtime would lay
    them over the first call and add more as later ones go beyond: then ranges hang on the order of samples and on how
    many are in a call, and one outlier that comes late makes millions of bins.
    """
    import numpy as np
    import onnx
    from onnxruntime.quantization.calibrate import CalibrationMethod, HistogramCollector, create_calibrator

    with TemporaryDirectory() as folder:
        source, copy = Path(folder) / "model.onnx", str(Path(folder) / "augmented.onnx")
        onnx.save(model, source)
        ends = create_calibrator(source, list(_OPERATORS), copy)
        ends.collect_data(_Samples(calibration.calls(), names))
        met = {
            name: [np.asarray(end, np.float32).reshape(-1)[0] for end in each.range_value]
            for name, each in ends.compute_data().items()
        }
        del ends
        kind = CalibrationMethod.Entropy if method == ENTROPY else CalibrationMethod.Percentile
        options = {"num_bins": _BINS, "num_quantized_bins": _LEVELS, "percentile": PERCENTILE_KEPT, "symmetric": False}
        histograms = create_calibrator(source, list(_OPERATORS), copy, kind, extra_options=options)
        histograms.collector = HistogramCollector(
            method=method,
            symmetric=False,
            num_bins=_BINS,
            num_quantized_bins=_LEVELS,
            percentile=PERCENTILE_KEPT,
            scenario="same",
        )
        histograms.collector.histogram_dict = {name: _empty(low, high) for name, (low, high) in met.items()}
        for call in calibration.calls():
            # One at a time: it keeps every activation of what it is given at once.
            histograms.collect_data(_Samples([call], names))
        return histograms.compute_data()


def _empty(low: np.float32, high: np.float32) -> tuple[Any, ...]:
    """Return a histogram with nothing in it, as ONNX Runtime keeps them: counts, edges, ends and the larger end."""
    import numpy as np

    threshold = np.float32(max(abs(low), abs(high)))
    counts, edges = np.histogram(np.empty(0, np.float32), _BINS, range=(-threshold, threshold))
    return counts, edges, low, high, threshold


class _Samples:
    """What the quantiser calibrates on, one after the other, without the inputs that the graph does not use."""

    def __init__(self, calls: Iterable[Arrays], names: list[str]) -> None:
        self._left: Iterator[dict[str, Any]] = ({name: call[name] for name in names} for call in calls)

    def get_next(self) -> dict[str, Any] | None:
        """Return the next call, or None after the last."""
        return next(self._left, None)


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
