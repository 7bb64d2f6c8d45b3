"""RAPL as the kernel's powercap shows it: counters of the energy of CPU packages and of their memory.

A package contains its cores and its uncore, so these are never added. What powercap shows a second time by another
way to the same registers (``intel-rapl-mmio``) and the platform's own counter (``psys``) are left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pytest_ngraph.probes.contract import Count, EnergyCounter, Unreadable, number_of, text_of

ROOT = Path("/sys/class/powercap")
_ZONE = re.compile(r"intel-rapl:\d+(:\d+)?\Z")
# More than a package or its memory can draw.
_MOST_WATTS = 1000.0


class Rapl(EnergyCounter):
    """The packages of all CPUs, and their memory where it is counted by itself."""

    name = "rapl"
    resolution_seconds = 0.001

    def __init__(self, root: Path = ROOT) -> None:
        """Take the folder of powercap."""
        self._root = root

    @property
    def covers(self) -> str:  # type: ignore[override]
        """Return what is counted: packages, with memory or without."""
        names = self._zones()
        memory = " and their memory" if any("dram" in name for name in names) else ", not their memory"
        return f"the CPU packages{memory}, of the whole machine and not of one process"

    def why_not(self) -> str:
        """Return why it cannot be read here."""
        if not self._root.is_dir():
            return f"{self._root} is not there: a virtual machine, a container, or a CPU without RAPL"
        if not self._zones():
            return f"{self._root} has no CPU package"
        reason = super().why_not()
        if reason and any(self._denied(folder) for folder in self._zones().values()):
            return f"{reason}; only root may read it: run as root, or have an administrator allow it"
        return reason

    def read(self) -> Mapping[str, Count]:
        """Return the counters of packages and memory."""
        zones = self._zones()
        if not zones:
            raise Unreadable(f"{self._root} has no CPU package")
        return {
            name: Count(
                number_of(folder / "energy_uj") * 1e-6, _MOST_WATTS, number_of(folder / "max_energy_range_uj") * 1e-6
            )
            for name, folder in zones.items()
        }

    def _zones(self) -> dict[str, Path]:
        """Return the folders that are added, by the names of what they count."""
        found: dict[str, Path] = {}
        for folder in sorted(self._root.glob("intel-rapl:*")):
            match = _ZONE.match(folder.name)
            try:
                name = text_of(folder / "name") if match else ""
            except Unreadable:
                continue
            is_memory = bool(match and match[1]) and name == "dram"
            if is_memory or (match and not match[1] and name.startswith("package")):
                found[f"{name} ({folder.name})"] = folder
        return found

    @staticmethod
    def _denied(folder: Path) -> bool:
        path = folder / "energy_uj"
        return path.exists() and not os.access(path, os.R_OK)
