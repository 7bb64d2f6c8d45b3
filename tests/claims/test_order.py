"""Orders of models: what is claimed of pairs, with which error rate, and what a verdict says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_ngraph.claims.assertions import InconclusiveWarning, assert_faster, assert_order
from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.quantities.quantity import NarrowedAway
from pytest_ngraph.quantities.sweeps import ModelSweep
from pytest_ngraph.stats import (
    CONFIRMING_ALPHA,
    CONFIRMING_LAUNCHES,
    CONFIRMING_LOOKS,
    Bound,
    LaunchValue,
    Verdict,
    judge_kept,
    judge_one_of,
    looks_for,
    spending,
)
from tests.claims.test_claims import Laboratory
from tests.conftest import Suite
from tests.support.ranking import Ranked, launches, models
from tests.support.simulator import (
    Flags,
    Gates,
    World,
    exceeds,
    falls_short,
    intervals,
    launch_values,
    ln_times,
)

TOLERANCE, LAUNCHES, RATE = 0.05, 8, 0.01
BOUND = Bound(1.0, at_least=True, tolerance=TOLERANCE, scale="log")
ZONE = -math.log1p(-TOLERANCE)
LOOKS = looks_for(LAUNCHES, TOLERANCE)
LEVELS = spending(ALPHA, LOOKS, LAUNCHES)
CONFIRMING_LEVELS = spending(CONFIRMING_ALPHA, CONFIRMING_LOOKS, CONFIRMING_LAUNCHES)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


# Case by case


def values(*numbers: float) -> list[LaunchValue]:
    return [LaunchValue(number, 0.0, 8) for number in numbers]


def exactly(number: float) -> list[LaunchValue]:
    return values(number, number, number)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (0.3, 0.3, "pass"),
        (0.3, -0.3, "fail"),
        (-0.3, 0.3, "fail"),
        (-0.3, -0.3, "pass"),
        # Within the tolerance on one side: there is no order to lose, or none was lost.
        (0.04, -0.3, "pass"),
        (0.3, -0.04, "pass"),
        (-0.04, 0.3, "pass"),
        (0.06, -0.06, "fail"),
        (0.0, 0.0, "pass"),
    ],
)
def test_a_pair_keeps_its_order_unless_both_sides_differ_by_the_tolerance(
    before: float, after: float, verdict: str
) -> None:
    assert judge_kept(exactly(before), exactly(after), BOUND, 0.004, 1) == verdict
    assert judge_kept(exactly(after), exactly(before), BOUND, 0.004, 1) == verdict


def test_a_pair_that_scatters_decides_nothing() -> None:
    loose = values(-0.5, 0.0, 0.5)
    assert judge_kept(loose, exactly(-0.3), BOUND, 0.004, 1) == "inconclusive"
    assert judge_kept(exactly(0.3), values(-0.3), BOUND, 0.004, 1) == "inconclusive"


def test_one_of_many_claims_needs_more_to_fail_and_no_more_to_pass() -> None:
    # t(0.9915, 2) = 7.6 and t(1 - 0.0085 / 4, 2) = 15.3 times 0.02 / sqrt(3).
    low = values(-0.15, -0.13, -0.11)
    assert judge_one_of(low, BOUND, ALPHA, 1) == "fail"
    assert judge_one_of(low, BOUND, ALPHA, 4) == "inconclusive"
    assert judge_kept(exactly(0.5), low, BOUND, ALPHA, 1) == "fail"
    assert judge_kept(exactly(0.5), low, BOUND, ALPHA, 4) == "inconclusive"
    high = values(0.07, 0.09, 0.11)
    assert judge_one_of(high, BOUND, ALPHA, 1) == judge_one_of(high, BOUND, ALPHA, 1000) == "pass"


def test_only_the_bound_of_an_order_is_taken() -> None:
    with pytest.raises(SpecError, match=r"judge_kept: at_most 1.0 \(expected at_least 1.0\)"):
        judge_kept(exactly(0.1), exactly(0.1), Bound(1.0, False, 0.05, "log"), 0.01, 1)


# Error rates, on the simulated machine

CLAIMS = 3000
WORLDS = {
    "ordinary": World(batches=3),
    "noisy": World(launch=0.03, batches=3),
    "undecidable": World(launch=0.08, batches=3),
    "clocks": World(clock=0.2, slow=0.3, batches=3),
}
Pairs = Mapping[tuple[int, int], tuple[Gates, Gates]]


@cache
def pairs(world: str, count: int) -> Pairs:
    """Return ln of the ratio of each pair of ``count`` models, with the baseline and compiled; the truth is 0.

    A launch visits all cells of a claim on one machine, as it does for a test over models.
    """
    rng, at_once = np.random.default_rng([53, count, *world.encode()]), 500
    parts = [
        ln_times(rng, WORLDS[world], np.ones(at_once), LAUNCHES + CONFIRMING_LAUNCHES, 8, 2 * count, "mirrored")
        for _ in range(CLAIMS // at_once)
    ]
    times = np.concatenate(parts)

    def gates(first: int, second: int) -> Gates:
        return Gates(*launch_values(times[..., second] - times[..., first]), np.ones(CLAIMS))

    return {
        (one, other): (gates(one, other), gates(count + one, count + other))
        for one, other in combinations(range(count), 2)
    }


def shifted(some: Pairs, before: Sequence[float], after: Sequence[float]) -> Pairs:
    """Return the pairs of models with these true ln throughputs, with the baseline and compiled."""
    return {
        (one, other): (gates[0].at(before[one] - before[other]), gates[1].at(after[one] - after[other]))
        for (one, other), gates in some.items()
    }


def part(gates: Gates, start: NDArray[np.int64] | int, count: int) -> Gates:
    """Return some launches of each gate, from its own first one on."""
    rows = np.arange(len(gates.values))[:, None]
    columns = np.broadcast_to(np.asarray(start), len(gates.values))[:, None] + np.arange(count)
    return Gates(gates.values[rows, columns], gates.within[rows, columns], gates.noise)


def kept(before: Gates, after: Gates, q: float, claims: int) -> tuple[Flags, Flags]:
    """Return ``judge_kept`` of every gate: who passes, who fails."""
    (low, high), (lower, higher) = intervals(before, q / 2), intervals(after, q / 2)
    passed = ((high <= ZONE) | (lower >= -ZONE)) & ((low >= -ZONE) | (higher <= ZONE))
    (low, high), (lower, higher) = intervals(before, q / claims), intervals(after, q / claims)
    return passed, ~passed & (((low > 0) & (higher < 0)) | ((high < 0) & (lower > 0)))


def linked(_: Gates, after: Gates, q: float, claims: int) -> tuple[Flags, Flags]:
    """Return ``judge_one_of`` of every gate: who passes, who fails."""
    passed = intervals(after, q)[0] >= -ZONE
    return passed, ~passed & (intervals(after, q / claims)[1] < 0)


def judged(
    some: Pairs, rule: Callable[..., tuple[Flags, Flags]] = kept, claims: int | None = None
) -> tuple[Flags, Flags, Flags]:
    """Return which claims pass, which fail in the first stage, and which fail in both."""
    share = len(some) if claims is None else claims
    passes, first_stage, both = np.ones(CLAIMS, bool), np.zeros(CLAIMS, bool), np.zeros(CLAIMS, bool)
    for before, after in some.values():
        passed, failed = np.zeros(CLAIMS, bool), np.zeros(CLAIMS, bool)
        failed_at = np.zeros(CLAIMS, int)
        for look, q in zip(LOOKS, LEVELS, strict=True):
            good, bad = rule(part(before, 0, look), part(after, 0, look), q, share)
            is_open = ~(passed | failed)
            failed_at[is_open & bad] = look
            passed |= is_open & good
            failed |= is_open & bad
        passes &= passed
        first_stage |= failed
        asked = failed.copy()
        for fresh, level in zip(CONFIRMING_LOOKS, CONFIRMING_LEVELS, strict=True):
            good, bad = rule(part(before, failed_at, fresh), part(after, failed_at, fresh), level, 1)
            both |= asked & bad
            asked &= ~(good | bad)
    return passes, first_stage, both


def test_claims_judged_all_at_once_get_the_verdicts_of_the_statistics_room() -> None:
    some = shifted(pairs("ordinary", 3), (0.1, 0.0, -0.1), (-0.1, 0.0, 0.02))
    seen = set()
    for before, after in some.values():
        good, bad = kept(part(before, 0, 4), part(after, 0, 4), 0.004, 3)
        links = linked(part(before, 0, 4), part(after, 0, 4), 0.004, 3)
        for claim in range(200):
            rows = [
                [LaunchValue(value, within, 8) for value, within in zip(*each, strict=True)]
                for each in ((gates.values[claim, :4], gates.within[claim, :4]) for gates in (before, after))
            ]
            verdict = judge_kept(rows[0], rows[1], BOUND, 0.004, 3)
            assert verdict == ("pass" if good[claim] else "fail" if bad[claim] else "inconclusive")
            link = judge_one_of(rows[1], BOUND, 0.004, 3)
            assert link == ("pass" if links[0][claim] else "fail" if links[1][claim] else "inconclusive")
            seen |= {verdict, link}
    assert seen == {Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE}


APART = (1.0, 0.5, 0.0, -0.5, -1.0)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("count", [3, 5])
def test_an_order_that_holds_fails_in_one_claim_of_a_hundred_at_most(world: str, count: int) -> None:
    """The worst: far apart with the baseline, and equally fast compiled. Also: all equal, both ways round."""
    nothing = (0.0,) * count
    for before, after in ((APART[:count], nothing), (nothing, APART[:count]), (nothing, nothing)):
        _, first, both = judged(shifted(pairs(world, count), before, after))
        assert not exceeds(int(first.sum()), CLAIMS, RATE)
        assert not exceeds(int(both.sum()), CLAIMS, 0.0005)


@pytest.mark.parametrize("world", WORLDS)
def test_an_order_that_two_models_lost_by_the_tolerance_passes_in_one_claim_of_a_hundred_at_most(world: str) -> None:
    """At the edge on both sides, which can err in two ways, and on one side with the other far away."""
    for before, after in (((ZONE, 0.0, -0.5), (0.0, ZONE, -0.5)), ((0.5, 0.0, -0.5), (0.0, ZONE, -0.5))):
        passed, _, _ = judged(shifted(pairs(world, 3), before, after))
        assert not exceeds(int(passed.sum()), CLAIMS, RATE)


@pytest.mark.parametrize("world", WORLDS)
def test_a_given_order_errs_as_rarely(world: str) -> None:
    some, nothing = pairs(world, 5), (0.0,) * 5
    chain = {pair: gates for pair, gates in some.items() if pair[1] == pair[0] + 1}
    assert len(chain) == 4
    _, first, both = judged(shifted(chain, nothing, nothing), linked)
    assert not exceeds(int(first.sum()), CLAIMS, RATE)
    assert not exceeds(int(both.sum()), CLAIMS, 0.0005)
    passed, _, _ = judged(shifted(chain, nothing, (1.0, 0.5, 0.0, ZONE, -0.5)), linked)
    assert not exceeds(int(passed.sum()), CLAIMS, RATE)


def test_orders_are_decided_where_launches_scatter_as_they_usually_do() -> None:
    some = pairs("ordinary", 3)
    passed, _, _ = judged(shifted(some, APART[:3], (1.0, 0.9, 0.8)))
    assert not falls_short(int(passed.sum()), CLAIMS, 0.99)
    _, _, failed = judged(shifted(some, APART[:3], (1.0, 1.15, 0.0)))
    assert not falls_short(int(failed.sum()), CLAIMS, 0.99)


# What must be caught.


def test_ranking_points_is_caught() -> None:
    """Equal models, and the order of their means over eight launches: reversed in half of all claims of two."""
    before, after = pairs("ordinary", 3)[0, 1]
    reversed_ = np.sign(part(before, 0, 8).values.mean(axis=1)) != np.sign(part(after, 0, 8).values.mean(axis=1))
    assert exceeds(int(reversed_.sum()), CLAIMS, 0.45)
    assert falls_short(int(reversed_.sum()), CLAIMS, 0.55)


def test_ten_pairs_that_each_take_the_whole_error_rate_are_caught() -> None:
    """Bonferroni's share is what keeps the claim at 1 %."""
    some = shifted(pairs("undecidable", 5), APART, (0.0,) * 5)
    assert exceeds(int(judged(some, claims=1)[1].sum()), CLAIMS, RATE)
    assert not exceeds(int(judged(some)[1].sum()), CLAIMS, RATE)


# What a test is told


FAR, NEAR = (80.0, 40.0, 20.0), (400.0, 200.0, 100.0)


def test_an_order_that_compiling_keeps_passes_after_three_launches(lab: Laboratory) -> None:
    lab.script = launches(FAR, NEAR, 3)

    estimate = assert_order(models(lab, 3))

    assert estimate.value == pytest.approx(2.0)
    assert (estimate.metric, estimate.launches) == ("throughput_ratio", 3)
    (row,) = lab.kept
    assert row.claim == (
        "assert_order: throughput with local:null[sample_us=5] at batch1 in the order of null: timm:a, timm:b, timm:c "
        "at_least 1 (tolerance 0.05)"
    )
    assert (row.verdict, row.metric, row.bound) == ("pass", "throughput_ratio", 1.0)
    assert row.extra["subject"] in {one.cell.label for one in models(lab, 3).values()}


def test_two_models_that_change_places_fail_and_the_message_has_both_orders(lab: Laboratory) -> None:
    lab.script = launches(FAR, (400.0, 100.0, 200.0), 7)

    with pytest.raises(AssertionError) as caught:
        assert_order(models(lab, 3))

    assert lab.launched == 7
    lines = str(caught.value).splitlines()
    assert (
        lines[0]
        .partition(": ")[2]
        .startswith("assert_order: throughput with local:null[sample_us=5] at batch1 in the order of null: ")
    )
    assert lines[1] == "  claimed to be in the order that null gives them (tolerance 5 %)"
    assert lines[2] == (
        "  fail: timm:b over timm:c: 2.00x [2.00x, 2.00x] with null, 0.50x [0.50x, 0.50x] with null[sample_us=5], "
        "7 launches; the first 3 launches said fail, 4 fresh ones confirmed it"
    )
    assert lines[3].startswith("    1. timm:a: 80.0 /s [80.0 /s, 80.0 /s] with null, 400 /s [")
    assert [line.rpartition(" as ")[2] for line in lines[3:6]] == [f"number {place} compiled" for place in (1, 3, 2)]
    (row,) = lab.kept
    assert row.verdict == "fail"
    assert row.extra["reason"].startswith("timm:b over timm:c; the first 3 launches said fail")
    assert row.estimate == pytest.approx(0.5)


def test_the_message_does_not_depend_on_how_the_models_are_listed(lab: Laboratory) -> None:
    lab.script = launches((25.0, 100.0, 50.0), (200.0, 400.0, 100.0), 7)
    with pytest.raises(AssertionError, match=r"fail: timm:c over timm:a: 2\.00x .* 0\.50x "):
        assert_order(models(lab, 3))


def test_models_that_are_equally_fast_with_the_baseline_have_no_order_to_lose(lab: Laboratory) -> None:
    lab.script = launches((100.0, 101.0), (100.0, 60.0), 3)
    assert assert_order(models(lab, 2)).value == pytest.approx(0.6, rel=0.01)


def test_models_that_are_no_neighbours_are_compared_too(lab: Laboratory) -> None:
    # 4 % from one to the next, so that any two neighbours are within the tolerance; the ends are not.
    lab.script = launches((108.0, 104.0, 100.0), (100.0, 100.0, 110.0), 7)
    with pytest.raises(AssertionError, match=r"fail: timm:a over timm:c: 1\.08x"):
        assert_order(models(lab, 3))


def test_a_given_order_is_one_of_neighbours_and_needs_no_baseline(lab: Laboratory) -> None:
    lab.script = launches(FAR, (100.0, 400.0, 200.0), 3)

    estimate = assert_order(models(lab, 3), ["timm:b", "timm:c", "timm:a"])

    assert estimate.value == pytest.approx(2.0)
    (row,) = lab.kept
    assert row.claim.endswith("at batch1, fastest first: timm:b, timm:c, timm:a; each over the next at_least 1 "
                              "(tolerance 0.05)")  # fmt: skip


def test_a_given_order_that_is_not_there_fails(lab: Laboratory) -> None:
    lab.script = launches(FAR, NEAR, 7)
    with pytest.raises(AssertionError) as caught:
        assert_order(models(lab, 3), ["timm:b", "timm:a", "timm:c"])
    assert "fail: timm:b over timm:a: 0.50x [0.50x, 0.50x] with null[sample_us=5], 7 launches" in str(caught.value)
    assert "claimed to be in the order given (tolerance 5 %)" in str(caught.value)
    assert "    1. timm:a: 400 /s [400 /s, 400 /s]\n    2. timm:b: 200 /s" in str(caught.value)


def test_some_of_the_models_may_be_ordered(lab: Laboratory) -> None:
    lab.script = launches(FAR, NEAR, 3)
    assert assert_order(models(lab, 3), ["timm:a", "timm:c"]).value == pytest.approx(4.0)


def test_an_undecided_order_says_which_pairs_are_open_and_what_to_do(lab: Laboratory) -> None:
    lab.script = launches(FAR[:2], (100.0, 103.0), 8, scatter=0.2)
    with pytest.raises(AssertionError) as caught:
        assert_order(models(lab, 2))
    message = str(caught.value)
    assert "inconclusive: timm:a over timm:b: 2.00x" in message
    assert "8 launches; the budget is spent" in message
    assert "smallest effect this gate could have seen: " in message
    assert "what to do: a larger --ngraph-budget" in message
    with pytest.warns(InconclusiveWarning, match="inconclusive: timm:a over timm:b"):
        assert_order(models(lab, 2, inconclusive="warn"))


def test_a_pair_has_its_share_of_the_error_rate_only(lab: Laboratory) -> None:
    # Both ratios of a and b have a mean of -0.13 and a scatter of 0.02; see above. The other models are far apart.
    rates = (100.0, 100.0 * math.exp(0.13), 10.0, 1.0, 0.1)
    lab.script = launches(rates, rates, 20, scatter=0.02)
    with pytest.raises(AssertionError, match="the first 3 launches said fail"):
        assert_order(models(lab, 5, budget="3"), ["timm:a", "timm:b"])
    with pytest.raises(AssertionError, match=r"inconclusive: timm:a over timm:b: .*the budget is spent"):
        assert_order(models(lab, 5, budget="3"), ["timm:a", "timm:b", "timm:c", "timm:d", "timm:e"])


def test_fastest_calls_that_say_the_opposite_decide_nothing(lab: Laboratory) -> None:
    usual = {"a": 400.0, "b": 200.0}
    script = Ranked(before={"a": 100.0, "b": 50.0}, after=usual, by_fastest={"a": 450.0, "b": 900.0})
    lab.script = [script] * 3
    with pytest.raises(AssertionError, match=r"inconclusive: .*medians say pass, the fastest calls say the opposite"):
        assert_order(models(lab, 2))


def test_a_violated_control_makes_an_order_invalid(lab: Laboratory) -> None:
    lab.script = [Ranked(twin=1.2, before={"a": 100.0, "b": 50.0}, after={"a": 100.0, "b": 50.0})] * 3
    with pytest.raises(AssertionError, match=r"invalid: timm:a over timm:b: .*the control is violated"):
        assert_order(models(lab, 2))


def test_stored_launches_are_judged_as_they_were_judged_live(lab: Laboratory) -> None:
    lab.script = launches(FAR, (400.0, 100.0, 200.0), 7)
    told = []
    for how in ({}, {}, {"offline": True}):
        with pytest.raises(AssertionError) as caught:
            assert_order(models(lab, 3, **how))
        told.append(str(caught.value))
    assert len(set(told)) == 1
    assert lab.launched == 7


def test_without_error_control_what_is_wholly_reversed_fails_only_if_asked_to(lab: Laboratory) -> None:
    lab.script = launches(FAR, (400.0, 100.0, 200.0), 1)
    assert_order(models(lab, 3, protocol="quick"))
    assert lab.kept[-1].verdict == "not judged"
    lab.quick_gates = "fail"
    with pytest.raises(AssertionError, match=r"fail: timm:b over timm:c: .*1 launch; quick, no error control"):
        assert_order(models(lab, 3, protocol="quick"))
    assert assert_order(models(lab, 3, protocol="quick"), ["timm:a", "timm:c"]).value == pytest.approx(2.0)


def test_a_faster_model_has_its_ratio(lab: Laboratory) -> None:
    lab.script = launches(FAR, NEAR, 7)
    sweep = models(lab, 2)
    estimate = assert_faster(sweep["timm:a"], sweep["timm:b"])
    assert estimate.metric == "throughput_ratio"
    assert estimate.value == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (
            ["timm:a", "timm:a"],
            r"order \['timm:a', 'timm:a'\] \(expected two or more different models, fastest first\)",
        ),
        (["timm:a"], "expected two or more different models"),
        ("timm:a", r"order 'timm:a' \(expected two or more different models"),
        (["timm:a", "timm:z"], r"model timm:z is not in this sweep \(there: timm:a, timm:b\)"),
    ],
)
def test_an_order_that_cannot_be_judged_says_why(lab: Laboratory, order: Sequence[str], message: str) -> None:
    with pytest.raises(ClaimError, match=message):
        assert_order(models(lab, 2), order)
    assert lab.launched == 0


def test_a_cell_that_is_there_twice_is_no_order(lab: Laboratory) -> None:
    first, second = models(lab, 2).values()
    with pytest.raises(ClaimError, match=r"assert_order: local:null\[sample_us=5\] timm:b.* is the cell itself"):
        assert_order({"x": first, "y": second, "z": second})
    assert lab.launched == 0


def test_measurements_that_are_no_order_are_refused(lab: Laboratory) -> None:
    sweep = models(lab, 2)
    one, other = sweep.values()
    with pytest.raises(ClaimError, match=r"'timm:a' \(expected the fixture ngraph_models, or a list of measurements\)"):
        assert_order(["timm:a", "timm:b"])  # type: ignore[list-item]
    with pytest.raises(ClaimError, match="two of the measurements are of the same workload"):
        assert_order([one, one])
    with pytest.raises(ClaimError, match=r"an order needs two models \(there: timm:a\); name them in models="):
        assert_order([one])
    with pytest.raises(ClaimError, match=r"timm:z is not among the models \(there: timm:a, timm:b\)"):
        assert_order([one, other], ["timm:a", "timm:z"])
    with pytest.raises(ClaimError, match="were not measured together"):
        assert_order([one, lab.run()])


def test_models_that_were_narrowed_away_are_no_failure(lab: Laboratory) -> None:
    sweep = models(lab, 1)
    narrowed = ModelSweep(sweep["timm:a"].source, dict(sweep), ("timm:a", "timm:b"))
    with pytest.raises(NarrowedAway, match="the others were narrowed away on the command line"):
        assert_order(narrowed)
    with pytest.raises(NarrowedAway, match="model timm:b was narrowed away"):
        assert_order(narrowed, ["timm:a", "timm:b"])


def test_an_order_over_workloads_of_one_model_is_measured_for_real(suite: Suite) -> None:
    """200 us a layer against 200 us a call: one sample in one layer is faster than four in eight, then it is not."""
    suite.write(
        """
from pytest_ngraph import assert_order


def test_order(ngraph):
    cells = ngraph.measure(model="block:conv", batch=[1, 4], depth=[1, 8])
    assert_order(cells, ["block:conv batch4 depth1", "block:conv batch1 depth1"])
    assert_order(cells)
"""
    )
    result = suite.bare(
        "--ngraph-protocol=quick",
        "--ngraph-quick-gates=fail",
        "--ngraph-baseline=null[fixed_us=0,sample_us=0,layer_us=200]",
        "--ngraph-compiler=null[fixed_us=200,sample_us=0]",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *fail: block:conv batch1 depth1 over block:conv batch4 depth8: *x*, 0.??x*"])
