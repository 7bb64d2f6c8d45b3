"""Which precisions a model can be run in, and what each of them changes. Nothing is imported to find out.

Inputs, outputs and the reference are f32 whatever the precision. It is in the graph, which casts at its edges: f16 and
bf16 are the model in that type, int8 is the f32 ONNX file with Q/DQ nodes. tf32 changes no graph: it is a policy of the
runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads.kinds.catalogue import kind_of

# What PyTorch calls the type that a model is cast to.
CAST: Mapping[str, str] = {"f16": "float16", "bf16": "bfloat16"}
QUANTISED = "int8"


def changes_graph(precision: str) -> bool:
    """Return whether a precision makes another graph of a model."""
    return precision in CAST or precision == QUANTISED


def why_not(workload: Workload) -> str | None:
    """Return why a model cannot be run in the precision, or None."""
    return kind_of(workload.model).why_not(workload)
