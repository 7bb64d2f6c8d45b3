"""What machine this is, what state it is in, and which versions are installed; unreadable facts are None, never 0."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_CPU = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")
VERSIONED = (
    "pytest-ngraph", "pytest", "numpy", "scipy", "psutil", "torch", "torchvision", "timm", "onnx", "onnxscript",
    "onnxruntime", "openvino", "apache-tvm", "apache-tvm-ffi", "tensorrt", "onnx2torch", "pytest-benchmark",
)  # fmt: skip


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions(distributions: Iterable[str] = VERSIONED) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    found = {name: version_of(name) for name in distributions}
    return {name: version for name, version in found.items() if version is not None}


def available_cpus() -> tuple[int, ...]:
    """Return the CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


@functools.cache
def cpu_model() -> str:
    """Return the processor's name as the kernel gives it."""
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


def fingerprint() -> dict[str, Any]:
    """Return what makes launches of two machines incomparable: part of what evidence is keyed by."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "node": platform.node(),
    }


def describe() -> dict[str, Any]:
    """Return the facts that stay the same during a run."""
    import psutil

    return {
        **fingerprint(),
        "kernel": platform.release(),
        "implementation": sys.implementation.name,
        "memory_bytes": psutil.virtual_memory().total,
        "affinity": list(available_cpus()),
        "governor": _read(_CPU / "cpu0/cpufreq/scaling_governor"),
        "boost": _read(_CPU / "cpufreq/boost"),
        "transparent_hugepages": _read(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "cpu_quota": cpu_quota(),
        "git_commit": git_commit(),
        "versions": versions(),
    }


def cpu_quota() -> float | None:
    """Return how many CPUs a cgroup limits this process to, or None without a limit."""
    both = _read(_CGROUP / "cpu.max")
    if both is None:
        both = f"{_read(_CGROUP / 'cpu/cpu.cfs_quota_us')} {_read(_CGROUP / 'cpu/cpu.cfs_period_us')}"
    quota, _, period = both.partition(" ")
    try:
        value = float(quota) / float(period)
    except ValueError:
        return None
    return value if value > 0 else None


def snapshot() -> dict[str, Any]:
    """Return the state of the machine at this moment; the difference of two says what happened between them."""
    import psutil

    times = psutil.cpu_times()
    return {
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "busy_seconds": times.user + times.system + getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0),
        "steal_seconds": getattr(times, "steal", None),
        "available_memory_bytes": psutil.virtual_memory().available,
        "throttled": _throttled(),
        "governor": _read(_CPU / "cpu0/cpufreq/scaling_governor"),
        "frequency_khz": _number(_read(_CPU / "cpu0/cpufreq/scaling_cur_freq")),
        "pressure_cpu": _read(Path("/proc/pressure/cpu")),
    }


def spare_memory_share() -> float:
    """Return the share of the machine's memory that is free, 0 to 1."""
    import psutil

    memory = psutil.virtual_memory()
    return float(memory.available) / float(memory.total)


def _throttled() -> int | None:
    """Return how often the cgroup's quota has stopped its processes."""
    text = _read(_CGROUP / "cpu.stat") or _read(_CGROUP / "cpu/cpu.stat") or ""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == "nr_throttled":
            return int(value)
    return None


def _number(text: str | None) -> float | None:
    return float(text) if text and text.replace(".", "", 1).isdigit() else None


def git_commit(folder: Path | None = None) -> str | None:
    """Return the commit of the working tree, with ``-dirty`` where it was changed, or None outside a repository."""

    def run(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=5, cwd=folder)  # noqa: S607
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = run("rev-parse", "HEAD")
    if commit is None:
        return None
    return commit + ("-dirty" if run("status", "--porcelain", "--untracked-files=no") else "")


def file_digest(path: Path) -> str | None:
    """Return the sha256 of a file, or None where it cannot be read."""
    import hashlib

    try:
        with path.open("rb") as file:
            # hashlib.file_digest came with Python 3.11.
            state = hashlib.sha256()
            for chunk in iter(lambda: file.read(1 << 20), b""):
                state.update(chunk)
            return state.hexdigest()
    except OSError:
        return None


def summary_line(facts: Mapping[str, Any]) -> str:
    """Describe a machine in a line: processor, CPUs in the set, memory."""
    memory = facts["memory_bytes"] / (1 << 30)
    cpus = len(facts["affinity"])
    return f"{facts['cpu']}, {cpus} CPU{'s' if cpus != 1 else ''}, {memory:.0f} GiB"
