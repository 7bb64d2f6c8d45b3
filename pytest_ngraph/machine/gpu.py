"""NVIDIA GPUs as NVML reports them: which there are, in which state, who computes on them, and who holds how much.

CUDA itself is not asked, so that nothing here takes memory on a GPU. What NVML does not answer is None, never 0, with
its words under ``unreadable``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pytest_ngraph.errors import SpecError

# What can slow the clocks down besides the load itself, by the names of NVML's bits; the power limit is not among it.
_SLOWED_BY: Mapping[str, str] = {
    "nvmlClocksThrottleReasonSwThermalSlowdown": "heat",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "heat (hardware slowdown)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "a power brake (hardware slowdown)",
}
# Precisions that GPUs of an older compute capability have no arithmetic for.
NEWER_ONLY = ("tf32", "bf16")
_NEWER = (8, 0)


class Unreadable(Exception):
    """What NVML does not report. The text says why."""


class Gpu:
    """One GPU."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def identity(self) -> dict[str, Any]:
        """Return what makes launches on two GPUs incomparable: part of what evidence is keyed by."""
        facts = self.facts()
        names = ("name", "driver", "compute_capability", "memory_bytes", "power_limit_watts", "mig")
        return {name: facts[name] for name in names}

    def facts(self) -> dict[str, Any]:
        """Return what stays the same during a run."""
        nvml, of = self._nvml, self._of
        return _read_each(
            {
                "name": lambda: str(of("nvmlDeviceGetName")),
                "driver": lambda: str(self._ask("nvmlSystemGetDriverVersion")),
                "compute_capability": lambda: ".".join(map(str, of("nvmlDeviceGetCudaComputeCapability"))),
                "memory_bytes": lambda: int(of("nvmlDeviceGetMemoryInfo").total),
                "most_sm_clock_mhz": lambda: int(of("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM)),
                "most_memory_clock_mhz": lambda: int(of("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM)),
                "power_limit_watts": self._power_limit_watts,
                "persistence_mode": lambda: bool(of("nvmlDeviceGetPersistenceMode")),
                "mig": lambda: bool(of("nvmlDeviceGetMigMode")[0]),
            }
        )

    def state(self) -> dict[str, Any]:
        """Return the state at this moment. Counters only grow, the difference of two says what happened between them.

        ``slowed_by`` is what slows the clocks down now, ``hot_seconds`` how long heat has since the driver came up and
        ``power_capped_seconds`` how long the power limit has, as it does under full load. ``others`` are the processes
        that have the GPU open for computing, this one and what it has started apart.
        """
        nvml, of = self._nvml, self._of
        return _read_each(
            {
                "sm_clock_mhz": lambda: int(of("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)),
                "memory_clock_mhz": lambda: int(of("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM)),
                "power_limit_watts": self._power_limit_watts,
                "used_memory_bytes": lambda: int(of("nvmlDeviceGetMemoryInfo").used),
                "slowed_by": self._slowed_by,
                "hot_seconds": lambda: self._held_down_seconds(nvml.NVML_PERF_POLICY_THERMAL),
                "power_capped_seconds": lambda: self._held_down_seconds(nvml.NVML_PERF_POLICY_POWER),
                "others": self._others,
            }
        )

    def held_bytes(self, pid: int, below: Iterable[int] = ()) -> int:
        """Return how much memory of the GPU a process holds now, with those below it.

        Raise Unreadable where NVML does not say.
        """
        held = {each.pid: each.usedGpuMemory for each in self._of("nvmlDeviceGetComputeRunningProcesses")}
        if pid not in held:
            raise Unreadable(f"NVML lists no process {pid}; in a container it may count processes as its host does")
        if held[pid] is None:
            raise Unreadable("NVML does not say how much memory of this GPU a process holds")
        return int(held[pid]) + sum(held.get(child) or 0 for child in below)

    def lacks(self, precision: str) -> str | None:
        """Return why the GPU has no arithmetic for a precision, or None. Raise Unreadable where NVML does not say."""
        capability = tuple(map(int, self._of("nvmlDeviceGetCudaComputeCapability")))
        return lacks(precision, str(self._of("nvmlDeviceGetName")), capability)

    def energy_joules(self) -> float:
        """Return what the board has drawn since the driver came up. Raise Unreadable where NVML does not say."""
        return float(self._of("nvmlDeviceGetTotalEnergyConsumption")) * 1e-3

    def utilisation(self) -> float:
        """Return the share of the last period in which any kernel ran. Raise Unreadable where NVML does not say."""
        return float(self._of("nvmlDeviceGetUtilizationRates").gpu) / 100

    def busy_processes(self, since: int) -> tuple[dict[int, float], int]:
        """Return the largest share of each process that computed since a moment of NVML's clock, and the latest moment.

        Raise Unreadable where NVML does not say.
        """
        try:
            samples = self._of("nvmlDeviceGetProcessUtilization", since)
        except Unreadable as reason:
            if "Not Found" in str(reason):
                # That is how NVML says that nothing ran.
                return {}, since
            raise
        found: dict[int, float] = {}
        for one in samples:
            if one.timeStamp > since and one.smUtil:
                found[one.pid] = max(found.get(one.pid, 0.0), one.smUtil / 100)
        return found, max([since, *(one.timeStamp for one in samples)])

    def _others(self) -> list[str]:
        import psutil

        mine = psutil.Process()
        own = {mine.pid, *(child.pid for child in mine.children(recursive=True))}
        return [_process(each.pid) for each in self._of("nvmlDeviceGetComputeRunningProcesses") if each.pid not in own]

    def _power_limit_watts(self) -> float:
        return float(self._of("nvmlDeviceGetEnforcedPowerLimit")) * 1e-3

    def _held_down_seconds(self, policy: int) -> float:
        """Return for how long a policy has held the clocks down."""
        return float(self._of("nvmlDeviceGetViolationStatus", policy).violationTime) * 1e-9

    def _slowed_by(self) -> list[str]:
        bits = int(self._of("nvmlDeviceGetCurrentClocksThrottleReasons"))
        return [words for name, words in _SLOWED_BY.items() if bits & getattr(self._nvml, name)]

    def _of(self, function: str, *arguments: Any) -> Any:
        return self._ask(function, self._handle, *arguments)

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            raise Unreadable(str(error)) from None


@functools.cache
def find(accelerator: str) -> Gpu:
    """Return the GPU of an accelerator, ``cuda:N``: the N-th that CUDA shows, which counts in the order of the PCI bus.

    Raises SpecError that says what to do where there is no such GPU, or nobody to ask.
    """
    try:
        import pynvml
    except ImportError:
        raise SpecError('GPUs are found through NVML (pip install "pytest-ngraph[cuda]")') from None
    number, wanted = int(accelerator.partition(":")[2]), os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        pynvml.nvmlInit()
        handles = _visible(pynvml, wanted)
        if number < len(handles):
            return Gpu(pynvml, handles[number])
        names = [f"cuda:{index} ({pynvml.nvmlDeviceGetName(handle)})" for index, handle in enumerate(handles)]
    except pynvml.NVMLError as error:
        raise SpecError(f"NVML finds no GPUs here ({error}); is the NVIDIA driver installed and loaded?") from None
    hidden = "" if wanted is None else f"; CUDA_VISIBLE_DEVICES={wanted} hides the others"
    raise SpecError(f"there is no GPU {accelerator} (known: {', '.join(names) or 'none'}{hidden})")


def lacks(precision: str, name: str, capability: tuple[int, ...]) -> str | None:
    """Return why a GPU of this name and compute capability has no arithmetic for a precision, or None."""
    if precision not in NEWER_ONLY or capability >= _NEWER:
        return None
    needs, has = (".".join(map(str, each)) for each in (_NEWER, capability))
    return f"precision {precision} needs compute capability {needs} or newer, and {name} has {has}"


def name_in(facts: Mapping[str, Any]) -> str:
    """Return the name of the GPU among a machine's facts, nothing where there is none or NVML does not say."""
    found = facts.get("gpu")
    name = found.get("name") if isinstance(found, Mapping) else None
    return str(name or "")


def _visible(nvml: Any, wanted: str | None) -> list[Any]:
    """Return the handles of the GPUs that CUDA shows, in its order. NVML itself does not heed CUDA_VISIBLE_DEVICES."""
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    if wanted is None:
        return handles
    found = []
    for word in wanted.split(","):
        handle = _named(nvml, handles, word.strip())
        if handle is None:
            # CUDA ignores what follows a name that it does not know.
            break
        found.append(handle)
    return found


def _named(nvml: Any, handles: list[Any], word: str) -> Any:
    """Return the handle of a GPU by its number or by the beginning of its UUID, None where it is not one."""
    if word.isdecimal():
        return handles[int(word)] if int(word) < len(handles) else None
    if word.startswith("MIG-"):
        return nvml.nvmlDeviceGetHandleByUUID(word)
    alike = [handle for handle in handles if word and nvml.nvmlDeviceGetUUID(handle).startswith(word)]
    return alike[0] if len(alike) == 1 else None


def _read_each(readers: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Read all values. What cannot be read is None, with the reason under ``unreadable``."""
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, read in readers.items():
        try:
            values[name] = read()
        except Unreadable as reason:
            values[name], reasons[name] = None, str(reason)
    return {**values, "unreadable": reasons}


def _process(pid: int) -> str:
    """Name a process for a message."""
    import psutil

    try:
        return f"pid {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"pid {pid}"
