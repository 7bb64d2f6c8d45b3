"""Gates on a host whose other guest comes and goes, simulated: launches that count by what was left alone of them.

What is simulated is which launches and blocks count, by the glances at them, what launches say, looks and confirmation.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.quantities.quantity import LEAST_ALIKE, QUANTILE
from pytest_ngraph.spec.cells import LEFT_ALONE
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, looks_for, spending
from pytest_ngraph.stats.launches import launch_quantile, share_alike
from tests.support.crowded_worlds import MEDIANS, MINDS, WHAT_COUNTS, Host, Rule, are_alike, by_quantile, said
from tests.support.launch_worlds import BOUND, TOLERANCE, Judged, judge_world
from tests.support.simulator import Array, Flags, Gates, exceeds, falls_short, intervals, two_stages

GATES, RATE, BUDGET = 400, 0.01, 16
ALIKE, UNLIKE = MINDS.values()
A_TENTH = math.log(1.1)


def judged(host: Host, *truths: float, rule: Rule = WHAT_COUNTS) -> list[Judged]:
    return judge_world(host.scatter(rule), truths, budget=BUDGET, gates=GATES, seed=71)


def test_what_is_simulated_is_what_launches_say() -> None:
    made = Host(0.1, UNLIKE).launches(np.random.default_rng(1), 20)
    shares = QUANTILE * made.alone
    for times, share, value in zip(made.times, shares, by_quantile(made.times, shares), strict=True):
        said_of_it = launch_quantile(np.exp(times).tolist(), share, lambda ln: ln[1] - ln[0])
        assert said_of_it is not None
        assert value == pytest.approx(said_of_it.value, abs=1e-12)
    # Whether the launch may say it, too. Every fourth call is quick.
    quick = made.times - math.log(2) * (np.random.default_rng(2).random(made.times.shape) < 0.25)
    for times in (made.times, quick):
        enough = are_alike(times, shares, made.alone)
        assert enough.any()
        for each, share, alone, is_so in zip(times, shares, made.alone, enough, strict=True):
            assert is_so == all(share_alike(np.exp(one).tolist(), share) >= LEAST_ALIKE * alone for one in each)
    assert not enough.all()


@pytest.mark.parametrize("slow", MINDS.values(), ids=MINDS)
@pytest.mark.parametrize("stay", [0.02, 0.1, 3.0])
def test_however_long_a_guest_stays_gates_are_decided_and_rightly(stay: float, slow: tuple[float, float]) -> None:
    edge, bound = judged(Host(stay, slow), -1.0, 0.0)
    assert not exceeds(edge.passes, GATES, RATE)
    assert not exceeds(bound.fails, GATES, RATE)
    assert not falls_short(edge.fails, GATES, 0.9)
    assert not falls_short(bound.passes, GATES, 0.95)


@pytest.mark.parametrize("stay", [0.02, 3.0])
def test_medians_of_all_visits_let_pass_what_minds_the_guest_less_than_the_baseline(stay: float) -> None:
    """The first negative control: beside the guest the ratio is better than it is by itself."""
    (edge,) = judged(Host(stay, UNLIKE), -1.0, rule=MEDIANS)
    assert edge.passes > 0.9 * GATES


def test_launches_that_were_hardly_left_alone_hide_regressions_if_they_count() -> None:
    """The second negative control: a low quantile of these is of the guest, now and then."""
    every = Rule(QUANTILE, of_alone=True, steady=True)
    (with_all,), (edge,) = (judged(Host(3.0, UNLIKE), -1.0, rule=rule) for rule in (every, WHAT_COUNTS))
    assert with_all.fails < 0.6 * GATES < 0.85 * GATES < edge.fails


def test_a_quantile_that_does_not_ask_how_much_was_left_alone_hides_them_as_well() -> None:
    """The third one: in launches that were left alone for a quarter it is of the guest."""
    same = Rule(QUANTILE, LEFT_ALONE)
    (edge,) = judged(Host(0.1, UNLIKE), -1.0, rule=same)
    assert edge.fails < 0.5 * GATES


# What is slow in some of the calls only


def test_what_slows_four_of_five_calls_by_a_tenth_fails() -> None:
    (found,) = judged(Host(0.1, ALIKE, A_TENTH, 0.8), 0.0)
    assert found.fails > 0.95 * GATES
    assert found.passes == 0


def by_both_channels(slowed: float) -> tuple[Flags, Flags]:
    """Return which gates passed at the bound, and of which all visits as they come would have it the other way.

    The compiled cell is slower by that much of ln(seconds) in every second call.
    """
    host, rng, count = Host(0.1, ALIKE, slowed, 0.5), np.random.default_rng(73), BUDGET + CONFIRMING_LAUNCHES
    made = host.launches(rng, 2 * GATES * count)
    made = made.only(made.alone >= LEFT_ALONE)
    values, second = (_gates(said(made, rule) + made.own, count) for rule in (WHAT_COUNTS, MEDIANS))
    looks = looks_for(BUDGET, TOLERANCE)
    levels = spending(ALPHA, looks, BUDGET)
    verdicts = two_stages(values, BOUND, looks, levels)
    opposed = np.zeros_like(verdicts.passed)
    for look, level in zip(looks, levels, strict=True):
        _, high = intervals(Gates(second.values[:, :look], second.within[:, :look], second.noise), level)
        opposed |= (verdicts.launches == look) & (high < BOUND.line)
    return verdicts.passed, verdicts.passed & opposed


def _gates(values: Array, launches: int) -> Gates:
    each = values[: GATES * launches].reshape(GATES, launches)
    return Gates(each, np.zeros_like(each), np.ones(GATES))


def test_what_slows_every_second_call_by_a_tenth_passes_in_most_gates() -> None:
    """The limit: fast calls do not tell what every second one is like. These are slower by 5 % on average.

    Of a machine that is left alone medians tell it, if not what slows four of ten. Beside a guest they can only speak
    against a pass, and rarely do.
    """
    passed, opposed = by_both_channels(A_TENTH)
    assert passed.sum() > 0.7 * GATES
    assert 0 < opposed.sum() < 0.2 * GATES
    (quiet,) = judged(Host(0.1, (0.0, 0.0), A_TENTH, 0.5), 0.0, rule=MEDIANS)
    assert quiet.passes == 0


@pytest.mark.parametrize("slower", [1.3, 2.0])
def test_what_makes_every_second_call_far_slower_hardly_ever_passes(slower: float) -> None:
    """Too few calls are as fast as the fast ones then, for the time that the machine was left alone."""
    passed, opposed = by_both_channels(math.log(slower))
    assert (passed & ~opposed).sum() < 0.05 * GATES


@pytest.mark.parametrize("stay", [0.1, 3.0])
def test_a_launch_does_not_say_that_a_cell_is_as_quick_as_three_of_ten_of_its_calls(stay: float) -> None:
    """The others take twice as long. Without asking how many are quick it would be so in many launches."""
    made = Host(stay, ALIKE, math.log(2), 0.7).launches(np.random.default_rng(3), 1000)
    made = made.only(made.alone >= LEFT_ALONE)
    assert (by_quantile(made.times, QUANTILE * made.alone) > -0.2).mean() > 0.4
    assert (said(made, Rule(QUANTILE, LEFT_ALONE, of_alone=True)) > -0.2).mean() < 0.02


# Calls as long as a guest stays


def ratios(of_calls: tuple[float, float], stay: float, launches: int = 300) -> Array:
    """Return ln of the ratio of two cells by quantiles over the true one, on a host whose guest is there half the time.

    A call takes 1.57 times as long in the part of it in which it is there.
    """
    rng, alone = np.random.default_rng(5), 0.5
    each = []
    for seconds in of_calls:
        count, steps = max(24, round(0.48 / seconds)), max(1, round(seconds / 0.001))
        starts = rng.random((launches, count)) * 2 * stay
        share = np.zeros((launches, count))
        # Half of the time it is there, in turn, for so long.
        for step in range(steps):
            share += ((starts + step * 0.001) % (2 * stay) < stay) / steps
        times = (1 + 0.57 * share) * (1 + 0.01 * np.abs(rng.standard_normal(share.shape)))
        each.append(np.log(np.quantile(times, QUANTILE * alone, axis=1)))
    return each[0] - each[1]


def test_calls_that_are_longer_than_a_guest_stays_have_no_quantile_of_a_machine_that_was_left_alone() -> None:
    """Which is why launches do not count by it where a batch takes more than 20 ms; below, it is right."""
    assert abs(ratios((0.02, 0.002), 0.06).mean()) < 0.01
    assert ratios((0.06, 0.002), 0.03).mean() > 0.05
    assert ratios((0.2, 0.002), 0.03).mean() > 0.1
