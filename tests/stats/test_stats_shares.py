"""The interval of a share, held to the values of Wilson's formula that scipy gives."""

from __future__ import annotations

from math import comb

import pytest

from pytest_ngraph.stats.shares import Share, exact_interval, mcnemar, paired_interval


@pytest.mark.parametrize(("count", "total"), [(0, 8), (1, 8), (5, 8), (8, 8), (2, 2), (3, 3), (500, 1000)])
def test_the_interval_is_wilsons(count: int, total: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    interval = stats.binomtest(count, total).proportion_ci(confidence_level=0.99, method="wilson")
    share = Share(count, total)
    assert share.value == count / total
    assert (share.low, share.high) == pytest.approx((interval.low, interval.high), abs=1e-9)
    assert 0 <= share.low <= share.value <= share.high <= 1


def test_it_reads_as_a_count_with_its_interval() -> None:
    assert str(Share(8, 8)) == "8 of 8 [0.55, 1.00]"


@pytest.mark.parametrize(("hits", "total"), [(0, 8), (1, 8), (5, 8), (8, 8), (500, 1000), (327, 360)])
def test_the_exact_interval_is_that_of_clopper_and_pearson(hits: int, total: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    interval = stats.binomtest(hits, total).proportion_ci(confidence_level=0.99, method="exact")
    assert exact_interval(hits, total, 0.005) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_a_share_that_is_no_count_lies_between_its_neighbours() -> None:
    below, between, above = (exact_interval(hits, 360, 0.005) for hits in (327, 327.6, 328))
    assert below[0] < between[0] < above[0]
    assert below[1] < between[1] < above[1]


@pytest.mark.parametrize(("lost", "won"), [(0, 0), (3, 1), (1, 3), (10, 3), (50, 80)])
def test_mcnemars_p_value_is_that_of_a_binomial_test(lost: int, won: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(lost, lost + won, 0.5).pvalue if lost + won else 1.0
    assert mcnemar(lost, won) == pytest.approx(expected)


@pytest.mark.parametrize(("samples", "level"), [(6, 0.05), (9, 0.025)])
def test_the_paired_interval_errs_to_each_side_as_seldom_as_it_says(samples: int, level: float) -> None:
    """By the exact law: all tables that there are, at many true shares of samples that are lost and won."""
    tables = [(lost, won) for lost in range(samples + 1) for won in range(samples + 1 - lost)]
    intervals = {table: paired_interval(*table, samples, level) for table in tables}
    worst = [0.0, 0.0]
    for discordant in (0.02, 0.1, 0.25, 0.5, 0.75, 1.0):
        for step in range(-5, 6):
            difference = discordant * step / 5
            first, second = (discordant + difference) / 2, (discordant - difference) / 2
            err = [0.0, 0.0]
            for (lost, won), (low, high) in intervals.items():
                ways = comb(samples, lost) * comb(samples - lost, won)
                chance = ways * first**lost * second**won * max(0.0, 1 - discordant) ** (samples - lost - won)
                err[0] += chance * (low > difference + 1e-9)
                err[1] += chance * (high < difference - 1e-9)
            worst = [max(each) for each in zip(worst, err, strict=True)]
    assert max(worst) <= level
    # An interval of all there is would err as seldom.
    assert max(worst) > level / 5


def test_the_paired_interval_is_narrower_than_two_shares_by_themselves() -> None:
    low, high = paired_interval(150, 100, 10_000, 0.005)
    assert low < 0.005 < high
    alone = exact_interval(9_000, 10_000, 0.005)
    assert high - low < alone[1] - alone[0]
    mirrored = paired_interval(100, 150, 10_000, 0.005)
    assert mirrored == pytest.approx((-high, -low))
    assert paired_interval(0, 0, 360, 0.005)[1] == pytest.approx(0.0186, abs=1e-4)
