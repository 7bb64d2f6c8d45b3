"""What a saved baseline says: cells, and what is made of several of them, with the machines that they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.spec.cells import Cell, digest
from pytest_ngraph.stats.sessions import Mean


@dataclass(frozen=True, slots=True)
class SavedMetric:
    """A metric of a cell: value and interval in its unit, and the mean of its launches on the working scale."""

    value: float
    low: float
    high: float
    mean: Mean


@dataclass(frozen=True, slots=True)
class SavedCell:
    """A cell as it was measured.

    ``key`` finds it again in another checkout, ``evidence`` says whether anything of it has changed, ``threads`` how
    many its runtime had, ``state`` in which state the machine was (empty where it reported none).
    """

    key: str
    label: str
    device: str
    evidence: str
    baseline: str
    threads: str
    state: str
    metrics: Mapping[str, SavedMetric]


@dataclass(frozen=True, slots=True)
class SavedSweep:
    """A metric that is made of several cells, such as BSR at a batch or the slope over depths.

    ``cells`` are the keys of all that it is made of, what it is compared with among them, and ``key`` is made of these
    and the metric: other batches or depths are another one. ``evidence`` is that of all of them, ``scale`` what a
    tolerance is a fraction of: 1 for ratios, else an amount in the metric's unit.
    """

    key: str
    metric: str
    label: str
    device: str
    cells: tuple[str, ...]
    evidence: str
    threads: str
    state: str
    scale: float
    saved: SavedMetric


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved baseline. ``origin`` says which run it is of: number, uid, start, commit, and its launches' digest.

    ``sweeps`` is None for one that was saved before there were any in it.
    """

    name: str
    saved_at: str
    made_by: str
    origin: Mapping[str, str]
    protocol: str
    seed: str
    machines: Mapping[str, Machine]
    cells: Sequence[SavedCell]
    sweeps: Sequence[SavedSweep] | None = ()

    def cell(self, key: str) -> SavedCell | None:
        """Return the cell of a key, or None."""
        return next((cell for cell in self.cells if cell.key == key), None)

    def sweep(self, key: str) -> SavedSweep | None:
        """Return what is made of several cells by its key, or None."""
        return next((sweep for sweep in self.sweeps or () if sweep.key == key), None)

    def with_one(self, one: SavedCell | SavedSweep, machine: Machine) -> Saved:
        """Return the same with a cell or sweep more, or with another one in its place."""
        machines = {**self.machines, one.device: machine}
        if isinstance(one, SavedCell):
            others = [cell for cell in self.cells if cell.key != one.key]
            return replace(self, cells=[*others, one], machines=machines)
        rest = [sweep for sweep in self.sweeps or () if sweep.key != one.key]
        return replace(self, sweeps=[*rest, one], machines=machines)


def key_of(cell: Cell, rootdir: Path) -> str:
    """Return what finds a cell in another checkout and on another day: all that it is, files from the rootdir on."""
    data = cell.to_json()
    for model in (data["workload"]["model"], data["workload"].get("beside")):
        if model is not None:
            model["locator"] = model["locator"].removeprefix(f"{rootdir}/")
    workload = {name: value for name, value in data["workload"].items() if value is not None}
    return digest({**data, "workload": workload})[:32]


def sweep_key(metric: str, cells: Sequence[str]) -> str:
    """Return what finds a metric of several cells again, given their keys in the order in which it takes them."""
    return digest({"metric": metric, "cells": list(cells)})[:32]
