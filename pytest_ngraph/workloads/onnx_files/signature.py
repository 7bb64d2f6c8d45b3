"""Fix the batch and further open dimensions of an ONNX model, so that every shape is static."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError, Unsupported
from pytest_ngraph.spec.dims import is_length, refuse_name
from pytest_ngraph.workloads.onnx_files.tensors import graph_inputs, is_large

if TYPE_CHECKING:
    import onnx

# What an open batch without a name is called.
_BATCH = "batch"


def fix_shapes(
    model: onnx.ModelProto,
    batch: int | None,
    sizes: Mapping[str, int],
    label: str,
    *,
    open_length: str | None = None,
) -> None:
    """Set the open dimensions of the inputs to the batch and to ``sizes``, in place, and infer the shapes behind them.

    Where inputs name their first dimensions, the batch is what the first of these names. Without a batch that stays
    open, and so does ``open_length``. ``sizes`` has the others by name, and that one. Raises SpecError that starts with
    ``label`` where the file's batch is fixed at another number, where a name is that of the batch or of no open
    dimension, and where a dimension stays open.
    """
    inputs = graph_inputs(model)
    for value in inputs:
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise SpecError(
                f"{label}: input {value.name!r} is not a tensor of known rank; give it a shape, with a name for the "
                "dimension that is the batch"
            )
    leading = [value.type.tensor_type.shape.dim[0] for value in inputs if value.type.tensor_type.shape.dim]
    # Where the first input has a static batch, others may begin with what is given a size.
    others = sizes if leading and not _is_open(leading[0]) else {}
    opened = [dim for dim in leading if _is_open(dim) and dim.dim_param not in others]
    if not opened and leading and leading[0].dim_value != batch:
        fixed = leading[0].dim_value
        if batch is None:
            raise Unsupported(f"{label}: its batch is fixed at {fixed} in the file, so no build of it is for others")
        raise SpecError(
            f"{label}: its batch is fixed at {fixed} in the file, not {batch}; write batch={fixed}, or export it with "
            "an open batch (dynamic_axes, dynamic_shapes)"
        )
    symbol = next((dim.dim_param for dim in opened if dim.dim_param), None)
    _refuse_unknown(inputs, sizes, symbol, label)
    for value in inputs:
        for index, dim in enumerate(value.type.tensor_type.shape.dim):
            if not _is_open(dim):
                continue
            if open_length is not None and dim.dim_param == open_length:
                continue
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
                continue
            if dim.dim_param != symbol and (dim.dim_param or index > 0):
                name = dim.dim_param
                remedy = f'give it a size: dims={{"{name}": 128}}, or [{name}=128] behind the reference'
                if why := refuse_name(name):
                    remedy = f"fix it, or {f'rename it, as its name {why},' if name else 'name it,'} with "
                    remedy += "onnx.tools.update_model_dims"
                raise SpecError(
                    f"{label}: dimension {index} ({name or 'unnamed'}) of input {value.name!r} is open; {remedy}"
                )
            if batch is None:
                dim.dim_param = symbol or _BATCH
            else:
                dim.dim_value = batch
    _list_true_inputs(model, inputs)
    _infer_shapes(model)


def length_of(model: onnx.ModelProto, label: str) -> str:
    """Return the name of the open dimension that is the length of sequences, by how it is called.

    Raises SpecError that starts with ``label`` where there is none, or several.
    """
    shapes = _shapes(graph_inputs(model))
    opened = dict.fromkeys(str(dim.dim_param) for dims in shapes.values() for dim in dims if _is_open(dim))
    found = [name for name in opened if is_length(name)]
    if len(found) == 1:
        return found[0]
    if found:
        sizes = ", ".join(f'"{name}": 128' for name in found)
        raise SpecError(
            f"{label}: its dimensions {' and '.join(found)} may each be the length; leave sequence out and write "
            f"dims={{{sizes}}}"
        )
    written = "; ".join(f"{value} [{', '.join(map(_written, dims))}]" for value, dims in shapes.items())
    raise SpecError(
        f"{label}: no open dimension called sequence, seq, seq_len or sequence_length (inputs: {written}); one of "
        'another name is given its size by dims={"S": 128}, and one that is fixed has the length of the file only'
    )


def _refuse_unknown(
    inputs: Sequence[onnx.ValueInfoProto], sizes: Mapping[str, int], symbol: str | None, label: str
) -> None:
    """Raise SpecError where a size is given for the batch, or for what is no open dimension."""
    shapes = _shapes(inputs)
    known = dict.fromkeys(dim.dim_param for dims in shapes.values() for dim in dims if _is_open(dim) and dim.dim_param)
    for name, size in sizes.items():
        if name == symbol:
            raise SpecError(f"{label}: {name!r} is its batch, not a dimension of dims; write batch={size}")
        if name not in known:
            there = ", ".join(other for other in known if other != symbol) or "none that has a name"
            written = "; ".join(f"{value} [{', '.join(map(_written, dims))}]" for value, dims in shapes.items())
            raise SpecError(f"{label}: no open dimension {name!r} (open beside the batch: {there}; inputs: {written})")


def _shapes(inputs: Sequence[onnx.ValueInfoProto]) -> dict[str, Any]:
    return {value.name: value.type.tensor_type.shape.dim for value in inputs}


def _written(dim: Any) -> str:
    """Write a dimension as it stands in the file: its size, its name, or a question mark."""
    return str(dim.dim_param or "?") if _is_open(dim) else str(dim.dim_value)


def _is_open(dim: Any) -> bool:
    # Some exporters write 0 or -1 for a dimension that is not known.
    return not dim.HasField("dim_value") or dim.dim_value <= 0


def _list_true_inputs(model: onnx.ModelProto, inputs: list[onnx.ValueInfoProto]) -> None:
    """Take initializers out of the list of inputs, where a runtime may not treat them as constants."""
    if len(inputs) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.ir_version = max(model.ir_version, 4)  # older versions want them listed


def _infer_shapes(model: onnx.ModelProto) -> None:
    """Infer inner and output shapes from the fixed inputs. Those in the file were made for the open batch."""
    import onnx

    del model.graph.value_info[:]
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    if is_large(model):
        return  # inference passes the model through one protobuf message; runtimes infer shapes on their own
    inferred = onnx.shape_inference.infer_shapes(model)
    for value, known in zip(model.graph.output, inferred.graph.output, strict=True):
        value.CopyFrom(known)
