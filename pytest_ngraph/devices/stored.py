"""A remote device as the store knows it, for ``--ngraph-offline``: nothing is asked of the device itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from pytest_ngraph.devices.bench import Answer, Passed, PassedTogether, Progress, Sink
from pytest_ngraph.errors import DeviceOffline
from pytest_ngraph.launches.launch import LaunchPlan
from pytest_ngraph.spec.cells import Cell, CompileRecord, Device, ModelRef, Protocol
from pytest_ngraph.spec.sides import UNCHANGED
from pytest_ngraph.store.rows import facts_of
from pytest_ngraph.store.sqlite import Store


class StoredBench:
    """What the latest runs on a device left in the store. It judges that, whatever has changed in the code since.

    Only what was measured by the same protocol and from the same seed is an answer to what is asked.
    """

    def __init__(
        self, name: str, accelerator: str, threads: int | None, store: Path, *, protocol: str, seed: int
    ) -> None:
        self._name, self._path, self._protocol, self._seed = name, store, protocol, seed
        self._facts = self._latest_facts()
        cpus = tuple(self._facts.get("affinity", ()))
        self._device = Device(name, cpus, threads or max(1, len(cpus)), accelerator)

    def _latest_facts(self) -> Mapping[str, Any]:
        if self._path.exists():
            with Store.open(self._path, read_only=True) as store:
                for run in reversed(store.runs()):
                    facts = facts_of(run.environment, self._name)
                    if facts:
                        return facts
        raise DeviceOffline(f"device {self._name!r}: nothing of it is in the store {self._path} (--ngraph-offline)")

    @property
    def device(self) -> Device:
        """Return the device as it was."""
        return self._device

    def missing(self, compiler: str) -> str | None:
        """Return None: what was measured was there."""
        return None

    def missing_for(self, model: ModelRef) -> str | None:
        """Return None: what was measured was there."""
        return None

    def expect(self, cells: Mapping[Cell, str | None]) -> None:
        """Do nothing: the device is left alone."""

    def refusals(self, cells: Sequence[Cell]) -> dict[Cell, str]:
        """Return nothing: what was refused has no launches."""
        return {}

    def facts(self) -> Mapping[str, Any]:
        """Return what machine the device was when it was last measured."""
        return self._facts

    def held(self, waiting: Callable[[str], None]) -> AbstractContextManager[None]:
        """Do nothing: the device is left alone."""
        return nullcontext()

    def look_again(self) -> None:
        """Do nothing: what is stored does not change."""

    def keys(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        """Return the evidence under which each cell was last measured so, or None where it never was."""
        wanted: dict[str, Any] = {"protocol": self._protocol, "seed": self._seed}
        with Store.open(self._path, read_only=True) as store:
            return {cell: store.latest_evidence(cell, **wanted) for cell in cells}

    def artifacts(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        """Raise DeviceOffline, as everything that measures does."""
        self._refuse()

    def remarks(self) -> list[str]:
        """Return nothing: the device is left alone."""
        return []

    def same_content(self, cells: Sequence[Cell], other: str = "") -> set[Cell]:
        """Return the cells that were the same when that was last judged, and have not been measured since."""
        with Store.open(self._path, read_only=True) as store:
            return {
                cell
                for cell in cells
                if store.last_settled(replace(cell, side=other).label, cell.side, UNCHANGED)
                > max(store.evidence_by_run(cell), default=0)
            }

    def build(self, wanted: Sequence[Cell], progress: Progress) -> list[Answer]:
        """Raise DeviceOffline."""
        self._refuse()

    def tune(self, cell: Cell, progress: Progress) -> Answer:
        """Raise DeviceOffline."""
        self._refuse()

    def launch(self, plan: LaunchPlan, sink: Sink) -> None:
        """Raise DeviceOffline."""
        self._refuse()

    def memory(
        self, cell: Cell, protocol: Protocol, seed: int
    ) -> tuple[Mapping[str, Any], CompileRecord, Mapping[str, Any]]:
        """Raise DeviceOffline."""
        self._refuse()

    def evaluate(self, cell: Cell, protocol: Protocol, seed: int, progress: Progress) -> Passed:
        """Raise DeviceOffline."""
        self._refuse()

    def agree(self, cell: Cell, dense: Cell, samples: int, protocol: Protocol, seed: int, progress: Progress) -> Passed:
        """Raise DeviceOffline."""
        self._refuse()

    def power(self, cells: Sequence[Cell], protocol: Protocol, seed: int, progress: Progress) -> PassedTogether:
        """Raise DeviceOffline."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise DeviceOffline(f"device {self._name!r} is not asked (--ngraph-offline)")

    def close(self) -> None:
        """Do nothing."""
