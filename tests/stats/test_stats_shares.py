"""The interval of a share, held to the values of Wilson's formula that scipy gives."""

from __future__ import annotations

import pytest

from pytest_ngraph.stats.shares import Share


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
