"""Fix the batch of an ONNX model, so that every shape is static."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.workloads.onnx_files.tensors import graph_inputs, is_large

if TYPE_CHECKING:
    import onnx


def fix_batch(model: onnx.ModelProto, batch: int, label: str) -> None:
    """Set the open first dimension of the inputs to the batch, in place, and infer the shapes behind them again.

    Where inputs name their first dimensions, the batch is what the first of these names. Raises SpecError that
    starts with ``label`` where the file's batch is fixed at another number, or where another dimension is open.
    """
    inputs = graph_inputs(model)
    for value in inputs:
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise SpecError(
                f"{label}: input {value.name!r} is not a tensor of known rank; give it a shape, with a name for the "
                "dimension that is the batch"
            )
    leading = [value.type.tensor_type.shape.dim[0] for value in inputs if value.type.tensor_type.shape.dim]
    opened = [dim for dim in leading if _is_open(dim)]
    if not opened and leading and leading[0].dim_value != batch:
        fixed = leading[0].dim_value
        raise SpecError(
            f"{label}: its batch is fixed at {fixed} in the file, not {batch}; write batch={fixed}, or export it with "
            "an open batch (dynamic_axes, dynamic_shapes)"
        )
    symbol = next((dim.dim_param for dim in opened if dim.dim_param), None)
    for value in inputs:
        for index, dim in enumerate(value.type.tensor_type.shape.dim):
            if not _is_open(dim):
                continue
            if dim.dim_param != symbol and (dim.dim_param or index > 0):
                raise SpecError(
                    f"{label}: dimension {index} ({dim.dim_param or 'unnamed'}) of input {value.name!r} is open; "
                    "fix it with onnx.tools.update_model_dims"
                )
            dim.dim_value = batch
    _list_true_inputs(model, inputs)
    _infer_shapes(model)


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
