"""What machine this is, what state it is in, and which versions are installed. Unreadable facts are None, never 0."""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import importlib.machinery
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_ngraph.machine import gpu, modes, speed

_CPU = Path("/sys/devices/system/cpu")
_VERSION = re.compile(r"^Version: *(\S+)[ \t]*$", re.MULTILINE)
_VERSIONS: dict[str, tuple[tuple[object, ...], str | None]] = {}
_NAME = re.compile(r"^Name: *(\S+)[ \t]*$", re.MULTILINE)
_OF_MODULES = (*importlib.machinery.SOURCE_SUFFIXES, *importlib.machinery.EXTENSION_SUFFIXES)
# What an editable install lays open of a project's folder and is not what it brings.
_BESIDE_PACKAGES = frozenset({"conftest.py", "noxfile.py", "setup.py", "docs", "examples", "test", "tests"})
_CGROUP = Path("/sys/fs/cgroup")
_MOST_STEAL, _MOST_OTHERS, _MOST_SLOWED = 0.05, 0.5, 0.05
# Beside others that take more of all CPUs nothing is ever alone, whether it waits or not.
_MOST_SHARED = 0.7

# What a run is made with. A test holds it to the extras, and to what compilers, optimizers and kinds of models name.
VERSIONED = (
    "pytest-ngraph", "pytest", "numpy", "scipy", "psutil", "torch", "torchvision", "timm", "onnx", "onnxscript",
    "onnxruntime", "openvino", "apache-tvm", "apache-tvm-ffi", "tensorrt", "onnx2torch", "pytest-benchmark",
    "triton", "nvidia-ml-py", "executorch", "iree-base-compiler", "iree-base-runtime", "transformers", "safetensors",
    "torch-pruning", "nncf",
)  # fmt: skip


class Company(str):
    """A disturbance that single visits show by their run-delay, or by what was taken of them: others used the CPUs."""

    __slots__ = ()


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None. A change of what is installed is noticed."""
    folders = _folders_of_distributions()
    known = _VERSIONS.get(distribution)
    if known is not None and known[0] == folders:
        return known[1]
    try:
        found = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        version = None
    else:
        version = _header(_VERSION, found)
        if version is None:
            # No wheel: a folder with sources can have its version rewritten in place.
            return found.version
    _VERSIONS[distribution] = folders, version
    return version


def _folders_of_distributions() -> tuple[object, ...]:
    """Return what changes with what is installed: pip renames the folder of a wheel that it replaces."""
    # The finders themselves: kept, they share their addresses with none that comes later.
    return (*sys.meta_path, *((entry, _changed_ns(entry)) for entry in sys.path))


def _changed_ns(folder: str) -> int | None:
    try:
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 - asked thousands of times
    except OSError:
        return None


def _header(pattern: re.Pattern[str], distribution: importlib.metadata.Distribution) -> str | None:
    """Return what stands among a distribution's headers. The library reads them all, of long ones for milliseconds."""
    headers, _, _ = (distribution.read_text("METADATA") or "").partition("\n\n")
    return match[1] if (match := pattern.search(headers)) else None


def version_of_module(module: str) -> str | None:
    """Return the version of the distribution that brings an import name, which may be called otherwise."""
    version = version_of(module)
    if version is None:
        found = {version_of(name) for name in distributions_by_module().get(module, [])}
        version = ",".join(sorted(filter(None, found))) or None
    return version


@functools.cache
def distributions_by_module() -> Mapping[str, list[str]]:
    """Return which distributions bring which import names, read once: it takes a look at every one that is installed.

    As ``importlib.metadata.packages_distributions`` says it, which makes objects of all headers and all files, most of
    a second where PyTorch is among them.
    """
    brought: dict[str, list[str]] = {}
    for each in importlib.metadata.distributions():
        if name := _header(_NAME, each) or each.metadata["Name"]:
            for module in (each.read_text("top_level.txt") or "").split() or _modules_in(each):
                brought.setdefault(module, []).append(name)
    return brought


def _modules_in(distribution: importlib.metadata.Distribution) -> set[str]:
    """Return the import names that a distribution brings by the list of its files, of whatever kind its modules are.

    What a ``.pth`` of its own makes known lies in the folders that it names.
    """
    rows = csv.reader((distribution.read_text("RECORD") or distribution.read_text("SOURCES.txt") or "").splitlines())
    found: set[str] = set()
    for row in rows:
        path = row[0] if row else ""
        if path.endswith(_OF_MODULES):
            found.add(path.partition("/")[0])
        elif path.endswith(".pth") and "/" not in path:
            found |= _modules_by(Path(str(distribution.locate_file(path))))
    # The first part of a path is a folder, or the file of a module; of scripts it is neither.
    return {name for name in map(_without_suffix, found) if name.isidentifier()}


def _without_suffix(file: str) -> str:
    """Return the name of a module's file without the longest suffix that it can have, any other name as it is."""
    suffix = max((each for each in _OF_MODULES if file.endswith(each)), key=len, default="")
    return file.removesuffix(suffix)


def _modules_by(path: Path) -> set[str]:
    """Return the modules and packages in the folders that a ``.pth`` names, but for what projects have beside them."""
    found: set[str] = set()
    for line in (_read(path) or "").splitlines():
        if line.startswith(("#", "import ", "import\t")) or not line.strip():
            continue
        with contextlib.suppress(OSError):
            files = [*(folder := path.parent / line.strip()).iterdir(), *folder.glob("*/__init__.*")]
            modules = [each for each in files if each.name.endswith(_OF_MODULES)]
            found |= {each.name if each.parent == folder else each.parent.name for each in modules}
    return found - _BESIDE_PACKAGES


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


@functools.cache
def cpu_flags() -> str | None:
    """Return a digest of what the processor can do, as the kernel lists it: a host may hide some of it from a guest."""
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return hashlib.sha256(" ".join(sorted(value.split())).encode()).hexdigest()[:16]
    return None


def fingerprint(accelerator: str = "cpu") -> dict[str, Any]:
    """Return what makes launches of two machines incomparable: part of what evidence is keyed by.

    With an accelerator such as ``cuda:0`` its GPU is among it.
    """
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cpu": cpu_model(),
        # What a host hides of the processor decides what is compiled for it, and by which kernels it computes.
        "cpu_flags": cpu_flags(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "node": platform.node(),
        **({} if accelerator == "cpu" else {"gpu": gpu.find(accelerator).identity()}),
    }


def describe(accelerator: str = "cpu", rootdir: Path | None = None) -> dict[str, Any]:
    """Return the facts that stay the same during a run. Those of the GPU, if there is one, under ``gpu``.

    The commit is that of ``rootdir``, or of the current folder, which a test may change, where it is not known.
    """
    import psutil

    return {
        **fingerprint(),
        "kernel": platform.release(),
        "implementation": sys.implementation.name,
        "memory_bytes": psutil.virtual_memory().total,
        "affinity": list(available_cpus()),
        "governor": _read(_CPU / "cpu0/cpufreq/scaling_governor"),
        "boost": _read(_CPU / "cpufreq/boost"),
        "power_mode": modes.power_mode(),
        "transparent_hugepages": _read(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "cpu_quota": cpu_quota(),
        "git_commit": git_commit(rootdir),
        "versions": versions(),
        **({} if accelerator == "cpu" else {"gpu": gpu.find(accelerator).facts()}),
    }


def cpu_quota() -> float | None:
    """Return how many CPUs cgroups limit this process to, or None without a limit."""
    limits = []
    for folder in _cgroups():
        both = _read(folder / "cpu.max")
        if both is None:
            both = f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"
        quota, _, period = both.partition(" ")
        try:
            limits.append(float(quota) / float(period))
        except ValueError:
            continue
    return min((limit for limit in limits if limit > 0), default=None)


def _cgroups() -> list[Path]:
    """Return the folders of the cgroups that limit this process's CPU time: its own and all above it."""
    own = [_CGROUP, _CGROUP / "cpu"]
    for line in (_read(Path("/proc/self/cgroup")) or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            own.append(_CGROUP / "cpu" / path.lstrip("/"))
        elif number == "0" and not controllers:
            own.append(_CGROUP / path.lstrip("/"))
    above = {folder for one in own for folder in (one, *one.parents) if folder.is_relative_to(_CGROUP)}
    return sorted(folder for folder in above if folder.is_dir())


def snapshot(cpus: Iterable[int] = (), accelerator: str = "cpu") -> dict[str, Any]:
    """Return the state of the machine at this moment. The difference of two says what happened between them.

    ``set_busy_seconds`` and ``set_steal_seconds`` are those of the CPUs named, or None. ``own_seconds`` is the CPU time
    of this process and of the children it has waited for. ``hot_seconds`` are those of the CPUs named, or of all where
    none are. ``gpu`` is the state of the GPU, if there is one.
    """
    import psutil

    cpus = tuple(cpus)
    times = psutil.cpu_times()
    busy, stolen = _of_set(cpus)
    taken = sum(stolen) if stolen else None
    own = os.times()
    return {
        "at": time.monotonic(),
        "set_busy_seconds": busy,
        "set_steal_seconds": taken,
        "own_seconds": own.user + own.system + own.children_user + own.children_system,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "busy_seconds": times.user + times.system + getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0),
        "steal_seconds": getattr(times, "steal", None),
        "available_memory_bytes": psutil.virtual_memory().available,
        "throttled": _throttled(),
        "governor": _read(_CPU / "cpu0/cpufreq/scaling_governor"),
        "frequency_khz": _number(_read(_CPU / "cpu0/cpufreq/scaling_cur_freq")),
        "pressure_cpu": _read(Path("/proc/pressure/cpu")),
        "power_mode": modes.power_mode(),
        "hot_seconds": speed.hot_seconds(cpus),
        **({} if accelerator == "cpu" else {"gpu": gpu.find(accelerator).state()}),
    }


def _of_set(cpus: tuple[int, ...]) -> tuple[float | None, tuple[float, ...]]:
    """Return busy seconds of some CPUs since the start, None where the machine does not say, and the stolen of each."""
    import psutil

    each = psutil.cpu_times(percpu=True)
    if not cpus or max(cpus) >= len(each):
        return None, ()
    mine = [each[cpu] for cpu in cpus]
    parts = ("user", "nice", "system", "irq", "softirq")
    busy = sum(getattr(one, part, 0.0) for one in mine for part in parts)
    return busy, tuple(one.steal for one in mine) if hasattr(mine[0], "steal") else ()


def used_seconds(cpus: Iterable[int]) -> tuple[float | None, tuple[float, ...]]:
    """Return how long some CPUs have been busy since the start, and how long the host took each for somebody else.

    The first is of all of them together, and None where the machine does not say. Then the second is empty.
    """
    return _of_set(tuple(cpus))


def busy_seconds(cpus: Iterable[int]) -> float | None:
    """Return how long some CPUs have been busy since the start, all together, None where the machine does not say."""
    return _of_set(tuple(cpus))[0]


def disturbance(begun: Mapping[str, Any], blocks_begun: Mapping[str, Any], ended: Mapping[str, Any], cpus: int) -> str:
    """Return what disturbed a launch so much that it must not count, or nothing, by three snapshots.

    While its blocks were timed: a throttled cgroup, a CPU whose clocks heat slowed down for 5 % of the time. A power
    mode that changed, the governor for one, since the launch began. On a GPU also: clocks slowed down by heat for 5 %
    of the time or by anything at either end, a changed power limit, and others that have it open for computing before
    or after. Where there is none of these it is ``Company`` if the host took over 5 % of the CPUs' time while blocks
    were timed, or if over the whole launch, as a process's time is known when it has ended, others took over half the
    wall time, or a quarter of the CPUs where there are more than two. It is none, but a reason by itself, where others
    took more than 70 % of the CPUs, and with a GPU (docs/measuring.md, step 6).
    """
    wall = max(ended["at"] - blocks_begun["at"], 1e-3)
    throttled = _difference(blocks_begun, ended, "throttled")
    if throttled:
        return f"the cgroup's CPU quota stopped this process {throttled:.0f} times"
    if begun["governor"] != ended["governor"]:
        return f"the CPU's governor changed from {begun['governor']} to {ended['governor']}"
    # A device of before says nothing of it.
    if mode := modes.changed(begun.get("power_mode"), ended.get("power_mode")):
        return mode
    if (hot := _hot_share(blocks_begun, ended, wall)) > _MOST_SLOWED:
        return f"heat slowed a CPU's clocks down for {100 * hot:.0f} % of the time"
    if "gpu" in ended and (reason := _gpu_disturbance(begun["gpu"], blocks_begun["gpu"], ended["gpu"], wall)):
        return reason
    others = others_cpus(begun, ended) or 0.0
    said = f"other processes kept {others:.1f} of {cpus} CPUs busy"
    if others > _MOST_SHARED * cpus:
        return said
    stolen = (_difference(blocks_begun, ended, "set_steal_seconds") or 0.0) / (wall * cpus)
    if stolen > _MOST_STEAL:
        said = f"the host took {100 * stolen:.0f} % of the CPUs' time (steal)"
    elif others <= max(_MOST_OTHERS, cpus / 4):
        return ""
    # How calls to a GPU take other load was not measured.
    return said if "gpu" in ended else Company(said)


def _hot_share(before: Mapping[str, Any], after: Mapping[str, Any], wall: float) -> float:
    """Return the share of the time for which heat slowed a CPU down, the one for which that was longest.

    0 where nothing says so, as on older devices. The kernel counts a time when it ends, whenever it began, so there may
    be more than passed meanwhile: no more than all of it counts.
    """
    one, other = (_counters(each.get("hot_seconds")) for each in (before, after))
    if len(one) != len(other):
        # A CPU came or went.
        return 0.0
    return min(1.0, max((now - then for then, now in zip(one, other, strict=True)), default=0.0) / wall)


def _counters(found: object) -> list[float]:
    """Return what counters of a snapshot say, none where one is no number. Devices of before have the largest only."""
    each: Sequence[Any] = found if isinstance(found, list | tuple) else [found]
    return [float(one) for one in each] if all(isinstance(one, int | float) for one in each) else []


def _gpu_disturbance(begun: Mapping[str, Any], blocks: Mapping[str, Any], ended: Mapping[str, Any], wall: float) -> str:
    hot = (_difference(blocks, ended, "hot_seconds") or 0.0) / wall
    if hot > _MOST_SLOWED:
        return f"heat slowed the GPU's clocks down for {100 * hot:.0f} % of the time"
    if slowed_by := dict.fromkeys([*(blocks["slowed_by"] or ()), *(ended["slowed_by"] or ())]):
        return f"the GPU's clocks were slowed down by {', '.join(slowed_by)}"
    before, after = begun["power_limit_watts"], ended["power_limit_watts"]
    if before is not None and after is not None and before != after:
        return f"the GPU's power limit changed from {before:g} to {after:g} W"
    # While our own workers live they may not be distinguishable from others: in a container NVML can number processes
    # otherwise.
    others = sorted({*(begun["others"] or ()), *(ended["others"] or ())})
    if others:
        return f"others have the GPU open for computing: {', '.join(others)} (end them, or take another GPU)"
    return ""


def others_cpus(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Return how many CPUs of the set others kept busy between two snapshots, None where that cannot be read."""
    busy, own = _difference(before, after, "set_busy_seconds"), _difference(before, after, "own_seconds")
    if busy is None or own is None:
        return None
    return max(0.0, busy - own) / float(after["at"] - before["at"])


def _difference(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float | None:
    one, other = before[name], after[name]
    return None if one is None or other is None else float(other - one)


def spare_memory_share() -> float:
    """Return the share of the machine's memory that is free, 0 to 1."""
    import psutil

    memory = psutil.virtual_memory()
    return float(memory.available) / float(memory.total)


def _throttled() -> int | None:
    """Return how often the quotas of cgroups have stopped their processes, None where nothing says so."""
    counts = []
    for folder in _cgroups():
        for line in (_read(folder / "cpu.stat") or "").splitlines():
            key, _, value = line.partition(" ")
            if key == "nr_throttled":
                counts.append(int(value))
    return sum(counts) if counts else None


def _number(text: str | None) -> float | None:
    return float(text) if text and text.replace(".", "", 1).isdigit() else None


def git_commit(folder: Path | None = None) -> str | None:
    """Return the commit of the working tree, with ``-dirty`` where it was changed, or None outside a repository."""
    # To look takes no lock, which would make what the user does in the repository meanwhile fail.
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}

    def run(*arguments: str) -> str | None:
        words = ["git", *arguments]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=5, cwd=folder, env=environ)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = run("rev-parse", "HEAD")
    if commit is None:
        return None
    return commit + ("-dirty" if run("status", "--porcelain", "--untracked-files=no") else "")


def summary_line(facts: Mapping[str, Any]) -> str:
    """Describe a machine in a line: processor, CPUs in the set, memory, GPU."""
    memory = facts["memory_bytes"] / (1 << 30)
    cpus = len(facts["affinity"])
    name = f", {facts['gpu']['name']}" if "gpu" in facts else ""
    return f"{facts['cpu']}, {cpus} CPU{'s' if cpus != 1 else ''}, {memory:.0f} GiB{name}"
