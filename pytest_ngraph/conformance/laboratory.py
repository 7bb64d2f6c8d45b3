"""Starts a process for each compiler and case, or for some cases together, and remembers what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph import interpreter
from pytest_ngraph.compilers.base import Compiler
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.conformance.cases import OPEN_BATCH, Case
from pytest_ngraph.launches.client import worker_environment
from pytest_ngraph.launches.process import python_path
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Workload

_SEED = 0
_LIMIT_SECONDS = 900


@dataclass(frozen=True, slots=True)
class How:
    """How a compiler is examined: what its workloads have in common, and which of several like processes it is."""

    compiler: CompilerSpec
    precision: str = "f32"
    scenario: str = "latency"
    threads: int = 1
    process: int = 0
    rebuild: bool = False


@dataclass
class Laboratory:
    """The processes of one run, each started once, in the environment that workers have.

    ``cases`` are those that the run is going to ask for: those of a kind share a process, which saves its imports.
    """

    catalogue: Catalogue
    folder: Path
    device: Device = field(default_factory=Device)
    cases: Collection[Case] = ()
    answers: dict[Hashable, dict[str, Any]] = field(default_factory=dict)
    runs: int = 0

    @property
    def compiled(self) -> Path:
        """Return the folder in which compilers keep what they built."""
        return self.folder / "compiled"

    def adapter(self, compiler: CompilerSpec) -> Compiler:
        """Return the adapter of a compiler. Skip where it is not installed or does not run on the device."""
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
        """Return what a process found, what it printed (``stdout``) and where the outputs are (``keep``).

        ``placement`` and ``loaded`` are those of the first workload. Instead there is ``unsupported``, the reason,
        where the compiler refuses the case, or ``failed`` where it fails or its process ended without an answer.
        Processes share the compilers' caches and what they keep, unless they ``rebuild``.
        """
        how = How(compiler, precision, scenario, threads, process, rebuild)
        if (how, case) not in self.answers:
            together = [case]
            if how == How(compiler, precision):
                together += [other for other in self.cases if other != case and other.kind == case.kind]
            job = {"do": "examine", "rebuild": rebuild}
            for each, answer in zip(together, self._try(how, together, job), strict=True):
                self.answers[how, each] = answer
        return self.answers[how, case]

    def release(self, compiler: CompilerSpec, case: Case, rounds: int) -> dict[str, Any]:
        """Return the ``resident`` bytes of a process after each of several rounds of compiling and closing a case."""
        key = (compiler, case, rounds)
        if key not in self.answers:
            job = {"do": "release", "rebuild": True, "rounds": rounds, "allocator": "default"}
            [self.answers[key]] = self._try(How(compiler), [case], job)
        return self.answers[key]

    def workloads(self, case: Case, precision: str = "f32", scenario: str = "latency") -> list[Workload]:
        """Return a case as workloads. What it needs and is not installed skips, and its own ONNX file is written."""
        for name in case.needs:
            if find_spec(name) is None:
                pytest.skip(f"{case.name} is made with {name}, which is not installed")
        models = self.folder / "models"
        if case.model == f"onnx:{OPEN_BATCH}" and not (models / OPEN_BATCH).exists():
            models.mkdir(exist_ok=True)
            [written] = self._run(
                {"do": "write", "rebuild": False, "path": str(models / OPEN_BATCH)}, [[]], self.device
            )
            if "failed" in written:
                pytest.fail(written["failed"], pytrace=False)
        return case.workloads(models, precision, scenario)

    def _try(self, how: How, cases: Sequence[Case], job: dict[str, Any]) -> list[dict[str, Any]]:
        """Run a job of a compiler on each case that it does not refuse, once what it reads has been built."""
        adapter, device = self.adapter(how.compiler), replace(self.device, threads=how.threads)
        answers: dict[Case, dict[str, Any]] = {}
        workloads = {case: self.workloads(case, how.precision, how.scenario) for case in cases}
        for case in cases:
            reasons = (adapter.why_not(Cell(device.name, how.compiler, each), device) for each in workloads[case])
            if reason := next(filter(None, reasons), None):
                answers[case] = {"unsupported": reason}
        if adapter.reads != "nothing":
            answers |= self._build(how, {case: workloads[case] for case in cases if case not in answers}, adapter.reads)
        left = [case for case in cases if case not in answers]
        job |= {"compiler": str(how.compiler), "place": self.catalogue.place(how.compiler.name)}
        done = self._run_apart(job, [workloads[case] for case in left], device)
        return [answers.get(case) or done[left.index(case)] for case in cases]

    def _build(self, how: How, workloads: dict[Case, list[Workload]], reads: str) -> dict[Case, dict[str, Any]]:
        """Build what a compiler reads, where that was not done yet. Return the answers of cases that have none."""
        for name in {name for case in workloads for name in case.made_with(reads)}:
            if find_spec(name) is None:
                pytest.skip(f"{', '.join(case.name for case in workloads)}: made with {name}, which is not installed")
        keys = {case: ("build", case, how.precision, reads) for case in workloads}
        missing = [case for case in workloads if keys[case] not in self.answers]
        job = {"do": "build", "rebuild": False, "want_onnx": reads == "onnx"}
        done = self._run_apart(job, [workloads[case] for case in missing], self.device)
        self.answers |= {keys[case]: answer for case, answer in zip(missing, done, strict=True)}
        built = {case: self.answers[key] for case, key in keys.items()}
        return {case: answer for case, answer in built.items() if "failed" in answer or "unsupported" in answer}

    def _run_apart(self, job: dict[str, Any], cases: Sequence[list[Workload]], device: Device) -> list[dict[str, Any]]:
        """Run a job on several cases in one process. Where that ends early or prints, on each alone, to see which."""
        answers = self._run(job, cases, device) if cases else []
        if len(cases) > 1 and any("ended" in answer or answer.get("stdout") for answer in answers):
            return [answer for case in cases for answer in self._run(job, [case], device)]
        return answers

    def _run(self, job: dict[str, Any], cases: Sequence[list[Workload]], device: Device) -> list[dict[str, Any]]:
        """Run one process to its end and return its answers. ``failed`` is then the end of what it said."""
        self.runs += 1
        artifacts = self.folder / "artifacts"
        keep = [self.folder / f"outputs-{self.runs}-{number}.npz" for number, _ in enumerate(cases)]
        caches = self.folder / f"caches-{self.runs}" if job["rebuild"] else artifacts
        answer = self.folder / f"answer-{self.runs}.json"
        common = {
            "cases": [[each.to_json() for each in workloads] for workloads in cases],
            "keep": [str(path) for path in keep],
            "device": device.to_json(),
            "seed": _SEED,
            "artifacts": str(artifacts),
            "sys_path": [str(Path(entry).absolute()) if Path(entry).exists() else entry for entry in sys.path],
        }
        environment = worker_environment(device, job.get("allocator", "steady"), 0, caches)
        try:
            done = subprocess.run(
                interpreter.command("pytest_ngraph.conformance.process", str(answer)),
                input=json.dumps({**common, **job}),
                env={**environment, "PYTHONPATH": python_path()},
                capture_output=True,
                text=True,
                timeout=_LIMIT_SECONDS * len(cases),
                check=False,
            )
        except subprocess.TimeoutExpired:
            failed = f"{job['do']} took longer than {_LIMIT_SECONDS * len(cases)} s"
        else:
            failed = (
                f"{job['do']} ended with status {done.returncode}\n{done.stderr[-4000:]}" if done.returncode else ""
            )
        if failed:
            return [{"failed": failed, "ended": True} for _ in cases]
        answers = json.loads(answer.read_text(encoding="utf-8"))
        return [{**each, "stdout": done.stdout, "keep": path} for each, path in zip(answers, keep, strict=True)]
