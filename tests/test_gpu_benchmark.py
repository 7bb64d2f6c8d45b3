"""The check of a machine's GPU, up to the first call that needs one; and the plugin from a checkout, not installed."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu, gpu_page, gpu_reference, gpu_steps
from benchmarks.gpu import Ledger, run_steps, verdict_of
from benchmarks.gpu_steps import STEPS, Bench, Child, Step
from pytest_ngraph.machine.facts import version_of
from tests.conftest import ROOT, skip_without
from tests.support.measuring import is_gone, wait_until

FACTS = {"name": "NVIDIA H200", "driver": "580.1", "cuda": "13.0", "cudnn": 91900, "capability": "9.0"}


class Clock:
    """A clock that only steps move on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def bench(folder: Path, *present: str, run: gpu_steps.Run = gpu_steps.run_child) -> Bench:
    made = Bench(folder, "cuda", present or gpu_steps.COMPILERS, run)
    made.write()
    return made


def taking(clock: Clock, seconds: float, got: list[float], **result: Any) -> Callable[[Bench, float], dict[str, Any]]:
    def do(bench: Bench, given: float) -> dict[str, Any]:
        got.append(given)
        clock.now += min(seconds, given)
        return {"status": "ok", "why": "", **result}

    return do


# Time


def test_every_step_has_its_time_and_what_does_not_fit_is_cut(tmp_path: Path) -> None:
    clock, got = Clock(), list[float]()
    steps = [
        Step("one", 50, 5, taking(clock, 20, got)),
        Step("two", 50, 5, taking(clock, 60, got)),
        Step("three", 50, 5, taking(clock, 60, got)),
        Step("four", 50, 20, taking(clock, 60, got)),
        Step("five", 50, 5, taking(clock, 1, got)),
    ]
    ledger = Ledger(tmp_path / "found.json", {})

    run_steps(steps, bench(tmp_path), ledger, 100, clock)

    # 100 seconds less the 5 that are left over for writing: 75 after the first, 25 after the second.
    assert got == [50, 50, 25]
    found = ledger.found["steps"]
    assert [each["status"] for each in found] == ["ok", "ok", "ok", "cut", "cut"]
    assert found[3]["why"] == "no time left: it needs 20 s or more and 0 s were left"
    assert clock.now <= 200
    assert verdict_of(found) == (3, "time ended before: four, five")


def test_all_steps_together_are_begun_within_nine_minutes(tmp_path: Path) -> None:
    clock, got = Clock(), list[float]()
    slow = [Step(step.name, step.seconds, step.least_seconds, taking(clock, 9e9, got)) for step in STEPS]
    run_steps(slow, bench(tmp_path), Ledger(tmp_path / "found.json", {}), 540, clock)
    assert clock.now - 100 <= 540
    assert len(got) >= 7


def test_what_is_found_is_on_the_disk_before_the_next_step(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "found.json"
    seen: list[list[str]] = []

    def look(bench: Bench, seconds: float) -> dict[str, Any]:
        seen.append([each["name"] for each in json.loads(file.read_text())["steps"]])
        return {"status": "ok", "why": ""}

    run_steps([Step(name, 9, 1, look) for name in "abc"], bench(tmp_path), Ledger(file, {}), 99, clock)
    assert seen == [[], ["a"], ["a", "b"]]
    assert [each.name for each in tmp_path.glob("*.new")] == []


def test_a_step_that_breaks_fails_and_costs_no_other(tmp_path: Path) -> None:
    def break_down(bench: Bench, seconds: float) -> dict[str, Any]:
        raise KeyError("placement")

    clock, got = Clock(), list[float]()
    ledger = Ledger(tmp_path / "found.json", {})
    run_steps([Step("a", 9, 1, break_down), Step("b", 9, 1, taking(clock, 1, got))], bench(tmp_path), ledger, 99, clock)
    assert [(each["status"], each["why"]) for each in ledger.found["steps"]] == [
        ("failed", "KeyError: 'placement'"),
        ("ok", ""),
    ]
    assert verdict_of(ledger.found["steps"]) == (1, "failed: a")


def test_the_conformance_of_an_absent_compiler_is_not_run_and_says_why(tmp_path: Path) -> None:
    if find_spec("tensorrt") is not None:
        pytest.skip("tensorrt is installed")
    clock, got = Clock(), list[float]()
    steps = [Step(f"conformance {name}", 9, 1, taking(clock, 1, got)) for name in ("tensorrt", "identity")]
    ledger = Ledger(tmp_path / "found.json", {})
    run_steps(steps, bench(tmp_path, "identity"), ledger, 99, clock)
    assert [each["status"] for each in ledger.found["steps"]] == ["not run", "ok"]
    assert 'pip install "pytest-ngraph[tensorrt]"' in ledger.found["steps"][0]["why"]
    assert verdict_of(ledger.found["steps"])[0] == 0


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, lambda *_: print("asked to end", flush=True))
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.mark.real
def test_a_child_whose_time_is_over_is_asked_then_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_steps, "_GRACE_SECONDS", 4.0)
    child = gpu_steps.run_child([sys.executable, "-c", STUBBORN], tmp_path, 8.0)
    assert child.status is None
    started, *said = child.output.split("\n")
    assert "asked to end" in said
    assert wait_until(lambda: is_gone(int(started)), 60)
    assert gpu_steps._outcome(child)["status"] == "cut"


# Commands


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for children that find a GPU by NVML."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    (folder / "pynvml.py").write_text(
        "import sys\nfrom tests.support.fake_nvml import Card, FakeNvml\nsys.modules[__name__] = FakeNvml(Card())\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT)]))
    place = tmp_path / "bench"
    place.mkdir()
    return place


@pytest.mark.real
@pytest.mark.parametrize(
    ("make", "least"),
    [
        (lambda folder: gpu_steps.latency_command("cuda"), 1),
        (lambda folder: gpu_steps.memory_command("cuda", ["identity", "torchscript"]), 2),
        (lambda folder: gpu_steps.quickstart_command("cuda", ["torchscript", "inductor"], folder), 10),
        (lambda folder: gpu_steps.conformance_command("identity", folder, "cuda"), 100),
        (lambda folder: gpu_steps.conformance_command("onnxruntime[cuda]", folder, "cuda"), 100),
    ],
    ids=["latency", "memory", "quickstart", "identity", "onnxruntime"],
)
def test_the_commands_of_the_steps_collect(pretended: Path, make: Callable[[Path], list[str]], least: int) -> None:
    bench(pretended, "identity", "torchscript")
    child = gpu_steps.run_child([*make(pretended), "--collect-only"], pretended, 120.0)
    assert child.status == 0, child.output
    assert (gpu_steps.counted(child.output)["collected"] or 0) >= least, child.output


@pytest.mark.real
def test_a_step_measures_what_it_says_where_the_gpu_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same suite on the CPUs: latencies and the A/A are where the step looks for them."""
    skip_without("torch")
    monkeypatch.setattr(gpu_steps, "NETWORKS", gpu_steps.NETWORKS[:1])
    made = bench(tmp_path, "identity")
    words = [*gpu_steps.latency_command("local"), "-p", "tests.support.undisturbed"]
    words[words.index("--ngraph-protocol=gate")] = "--ngraph-protocol=paper"
    child = made.run(words, tmp_path, 300.0)
    assert child.status == 0, child.output
    rows = gpu_steps._export(tmp_path / "latency.json")
    found = gpu_steps.compared({"model": gpu_steps.NETWORKS[0], "events_seconds": 1e-4, "timer_seconds": 2e-4}, rows)
    assert found["to_events"] == pytest.approx(2 * found["to_timer"])
    [control] = gpu_steps.equal_code(rows)
    assert control["model"] == gpu_steps.NETWORKS[0]


@pytest.mark.real
def test_what_is_held_on_the_gpu_is_read_where_a_memory_pass_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("torch")
    monkeypatch.setattr(gpu_steps, "HELD", gpu_steps.NETWORKS[0])

    def without_a_gpu(command: Sequence[str], folder: Path, seconds: float) -> Child:
        return gpu_steps.run_child([each.replace("=cuda", "=local") for each in command], folder, seconds)

    made = bench(tmp_path, "identity", run=without_a_gpu)
    found = gpu_steps.memory(made, 300.0)
    # On CPUs the pass holds nothing of a GPU, which the step must not take for a figure.
    name = f"identity {gpu_steps.NETWORKS[0]}"
    assert found["cells"] == [{"cell": name, "bytes": None, "why": ""}], found
    assert (found["status"], found["passed"]) == ("failed", 1)
    with closing(sqlite3.connect(made.store)) as connection, connection:
        connection.execute(
            "UPDATE prepared SET record = json_set(record, '$.peak_gpu_memory_bytes', 1234) "
            "WHERE launch_id IN (SELECT id FROM launches WHERE kind = 'memory')"
        )
    assert gpu_steps.held_on_gpu(made.store) == [{"cell": name, "bytes": 1234, "why": ""}]
    assert gpu_steps.held_on_gpu(tmp_path / "none.sqlite") == []


def test_tests_are_counted_as_they_are_told() -> None:
    output = textwrap.dedent("""
        collected 5 items / 1 deselected / 4 selected

        ../x/test_contract.py::test_contract[conv-agrees-identity] PASSED      [ 25%]
        ../x/test_contract.py::test_contract[a b-is_quiet-identity] SKIPPED (no outputs) [ 50%]
        ../x/test_contract.py::test_throughput[agrees-identity] FAILED         [ 75%]
        """)
    assert gpu_steps.counted(output) == {
        "collected": 4,
        "passed": 1,
        "skipped": 1,
        "failed": ["test_throughput[agrees-identity]"],
    }
    assert gpu_steps.counted("")["collected"] is None


# What is found


def scripted(answers: Sequence[tuple[str, Child]]) -> gpu_steps.Run:
    """Answer each command by the first line whose word is in it."""

    def run(command: Sequence[str], folder: Path, seconds: float) -> Child:
        return next(child for word, child in answers if any(word in each for each in command))

    return run


def row(metric: str, value: float, *, replica: int = 0, low: float = 0.99, high: float = 1.01) -> dict[str, Any]:
    model = gpu_steps.NETWORKS[0]
    return {
        "model": model,
        "metric": metric,
        "replica": replica,
        "value": value,
        "low": low,
        "high": high,
        "launches": 3,
    }


@pytest.mark.parametrize(
    ("ours", "low", "status", "why"),
    [
        (1.02e-4, 0.99, "ok", ""),
        (1.05e-4, 0.99, "failed", "benchmarks.gpu_networks:short: +5.0 % against events"),
        (1.00e-4, 1.005, "failed", "benchmarks.gpu_networks:short: equal code differs"),
    ],
)
def test_latencies_are_held_to_other_clocks(tmp_path: Path, ours: float, low: float, status: str, why: str) -> None:
    rows = [row("latency", ours), row("latency", 9.0, replica=1), row("speedup", 1.0, replica=1, low=low)]
    (tmp_path / "latency.json").write_text(json.dumps(rows))
    theirs = {"model": gpu_steps.NETWORKS[0], "events_seconds": 1e-4, "timer_seconds": 1.03e-4}
    run = scripted([("gpu_reference", Child(0, json.dumps(theirs), 1.0)), ("test_gpu.py", Child(0, "", 1.0))])
    found = gpu_steps.latency(bench(tmp_path, "identity", run=run), 60.0)
    assert (found["status"], found["why"]) == (status, why)


def test_a_call_by_events_is_the_span_over_its_calls() -> None:
    done: list[str] = []

    class Event:
        def record(self) -> None:
            done.append("record")

        def elapsed_time(self, end: Event) -> float:
            return 12.0  # milliseconds

    seconds = gpu_reference.by_events(lambda: done.append("call"), 3, (Event(), Event()), lambda: done.append("wait"))
    assert seconds == pytest.approx(4e-3)
    assert done == ["record", *["call", "wait"] * 3, "record", "wait"]


def options(tmp_path: Path, **others: Any) -> Namespace:
    return Namespace(**{"device": "cuda", "minutes": 9.0, "name": None, "json": tmp_path / "gpu.json", **others})


def test_a_machine_with_a_gpu_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr(gpu, "STEPS", (Step("a", 9, 1, taking(clock, 2, [])), Step("b", 9, 1, taking(clock, 3, []))))
    run = scripted([("-c", Child(0, f"a warning\n{json.dumps(FACTS)}\n", 1.0))])

    assert gpu.measure(options(tmp_path), run, clock) == 0

    found = json.loads((tmp_path / "gpu.json").read_text())
    assert (found["name"], found["gpu"], found["verdict"]) == ("nvidia-h200", FACTS, "all that is there ran and held")
    assert [(each["name"], each["seconds"]) for each in found["steps"]] == [("a", 2.0), ("b", 3.0)]
    assert "## nvidia-h200" in capsys.readouterr().out


def test_an_interrupted_run_keeps_what_it_has_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(bench: Bench, seconds: float) -> dict[str, Any]:
        raise KeyboardInterrupt

    clock = Clock()
    monkeypatch.setattr(gpu, "STEPS", (Step("a", 9, 1, taking(clock, 2, [])), Step("b", 9, 1, interrupt)))
    with pytest.raises(KeyboardInterrupt):
        gpu.measure(options(tmp_path), scripted([("-c", Child(0, json.dumps(FACTS), 1.0))]), clock)
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert (found["verdict"], [each["name"] for each in found["steps"]]) == ("interrupted", ["a"])


@pytest.mark.real
def test_without_a_gpu_it_says_so_and_what_could_not_run(tmp_path: Path) -> None:
    skip_without("torch")
    if not (version_of("torch") or "").endswith("+cpu"):
        pytest.skip("this PyTorch is built with CUDA")
    file = tmp_path / "gpu.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", f"--json={file}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"no GPU: torch {version_of('torch')}: it is built without CUDA\n")
    found = json.loads(file.read_text())
    assert [each["name"] for each in found["steps"]] == [step.name for step in STEPS]
    assert {each["status"] for each in found["steps"]} == {"not run"}
    assert "is built without CUDA" in found["absent"]["identity"]


# The page

FOUND = {
    "name": "nvidia-h200",
    "when": "2026-11-30",
    "gpu": FACTS,
    "python": "3.12.3",
    "versions": {"torch": "2.11.0+cu130", "triton": "3.6.0", "tensorrt": None},
    "absent": {"tensorrt": 'not installed (pip install "pytest-ngraph[tensorrt]")'},
    "verdict": "failed: conformance torchscript",
    "steps": [
        {"name": "doctor", "status": "ok", "why": "", "seconds": 3.0, "lines": []},
        {
            "name": "latency, A/A", "status": "ok", "why": "", "seconds": 80.2,
            "networks": [
                {
                    "model": "benchmarks.gpu_networks:short", "ours_seconds": 5.12e-5, "to_events": 1.011,
                    "to_timer": 0.998,
                },
                {"model": "benchmarks.gpu_networks:long", "ours_seconds": None, "to_events": None, "to_timer": None},
            ],
            "equal_code": [{"model": "benchmarks.gpu_networks:short", "value": 1.001, "low": 0.995, "high": 1.007}],
        },
        {
            "name": "conformance torchscript", "status": "failed", "why": "exit status 1", "seconds": 41.0,
            "collected": 120, "passed": 117, "skipped": 2, "failed": ["test_contract[a|b]"],
        },
        {
            "name": "GPU memory", "status": "ok", "why": "", "seconds": 20,
            "cells": [{"cell": "x", "bytes": 1 << 30}, {"cell": "y", "bytes": None}],
        },
        {"name": "conformance tensorrt", "status": "not run", "why": "not installed", "seconds": 0.0},
    ],
}  # fmt: skip
TABLE = r"""## nvidia-h200

NVIDIA H200, driver 580.1, CUDA 13.0, cuDNN 91900; 2026-11-30.
Python 3.12.3, torch 2.11.0+cu130, triton 3.6.0.
Not there: tensorrt: not installed (pip install "pytest-ngraph[tensorrt]").
Verdict: failed: conformance torchscript.

| step | result | seconds | what |
|---|---|---|---|
| doctor | ok | 3 |  |
| latency, A/A | ok | 80.2 |  |
| conformance torchscript | failed | 41 | exit status 1; 117 passed, 1 failed, 2 skipped of 120; test_contract[a\|b] |
| GPU memory | ok | 20 | x: 1024 MiB; y: not known |
| conformance tensorrt | not run | 0 | not installed |

| network | latency | to CUDA events | to torch.utils.benchmark | equal code |
|---|---|---|---|---|
| short | 51.2 us | 1.011 | 0.998 | 1.001 [0.995, 1.007] |
| long | - | - | - | - |
"""


def test_a_machine_is_a_table(tmp_path: Path) -> None:
    assert gpu_page.as_markdown(FOUND) == TABLE
    (tmp_path / "gpu-nvidia-h200.json").write_text(json.dumps(FOUND))
    assert gpu_page.page(tmp_path).endswith(TABLE)


def test_the_committed_page_is_what_was_found() -> None:
    committed = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert committed == gpu_page.page(gpu.RESULTS), "python -m benchmarks.gpu --page > docs/gpu.md"


# From a checkout


@pytest.fixture
def uninstalled(tmp_path: Path) -> dict[str, str]:
    """The environment of an interpreter that has all that is installed here but this package."""
    site = tmp_path / "site"
    site.mkdir()
    for folder in filter(lambda each: Path(each).name == "site-packages", reversed(sys.path)):
        for entry in Path(folder).iterdir():
            if "pytest_ngraph" not in entry.name and entry.suffix != ".pth" and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    environ = {key: value for key, value in os.environ.items() if key not in ("CI", "PYTEST_ADDOPTS", "VIRTUAL_ENV")}
    return {**environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}


@pytest.mark.real
def test_the_plugin_and_its_commands_run_from_a_checkout_that_is_not_installed(
    tmp_path: Path, uninstalled: dict[str, str]
) -> None:
    python = getattr(sys, "_base_executable", sys.executable)
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "test_it.py").write_text(
        "import pytest\nfrom pytest_ngraph import assert_speedup\n\n\n"
        "@pytest.mark.ngraph(model='block:conv', batch=[1, 2], compilers=['null'])\n"
        "def test_it(ngraph_cell):\n    assert ngraph_cell.latency.value > 0\n"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, *words], cwd=suite, env=uninstalled, capture_output=True, text=True, timeout=300)

    metadata = run("-c", "import importlib.metadata as m; m.version('pytest-ngraph')")
    if "PackageNotFoundError" not in metadata.stderr:
        pytest.skip("this interpreter has the package beside its environments")
    loaded = ("-p", "pytest_ngraph.plugin", "-p", "no:cacheprovider", "-p", "tests.support.undisturbed")
    done = run("-m", "pytest", *loaded, "--ngraph-protocol=quick", "--ngraph-baseline=null[sample_us=200]")
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    exported = run("-m", "pytest_ngraph.cli", "export", "table.json", "--store=.ngraph/results.sqlite")
    assert exported.returncode == 0, exported.stderr
    assert {each["batch"] for each in json.loads((suite / "table.json").read_text())} == {1, 2}
    said = run("-m", "pytest_ngraph.cli", "doctor", "--noise-seconds=0")
    assert said.returncode == 0, said.stderr
    words = ("--pyargs", "pytest_ngraph.conformance", "--ngraph-compiler=null", "-k", "null and option")
    assert "1 passed" in run("-m", "pytest", *loaded, *words).stdout
