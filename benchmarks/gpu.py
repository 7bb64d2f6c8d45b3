"""Whether the CUDA path works on this machine's NVIDIA GPU, in nine minutes, from a checkout and without a network.

``python -m benchmarks.gpu``, or ``make gpu``, with a Python whose PyTorch sees the GPU. It needs what the plugin needs
(pytest, numpy, scipy, psutil), PyTorch and nvidia-ml-py; it says which compilers are absent. What is found is written
as it arrives; ``--page`` makes docs/gpu.md of all that was found so far. Exit status: 0 where all that is there ran and
held, 1 where something failed, 2 without a GPU, 3 where time ended first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from benchmarks.gpu_page import as_markdown, page
from benchmarks.gpu_steps import COMPILERS, HOME, STEPS, Bench, Run, Step, run_child, why_absent
from benchmarks.sets import end_well
from pytest_ngraph.machine.facts import version_of_module

RESULTS = HOME / "benchmarks" / "results"
# Left over for writing and for ending what runs.
_RESERVE_SECONDS = 5.0
_NEEDED = ("pytest", "numpy", "scipy", "psutil", "torch")
_VERSIONS = ("torch", "triton", "onnx", "onnxruntime", "tensorrt", "timm")
# A process of its own: one that has looked at a GPU holds memory of it as long as it lives.
_PROBE = """
import json, sys
import torch
from pytest_ngraph.machine import gpu
from pytest_ngraph.compilers.toolkit import torch_cuda
from pytest_ngraph.errors import NgraphError
try:
    device = torch_cuda.open_device(sys.argv[1])
    print(json.dumps({**gpu.find(sys.argv[1]).facts(), **torch_cuda.facts(device)}))
except NgraphError as error:
    print(json.dumps({"no_gpu": str(error)}))
"""


class Ledger:
    """What was found so far, in a file that is the old one or the new one and never half of it."""

    def __init__(self, file: Path, found: Mapping[str, Any]) -> None:
        self._file, self.found = file, dict(found)
        self.found["steps"] = []
        self._write()

    def add(self, name: str, result: Mapping[str, Any], seconds: float) -> None:
        """Keep what became of a step."""
        self.found["steps"].append({"name": name, "seconds": round(seconds, 1), **result})
        self._write()

    def finish(self, verdict: str) -> None:
        """Keep how all of it went."""
        self.found["verdict"] = verdict
        self._write()

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")
        new.replace(self._file)


def run_steps(steps: Sequence[Step], bench: Bench, ledger: Ledger, seconds: float, clock: Callable[[], float]) -> None:
    """Run the steps one after the other, each in its own time and all of them in ``seconds``."""
    ends = clock() + seconds - _RESERVE_SECONDS
    for step in steps:
        compiler = step.name.partition(" ")[2] if step.name.startswith("conformance ") else ""
        left = ends - clock()
        if compiler and compiler not in bench.present:
            ledger.add(step.name, {"status": "not run", "why": why_absent(compiler) or "it was left out"}, 0.0)
            continue
        if left < step.least_seconds:
            why = f"no time left: it needs {step.least_seconds:g} s or more and {max(0.0, left):.0f} s were left"
            ledger.add(step.name, {"status": "cut", "why": why}, 0.0)
            continue
        _say(f"{step.name}, at most {min(step.seconds, left):.0f} s of {left:.0f} s")
        began = clock()
        try:
            result = step.do(bench, min(step.seconds, left))
        except Exception as error:  # noqa: BLE001 - one step that breaks must not cost the others
            result = {"status": "failed", "why": f"{type(error).__name__}: {error}"}
        ledger.add(step.name, result, clock() - began)
        _say(f"  {result['status']}{': ' if result['why'] else ''}{result['why']}")


def verdict_of(steps: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """Return the exit status and a line that says how it went."""
    named = {status: [each["name"] for each in steps if each["status"] == status] for status in ("failed", "cut")}
    if named["failed"]:
        return 1, f"failed: {', '.join(named['failed'])}"
    if named["cut"]:
        return 3, f"time ended before: {', '.join(named['cut'])}"
    return 0, "all that is there ran and held"


def facts_of(accelerator: str, run: Run, folder: Path) -> dict[str, Any]:
    """Return what GPU and PyTorch say of themselves, or under ``no_gpu`` why there is none."""
    if absent := [name for name in _NEEDED if find_spec(name) is None]:
        return {"no_gpu": f"not installed: {', '.join(absent)}"}
    child = run([sys.executable, "-c", _PROBE, accelerator], folder, 90.0)
    lines = [line for line in child.output.splitlines() if line.startswith("{")]
    if not lines:
        return {"no_gpu": f"the GPU cannot be asked: {child.output.strip()[-500:] or 'no answer'}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def measure(given: argparse.Namespace, run: Run = run_child, clock: Callable[[], float] = monotonic) -> int:
    """Run all of it and write what was found; return the exit status."""
    began = clock()
    absent = {each: why for each in COMPILERS if (why := why_absent(each)) is not None}
    with TemporaryDirectory(prefix="ngraph-gpu-") as place:
        present = tuple(each for each in COMPILERS if each not in absent)
        bench = Bench(Path(place), given.device, present, run)
        bench.write()
        facts = facts_of(bench.accelerator, run, bench.folder)
        name = given.name or re.sub(r"[^a-z0-9]+", "-", str(facts.get("name", "none")).lower()).strip("-")
        file = given.json or RESULTS / f"gpu-{name}.json"
        found = {
            "name": name,
            "when": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "gpu": facts,
            "python": sys.version.split()[0],
            "versions": {each: version_of_module(each) for each in _VERSIONS},
            "absent": absent,
        }
        if "no_gpu" in facts:
            file = given.json or Path("gpu-none.json")
            ledger = Ledger(file, found)
            for step in STEPS:
                ledger.add(step.name, {"status": "not run", "why": "no GPU"}, 0.0)
            ledger.finish(f"no GPU: {facts['no_gpu']}")
            print(f"no GPU: {facts['no_gpu']}\nwhat could not run: {file}", file=sys.stderr)
            return 2
        ledger = Ledger(file, found)
        try:
            run_steps(STEPS, bench, ledger, 60 * given.minutes - (clock() - began), clock)
        except KeyboardInterrupt:
            ledger.finish("interrupted")
            raise
        status, verdict = verdict_of(ledger.found["steps"])
        ledger.finish(verdict)
    print(as_markdown(ledger.found))
    print(f"written: {file}; next: python -m benchmarks.gpu --page > docs/gpu.md")
    return status


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="the GPU, cuda or cuda:N (default: cuda)")
    parser.add_argument("--minutes", type=float, default=9.0, help="what all of it may take (default: 9)")
    parser.add_argument("--name", help="the machine's name in the file and on the page (default: that of its GPU)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write (default: benchmarks/results)")
    parser.add_argument("--page", action="store_true", help="only print docs/gpu.md, of all that was found so far")
    given = parser.parse_args(arguments)
    end_well()
    if given.page:
        print(page(RESULTS), end="")
        return 0
    return measure(given)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    raise SystemExit(main())
