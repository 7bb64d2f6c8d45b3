"""What evidence depends on: files as they are imported now, packages, adapters' helpers, variables - and no paths."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.compilers.base import Compiler
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.compilers.onnxruntime.adapter import OnnxRuntimeCompiler
from pytest_ngraph.compilers.toolkit.kept import Kept
from pytest_ngraph.compilers.torch.inductor import InductorCompiler
from pytest_ngraph.devices import evidence
from pytest_ngraph.devices.evidence import Evidence
from pytest_ngraph.launches import client
from pytest_ngraph.launches.client import Job, worker_environment
from pytest_ngraph.machine import facts, imports
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, Device, Workload
from pytest_ngraph.workloads import keys
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.modules.project_files import imported_files, project_files

INSTALLED = imports.installed_folders()
# Stands for what was made where only the imports count.
NOTHING: Any = SimpleNamespace(modules=lambda: ())
CELL = Cell("local", CompilerSpec("null"), Workload(parse_model("block:conv")))


def write(folder: Path, sources: dict[str, str]) -> Path:
    """Write modules, by their names with slashes, into a folder."""
    for name, source in sources.items():
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    return folder


def job(folder: Path, *path: Path) -> Job:
    entries = (*map(str, path), *sys.path)
    return Job(entries, Device("local", (0,), 1), 0, folder / "artifacts", folder / "logs", {}, 60.0)


def key(job: Job, cell: Cell = CELL, **places: str) -> str | None:
    catalogue = Catalogue()
    for name, place in places.items():
        catalogue.add(name, place)
    return Evidence(catalogue, job, PROTOCOLS["gate"], 0).key(cell)


# Models


def names(files: dict[str, str]) -> set[str]:
    return {Path(name).name for name in files}


def remember(name: str, root: Path, monkeypatch: pytest.MonkeyPatch, *path: Path) -> dict[str, str]:
    """Import a model's module by a path, as a worker does, and remember what it was made from."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "path", [*map(str, path), *sys.path])
        before = dict(sys.modules)
        try:
            files = project_files(importlib.import_module(name), NOTHING)
            keys.remember_files(Workload(parse_model(f"{name}:make")), 0, root, files)
        finally:
            for added in set(sys.modules) - set(before):
                del sys.modules[added]
    return files


def test_a_module_is_known_where_it_is_imported_from_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = (write(tmp_path / name, {"tidy_nets/nets": ""}) for name in ("ours", "theirs"))
    (theirs / "tidy_nets" / "nets.py").write_text("# slower")
    cell = Cell("local", CompilerSpec("identity"), Workload(parse_model("tidy_nets.nets:make")))
    (tmp_path / "artifacts").mkdir()
    first = remember("tidy_nets.nets", tmp_path / "artifacts", monkeypatch, ours)

    assert names(first) == {"nets.py"}
    assert key(job(tmp_path, ours), cell) is not None
    # Another checkout that shares the store, or the new folder of a project that was shipped again.
    assert key(job(tmp_path, theirs), cell) is None
    remember("tidy_nets.nets", tmp_path / "artifacts", monkeypatch, theirs)
    known = {key(job(tmp_path, folder), cell) for folder in (ours, theirs)}
    assert len(known) == 2
    assert None not in known
    # Where it lies is no part of the evidence.
    (theirs / "tidy_nets" / "nets.py").write_text("")
    remember("tidy_nets.nets", tmp_path / "artifacts", monkeypatch, theirs)
    assert key(job(tmp_path, theirs), cell) == key(job(tmp_path, ours), cell)


def installed(site: Path, name: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a distribution of this name, in place of another version of it."""
    for old in site.glob(f"{name}-*.dist-info"):
        (old / "METADATA").unlink()
        old.rmdir()
    facts = site / f"{name}-{version}.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    importlib.invalidate_caches()
    monkeypatch.setattr(imports, "installed_folders", lambda: [site, *INSTALLED])


def test_an_installed_model_is_known_by_its_packages_files_and_by_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = write(
        tmp_path / "site",
        {
            "owned/__init__": "",
            "owned/nets": "import json\nimport lent.parts\nimport torchvision\nfrom . import layers, tables\n",
            "owned/layers": "from owned.deeper import SIZE\n",
            "owned/deeper": "SIZE = 1\n",
            "owned/tables": "",
            "owned/unused": "",
            "lent/__init__": "",
            "lent/parts": "",
            "torchvision/__init__": "",
        },
    )
    installed(site, "lent", "1.0", monkeypatch)
    monkeypatch.syspath_prepend(str(site))
    workload = Workload(parse_model("owned.nets:make"))
    files = remember("owned.nets", tmp_path, monkeypatch, site)

    assert names(files) == {"__init__.py", "nets.py", "layers.py", "deeper.py", "tables.py", "lent"}
    assert files["lent"] == "1.0"
    assert keys.known_files(workload, 0, tmp_path) == files
    (site / "owned" / "unused.py").write_text("SIZE = 2\n")
    assert keys.known_files(workload, 0, tmp_path) == files
    installed(site, "lent", "1.1", monkeypatch)
    assert keys.known_files(workload, 0, tmp_path) is None
    installed(site, "lent", "1.0", monkeypatch)
    (site / "owned" / "deeper.py").write_text("SIZE = 22\n")
    assert keys.known_files(workload, 0, tmp_path) is None


# Adapters

ADAPTER = """
from pytest_ngraph import Compiler

class Mine(Compiler):
    name = "mine"
    reads = "nothing"

    def compile(self, workload, device, options):
        from helping.passes import rewrite

COMPILER = Mine()
"""
MINE = Cell("local", CompilerSpec("mine"), CELL.workload)


def test_an_adapter_is_known_by_the_files_it_imports_and_none_of_them_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write(
        tmp_path / "project",
        {
            "mine_adapter": ADAPTER,
            "helping/__init__": "",
            "helping/passes": "from . import deepest\nimport lent\nraise SystemExit('this is for workers')\n",
            "helping/deepest": "",
            "helping/old": "print 'of another Python'",
            "unrelated": "",
        },
    )
    site = write(tmp_path / "site", {"lent": ""})
    installed(site, "lent", "1.0", monkeypatch)
    monkeypatch.syspath_prepend(str(project))
    monkeypatch.syspath_prepend(str(site))

    def evidence() -> str | None:
        return key(job(tmp_path), MINE, mine="mine_adapter:COMPILER")

    modules = names(imported_files("mine_adapter", sys.path))
    assert modules == {"mine_adapter.py", "__init__.py", "passes.py", "deepest.py", "lent"}
    first = evidence()
    (project / "unrelated.py").write_text("1")
    os.utime(project / "helping" / "deepest.py", (1, 1))
    assert evidence() == first
    (project / "helping" / "deepest.py").write_text("from . import old\n")
    second = evidence()
    assert second != first
    (project / "helping" / "old.py").write_text("print 'still of another Python'")
    third = evidence()
    installed(site, "lent", "1.1", monkeypatch)
    assert len({first, second, third, evidence()}) == 4
    assert not {"helping", "helping.passes", "lent"} & set(sys.modules)


def test_an_installed_adapter_is_known_by_its_files_and_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = write(
        tmp_path / "site",
        {"shipped/__init__": "", "shipped/mine": f"from .helper import x\n{ADAPTER}", "shipped/helper": "x = 1"},
    )
    installed(site, "shipped", "1.0", monkeypatch)
    monkeypatch.syspath_prepend(str(site))
    found = [key(job(tmp_path), MINE, mine="shipped.mine:COMPILER")]
    (site / "shipped" / "helper.py").write_text("x = 22")
    found.append(key(job(tmp_path), MINE, mine="shipped.mine:COMPILER"))
    installed(site, "shipped", "1.1", monkeypatch)
    found.append(key(job(tmp_path), MINE, mine="shipped.mine:COMPILER"))
    assert len(set(found)) == 3


# Variables


@pytest.mark.parametrize(
    "name",
    [
        "ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING", "CUDNN_LOGINFO_DBG",
        "DNNL_MAX_CPU_ISA", "GLIBC_TUNABLES", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "LD_PRELOAD",
        "MKL_ENABLE_INSTRUCTIONS", "NVIDIA_TF32_OVERRIDE", "OMP_WAIT_POLICY", "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE",
        "ORT_DISABLE_AVX512", "OV_CPU_MAX_ISA", "PYTHONDEVMODE", "PYTHONMALLOC", "PYTHONOPTIMIZE",
        "PYTORCH_CUDA_ALLOC_CONF", "TORCHINDUCTOR_MAX_AUTOTUNE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TVM_LOG_DEBUG",
    ],
)  # fmt: skip
def test_a_variable_that_runtimes_compute_by_is_part_of_the_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    without = key(job(tmp_path))
    monkeypatch.setenv(name, "1")
    one = key(job(tmp_path))
    monkeypatch.setenv(name, "2")
    assert len({without, one, key(job(tmp_path))}) == 3


@pytest.mark.parametrize(
    "name",
    [
        "COVERAGE_PROCESS_START", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_VERSION", "CUDA_VISIBLE_DEVICES", "HOME",
        "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "MALLOC_ARENA_MAX", "OMP_NUM_THREADS", "OV_CACHE_DIR", "PYTEST_X",
        "TORCHINDUCTOR_CACHE_DIR", "TORCH_HOME", "TVM_BIND_THREADS",
    ],
)  # fmt: skip
def test_paths_and_what_workers_do_not_get_are_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    without = key(job(tmp_path))
    monkeypatch.setenv(name, "/elsewhere")
    assert key(job(tmp_path)) == without


def test_the_variables_of_our_own_adapters_are_those_of_before() -> None:
    # Which variables decide is part of every key: one more or less, and what was measured with it before is lost.
    assert set(client._deciding()) == {
        "ATEN_", "BLIS_", "CUBLAS", "CUDA_", "CUDNN_", "DNNL_", "ET_", "EXECUTORCH_", "GLIBC_TUNABLES", "GOMP_",
        "IREE_", "KMP_", "LD_PRELOAD", "MIMALLOC_", "MKL", "NUMEXPR_", "NVIDIA_TF32_OVERRIDE", "OMP_", "ONEDNN_",
        "OPENBLAS_", "OPENVINO_", "ORT_", "OV_", "PYTHONDEVMODE", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONTRACEMALLOC",
        "PYTHON_GIL", "PYTHON_JIT", "PYTORCH_", "TCMALLOC_", "TENSORRT_", "TORCH", "TRITON_", "TRT_", "TVM_",
        "XNNPACK_", "XNN_",
    }  # fmt: skip


def test_an_adapter_from_elsewhere_says_which_variables_it_decides_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path, {"mine_vars": ADAPTER.replace('reads = "nothing"', 'reads = "nothing"\n    variables = ("MINE_",)')}
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    keys_of = [[key(job(tmp_path, tmp_path), cell, mine="mine_vars:COMPILER") for cell in (MINE, CELL)]]
    for value in ("1", "2"):
        monkeypatch.setenv("MINE_PASSES", value)
        monkeypatch.setenv("MINE_PATH", f"/{value}")
        keys_of.append([key(job(tmp_path, tmp_path), cell, mine="mine_vars:COMPILER") for cell in (MINE, CELL)])

    assert len({mine for mine, _ in keys_of}) == 3
    assert len({other for _, other in keys_of}) == 1
    monkeypatch.delenv("MINE_PASSES")
    # Where it lies is no part of it.
    assert key(job(tmp_path, tmp_path), MINE, mine="mine_vars:COMPILER") == keys_of[0][0]


# What is found beside packages


def of(compiler: str) -> Cell:
    return Cell("local", CompilerSpec.parse(compiler), CELL.workload)


def test_the_named_cxx_compiler_of_inductor_is_known_by_what_it_says_that_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    plain = {name: key(job(tmp_path), of(name)) for name in ("inductor", "identity")}
    assert None not in plain.values()
    found = [plain["inductor"]]
    for name, version in (("mine-g++", "g++ 12.2.0"), ("mine-clang++", "clang 16"), ("other-g++", "g++ 13.1.0")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{version}'\necho 'This is free software'\n")
        (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("CXX", str(tmp_path / name))
        found.append(key(job(tmp_path), of("inductor")))
        assert key(job(tmp_path), of("identity")) == plain["identity"]
    assert len(set(found)) == 4
    # Where none is named its keys are those of before, when nobody asked.
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(InductorCompiler, "found_beside", Compiler.found_beside)
    assert key(job(tmp_path), of("inductor")) == plain["inductor"]


def test_a_processor_of_which_the_host_hides_something_else_has_other_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keys_now() -> tuple[str | None, str, str]:
        kept = Kept(tmp_path, "w")
        return key(job(tmp_path)), kept._name("mine", {}), kept.records("mine", {}).name

    monkeypatch.setattr(facts, "cpu_flags", lambda: "avx2 avx512f")
    wide = keys_now()
    monkeypatch.setattr(facts, "cpu_flags", lambda: "avx2")
    masked = keys_now()
    assert [one != other for one, other in zip(wide, masked, strict=True)] == [True, True, True]
    monkeypatch.setattr(facts, "cpu_flags", lambda: "avx2 avx512f")
    assert keys_now() == wide


def test_inductor_on_a_gpu_is_known_by_its_triton_and_on_a_cpu_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delenv("CXX", raising=False)
    # There is no GPU here to be known by.
    monkeypatch.setattr(evidence, "fingerprint", lambda accelerator: {"of": accelerator})
    on_cpu = job(tmp_path)
    on_gpu = replace(on_cpu, device=replace(on_cpu.device, accelerator="cuda"))

    def keys_now() -> list[str | None]:
        on_gpus = [key(on_gpu, of(compiler)) for compiler in ("inductor", "inductor[aot]", "identity")]
        return [*on_gpus, *(key(on_cpu, of(compiler)) for compiler in ("inductor", "inductor[aot]"))]

    found = [keys_now()]
    for name, version in (("triton", "3.5.0"), ("triton", "3.6.0"), ("pytorch_triton", "3.6.0")):
        installed(site, name, version, monkeypatch)
        found.append(keys_now())
    assert [len(set(column)) for column in zip(*found, strict=True)] == [4, 4, 1, 1, 1]
    # On a CPU the keys are those of before, when nobody asked.
    monkeypatch.setattr(InductorCompiler, "found_beside", Compiler.found_beside)
    assert [key(on_cpu, of(compiler)) for compiler in ("inductor", "inductor[aot]")] == found[0][3:]


def test_the_provider_of_a_gpu_is_known_by_the_libraries_it_loads_and_the_cpus_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    # There is no GPU here to be known by.
    monkeypatch.setattr(evidence, "fingerprint", lambda accelerator: {"of": accelerator})
    on_cpu = job(tmp_path)
    on_gpu = replace(on_cpu, device=replace(on_cpu.device, accelerator="cuda"))

    def keys_now() -> list[str | None]:
        named = [key(on_gpu, of(f"onnxruntime[{provider}]")) for provider in ("cuda", "tensorrt")]
        return [*named, key(on_gpu, of("onnxruntime")), key(on_cpu, of("onnxruntime"))]

    found = [keys_now()]
    for name, version in (("nvidia_cudnn_cu12", "9.1"), ("nvidia_cudnn_cu12", "9.2"), ("tensorrt", "10.3")):
        installed(site, name, version, monkeypatch)
        found.append(keys_now())
    cuda, tensorrt, own, cpu = (len(set(column)) for column in zip(*found, strict=True))
    assert (cuda, tensorrt, own, cpu) == (3, 4, 3, 1)
    # On a CPU the keys are those of before, when nobody asked.
    monkeypatch.setattr(OnnxRuntimeCompiler, "found_beside", Compiler.found_beside)
    assert key(on_cpu, of("onnxruntime")) == found[0][3]


def test_workers_have_the_variables_of_when_the_run_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.delenv("KMP_BLOCKTIME", raising=False)
    one = job(tmp_path)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("KMP_BLOCKTIME", "0")
    monkeypatch.setenv("OF_THE_MODEL", "later")
    given = worker_environment(one.device, "steady", 0, tmp_path, one.variables)
    assert (given["OMP_WAIT_POLICY"], given["OF_THE_MODEL"], "KMP_BLOCKTIME" in given) == ("active", "later", False)


def test_workers_are_not_traced_with_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COV_CORE_SOURCE", "COV_CORE_DATAFILE", "COVERAGE_PROCESS_START", "COVERAGE_RCFILE", "PYTEST_X"):
        monkeypatch.setenv(name, "1")
    given = worker_environment(Device(), "steady", 0, tmp_path)
    assert not [name for name in given if name.startswith(("COV_CORE_", "COVERAGE_", "PYTEST_"))]


def test_a_folder_without_an_init_is_followed_where_a_name_in_it_is_put_together(tmp_path: Path) -> None:
    write(tmp_path, {"suite": "import importlib\n\ndef make(name):\n    importlib.import_module('sizes.' + name)\n"})
    (tmp_path / "sizes").mkdir()
    (tmp_path / "sizes" / "small.py").write_text("DEPTH = 2\n")
    found = imported_files("suite", [str(tmp_path)])
    assert {Path(name).name for name in found} == {"suite.py", "small.py"}


def test_two_files_of_one_name_that_change_places_are_another_model(tmp_path: Path) -> None:
    contents = []
    for name, (small, large) in {"one": (2, 9), "two": (9, 2), "one_more": (2, 9)}.items():
        folder = tmp_path / name
        for size, depth in (("small", small), ("large", large)):
            (folder / size).mkdir(parents=True)
            (folder / size / "net.py").write_text(f"DEPTH = {depth}\n")
        write(folder, {"suite": "from large.net import DEPTH\nfrom small.net import DEPTH as LESS\n"})
        contents.append(keys.contents(imported_files("suite", [str(folder)])))
    assert contents[0] == contents[2] != contents[1]
