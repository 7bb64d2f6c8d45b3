"""The device local: its CPUs and threads, and what its workers are given."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.local import job, local_device
from pytest_ngraph.measure.client import Job
from pytest_ngraph.settings import Settings


def settings(folder: Path, threads: int | None = None) -> Settings:
    known = SimpleNamespace(threads=threads, seed=5, store=folder / ".ngraph" / "results.sqlite", timeout_seconds=9.0)
    return cast(Settings, known)


def made(folder: Path, *conftests: str) -> Job:
    catalogue = Catalogue()
    catalogue.add("mine", "my_pkg.my_compiler:COMPILER")
    return job(settings(folder), catalogue, local_device(settings(folder)), conftests)


def test_the_device_has_the_cpus_of_this_process_and_a_thread_for_each(tmp_path: Path) -> None:
    device = local_device(settings(tmp_path))
    assert set(device.cpus) == os.sched_getaffinity(0)
    assert device.threads == len(device.cpus)
    assert local_device(settings(tmp_path, threads=7)).threads == 7


def test_artifacts_and_logs_lie_beside_the_store(tmp_path: Path) -> None:
    one = made(tmp_path)
    assert (one.artifacts, one.logs) == (tmp_path / ".ngraph" / "artifacts", tmp_path / ".ngraph" / "logs")
    assert not (tmp_path / ".ngraph").exists()


def test_workers_import_what_pytest_can_and_know_adapters_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "relative").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "relative", "__editable__.finder.__path_hook__", *sys.path])
    one = made(tmp_path, str(tmp_path / "conftests"), str(tmp_path))
    assert one.sys_path[:3] == (str(tmp_path), str(tmp_path / "relative"), "__editable__.finder.__path_hook__")
    assert one.sys_path[-1] == str(tmp_path / "conftests")
    assert len(set(one.sys_path)) == len(one.sys_path)
    assert one.places["mine"] == "my_pkg.my_compiler:COMPILER"
