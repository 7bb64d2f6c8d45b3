"""This machine's devices - ``local``, its CPUs, and ``cuda``, its GPUs - and the jobs that their workers get."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from pytest_ngraph import gpu
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.environment import available_cpus
from pytest_ngraph.errors import SpecError
from pytest_ngraph.measure.client import Job
from pytest_ngraph.settings import Settings
from pytest_ngraph.spec import Device

KNOWN = ("local", "cuda", "cuda:N")
# All of them use the CPUs of this machine, so one run at a time measures on any of them.
LOCK = "local"
_CUDA = re.compile(r"cuda(?::(0|[1-9][0-9]*))?\Z")


def is_known(name: str) -> bool:
    """Tell whether a device of this machine may have this name; whether there is such a GPU shows when it is used."""
    return name == "local" or _CUDA.match(name) is not None


def kind_of(name: str) -> str:
    """Return what kind of accelerator a device of this name has: ``cpu`` or ``cuda``."""
    return "cpu" if name == "local" else name.partition(":")[0]


def local_device(settings: Settings) -> Device:
    """Return this machine as a device: the CPUs this process may use, and one thread for each unless told otherwise."""
    return device_named("local", settings)


def device_named(name: str, settings: Settings) -> Device:
    """Return a device of this machine: ``local``, or with its N-th GPU ``cuda:N`` (``cuda`` is ``cuda:0``).

    Raises SpecError that says what is known and what to do, for another name and for a GPU that is not there.
    """
    cpus = available_cpus()
    threads = settings.threads or len(cpus)
    if name == "local":
        return Device(name, cpus, threads)
    match = _CUDA.match(name)
    if match is None:
        raise SpecError(f"unknown device {name!r} (known: {', '.join(KNOWN)})")
    accelerator = f"cuda:{match[1] or 0}"
    try:
        gpu.find(accelerator)
    except SpecError as error:
        raise SpecError(f"device {name!r}: {error}") from None
    return Device(name, cpus, threads, accelerator)


def job(settings: Settings, catalogue: Catalogue, device: Device, folders: Iterable[str]) -> Job:
    """Return what every worker of a run shares.

    Workers import what pytest can import: its path as it is after collection, then ``folders`` (those of the
    conftests), so that a suite's own models and adapters are found.
    """
    # Relative and empty entries mean the current folder, which a test may change before the first worker starts; an
    # entry that is no path belongs to an import hook.
    path = dict.fromkeys(
        str(Path(entry).absolute()) if Path(entry).exists() else entry for entry in [*sys.path, *folders]
    )
    return Job(
        sys_path=tuple(path),
        device=device,
        seed=settings.seed,
        artifacts=artifacts_folder(settings.store),
        logs=settings.store.parent / "logs",
        places={name: catalogue.place(name) for name in catalogue},
        timeout_seconds=settings.timeout_seconds,
    )


def artifacts_folder(store: Path) -> Path:
    """Return where artifacts are cached: beside the store of results."""
    return store.parent / "artifacts"
