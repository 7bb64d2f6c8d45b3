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
        asked = _folders(cpus, root)
        step = max(1, -(-len(asked) // _MOST_CPUS))
        self._files = [each / "cpufreq/scaling_cur_freq" for each in asked[::step]]

    def megahertz(self) -> float | None:
        """Return their mean clock, None where none of them says it."""
        found = [clock for path in self._files if (clock := _number(path))]
        return sum(found) / len(found) / 1000 if found else None


def hot_seconds(cpus: Sequence[int] = (), root: Path | None = None) -> list[float] | None:
    """Return for how long heat has slowed some CPUs down since the machine started, by each counter of theirs.

    They are all CPUs where none are named. Only two readings of one counter say something of the time between: of
    several CPUs one may have been hot for hours before. None where the kernel does not count it, as on machines that
    are not Intel's.
    """
    files = (folder / "thermal_throttle" / name for folder in _folders(cpus, root) for name in _THROTTLED)
    return [milliseconds / 1000 for path in files if (milliseconds := _number(path)) is not None] or None


def _folders(cpus: Sequence[int], root: Path | None) -> list[Path]:
    folder = (root or modes.ROOT) / _CPUS
    return [folder / f"cpu{cpu}" for cpu in cpus] or sorted(folder.glob("cpu[0-9]*"))


def _number(path: Path) -> float | None:
    try:
        return float(int(path.read_text(encoding="ascii", errors="replace")))
    except (OSError, ValueError):
        return None
