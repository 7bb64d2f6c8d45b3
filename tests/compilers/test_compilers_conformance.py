"""The conformance suite itself: an honest adapter passes, and every kind of lie is caught by the check against it."""

from __future__ import annotations

import os
import re
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
from pytest_ngraph.spec.cells import Device, Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without

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


class Far(Honest):
    def run(self) -> None:
        self.result = (self.input**2 + 1) * np.float32(1.02)


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


class Flying(Honest):
    """Three slots, each with a result of its own; calls run when they are waited for, the last one first."""

    in_flight = 3

    def __init__(self) -> None:
        super().__init__()
        self.started: list[int] = []

    def submit(self, slot: int) -> None:
        self.started.append(slot)

    def next_done(self) -> int:
        slot = self.started.pop()
        if slot == 0:
            self.run()
        return slot


class Grounded(Flying):
    in_flight = 0


class Mixed(Flying):
    def next_done(self) -> int:
        super().next_done()
        return 0


class Unbound(Flying):
    """Its slots never see new inputs."""

    def next_done(self) -> int:
        return self.started.pop()


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


def examine(make: Any, **axes: str) -> checks.Examination:
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    spec = Workload(parse_model("block:conv"), **axes)  # type: ignore[arg-type]
    workload: Any = SimpleNamespace(spec=spec, inputs={"x": x}, artifact="one")
    reference = SimpleNamespace(timed=[x**2 + 1], means=[None])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifacts, "reference", lambda artifact: reference)
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


def test_honest_calls_in_flight_pass_every_check() -> None:
    found = examine(Flying, scenario="throughput").found
    assert not any(found.values())
    assert {*found, "is_quiet"} == {*checks.NAMES, *checks.THROUGHPUT_CHECKS}


@pytest.mark.parametrize(
    ("make", "check", "said"),
    [
        (Grounded, "keeps_calls_in_flight", "in_flight is 0"),
        (Mixed, "keeps_calls_in_flight", "calls ran in slots 0 to 2, and next_done() gave [0, 0, 0]"),
        (Mixed, "serves_every_slot", "only slot 1 had a call, and next_done() gave 0"),
        (Unbound, "serves_every_slot", "slot 0: output 0 is off by"),
    ],
)
def test_a_lie_about_calls_in_flight_is_caught(make: Any, check: str, said: str) -> None:
    assert said in examine(make, scenario="throughput").found[check][0]


def test_outputs_are_held_to_the_bounds_of_their_precision() -> None:
    assert examine(Lowered, precision="f16").found["agrees"] == []
    assert "asked for precision f16, got f32" in examine(Lowered, precision="f16").found["tells_placement"][0]
    assert "the bound of f16 is 0.01" in examine(Far, precision="f16").found["agrees"][0]


def test_an_adapter_that_breaks_at_the_second_compilation_is_caught() -> None:
    seen: list[int] = []
    found = examine(lambda: Once(seen)).found
    assert [check for check, said in found.items() if said] == ["closes"]


@pytest.mark.real
def test_the_suite_runs_as_a_package_on_a_compiler_without_a_runtime(tmp_path: Path) -> None:
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--pyargs", "pytest_ngraph.conformance", "-k", "null and option"],
        env={**os.environ, "PYTHONPATH": root},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


LYING = """
from pathlib import Path

from pytest_ngraph import Compiler, Executable

HELD = []


class Quick(Executable):
    placement = {"provider": "null", "precision": "none", "threads": 1}

    def bind(self, inputs):
        pass

    def run(self):
        pass

    def outputs(self):
        return None


class Keeper(Compiler):
    name = "keeper"
    reads = "nothing"

    def compile(self, workload, device, options):
        def build(folder):
            (folder / "engine").write_bytes(b"engine")
            return {}

        executable = Quick()
        executable.loaded = workload.kept.built(self.name, {}, build)[2]
        return executable


class Forgetful(Keeper):
    name = "forgetful"

    def compile(self, workload, device, options):
        executable = super().compile(workload, device, options)
        executable.loaded = False
        return executable


class Hoarder(Compiler):
    name = "hoarder"
    reads = "nothing"

    def compile(self, workload, device, options):
        executable, hoard = Quick(), Path(__file__).with_name("hoard")
        executable.loaded = hoard.exists()
        hoard.touch()
        return executable


class Leaky(Keeper):
    name = "leaky"

    def compile(self, workload, device, options):
        HELD.append(b"x" * (16 << 20))
        return super().compile(workload, device, options)


class Grudging(Keeper):
    name = "grudging"

    def why_not(self, cell, device):
        return ""


KEEPER, FORGETFUL, HOARDER, LEAKY, GRUDGING = Keeper(), Forgetful(), Hoarder(), Leaky(), Grudging()
NAMES = ("keeper", "forgetful", "hoarder", "leaky", "grudging")


def pytest_ngraph_compilers(catalogue):
    for name in NAMES:
        catalogue.add(name, f"lying:{name.upper()}")
"""


@pytest.mark.real
def test_lies_that_take_several_processes_to_see_are_caught(tmp_path: Path) -> None:
    skip_without("torch")
    (tmp_path / "lying.py").write_text(LYING)
    root = str(Path(__file__).resolve().parents[2])
    compilers = "--ngraph-compiler=keeper,forgetful,hoarder,leaky,grudging"
    select = [compilers, "-k", "what_it_keeps or rebuilt_cell or memory or gives_a_reason"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "lying", "--pyargs", "pytest_ngraph.conformance", *select],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((root, str(tmp_path)))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = sorted(re.findall(r"^FAILED \S+::(\w+\[\w+\])", done.stdout, re.MULTILINE))
    assert failed == [
        "test_a_rebuilt_cell_reuses_nothing_and_leaves_nothing[hoarder]",
        "test_closing_gives_memory_back[leaky]",
        "test_it_gives_a_reason_for_whatever_it_does_not_declare[grudging]",
        "test_what_it_keeps_is_built_once[forgetful]",
    ], done.stdout + done.stderr
