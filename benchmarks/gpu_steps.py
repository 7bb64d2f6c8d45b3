"""The steps of ``benchmarks.gpu``: children with a time each, ended cleanly when it is over, and what they found."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.local import artifacts_folder
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import parse_model

HOME = Path(__file__).resolve().parents[1]
COMPILERS = ("identity", "torchscript", "inductor", "onnxruntime[cuda]", "onnxruntime[tensorrt]", "tensorrt")
NETWORKS = tuple(f"benchmarks.gpu_networks:{name}" for name in ("short", "middle", "long"))
# Whose memory is measured: each compiler takes a process of its own for it.
HELD = NETWORKS[1]
GOAL = 0.03
# What a child that was asked to end may take for it: pytest keeps what it has finished.
_GRACE_SECONDS = 12.0
_SHOWN = 1500
_TEST = re.compile(r"^\S*::(\S.*?) (PASSED|FAILED|ERROR|SKIPPED|UNDECIDED)\b", re.MULTILINE)
_COLLECTED = re.compile(r"\bcollected (\d+) items?(?: / (\d+) deselected)?", re.MULTILINE)
_HELD = """
SELECT cells.compiler, cells.model, json_extract(record, '$.peak_gpu_memory_bytes'), prepared.reason
FROM prepared JOIN launches ON launches.id = launch_id JOIN cells ON cells.id = cell_id WHERE launches.kind = 'memory'
"""
_SUITE = """
import pytest


@pytest.mark.ngraph(models={networks!r}, compilers=["identity"])
def test_time(ngraph_models):
    assert all(cell.latency.value > 0 for cell in ngraph_models.values())


@pytest.mark.memory
@pytest.mark.ngraph(model={held!r}, compilers={compilers!r})
def test_memory(ngraph_cell):
    assert ngraph_cell.peak_memory_bytes.value > 0
"""
_INI = "[pytest]\nmarkers =\n    memory: peak memory\n"


@dataclass(frozen=True, slots=True)
class Child:
    """What became of a child: its status (None where its time was over), what it printed, and its seconds."""

    status: int | None
    output: str
    seconds: float


Run = Callable[[Sequence[str], Path, float], Child]


def run_child(command: Sequence[str], folder: Path, seconds: float) -> Child:
    """Run a command; when its time is over interrupt it, as Ctrl-C does, and soon after end all of it."""
    environ = {key: value for key, value in os.environ.items() if key not in ("CI", "PYTEST_ADDOPTS")}
    environ["PYTHONPATH"] = os.pathsep.join([str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])])
    # The plugin is named on the command line: from a checkout there is no entry point, and elsewhere not a second one.
    environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}
    output, began = folder / "output.txt", monotonic()
    with output.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        status: int | None = None
        try:
            status = process.wait(max(0.0, seconds - _GRACE_SECONDS))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
        finally:
            # Workers end with their parent.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return Child(status, output.read_text(encoding="utf-8", errors="replace"), monotonic() - began)


def pytest_command(*words: str) -> list[str]:
    """Return the command of a pytest run with the plugin of this checkout, installed or not."""
    return [sys.executable, "-m", "pytest", "-p", "pytest_ngraph.plugin", "-p", "no:cacheprovider", *words]


def why_absent(compiler: str) -> str | None:
    """Return why a compiler cannot run on this machine's GPU, as far as that can be told without the GPU."""
    spec, catalogue = CompilerSpec.parse(compiler), Catalogue()
    adapter = catalogue.get(spec.name)
    if missing := adapter.missing():
        return missing
    cell = Cell("cuda", spec, Workload(parse_model("block:conv")))
    return adapter.why_not(cell, Device("cuda", (0,), 1, "cuda:0"))


@dataclass(frozen=True, slots=True)
class Bench:
    """Where steps run: a folder, the device as ``--ngraph-device`` has it, the compilers there, what runs children."""

    folder: Path
    device: str
    present: tuple[str, ...]
    run: Run = run_child

    @property
    def accelerator(self) -> str:
        return self.device if ":" in self.device else f"{self.device}:0"

    @property
    def store(self) -> Path:
        return self.folder / ".ngraph" / "results.sqlite"

    def write(self) -> None:
        """Write the suite of the steps that measure."""
        compilers = list(self.present) or ["identity"]
        (self.folder / "pytest.ini").write_text(_INI)
        (self.folder / "test_gpu.py").write_text(_SUITE.format(networks=list(NETWORKS), held=HELD, compilers=compilers))


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its name, the seconds that it may take, those without which it is not begun, and what it does."""

    name: str
    seconds: float
    least_seconds: float
    do: Callable[[Bench, float], dict[str, Any]]


def doctor(bench: Bench, seconds: float) -> dict[str, Any]:
    """Say what is installed."""
    words = [sys.executable, "-m", "pytest_ngraph.cli", "doctor", "--noise-seconds=0"]
    child = bench.run(words, bench.folder, seconds)
    return {**_outcome(child), "lines": child.output.splitlines()}


def conformance_command(compiler: str, folder: Path, device: str) -> list[str]:
    """Return the command that holds a compiler to the contract on the GPU; the checkout's own settings are left out."""
    where = ["-c", str(folder / "pytest.ini"), f"--rootdir={folder}"]
    return pytest_command(
        "-v", "--tb=line", *where, "--pyargs", "pytest_ngraph.conformance", f"--ngraph-device={device}",
        f"--ngraph-compiler={compiler}",
    )  # fmt: skip


def conformance(compiler: str) -> Callable[[Bench, float], dict[str, Any]]:
    """Return the step that holds a compiler to the contract."""

    def do(bench: Bench, seconds: float) -> dict[str, Any]:
        child = bench.run(conformance_command(compiler, bench.folder, bench.device), bench.folder, seconds)
        return {**_outcome(child), **counted(child.output)}

    return do


def counted(output: str) -> dict[str, Any]:
    """Count what a verbose pytest run has said of its tests so far."""
    tests = _TEST.findall(output)
    collected = _COLLECTED.search(output)
    words = [word for _, word in tests]
    return {
        "collected": int(collected[1]) - int(collected[2] or 0) if collected else None,
        "passed": words.count("PASSED"),
        "skipped": words.count("SKIPPED"),
        "failed": sorted({name for name, word in tests if word in ("FAILED", "ERROR")}),
    }


def latency_command(device: str) -> list[str]:
    """Return the command that measures eager PyTorch beside a second process of itself: latencies, and an A/A."""
    return pytest_command(
        "-v", "-m", "not memory", f"--ngraph-device={device}", "--ngraph-compiler=identity",
        "--ngraph-protocol=gate", "--ngraph-budget=3", "--ngraph-fresh", "--ngraph-export=latency.json", "test_gpu.py",
    )  # fmt: skip


def latency(bench: Bench, seconds: float) -> dict[str, Any]:
    """Measure three networks, then by CUDA events and by torch.utils.benchmark; the ratios are to be within 3 %."""
    began = monotonic()
    child = bench.run(latency_command(bench.device), bench.folder, 0.75 * seconds)
    rows = _export(bench.folder / "latency.json")
    words = [sys.executable, "-m", "benchmarks.gpu_reference", bench.accelerator, str(artifacts_folder(bench.store))]
    other = bench.run([*words, *NETWORKS], bench.folder, seconds - (monotonic() - began))
    theirs = [json.loads(line) for line in other.output.splitlines() if line.startswith("{")]
    found = [compared(each, rows) for each in theirs]
    result = {**_outcome(child), "networks": found, "equal_code": equal_code(rows)}
    if result["status"] == "ok":
        result |= _outcome(other)
    missed = [
        f"{each['model']}: {100 * (each[ratio] - 1):+.1f} % against {ratio.removeprefix('to_')}"
        for each in found
        for ratio in ("to_events", "to_timer")
        if each[ratio] is not None and abs(each[ratio] - 1) > GOAL
    ]
    unequal = [each["model"] for each in result["equal_code"] if not each["low"] <= 1.0 <= each["high"]]
    wrong = [*missed, *(f"{model}: equal code differs" for model in unequal)]
    return {**result, "status": "failed", "why": "; ".join(wrong)} if wrong else result


def compared(theirs: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a network's latency by all three, and how ours compares."""
    ours = next(
        (
            float(row["value"])
            for row in rows
            if (row["model"], row["metric"], row["replica"]) == (theirs["model"], "latency", 0)
        ),
        None,
    )
    ratios = {f"to_{name}": None if ours is None else ours / theirs[f"{name}_seconds"] for name in ("events", "timer")}
    return {**theirs, "ours_seconds": ours, **ratios}


def equal_code(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the speed-ups of eager PyTorch over a second process of itself, which are 1 in truth."""
    return [
        {key: row[key] for key in ("model", "value", "low", "high", "launches")}
        for row in rows
        if row["metric"] == "speedup" and row["replica"] == 1 and row["low"] is not None
    ]


def memory_command(device: str, compilers: Sequence[str]) -> list[str]:
    """Return the command that measures what each compiler's worker holds of the GPU."""
    return pytest_command(
        "-v", "-m", "memory", f"--ngraph-device={device}", f"--ngraph-compiler={','.join(compilers)}",
        "--ngraph-protocol=quick", "test_gpu.py",
    )  # fmt: skip


def memory(bench: Bench, seconds: float) -> dict[str, Any]:
    """Ask NVML for the peak memory of each compiler's worker."""
    child = bench.run(memory_command(bench.device, bench.present), bench.folder, seconds)
    cells = held_on_gpu(bench.store)
    result = {**_outcome(child), **counted(child.output), "cells": cells}
    unread = sorted({each["why"] for each in cells if each["bytes"] is None})
    if result["status"] == "ok" and (unread or not cells):
        return {**result, "status": "failed", "why": "; ".join(unread) or "nothing was measured"}
    return result


def held_on_gpu(store: Path) -> list[dict[str, Any]]:
    """Return what each cell's memory pass has found on the GPU: its peak bytes, or why they are not known."""
    if not store.is_file():
        return []
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute(_HELD).fetchall()
    return [{"cell": f"{compiler} {model}", "bytes": held, "why": why or ""} for compiler, model, held, why in rows]


def quickstart_command(device: str, compilers: Sequence[str], folder: Path) -> list[str]:
    """Return the command that runs the quickstart on the GPU, judged."""
    return pytest_command(
        "-v", "--tb=short", str(HOME / "example_suites" / "quickstart"), f"--ngraph-device={device}",
        f"--ngraph-compiler={','.join(compilers)}", "--ngraph-protocol=gate", "--ngraph-budget=3",
        f"--ngraph-store={folder / '.ngraph' / 'quickstart.sqlite'}", f"--ngraph-export={folder / 'quickstart.json'}",
    )  # fmt: skip


def quickstart(bench: Bench, seconds: float) -> dict[str, Any]:
    """Run the quickstart under ``gate`` with every compiler that is there but the baseline."""
    compilers = [each for each in bench.present if each != "identity"]
    if not compilers:
        return {"status": "not run", "why": "no compiler but the baseline is there"}
    child = bench.run(quickstart_command(bench.device, compilers, bench.folder), bench.folder, seconds)
    rows = _export(bench.folder / "quickstart.json")
    speedups = [
        {key: row[key] for key in ("compiler", "model", "batch", "value", "low", "high", "placement")}
        for row in rows
        if row["metric"] == "speedup" and row["replica"] == 0
    ]
    result = {**_outcome(child), **counted(child.output), "speedups": speedups}
    if result["status"] == "failed" and child.status == 1 and result["failed"]:
        # A gate that fails is a verdict; what must not be is a cell that could not be measured.
        broken = sorted(
            {f"{row['compiler']} {row['model']}: {row['outcome']}" for row in rows if row["outcome"] in _BAD}
        )
        return {**result, "status": "failed" if broken else "ok", "why": "; ".join(broken)}
    return result


_BAD = ("failed", "mismatch", "crash", "oom", "timeout", "lost")


def _outcome(child: Child) -> dict[str, Any]:
    if child.status is None:
        return {"status": "cut", "why": f"its {child.seconds:.0f} s were over"}
    if child.status:
        said = child.output.strip()[-_SHOWN:]
        return {"status": "failed", "why": f"exit status {child.status}", "output": said}
    return {"status": "ok", "why": ""}


def _export(file: Path) -> list[dict[str, Any]]:
    try:
        return list(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:  # it was cut short before there was anything
        return []


# In the order of what is lost where time ends. The least is what a step needs to find out anything.
STEPS = (
    Step("doctor", 30, 5, doctor),
    Step("latency, A/A", 130, 40, latency),
    Step("conformance identity", 50, 20, conformance("identity")),
    Step("conformance torchscript", 50, 20, conformance("torchscript")),
    Step("conformance onnxruntime[cuda]", 50, 20, conformance("onnxruntime[cuda]")),
    Step("conformance tensorrt", 60, 30, conformance("tensorrt")),
    Step("GPU memory", 70, 30, memory),
    Step("quickstart under gate", 150, 50, quickstart),
    Step("conformance inductor", 100, 30, conformance("inductor")),
    Step("conformance onnxruntime[tensorrt]", 60, 30, conformance("onnxruntime[tensorrt]")),
)
