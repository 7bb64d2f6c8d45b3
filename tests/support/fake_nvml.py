"""A stand-in for pynvml without a GPU: only names that the real binding has, and what a GPU can refuse it refuses."""
# ruff: noqa: N803, N815 - the names are those of the binding

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.machine import gpu

NOT_SUPPORTED, DRIVER_NOT_LOADED = 3, 9
WORDS = {NOT_SUPPORTED: "Not Supported", DRIVER_NOT_LOADED: "Driver Not Loaded", 6: "Not Found"}


class NVMLError(Exception):
    """NVML's errors carry its return code and read as its words."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return WORDS[self.value]


@dataclass
class Card:
    """A GPU as NVML sees it; ``refused`` are the functions that it does not support."""

    name: str = "NVIDIA H200"
    uuid: str = "GPU-aaaa-1111"
    power_limit_milliwatts: int = 700_000
    used_bytes: int = 1 << 30
    processes: Callable[[], dict[int, int | None]] = dict
    held_down_ns: dict[int, int] = field(default_factory=lambda: {0: 5_000_000_000, 1: 1_000_000_000})
    slow_bits: int = 0
    refused: set[str] = field(default_factory=set)
    energy_millijoules: Callable[[], int] = lambda: 1_000_000
    utilisation_percent: Callable[[], int] = lambda: 0
    # What each process did, in NVML's microseconds: pid, moment, per cent.
    busy: Callable[[], list[tuple[int, int, int]]] = list
    capability: tuple[int, int] = (9, 0)


class FakeNvml(ModuleType):
    """The module; functions are those of nvidia-ml-py with its parameters."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL = 0, 1
    nvmlClocksThrottleReasonSwThermalSlowdown = 32
    nvmlClocksThrottleReasonHwThermalSlowdown = 64
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 128
    NVMLError = NVMLError

    def __init__(self, *cards: Card, driver: bool = True) -> None:
        super().__init__("pynvml")
        self._cards, self._driver, self._is_open = cards, driver, False

    def _card(self, function: str, handle: Card) -> Card:
        assert self._is_open, f"{function} before nvmlInit"
        if function in handle.refused:
            raise NVMLError(NOT_SUPPORTED)
        return handle

    def nvmlInit(self) -> None:
        if not self._driver:
            raise NVMLError(DRIVER_NOT_LOADED)
        self._is_open = True

    def nvmlSystemGetDriverVersion(self) -> str:
        assert self._is_open
        return "580.65.06"

    def nvmlDeviceGetCount(self) -> int:
        assert self._is_open
        return len(self._cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self._cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:
        for card in self._cards:
            if card.uuid == uuid:
                return card
        raise NVMLError(6)

    def nvmlDeviceGetName(self, handle: Card) -> str:
        return self._card("nvmlDeviceGetName", handle).name

    def nvmlDeviceGetUUID(self, handle: Card) -> str:
        return self._card("nvmlDeviceGetUUID", handle).uuid

    def nvmlDeviceGetCudaComputeCapability(self, handle: Card) -> tuple[int, int]:
        return self._card("nvmlDeviceGetCudaComputeCapability", handle).capability

    def nvmlDeviceGetMemoryInfo(self, handle: Card) -> Any:
        return SimpleNamespace(total=150 << 30, used=self._card("nvmlDeviceGetMemoryInfo", handle).used_bytes)

    def nvmlDeviceGetClockInfo(self, handle: Card, type: int) -> int:
        self._card("nvmlDeviceGetClockInfo", handle)
        return {self.NVML_CLOCK_SM: 1755, self.NVML_CLOCK_MEM: 3201}[type]

    def nvmlDeviceGetMaxClockInfo(self, handle: Card, type: int) -> int:
        self._card("nvmlDeviceGetMaxClockInfo", handle)
        return {self.NVML_CLOCK_SM: 1980, self.NVML_CLOCK_MEM: 3201}[type]

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Card) -> int:
        return self._card("nvmlDeviceGetEnforcedPowerLimit", handle).power_limit_milliwatts

    def nvmlDeviceGetPersistenceMode(self, handle: Card) -> int:
        self._card("nvmlDeviceGetPersistenceMode", handle)
        return 1

    def nvmlDeviceGetMigMode(self, device: Card) -> list[int]:
        self._card("nvmlDeviceGetMigMode", device)
        return [0, 0]

    def nvmlDeviceGetViolationStatus(self, device: Card, perfPolicyType: int) -> Any:
        card = self._card("nvmlDeviceGetViolationStatus", device)
        return SimpleNamespace(referenceTime=1, violationTime=card.held_down_ns[perfPolicyType])

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Card) -> int:
        # The clocks of an idle GPU are low as well.
        return 1 | self._card("nvmlDeviceGetCurrentClocksThrottleReasons", handle).slow_bits

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Card) -> int:
        return self._card("nvmlDeviceGetTotalEnergyConsumption", handle).energy_millijoules()

    def nvmlDeviceGetUtilizationRates(self, handle: Card) -> Any:
        return SimpleNamespace(gpu=self._card("nvmlDeviceGetUtilizationRates", handle).utilisation_percent(), memory=0)

    def nvmlDeviceGetProcessUtilization(self, handle: Card, timeStamp: int) -> list[Any]:
        card = self._card("nvmlDeviceGetProcessUtilization", handle)
        found = [one for one in card.busy() if one[1] > timeStamp]
        if not found:
            raise NVMLError(6)
        return [SimpleNamespace(pid=pid, timeStamp=at, smUtil=share) for pid, at, share in found]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Card) -> list[Any]:
        card = self._card("nvmlDeviceGetComputeRunningProcesses", handle)
        return [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in card.processes().items()]


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch, *cards: Card, driver: bool = True) -> Iterator[FakeNvml]:
    """Let this process find these GPUs."""
    nvml = FakeNvml(*cards, driver=driver)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pynvml", nvml)
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        gpu.find.cache_clear()
        yield nvml
    gpu.find.cache_clear()
