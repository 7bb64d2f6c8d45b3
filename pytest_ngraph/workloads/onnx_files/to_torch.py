"""Convert a static ONNX file to a PyTorch module by onnx2torch, and refuse it where its outputs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.workloads.modules.arrays import in_doubles
from pytest_ngraph.workloads.modules.dynamo import without_dynamo
from pytest_ngraph.workloads.modules.torchvision_import import import_torchvision
from pytest_ngraph.workloads.onnx_files.simplify import simplify

if TYPE_CHECKING:
    import numpy as np
    import torch

_LAST_KNOWN_OPSET = 17  # of onnx2torch 1.5.15, for most operators
_TOLERANCE = 1e-3  # of the largest reference value; f32 runtimes agree to 1e-5


def preload() -> None:
    """Import what ``convert`` needs, if it is installed, without Dynamo, which it does not need."""
    if find_spec("onnx2torch") is not None:
        with without_dynamo():
            import_torchvision()
            import onnx2torch  # noqa: F401


def convert(path: Path) -> torch.nn.Module:
    """Return the module of an ONNX file. Whether it gives the same is for ``disagreement`` to say.

    Raises Unsupported with the reason where onnx2torch does not know an operator or fails.
    """
    if find_spec("onnx2torch") is None:
        raise Unsupported(
            'as a PyTorch module it needs onnx2torch, not installed (pip install "pytest-ngraph[onnx2torch]")'
        )
    import_torchvision()
    import onnx
    import onnx2torch

    try:
        model = simplify(onnx.load(path))
        if any(opset.domain == "" and opset.version > _LAST_KNOWN_OPSET for opset in model.opset_import):
            model = onnx.version_converter.convert_version(model, _LAST_KNOWN_OPSET)
        module: torch.nn.Module = onnx2torch.convert(model).eval()
    except Exception as error:  # the converters raise whatever they run into
        raise Unsupported(f"onnx2torch cannot convert it: {type(error).__name__}: {error}") from error
    return module


def disagreement(
    module: torch.nn.Module,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    reference: Sequence[np.ndarray[Any, Any]],
) -> str:
    """Return why a converted module is not the model of the file: it fails, or its outputs differ, or nothing."""
    import numpy as np
    import torch

    from pytest_ngraph.workloads.modules.calls import flatten

    try:
        with torch.inference_mode():
            outputs = flatten(module(*(torch.from_numpy(array.copy()) for array in inputs.values())))
    except Exception as error:  # noqa: BLE001 - a module that was converted wrongly raises whatever it runs into
        return f"onnx2torch cannot convert it: {type(error).__name__}: {error}"
    if [tuple(tensor.shape) for tensor in outputs] != [array.shape for array in reference]:
        return "onnx2torch converts it, but to outputs of other shapes"
    for tensor, array in zip(outputs, reference, strict=True):
        given = tensor.numpy()
        with np.errstate(invalid="ignore"):
            difference = np.abs(in_doubles(given) - in_doubles(array))
        largest = np.where(given == array, 0.0, difference).max(initial=0.0)  # infinities that both have are the same
        finite = np.abs(in_doubles(array[np.isfinite(array)])).max(initial=0.0)
        # A NaN fails this comparison too, which is what is wanted.
        if not largest <= _TOLERANCE * finite:
            return f"onnx2torch converts it, but its outputs are off by {largest:.2g}"
    return ""
