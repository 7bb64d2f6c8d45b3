"""Files of the start folder that have names of the standard library's modules stand in for none of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ngraph import interpreter
from pytest_ngraph.compilers.tvm.candidates import Bench
from pytest_ngraph.devices.agent import tasks
from pytest_ngraph.devices.registry import DeviceEntry
from pytest_ngraph.devices.wire import wire
from pytest_ngraph.launches.reference import Reference
from pytest_ngraph.spec.cells import Device
from tests.conftest import ROOT, skip_without
from tests.support.measuring import SMALL

# Those of the issue, those that Python reads first, and those that runtimes import late.
NAMES = (
    "signal", "platform", "statistics", "json", "typing", "random", "numbers", "types", "queue", "profile", "trace",
    "code", "calendar", "struct", "resource", "select",
)  # fmt: skip
# ``python -m pytest`` would not get as far as pytest here.
PYTEST = "import sys; sys.path[:] = filter(None, sys.path); import pytest; sys.exit(pytest.main())"
MODEL = """
import torch
import layers


def make():
    return layers.Net()


make.example_inputs = lambda batch: torch.ones(batch, 8)
"""
LAYERS = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x).relu()
"""


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    """A folder with a file for each of the names, none of which can be imported."""
    folder = tmp_path / "crowded"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"raise ImportError('the start folder has a {name}.py')\n")
    return folder


def run_pytest(folder: Path, *arguments: str, path: str = "") -> str:
    """Run a suite as the command ``pytest`` does in this folder; return what it printed, where it passed."""
    environ = {key: value for key, value in os.environ.items() if key not in ("CI", "PYTEST_ADDOPTS")}
    environ |= {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), path])), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = ["-p", "pytest_ngraph.plugin", "-p", "no:cacheprovider", "--ngraph-protocol=quick", *arguments]
    done = subprocess.run(
        [sys.executable, "-c", PYTEST, *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def add_suite(folder: Path, marks: str) -> None:
    (folder / "test_speed.py").write_text(
        "import pytest\nfrom pytest_ngraph import assert_speedup\n\n\n"
        f"@pytest.mark.ngraph({marks})\ndef test_it(ngraph_cell):\n    assert ngraph_cell.latency.value > 0\n"
    )


@pytest.mark.real
def test_a_suite_is_measured_in_a_folder_with_files_of_such_names(crowded: Path) -> None:
    add_suite(crowded, "model='block:conv', compilers=['null']")
    assert "1 passed" in run_pytest(crowded, "--ngraph-baseline=null[sample_us=200]")


@pytest.mark.real
def test_runtimes_compile_a_model_of_such_a_folder(crowded: Path) -> None:
    skip_without("torch", "onnx", "onnxscript", "onnxruntime")
    (crowded / "model.py").write_text(MODEL)
    (crowded / "layers.py").write_text(LAYERS)
    add_suite(crowded, "model='model.py:make'")
    chosen = "identity,torchscript,onnxruntime"
    if shutil.which("g++"):
        chosen += ",inductor"
    # Two threads beside other tests wait for one another.
    printed = run_pytest(crowded, f"--ngraph-compiler={chosen}", "--ngraph-threads=1")
    assert f"{chosen.count(',') + 1} passed" in printed


@pytest.mark.real
def test_a_folder_of_pythonpath_is_no_start_folder_either(crowded: Path, tmp_path: Path) -> None:
    # What pytest itself imports would end pytest.
    for name in set(NAMES) - {"statistics", "queue", "profile", "trace"}:
        (crowded / f"{name}.py").unlink()
    suite = tmp_path / "suite"
    suite.mkdir()
    add_suite(suite, "model='block:conv', compilers=['null']")
    assert "1 passed" in run_pytest(suite, "--ngraph-baseline=null[sample_us=200]", path=str(crowded))


@pytest.mark.real
def test_the_conformance_suite_runs_in_such_a_folder(crowded: Path) -> None:
    words = ("--pyargs", "pytest_ngraph.conformance", "--ngraph-compiler=null", "-k", "null and option")
    assert "1 passed" in run_pytest(crowded, *words)


def test_the_reference_kernel_runs_in_such_a_folder(crowded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(crowded)
    kernel = Reference(sorted(os.sched_getaffinity(0)))
    try:
        assert kernel.read() is not None
    finally:
        kernel.close()


def test_a_command_runs_in_such_a_folder(crowded: Path) -> None:
    words = interpreter.command("pytest_ngraph.cli", "catalogue")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=crowded, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "onnxruntime" in done.stdout
    refused = subprocess.run([*words, "--wrong"], cwd=crowded, env=environ, capture_output=True, text=True)
    assert refused.returncode == 2


@pytest.mark.real
def test_an_agent_measures_for_a_project_with_such_files(
    crowded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is started in such a folder, and such a folder is the path of what it was sent."""
    skip_without("distributed")
    monkeypatch.chdir(crowded)
    monkeypatch.setenv(tasks.FOLDER_VARIABLE, str(tmp_path / "agent"))
    device = Device("orin", tuple(sorted(os.sched_getaffinity(0))), 1)
    made_of = tasks.bench_of(
        DeviceEntry("orin", "lab", "orin"), device, protocol=SMALL, seed=0, timeout_seconds=60.0, places={}
    )
    made_of["env"] = {"PYTHONPATH": f"{ROOT}{os.pathsep}{crowded}"}
    for name in ("signal", "struct", "types", "typing"):  # what Python itself reads before any of ours
        (crowded / f"{name}.py").unlink()
    asked = wire.Request("missing", made_of, {"compilers": ["null"]}, {"quiet_seconds": 60.0})
    *_, last = wire.lines_of(tasks.run_cell(asked.to_text()))
    assert wire.value_of(wire.event_of(last).values[0], "orin") == {"null": None}


@pytest.mark.real
def test_the_processes_of_the_tuner_start_in_such_a_folder(
    crowded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("tvm")
    monkeypatch.chdir(crowded)
    with Bench({"kind": "llvm"}, "cpu:0", tmp_path, builders=1, threads=1) as bench:
        process = bench._timer._start()
        assert process.poll() is None


@pytest.mark.real
def test_the_compiling_processes_of_inductor_start_on_such_a_path(crowded: Path) -> None:
    skip_without("torch")
    code = f"""
import sys
from pytest_ngraph.compilers.torch.inductor import COMPILER
from pytest_ngraph.interpreter import standard_library_first
sys.path.insert(0, {str(crowded)!r})
with standard_library_first():
    COMPILER.load()
    from operator import add
    from torch._inductor.compile_worker.subproc_pool import SubprocPool
    pool = SubprocPool(1)
    print(pool.submit(add, 1, 2).result(60))
    pool.shutdown()
"""
    file = crowded.parent / "ask.py"
    file.write_text(code)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, file], env=environ, capture_output=True, text=True, timeout=300)
    assert done.stdout == "3\n", done.stderr


ASK = """
import json, sys
sys.path.insert(0, {folder!r})
from pytest_ngraph.interpreter import standard_library_first
before = list(sys.meta_path)
with standard_library_first():
    import model
    from somelib import traced
assert sys.meta_path == before
print(json.dumps([model.calendar, model.profile, traced, model.json]))
"""


@pytest.mark.parametrize("place", ["site-packages", "dist-packages"])
def test_own_files_find_own_modules_and_libraries_find_the_standard_library(tmp_path: Path, place: str) -> None:
    project, libraries = tmp_path / "project", tmp_path / "lib" / place
    project.mkdir()
    libraries.mkdir(parents=True)
    for name in ("calendar", "profile", "trace", "json"):
        (project / f"{name}.py").write_text("OWN = True\n")
    (project / "model.py").write_text(
        "import importlib\nimport calendar as c\nimport json as j\np = importlib.import_module('profile')\n"
        "calendar, profile, json = (hasattr(each, 'OWN') for each in (c, p, j))\n"
    )
    (libraries / "somelib.py").write_text("import trace\ntraced = hasattr(trace, 'OWN')\n")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(libraries)])}
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(folder=str(project))], env=environ, capture_output=True, text=True
    )
    # json is loaded before the project's files are, in pytest as in our processes.
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, True, False, False]
