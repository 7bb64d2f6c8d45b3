"""The worker: one process for one compiler, which answers JSON lines on a descriptor of its own.

Started as ``pytest_ngraph.worker.worker READ_FD WRITE_FD PARENT_PID`` by ``interpreter.command``. The first line it
reads is its job (import path, CPUs, device, where artefacts lie). Every later line is a request, answered by one line.
Standard output and error are free for whatever the runtimes print.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import CompileFailed, NgraphError, NotThere, Unsupported
from pytest_ngraph.load.neighbours import LOOP
from pytest_ngraph.load.scenarios import as_compiled
from pytest_ngraph.machine import clock, imports
from pytest_ngraph.spec.achieved import has_zeros
from pytest_ngraph.spec.cells import Cell, Device, ModelRef, Protocol, Visit, Workload
from pytest_ngraph.spec.evaluations import to_json
from pytest_ngraph.spec.phases import COMPILE, FIRST_CALL, LOAD
from pytest_ngraph.spec.shapes.mixes import STATIC, is_mix
from pytest_ngraph.spec.shapes.mixes import parse as parse_mix
from pytest_ngraph.spec.sides import NOT_THERE, Side
from pytest_ngraph.texts.shown import one_line

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.checks.mixed import MixedCalls
    from pytest_ngraph.compilers.base import Compiler, Executable
    from pytest_ngraph.compilers.toolkit.kept import Kept
    from pytest_ngraph.evaluation.seeded import Seeded
    from pytest_ngraph.workloads.artifacts import Artifact
    from pytest_ngraph.workloads.loaded import LoadedWorkload

PROTO = 2
BOUND = "bound"
EVALUATING = "evaluating"
_PR_SET_PDEATHSIG = 1
_OURS = "pytest_ngraph.compilers."
# Each runtime has its own words for it.
_MEMORY_WORDS = ("out of memory", "bad_alloc", "memoryerror", "allocate memory", "failed to allocate")


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends, also while it is stopped."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            raise SystemExit("the parent ended before its worker began")


class Worker:
    """The state of one worker: its adapter and the cells it holds, by number.

    ``say`` sends a line before the answer to a request: a sign of life of what takes long.
    """

    def __init__(self, job: Mapping[str, Any], say: Callable[[Mapping[str, Any]], None]) -> None:
        self._device = Device.from_json(job["device"])
        self._artifacts, self._logs = Path(job["artifacts"]), Path(job["logs"])
        self._seed = int(job["seed"])
        self._places: Mapping[str, str] = job["places"]
        self._side = Side.from_json(job["side"]) if "side" in job else None
        self._own_path: Sequence[str] = job.get("own_path", ())
        self._variables: Mapping[str, str] = job.get("variables", {})
        self._say = say
        self._kept: dict[int, Kept] = {}
        self._executables: dict[int, Executable] = {}
        self._workloads: dict[int, LoadedWorkload] = {}
        # Those that were loaded before they are prepared.
        self._ready: dict[int, LoadedWorkload] = {}
        # What each cell was last checked on.
        self._given: dict[int, dict[str, np.ndarray[Any, Any]]] = {}
        # What is timed of cells whose shapes are a mix.
        self._mixes: dict[int, MixedCalls] = {}
        # How often each cell had compiled again when it was last asked.
        self._compiled: dict[int, int | None] = {}
        # What draws the inputs that agreement is measured on.
        self._drawing: dict[int, Seeded] = {}
        self._adapter: Compiler | None = None
        self._actions: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "hello": self._hello,
            "load": self._load_first,
            "build": self._build,
            "look": self._look,
            "tune": self._tune,
            "prepare": self._prepare,
            "warm": self._warm,
            "visit": self._visit,
            LOOP: self._beside,
            "check": self._check,
            "probe": self._probe,
            "evaluate": self._evaluate,
            "seeded": self._seeded,
            "explain": self._explain,
            "forget": self._let_go,
            "peak": self._peak,
            "close": self._close,
        }

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a request says. Failures of the cell are part of the answer, never an exception."""
        try:
            return {"ok": True, **self._actions[request["do"]](request)}
        except Exception as error:  # noqa: BLE001 - whatever a runtime raises is this cell's outcome
            refused = self._refusal(error)
        # Only now does nothing refer to what the failure held.
        self._forget(request.get("number"))
        return refused

    def _hello(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Import the adapter and its runtime now: side by side with other workers, and in no compile time."""
        from pytest_ngraph.compilers.catalogue import load
        from pytest_ngraph.workloads.kinds import kind_of

        began = clock.seconds()
        if request["compiler"] is not None:
            self._adapter = load(request["compiler"], self._places[request["compiler"]])
            self._adapter.load()
            self._adapter.open(self._device)
            if self._adapter.reads == "module":
                for model in request["models"]:
                    kind_of(ModelRef(**model)).preload()
        return {"proto": PROTO, "pid": os.getpid(), "began_seconds": began, "import_seconds": clock.seconds() - began}

    def _load_first(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Load what a cell is compiled from now, side by side with other workers."""
        began = clock.seconds()
        with _collecting_garbage():
            cell = Cell.from_json(request["cell"])
            self._ready[request["number"]] = self._load(cell, self._greeted, request["artifact"])
        return {"load_seconds": clock.seconds() - began}

    def _build(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from pytest_ngraph.workloads import artifacts

        workload = Workload.from_json(request["workload"])
        artifact = artifacts.build(workload, self._seed, self._artifacts, request["want_onnx"])
        return {"key": artifact.key, **self._provenance()}

    def _look(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from pytest_ngraph.workloads import artifacts

        artifacts.look(Workload.from_json(request["workload"]), self._seed, self._artifacts)
        return self._provenance()

    def _provenance(self) -> dict[str, Any]:
        """Return what a worker of another side really loaded, which it is held to."""
        from pytest_ngraph.worker.provenance import provenance

        if self._side is None:
            return {}
        requires = () if self._adapter is None else self._adapter.requires
        return {"provenance": provenance(self._side, requires, self._own_path)}

    def _tune(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Make the compiler search for the best way to compile a cell."""

        def progress(doing: str, done: int, total: int) -> None:
            self._say({"id": request["id"], "progress": [one_line(str(doing)), done, total]})

        cell, adapter = Cell.from_json(request["cell"]), self._greeted
        workload = self._load(cell, adapter, None)
        adapter.tune(workload, self._device, adapter.resolve(cell.compiler), progress)
        return {}

    @property
    def _greeted(self) -> Compiler:
        if self._adapter is None:
            raise CompileFailed("the worker was greeted without a compiler")
        return self._adapter

    def _prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Compile a cell, call it once and hand over what it gives. Others compare it with what this process lacks."""
        from pytest_ngraph.compilers.bucketed import Bucketed, compile_buckets
        from pytest_ngraph.compilers.decoding import Decoding
        from pytest_ngraph.worker.answers import DEVICE_TIMES, clean_placement, number_of
        from pytest_ngraph.workloads.artifacts import onnx_bytes
        from pytest_ngraph.workloads.modules.masks import padding

        cell, number, adapter = Cell.from_json(request["cell"]), request["number"], self._greeted
        with _collecting_garbage():
            began = clock.seconds()
            workload = self._ready.pop(number, None) or self._load(cell, adapter, request["artifact"])
            if workload.kept is not None:
                self._kept[number] = workload.kept
            options = adapter.resolve(cell.compiler)
            spent = {LOAD: clock.seconds() - began}
            began = clock.seconds()
            made = compile_buckets(adapter, workload, self._device, options)
            executable = Decoding.of(made, cell.workload, adapter.name)
            spent[COMPILE] = clock.seconds() - began
            shelves = [each.kept for each in (workload, *workload.builds.values()) if each.kept is not None]
            compiled = spent[COMPILE] - sum(shelf.checking_seconds for shelf in shelves)
            partly_loaded = isinstance(made, Bucketed) and made.partly_loaded
            self._executables[number], self._workloads[number] = executable, workload
            given = workload.copied_inputs
            began = clock.seconds()
            executable.bind(given)
            bound = clock.seconds()
            executable.run()
            executable.synchronize()
            called = clock.seconds()
            first_call = spent[FIRST_CALL] = called - bound
            # One that is closed can no longer be asked.
            placement = dict(executable.placement)
            achieved = workload.artifact.meta.get("achieved", {}) if workload.artifact is not None else {}
            if has_zeros(achieved):
                # An adapter whose runtime leaves zeros out says so itself.
                placement.setdefault("kernels", "dense")
            if workload.spec.scenario != "latency":
                placement["in_flight"] = executable.in_flight
            if workload.artifact is not None:
                placement |= workload.artifact.meta.get("quantised") or {}
                placement |= padding(workload.inputs)
            if written := workload.written_to(given):
                # Each call that is timed is on what the one before has left there, and the reference on what was bound.
                placement["inputs_changed"] = ", ".join(written)
            if any(shelf.remarks for shelf in shelves):
                placement["kept"] = "damaged, built again"
            outputs = self._hand_over(executable, request["outputs"]) if workload.artifact is not None else None
            elsewhere = self._elsewhere(number, request["outputs"], placement, called - began)
            device_times = dict(executable.device_times() or {})
        said = partial(number_of, f"{adapter.name}: its")
        if unknown := set(device_times) - set(DEVICE_TIMES):
            raise CompileFailed(f"{adapter.name}: its device_times() has {unknown} (known: {', '.join(DEVICE_TIMES)})")
        meta = workload.artifact.meta if workload.artifact is not None else {}
        model_bytes = executable.model_bytes
        if model_bytes is None:
            # What is deployed then is the file that the compiler reads, or the weights of the module.
            read = onnx_bytes(workload.artifact) if workload.artifact is not None and adapter.reads == "onnx" else None
            model_bytes = meta.get("model_bytes") if read is None else read
        return {
            "spent_seconds": spent,
            "compile_seconds": None if partly_loaded else compiled,
            "loaded": bool(executable.loaded),
            "built_seconds": (
                None if partly_loaded else self._built_seconds(cell, adapter, workload, executable, compiled)
            ),
            "first_call_seconds": first_call,
            "export_seconds": meta.get("export_seconds"),
            "model_bytes": said("model_bytes", model_bytes, whole=True),
            "placement": clean_placement(placement.items()),
            "tuning_seconds": said("tuning_seconds", executable.tuning_seconds),
            "tuning_trials": said("tuning_trials", executable.tuning_trials, whole=True),
            "device_times": {name: said(name, device_times.get(name)) for name in DEVICE_TIMES},
            "achieved": list(achieved.items()),
            "artifact": None if workload.artifact is None else workload.artifact.key,
            "outputs": outputs,
            **({} if elsewhere is None else {"elsewhere": elsewhere}),
            **self._provenance(),
        }

    def _elsewhere(
        self, number: int, folder: str, placement: dict[str, Any], first_seconds: float
    ) -> dict[str, Any] | None:
        """Call what was built for several shapes at others than the measured one, which took ``first_seconds``.

        Returns how many outputs it handed over of sizes that are not measured, and how long the first call at others
        took, None where shapes are static. The placement gets where it was tried, and how often the runtime compiled
        again for that, or for the sizes that are measured.
        """
        from pytest_ngraph.checks.mixed import MixedCalls
        from pytest_ngraph.checks.other_sizes import call_elsewhere, facts
        from pytest_ngraph.worker.handover import ELSEWHERE
        from pytest_ngraph.workloads.modules.masks import padding

        executable, workload = self._executables[number], self._workloads[number]
        if workload.spec.shapes == STATIC or workload.artifact is None:
            self._compiled[number] = executable.recompiles
            placement |= {} if executable.recompiles is None else {"recompiles": executable.recompiles}
            return None
        count, seconds = None, 0.0
        if workload.inputs_elsewhere:
            outputs, seconds = call_elsewhere(executable, workload)
            count = self._write(outputs, str(Path(folder) / ELSEWHERE))
        if is_mix(workload.spec.shapes):
            mix, further = parse_mix(workload.spec.shapes), workload.inputs_of_lengths
            self._mixes[number] = MixedCalls(executable, mix, workload.seed, workload.inputs, further)
            seconds = max(self._mixes[number].first_calls(first_seconds).values())
            placement |= padding(*self._mixes[number].turn)
            executable.bind(workload.copied_inputs)
        self._compiled[number] = executable.recompiles
        placement |= facts(executable, workload)
        return {"outputs": count, "seconds": seconds}

    def _compiled_again(self, number: int) -> int:
        """Return how often the runtime compiled a cell again since it was prepared, or since this was asked."""
        before, now = self._compiled.get(number), self._executables[number].recompiles
        self._compiled[number] = now
        return now - before if now is not None and before is not None else 0

    def _built_seconds(
        self, cell: Cell, adapter: Compiler, workload: LoadedWorkload, executable: Executable, seconds: float
    ) -> float | None:
        """Keep what a compilation took, for the launches that load it: its own launch need not be one that counts."""
        from pytest_ngraph.machine.facts import version_of_module

        if workload.kept is None or executable.loaded is None:
            return None
        facts = {
            "compiler": str(cell.compiler),
            "versions": {name: version_of_module(name) for name in adapter.requires},
        }
        return workload.kept.build_seconds(adapter.name, facts, None if executable.loaded else seconds)

    def _load(self, cell: Cell, adapter: Compiler, key: str | None) -> LoadedWorkload:
        """Return what the adapter compiles from, with everything read and built that is not compiling."""
        from pytest_ngraph.compilers.toolkit.kept import Kept
        from pytest_ngraph.compilers.toolkit.variables import deciding
        from pytest_ngraph.workloads.loaded import LoadedWorkload

        artifact = self._artifact(cell, adapter, key) if adapter.reads != "nothing" else None
        compiled = as_compiled(cell)
        shelved = compiled
        # What is built is keyed by what decides of it, as what is measured is.
        variables = {**self._variables, **adapter.found_beside(cell.compiler, self._device, os.environ)}
        if adapter.__module__.startswith(_OURS):
            # What an adapter of this package makes of the same artifact is the same on all sides.
            shelved = replace(compiled, side="")
        else:
            # Those that another decides by are known to this process only.
            variables = {**variables, **deciding(os.environ, adapter.variables)}
        kept = Kept.of(shelved, artifact, self._artifacts, self._device, variables)
        workload = LoadedWorkload(compiled.workload, self._seed, artifact, kept, self._workloads.values())
        _ = workload.inputs

        def shelf(part: Workload, made: Artifact) -> Kept:
            return Kept.of(replace(shelved, workload=part), made, self._artifacts, self._device, variables)

        workload.load_builds(shelf)
        for each in workload.builds.values() or [workload]:
            if adapter.reads == "module":
                each.module()
        return workload

    def _artifact(self, cell: Cell, adapter: Compiler, key: str | None) -> Artifact:
        """Return what the adapter reads. ``key`` is the one that the measurement will be filed under."""
        from pytest_ngraph.workloads import artifacts

        wanted = (cell.workload, self._seed, self._artifacts, adapter.reads == "onnx")
        found = artifacts.find(*wanted)
        # Never built here: where the reference is made, no compiler runs.
        if found is None or (key is not None and found.key != key):
            raise CompileFailed(f"{cell.workload.label}: its files changed while this run measured it; run again")
        return found

    def _check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Call a cell once on given inputs and hand over what it gives. The inputs that are timed are bound again.

        The answer has the times of that call, in the form of ``freshness.Timings``.
        """
        from pytest_ngraph.checks.freshness import Timings, call_once, parts_of
        from pytest_ngraph.worker import handover

        number = request["number"]
        executable, workload = self._executables[number], self._workloads[number]
        self._given[number] = handover.load_named(Path(request["inputs"]), request["names"])
        executable.bind(self._given[number])
        compiled_again = self._compiled_again(number)
        used = clock.cpu_nanoseconds()
        # The call of run(), whatever the scenario: the outputs are those of it.
        first = call_once(executable, "latency")
        first_cpu, began = clock.cpu_nanoseconds() - used, clock.nanoseconds()
        outputs = executable.outputs()
        asked = clock.nanoseconds() - began
        if executable.steps:
            # What a call leaves in a cache must not be part of the next one, as of those that were timed.
            call_once(executable, "latency")
            outputs = executable.outputs()
        count = self._write(outputs, request["outputs"])
        parts = {name: timings.to_json() for name, timings in parts_of(executable, self._given[number]).items()}
        executable.bind(workload.copied_inputs)
        timings = Timings([first], outputs=[asked], first_cpu=[first_cpu])
        shapes = {name: array.shape for name, array in workload.inputs.items()}
        if number in self._mixes or any(array.shape != shapes[name] for name, array in self._given[number].items()):
            # Of other sizes than those that are timed, or of one of many, which says nothing of their times.
            timings = Timings()
        return {"outputs": count, "timings": timings.to_json(), "parts": parts, "compiled_again": compiled_again}

    def _probe(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Time calls on variations of the inputs that were given last, in turn with the sample that was timed."""
        from pytest_ngraph.checks.freshness import probe

        number = request["number"]
        executable, workload = self._executables[number], self._workloads[number]
        given, scenario, call_ns = self._given[number], workload.spec.scenario, request["call_ns"]
        timings = probe(executable, given, workload.inputs, call_ns, scenario, part=request["part"])
        return {"timings": timings.to_json()}

    def _evaluate(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the model's own evaluation what it says of a cell. Nothing is timed in this process."""
        from pytest_ngraph.evaluation.evaluate import evaluate

        number = request["number"]

        def alive(samples: int) -> None:
            self._say({"id": request["id"], "progress": [f"{EVALUATING}, {samples} samples", 0, 1]})

        return {"evaluation": to_json(evaluate(self._executables[number], self._workloads[number], alive))}

    def _seeded(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Call a cell once on inputs that are drawn from the seed, and hand over what it gives."""
        from pytest_ngraph.evaluation.seeded import Seeded, digest_of

        number = request["number"]
        executable = self._executables[number]
        if number not in self._drawing:
            self._drawing[number] = Seeded(self._workloads[number])
        inputs = self._drawing[number].batch(request["call"])
        digest = digest_of(inputs)
        executable.bind(inputs)
        executable.run()
        executable.synchronize()
        return {"inputs": digest, "outputs": self._hand_over(executable, request["outputs"])}

    def _explain(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Compile a cell and say what runs inside its calls. Nothing is measured in such a worker."""
        from pytest_ngraph.compilers.explaining import explained

        cell, adapter = Cell.from_json(request["cell"]), self._greeted
        workload = self._load(cell, adapter, request["artifact"])
        try:
            found = explained(adapter, workload, self._device, adapter.resolve(cell.compiler), request["label"])
        finally:
            if workload.kept is not None:
                workload.kept.close()
        return {"explanation": found.to_json(), **self._provenance()}

    def _hand_over(self, executable: Executable, folder: str) -> int | None:
        """Write the outputs of the last call to files. Return how many there are, None where there are none at all."""
        return self._write(executable.outputs(), folder)

    @staticmethod
    def _write(outputs: Sequence[np.ndarray[Any, Any]] | None, folder: str) -> int | None:
        from pytest_ngraph.worker import handover

        if outputs is None:
            return None
        Path(folder).mkdir(parents=True, exist_ok=True)
        return handover.put(Path(folder), outputs)

    def _let_go(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._forget(request["number"])
        return {}

    def _timed(self, number: int) -> Executable:
        """Return what is timed of a cell: its executable, or turns of calls of it."""
        return self._mixes.get(number) or self._executables[number]

    def _warm(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from pytest_ngraph.worker.timing import slow_start_seconds, warm_up

        executable, scenario = self._timed(request["number"]), self._workloads[request["number"]].spec.scenario
        protocol = Protocol(**request["protocol"])
        series, settled = warm_up(executable, protocol, scenario=scenario)
        tail = sorted(series[-20:])
        return {
            "series": series,
            "settled": settled,
            "call_seconds": tail[len(tail) // 2],
            "slow_start_seconds": slow_start_seconds(series, protocol),
        }

    def _visit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from pytest_ngraph.worker.covariates import Covariates
        from pytest_ngraph.worker.timing import visit

        executable, workload = self._timed(request["number"]), self._workloads[request["number"]]
        scenario = workload.spec.scenario
        if request["rebind"]:
            # Inputs allocated afresh, so that one lucky or unlucky address does not decide the whole launch.
            executable.bind(workload.copied_inputs)
        # From here on the asking process holds its own clock against what is timed.
        self._say({"id": request["id"], "progress": [BOUND, 0, 1]})
        if request.get("load") is not None:
            return self._under_load(executable, request["load"], in_slots=scenario != "latency")
        # Calls in flight wait for one another: that says nothing of what else runs.
        with contextlib.closing(Covariates(run_delay=scenario == "latency")) as covariates:
            done = visit(
                executable,
                calls=request["calls"],
                seconds=request["seconds"],
                least_batches=request["least_batches"],
                discard_seconds=request["discard_seconds"],
                covariates=covariates,
                scenario=scenario,
            )
        return _told(done)

    def _beside(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Call a cell again and again, as the neighbour of others, for as long as this process is wanted."""
        from pytest_ngraph.load import closed_loop

        return {"calls": closed_loop.run(self._timed(request["number"]), Path(request["track"]))}

    def _under_load(self, executable: Executable, load: Mapping[str, Any], *, in_slots: bool) -> dict[str, Any]:
        """Answer the calls of a load as they arrive."""
        from pytest_ngraph.load import open_loop

        done, traffic = open_loop.visit(executable, open_loop.Load(**load), in_slots=in_slots)
        return {**_told(done), "traffic": asdict(traffic)}

    def _peak(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from pytest_ngraph.worker.covariates import peak_memory_bytes

        return {"peak_memory_bytes": peak_memory_bytes()}

    def _close(self, request: Mapping[str, Any]) -> dict[str, Any]:
        for number in {*self._executables, *self._kept}:
            self._forget(number)
        return {}

    def _refusal(self, error: Exception) -> dict[str, Any]:
        """Return the answer to a request that raised. Errors made for users need no traceback.

        What is more than is kept does not cross the pipe: it is in a log.
        """
        from pytest_ngraph.worker.logs import with_log

        said = _said(error)
        outcome, text = "failed", said
        if isinstance(error, NgraphError):
            outcome = "unsupported" if isinstance(error, Unsupported) else "failed"
            if isinstance(error, NotThere) and self._side is not None:
                outcome, text = "unavailable", f"{NOT_THERE}: {said}"
        else:
            kind, first = type(error).__name__, one_line(said.strip().partition("\n")[0])
            text = f"{kind}: {first}" if first else kind
            if isinstance(error, MemoryError) or speaks_of_memory(f"{kind} {said}"):
                outcome, text = "oom", f"out of memory: {text}"
            else:
                text = f"{text}\n{_traceback(error)}"
        name = "worker" if self._adapter is None else self._adapter.name
        return {"ok": False, "outcome": outcome, "reason": with_log(text, self._logs, name)}

    def _forget(self, number: int | None) -> None:
        """Release a cell. What it raises now says nothing new."""
        if number in self._ready:
            del self._ready[number]
        if number in self._executables:
            self._workloads.pop(number)
            self._given.pop(number, None)
            self._compiled.pop(number, None)
            self._mixes.pop(number, None)
            self._drawing.pop(number, None)
            with contextlib.suppress(Exception):
                self._executables.pop(number).close()
        if number in self._kept:
            self._kept.pop(number).close()
        gc.collect()


def _told(visit: Visit) -> dict[str, Any]:
    # Not asdict, which copies every number.
    return {each.name: getattr(visit, each.name) for each in fields(visit)}


@contextlib.contextmanager
def _collecting_garbage() -> Iterator[None]:
    """Turn the collector on inside, and leave it off afterwards with everything that lives out of its sight."""
    gc.unfreeze()
    gc.enable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.disable()


def speaks_of_memory(text: str) -> bool:
    """Return whether an error or the output of a runtime says that memory ran out."""
    return any(words in text.lower() for words in _MEMORY_WORDS)


def _said(error: Exception) -> str:
    """Return the text of an exception, which is the code of somebody else."""
    try:
        # Ours would be cut, before all of it is in a log.
        return Exception.__str__(error) if isinstance(error, NgraphError) else str(error)
    except Exception as second:  # noqa: BLE001 - whatever it raises is no reason to end the worker
        return f"(its text cannot be read: {type(second).__name__})"


def _traceback(error: Exception) -> str:
    """Return the last places of an exception, and those of what it was raised from."""
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-6)).rstrip()
    except Exception:  # noqa: BLE001 - as above
        return "".join(traceback.format_tb(error.__traceback__, limit=-6)).rstrip()


def _take_side(side: Side, path: Sequence[str]) -> list[str]:
    """Import from now on what another side has. Return where its interpreter finds what is installed for it.

    Another interpreter has a library and packages of its own, which stand behind what it is given.
    """
    from pytest_ngraph.worker.redirecting import redirect
    from pytest_ngraph.worker.sides import placed
    from pytest_ngraph.workloads import keys

    own_path = [placed(side, entry) for entry in sys.path] if side.python else []
    sys.path[:] = dict.fromkeys([*path, *own_path])
    imports.lend(side.packages)
    if side.tree:
        redirect(side)
        keys.of_tree(side.tree)
    return own_path


def _begin(job: Mapping[str, Any], say: Callable[[Mapping[str, Any]], None], made: type[Worker]) -> Worker:
    """Set what must be set before any runtime is imported."""
    own_path = _take_side(Side.from_json(job["side"]), job["sys_path"]) if "side" in job else []
    if "side" not in job:
        sys.path[:] = job["sys_path"]
    if job["device"]["cpus"] and hasattr(os, "sched_setaffinity"):
        # Runtimes size their pools by it.
        os.sched_setaffinity(0, job["device"]["cpus"])
    return made({**job, "own_path": own_path}, say)


def main(arguments: list[str], made: type[Worker] = Worker) -> None:
    """Serve requests until the pipe closes. ``made`` is what answers them."""
    read_fd, write_fd, parent = (int(text) for text in arguments)
    die_with_parent(parent)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    for fd in (read_fd, write_fd):
        # What an adapter starts must not hold the pipes open.
        os.set_inheritable(fd, False)
    with os.fdopen(read_fd, encoding="utf-8") as requests, os.fdopen(write_fd, "w", encoding="utf-8") as answers:

        def say(line: Mapping[str, Any]) -> None:
            answers.write(json.dumps(line) + "\n")
            answers.flush()

        worker = _begin(json.loads(requests.readline()), say, made)
        for line in requests:
            request = json.loads(line)
            say({"id": request["id"], **worker.answer(request)})
            if request["do"] == "close":
                break
        sys.stdout.flush()
        sys.stderr.flush()
        # Runtimes hang or crash in their global destructors now and then; everything worth keeping was answered.
        os._exit(0)
