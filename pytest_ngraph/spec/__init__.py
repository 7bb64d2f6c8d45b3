"""What is measured, as values: compilers, models, workloads, cells, and the records of launches."""

from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    Device,
    LaunchRecord,
    ModelRef,
    Outcome,
    Protocol,
    Reading,
    Visit,
    Workload,
    digest,
    protocol_of,
    split_commas,
    target_parts,
)

__all__ = [
    "Cell",
    "CompileRecord",
    "CompilerSpec",
    "Device",
    "LaunchRecord",
    "ModelRef",
    "Outcome",
    "PROTOCOLS",
    "Protocol",
    "Reading",
    "Visit",
    "Workload",
    "digest",
    "protocol_of",
    "split_commas",
    "target_parts",
]
