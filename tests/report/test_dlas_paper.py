"""The second paper's transcribed tables, and what they say of its observations: docs/findings.md quotes both."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.report.dlas.observations import (
    SPARSE,
    correlations,
    mean_drop,
    observations,
    observations_table,
    rank_correlation,
    rows,
)
from pytest_ngraph.report.dlas.published import ALGORITHMS, Fastest, fastest, models, shares
from pytest_ngraph.report.export.layout import markdown

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"


def test_the_tables_have_the_rows_of_the_paper() -> None:
    assert [len(models(table)) for table in (2, 5)] == [4, 4]
    assert [len(fastest(table)) for table in (3, 4, 6)] == [16, 16, 20]
    assert len(shares()) == 26
    with pytest.raises(SpecError, match="Table 7 of the second paper: not among 3, 4, 6"):
        fastest(7)


def test_a_slip_in_transcription_would_contradict_itself() -> None:
    """The fastest of all is the fastest of its row and of its column, and no order of times goes round in a circle."""
    for row in fastest():
        compression, algorithm = row.overall
        assert (row.algorithm[compression], row.compression[algorithm]) == (algorithm, compression), row.place
        assert not goes_round(slower_than(row)), row.place


Combination = tuple[str, str]


def slower_than(row: Fastest) -> dict[Combination, set[Combination]]:
    """Return what a row says to be slower than each combination of compression and algorithm."""
    known = list(product(row.algorithm, ALGORITHMS))
    slower: dict[Combination, set[Combination]] = {one: set() for one in known}
    for compression, algorithm in known:
        slower[compression, row.algorithm[compression]].add((compression, algorithm))
        slower[row.compression[algorithm], algorithm].add((compression, algorithm))
    return {one: others - {one} for one, others in slower.items()}


def goes_round(slower: dict[Combination, set[Combination]]) -> bool:
    left = dict(slower)
    while ends := [one for one, others in left.items() if not others & left.keys()]:
        for one in ends:
            del left[one]
    return bool(left)


def test_an_order_that_goes_round_is_found() -> None:
    a, b, c = (("WP", "GEMM"), ("WP", "Direct"), ("CP", "GEMM"))
    assert goes_round({a: {b}, b: {c}, c: {a}})
    assert not goes_round({a: {b}, b: {c}, c: set()})


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == -1
    assert rank_correlation([48, 98, 314, 557], [91.3, 93.2, 92.9, 94.3]) == pytest.approx(0.8)


def test_there_are_thirteen_observations() -> None:
    numbers = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII"]
    assert [one.number for one in observations()] == numbers
    # What the tables have nothing of says so.
    assert all(one.checks or one.lacks for one in observations())


def told_by_the_tables() -> Iterator[str]:
    """Yield the numbers that docs/findings.md quotes, made anew from the tables."""
    yield f"{mean_drop(2, 'i8'):.1f} points, not 1.8"
    by_macs, by_size = correlations("macs"), correlations("parameters")
    yield f"{by_macs['CIFAR-10']:.1f} on CIFAR-10 and {by_macs['ImageNet']:.1f} on ImageNet"
    yield f"{by_size['CIFAR-10']:.1f} and {by_size['ImageNet']:.1f}"

    def best(gpu: bool, tuned: bool | None, algorithm: str) -> str:
        found = [row.algorithm[kind] for row in rows(gpu=gpu, tuned=tuned) for kind in SPARSE if kind in row.algorithm]
        return f"{found.count(algorithm)} of {len(found)}"

    yield f"spatial pack in {best(True, None, 'Spatial')} cases, direct convolution in {best(True, None, 'Direct')}"
    yield f"GEMM is the best in {best(False, False, 'GEMM')} untuned cases and in {best(False, True, 'GEMM')} tuned"
    share = {(one.dataset, one.device, one.is_tuned, one.compression): one.percent for one in shares()}
    less = share["CIFAR-10", "HiKey CPU", False, "CP"] - share["ImageNet", "HiKey CPU", False, "CP"]
    yield f"{less:.1f} points, not 16.7"
    xavier = [share["CIFAR-10", "Xavier", tuned, "f16"] * 2 / 100 for tuned in (False, True)]
    yield f"{xavier[0]:.2f} and {xavier[1]:.2f} times"
    slowest = share["CIFAR-10", "Xavier", False, "WP"] * 20 / 100
    yield f"{slowest:.2f} times"


def test_the_docs_quote_the_tables() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert [told for told in told_by_the_tables() if told not in page] == []


def test_the_docs_have_the_thirteen() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [line for line in markdown(observations_table()).splitlines() if line not in page] == []
