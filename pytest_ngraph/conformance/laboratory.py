"""Starts a process for each compiler and case, and remembers what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.compilers.base import Compiler
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.conformance.cases import OPEN_BATCH, Case
from pytest_ngraph.measure.client import worker_environment
from pytest_ngraph.spec import Cell, CompilerSpec, Device, Workload

_SEED = 0
_LIMIT_SECONDS = 900


@dataclass
class Laboratory:
    """The processes of one run, each started once, in the environment that workers have."""

    catalogue: Catalogue
    folder: Path
    device: Device = field(default_factory=Device)
    answers: dict[Hashable, dict[str, Any]] = field(default_factory=dict)

    @property
    def compiled(self) -> Path:
        """Return the folder in which compilers keep what they built."""
        return self.folder / "compiled"

    def adapter(self, compiler: CompilerSpec) -> Compiler:
        """Return the adapter of a compiler; skip where it is not installed or does not run on the device."""
        adapter = self.catalogue.get(compiler.name)
        if reason := adapter.missing():
            pytest.skip(f"{compiler}: {reason}")
        if self.device.accelerator.partition(":")[0] not in adapter.accelerators:
            pytest.skip(f"{compiler} runs on {', '.join(adapter.accelerators)}, not on {self.device.accelerator}")
        return adapter

    def examine(
        self,
        compiler: CompilerSpec,
        case: Case,
        *,
        precision: str = "f32",
        scenario: str = "latency",
        threads: int = 1,
        process: int = 0,
        rebuild: bool = False,
    ) -> dict[str, Any]:
        """Return what a process of its own found, what it printed (``stdout``) and where its outputs are (``keep``).

        ``placement`` and ``loaded`` are those of the first workload. Instead there is ``unsupported``, the reason,
        where the compiler refuses the case, or ``failed`` where a process ended without an answer. Processes share the
        compilers' caches and what they keep, unless they ``rebuild``.
        """
        key = (compiler, case, precision, scenario, threads, process, rebuild)
        if key not in self.answers:
            keep = self.folder / f"outputs-{len(self.answers)}.npz"
            job = {"do": "examine", "rebuild": rebuild, "keep": str(keep)}
            device = replace(self.device, threads=threads)
            answer = self._try(compiler, self.workloads(case, precision, scenario), case, device, job)
            self.answers[key] = {**answer, "keep": keep}
        return self.answers[key]

    def release(self, compiler: CompilerSpec, case: Case, rounds: int) -> dict[str, Any]:
        """Return the ``resident`` bytes of a process after each of several rounds of compiling and closing a case."""
        key = (compiler, case, "release", rounds)
        if key not in self.answers:
            job = {"do": "release", "rebuild": True, "rounds": rounds}
            device = replace(self.device, threads=1)
            self.answers[key] = self._try(compiler, self.workloads(case), case, device, job, allocator="default")
        return self.answers[key]

    def workloads(self, case: Case, precision: str = "f32", scenario: str = "latency") -> list[Workload]:
        """Return a case as workloads; what it needs and is not installed skips, and its own ONNX file is written."""
        for name in case.needs:
            if find_spec(name) is None:
                pytest.skip(f"{case.name} is made with {name}, which is not installed")
        models = self.folder / "models"
        if case.model == f"onnx:{OPEN_BATCH}" and not (models / OPEN_BATCH).exists():
            models.mkdir(exist_ok=True)
            written = self._run([], self.device, {"do": "build", "write": str(models / OPEN_BATCH)})
            if "failed" in written:
                pytest.fail(written["failed"], pytrace=False)
        return case.workloads(models, precision, scenario)

    def _try(
        self,
        compiler: CompilerSpec,
        workloads: list[Workload],
        case: Case,
        device: Device,
        job: dict[str, Any],
        allocator: str = "steady",
    ) -> dict[str, Any]:
        """Run a job of a compiler, once it has not refused the workloads and what it reads has been built."""
        adapter = self.adapter(compiler)
        for workload in workloads:
            if reason := adapter.why_not(Cell(device.name, compiler, workload), device):
                return {"unsupported": reason}
        if adapter.reads != "nothing":
            built = self._build(case, workloads, device, adapter.reads)
            if "failed" in built or "unsupported" in built:
                return built
        place = {"compiler": str(compiler), "place": self.catalogue.place(compiler.name)}
        return self._run(workloads, device, {**job, **place}, allocator)

    def _build(self, case: Case, workloads: list[Workload], device: Device, reads: str) -> dict[str, Any]:
        for name in _makers(case, reads):
            if find_spec(name) is None:
                pytest.skip(f"{case.name} is made with {name}, which is not installed")
        key = ("build", case, workloads[0].precision, reads)
        if key not in self.answers:
            job = {"do": "build", "write": "", "want_onnx": reads == "onnx"}
            self.answers[key] = self._run(workloads, device, job)
        return self.answers[key]

    def _run(
        self, workloads: list[Workload], device: Device, job: dict[str, Any], allocator: str = "steady"
    ) -> dict[str, Any]:
        """Run one process to its end and return its answer, or ``failed`` with the end of what it said."""
        artifacts = self.folder / "artifacts"
        answer = self.folder / f"answer-{len(self.answers)}.json"
        caches = self.folder / f"caches-{len(self.answers)}" if job.get("rebuild") else artifacts
        common = {
            "workloads": [workload.to_json() for workload in workloads],
            "device": device.to_json(),
            "seed": _SEED,
            "artifacts": str(artifacts),
        }
        environment = worker_environment(device, allocator, 0, caches)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest_ngraph.conformance.process", str(answer)],
                input=json.dumps({**common, **job}),
                env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                capture_output=True,
                text=True,
                timeout=_LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"{job['do']} took longer than {_LIMIT_SECONDS} s"}
        if done.returncode:
            return {"failed": f"{job['do']} ended with status {done.returncode}\n{done.stderr[-4000:]}"}
        return {**json.loads(answer.read_text(encoding="utf-8")), "stdout": done.stdout}


def _makers(case: Case, reads: str) -> tuple[str, ...]:
    """Return the import names that turn a case's model into what a compiler reads."""
    if reads == "onnx":
        return () if case.is_file else ("onnx", "onnxscript")
    return ("torch", "onnx2torch") if case.is_file else ()
