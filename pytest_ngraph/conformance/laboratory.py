"""Starts a process for each compiler and case, and remembers what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.compilers.base import Compiler
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.conformance.cases import Case
from pytest_ngraph.measure.client import worker_environment
from pytest_ngraph.spec import Cell, CompilerSpec, Device, Workload

_SEED = 0
_LIMIT_SECONDS = 900


@dataclass
class Laboratory:
    """The processes of one run, each started once, in the environment that workers have."""

    catalogue: Catalogue
    folder: Path
    answers: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)

    def adapter(self, compiler: CompilerSpec) -> Compiler:
        """Return the adapter of a compiler; skip where it is not installed."""
        adapter = self.catalogue.get(compiler.name)
        if reason := adapter.missing():
            pytest.skip(f"{compiler}: {reason}")
        return adapter

    def examine(self, compiler: CompilerSpec, case: Case, *, threads: int = 1, process: int = 0) -> dict[str, Any]:
        """Return what a process of its own found, what it printed (``stdout``) and where its outputs are (``keep``).

        ``placement`` and ``loaded`` are those of the first workload. Instead there is ``unsupported``, the reason,
        where the compiler refuses the case, or ``failed`` where a process ended without an answer.
        """
        key = (compiler, case.name, threads, process)
        if key not in self.answers:
            self.answers[key] = self._examine(compiler, case, Device(threads=threads))
        return self.answers[key]

    def _examine(self, compiler: CompilerSpec, case: Case, device: Device) -> dict[str, Any]:
        adapter = self.adapter(compiler)
        want_onnx = adapter.reads == "onnx"
        for name in (*case.needs, *(("onnxscript",) if want_onnx else ())):
            if find_spec(name) is None:
                pytest.skip(f"{case.name} is made with {name}, which is not installed")
        workloads = case.workloads()
        for workload in workloads:
            if reason := adapter.why_not(Cell(device.name, compiler, workload), device):
                return {"unsupported": reason}
        if adapter.reads != "nothing":
            built = self._build(case, workloads, device, want_onnx)
            if "failed" in built or "unsupported" in built:
                return built
        keep = self.folder / f"outputs-{len(self.answers)}.npz"
        place = self.catalogue.place(compiler.name)
        job = {"do": "examine", "compiler": str(compiler), "place": place, "keep": str(keep)}
        return {**self._run(workloads, device, job), "keep": keep}

    def _build(self, case: Case, workloads: list[Workload], device: Device, want_onnx: bool) -> dict[str, Any]:
        key = ("build", case.name, want_onnx)
        if key not in self.answers:
            self.answers[key] = self._run(workloads, device, {"do": "build", "want_onnx": want_onnx})
        return self.answers[key]

    def _run(self, workloads: list[Workload], device: Device, job: dict[str, Any]) -> dict[str, Any]:
        """Run one process to its end and return its answer, or ``failed`` with the end of what it said."""
        artifacts = self.folder / "artifacts"
        answer = self.folder / f"answer-{len(self.answers)}.json"
        common = {
            "workloads": [workload.to_json() for workload in workloads],
            "device": device.to_json(),
            "seed": _SEED,
            "artifacts": str(artifacts),
        }
        environment = worker_environment(device, "steady", 0, artifacts)
        done = subprocess.run(
            [sys.executable, "-m", "pytest_ngraph.conformance.process", str(answer)],
            input=json.dumps({**common, **job}),
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
        if done.returncode:
            return {"failed": f"{job['do']} ended with status {done.returncode}\n{done.stderr[-4000:]}"}
        return {**json.loads(answer.read_text(encoding="utf-8")), "stdout": done.stdout}
