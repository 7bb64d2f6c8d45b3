"""The error rates the design promises, counted on a simulated machine (what must break them: the negative controls)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import nctdtr, stdtrit

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.metrics import slope, slope_weights
from pytest_ngraph.stats import (
    CONFIRMING_ALPHA,
    CONFIRMING_LAUNCHES,
    CONFIRMING_LOOKS,
    Bound,
    LaunchValue,
    Verdict,
    interval,
    is_clear_fail,
    judge,
    launch_value,
    looks_for,
    spending,
)
from tests.support.simulator import (
    Array,
    Gates,
    World,
    exceeds,
    falls_short,
    first_stage,
    intervals,
    launch_values,
    ln_times,
    simulate,
    speedup,
    two_stages,
)

# At most one gate in a hundred errs, to each side; ALPHA is what the looks spend so that this holds.
RATE, TOLERANCE, LAUNCHES, GATES = 0.01, 0.05, 8, 20_000
LOOKS = looks_for(LAUNCHES, TOLERANCE)
LEVELS = spending(ALPHA, LOOKS, LAUNCHES)
CONFIRMING_LEVELS = spending(CONFIRMING_ALPHA, CONFIRMING_LOOKS, CONFIRMING_LAUNCHES)
EDGE, TWICE = math.log1p(-TOLERANCE), math.log1p(-2 * TOLERANCE)
BOUND = Bound(1.0, at_least=True, tolerance=TOLERANCE, scale="log")
# What normal launch effects leave of RATE where two stages must agree: about 2 % of it.
CONFIRMED = 0.0005
WORLDS = {
    # Launch scatter about 1.2 %, as the prototype saw it.
    "ordinary": World(),
    # Gates of one suite whose noise differs fivefold.
    "unequal": World(launch=0.02, unequal=5.0),
    "noisy": World(launch=0.03),
    # No gate can be decided: every look is taken, which is the worst case for the level.
    "undecidable": World(launch=0.08),
    # Blocks scatter more than launches do.
    "restless": World(launch=0.005, visit=0.04, drift=0.03, clock=0.1),
    # Two clock states that change three times in a launch; one block in five sees its cells in different ones.
    "clocks": World(clock=0.2, slow=0.3),
    # A change point in every launch.
    "changing": World(change=1.0),
    # Every launch begins in a turbo that it loses.
    "fading": World(fading=0.3),
}
# Rarely slow launches of one cell alone: the worst that launch effects with a mean can do to a t-interval.
SKEWED = {"baseline": World(launch=0.08, skewed=0), "compiled": World(launch=0.08, skewed=1)}


@cache
def gates(world: str) -> Gates:
    """Return the gates of one world, true value 0, with the launches that a confirmation may need."""
    rng = np.random.default_rng([17, *world.encode()])
    return simulate(rng, {**WORLDS, **SKEWED}[world], GATES, LAUNCHES + CONFIRMING_LAUNCHES)


def one_by_one(
    launches: Sequence[LaunchValue], bound: Bound, looks: Sequence[int], levels: Sequence[float]
) -> tuple[Verdict, Verdict, int, int]:
    """Return the verdict of the first stage, the final one, and the launches of both, by the product's own."""
    for look, q in zip(looks, levels, strict=True):
        first = judge(interval(launches[:look], q), bound)
        if first is not Verdict.INCONCLUSIVE:
            if first is Verdict.PASS or is_clear_fail(interval(launches[:look], q), bound):
                return first, first, look, 0
            for fresh, level in zip(CONFIRMING_LOOKS, CONFIRMING_LEVELS, strict=True):
                again = judge(interval(launches[look : look + fresh], level), bound)
                if again is not Verdict.INCONCLUSIVE:
                    return first, again if again is Verdict.FAIL else Verdict.INCONCLUSIVE, look, fresh
            return first, Verdict.INCONCLUSIVE, look, CONFIRMING_LAUNCHES
    return Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE, looks[-1], 0


def word(passed: bool, failed: bool) -> str:
    return "pass" if passed else "fail" if failed else "inconclusive"


@pytest.mark.parametrize("at_least", [True, False])
@pytest.mark.parametrize("truth", [0.0, EDGE, TWICE, 6 * EDGE], ids=["bound", "edge", "twice", "far"])
def test_gates_judged_all_at_once_get_the_verdicts_of_the_statistics_room(truth: float, at_least: bool) -> None:
    """The rates below are counted by arrays, which are quicker; here they are held to what users get."""
    rng, count = np.random.default_rng(13), 300
    blocks = ln_times(rng, WORLDS["noisy"], np.ones(count), LAUNCHES + CONFIRMING_LAUNCHES, 8, 2, "mirrored")
    seen = speedup(blocks) + (truth if at_least else -truth)
    values, within = launch_values(seen)
    bound = Bound(1.0, at_least=at_least, tolerance=TOLERANCE, scale="log")
    all_at_once = Gates(values, within, np.ones(count))
    first = first_stage(all_at_once, bound, LOOKS, LEVELS)
    final = two_stages(all_at_once, bound, LOOKS, LEVELS)
    verdicts = set()
    for gate in range(count):
        launches = [value for launch in seen[gate].tolist() if (value := launch_value(launch)) is not None]
        assert [launch.value for launch in launches] == pytest.approx(values[gate], abs=1e-12)
        assert [launch.within_variance for launch in launches] == pytest.approx(within[gate])
        expected = one_by_one(launches, bound, LOOKS, LEVELS)
        assert expected[0] == word(first.passed[gate], first.failed[gate])
        assert expected[1] == word(final.passed[gate], final.failed[gate])
        assert expected[2] == first.launches[gate] == final.launches[gate]
        assert expected[3] == final.fresh[gate]
        verdicts.add((*expected[:2], expected[3]))
    assert len(verdicts) > 1


# What is promised of every gate: at most one in a hundred errs.


@pytest.mark.parametrize("world", WORLDS)
def test_at_the_bound_at_most_one_gate_in_a_hundred_fails_before_it_is_confirmed(world: str) -> None:
    assert not exceeds(first_stage(gates(world), BOUND, LOOKS, LEVELS).fails, GATES, RATE)


@pytest.mark.parametrize("world", WORLDS)
def test_at_the_bound_hardly_any_gate_fails_in_both_stages(world: str) -> None:
    fails = two_stages(gates(world), BOUND, LOOKS, LEVELS).fails
    assert not exceeds(fails, GATES, CONFIRMED)
    assert falls_short(fails, GATES, 0.002)  # not only unrefuted: proved to be under a fifth of RATE


@pytest.mark.parametrize("world", WORLDS)
def test_at_the_edge_of_the_tolerance_at_most_one_gate_in_a_hundred_passes(world: str) -> None:
    """A change point, two clock states or a fading turbo are no exception, because the order is mirrored."""
    assert not exceeds(two_stages(gates(world).at(EDGE), BOUND, LOOKS, LEVELS).passes, GATES, RATE)


# The machine alone: what it does to all cells is tens of times the tolerance, and cells have no noise to hide it in.
ALONE = World(launch=0.0, visit=0.001, batch=0.001, drift=0.0, walk=0.0, clock=0.0, change=0.0)


@pytest.mark.parametrize(
    ("world", "scatter", "passes"),
    [
        (replace(ALONE, change=1.0), 0.001, 0.99),
        (replace(ALONE, clock=0.05, slow=0.3), 0.012, 0.85),
        (replace(ALONE, clock=0.2, slow=0.3), 0.045, 0.2),
        (replace(ALONE, drift=0.03, walk=0.01), 0.007, 0.03),
    ],
    ids=["a change point in each launch", "two clock states", "two restless clock states", "drift"],
)
def test_what_the_machine_does_within_a_launch_stays_inside_the_level(
    world: World, scatter: float, passes: float
) -> None:
    """Change points of 10 % leave launches 0.07 % apart; clock states that differ by 30 %, 1 or 4 %.

    The interval sees what is left, because blocks that saw the change differ from the others.
    """
    count, fine = 5000, Bound(1.0, at_least=True, tolerance=0.005, scale="log")
    some = simulate(np.random.default_rng(3), world, count, LAUNCHES)
    at_the_bound = first_stage(some, fine, LOOKS, LEVELS)
    assert not exceeds(at_the_bound.fails, count, RATE)
    assert not exceeds(first_stage(some.at(fine.edge), fine, LOOKS, LEVELS).passes, count, RATE)
    assert some.values.std() < scatter
    assert not falls_short(at_the_bound.passes, count, passes)


def test_plain_t_over_few_launches_errs_up_to_1_15_times_what_is_spent_and_so_less_is() -> None:
    """Where nothing but launch effects scatter, and far more than the tolerance: the worst case of normal effects."""
    rng, wrong, wrong_if_all_is_spent, trials = np.random.default_rng(11), np.zeros(2), 0, 0
    for _ in range(8):
        values = rng.standard_normal((250_000, LAUNCHES))
        worst = Gates(values, np.zeros_like(values), np.ones(len(values)))
        trials += len(values)
        wrong += [
            first_stage(worst, BOUND, LOOKS, LEVELS).fails,
            first_stage(worst.at(EDGE), BOUND, LOOKS, LEVELS).passes,
        ]
        wrong_if_all_is_spent += first_stage(worst, BOUND, LOOKS, spending(RATE, LOOKS, LAUNCHES)).fails
    assert not exceeds(int(wrong[0]), trials, RATE)
    assert not exceeds(int(wrong[1]), trials, RATE)
    assert exceeds(wrong_if_all_is_spent, trials, 1.13 * RATE)
    assert falls_short(wrong_if_all_is_spent, trials, 1.18 * RATE)


# What is promised to whoever pays for it: decisions.


def planned_power(distance: float, scatter: float, launches: int, q: float) -> float:
    """Return the power of one look by the noncentral t of the launches' true scatter."""
    shift = distance * math.sqrt(launches) / scatter
    return 1 - float(nctdtr(launches - 1, shift, stdtrit(launches - 1, 1 - q)))


@pytest.mark.parametrize("world", ["ordinary", "noisy", "undecidable"])
def test_a_gate_tells_its_bound_from_its_edge_as_often_as_planned(world: str) -> None:
    """The plan is the power of the last look alone, and of the confirmation where there must be one."""
    scatter = float(np.std(gates(world).values))
    for truth in (EDGE, TWICE):
        seen = planned_power(-truth, scatter, LAUNCHES, LEVELS[-1])
        confirmed = planned_power(-truth, scatter, CONFIRMING_LAUNCHES, CONFIRMING_LEVELS[-1])
        fails = two_stages(gates(world).at(truth), BOUND, LOOKS, LEVELS).fails
        assert not falls_short(fails, GATES, max(0.0, seen - RATE) * confirmed)
    seen = planned_power(-EDGE, scatter, LAUNCHES, LEVELS[-1])
    assert not falls_short(two_stages(gates(world), BOUND, LOOKS, LEVELS).passes, GATES, seen - RATE)


@pytest.mark.parametrize(
    ("world", "at_the_edge", "at_twice_the_tolerance"),
    [("ordinary", 0.998, 0.999), ("unequal", 0.81, 0.99), ("noisy", 0.70, 0.998), ("restless", 0.72, 0.998)],
)
def test_two_stages_find_a_regression(world: str, at_the_edge: float, at_twice_the_tolerance: float) -> None:
    """At launch scatters of 1.2, 2.6 (0.9 to 4.5), 3.1 and 2.9 %; the goal is 95 % up to 2 %."""
    assert not falls_short(two_stages(gates(world).at(EDGE), BOUND, LOOKS, LEVELS).fails, GATES, at_the_edge)
    assert not falls_short(
        two_stages(gates(world).at(TWICE), BOUND, LOOKS, LEVELS).fails, GATES, at_twice_the_tolerance
    )


@pytest.mark.parametrize(
    ("scatter", "budget", "found", "launches"),
    [(0.02, 8, 0.98, 11.7), (0.02, 16, 0.99, 12.3), (0.03, 8, 0.75, 13.5), (0.03, 16, 0.955, 16.8)],
)
def test_a_regression_of_the_tolerance_is_found(scatter: float, budget: int, found: float, launches: float) -> None:
    """By launches alone, whose blocks show nothing: 86 % and 45 % were it confirmed by one look at four fresh ones."""
    count, looks = 20_000, looks_for(budget, TOLERANCE)
    values = scatter * np.random.default_rng(61).standard_normal((count, budget + CONFIRMING_LAUNCHES)) + EDGE
    some = Gates(values, np.zeros_like(values), np.ones(count))
    judged = two_stages(some, BOUND, looks, spending(ALPHA, looks, budget))
    assert not falls_short(judged.fails, count, found)
    assert float((judged.launches + judged.fresh).mean()) < launches


def test_what_is_half_as_fast_is_mostly_found_in_three_launches() -> None:
    twice_as_slow = two_stages(gates("ordinary").at(math.log(0.5)), BOUND, LOOKS, LEVELS)
    assert twice_as_slow.fails == GATES
    assert not falls_short(int((twice_as_slow.launches + twice_as_slow.fresh <= 3).sum()), GATES, 0.95)


@pytest.mark.parametrize(("scatter", "budget"), [(0.05, 8), (0.05, 16), (0.3, 8), (0.3, 16)])
def test_confirmed_fails_err_in_one_of_a_hundred_at_most_though_launches_are_skewed(
    scatter: float, budget: int
) -> None:
    """Rarely far too slow launches of the baseline: 0.4 % at 5 %, and 0.8 to 0.96 % where a fail may be clear, too."""
    count, looks, rng = 100_000, looks_for(budget, TOLERANCE), np.random.default_rng(67)
    values = scatter * (rng.standard_exponential((count, budget + CONFIRMING_LAUNCHES)) - 1)
    some = Gates(values, np.zeros_like(values), np.ones(count))
    assert not exceeds(two_stages(some, BOUND, looks, spending(ALPHA, looks, budget)).fails, count, RATE)


def test_most_ordinary_gates_are_decided_in_four_launches() -> None:
    """69 % of 60,000 gates."""
    first = first_stage(gates("ordinary"), BOUND, LOOKS, LEVELS)
    assert not falls_short(int(((first.passed | first.failed) & (first.launches <= 4)).sum()), GATES, 0.685)


# What is not promised: a t-interval wants launch effects that are about as often too fast as too slow.


def test_launches_that_are_rarely_far_too_slow_make_the_first_stage_err_and_confirmation_mends_fails_only() -> None:
    """The honest figures of exponential launch effects of one cell, far above the tolerance and with nothing else.

    Few launches miss the rare slow ones: their mean is too fast and their scatter too small. On the side of a fail
    (the baseline's launches are skewed) 8.9 % instead of 1 % err in the first stage, and 0.8 % after confirmation, of
    which 0.2 % are clear at once; looks after 4, 6 and 8 at 2 % would leave 1.3 %. On the side of a pass (the compiled
    cell's are), which nothing confirms, 8.9 % stay.
    """
    rng, trials = np.random.default_rng(7), 400_000
    effects = rng.standard_exponential((trials, LAUNCHES + CONFIRMING_LAUNCHES)) - 1
    baseline, compiled = (Gates(sign * effects, np.zeros_like(effects), np.ones(trials)) for sign in (1, -1))
    alone, both = (stage(baseline, BOUND, LOOKS, LEVELS).fails for stage in (first_stage, two_stages))
    passes = two_stages(compiled.at(EDGE), BOUND, LOOKS, LEVELS).passes
    assert exceeds(alone, trials, 0.08)
    assert falls_short(alone, trials, 0.095)
    assert exceeds(both, trials, 0.007)
    assert falls_short(both, trials, RATE)
    assert exceeds(passes, trials, 0.08)
    assert falls_short(passes, trials, 0.095)


def test_two_stages_hold_false_fails_with_skewed_launches_on_the_simulated_machine() -> None:
    for world in SKEWED:
        assert not exceeds(two_stages(gates(world), BOUND, LOOKS, LEVELS).fails, GATES, RATE)
    assert exceeds(first_stage(gates("baseline"), BOUND, LOOKS, LEVELS).fails, GATES, RATE)


@pytest.mark.parametrize(("launch", "rate"), [(0.01, 0.002), (0.02, RATE), (0.03, 0.022)])
def test_a_quiet_machine_keeps_false_passes_low_though_launches_are_skewed(launch: float, rate: float) -> None:
    """At launch scatters that let gates be decided the tolerance has room for what few launches miss."""
    skewed = simulate(np.random.default_rng(19), World(launch=launch, skewed=1), GATES, LAUNCHES)
    assert not exceeds(first_stage(skewed.at(EDGE), BOUND, LOOKS, LEVELS).passes, GATES, rate)


# A suite of 200 gates whose noise differs fivefold, many times over.

SUITES, SIZE = 200, 200


@cache
def suites() -> Gates:
    world = World(launch=0.05, unequal=5.0, batches=5)
    return simulate(np.random.default_rng(41), world, SUITES * SIZE, LAUNCHES + CONFIRMING_LAUNCHES)


def noisiest() -> Gates:
    """Return the noisiest tenth of the gates, whose launches scatter by some 10 %."""
    noise = suites().noise
    return suites().only(noise >= np.quantile(noise, 0.9))


def test_no_class_of_gates_in_a_suite_errs_more_than_promised() -> None:
    for some in (suites(), noisiest()):
        count = len(some.values)
        assert not exceeds(first_stage(some, BOUND, LOOKS, LEVELS).fails, count, RATE)
        assert not exceeds(two_stages(some, BOUND, LOOKS, LEVELS).fails, count, CONFIRMED)
        assert not exceeds(two_stages(some.at(EDGE), BOUND, LOOKS, LEVELS).passes, count, RATE)


def test_a_suite_of_two_hundred_gates_at_their_bounds_has_a_false_fail_in_one_run_of_ten_at_most() -> None:
    """About 1.3 false fails a suite before confirmation, 0.02 after it: a red suite is worth a look."""
    alone = first_stage(suites(), BOUND, LOOKS, LEVELS).failed.reshape(SUITES, SIZE)
    both = two_stages(suites(), BOUND, LOOKS, LEVELS).failed.reshape(SUITES, SIZE)
    assert alone.sum() / SUITES < 2.0
    assert both.sum() / SUITES < 0.1
    assert not falls_short(int(alone.any(axis=1).sum()), SUITES, 0.5)
    assert falls_short(int(both.any(axis=1).sum()), SUITES, 0.1)


# Intervals, and what is made of more cells than two.


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("launches", [4, 8])
def test_the_interval_covers_the_truth_in_ninety_nine_of_a_hundred(world: str, launches: int) -> None:
    assert not exceeds(misses(gates(world), launches), GATES, 0.01)


@pytest.mark.parametrize("launches", [4, 8])
def test_the_interval_is_no_wider_than_its_level_where_launches_dominate(launches: int) -> None:
    assert not falls_short(misses(gates("undecidable"), launches), GATES, 0.008)


def misses(some: Gates, launches: int, truth: float = 0.0) -> int:
    """Return how many two-sided 99 % intervals over so many launches leave out the truth."""
    low, high = intervals(Gates(some.values[:, :launches], some.within[:, :launches], some.noise), 0.005)
    return int(((low > truth) | (high < truth)).sum())


def change_of_speedup(ln_seconds: Array) -> Array:
    """Return ln BSR or ln retention: the cells are those of one speed-up, then those of the other."""
    return speedup(ln_seconds[..., 2:]) - speedup(ln_seconds[..., :2])


@pytest.mark.parametrize(
    "world",
    [World(launch=0.02), World(launch=0.08), World(clock=0.2, slow=0.3), World(change=1.0, fading=0.3)],
    ids=["ordinary", "undecidable", "clocks", "changing and fading"],
)
def test_retention_and_batch_scaling_resilience_err_as_rarely_as_speedups(world: World) -> None:
    """They are one contrast of four cells' ln times, visited in mirrored order like two."""
    count = 8000
    some = simulate(
        np.random.default_rng(31), world, count, LAUNCHES + CONFIRMING_LAUNCHES, cells=4, of_block=change_of_speedup
    )
    assert not exceeds(misses(some, 4), count, 0.01)
    assert not exceeds(misses(some, 8), count, 0.01)
    assert not exceeds(first_stage(some, BOUND, LOOKS, LEVELS).fails, count, RATE)
    assert not exceeds(two_stages(some, BOUND, LOOKS, LEVELS).fails, count, CONFIRMED)
    assert not exceeds(two_stages(some.at(EDGE), BOUND, LOOKS, LEVELS).passes, count, RATE)


DEPTHS = np.arange(1, 7)
CURVE = 1 + 2 * (1 - np.exp(-DEPTHS / 2))  # speed-ups that saturate with depth


def slope_of_block(ln_seconds: Array) -> Array:
    """Return the slope of the speed-up on depth; the cells are six baselines, then six compiled ones."""
    speedups = CURVE * np.exp(ln_seconds[..., :6] - ln_seconds[..., 6:])
    return np.asarray(speedups @ list(slope_weights(DEPTHS.tolist()).values()))


def test_a_slope_is_covered_and_judged_as_promised_though_its_curve_saturates() -> None:
    """docs/measuring.md, step 9: over launches of the slope that each block has; the tolerance is an amount."""
    truth = slope(dict(zip(DEPTHS.tolist(), CURVE.tolist(), strict=True)))
    assert slope_of_block(np.zeros(12)) == pytest.approx(truth)
    count, world = 4000, World(launch=0.05, batches=3)
    some = simulate(
        np.random.default_rng(29), world, count, LAUNCHES + CONFIRMING_LAUNCHES, cells=12, of_block=slope_of_block
    )
    for launches in (4, 8):
        assert not exceeds(misses(some, launches, truth), count, 0.01)
        assert not falls_short(misses(some, launches, truth), count, 0.006)
    amount = 0.04  # per layer, where launches scatter by 0.03
    bound = Bound(truth, at_least=True, tolerance=amount, scale="linear")
    assert not exceeds(first_stage(some, bound, LOOKS, LEVELS).fails, count, RATE)
    assert not exceeds(two_stages(some, bound, LOOKS, LEVELS).fails, count, CONFIRMED)
    assert not exceeds(two_stages(some.at(-amount), bound, LOOKS, LEVELS).passes, count, RATE)
    assert not falls_short(two_stages(some.at(-4 * amount), bound, LOOKS, LEVELS).fails, count, 0.9)
