"""An int8 copy of a static ONNX file: Q/DQ nodes around what runs in integers, one file for every compiler."""

from __future__ import annotations

import importlib.metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_ngraph.errors import CompileFailed, NgraphError, Unsupported
from pytest_ngraph.machine import clock
from pytest_ngraph.machine.imports import require
from pytest_ngraph.spec.precisions import NNCF, Precision, missing
from pytest_ngraph.workloads.quantising.calibration import Calibration
from pytest_ngraph.workloads.quantising.layers import layers_of


def quantise(
    source: Path, target: Path, twin: Path, calibration: Calibration, precision: Precision, label: str
) -> dict[str, Any]:
    """Write the int8 copy of a file. ``twin`` is written for TensorRT, which takes no zero points but zero.

    Activations are scaled to the numbers met in the calls of ``calibration``. Returns what to know of the file:
    ``quantise_seconds``, ``onnx_bytes`` and ``quantised``, facts for the placement. Raises errors that start with
    ``label``: Unsupported where the quantiser cannot take the model or is not installed, and where there is nothing to
    quantise, CompileFailed where it left everything in floats.
    """
    require(label, "onnxruntime", "onnx", "onnxruntime")
    if (absent := missing(str(precision))) is not None:
        raise Unsupported(f"{label}: {absent}")
    import onnx

    from pytest_ngraph.workloads.quantising import by_nncf, by_onnxruntime
    from pytest_ngraph.workloads.quantising.prepared import prepared
    from pytest_ngraph.workloads.quantising.symmetric import symmetric

    start = clock.seconds()
    quantiser = by_nncf if precision.by == NNCF else by_onnxruntime
    try:
        quantiser.quantise(prepared(source), target, calibration, precision)
        seconds = clock.seconds() - start
        made = onnx.load(target)
        layers = layers_of(made)
        onnx.save(symmetric(made), twin)
        for path in (target, twin):
            onnx.checker.check_model(str(path))
    except Unsupported as error:
        raise Unsupported(f"{label}: {error}") from error
    except NgraphError:
        raise
    except Exception as error:  # the quantiser raises whatever it runs into
        raise Unsupported(
            f"{label}: it cannot be quantised: {type(error).__name__}: {error} (calibrated on {calibration.said})"
        ) from error
    if not layers.all:
        raise Unsupported(
            f"{label}: there is nothing to quantise in it: no convolution and no matrix product with weights; measure "
            "it in f32"
        )
    by = _named(precision.by)
    if not layers.quantised:
        raise CompileFailed(
            f"{label}: {by} left all {layers.all} layers with weights in floats, so that it would be timed as int8 and "
            "is none; try another quantiser (by=), or measure it in f32"
        )
    facts = {"int8_nodes": layers.words, "quantised_by": by, "calibrated_on": calibration.said}
    return {"quantise_seconds": seconds, "onnx_bytes": target.stat().st_size, "quantised": facts}


def _named(by: str) -> str:
    """Return a quantiser with its version."""
    for name in (by, *(f"{by}-{kind}" for kind in ("gpu", "openvino"))):
        try:
            return f"{by} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return by if find_spec(by) is not None else f"{by} (not installed)"
