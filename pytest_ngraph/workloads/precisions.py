"""Which precisions a model can be had in, and what each of them changes; nothing is imported to find out.

Inputs, outputs and the reference are f32 whatever the precision. It is in the graph, which casts at its edges: f16 and
bf16 are the model in that type, int8 is the f32 ONNX file with Q/DQ nodes. tf32 changes no graph: it is a policy of the
runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_ngraph.spec import Workload

# What PyTorch calls the type that a model is cast to.
CAST: Mapping[str, str] = {"f16": "float16", "bf16": "bfloat16"}
QUANTISED = "int8"


def changes_graph(precision: str) -> bool:
    """Tell whether a precision makes another graph of a model."""
    return precision in CAST or precision == QUANTISED


def why_not(workload: Workload) -> str | None:
    """Return why a model cannot be had in the precision, or None."""
    if workload.model.scheme == "onnx" and workload.precision in CAST:
        return (
            f"an ONNX file is measured in the precision that it is written in, so not in {workload.precision} "
            "(allowed: f32 and tf32, which leave it as it is, and int8)"
        )
    return None
