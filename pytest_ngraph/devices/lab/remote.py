"""A remote device as a bench: what a session asks of it goes to its agent, and results come back as they arrive."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pytest_ngraph.compilers.catalogue import BUILT_IN, Catalogue
from pytest_ngraph.devices.agent.permissions import AGENT
from pytest_ngraph.devices.bench import Answer, Passed, PassedTogether, Progress, Sink
from pytest_ngraph.devices.lab.about_cells import AboutCell, AboutCells
from pytest_ngraph.devices.lab.cargo import Cargo
from pytest_ngraph.devices.lab.exchange import QUIET_SECONDS, Exchange
from pytest_ngraph.devices.lab.sides import RemoteSides
from pytest_ngraph.devices.sides import explained
from pytest_ngraph.devices.wire import wire
from pytest_ngraph.errors import DeviceUnusable, SpecError
from pytest_ngraph.launches.launch import LaunchPlan
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.machine import turns
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.spec.cells import Cell, CompileRecord, Device, ModelRef, Protocol
from pytest_ngraph.texts.shown import kept

if TYPE_CHECKING:
    from pytest_ngraph.devices.registry import DeviceEntry, HubEntry, Registry
    from pytest_ngraph.sides.of_run import SidesOfRun
    from pytest_ngraph.spec.sides import OtherSide

# As pip has for one package.
_INSTALLING_SECONDS = 3600.0


def remote_bench(
    name: str,
    registry: Registry,
    settings: Settings,
    catalogue: Catalogue,
    folders: Callable[[], Sequence[str]],
    rootdir: Path,
    note: Callable[[str], None],
) -> RemoteBench:
    """Return the bench of a device of the registry, reached and greeted.

    ``folders`` gives those of the conftests, which are known after collection. Raises DeviceOffline where it is not
    there within ``--ngraph-wait`` and DeviceUnusable where it is not what it must be.
    """
    return RemoteBench(registry.devices[name], registry.hub_of(name), settings, catalogue, folders, rootdir, note)


class RemoteBench:
    """A remote device. What it says of cells is kept: what was shipped to it does not change during a run."""

    def __init__(
        self,
        entry: DeviceEntry,
        hub: HubEntry,
        settings: Settings,
        catalogue: Catalogue,
        folders: Callable[[], Sequence[str]],
        rootdir: Path,
        note: Callable[[str], None],
    ) -> None:
        self._entry, self._settings, self._catalogue, self._rootdir = entry, settings, catalogue, rootdir
        self._note = note
        self._exchange = Exchange(entry, hub, settings.wait_seconds, note)
        self._greeting = self._exchange.greeting
        self._device = self._described()
        mode, send = self._greeting["facts"]["power_mode"], self._exchange.send
        self._cargo = Cargo(entry, self._device, mode, settings, catalogue, folders, rootdir, send)
        self._timeout = self._cargo.timeout_seconds
        self._about = AboutCells(self._asked_about)
        self._artifacts: dict[Cell, str] = {}
        self._missing: dict[str, str | None] = {}
        self._missing_kinds: dict[str, str | None] = {}
        # Passes without a seed of this run's own are asked for again in every run.
        self._once = uuid.uuid4().hex

    # What it is

    @property
    def device(self) -> Device:
        """Return the device with its CPUs, threads and accelerator."""
        return self._device

    def missing(self, compiler: str) -> str | None:
        """Return what must be installed on the device before a compiler runs there, or None."""
        if compiler in self._greeting["compilers"]:
            return _text_or_none(self._greeting["compilers"][compiler])
        if compiler not in self._missing:
            theirs = [name for name in self._catalogue if name not in BUILT_IN]
            answer = self._ask("missing", {"compilers": theirs}, quiet=QUIET_SECONDS)
            with wire.strictly("what compilers miss", str(answer)):
                self._missing.update({name: _text_or_none(answer[name]) for name in theirs})
        return self._missing[compiler]

    def missing_for(self, model: ModelRef) -> str | None:
        """Return what must be installed on the device before a model can be built there, or None."""
        models = self._greeting["models"]
        if model.kind and model.kind not in self._missing_kinds:
            answer = self._ask("missing", {"compilers": [], "models": [model.to_json()]}, quiet=QUIET_SECONDS)
            with wire.strictly("what models miss", str(answer)):
                self._missing_kinds[model.kind] = _text_or_none(answer[model.scheme])
        if model.kind:
            return self._missing_kinds[model.kind]
        with wire.strictly("what models miss", str(models)):
            return _text_or_none(models[model.scheme])

    def refusals(self, cells: Sequence[Cell]) -> dict[Cell, str]:
        """Return the cells that cannot run on the device in principle, each with the reason."""
        return {cell: said.refused for cell, said in self._about.of(cells).items() if said.refused is not None}

    def facts(self) -> Mapping[str, Any]:
        """Return what machine the device is, with the environment that is measured in. The commit is this side's."""
        agent = {"agent": self._exchange.agent, "git_commit": environment.git_commit(self._rootdir)}
        return {**self._greeting["facts"], **agent}

    @contextmanager
    def held(self, waiting: Callable[[str], None]) -> Iterator[None]:
        """Report to ``waiting`` what is waited for, and keep others that fill the same store from measuring the same.

        The device itself every request has to itself, and waits for it there.
        """
        file = self._settings.store.parent / f".{self._entry.name}.lock"
        file.parent.mkdir(parents=True, exist_ok=True)
        with self._exchange.reporting(waiting), file.open("w") as lock:
            self._lock(lock)
            yield

    def _lock(self, file: IO[str]) -> None:
        reported = False

        def busy() -> None:
            nonlocal reported
            self._exchange.refuse_closed()
            if not reported:
                who = "another process measures there for this store"
                self._exchange.report(f"waiting for device {self._entry.name!r}: {who}")
                reported = True

        turns.take(file, busy)

    # Other sides

    def take_sides(self, sides: SidesOfRun) -> Mapping[str, OtherSide]:
        """Measure other sides as well, and return what sessions know of them, by what asks for them.

        The device is asked for their packages and interpreters, and installs what it has not got. Raises SpecError for
        what cannot be had.
        """
        with self._exchange.reporting(self._note):
            sides.refuse_wheels(self._entry.name)
            self._cargo.sides = RemoteSides(sides, self._rootdir, self._runtimes)
        return self._cargo.sides.known

    def _runtimes(self, texts: Sequence[str]) -> list[Any]:
        try:
            answer = self._ask("sides", {"runtimes": list(texts)}, quiet=_INSTALLING_SECONDS)
        except (SpecError, DeviceUnusable) as refused:
            # What to run there is said with the name that it has.
            raise type(refused)(str(refused).replace(AGENT, f"ngraph agent {self._exchange.agent}")) from None
        with wire.strictly("what it has of other sides", str(answer)):
            if not isinstance(answer, list) or len(answer) != len(texts):
                raise ValueError(f"there are not {len(texts)} answers")
            return answer

    def _explained(self, cell: Cell, answer: Answer) -> Answer:
        sides = self._cargo.sides
        tree = sides.tree(cell.side) if sides is not None and cell.side else ""
        return explained(cell.side, tree, answer) if tree else answer

    # What cells are made of

    def expect(self, cells: Mapping[Cell, str | None]) -> None:
        """Ask about all of these cells with the first question about any: each request is a process on the device."""
        self._about.expect(cells)

    def look_again(self) -> None:
        """Pack and send again what has changed, and ask again about all cells."""
        self._cargo.pack_again()
        self._about = AboutCells(self._asked_about)
        self._artifacts.clear()

    def keys(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        """Return the evidence key of each cell, or None where its model has to be built first."""
        return {cell: said.key for cell, said in self._about.of(cells).items()}

    def same_content(self, cells: Sequence[Cell], other: str = "") -> set[Cell]:
        """Return those cells that are made of the same as the same cells of the side ``other``, as far as is known."""
        return self._about.same(cells, other)

    def _asked_about(self, cells: Sequence[Cell], others: Sequence[str | None]) -> list[AboutCell]:
        asked = {"cells": self._sent_cells(cells), "others": list(others)}
        answer = self._ask("known", asked, _models_of(cells), quiet=QUIET_SECONDS)
        return self._about_cells(answer, others)

    @staticmethod
    def _about_cells(answer: Any, others: Sequence[str | None]) -> list[AboutCell]:
        with wire.strictly("what it knows of cells", str(answer)):
            return [AboutCell.read(each, other) for each, other in zip(answer, others, strict=True)]

    def artifacts(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        """Return the key of what each cell's compiler reads: None where it is not built, "" where it reads nothing."""
        unknown = [cell for cell in dict.fromkeys(cells) if cell not in self._artifacts]
        if unknown:
            answer = self._ask(
                "artifacts", {"cells": self._sent_cells(unknown)}, _models_of(unknown), quiet=QUIET_SECONDS
            )
            with wire.strictly("the artifacts of cells", str(answer)):
                found = dict(zip(unknown, map(_text_or_none, answer), strict=True))
            self._artifacts.update({cell: key for cell, key in found.items() if key is not None})
        return {cell: self._artifacts.get(cell) for cell in cells}

    def remarks(self) -> list[str]:
        """Return nothing: what is damaged on a device is built again there, and the device's log says so."""
        return []

    def build(self, wanted: Sequence[Cell], progress: Progress) -> list[Answer]:
        """Build what compilers read, in one process on the device, which then says what is known of its cells."""
        again = self._about.unsettled({cell.workload for cell in wanted})
        asked = {
            "cells": self._sent_cells(wanted),
            "again": self._sent_cells(again),
            "others": list(again.values()),
        }
        models = _models_of([*wanted, *again])
        answer = self._ask("build", asked, models, progress=progress, quiet=2 * self._timeout)
        with wire.strictly("what became of building", str(answer)):
            built, known = answer
            answers = [wire.check_outcome(each) for each in built]
            if len(answers) != len(wanted):
                raise ValueError(f"{len(answers)} answers to {len(wanted)} requests")
        self._about.know(again, self._about_cells(known, list(again.values())))
        self._about.built(cell.workload for cell, answer in zip(wanted, answers, strict=True) if answer["ok"])
        return [self._explained(cell, answer) for cell, answer in zip(wanted, answers, strict=True)]

    def tune(self, cell: Cell, progress: Progress) -> Answer:
        """Make a compiler search on the device for the best way to compile a cell."""
        asked = {"cell": self._sent_cell(cell)}
        answer = self._ask("tune", asked, _models_of([cell]), progress=progress, quiet=3 * self._timeout)
        with wire.strictly("what became of tuning", str(answer)):
            return wire.check_outcome(answer)

    # Measuring

    def launch(self, plan: LaunchPlan, sink: Sink) -> None:
        """Run one launch on the device. What it measures goes to ``sink`` as it arrives."""
        asked = {
            "plan": wire.plan_to_json(wire.plan_moved(plan, self._cargo.reference)),
            **self._held_to(plan.cells),
        }
        # A worker that is lost takes all its cells along, which are then prepared again without a word.
        quiet = 2 * self._timeout * (1 + len(plan.cells))
        self._ask("launch", asked, _models_of(plan.cells), cells=plan.cells, sink=sink, quiet=quiet)

    def memory(
        self, cell: Cell, protocol: Protocol, seed: int
    ) -> tuple[Mapping[str, Any], CompileRecord, Mapping[str, Any]]:
        """Run a cell alone and untimed. Return the snapshots before and after, and between them its record."""
        asked = {
            "cell": self._sent_cell(cell),
            "protocol": protocol.to_json(),
            "seed": seed,
            "once": self._once,
            **self._held_to([cell]),
        }
        answer = self._ask("memory", asked, _models_of([cell]), quiet=8 * self._timeout)
        return _passed("memory", answer)

    def evaluate(self, cell: Cell, protocol: Protocol, seed: int, progress: Progress) -> Passed:
        """Ask a model's own evaluation about a compiled cell. Return the snapshots around it, and its record."""
        asked = {
            "cell": self._sent_cell(cell),
            "protocol": protocol.to_json(),
            "seed": seed,
            "once": self._once,
            **self._held_to([cell]),
        }
        quiet = 3 * self._timeout
        answer = self._ask("evaluate", asked, _models_of([cell]), progress=progress, quiet=quiet)
        return _passed("evaluation", answer)

    def agree(self, cell: Cell, dense: Cell, samples: int, protocol: Protocol, seed: int, progress: Progress) -> Passed:
        """Call two cells on the same seeded inputs. Return the snapshots around it, and the record of the first."""
        asked = {
            "cell": self._sent_cell(cell),
            "dense": self._sent_cell(dense),
            "samples": samples,
            "protocol": protocol.to_json(),
            "seed": seed,
            "once": self._once,
            **self._held_to([cell, dense]),
        }
        models = _models_of([cell, dense])
        answer = self._ask("agree", asked, models, progress=progress, quiet=3 * self._timeout)
        return _passed("agreement", answer)

    def power(self, cells: Sequence[Cell], protocol: Protocol, seed: int, progress: Progress) -> PassedTogether:
        """Measure what cells draw on the device. Return the snapshots around it, and a record of each cell."""
        asked = {
            "cells": self._sent_cells(cells),
            "protocol": protocol.to_json(),
            "seed": seed,
            "once": self._once,
            **self._held_to(cells),
        }
        quiet = 3 * self._timeout
        answer = self._ask("power", asked, _models_of(cells), progress=progress, quiet=quiet)
        with wire.strictly("what became of a pass for power", str(answer)):
            before, records, after = answer
            found = [wire.record_from_json(each) for each in records]
            if len(found) != len(cells):
                raise ValueError(f"{len(found)} records of {len(cells)} cells")
            return wire.snapshot_from_json(before), found, wire.snapshot_from_json(after)

    def close(self) -> None:
        """Release the device. A request that is under way in another thread ends with DeviceLost."""
        self._exchange.close()

    # Asking

    def _ask(
        self, method: str, asked: Mapping[str, Any], models: Sequence[ModelRef] = (), *, quiet: float, **lines: Any
    ) -> Any:
        """Ask the device, with what these models are made of there. ``lines`` is what takes the lines of the answer."""
        return self._exchange.ask(method, partial(self._cargo.made_of, models), asked, quiet=quiet, **lines)

    def _held_to(self, cells: Sequence[Cell]) -> dict[str, Any]:
        """Return what the device holds these cells to, by their keys, and what a result is kept under there.

        What was measured with other software, or of other files, is none of theirs: it is refused.
        """
        keys = self.keys(cells)
        return {"evidence": [keys[cell] for cell in cells]}

    def _sent_cell(self, cell: Cell) -> dict[str, Any]:
        return wire.moved(cell, self._cargo.reference).to_json()

    def _sent_cells(self, cells: Iterable[Cell]) -> list[dict[str, Any]]:
        return [self._sent_cell(cell) for cell in cells]

    def _described(self) -> Device:
        entry = self._entry
        cpus = entry.cpus or tuple(self._greeting["facts"]["affinity"])
        # What the environment of the device says of threads holds unless something says it more plainly.
        given = entry.env.get("OMP_NUM_THREADS", "")
        threads = self._settings.threads or entry.threads or (int(given) if given.isdigit() else 0) or len(cpus)
        return Device(entry.name, cpus, threads, entry.accelerator)


def _passed(what: str, answer: Any) -> Passed:
    with wire.strictly(f"what became of a pass for {what}", str(answer)):
        before, record, after = answer
        return wire.snapshot_from_json(before), wire.record_from_json(record), wire.snapshot_from_json(after)


def _models_of(cells: Iterable[Cell]) -> list[ModelRef]:
    models = (model for cell in cells for model in (cell.workload.model, cell.workload.beside))
    return list(dict.fromkeys(model for model in models if model is not None))


def _text_or_none(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise DeviceUnusable(f"a text was expected, not {str(value)[:200]!r}")
    return None if value is None else kept(value)
