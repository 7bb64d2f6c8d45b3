"""Folders that look as the kernel's do: powercap, hwmon, devfreq and cpufreq below a root of their own."""

from __future__ import annotations

from pathlib import Path


def put(path: Path, text: object) -> Path:
    """Write a file with its folders, as the kernel ends it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
    return path


def zone(sys: Path, folder: str, name: str, microjoules: int, wraps_at: int = 262_143_328_850) -> Path:
    """Add a zone of powercap and return its counter."""
    place = sys / "class/powercap" / folder
    put(place / "name", name)
    put(place / "max_energy_range_uj", wraps_at)
    return put(place / "energy_uj", microjoules)


def server(sys: Path) -> dict[str, Path]:
    """Add two packages with cores, uncore and memory, the platform, and the first package once more by MMIO."""
    counters = {
        "package-0": zone(sys, "intel-rapl:0", "package-0", 1_000_000),
        "core": zone(sys, "intel-rapl:0:0", "core", 500_000),
        "uncore": zone(sys, "intel-rapl:0:1", "uncore", 100_000),
        "dram": zone(sys, "intel-rapl:0:2", "dram", 300_000),
        "package-1": zone(sys, "intel-rapl:1", "package-1", 2_000_000),
        "psys": zone(sys, "intel-rapl:2", "psys", 9_000_000),
        "mmio": zone(sys, "intel-rapl-mmio:0", "package-0", 1_000_000),
    }
    put(sys / "class/powercap/intel-rapl/enabled", 1)
    return counters


def rail(sys: Path, hwmon: str, channel: int, label: str, millivolts: int, milliamperes: int) -> Path:
    """Add a rail of an INA3221 and return the file of its current."""
    folder = sys / "class/hwmon" / hwmon
    put(folder / "name", "ina3221")
    put(folder / f"in{channel}_label", label)
    put(folder / f"in{channel}_input", millivolts)
    return put(folder / f"curr{channel}_input", milliamperes)


def orin(sys: Path) -> Path:
    """Add the rails of an Orin NX beside a fan, and return the file of the input's current."""
    put(sys / "class/hwmon/hwmon0/name", "pwmfan")
    current = rail(sys, "hwmon1", 1, "VDD_IN", 4960, 1200)
    rail(sys, "hwmon1", 2, "VDD_CPU_GPU_CV", 4960, 400)
    rail(sys, "hwmon1", 3, "VDD_SOC", 4960, 300)
    put(sys / "class/hwmon/hwmon1/in7_label", "sum of shunt voltages")
    return current


def jetson_gpu(sys: Path, load: int = 0) -> Path:
    """Add the GPU of an Orin beside another device, and return the file of its load in thousandths."""
    put(sys / "class/devfreq/15340000.vic/device/load", 999)
    return put(sys / "class/devfreq/17000000.ga10b/device/load", load)
