"""Whether calls work when they are timed: who is accused, who is cleared soon, and who is never accused."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.checks.freshness import Timings, is_suspicious, objection, probe, vary, works_late
from pytest_ngraph.compilers.base import Executable

MS = 1_000_000
Array = np.ndarray[Any, Any]
SAMPLE: dict[str, Array] = {"x": np.arange(1.0, 9.0, dtype=np.float32), "tokens": np.arange(4)}
UNSEEN: dict[str, Array] = {"x": np.arange(11.0, 19.0, dtype=np.float32), "tokens": np.arange(4)}


class Machine:
    """A clock that only work advances, and that a busy machine advances more."""

    def __init__(self, held_up: float = 0.0, seed: int = 0) -> None:
        self.now = self.used = 0
        self._held_up, self._draw = held_up, random.Random(seed)

    def work(self, nanoseconds: int) -> None:
        self.now += nanoseconds
        self.used += nanoseconds
        if self._draw.random() < self._held_up:
            # Threads that spin for one another use CPU time meanwhile.
            delay = self._draw.randrange(MS, 5000 * MS)
            self.now += delay
            self.used += delay // 30


class Adapter(Executable):
    """Doubles its input in a call of 2 ms; what it skips is up to the classes below."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.bound: dict[str, Array] = {}
        self.result: list[Array] = []

    def bind(self, inputs: Mapping[str, Array]) -> None:
        self.bound = dict(inputs)

    def run(self) -> None:
        self.compute()

    def submit(self, slot: int) -> None:
        self.run()

    def next_done(self) -> int:
        return 0

    def compute(self) -> None:
        self.machine.work(2 * MS)
        self.result = [self.bound["x"] * 2 + 1]

    def synchronize(self) -> None:
        self.machine.work(100)

    def outputs(self) -> Sequence[Array]:
        self.machine.work(10_000)
        return [each.copy() for each in self.result]


class Caching(Adapter):
    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.kept: dict[bytes, list[Array]] = {}

    def run(self) -> None:
        key = self.bound["x"].tobytes()
        if key not in self.kept:
            self.compute()
            self.kept[key] = self.result
        self.result = self.kept[key]


class FirstOnly(Adapter):
    def bind(self, inputs: Mapping[str, Array]) -> None:
        super().bind(inputs)
        self.result = []

    def run(self) -> None:
        if not self.result:
            self.compute()


class Late(Adapter):
    def run(self) -> None:
        pass

    def outputs(self) -> Sequence[Array]:
        self.compute()
        return super().outputs()


class Passing(Adapter):
    """Its model returns its input, and so does this, without a copy."""

    def compute(self) -> None:
        self.machine.work(2 * MS)
        self.result = [self.bound["x"]]


class Graph(Adapter):
    """Captures a graph anew whenever something is bound, as on a GPU."""

    def bind(self, inputs: Mapping[str, Array]) -> None:
        super().bind(inputs)
        self.captured = False

    def run(self) -> None:
        if not self.captured:
            self.machine.work(30 * MS)
        self.captured = True
        super().run()


def probed(
    kind: type[Adapter], call_ns: float, held_up: float = 0.0, scenario: str = "latency", seed: int = 0
) -> Timings:
    machine = Machine(held_up, seed)
    return probe(kind(machine), UNSEEN, SAMPLE, call_ns, scenario, now=lambda: machine.now, cpu=lambda: machine.used)


@pytest.mark.parametrize("scenario", ["latency", "throughput"])
def test_an_honest_adapter_is_cleared_in_one_round(scenario: str) -> None:
    timings = probed(Adapter, 2 * MS, scenario=scenario)
    assert len(timings.first) == 1
    assert objection(timings, 2 * MS) == ""


@pytest.mark.parametrize("kind", [Caching, FirstOnly])
@pytest.mark.parametrize("scenario", ["latency", "throughput"])
def test_results_that_are_kept_are_found(kind: type[Adapter], scenario: str) -> None:
    timings = probed(kind, 1000, scenario=scenario)
    assert "its calls are faster on inputs it has seen (1.00 \u00b5s a call, 2.00 ms on new inputs)" in objection(
        timings, 1000
    )


def test_work_in_outputs_is_found_by_what_it_follows_and_by_its_time() -> None:
    timings = probed(Late, 1000)
    assert timings.late
    assert "its outputs follow inputs that came after the call" in objection(timings, 1000)
    kept_apart = replace(timings, late=False)
    assert "its outputs() takes 2.01 ms where a call takes 1.00 \u00b5s" in objection(kept_apart, 1000)


def test_outputs_that_are_the_inputs_may_change_with_them() -> None:
    assert not works_late(Passing(Machine()), UNSEEN)
    assert objection(probed(Passing, 2 * MS), 2 * MS) == ""


def test_random_outputs_say_nothing() -> None:
    class Random(Adapter):
        draw = np.random.default_rng(0)

        def compute(self) -> None:
            self.result = [self.draw.normal(size=8)]

    assert not works_late(Random(Machine()), UNSEEN)


def test_a_graph_that_is_captured_anew_is_no_cache_on_a_gpu() -> None:
    assert objection(probed(Graph, 2 * MS), 2 * MS, on_accelerator=True) == ""
    assert "results are cached" in objection(probed(Caching, 1000), 1000, on_accelerator=True)


def test_too_few_rounds_accuse_nobody() -> None:
    # Seen in a real run of eager PyTorch at a load of 14 on two CPUs.
    seen = Timings(
        first=[281 * MS, 1132 * MS, 5950 * MS],
        second=[2 * MS, 4735 * MS, 4007 * MS],
        again=[2 * MS, 7383 * MS, 1481 * MS],
        outputs=[120_000] * 3,
        copies=[40_000] * 3,
        first_cpu=[46 * MS, 164 * MS, 144 * MS],
        second_cpu=[2 * MS, 130 * MS, 169 * MS],
    )
    assert objection(seen, 2.2 * MS) == ""
    often: dict[str, Any] = {name: 5 * value for name, value in seen.to_json().items() if isinstance(value, list)}
    assert objection(Timings(**often), 2.2 * MS) == ""


def test_a_busy_machine_is_not_probed_for_long() -> None:
    assert len(probed(Adapter, 2 * MS, 0.9).first) <= 3


@pytest.mark.parametrize("held_up", [0.3, 0.6, 0.9])
def test_a_busy_machine_accuses_nobody(held_up: float) -> None:
    for seed in range(300):
        timings = probed(Adapter, 2 * MS, held_up, seed=seed)
        assert objection(timings, 2 * MS) == ""


def test_only_floats_are_varied_and_never_made_larger() -> None:
    numbers = vary({"step": np.array(0.5, np.float32), "at": np.array(3)}, 1)
    assert [type(each) for each in numbers.values()] == [np.ndarray, np.ndarray]
    assert (str(numbers["step"].dtype), numbers["step"].shape) == ("float32", ())
    assert 0.49 < float(numbers["step"]) < 0.5
    assert int(numbers["at"]) == 3
    varied = vary(SAMPLE, 1)
    assert np.array_equal(varied["tokens"], SAMPLE["tokens"])
    assert (varied["x"] < SAMPLE["x"]).all()
    assert varied["x"].dtype == np.float32
    assert probed(Adapter, 2 * MS).first
    machine = Machine()
    whole: dict[str, Array] = {"x": np.arange(8), "tokens": np.arange(4)}
    assert probe(Caching(machine), whole, whole, 1000, now=lambda: machine.now, cpu=lambda: machine.used).first == []


def test_fast_calls_are_not_probed_at_all() -> None:
    assert not is_suspicious(Timings(first=[5 * MS, 3 * MS], outputs=[10_000], first_cpu=[MS, MS]), 2 * MS)
    assert is_suspicious(Timings(first=[9 * MS], outputs=[10_000], first_cpu=[9 * MS]), 2 * MS)
    held_up = Timings(first=[9 * MS], outputs=[10_000], first_cpu=[2 * MS])
    assert not is_suspicious(held_up, 2 * MS)
    assert is_suspicious(held_up, 2 * MS, on_accelerator=True)
    assert is_suspicious(Timings(first=[2 * MS], outputs=[2 * MS]), 2 * MS)
