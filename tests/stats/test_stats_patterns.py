"""Launches that come in two kinds or resemble the last: how often they are seen, and how often where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_ngraph.stats.patterns import has_memory, pattern_advice, pattern_words, two_kinds
from tests.support.launch_worlds import Scatter, autoregressive, normal, t3, two_states
from tests.support.simulator import exceeds, falls_short

SETS = 4_000


def worlds(scatter: Scatter, launches: int) -> list[list[float]]:
    found: list[list[float]] = scatter(np.random.default_rng(launches), (SETS, launches)).tolist()
    return found


@pytest.mark.parametrize("launches", [6, 8, 11, 16, 28, 40])
@pytest.mark.parametrize("scatter", [normal(0.02), t3(0.02)])
def test_launches_without_a_pattern_show_one_in_one_of_a_hundred_sets(scatter: Scatter, launches: int) -> None:
    sets = worlds(scatter, launches)

    assert not exceeds(sum(two_kinds(values) is not None for values in sets), SETS, 0.012)
    assert not exceeds(sum(map(has_memory, sets)), SETS, 0.012)


@pytest.mark.parametrize(("launches", "rate"), [(8, 0.6), (16, 0.95)])
def test_two_states_are_seen(launches: int, rate: float) -> None:
    found = [two_kinds(values) for values in worlds(two_states(0.3, 0.1), launches)]

    assert not falls_short(sum(each is not None for each in found), SETS, rate)
    seen = [each for each in found if each is not None]
    assert np.mean([each.apart for each in seen]) == pytest.approx(0.1, rel=0.05)
    # The slow ones, which are fewer, have the lower speed-ups.
    assert np.mean([each.lower for each in seen]) < np.mean([each.higher for each in seen])


def test_launches_that_resemble_the_last_are_seen() -> None:
    assert not falls_short(sum(map(has_memory, worlds(autoregressive(0.03, 0.8), 16))), SETS, 0.6)


def test_two_kinds_are_counted_and_measured() -> None:
    kinds = two_kinds([0.1, 0.0, 0.1, 0.001, 0.101, 0.1])

    assert kinds is not None
    assert (kinds.lower, kinds.higher) == (2, 4)
    assert kinds.apart == pytest.approx(0.09975)


@pytest.mark.parametrize("values", [[], [1.0], [0.0, 0.0, 0.1, 0.1], [0.5] * 20])
def test_few_or_equal_launches_show_nothing(values: list[float]) -> None:
    assert two_kinds(values) is None
    assert not has_memory(values)


def test_one_launch_apart_is_no_kind() -> None:
    assert two_kinds([*np.linspace(0, 0.001, 11), 0.5]) is None


def test_what_is_seen_is_said() -> None:
    two = [0.0, 0.001] * 2 + [0.1, 0.101, 0.1, 0.1, 0.1]
    assert pattern_words(two, "log").startswith("launches come in two kinds, 10 % apart (4 lower, 5 higher), as where")
    assert pattern_words(two, "linear").startswith("launches come in two kinds (4 lower, 5 higher), as where")
    # Slowly up and down again, as a machine does that warms up and cools.
    wave = [float(value) for value in np.sin(np.linspace(0, 6, 24))]
    assert pattern_words(wave, "log").startswith("each launch resembles the one before")
    assert pattern_advice(wave).startswith("space the launches")
    neither = [0.01, -0.02, 0.0, 0.015, -0.01, 0.003, -0.004, 0.02]
    assert pattern_words(neither, "log") == pattern_advice(neither) == ""
