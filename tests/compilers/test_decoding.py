"""A call of a prompt and steps: what a decoder is given and when, how its parts are timed, and who cheats in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.checks.freshness import FIRST, STEPS, objection, probe, vary
from pytest_ngraph.checks.oversight import Seen, beyond_wall, call_nanoseconds
from pytest_ngraph.compilers.base import Decoder, Executable
from pytest_ngraph.compilers.decoding import Decoding
from pytest_ngraph.errors import CompileFailed, SpecError
from pytest_ngraph.metrics import tokens_per_second
from pytest_ngraph.spec.cells import PROTOCOLS, ModelRef, Visit, Workload
from pytest_ngraph.stats.visits import summarise, summarise_all, token_seconds
from pytest_ngraph.worker.timing import visit, warm_up

WORKLOAD = Workload(ModelRef("m", "file", "m"), batch=2, decode=3)
PROMPT = np.arange(10, dtype=np.int64).reshape(2, 5)
TOKENS = np.array([[11, 12, 13], [21, 22, 23]])
FED = {"ids": PROMPT, "next_tokens": TOKENS}


class Clock:
    """Time that passes where somebody says so."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Told(Decoder):
    """Keeps what it is told. Its prompt takes 70 us of this clock, and its steps 5, 6, 7 and so on."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.told = clock, list[Any]()

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self.told.append(sorted(inputs))

    def first(self) -> np.ndarray:
        self.clock.now += 70_000
        self.told.append("first")
        self.taken = 0
        return np.zeros((2, 9), np.float32)

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        self.clock.now += 5_000 + 1_000 * self.taken
        self.taken += 1
        assert token.shape == (2, 1)
        assert token.flags.c_contiguous
        self.told.append((token[:, 0].tolist(), position))
        return np.full((2, 9), position, np.float32)


class Still:
    """Nothing else happens."""

    has_run_delay = False

    def read(self) -> tuple[int, int, int]:
        return 0, 0, 0


def visited(steps: int, calls: int = 1) -> Visit:
    clock = Clock()
    decoding = Decoding(Told(clock), steps)
    decoding.bind({"ids": PROMPT, "next_tokens": np.zeros((2, steps), np.int64)})
    how = {"calls": calls, "seconds": 0.0, "least_batches": 3, "discard_seconds": 0.0, "covariates": Still()}
    return visit(decoding, **how, clock=clock)  # type: ignore[arg-type]


def test_a_decoder_never_sees_a_token_before_its_step() -> None:
    told = Told(Clock())
    decoding = Decoding(told, 3)
    decoding.bind(FED)
    assert told.told == [["ids"]]
    decoding.run()
    assert told.told[1:] == ["first", ([11, 21], 5), ([12, 22], 6), ([13, 23], 7)]
    outputs = decoding.outputs()
    assert outputs is not None
    assert [float(each.max()) for each in outputs] == [0, 5, 6, 7]
    # Another call has outputs of its own, as many.
    decoding.run()
    assert len(decoding.outputs() or ()) == 4


def test_what_is_no_decoder_is_refused_and_what_does_not_decode_is_left_alone() -> None:
    plain = Executable()
    assert Decoding.of(plain, replace(WORKLOAD, decode=None), "mine") is plain
    with pytest.raises(
        CompileFailed, match=r"mine: its compile\(\) gave Executable for decode=3 \(expected a pytest_n"
    ):
        Decoding.of(plain, WORKLOAD, "mine")


@pytest.mark.parametrize("calls", [1, 4])
def test_the_first_token_has_no_step_in_its_time_and_the_steps_no_prompt(calls: int) -> None:
    found = visited(3, calls)
    assert found.tokens == 4
    assert found.request_ns == (70_000, 5_000, 6_000, 7_000) * 3 * calls
    assert found.wall_ns == (88_000 * calls,) * 3
    first, step = token_seconds(found)
    assert first == pytest.approx([70e-6] * 3)
    assert step == pytest.approx([6e-6] * 3)
    summary = summarise(found)
    assert summary.tokens is not None
    assert math.exp(summary.tokens.ln_first) == pytest.approx(70e-6)
    assert math.exp(summary.tokens.ln_step) == math.exp(summary.tokens.ln_step_minimum) == pytest.approx(6e-6)
    # The call as a whole is what latency and throughput are of, by the median as everywhere.
    assert math.exp(summary.ln_seconds or 0) == pytest.approx(88e-6)
    assert summary.ln_request_seconds is None
    assert summarise_all([found]) == [summary]


def test_one_step_is_enough() -> None:
    found = visited(1)
    assert found.tokens == 2
    assert token_seconds(found)[1] == pytest.approx([5e-6] * 3)


def test_warming_up_takes_whole_calls() -> None:
    clock = Clock()
    decoding = Decoding(Told(clock), 3)
    decoding.bind(FED)
    series, settled = warm_up(decoding, PROTOCOLS["quick"], clock)
    assert settled
    assert series[-1] == pytest.approx(88e-6)


def test_tokens_of_a_visit_are_told_from_calls_in_flight_and_must_fit() -> None:
    in_flight = Visit(calls=2, wall_ns=(10, 10), request_ns=(9, 9, 9, 9))
    assert in_flight.tokens == 0
    assert in_flight.in_flight_ns == in_flight.request_ns
    assert token_seconds(in_flight) == ([], [])
    with pytest.raises(SpecError, match="3 values of request_ns for 2 calls"):
        summarise(Visit(calls=1, wall_ns=(10, 10), request_ns=(9, 9, 9)))
    with pytest.raises(SpecError, match="a token took 0 ns"):
        summarise(Visit(calls=1, wall_ns=(10, 10), request_ns=(9, 0, 9, 1)))


def test_tokens_that_claim_more_time_than_their_calls_are_refused() -> None:
    calls = Visit(calls=1, wall_ns=(4_000_000,), request_ns=(90_000_000, 1))
    said = beyond_wall(Seen(calls, wall_ns=100_000_000, timed_ns=100_000_000, cpu_ns=None))
    assert said == "its tokens claim 90 ms of calls that took 4 ms"


def test_a_part_of_a_call_is_what_its_tokens_say() -> None:
    seen = [Seen(visited(3, 2), wall_ns=1, timed_ns=1, cpu_ns=None)]
    assert call_nanoseconds(seen) == 88_000
    assert call_nanoseconds(seen, FIRST) == pytest.approx(70_000)
    assert call_nanoseconds(seen, STEPS) == pytest.approx(18_000)


def test_tokens_per_second_count_the_first_one() -> None:
    assert tokens_per_second(0.5, 8, 3) == 64.0


def test_tokens_change_places_so_that_none_is_new_to_the_model() -> None:
    several = {vary(FED, number, with_tokens=True)["ids"].tobytes() for number in range(1, 21)}
    assert len(several) == 20
    varied = vary(FED, 1, with_tokens=True)["ids"]
    assert (np.sort(varied, axis=1) == PROMPT).all()
    assert (vary(FED, 1)["ids"] == PROMPT).all()


@dataclass
class Parts(Executable):
    """A call in two parts, one of which may be quick where it knows what is bound."""

    clock: Clock
    quick: str = ""
    steps: int = 4
    known: set[bytes] = field(default_factory=set)

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self.bound = inputs["ids"].tobytes() + inputs["next_tokens"].tobytes()

    def prefill(self) -> None:
        self.clock.now += 1_000 if self.quick == FIRST and self.bound in self.known else 9_000_000

    def step(self, index: int) -> None:
        self.clock.now += 1_000 if self.quick == STEPS and self.bound in self.known else 500_000
        if index == self.steps - 1:
            self.known.add(self.bound)

    def outputs(self) -> list[np.ndarray]:
        return []


@pytest.mark.parametrize("quick", ["", FIRST, STEPS])
def test_a_part_that_is_faster_on_tokens_it_has_seen_is_found_whatever_the_other_takes(quick: str) -> None:
    for part, honest_ns, cached_ns in ((FIRST, 9_000_000, 1_000), (STEPS, 2_000_000, 4_000)):
        clock = Clock()
        executable = Parts(clock, quick, known={PROMPT.tobytes() + TOKENS.tobytes()})
        call_ns = cached_ns if quick == part else honest_ns
        timings = probe(executable, FED, FED, call_ns, part=part, now=clock, cpu=clock)
        said = objection(timings, call_ns, of_part=True)
        assert ("results are cached" in said) == (quick == part)
