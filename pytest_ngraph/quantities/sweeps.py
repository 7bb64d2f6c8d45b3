"""What the fixtures give besides a measurement: a sweep over batches, depths, lengths or models, lazy until asked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from pytest_ngraph import metrics
from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.measurement import Measurement, speedup_of
from pytest_ngraph.quantities.quantity import Estimate, NarrowedAway, Quantity, Source, of_times
from pytest_ngraph.spec.cells import Cell

__all__ = ["BatchSweep", "DepthSweep", "Measurement", "ModelSweep", "SequenceSweep"]


class BatchSweep(Mapping[int, Measurement]):
    """The cells of one target and model over batches. Batch 1 is always there as the reference."""

    def __init__(self, source: Source, cells: Mapping[int, Measurement], asked: Sequence[int]) -> None:
        self._source, self._cells, self.batches = source, dict(cells), tuple(asked)

    def __getitem__(self, batch: int) -> Measurement:
        return self._cells[_known(batch, self._cells, "batch", self.batches)]

    def __iter__(self) -> Iterator[int]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __repr__(self) -> str:
        named = f"<BatchSweep {self.target} {', '.join(map(str, self.batches))}>"
        return self._source.text_of(_against(self)) or named

    def _repr_html_(self) -> str | None:
        return self._source.html_of(_against(self))

    @property
    def target(self) -> str:
        """Name the compiler-device pair."""
        return self._cells[1].target

    def quantity(self, metric: str, batch: int) -> Quantity:
        """Return rtr, ase or bsr at a batch, or any metric of that batch's cell, as a quantity."""
        at, one = self[batch], self[1]
        title = METRICS[metric].title if metric in METRICS else metric
        label = f"{title} at batch {batch} of {self.target} {_model(self[1], 'batch')}"
        cells, parts = [one.cell, at.cell], (one.quantity("throughput"), at.quantity("throughput"))
        if metric in ("rtr", "ase"):
            formula = metrics.rtr if metric == "rtr" else metrics.ase
            return of_times(
                self._source,
                metric,
                label,
                cells,
                lambda seconds: formula(_rates(seconds, batch), batch),
                subject=at.cell,
                parts=parts,
            )
        if metric == "bsr":
            return of_times(
                self._source,
                "bsr",
                f"{label} over {one.baseline.compiler}",
                [*cells, one.baseline, at.baseline],
                lambda seconds: metrics.bsr(_rates(seconds[:2], batch), _rates(seconds[2:], batch), batch),
                subject=at.cell,
                parts=(self.quantity("ase", batch), self._over_baselines().quantity("ase", batch)),
            )
        return at.quantity(metric)

    def _over_baselines(self) -> BatchSweep:
        """Return the same sweep of what its cells are compared with."""
        return BatchSweep(
            self._source,
            {batch: Measurement(self._source, each.baseline, each.baseline) for batch, each in self._cells.items()},
            self.batches,
        )

    def rtr(self, batch: int) -> Estimate:
        """RTR_c(b) = T_c(b) / T_c(1) (the paper's section V-A4)."""
        return self.quantity("rtr", batch).estimate()

    def ase(self, batch: int) -> Estimate:
        """ASE_c(b) = T_c(b) / (b T_c(1)) (the paper's section V-A4)."""
        return self.quantity("ase", batch).estimate()

    def bsr(self, batch: int) -> Estimate:
        """BSR_c(b) = ASE_c(b) / ASE_baseline(b) (the paper's section V-A4)."""
        return self.quantity("bsr", batch).estimate()

    def ensure(self) -> None:
        """Measure the sweep now if it was not. Raise CellFailed where a cell has no time."""
        self._source.ensure([measurement.cell for measurement in self._cells.values()])


class DepthSweep(Mapping[int, Measurement]):
    """The cells of one target and model over depths. Depth 1 is always there as the reference."""

    def __init__(self, source: Source, cells: Mapping[int, Measurement], asked: Sequence[int]) -> None:
        self._source, self._cells, self.depths = source, dict(cells), tuple(asked)

    def __getitem__(self, depth: int) -> Measurement:
        return self._cells[_known(depth, self._cells, "depth", self.depths)]

    def __iter__(self) -> Iterator[int]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __repr__(self) -> str:
        named = f"<DepthSweep {self.target} {', '.join(map(str, self.depths))}>"
        return self._source.text_of(_against(self)) or named

    def _repr_html_(self) -> str | None:
        return self._source.html_of(_against(self))

    @property
    def target(self) -> str:
        """Name the compiler-device pair."""
        return self._cells[1].target

    def quantity(self, metric: str) -> Quantity:
        """Return slope or retention as a quantity."""
        first, last = min(self._cells), max(self._cells)
        gone = [depth for depth in self.depths if depth not in self._cells]
        if gone and (metric == "slope" or max(gone) > last):
            raise NarrowedAway(f"{metric}: depths {', '.join(map(str, gone))} were narrowed away on the command line")
        if first == last:
            raise ClaimError(f"{metric} of {self.target}: one depth only ({first}); name at least two in depths=")
        label = f"{METRICS[metric].title} over depths {first} to {last} of {self.target}"
        label += f" {_model(self[first], 'depth')} over {self[first].baseline.compiler}"
        parts = (self[first].quantity("speedup"), self[last].quantity("speedup"))
        if metric not in ("retention", "slope"):
            raise SpecError(f"metric {metric!r} is not one of a depth sweep (known: retention, slope)")
        formula = metrics.retention if metric == "retention" else metrics.slope
        depths = [first, last] if metric == "retention" else sorted(self._cells)
        return of_times(
            self._source,
            metric,
            label,
            [cell for depth in depths for cell in (self[depth].cell, self[depth].baseline)],
            lambda seconds: formula(
                {depth: speedup_of(seconds[2 * k], seconds[2 * k + 1]) for k, depth in enumerate(depths)}
            ),
            subject=self[last].cell,
            parts=parts,
        )

    @property
    def slope(self) -> Estimate:
        """Least-squares slope of the speed-up on depth, per layer (the paper's section V-C)."""
        return self.quantity("slope").estimate()

    @property
    def retention(self) -> Estimate:
        """Speed-up of the deepest stack over that of a single block (the paper's section V-C)."""
        return self.quantity("retention").estimate()

    def mean_speedup(self) -> float:
        """Return the mean speed-up over the depths, which scales the slope's tolerance."""
        return math.fsum(measurement.speedup.value for measurement in self._cells.values()) / len(self._cells)

    def tolerance_scale(self) -> float:
        """Return the mean speed-up over the range of depths: what the slope's tolerance is a fraction of."""
        return self.mean_speedup() / (max(self._cells) - min(self._cells))

    def ensure(self) -> None:
        """Measure the sweep now if it was not. Raise CellFailed where a cell has no time."""
        self._source.ensure([measurement.cell for measurement in self._cells.values()])


class SequenceSweep(Mapping[int, Measurement]):
    """The cells of one target and model over the lengths of their sequences, the shortest first."""

    def __init__(self, source: Source, cells: Mapping[int, Measurement], asked: Sequence[int]) -> None:
        self._source, self._cells, self.sequences = source, dict(sorted(cells.items())), tuple(asked)

    def __getitem__(self, sequence: int) -> Measurement:
        return self._cells[_known(sequence, self._cells, "sequence", self.sequences)]

    def __iter__(self) -> Iterator[int]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __repr__(self) -> str:
        named = f"<SequenceSweep {self.target} {', '.join(map(str, self.sequences))}>"
        return self._source.text_of(_against(self)) or named

    def _repr_html_(self) -> str | None:
        return self._source.html_of(_against(self))

    @property
    def target(self) -> str:
        """Name the compiler-device pair."""
        return next(iter(self._cells.values())).target

    def quantity(self, metric: str) -> Quantity:
        """Return the exponent of time over length as a quantity: ``sequence_scaling``."""
        if metric != "sequence_scaling":
            raise SpecError(f"metric {metric!r} is not one of a sweep over lengths (known: sequence_scaling)")
        if gone := [length for length in self.sequences if length not in self._cells]:
            words = ", ".join(map(str, gone))
            raise NarrowedAway(f"{metric}: sequences {words} were narrowed away on the command line")
        first, last = min(self._cells), max(self._cells)
        if first == last:
            raise ClaimError(f"{metric} of {self.target}: one length only ({first}); name at least two in sequences=")
        lengths = [*self._cells]
        label = f"{METRICS[metric].title} over lengths {first} to {last} of {self.target}"
        return of_times(
            self._source,
            metric,
            f"{label} {_model(self[first], 'sequence')}",
            [self[length].cell for length in lengths],
            lambda seconds: metrics.sequence_scaling(dict(zip(lengths, seconds, strict=True))),
            subject=self[last].cell,
            parts=(self[first].quantity("latency"), self[last].quantity("latency")),
        )

    @property
    def scaling(self) -> Estimate:
        """Exponent of the time of a call over length, by least squares of their logarithms: 1 is linear."""
        return self.quantity("sequence_scaling").estimate()

    def tolerance_scale(self) -> float:
        """Return by how much the exponent changes where the longest takes a factor of e more: 1 / ln(range)."""
        return 1 / math.log(max(self._cells) / min(self._cells))

    def ensure(self) -> None:
        """Measure the sweep now if it was not. Raise CellFailed where a cell has no time."""
        self._source.ensure([measurement.cell for measurement in self._cells.values()])


class ModelSweep(Mapping[str, Measurement]):
    """The cells of one target over models, by the reference the suite wrote."""

    def __init__(self, source: Source, cells: Mapping[str, Measurement], asked: Sequence[str] = ()) -> None:
        self._source, self._cells, self.models = source, dict(cells), tuple(asked)

    def __getitem__(self, model: str) -> Measurement:
        return self._cells[_known(model, self._cells, "model", self.models)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __repr__(self) -> str:
        return self._source.text_of(_against(self)) or f"<ModelSweep {', '.join(self.models)}>"

    def _repr_html_(self) -> str | None:
        return self._source.html_of(_against(self))

    def ensure(self) -> None:
        """Measure all models now if they were not. Raise CellFailed where one has no time."""
        self._source.ensure([measurement.cell for measurement in self._cells.values()])


_Value = TypeVar("_Value", int, str)


def _against(sweep: Mapping[_Value, Measurement]) -> dict[Cell, Cell]:
    return {measurement.cell: measurement.baseline for measurement in sweep.values()}


def _known(value: _Value, cells: Mapping[_Value, Measurement], axis: str, asked: Sequence[_Value]) -> _Value:
    if value in cells:
        return value
    there = ", ".join(map(str, cells))
    if value in asked:
        raise NarrowedAway(f"{axis} {value} was narrowed away on the command line (left: {there})")
    raise ClaimError(f"{axis} {value} is not in this sweep (there: {there})")


def _rates(seconds: Sequence[float], batch: int) -> dict[int, float]:
    """Return samples per second by batch, given seconds per call at batch 1 and at another."""
    return {at: metrics.throughput(each, at) for at, each in zip((1, batch), seconds, strict=True)}


def _model(measurement: Measurement, swept: str) -> str:
    """Name a sweep's model with the axes that are the same for all of its cells."""
    return " ".join([measurement.workload.model.text, *measurement.workload.axis_labels(swept)])
