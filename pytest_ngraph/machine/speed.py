"""How fast the CPUs of a device run at a moment, and for how long heat has slowed them down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_ngraph.machine import modes

_CPUS = "sys/devices/system/cpu"
# Reading a clock takes the kernel to that CPU: a few of many are enough.
_MOST_CPUS = 8
_THROTTLED = ("core_throttle_total_time_ms", "package_throttle_total_time_ms")


class Speed:
    """The clocks of some CPUs, all where none are named."""

    def __init__(self, cpus: Sequence[int] = (), root: Path | None = None) -> None:
        """Take the CPUs and the root of the file system."""
        folder = (root or modes.ROOT) / _CPUS
        asked = [folder / f"cpu{cpu}" for cpu in cpus] or sorted(folder.glob("cpu[0-9]*"))
        step = max(1, -(-len(asked) // _MOST_CPUS))
        self._files = [each / "cpufreq/scaling_cur_freq" for each in asked[::step]]

    def megahertz(self) -> float | None:
        """Return their mean clock, None where none of them says it."""
        found = [clock for path in self._files if (clock := _number(path))]
        return sum(found) / len(found) / 1000 if found else None


def hot_seconds(root: Path | None = None) -> float | None:
    """Return for how long heat has slowed a CPU down since the machine started, the one for which it was longest.

    None where the kernel does not count it, as on machines that are not Intel's.
    """
    files = ((root or modes.ROOT) / _CPUS).glob("cpu[0-9]*/thermal_throttle/*_total_time_ms")
    found = [milliseconds for path in files if path.name in _THROTTLED and (milliseconds := _number(path)) is not None]
    return max(found) / 1000 if found else None


def _number(path: Path) -> float | None:
    try:
        return float(int(path.read_text(encoding="ascii", errors="replace")))
    except (OSError, ValueError):
        return None
