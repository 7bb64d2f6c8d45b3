"""The device ``local``: this machine, its CPUs, and the jobs that its workers are given."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.environment import available_cpus
from pytest_ngraph.measure.client import Job
from pytest_ngraph.settings import Settings
from pytest_ngraph.spec import Device

KNOWN = ("local",)


def local_device(settings: Settings) -> Device:
    """Return this machine as a device: the CPUs this process may use, and one thread for each unless told otherwise."""
    cpus = available_cpus()
    return Device("local", cpus, settings.threads or len(cpus))


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
