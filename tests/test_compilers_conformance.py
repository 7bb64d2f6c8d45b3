"""The conformance suite itself: an honest adapter passes, and every kind of lie is caught by the check against it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.compilers.base import Compiler, Executable
from pytest_ngraph.conformance import checks
from pytest_ngraph.spec import Device, ModelRef, Workload

Array = np.ndarray[Any, Any]


class Honest(Executable):
    """Squares its input, plus one."""

    def __init__(self) -> None:
        self.placement = {"provider": "numpy", "precision": "f32", "threads": 1}
        self.input: Array = np.zeros(0)
        self.result: Array = np.zeros(0)

    def bind(self, inputs: Mapping[str, Array]) -> None:
        self.input = inputs["x"]

    def run(self) -> None:
        self.result = self.input**2 + 1

    def outputs(self) -> Sequence[Array]:
        return [self.result.copy()]


class Wrong(Honest):
    def run(self) -> None:
        self.result = self.input**2 + 1.01


class Lowered(Honest):
    def run(self) -> None:
        self.result = (self.input.astype(np.float16) ** 2 + np.float16(1)).astype(np.float32)


class Stale(Honest):
    def run(self) -> None:
        if not self.result.size:
            super().run()


class Aliased(Honest):
    def run(self) -> None:
        if not self.result.size:
            self.result = np.empty_like(self.input)
        self.result[...] = self.input**2 + 1

    def outputs(self) -> Sequence[Array]:
        return [self.result]


class Drifting(Honest):
    def run(self) -> None:
        super().run()
        self.calls = getattr(self, "calls", 0) + 1
        self.result = self.result + np.float32(1e-5 * self.calls)


class Chatty(Honest):
    def run(self) -> Array:  # type: ignore[override]
        super().run()
        return self.result


class Silent(Honest):
    def __init__(self) -> None:
        super().__init__()
        self.placement = {"provider": "numpy", "precision": "f32"}


class Greedy(Honest):
    def __init__(self) -> None:
        super().__init__()
        self.placement = {"provider": "numpy", "precision": "f32", "threads": 8}


class Listed(Honest):
    def outputs(self) -> Any:
        return [self.result.tolist()]


class Once(Honest):
    """Right the first time it is compiled in a process, wrong after."""

    def __init__(self, seen: list[int]) -> None:
        super().__init__()
        self.shift = np.float32(0.1 * len(seen))
        seen.append(1)

    def run(self) -> None:
        super().run()
        self.result = self.result + self.shift


class Maker(Compiler):
    name = "maker"

    def __init__(self, make: Any) -> None:
        self.make = make

    def compile(self, workload: Any, device: Device, options: Mapping[str, Any]) -> Executable:
        made: Executable = self.make()
        return made


def examine(make: Any) -> checks.Examination:
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    spec = Workload(ModelRef.parse("block:conv"))
    workload: Any = SimpleNamespace(spec=spec, inputs={"x": x}, reference=[x**2 + 1])
    return checks.examine(Maker(make), {}, [workload], Device(threads=1))


def test_an_honest_adapter_passes_every_check() -> None:
    examined = examine(Honest)
    assert not any(examined.found.values())
    assert {*examined.found, "is_quiet"} == set(checks.NAMES)


@pytest.mark.parametrize(
    ("make", "check", "said"),
    [
        (Wrong, "agrees", "hidden lowering"),
        (Lowered, "agrees", "the bound of f32 is 0.0001"),
        (Stale, "follows_inputs", "changed inputs did not change the outputs"),
        (Aliased, "keeps_outputs", "a later call wrote into them"),
        (Drifting, "repeats", "outputs differ"),
        (Chatty, "returns_nothing", "run() returned ndarray"),
        (Silent, "tells_placement", "placement lacks threads"),
        (Greedy, "tells_placement", "asked for threads 1, got 8"),
    ],
)
def test_a_lie_is_caught_by_the_check_against_it(make: Any, check: str, said: str) -> None:
    found = examine(make).found
    assert said in found[check][0]
    assert found[check][0].startswith("block:conv batch1: ")


def test_an_adapter_that_breaks_at_the_second_compilation_is_caught() -> None:
    seen: list[int] = []
    found = examine(lambda: Once(seen)).found
    assert [check for check, said in found.items() if said] == ["closes"]


def test_the_suite_runs_as_a_package_on_a_compiler_without_a_runtime(tmp_path: Path) -> None:
    root = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--pyargs", "pytest_ngraph.conformance", "-k", "null and option"],
        env={**os.environ, "PYTHONPATH": root},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
