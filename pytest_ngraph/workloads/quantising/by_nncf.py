"""NNCF's post-training quantisation of ONNX graphs."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.spec.precisions import MINMAX, Precision
from pytest_ngraph.workloads.onnx_files.tensors import graph_inputs
from pytest_ngraph.workloads.quantising.calibration import PERCENTILE_KEPT, Calibration

if TYPE_CHECKING:
    import onnx


def quantise(model: onnx.ModelProto, target: Path, calibration: Calibration, precision: Precision) -> None:
    """Write a file with activations scaled per tensor, of which those that are never negative are unsigned.

    What is quantised, and that layers' offsets are corrected for it, is as NNCF does it. Of every sample the ends are
    taken by itself, so that it does not matter how many are in a call.
    """
    import onnx

    nncf = _import_nncf()
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, QuantizationParameters

    names = [value.name for value in graph_inputs(model)]
    calls = _Calls(calibration, names)
    with _quiet():
        made = nncf.quantize(
            deepcopy(model),
            nncf.Dataset(calls),
            subset_size=calibration.count,
            model_type=nncf.ModelType.TRANSFORMER if _is_transformer(model) else None,
            advanced_parameters=AdvancedQuantizationParameters(
                activations_range_estimator_params=_ends(precision.calibrate),
                activations_quantization_params=QuantizationParameters(per_channel=False),
                weights_quantization_params=QuantizationParameters(per_channel=precision.per_channel),
                batchwise_statistics=False,
            ),
        )
    onnx.save(made, target)


def _ends(method: str) -> Any:
    """Return how NNCF finds the range of an activation.

    Its own default is the mean over samples of their smallest and largest numbers. Here ``minmax`` means what it means
    everywhere: the smallest and the largest of all.
    """
    from nncf.quantization.range_estimator import (
        AggregatorType,
        RangeEstimatorParameters,
        RangeEstimatorParametersSet,
        StatisticsCollectorParameters,
        StatisticsType,
    )

    if method == MINMAX:
        return RangeEstimatorParametersSet.MINMAX
    beyond = (100.0 - PERCENTILE_KEPT) / 200.0
    end = StatisticsCollectorParameters(StatisticsType.QUANTILE, AggregatorType.MEAN, quantile_outlier_prob=beyond)
    return RangeEstimatorParameters(min=end, max=deepcopy(end))


class _Calls:
    """The calls of a calibration, as often as they are asked for."""

    def __init__(self, calibration: Calibration, names: list[str]) -> None:
        self._calibration, self._names = calibration, names

    def __len__(self) -> int:
        return self._calibration.count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return ({name: call[name] for name in self._names} for call in self._calibration.calls())


def _is_transformer(model: onnx.ModelProto) -> bool:
    """Return whether NNCF is to leave in f32 what transformers lose most by."""
    return any(node.op_type == "LayerNormalization" for node in model.graph.node)


def _import_nncf() -> Any:
    """Import NNCF without its telemetry, which writes into the home folder and calls home from a thread."""
    # Where that package cannot be imported NNCF, and OpenVINO that it imports, take a stub.
    absent = sys.modules.setdefault("openvino_telemetry", None) is None  # type: ignore[arg-type]
    import nncf

    if absent:
        del sys.modules["openvino_telemetry"]
    return nncf


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep its bars out of the answers of a worker, and what it is worried about out of the log of every launch."""
    logger = logging.getLogger("nncf")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
