"""The peaks of memory by phase: by what names records keep them."""

from __future__ import annotations

from collections.abc import Iterable

COMPILING, RUNNING = "compiling", "running"
HOST, GPU = "host", "gpu"
# Metrics by where and when.
METRIC_OF = {
    (HOST, ""): "peak_memory_bytes",
    (HOST, COMPILING): "compile_peak_memory_bytes",
    (HOST, RUNNING): "run_peak_memory_bytes",
    (GPU, ""): "peak_gpu_memory_bytes",
    (GPU, COMPILING): "compile_peak_gpu_memory_bytes",
    (GPU, RUNNING): "run_peak_gpu_memory_bytes",
}
# Those that a record keeps by name, as the others have fields of their own.
NAMES = frozenset(name for (_, phase), name in METRIC_OF.items() if phase)


def number(peaks: Iterable[tuple[str, int]], name: str) -> int | None:
    """Return one of the peaks, or None where it is not known."""
    return dict(peaks).get(name)
