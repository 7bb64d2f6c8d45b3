"""Convert a static ONNX file to a PyTorch module by onnx2torch, and refuse it where its outputs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.workloads.modules.torchvision_import import import_torchvision
from pytest_ngraph.workloads.onnx_files.simplify import simplify

if TYPE_CHECKING:
    import numpy as np
    import torch

_LAST_KNOWN_OPSET = 17  # of onnx2torch 1.5.15, for most operators
_TOLERANCE = 1e-3  # of the largest reference value; f32 runtimes agree to 1e-5


def convert(
    path: Path, inputs: Mapping[str, np.ndarray[Any, Any]], reference: Sequence[np.ndarray[Any, Any]], label: str
) -> torch.nn.Module:
    """Return the module of an ONNX file, once its outputs for ``inputs`` agree with the reference.

    Raises Unsupported that starts with ``label`` where onnx2torch does not know an operator, fails, or gives other
    outputs.
    """
    if find_spec("onnx2torch") is None:
        raise Unsupported(
            f'{label}: as a PyTorch module it needs onnx2torch, not installed (pip install "pytest-ngraph[onnx2torch]")'
        )
    import_torchvision()
    import numpy as np
    import onnx
    import onnx2torch
    import torch

    from pytest_ngraph.workloads.modules.calls import flatten

    try:
        model = simplify(onnx.load(path))
        if any(opset.domain == "" and opset.version > _LAST_KNOWN_OPSET for opset in model.opset_import):
            model = onnx.version_converter.convert_version(model, _LAST_KNOWN_OPSET)
        module: torch.nn.Module = onnx2torch.convert(model).eval()
        del model  # it holds the weights a second time
        with torch.inference_mode():
            outputs = flatten(module(*(torch.from_numpy(array.copy()) for array in inputs.values())))
    except Exception as error:  # the converters raise whatever they run into
        raise Unsupported(f"{label}: onnx2torch cannot convert it: {type(error).__name__}: {error}") from error
    if [tuple(tensor.shape) for tensor in outputs] != [array.shape for array in reference]:
        raise Unsupported(f"{label}: onnx2torch converts it, but to outputs of other shapes")
    for tensor, array in zip(outputs, reference, strict=True):
        difference = np.abs(tensor.numpy().astype(np.float64) - array).max(initial=0.0)
        # A NaN fails this comparison too, which is what is wanted.
        if not difference <= _TOLERANCE * np.abs(array.astype(np.float64)).max(initial=0.0):
            raise Unsupported(f"{label}: onnx2torch converts it, but its outputs are off by {difference:.2g}")
    return module
