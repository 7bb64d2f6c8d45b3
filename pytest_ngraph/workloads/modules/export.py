"""Export a PyTorch module to a static ONNX file, by torch.export and the dynamo exporter."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.machine import clock
from pytest_ngraph.workloads.modules import calls, weights

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import torch

OPSET = 20
# Convolutions and poolings take bf16 from here on.
_OPSET_OF: Mapping[str, int] = {"bf16": 22}


def export(
    module: torch.nn.Module,
    call: calls.Call,
    output_names: list[str],
    path: Path,
    precision: str = "f32",
    open_axes: Mapping[str, Mapping[int, str]] | None = None,
) -> dict[str, Any]:
    """Write the module with its batch, input names and output names fixed. Return what to know of the file.

    Its large weights lie in files of their own in the same folder, which must be empty: see ``weights.save``. What is
    known is ``export_seconds`` and ``onnx_bytes``, or ``onnx_unsupported``, the reason why it cannot be exported.
    ``open_axes`` are those of each input that are left open instead, with what each is called: those of one name have
    one length.
    """
    import onnx
    import onnxscript  # noqa: F401  (the exporter imports it; its import is no part of export_seconds)
    import torch

    flat = _flat(module, call.kind, list(call.tensors))
    start = clock.seconds()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            _ignore_known_warnings()
            program = torch.onnx.export(
                flat,
                tuple(call.tensors.values()),
                dynamo=True,
                opset_version=_OPSET_OF.get(precision, OPSET),
                input_names=list(call.tensors),
                output_names=output_names,
                verbose=False,
                **_opened(open_axes, call),
            )
        if precision == "bf16":
            _mend_folded_weights(program.model)
        _leave_names_to_inputs(program.model)
        weights.save(program.model, path)
    except torch.onnx.OnnxExporterError as error:
        return {"onnx_unsupported": f"it cannot be exported to ONNX: {_first_cause(error)}"}
    seconds = clock.seconds() - start
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        said = f"it cannot be exported to ONNX: the checker refuses the file: {_first_cause(error)}"
        return {"onnx_unsupported": said}
    if fixed := _fixed(onnx.load(path, load_external_data=False), open_axes or {}):
        return {"onnx_unsupported": f"it cannot be exported to ONNX with open shapes: the exporter fixes {fixed}"}
    return {"export_seconds": seconds, "onnx_bytes": sum(file.stat().st_size for file in path.parent.iterdir())}


def _opened(open_axes: Mapping[str, Mapping[int, str]] | None, call: calls.Call) -> dict[str, Any]:
    """Return what tells the exporter which axes are open. One that it fixes all the same is an error of its own."""
    if open_axes is None:
        return {}
    from torch.export import Dim

    dims = {name: Dim(name) for axes in open_axes.values() for name in axes.values()}
    return {
        "dynamic_shapes": (
            tuple({axis: dims[name] for axis, name in open_axes[each].items()} for each in call.tensors),
        )
    }


def _fixed(model: onnx.ModelProto, open_axes: Mapping[str, Mapping[int, str]]) -> str:
    """Return which axis of an input has a fixed length in a file where it was to stay open, or nothing.

    The exporter falls back to a way that fixes what the model makes a number of, and does not say so.
    """
    for value in model.graph.input:
        for axis in open_axes.get(value.name, ()):
            length = value.type.tensor_type.shape.dim[axis].dim_value
            if length:
                return f"axis {axis} of {value.name!r} at {length}"
    return ""


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as a NumPy array. Raise Unsupported for a type that NumPy lacks, such as bfloat16."""
    try:
        array: np.ndarray[Any, Any] = tensor.detach().resolve_conj().resolve_neg().contiguous().numpy()
    except TypeError as error:
        raise Unsupported(f"an input or output is {tensor.dtype}: {error}") from error
    return array


def order_of(tensor: torch.Tensor) -> str:
    """Return the order in memory that a tensor has and its array does not have, or nothing where it is contiguous."""
    import torch

    if tensor.is_contiguous():
        return ""
    for order, axes in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        if tensor.ndim == axes and tensor.is_contiguous(memory_format=order):
            return str(order).removeprefix("torch.")
    return f"strides {tuple(tensor.stride())}"


def _flat(module: torch.nn.Module, kind: str, names: list[str]) -> torch.nn.Module:
    """Wrap the module so that it takes tensors by position and returns a flat tuple in the order of ``flatten``."""
    import torch

    class Flat(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            args, kwargs = calls.arguments(kind, dict(zip(names, tensors, strict=True)))
            return tuple(calls.flatten(self.module(*args, **kwargs)))

    return Flat().eval()


def _mend_folded_weights(model: Any) -> None:
    """Put the weights of layers that a BatchNorm was folded into back into bf16: onnxscript leaves them in f32."""
    import onnx_ir as ir

    for node in model.graph:
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm"):
            continue
        for value in node.inputs[1:]:
            if value is not None and value.const_value is not None and value.const_value.dtype == ir.DataType.FLOAT:
                kind = ir.DataType.BFLOAT16
                value.const_value = ir.tensor(value.const_value.numpy().astype(kind.numpy()), name=value.name)
                value.type = ir.TensorType(kind)


def _leave_names_to_inputs(model: Any) -> None:
    """Rename what else goes by the name of an input.

    The exporter names values by their operations, so that an input called ``mean`` has the name of the mean of another.
    """
    import onnx_ir as ir
    from onnx_ir.passes.common import NameFixPass

    made = (value.name for node in ir.traversal.RecursiveGraphIterator(model.graph) for value in node.outputs)
    # Not else: the pass would name what has no name, and files would be other ones than those that are kept.
    if {value.name for value in model.graph.inputs}.intersection((*model.graph.initializers, *made)):
        NameFixPass()(model)


def _first_cause(error: BaseException) -> str:
    """Return the first line of the error that the exporter's own long report goes back to."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _ignore_known_warnings() -> None:
    """Ignore what torch's exporter says about its own code, and nothing else."""
    # torch 2.13: torch.export copies its own tree specs in a way that it deprecates itself.
    warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
    # Axes of one name have one length, which is what the name is for.
    warnings.filterwarnings("ignore", "# The axis name: .* will not be used", UserWarning)
