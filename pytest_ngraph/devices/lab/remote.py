"""A remote device as a bench: requests go to its agent, and results come back as they arrive."""

from __future__ import annotations

import base64
import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

from pytest_ngraph.compilers.catalogue import BUILT_IN, Catalogue
from pytest_ngraph.devices.agent import tasks
from pytest_ngraph.devices.agent.permissions import AGENT
from pytest_ngraph.devices.bench import Answer, Progress, Sink
from pytest_ngraph.devices.doors import handshake
from pytest_ngraph.devices.lab.link import Link
from pytest_ngraph.devices.lab.sides import RemoteSides
from pytest_ngraph.devices.sides import explained
from pytest_ngraph.devices.wire import shipping, values, wire
from pytest_ngraph.devices.wire.course import Course
from pytest_ngraph.errors import DeviceUnusable, SpecError
from pytest_ngraph.launches.launch import LaunchPlan
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.machine import turns
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.spec.cells import Cell, CompileRecord, Device, ModelRef, Protocol
from pytest_ngraph.texts.shown import kept
from pytest_ngraph.workloads.kinds import kind_of
from pytest_ngraph.workloads.kinds.contract import AS_FILES

if TYPE_CHECKING:
    from pytest_ngraph.devices.registry import DeviceEntry, HubEntry, Registry
    from pytest_ngraph.sides.of_run import SidesOfRun
    from pytest_ngraph.spec.sides import OtherSide

# A device that was lost comes back when its hub or its agent was started again.
REJOIN_SECONDS = 30.0
# What a child may do without a word beside what the limit of a cell allows it.
_QUIET_SECONDS = 120.0
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
        self._entry, self._settings, self._catalogue = entry, settings, catalogue
        self._folders, self._rootdir = folders, rootdir
        # What is waited for is reported to the thread that holds the device; other threads may not write to a terminal.
        self._report = self._note = note
        self._link = Link(entry, hub, lambda text: self._report(text))
        self._timeout = entry.timeout_seconds or settings.timeout_seconds
        self._said: dict[str, dict[Cell, str | None]] = {"refusals": {}, "keys": {}, "artifacts": {}}
        self._missing: dict[str, str | None] = {}
        self._missing_kinds: dict[str, str | None] = {}
        self._bundles: dict[ModelRef, shipping.Bundle] = {}
        self._sent: set[str] = set()
        self._other_sides: RemoteSides | None = None
        # Passes without a seed of this run's own are asked for again in every run.
        self._once = uuid.uuid4().hex
        self._greeting = self._greet(settings.wait_seconds)
        self._report = _nothing
        self._device = self._described()

    # What it is

    @property
    def device(self) -> Device:
        """Return the device with its CPUs, threads and accelerator."""
        return self._device

    def missing(self, compiler: str) -> str | None:
        """Return what must be installed on the device before a compiler runs there, or None."""
        if compiler in self._greeting["compilers"]:
            return self._text_or_none(self._greeting["compilers"][compiler])
        if compiler not in self._missing:
            theirs = [name for name in self._catalogue if name not in BUILT_IN]
            answer = self._ask("missing", {"compilers": theirs}, quiet=_QUIET_SECONDS)
            with wire.strictly("what compilers miss", str(answer)):
                self._missing.update({name: self._text_or_none(answer[name]) for name in theirs})
        return self._missing[compiler]

    def missing_for(self, model: ModelRef) -> str | None:
        """Return what must be installed on the device before a model can be built there, or None."""
        models = self._greeting["models"]
        if model.kind and model.kind not in self._missing_kinds:
            answer = self._ask("missing", {"compilers": [], "models": [model.to_json()]}, quiet=_QUIET_SECONDS)
            with wire.strictly("what models miss", str(answer)):
                self._missing_kinds[model.kind] = self._text_or_none(answer[model.scheme])
        if model.kind:
            return self._missing_kinds[model.kind]
        with wire.strictly("what models miss", str(models)):
            return self._text_or_none(models[model.scheme])

    def refusals(self, cells: Sequence[Cell]) -> dict[Cell, str]:
        """Return the cells that cannot run on the device in principle, each with the reason."""
        said = self._of_cells("refusals", cells, keep_none=True)
        return {cell: reason for cell, reason in said.items() if reason is not None}

    def facts(self) -> Mapping[str, Any]:
        """Return what machine the device is, with the environment that is measured in. The commit is this side's."""
        agent = {"agent": self._link.agent, "git_commit": environment.git_commit(self._rootdir)}
        return {**self._greeting["facts"], **agent}

    @contextmanager
    def held(self, waiting: Callable[[str], None]) -> Iterator[None]:
        """Report to ``waiting`` what is waited for, and keep others that fill the same store from measuring the same.

        The device itself every request has to itself, and waits for it there.
        """
        before, self._report = self._report, waiting
        file = self._settings.store.parent / f".{self._entry.name}.lock"
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("w") as lock:
                self._lock(lock)
                yield
        finally:
            self._report = before

    def _lock(self, file: IO[str]) -> None:
        reported = False

        def busy() -> None:
            nonlocal reported
            self._link.refuse_closed()
            if not reported:
                self._report(f"waiting for device {self._entry.name!r}: another process measures there for this store")
                reported = True

        turns.take(file, busy)

    # Other sides

    def take_sides(self, sides: SidesOfRun) -> Mapping[str, OtherSide]:
        """Measure other sides as well, and return what sessions know of them, by what asks for them.

        The device is asked for their packages and interpreters, and installs what it has not got. Raises SpecError for
        what cannot be had.
        """
        before, self._report = self._report, self._note
        try:
            self._other_sides = RemoteSides(sides, self._rootdir, self._runtimes)
        finally:
            self._report = before
        return self._other_sides.known

    def _runtimes(self, texts: Sequence[str]) -> list[Any]:
        try:
            answer = self._ask("sides", {"runtimes": list(texts)}, quiet=_INSTALLING_SECONDS)
        except (SpecError, DeviceUnusable) as refused:
            # What to run there is said with the name that it has.
            raise type(refused)(str(refused).replace(AGENT, f"ngraph agent {self._link.agent}")) from None
        with wire.strictly("what it has of other sides", str(answer)):
            if not isinstance(answer, list) or len(answer) != len(texts):
                raise ValueError(f"there are not {len(texts)} answers")
            return answer

    @property
    def _owns_outputs(self) -> bool:
        return self._settings.against_outputs == "own"

    def _explained(self, cell: Cell, answer: Answer) -> Answer:
        tree = self._other_sides.tree(cell.side) if self._other_sides is not None and cell.side else ""
        return explained(cell.side, tree, answer) if tree else answer

    # What cells are made of

    def keys(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        """Return the evidence key of each cell, or None where its model has to be built first."""
        return self._of_cells("keys", cells)

    def artifacts(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        """Return the key of what each cell's compiler reads: None where it is not built, "" where it reads nothing."""
        return self._of_cells("artifacts", cells)

    def remarks(self) -> list[str]:
        """Return nothing: what is damaged on a device is built again there, and the device's log says so."""
        return []

    def same_content(self, cells: Sequence[Cell], other: str = "") -> set[Cell]:
        """Return those cells that are made of the same as the same cells of the side ``other``, as far as is known."""
        if not cells:
            return set()
        asked = {"cells": self._sent_cells(cells), "other": other}
        answer = self._ask("same_content", asked, [cell.workload.model for cell in cells], quiet=_QUIET_SECONDS)
        with wire.strictly("which cells are the same", str(answer)):
            return {cell for cell, is_same in zip(cells, map(values.flag, answer), strict=True) if is_same}

    def build(self, wanted: Sequence[Cell], progress: Progress) -> list[Answer]:
        """Build what compilers read, in one process on the device."""
        asked = {"cells": self._sent_cells(wanted)}
        models = [cell.workload.model for cell in wanted]
        answer = self._ask("build", asked, models, progress=progress, quiet=2 * self._timeout)
        with wire.strictly("what became of building", str(answer)):
            answers = [wire.check_outcome(each) for each in answer]
            if len(answers) != len(wanted):
                raise ValueError(f"{len(answers)} answers to {len(wanted)} requests")
        return [self._explained(cell, answer) for cell, answer in zip(wanted, answers, strict=True)]

    def tune(self, cell: Cell, progress: Progress) -> Answer:
        """Make a compiler search on the device for the best way to compile a cell."""
        asked = {"cell": wire.moved(cell, self._reference).to_json()}
        answer = self._ask("tune", asked, [cell.workload.model], progress=progress, quiet=3 * self._timeout)
        with wire.strictly("what became of tuning", str(answer)):
            return wire.check_outcome(answer)

    def _of_cells(self, method: str, cells: Sequence[Cell], *, keep_none: bool = False) -> dict[Cell, str | None]:
        known = self._said[method]
        unknown = [cell for cell in dict.fromkeys(cells) if cell not in known]
        fresh: dict[Cell, str | None] = {}
        if unknown:
            asked = {"cells": self._sent_cells(unknown)}
            answer = self._ask(method, asked, [cell.workload.model for cell in unknown], quiet=_QUIET_SECONDS)
            with wire.strictly(f"the {method} of cells", str(answer)):
                fresh = dict(zip(unknown, map(self._text_or_none, answer), strict=True))
        known.update({cell: text for cell, text in fresh.items() if keep_none or text is not None})
        return {cell: known[cell] if cell in known else fresh[cell] for cell in cells}

    def _sent_cells(self, cells: Iterable[Cell]) -> list[dict[str, Any]]:
        return [wire.moved(cell, self._reference).to_json() for cell in cells]

    @staticmethod
    def _text_or_none(value: Any) -> str | None:
        if value is not None and not isinstance(value, str):
            raise DeviceUnusable(f"a text was expected, not {str(value)[:200]!r}")
        return None if value is None else kept(value)

    # Measuring

    def launch(self, plan: LaunchPlan, sink: Sink) -> None:
        """Run one launch on the device. What it measures goes to ``sink`` as it arrives."""
        asked = {"plan": wire.plan_to_json(wire.plan_moved(plan, self._reference))}
        models = [cell.workload.model for cell in plan.cells]
        # A worker that is lost takes all its cells along, which are then prepared again without a word.
        quiet = 2 * self._timeout * (1 + len(plan.cells))
        self._ask("launch", asked, models, cells=plan.cells, sink=sink, quiet=quiet)

    def memory(
        self, cell: Cell, protocol: Protocol, seed: int
    ) -> tuple[Mapping[str, Any], CompileRecord, Mapping[str, Any]]:
        """Run a cell alone and untimed. Return the snapshots before and after, and between them its record."""
        asked = {
            "cell": wire.moved(cell, self._reference).to_json(),
            "protocol": protocol.to_json(),
            "seed": seed,
            "once": self._once,
        }
        answer = self._ask("memory", asked, [cell.workload.model], quiet=8 * self._timeout)
        with wire.strictly("what became of a pass for memory", str(answer)):
            before, record, after = answer
            return wire.snapshot_from_json(before), wire.record_from_json(record), wire.snapshot_from_json(after)

    def close(self) -> None:
        """Release the device. A request that is under way in another thread ends with DeviceLost."""
        self._link.close()

    # Asking

    def _ask(
        self,
        method: str,
        asked: Mapping[str, Any],
        models: Sequence[ModelRef] = (),
        *,
        quiet: float,
        cells: Sequence[Cell] = (),
        sink: Sink | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """Send a request to the device, and return its answer."""
        if not self._link.is_open:
            self._rejoin()
        request = wire.Request(method, self._made_of(models), asked, {"quiet_seconds": quiet + _QUIET_SECONDS})
        names = ("prepared", "visited", "block_done", "progress", "surroundings")
        handlers = {} if sink is None else {name: getattr(sink, name) for name in names}
        if progress is not None:
            handlers["progress"] = progress
        course = Course() if sink is not None else None
        ordered = _InOrder(cells, SimpleNamespace(**handlers, note=self._report), course)
        for line in wire.lines_of(self._link.ask(tasks.run_cell, request.to_text(), ordered.receive)):
            ordered.receive(line)
        return wire.value_of(ordered.answer, self._entry.name)

    # Sending

    @cached_property
    def _project(self) -> shipping.Project:
        return shipping.pack(self._rootdir)

    def _made_of(self, models: Sequence[ModelRef]) -> dict[str, Any]:
        """Send what is not there yet, and return what a bench for these models is made of."""
        project = self._project
        sides = self._other_sides
        for archive in (project, *(sides.archives() if sides is not None else ())):
            self._send(archive.sha256, len(archive.data), partial(_slice_of, archive.data))
        bundles: dict[str, dict[str, str]] = {}
        moved: dict[str, dict[str, str]] = {}
        for model in models:
            if kind_of(model).travels == AS_FILES:
                bundle = self._bundle(model)
                there = sides.bundles(model) if sides is not None else {}
                for label, other in there.items():
                    moved.setdefault(label, {})[bundle.name] = other.name if other is not None else ""
                for each in filter(None, (bundle, *there.values())):
                    bundles[each.name] = dict(each.contents)
                    for path, content in each.files:
                        self._send(content, path.stat().st_size, partial(_part_of, path))
        compared = {} if sides is None else {"sides": sides.to_json(moved), "own_outputs": self._owns_outputs}
        imported = [str(Path(entry).absolute()) for entry in [*sys.path, *self._folders()] if Path(entry).is_dir()]
        return tasks.bench_of(
            self._entry,
            self._device,
            protocol=self._settings.protocol,
            seed=self._settings.seed,
            timeout_seconds=self._timeout,
            places={name: self._catalogue.place(name) for name in self._catalogue if name not in BUILT_IN},
            project=project.sha256,
            path=project.path_of(imported),
            files=bundles,
            **compared,
        )

    def _reference(self, model: ModelRef) -> ModelRef:
        """Return a reference that the device can follow."""
        as_files = kind_of(model).travels == AS_FILES
        return self._bundle(model).reference if as_files else self._project.reference(model)

    def _bundle(self, model: ModelRef) -> shipping.Bundle:
        if model not in self._bundles:
            self._bundles[model] = shipping.bundle(model)
        return self._bundles[model]

    def _send(self, content: str, size: int, part: Callable[[int, int], bytes]) -> None:
        """Send a file that is not on the device yet, in parts, from where an earlier try ended."""
        if content in self._sent:
            return
        asked: dict[str, Any] = {"sha256": content, "size": size}
        offset = -1
        while True:
            text = self._link.ask(tasks.put_blob, json.dumps(asked), _nothing)
            with wire.strictly("the answer to a file", text):
                answer = json.loads(text)
                if answer["ok"]:
                    have, now = bool(answer["have"]), int(answer["offset"])
            if not answer["ok"]:
                wire.value_of(answer, self._entry.name)
            if have:
                break
            if now <= offset:
                raise DeviceUnusable(f"device {self._entry.name!r}: it does not take a file of {size} bytes")
            offset = now
            data = base64.b64encode(part(offset, tasks.PART_BYTES)).decode("ascii")
            asked = {"sha256": content, "size": size, "offset": offset, "data": data}
        self._sent.add(content)

    # Meeting

    def _greet(self, wait_seconds: float) -> Mapping[str, Any]:
        """Connect, and return what the device says of itself. Raise where it is not what it must be."""
        self._link.open(wait_seconds)
        try:
            return self._checked(self._link.ask(tasks.hello, tasks.hello_request(self._entry), _nothing))
        except BaseException:
            self._link.drop()
            raise

    def _checked(self, text: str) -> Mapping[str, Any]:
        name = f"device {self._entry.name!r}, agent {self._link.agent!r}"
        with wire.strictly(f"{name}: its greeting", text):
            answer = json.loads(text)
            difference = handshake.difference(answer["agent"])
        if difference is not None:
            raise DeviceUnusable(f"{name}: {difference}")
        with wire.strictly(f"{name}: its greeting", text):
            refused = None if values.flag(answer["ok"]) else values.said(answer["reason"])
        if refused is not None:
            raise DeviceUnusable(f"{name}: {refused}")
        with wire.strictly(f"{name}: its greeting", text):
            greeting = {**answer["value"], "facts": values.facts(answer["value"]["facts"])}
            theirs, mine = greeting["pytest-ngraph"], handshake.mine()["pytest-ngraph"]
            unmet = [str(each) for each in greeting["unmet"]]
            _ = greeting["fingerprint"], values.mapping(greeting["compilers"]), values.mapping(greeting["models"])
        if theirs != mine:
            python = self._entry.python or "its interpreter"
            raise DeviceUnusable(
                f"{name}: {python} has pytest-ngraph {theirs}, here it is {mine}; install the same release on both"
            )
        if unmet:
            raise DeviceUnusable(f"{name}: it is not as the registry expects: {'; '.join(unmet)}")
        return greeting

    def _rejoin(self) -> None:
        """Meet a device again that was lost. It must be the same machine with the same software."""
        greeting = self._greet(max(REJOIN_SECONDS, self._settings.wait_seconds))
        self._sent.clear()
        for what in ("fingerprint", "compilers"):
            if greeting[what] != self._greeting[what]:
                raise DeviceUnusable(f"device {self._entry.name!r}: it came back with another {what}; run again")

    def _described(self) -> Device:
        entry = self._entry
        cpus = entry.cpus or tuple(self._greeting["facts"]["affinity"])
        # What the environment of the device says of threads holds unless something says it more plainly.
        given = entry.env.get("OMP_NUM_THREADS", "")
        threads = self._settings.threads or entry.threads or (int(given) if given.isdigit() else 0) or len(cpus)
        return Device(entry.name, cpus, threads, entry.accelerator)


class _InOrder:
    """Plays lines to a sink in the order of their numbers, each once, however and how often they come."""

    def __init__(self, cells: Sequence[Cell], sink: SimpleNamespace, course: Course | None = None) -> None:
        self._cells, self._sink, self._course = cells, sink, course
        self._next = 0
        self._early: dict[int, wire.Event] = {}
        self._answer: Mapping[str, Any] | None = None

    def receive(self, line: str) -> None:
        """Take a line. Raise DeviceUnusable for one that cannot be, and whatever the sink raises."""
        event = wire.event_of(line, self._cells)
        if event.number >= self._next:
            self._early[event.number] = event
        while self._next in self._early:
            event = self._early.pop(self._next)
            self._next += 1
            if self._course is not None:
                self._course.follow(event)
            if event.kind == "answer":
                self._answer = event.values[0]
            elif hasattr(self._sink, event.kind):
                event.play(self._sink)
            else:
                raise DeviceUnusable(f"a line of the kind {event.kind!r} was not asked for: {line[:200]!r}")

    @property
    def answer(self) -> Mapping[str, Any]:
        """Return what the last line says. Raise DeviceUnusable where one before it is missing."""
        if self._answer is None:
            raise DeviceUnusable(f"line {self._next} of the device's answer is missing")
        return self._answer


def _slice_of(data: bytes, offset: int, size: int) -> bytes:
    return data[offset : offset + size]


def _part_of(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def _nothing(line: str) -> None:
    """Ignore a line: neither a greeting nor a file comes in lines, and other threads do not write to a terminal."""
