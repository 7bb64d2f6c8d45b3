"""The power mode of a machine: what decides how fast its clocks may be, as files of the system say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path("/")
_CPU_CLOCK, _CPU_CLOCKS = "highest clock (kHz)", "sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq"
_DEVICE_CLOCK, _DEVICE_CLOCKS = "highest clock of a device (Hz)", "sys/class/devfreq/*/max_freq"
_PERFORMANCE, _POWER_LIMIT = "highest performance (%)", "package power limit (uW)"
# Each by what it is called in a message; what is not there is not among the mode.
_FILES: Mapping[str, str] = {
    "governor": "sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    _CPU_CLOCK: _CPU_CLOCKS,
    "energy preference": "sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference",
    "boost": "sys/devices/system/cpu/cpufreq/boost",
    "no turbo": "sys/devices/system/cpu/intel_pstate/no_turbo",
    _PERFORMANCE: "sys/devices/system/cpu/intel_pstate/max_perf_pct",
    "platform profile": "sys/firmware/acpi/platform_profile",
    _POWER_LIMIT: "sys/class/powercap/intel-rapl:*/constraint_*_power_limit_uw",
    "nvpmodel": "var/lib/nvpmodel/status",
    _DEVICE_CLOCK: _DEVICE_CLOCKS,
}
# Where the lowest clocks are the highest the clocks stand still, as after jetson_clocks, however hot it is.
_LOCKED: Mapping[str, tuple[str, str]] = {
    "CPU clocks": ("sys/devices/system/cpu/cpufreq/policy*/scaling_min_freq", _CPU_CLOCKS),
    "device clocks": ("sys/class/devfreq/*/min_freq", _DEVICE_CLOCKS),
}
# Heat, and daemons that watch it, lower these by themselves: that disturbs a launch, and makes no other machine.
_MOVED_BY_HEAT = frozenset({_CPU_CLOCK, _DEVICE_CLOCK, _PERFORMANCE, _POWER_LIMIT})


def power_mode(root: Path | None = None) -> dict[str, str]:
    """Return the power mode by its parts, each with the values of all its files."""
    root = root or ROOT
    found: dict[str, str] = {}
    for name, pattern in _FILES.items():
        if values := _values(root, pattern):
            found[name] = values[0] if len(set(values)) == 1 else ", ".join(values)
    for name, (lowest, highest) in _LOCKED.items():
        if values := _values(root, lowest):
            found[name] = "locked" if values == _values(root, highest) else "free"
    return found


def _values(root: Path, pattern: str) -> list[str]:
    """Return what those files say that can be read, in the order of their names."""
    values = []
    for path in sorted(root.glob(pattern)):
        try:
            values.append(path.read_text(encoding="utf-8", errors="replace").strip())
        except OSError:
            continue
    return values


def lasting(mode: Mapping[str, str]) -> dict[str, str]:
    """Return a power mode without what heat lowers by itself."""
    return {name: value for name, value in mode.items() if name not in _MOVED_BY_HEAT}


def chosen(mode: Mapping[str, str]) -> dict[str, str]:
    """Return what of a power mode stays until somebody chooses another one: part of what measurements are kept by."""
    kept = lasting(mode)
    # A Jetson's file also says how its fan turns.
    if number := re.search(r"pmode:\s*(\S+)", kept.get("nvpmodel", "")):
        kept["nvpmodel"] = number[1]
    return kept


def changed(before: object, after: object) -> str:
    """Return what of a power mode changed, or nothing. What is not known on one of the sides did not change."""
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return ""
    parts = [
        f"{name} from {before[name]} to {after[name]}"
        for name in before
        if name in after and before[name] != after[name]
    ]
    return f"the power mode changed midway: {'; '.join(parts)}" if parts else ""
