"""The power mode of a machine: what decides how fast its clocks may be, as files of the system say it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ROOT = Path("/")
# Each by what it is called in a message; what is not there is not among the mode.
_FILES: Mapping[str, str] = {
    "governor": "sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "highest clock (kHz)": "sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq",
    "energy preference": "sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference",
    "boost": "sys/devices/system/cpu/cpufreq/boost",
    "no turbo": "sys/devices/system/cpu/intel_pstate/no_turbo",
    "platform profile": "sys/firmware/acpi/platform_profile",
    "package power limit (uW)": "sys/class/powercap/intel-rapl:*/constraint_*_power_limit_uw",
    "nvpmodel": "var/lib/nvpmodel/status",
    "highest clock of a device (Hz)": "sys/class/devfreq/*/max_freq",
}


def power_mode(root: Path | None = None) -> dict[str, str]:
    """Return the power mode by its parts, each with the values of all its files."""
    root = root or ROOT
    found: dict[str, str] = {}
    for name, pattern in _FILES.items():
        values = []
        for path in sorted(root.glob(pattern)):
            try:
                values.append(path.read_text(encoding="utf-8", errors="replace").strip())
            except OSError:
                continue
        if values:
            found[name] = values[0] if len(set(values)) == 1 else ", ".join(values)
    return found


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
