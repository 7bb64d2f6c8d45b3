"""What the third paper printed: its Table 1, each number with its row and column.

Nassef, Tarabishi, Abo Alnasor, *Benchmarking NLP and Computer Vision Models on Domain-Specific Architectures: Standard
vs. TensorRT-Optimized Performance*. ResNet-50 and BERT on an RTX 3060 under ONNX Runtime ("Standard, latency-focused")
and TensorRT ("TensorRT-Optimized, throughput-focused"). Its figures have no numbers of their own.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

LATENCY, THROUGHPUT = "latency-focused", "throughput-focused"
# What it calls the two (sections 4.1 and 4.2), and the figure that is of each.
CALLED: Mapping[str, str] = MappingProxyType({LATENCY: "Standard", THROUGHPUT: "TensorRT-Optimized"})
FIGURE: Mapping[str, str] = MappingProxyType({LATENCY: "Figure 1", THROUGHPUT: "Figure 2"})
RESNET, BERT = "ResNet-50", "BERT"
MIB = 2**20
# How its numbers came about (sections 3.1 and 3.5), where it differs from how they come about here.
PROTOCOL = (
    "Each number of the paper is the mean of ten runs, without a deviation (sections 3.5 and 4), on an RTX 3060 under "
    "Windows 11 with ONNX Runtime 1.15.1 and TensorRT 8.6. Neither the length of BERT's inputs nor the batch of a "
    "number is said."
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One of its six metrics: its column, what a run calls it, how that is turned into the paper's unit and written."""

    column: str
    name: str
    title: str
    factor: float
    write: Callable[[float], str]


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


METRICS: tuple[Metric, ...] = (
    Metric("Inference Time (ms)", "latency", "Time [ms]", 1e3, _digits),
    Metric("Throughput (inferences/second)", "throughput", "Throughput [/s]", 1.0, _digits),
    Metric("CPU Usage (%)", "cpu_percent", "CPU [%]", 1.0, _digits),
    Metric("GPU Usage (%)", "gpu_utilisation_percent", "GPU [%]", 1.0, _digits),
    Metric("Memory Usage (MB)", "run_peak_memory_bytes", "Memory [MiB]", 1 / MIB, _digits),
    Metric("Model Size (MB)", "model_bytes", "Model [MiB]", 1 / MIB, _digits),
)


@dataclass(frozen=True, slots=True)
class Printed:
    """A row of Table 1: which setup and model, and by our name of each metric the text that stands there."""

    focus: str
    model: str
    texts: Mapping[str, str]

    def value(self, metric: str) -> float:
        """Return a number of the row in the unit of its column."""
        return float(self.texts[metric])

    @property
    def place(self) -> str:
        """Name the table and the row."""
        return f"Table 1, {CALLED[self.focus]} Configuration, {self.model}"


@functools.cache
def table() -> tuple[Printed, ...]:
    """Return the four rows of Table 1, in the paper's order."""
    of = {name: focus for focus, name in CALLED.items()}
    path = Path(__file__).with_name("lvt_tables") / "table_1.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(
            Printed(of[row["Configuration"]], row["Model"], {each.name: row[each.column] for each in METRICS})
            for row in csv.DictReader(file)
        )


def printed(focus: str, model: str) -> Printed:
    """Return the row of a setup and a model."""
    return next(row for row in table() if (row.focus, row.model) == (focus, model))
