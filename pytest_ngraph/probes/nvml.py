"""An NVIDIA GPU as NVML shows it: its counter of energy, and how busy it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine import gpu
from pytest_ngraph.probes.contract import Count, EnergyCounter, LoadSensor, Unreadable

_MOST_WATTS = 3000.0


def _device(accelerator: str) -> gpu.Gpu:
    try:
        return gpu.find(accelerator)
    except SpecError as error:
        raise Unreadable(str(error)) from None


class NvmlEnergy(EnergyCounter):
    """The energy of a GPU's board since its driver came up."""

    name = "nvml"
    # Between 20 and 100 ms by the generation of the GPU.
    resolution_seconds = 0.1
    counts_cpus = False

    def __init__(self, accelerator: str) -> None:
        """Take which GPU, ``cuda:0``."""
        self._accelerator = accelerator
        self.covers = f"the board of the GPU {accelerator} with its memory, not the host, and not one process"

    def read(self) -> Mapping[str, Count]:
        """Return the counter of the board."""
        try:
            joules = _device(self._accelerator).energy_joules()
        except gpu.Unreadable as reason:
            raise Unreadable(f"NVML: the energy counter: {reason}") from None
        return {f"the energy counter of {self._accelerator}": Count(joules, _MOST_WATTS)}


class NvmlLoad(LoadSensor):
    """The share of the time in which any kernel ran on a GPU: a duty cycle, which says nothing of how full it was."""

    name = "nvml"
    resolution_seconds = 1 / 6
    looks_back_seconds = 1.0

    def __init__(self, accelerator: str) -> None:
        """Take which GPU, ``cuda:0``."""
        self._accelerator = accelerator
        self._seen = 0
        self.covers = f"the GPU {accelerator}, all of its processes"

    def read(self) -> float:
        """Return the share of the last period."""
        try:
            return _device(self._accelerator).utilisation()
        except gpu.Unreadable as reason:
            raise Unreadable(f"NVML: the utilisation: {reason}") from None

    def others(self, pids: Sequence[int]) -> str:
        """Return which other processes had the GPU work since the last call."""
        try:
            found, self._seen = _device(self._accelerator).busy_processes(self._seen)
        except (gpu.Unreadable, Unreadable):
            return ""
        # Where a container numbers processes otherwise than its host, none of ours is known by its number.
        if not set(found) & set(pids):
            return ""
        return ", ".join(f"pid {pid} ({share:.0%})" for pid, share in sorted(found.items()) if pid not in pids)
