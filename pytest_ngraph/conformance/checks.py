"""The contract as checks of one compiled cell: each says what is wrong, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_ngraph.checks.freshness import call_once, objection, probe
from pytest_ngraph.compilers.base import Compiler, Executable, threads_of
from pytest_ngraph.compilers.toolkit.equality import compare
from pytest_ngraph.machine import clock
from pytest_ngraph.spec.cells import Device
from pytest_ngraph.workloads import artifacts

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload

# Two runs of the same code on the same numbers may differ by what the alignment of a buffer changes, and no more: by
# the last bits of an f32 sum, and where these tip it over, by one step of the type that it is rounded to.
_REPEAT_ERROR: Mapping[str, float] = {"f32": 1e-6, "tf32": 1e-6, "f16": 2e-3, "bf16": 1.6e-2, "int8": 2e-2}
# Below this, changed inputs did not change the outputs: those of the models here change by 1e-2 and more.
_CHANGE = 1e-4
_TIMED_CALLS = 20
_REFILLS = 3  # how often every slot is filled again while the others are busy


@dataclass(frozen=True, slots=True)
class Subject:
    """A compiled cell under examination, with what it was asked for."""

    executable: Executable
    workload: LoadedWorkload
    threads: int

    @property
    def precision(self) -> str:
        """Return the precision that it was compiled in."""
        return self.workload.spec.base_precision

    def changed(self) -> dict[str, np.ndarray]:
        """Return other inputs of the same shapes and types."""
        return {name: _changed(array) for name, array in self.workload.inputs.items()}

    def call(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Bind, run and return the outputs."""
        self.executable.bind(inputs)
        self.executable.run()
        self.executable.synchronize()
        return list(self.executable.outputs() or ())


@dataclass(frozen=True, slots=True)
class Examination:
    """What each check found wrong (nothing, where all is well), and what the first workload's executable gave."""

    found: Mapping[str, list[str]]
    outputs: list[np.ndarray]
    placement: Mapping[str, str | int]
    loaded: bool


def examine(
    adapter: Compiler, options: Mapping[str, Any], workloads: Sequence[LoadedWorkload], device: Device
) -> Examination:
    """Compile the workloads, all alive side by side as in a worker, and hold each of them to every check.

    Where a compiler has no outputs to compare, the checks that need them are left out.
    """
    threads = threads_of(device, options)
    subjects = [Subject(adapter.compile(workload, device, options), workload, threads) for workload in workloads]
    outputs = [subject.call(subject.workload.inputs) for subject in subjects]
    checks = checks_of(workloads[0].spec.scenario, all(outputs))
    found: dict[str, list[str]] = {name: [] for name in (*checks, "closes")}
    for subject in subjects:
        for name, check in checks.items():
            if said := check(subject):
                found[name].append(f"{subject.workload.spec.label}: {said}")
    first = subjects[0].executable
    placement, loaded = dict(first.placement), bool(first.loaded)
    for subject in subjects:
        subject.executable.close()
    again = Subject(adapter.compile(workloads[0], device, options), workloads[0], threads)
    if said := difference(outputs[0], again.call(workloads[0].inputs), again.precision):
        found["closes"].append(f"compiled again after close(): {said}")
    again.executable.close()
    return Examination(found, outputs[0], placement, loaded)


def agrees(subject: Subject) -> str:
    """Outputs are those of the reference."""
    if subject.workload.artifact is None:
        return "there is no reference to compare with"
    reference = artifacts.reference(subject.workload.artifact)
    given = subject.call(subject.workload.inputs)
    return compare(given, reference.timed, subject.precision, reference.means).reason


def repeats(subject: Subject) -> str:
    """A second call on the same inputs gives the same outputs."""
    first = subject.call(subject.workload.inputs)
    return difference(first, subject.call(subject.workload.inputs), subject.precision)


def follows_inputs(subject: Subject) -> str:
    """Other inputs give other outputs, at once and without compiling again. The first ones give the first back."""
    first = subject.call(subject.workload.inputs)
    if not difference(first, subject.call(subject.changed()), subject.precision, _CHANGE):
        return "changed inputs did not change the outputs: bind() or run() keeps what was"
    return difference(first, subject.call(subject.workload.inputs), subject.precision)


def keeps_outputs(subject: Subject) -> str:
    """Arrays that outputs() gave are not written to by later calls."""
    first = subject.call(subject.workload.inputs)
    copies = [array.copy() for array in first]
    subject.call(subject.changed())
    return "a later call wrote into them: " + said if (said := difference(copies, first)) else ""


def works_when_called(subject: Subject) -> str:
    """Calls take as long on inputs never seen before, and outputs() does not do what run() should have done."""
    executable, scenario = subject.executable, subject.workload.spec.scenario
    executable.bind(subject.workload.inputs)
    timed = median(call_once(executable, scenario) for _ in range(_TIMED_CALLS))
    timings = probe(executable, subject.changed(), subject.workload.inputs, timed, scenario)
    return objection(timings, timed, on_accelerator=executable.enqueues)


def leaves_clocks_alone(subject: Subject) -> str:
    """The clocks of the module time are those that Python began with."""
    now = {"perf_counter": time.perf_counter, "perf_counter_ns": time.perf_counter_ns}
    now["process_time_ns"] = time.process_time_ns
    real = (clock.seconds, clock.nanoseconds, clock.cpu_nanoseconds)
    changed = [f"time.{name}" for (name, function), own in zip(now.items(), real, strict=True) if function is not own]
    return f"it replaced {' and '.join(changed)}" if changed else ""


def gives_arrays(subject: Subject) -> str:
    """outputs() gives NumPy arrays."""
    import numpy as np

    strange = {
        type(each).__name__ for each in subject.call(subject.workload.inputs) if not isinstance(each, np.ndarray)
    }
    return f"outputs() gave {', '.join(sorted(strange))}" if strange else ""


def returns_nothing(subject: Subject) -> str:
    """run() returns None. What it computed is asked for through outputs()."""
    run: Callable[[], Any] = subject.executable.run
    subject.executable.bind(subject.workload.inputs)
    returned = run()
    return "" if returned is None else f"run() returned {type(returned).__name__}"


def tells_placement(subject: Subject) -> str:
    """Placement says provider, precision and threads, and the threads are those that were asked for."""
    placement = subject.executable.placement
    if missing := [key for key in ("provider", "precision", "threads") if not placement.get(key)]:
        return f"placement lacks {', '.join(missing)}: {dict(placement)}"
    if placement["provider"] == "null":  # it has neither threads nor numbers
        return ""
    asked = {"threads": subject.threads, "precision": subject.precision}
    wrong = [f"{key} {value}, got {placement[key]}" for key, value in asked.items() if placement[key] != value]
    return f"asked for {' and '.join(wrong)}" if wrong else ""


def keeps_calls_in_flight(subject: Subject) -> str:
    """Every slot takes a call while the others have theirs, next_done() gives each back once, and none is lost."""
    executable = subject.executable
    slots = executable.in_flight
    if slots < 1:
        return f"in_flight is {slots}, which is no call at all"
    executable.bind(subject.workload.inputs)
    for slot in range(slots):
        executable.submit(slot)
    for _ in range(_REFILLS * slots):
        executable.submit(executable.next_done())
    last = sorted(executable.next_done() for _ in range(slots))
    return "" if last == list(range(slots)) else f"calls ran in slots 0 to {slots - 1}, and next_done() gave {last}"


def serves_every_slot(subject: Subject) -> str:
    """A call alone in any slot is what next_done() gives, and run() and slot 0 follow the inputs that are bound."""
    executable = subject.executable
    first = subject.call(subject.workload.inputs)
    subject.call(subject.changed())
    executable.bind(subject.workload.inputs)
    for slot in range(executable.in_flight):
        executable.submit(slot)
        if (done := executable.next_done()) != slot:
            return f"only slot {slot} had a call, and next_done() gave {done}"
        # outputs() are those of the first slot.
        if said := difference(first, list(executable.outputs() or ()), subject.precision):
            return f"slot {slot}: {said}"
    return difference(first, subject.call(subject.workload.inputs), subject.precision)


CHECKS: Mapping[str, Callable[[Subject], str]] = {
    "tells_placement": tells_placement,
    "returns_nothing": returns_nothing,
    "leaves_clocks_alone": leaves_clocks_alone,
}
OUTPUT_CHECKS: Mapping[str, Callable[[Subject], str]] = {
    "agrees": agrees,
    "gives_arrays": gives_arrays,
    "repeats": repeats,
    "follows_inputs": follows_inputs,
    "keeps_outputs": keeps_outputs,
    "works_when_called": works_when_called,
}
THROUGHPUT_CHECKS: Mapping[str, Callable[[Subject], str]] = {
    "keeps_calls_in_flight": keeps_calls_in_flight,
    "serves_every_slot": serves_every_slot,
}
# What only shows around the cell: closing it and compiling again, and what its process printed.
NAMES = (*CHECKS, *OUTPUT_CHECKS, "closes", "is_quiet")


def checks_of(scenario: str, has_outputs: bool) -> dict[str, Callable[[Subject], str]]:
    """Return the checks of cells in a scenario. Those that compare outputs only where there are some."""
    outputs = OUTPUT_CHECKS if has_outputs else {}
    return {**CHECKS, **outputs, **(THROUGHPUT_CHECKS if scenario == "throughput" else {})}


def difference(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray], precision: str = "f32", tolerance: float | None = None
) -> str:
    """Return how two lists of outputs differ, or nothing where they are the same to within a relative tolerance.

    Unless given it is what two runs of the same code may differ by in that precision.
    """
    tolerance = _REPEAT_ERROR[precision] if tolerance is None else tolerance
    agreement = compare(second, first, precision)
    if agreement.max_error <= tolerance:
        return ""
    return agreement.reason or f"outputs differ by {agreement.max_error:.2g} (allowed: {tolerance:g})"


def _changed(array: np.ndarray) -> np.ndarray:
    """Return other numbers of the same shape and type. Integers stay within the values that are there."""
    import numpy as np

    if array.dtype.kind == "f":
        return np.ascontiguousarray((array[..., ::-1] * 0.5 + 0.25).astype(array.dtype))
    return np.ascontiguousarray(np.roll(array, 1, axis=-1))
