"""This machine's devices: CPUs, threads and GPUs, and what their workers are given."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.lab.known import Devices
from pytest_ngraph.devices.local import device_named, is_known, job, local_device
from pytest_ngraph.errors import SpecError
from pytest_ngraph.launches.client import Job
from pytest_ngraph.machine import gpu
from pytest_ngraph.options.settings import Settings, resolve
from tests.support.fake_nvml import Card, installed


def settings(folder: Path, threads: int | None = None) -> Settings:
    store = folder / ".ngraph" / "results.sqlite"
    known = SimpleNamespace(threads=threads, seed=5, store=store, timeout_seconds=9.0, against_outputs="same")
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
    assert (one.artifacts, one.logs) == (tmp_path / ".ngraph" / "artifacts", tmp_path / ".ngraph" / "ngraph-logs")
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


# The GPUs of this machine

TWO = (Card("NVIDIA H200", "GPU-aaaa-1111"), Card("NVIDIA L4", "GPU-bbbb-2222"))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(monkeypatch, *TWO):
        yield


def test_a_run_knows_what_the_gpu_of_a_device_is_called(two_gpus: None, tmp_path: Path) -> None:
    known = resolve({}, {}, rootdir=tmp_path, invocation_dir=tmp_path, environ={})
    devices = Devices(known, Catalogue(), tmp_path, tuple, print)
    assert [devices.gpu(name) for name in ("cuda", "cuda:1", "local")] == ["NVIDIA H200", "NVIDIA L4", ""]


def refused(folder: Path, name: str) -> str:
    with pytest.raises(SpecError) as caught:
        device_named(name, settings(folder))
    return str(caught.value)


def test_a_gpu_is_a_device_with_the_cpus_and_threads_of_its_host(two_gpus: None, tmp_path: Path) -> None:
    local = local_device(settings(tmp_path, threads=3))
    for name, accelerator in {"cuda": "cuda:0", "cuda:0": "cuda:0", "cuda:1": "cuda:1"}.items():
        device = device_named(name, settings(tmp_path, threads=3))
        assert device == replace(local, name=name, accelerator=accelerator)


def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(two_gpus: None, tmp_path: Path) -> None:
    assert refused(tmp_path, "cuda:2") == (
        "device 'cuda:2': there is no GPU cuda:2 (known: cuda:0 (NVIDIA H200), cuda:1 (NVIDIA L4))"
    )


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1", ["NVIDIA L4"]),
        ("1,0", ["NVIDIA L4", "NVIDIA H200"]),
        ("GPU-bbbb", ["NVIDIA L4"]),
        ("GPU-bbbb-2222, 0", ["NVIDIA L4", "NVIDIA H200"]),
        # CUDA stops at a name that it does not know, and at one that means several.
        ("0,7,1", ["NVIDIA H200"]),
        ("GPU-,1", []),
        ("", []),
        ("-1", []),
    ],
)
def test_gpus_are_counted_as_cuda_shows_them(
    two_gpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, names: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    for index, name in enumerate(names):
        assert gpu.find(device_named(f"cuda:{index}", settings(tmp_path)).accelerator).facts()["name"] == name
    said = refused(tmp_path, f"cuda:{len(names)}")
    assert f"CUDA_VISIBLE_DEVICES={visible} hides the others" in said
    assert "known: none" in said or names


def test_without_nvml_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.find.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert refused(tmp_path, "cuda") == (
        "device 'cuda': GPUs are found through NVML (pip install \"pytest-ngraph[cuda]\")"
    )


def test_without_a_driver_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, driver=False):
        said = refused(tmp_path, "cuda:1")
    assert said == (
        "device 'cuda:1': NVML finds no GPUs here (Driver Not Loaded); is the NVIDIA driver installed and loaded?"
    )


@pytest.mark.parametrize("name", ["orin", "cuda:", "cuda:01", "cuda:-1", "cuda:1:2", "cuda0", "CUDA", ""])
def test_another_name_is_refused_with_the_known_ones(tmp_path: Path, name: str) -> None:
    assert not is_known(name)
    assert refused(tmp_path, name) == f"unknown device {name!r} (known: local, cuda, cuda:N)"


def test_names_are_known_without_looking_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert all(map(is_known, ("local", "cuda", "cuda:0", "cuda:17")))


def test_no_gpu_is_looked_for_where_none_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert local_device(settings(tmp_path)).accelerator == "cpu"
