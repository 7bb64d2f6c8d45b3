"""What the second paper printed: its Tables 2 to 6, and the shares of expected speed-ups that its text states.

Gibson, Cano et al., *DLAS: An Exploration and Assessment of the Deep Learning Acceleration Stack*. The files in
``dlas_tables`` have its rows and columns. Its times are in figures only, so that no number here is a time.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pytest_ngraph.errors import SpecError

COMPRESSIONS = ("Dense", "WP", "CP", "i8", "f16")
ALGORITHMS = ("GEMM", "Direct", "Spatial")
# Its short names, as its tables explain them.
NAMES: Mapping[str, str] = MappingProxyType(
    {"Dense": "dense", "WP": "weight pruning", "CP": "channel pruning", "i8": "int8", "f16": "float16"}
)
IS_GPU: Mapping[str, bool] = MappingProxyType({"HiKey CPU": False, "i7": False, "HiKey GPU": True, "Xavier": True})
DATASETS: Mapping[int, str] = MappingProxyType(
    {2: "CIFAR-10", 3: "CIFAR-10", 4: "CIFAR-10", 5: "ImageNet", 6: "ImageNet"}
)
_COLUMNS = {"WP": "Weight Pruning", "CP": "Channel Pruning", "i8": "int8", "f16": "float16"}
_UNITS = {"M": 1e6, "G": 1e9}
# An accuracy and the compression ratio behind it; two rows of Table 5 lack the sign of the accuracy.
_CELL = re.compile(r"([\d.]+)%? \((\d+)%\)")


@dataclass(frozen=True, slots=True)
class Compressed:
    """One model under one compression in Table 2 or 5: top-1 accuracy and compression ratio, both in per cent."""

    accuracy: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Model:
    """A row of Table 2 or 5. ``parameters`` and ``macs`` are printed with as many digits as ``texts`` have."""

    table: int
    name: str
    parameters: float
    macs: float
    top1: float
    compressed: Mapping[str, Compressed]
    texts: tuple[str, str]

    def drop(self, compression: str) -> float:
        """Return what a compression costs, in percentage points of accuracy."""
        return self.top1 - self.compressed[compression].accuracy


@dataclass(frozen=True, slots=True)
class Fastest:
    """A row of Table 3, 4 or 6: by compression the fastest algorithm, by algorithm the fastest compression, and both.

    What the paper could not run is missing.
    """

    table: int
    device: str
    is_tuned: bool
    model: str
    algorithm: Mapping[str, str]
    compression: Mapping[str, str]
    overall: tuple[str, str]

    @property
    def is_gpu(self) -> bool:
        """Return whether it ran on a GPU."""
        return IS_GPU[self.device]

    @property
    def place(self) -> str:
        """Name the table and the row."""
        tuned = "tuned" if self.is_tuned else "untuned"
        return f"Table {self.table}, {self.device} ({tuned}), {self.model}"


@dataclass(frozen=True, slots=True)
class Share:
    """How much of its expected speed-up a compression achieved on average, in per cent, as the text states it.

    The paper expects a speed-up of the compression ratio: 20 where 95 % are pruned, 2 and 4 of float16 and int8.
    """

    section: str
    dataset: str
    device: str
    is_tuned: bool
    compression: str
    percent: float


@functools.cache
def models(table: int) -> tuple[Model, ...]:
    """Return the rows of Table 2 (CIFAR-10) or 5 (ImageNet), in the paper's order. Raise SpecError for another."""
    return tuple(_model(table, row) for row in _rows(table, (2, 5)))


@functools.cache
def fastest(table: int | None = None) -> tuple[Fastest, ...]:
    """Return the rows of Table 3, 4 or 6, or of all three. Raise SpecError for another table."""
    if table is None:
        return tuple(row for number in (3, 4, 6) for row in fastest(number))
    return tuple(_fastest(table, row) for row in _rows(table, (3, 4, 6)))


@functools.cache
def shares() -> tuple[Share, ...]:
    """Return all shares of expected speed-ups that sections 5.1.2 to 5.2.2 state."""
    return tuple(
        Share(row["Section"], row["Dataset"], row["Device"], row["Tuned"] == "tuned", row["Compression"],
              float(row["Share of the expected speed-up [%]"]))
        for row in _read("shares.csv")
    )  # fmt: skip


def _rows(table: int, known: tuple[int, ...]) -> list[dict[str, str]]:
    if table not in known:
        raise SpecError(f"Table {table} of the second paper: not among {', '.join(map(str, known))}")
    return _read(f"table_{table}.csv")


def _read(name: str) -> list[dict[str, str]]:
    path = Path(__file__).with_name("dlas_tables") / name
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _model(table: int, row: Mapping[str, str]) -> Model:
    compressed = {}
    for short, column in _COLUMNS.items():
        found = _CELL.fullmatch(row[column])
        assert found is not None, row
        compressed[short] = Compressed(float(found[1]), float(found[2]))
    texts = (row["Params"], row["MACs"])
    parameters, macs = (float(text[:-1]) * _UNITS[text[-1]] for text in texts)
    return Model(table, row["Model"], parameters, macs, float(row["Top1"].rstrip("%")), compressed, texts)


def _fastest(table: int, row: Mapping[str, str]) -> Fastest:
    compression, algorithm = row["Overall"].split("+")
    return Fastest(
        table, row["Device"], row["Tuned"] == "tuned", row["Model"],
        {name: row[name] for name in COMPRESSIONS if row[name]}, {name: row[name] for name in ALGORITHMS},
        (compression, algorithm),
    )  # fmt: skip
