"""The figures NGraphBench published: its Tables III, VI, VII and VIII, each number with its row and column.

Furutanpey et al., *Leveraging Neural Graph Compilers in Machine Learning Research for Edge-Cloud Systems*. The files in
``paper_tables`` have the rows and columns of the paper. One number of them is a reading: Table III prints the search of
TVM for Swin-Base at batch 32 as ``13,4262.784`` seconds, which is 134,262.784 here.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pytest_ngraph.errors import SpecError

# What each device of the paper is (its Table I; section V-A1 calls Server 1 GPU and Server 2 Xeon).
DEVICES: Mapping[str, str] = MappingProxyType(
    {
        "Xeon": "8 CPUs of a Xeon Skylake at 3.0 GHz, no GPU",
        "GPU": "RTX 4070 beside 8 CPUs of a Ryzen 5700G",
        "Orin": "Jetson Orin Nano: 6 Cortex-A78, 512 CUDA cores",
    }
)
# The oldest versions installed on them (its Table II), by the names that a run's environment has.
VERSIONS: Mapping[str, str] = MappingProxyType(
    {
        "torch": "2.4.1",
        "timm": "1.0.15",
        "onnxruntime": "1.19.2",
        "openvino": "2024.3.0",
        "tensorrt": "10.4.0",
        "apache-tvm": "0.18.dev0",
    }
)
# How its numbers came about (section V-A), where it differs from how they come about here.
PROTOCOL = (
    "Each number is the mean of 100 repetitions with their standard deviation, measured cell by cell (section V-A). "
    "A compile time is one compilation; that of TVM contains its search of at most 1500 trials (section V-A2). "
    "OpenVINO was told to optimise for throughput (section V-A2). Of Table VI each number is the mean over the three "
    "models of a family and two batch sizes, which differ far more than the deviation beside it says."
)
# Table IV's models by family, the smallest first, as references: parameters and MACs match to the unit.
FAMILIES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "ResNets": ("timm:resnet18", "timm:resnet50", "timm:resnet101"),
        "EfficientNets": ("timm:efficientnet_b3", "timm:efficientnet_b4", "timm:efficientnet_b5"),
        "DeiTs": (
            "timm:deit3_small_patch16_224",
            "timm:deit3_medium_patch16_224",
            "timm:deit3_base_patch16_224",
        ),
        "Swins": ("timm:swin_s3_tiny_224", "timm:swin_s3_small_224", "timm:swin_s3_base_224"),
        "ConvNeXts": ("timm:convnext_tiny", "timm:convnext_small", "timm:convnext_base"),
    }
)
SMALL, LARGE = (2, 4), (8, 16)  # the batches of Table VI

_COMPILERS = {
    "Identity": "identity",
    "OpenVINO": "openvino",
    "TensorRT": "tensorrt",
    "TVM": "tvm",
    "ONNX": "onnxruntime",
}
_LARGEST = {
    "ResNet-101": "timm:resnet101",
    "EfficientNet-B5": "timm:efficientnet_b5",
    "ConvNeXt-Base": "timm:convnext_base",
    "DeiT-Base": "timm:deit3_base_patch16_224",
    "Swin-Base": "timm:swin_s3_base_224",
}
_BLOCKS = {"vii": "block:conv", "viii": "block:mha"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One published number, in the unit of its metric.

    ``table``, ``row`` and ``column`` say where it stands. ``device`` is one of ``DEVICES``, ``compiler`` the name it
    has here, ``subject`` a family, a model or a block. ``deviation`` is what stands behind the plus-minus, if anything.
    """

    table: str
    row: str
    column: str
    device: str
    compiler: str
    subject: str
    batches: tuple[int, ...]
    metric: str
    value: float
    deviation: float | None = None
    width: int | None = None

    @property
    def place(self) -> str:
        """Name the table, the row and the column."""
        return f"Table {self.table.upper()}, {self.row}, {self.column}"


@functools.cache
def figures(table: str) -> tuple[Figure, ...]:
    """Return the numbers of a table, ``iii``, ``vi``, ``vii`` or ``viii``, in the order in which it prints them."""
    if table not in _READERS:
        raise SpecError(f"table {table!r} of the paper: not among those with figures (known: {', '.join(_READERS)})")
    path = Path(__file__).with_name("paper_tables") / f"table_{table}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(figure for row in csv.DictReader(file) for figure in _READERS[table](table, row))


def figure(table: str, device: str, compiler: str, subject: str, batches: tuple[int, ...], metric: str) -> Figure:
    """Return the one number of Table III or VI with these keys. Raise SpecError where the table has none."""
    wanted = (device, compiler, subject, batches, metric)
    found = _index(table).get(wanted)
    if found is None:
        raise SpecError(f"Table {table.upper()} has no {metric} of {compiler} on {device} for {subject} at {batches}")
    return found


@functools.cache
def _index(table: str) -> Mapping[tuple[str, str, str, tuple[int, ...], str], Figure]:
    return {(one.device, one.compiler, one.subject, one.batches, one.metric): one for one in figures(table)}


def _table_iii(table: str, row: Mapping[str, str]) -> Iterator[Figure]:
    model, batch, *columns = row
    for column in columns:
        compiler, device = column.split()
        name = f"{row[model]}, batch {row[batch]}"
        yield Figure(
            table, name, column, device, _COMPILERS[compiler], _LARGEST[row[model]], (int(row[batch]),),
            "compile_seconds", float(row[column]),
        )  # fmt: skip


def _table_vi(table: str, row: Mapping[str, str]) -> Iterator[Figure]:
    family, compiler, device, *columns = row
    name = f"{row[family]}, {row[compiler]} ({row[device]})"
    for column in columns:
        value, deviation = (float(part) for part in row[column].split("±"))
        metric = "throughput" if column.startswith("Throughput") else "cpu_percent"
        yield Figure(
            table, name, column, row[device].replace("CPU", "Xeon"), _COMPILERS[row[compiler]], row[family],
            SMALL if " 2-4 " in column else LARGE, metric, value, deviation,
        )  # fmt: skip


def _table_of_depths(table: str, row: Mapping[str, str]) -> Iterator[Figure]:
    device, compiler, width, *columns = row
    name = f"{row[device]}, {row[compiler]}, width {row[width]}"
    for column in columns:
        metric, batch = column.split()
        yield Figure(
            table, name, column, row[device], _COMPILERS[row[compiler]], _BLOCKS[table], (int(batch),),
            metric.lower(), float(row[column]), width=int(row[width]),
        )  # fmt: skip


_READERS = {"iii": _table_iii, "vi": _table_vi, "vii": _table_of_depths, "viii": _table_of_depths}
