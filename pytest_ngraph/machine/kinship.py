"""Which machines may be compared: the same one, one of the same class, or none."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_ngraph.machine import modes

# What makes it another machine, or the same one in another condition: times by the clock are not comparable.
_HARDWARE = ("machine", "system", "cpu", "cpu_flags", "cpus", "cpu_quota", "governor", "boost")
# What changes on a machine that stays the same, and may be the very change that is looked for.
_SOFTWARE = ("kernel", "python")
# Versions that compile or run nothing of what is timed.
_NOT_TIMED = ("pytest", "pytest-benchmark", "pytest-ngraph", "psutil")
_GPU_HARDWARE = ("name", "memory_bytes", "power_limit_watts", "mig")


class Kinship(enum.Enum):
    """How two machines are related."""

    SAME = "same machine"
    CLASS = "same class"
    OTHER = "other machine"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its name, what its hardware is and how it is set, and which software it has, as texts."""

    name: str
    hardware: Mapping[str, str]
    software: Mapping[str, str]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Machine:
        """Return the machine of what a run keeps of one. What is not known is a word of its own, never left out."""
        gpu = facts.get("gpu") or {}
        # What a release of before kept of a machine says nothing of its power mode, but for what is named above.
        mode = modes.chosen(facts.get("power_mode") or {})
        hardware = {
            **{name: _text(facts.get(name)) for name in _HARDWARE},
            **{f"{name} of the power mode": _text(value) for name, value in mode.items() if name not in _HARDWARE},
            "cores": str(len(facts.get("affinity") or ())),
            **({f"gpu {name}": _text(gpu.get(name)) for name in _GPU_HARDWARE} if gpu else {"gpu": "none"}),
        }
        software = {
            **{name: _text(facts.get(name)) for name in _SOFTWARE},
            **({"gpu driver": _text(gpu.get("driver"))} if gpu else {}),
            **{name: version for name, version in facts.get("versions", {}).items() if name not in _NOT_TIMED},
        }
        return cls(_text(facts.get("node")), hardware, software)

    def kinship(self, other: Machine) -> Kinship:
        """Return how another machine is related to this one.

        The same one has the same name, hardware and settings; what is installed on it may have changed. One of the same
        class has all of it but the name.
        """
        if self.hardware != other.hardware:
            return Kinship.OTHER
        if self.name == other.name:
            return Kinship.SAME
        return Kinship.CLASS if self.software == other.software else Kinship.OTHER

    def differing(self, other: Machine) -> list[tuple[str, str, str]]:
        """Return what differs: the name of each field, what it is here, and what it is there."""
        mine = {"name": self.name, **self.hardware, **self.software}
        theirs = {"name": other.name, **other.hardware, **other.software}
        fields = dict.fromkeys([*mine, *theirs])
        both = ((field, mine.get(field, "not there"), theirs.get(field, "not there")) for field in fields)
        return [(field, here, there) for field, here, there in both if here != there]


def _text(value: object) -> str:
    if value is None or value == "":
        return "not known"
    return f"{value:g}" if isinstance(value, float) else str(value)
