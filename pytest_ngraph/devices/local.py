"""This machine's devices - ``local``, its CPUs, and ``cuda``, its GPUs -, their jobs, and the bench they are."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.bench import Answer, Passed, PassedTogether, Progress, Sink
from pytest_ngraph.devices.evidence import Evidence
from pytest_ngraph.devices.lock import device_lock
from pytest_ngraph.devices.sides import Builder, Sides, build, ended_answer, started
from pytest_ngraph.errors import SpecError
from pytest_ngraph.launches.client import Job, WorkerClient, WorkerEnded
from pytest_ngraph.launches.launch import LaunchPlan, run_launch
from pytest_ngraph.launches.memory import memory_pass
from pytest_ngraph.load.neighbours import cell_beside
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.machine import gpu
from pytest_ngraph.machine.facts import available_cpus
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.passes.agreement import agreement_pass
from pytest_ngraph.passes.evaluation import evaluation_pass
from pytest_ngraph.passes.power import power_pass
from pytest_ngraph.spec.cells import Cell, CompileRecord, Device, ModelRef, Protocol, Visit
from pytest_ngraph.spec.sides import Side
from pytest_ngraph.workloads import artifacts, keys, kinds

KNOWN = ("local", "cuda", "cuda:N")
# All of them use the CPUs of this machine, so one run at a time measures on any of them.
LOCK = "local"
_CUDA = re.compile(r"cuda(?::(0|[1-9][0-9]*))?\Z")


def is_known(name: str) -> bool:
    """Return whether a device of this machine may have this name. Whether there is such a GPU shows when it is used."""
    return name == "local" or _CUDA.match(name) is not None


def kind_of(name: str) -> str:
    """Return what kind of accelerator a device of this name has: ``cpu`` or ``cuda``."""
    return "cpu" if name == "local" else name.partition(":")[0]


def local_device(settings: Settings) -> Device:
    """Return this machine as a device: the CPUs this process may use, and by default one thread for each."""
    return device_named("local", settings)


def device_named(name: str, settings: Settings) -> Device:
    """Return a device of this machine: ``local``, or with its N-th GPU ``cuda:N`` (``cuda`` is ``cuda:0``).

    Raises SpecError that says what is known and what to do, for another name and for a GPU that is not there.
    """
    cpus = available_cpus()
    threads = settings.threads or len(cpus)
    if name == "local":
        return Device(name, cpus, threads)
    match = _CUDA.match(name)
    if match is None:
        raise SpecError(f"unknown device {name!r} (known: {', '.join(KNOWN)})")
    accelerator = f"cuda:{match[1] or 0}"
    try:
        gpu.find(accelerator)
    except SpecError as error:
        raise SpecError(f"device {name!r}: {error}") from None
    return Device(name, cpus, threads, accelerator)


def job(
    settings: Settings, catalogue: Catalogue, device: Device, folders: Iterable[str], sides: Iterable[Side] = ()
) -> Job:
    """Return what every worker of a run shares. ``sides`` are the other sides that the run has cells of.

    Workers import what pytest can import: its path as it is after collection, then ``folders`` (those of the
    conftests), so that a suite's own models and adapters are found.
    """
    # Relative and empty entries mean the current folder, which a test may change before the first worker starts; an
    # entry that is no path belongs to an import hook.
    path = dict.fromkeys(
        str(Path(entry).absolute()) if Path(entry).exists() else entry for entry in [*sys.path, *folders]
    )
    return Job(
        sys_path=tuple(path),
        device=device,
        seed=settings.seed,
        artifacts=artifacts_folder(settings.store),
        # A name of this package: with --ngraph-store=results.sqlite this is the project's own folder.
        logs=settings.store.parent / "ngraph-logs",
        places={name: catalogue.place(name) for name in catalogue},
        timeout_seconds=settings.timeout_seconds,
        sides={side.label: side for side in sides},
        own_outputs=settings.against_outputs == "own",
    )


def artifacts_folder(store: Path) -> Path:
    """Return where artifacts are cached: beside the store of results."""
    return store.parent / "artifacts"


class LocalBench:
    """A device of this machine: workers are started here, and the lock of the machine is held meanwhile.

    ``rootdir`` is the folder whose commit is measured, None for the current one.
    """

    def __init__(
        self, job: Job, catalogue: Catalogue, protocol: Protocol, seed: int, rootdir: Path | None = None
    ) -> None:
        self.job, self.rootdir = job, rootdir
        self._catalogue, self._protocol, self._seed = catalogue, protocol, seed
        self._remarks: list[str] = []
        self._sides = Sides(job, protocol, lambda: self._evidence)
        self._builder = Builder(job, protocol)

    @property
    def device(self) -> Device:
        """Return the device with its CPUs, threads and accelerator."""
        return self.job.device

    @cached_property
    def _evidence(self) -> Evidence:
        return Evidence(self._catalogue, self.job, self._protocol, self._seed)

    # What can be measured

    def missing(self, compiler: str) -> str | None:
        """Return what must be installed here before a compiler runs, or None."""
        return self._catalogue.get(compiler).missing()

    def missing_for(self, model: ModelRef) -> str | None:
        """Return what must be installed here before a model can be built, or None."""
        return kinds.kind_of(model).missing()

    def expect(self, cells: Mapping[Cell, str | None]) -> None:
        """Do nothing: here a question costs no process."""

    def refusals(self, cells: Sequence[Cell]) -> dict[Cell, str]:
        """Return the cells that cannot run here in principle, each with the reason.

        Of another side, they are also those whose model, adapter or runtime is not there: the reason begins with
        ``NOT_THERE``.
        """
        reasons = {cell: self._why_not(cell) for cell in cells}
        there = [cell for cell in cells if cell.side and reasons[cell] is None]
        reasons |= {cell: known["refused"] or None for cell, known in self._sides.know(there).items()}
        return {cell: reason for cell in cells if (reason := reasons[cell]) is not None}

    def _why_not(self, cell: Cell) -> str | None:
        """Return why a cell, or what runs beside it, cannot run here, None where that is not known before."""
        beside = cell_beside(cell)
        if cell.side:
            why = f"a cell with a neighbour is measured as it is here, not on another side ({cell.side})"
            return why if beside is not None else None
        reason = self._catalogue.why_not(cell, self.job.device)
        if reason is not None or beside is None:
            return reason
        reason = self._catalogue.why_not(beside, self.job.device)
        return None if reason is None else f"its neighbour {cell.workload.neighbour}: {reason}"

    def facts(self) -> Mapping[str, Any]:
        """Return what machine this is."""
        return environment.describe(self.job.device.accelerator, self.rootdir)

    def held(self, waiting: Callable[[str], None]) -> AbstractContextManager[None]:
        """Hold the lock of this machine."""
        return device_lock(LOCK, waiting=waiting)

    # What cells are made of

    def look_again(self) -> None:
        """Read what is installed and the adapters' files again: models are read each time that they are asked for."""
        self.__dict__.pop("_evidence", None)

    def keys(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        """Return the evidence key of each cell, or None where its model has to be built first."""
        there = self._sides.keys(cells)
        return {cell: there[cell] if cell.side else self._evidence.key(cell) for cell in cells}

    def same_content(self, cells: Sequence[Cell], other: str = "") -> set[Cell]:
        """Return those cells that are made of the same as the same cells of the side ``other``, as far as is known.

        That side is here where it is empty. A side with an interpreter, or with packages in other versions than those
        of the other, has none. Nor are those among them whose data, or compiled modules, could differ: see
        ``Difference``.
        """
        return self._sides.same_content(cells, other)

    def artifacts(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        """Return the key of what each cell's compiler reads: None where it is not built, "" where it reads nothing."""
        found: dict[Cell, str | None] = {}
        there = self._sides.know(cells)
        for cell in cells:
            if cell.side:
                self._remarks += there[cell]["remarks"]
                found[cell] = there[cell]["artifact"]
                continue
            reads = self._catalogue.get(cell.compiler.name).reads
            found[cell] = ""
            if reads != "nothing":
                place = (cell.workload, self._seed, self.job.artifacts)
                self._remarks += artifacts.drop_damaged(*place, self.job.sys_path)
                wanted = (*place, reads == "onnx")
                artifact = artifacts.find(*wanted, self.job.sys_path)
                found[cell] = None if artifact is None else artifact.key
        return found

    def remarks(self) -> list[str]:
        """Return what a user wants to know that was seen here since this was last called."""
        said, self._remarks = self._remarks, []
        return said

    def build(self, wanted: Sequence[Cell], progress: Progress) -> list[Answer]:
        """Build what the compiler of each cell reads, in one process a side, which is replaced where it ends early.

        Cells that also have another side are looked at before anything is built: which files they are made of says
        whether they are the same there, and then there is nothing to measure. Where one is measured all the same, its
        key is known.
        """
        answers = self._settled(wanted, progress)
        for label in sorted({cell.side for cell in wanted}):
            cells = [cell for cell in wanted if cell.side == label and cell not in answers]
            if cells:
                built = self._sides.build(cells, progress) if label else self._built_here(cells, progress)
                answers |= zip(cells, built, strict=True)
        return [answers[cell] for cell in wanted]

    def _settled(self, wanted: Sequence[Cell], progress: Progress) -> dict[Cell, Answer]:
        """Return the answers for cells of other sides that prove to be the same by a look at what is here.

        Those of here are among them where they are wanted for nothing else.
        """
        unknown = {cell for cell, key in self._sides.keys(wanted).items() if key is None}
        twins: dict[Cell, list[Cell]] = {}
        for cell in wanted:
            if cell.side:
                twins.setdefault(replace(cell, side=""), []).append(cell)
        looked = [cell for cell in wanted if not unknown.isdisjoint(twins.get(cell, ()))]
        if not looked:
            return {}
        asked = [(cell.workload.to_json(), cell.workload.label, False) for cell in looked]
        seen = build(self.job, self._protocol, asked, progress, looks=True)
        looked = [cell for cell, answer in zip(looked, seen, strict=True) if answer["ok"]]
        there = [each for cell in looked for each in twins[cell] if each in unknown]
        same = self.same_content(there) if there else set()
        here = [cell for cell in looked if same.issuperset(twins[cell])]
        return {cell: {"ok": True} for cell in (*here, *same)}

    def _built_here(self, cells: Sequence[Cell], progress: Progress) -> list[Answer]:
        reads = [(cell.workload, self._catalogue.get(cell.compiler.name).reads == "onnx") for cell in cells]
        asked = [(workload.to_json(), workload.label, onnx) for workload, onnx in reads]
        if any(keys.has_files(workload) for workload, _ in reads):
            return build(self.job, self._protocol, asked, progress)
        return self._builder.build(asked, progress)

    def tune(self, cell: Cell, progress: Progress) -> Answer:
        """Make a compiler search for the best way to compile a cell, in a process of its own."""
        job = self.job.on(cell.side)
        return self._asked_alone(cell, job, "tune", {"cell": job.sent(cell)}, progress)

    def _asked_alone(
        self, cell: Cell, job: Job, do: str, asked: Mapping[str, Any], progress: Progress | None = None
    ) -> Answer:
        """Ask one thing of a worker that ends with it."""
        client: WorkerClient | None = None
        try:
            client = started(job, str(cell.compiler), self._protocol)
            client.greet(cell.compiler.name, [cell.workload.model])
            client.hello()
            answer = client.request(do, progress=progress, **asked)
            client.close()
        except WorkerEnded as ended:
            return ended_answer(ended)
        finally:
            if client is not None:
                client.kill()
        return answer

    def explain(self, cell: Cell, artifact: str | None) -> Answer:
        """Say what runs inside a cell's calls, in a process of its own in which nothing is measured.

        ``artifact`` is the key of what its compiler reads. The answer has the ``explanation`` as JSON.
        """
        job = self.job.on(cell.side)
        asked = {"cell": job.sent(cell), "artifact": artifact or None, "label": cell.label}
        return self._asked_alone(cell, job, "explain", asked)

    # Measuring

    def launch(self, plan: LaunchPlan, sink: Sink) -> None:
        """Run one launch in worker processes of this machine."""
        sink.surroundings("begun", self._snapshot())
        try:
            watched = _Watched(sink, self._snapshot)
            run_launch(self.job, plan, watched, spare_memory=environment.spare_memory_share)
        finally:
            sink.surroundings("ended", self._snapshot())

    def memory(
        self, cell: Cell, protocol: Protocol, seed: int
    ) -> tuple[Mapping[str, Any], CompileRecord, Mapping[str, Any]]:
        """Run a cell alone and untimed. Return the snapshots before and after, and between them its record."""
        before = self._snapshot()
        if cell.side:
            # What it reads is known to a process of that side only.
            record, _ = memory_pass(self.job, cell, protocol, seed, artifact=self.artifacts([cell])[cell])
        else:
            record, _ = memory_pass(self.job, cell, protocol, seed)
        return before, record, self._snapshot()

    def evaluate(self, cell: Cell, protocol: Protocol, seed: int, progress: Progress) -> Passed:
        """Ask a model's own evaluation about a compiled cell. Return the snapshots around it, and its record."""
        before = self._snapshot()
        artifact = self.artifacts([cell])[cell] if cell.side else None
        record = evaluation_pass(self.job, cell, protocol, seed, progress, artifact)
        return before, record, self._snapshot()

    def agree(self, cell: Cell, dense: Cell, samples: int, protocol: Protocol, seed: int, progress: Progress) -> Passed:
        """Call two cells on the same seeded inputs. Return the snapshots around it, and the record of the first."""
        before = self._snapshot()
        record = agreement_pass(self.job, cell, dense, protocol, seed, samples, progress)
        return before, record, self._snapshot()

    def power(self, cells: Sequence[Cell], protocol: Protocol, seed: int, progress: Progress) -> PassedTogether:
        """Measure what cells draw beside the idle machine. Return the snapshots around it, and a record of each."""
        before = self._snapshot()
        there = [cell for cell in cells if cell.side]
        artifacts = {cell: key for cell, key in self.artifacts(there).items() if key} if there else {}
        records = power_pass(self.job, cells, protocol, seed, progress, artifacts)
        return before, records, self._snapshot()

    def _snapshot(self) -> Mapping[str, Any]:
        """Return the state of this machine at this moment."""
        device = self.job.device
        return {"device": device.name, **environment.snapshot(device.cpus, device.accelerator)}

    def close(self) -> None:
        """End what is asked of other sides, and what is kept to build. Others have ended with what they were asked."""
        self._sides.close()
        self._builder.close()


class _Watched:
    """A launch's sink that also gets the state of the machine before the first visit."""

    def __init__(self, sink: Sink, snapshot: Callable[[], Mapping[str, Any]]) -> None:
        self._sink, self._snapshot = sink, snapshot
        self._visited = False
        self.block_done, self.progress = sink.block_done, sink.progress

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        self._sink.prepared(cell, record)
        if not self._visited:
            # What came before the first visit was not timed.
            self._sink.surroundings("blocks", self._snapshot())

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        self._visited = True
        self._sink.visited(cell, block, position, visit)
