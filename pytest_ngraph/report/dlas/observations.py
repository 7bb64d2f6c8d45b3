"""The second paper's thirteen observations, as checks of its own Tables 2 to 6 and of the shares that its text states.

An observation is a sentence of its section 6, in our words. A check is one number, pair or row that the sentence speaks
of: it says ``yes``, ``no``, or ``open`` where the tables cannot say - times are in figures only, and two ratios of
compression are no pair.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from pytest_ngraph.report.dlas.published import ALGORITHMS, Fastest, Model, Share, fastest, models, shares
from pytest_ngraph.report.export.layout import Table

Answer = Literal["yes", "open", "no"]
SPARSE = ("WP", "CP")
# The two models of each dataset that are made to be small.
SMALL = frozenset({"MobileNetV1", "MobileNetV2", "EfficientNetB0"})
# From here on we call a rank correlation strong.
STRONG = 0.7
# Percentage points of accuracy below which a change is none: the paper calls 0.1 negligible.
NEGLIGIBLE = 0.15


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that an observation says of the tables, and what they say of it."""

    what: str
    says: Answer


@dataclass(frozen=True, slots=True)
class Observation:
    """One of the thirteen: its number, our words, its section, what it implies, and what no table of the paper has."""

    number: str
    sentence: str
    place: str
    checks: tuple[Check, ...]
    lacks: str = ""

    def count(self, answer: Answer) -> int:
        """Count the checks of which the tables say this."""
        return sum(check.says == answer for check in self.checks)


def _check(what: str, holds: bool) -> Check:
    return Check(what, "yes" if holds else "no")


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rho of numbers without ties."""
    one, other = ([sorted(values).index(value) for value in values] for values in (first, second))
    count = len(one)
    return 1 - 6 * sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / (count * (count**2 - 1))


def correlations(size: Literal["macs", "parameters"]) -> dict[str, float]:
    """Return rho of the accuracy with MACs or parameters over the four models of each dataset."""
    return {
        dataset: rank_correlation([getattr(one, size) for one in models(table)], [one.top1 for one in models(table)])
        for dataset, table in (("CIFAR-10", 2), ("ImageNet", 5))
    }


def rows(*, gpu: bool | None = None, tuned: bool | None = None, table: int | None = None) -> list[Fastest]:
    """Return the rows of Tables 3, 4 and 6 of this kind."""
    return [
        row for row in fastest(table) if (gpu is None or row.is_gpu is gpu) and (tuned is None or row.is_tuned is tuned)
    ]


def untuned_of(row: Fastest) -> Fastest | None:
    """Return the row of the same device and model without tuning, where the paper has it."""
    return next(
        (one for one in fastest(row.table)
         if not one.is_tuned and (one.device, one.model) == (row.device, row.model)), None,
    )  # fmt: skip


@functools.cache
def observations() -> tuple[Observation, ...]:
    """Return the thirteen observations in the paper's order."""
    return (
        Observation("I", "MACs, accuracy and inference time are not strongly correlated", "section 6",
                    tuple(_uncorrelated("macs")), "times"),
        Observation("II", "Tuned pruned models beat the dense ones on CIFAR-10, and not on ImageNet", "section 6.1",
                    tuple(_sparse_wins())),
        Observation("III", "Parameters and accuracy are not strongly correlated; small models suffer more from "
                    "compression", "section 6.2", (*_uncorrelated("parameters"), *_vulnerable())),
        Observation("IV", "Weight pruning compresses more and is faster than channel pruning, with less of its "
                    "expected speed-up", "section 6.3", tuple(_weights_or_channels())),
        Observation("V", "What quantisation gains depends on hardware and data type", "section 6.3",
                    tuple(_quantised())),
        Observation("VI", "float16 costs no accuracy, calibrated int8 1.8 and 22.2 points on average",
                    "section 6.3.2", tuple(_accuracies())),
        Observation("VII", "Tuned, dense: spatial pack is the best algorithm on CPUs", "section 6.4",
                    tuple(_best(rows(gpu=False, tuned=True), ("Dense",), "Spatial"))),
        Observation("VIII", "Tuned, dense: direct convolution is the best algorithm on GPUs", "section 6.4",
                    tuple(_best(rows(gpu=True, tuned=True), ("Dense",), "Direct"))),
        Observation("IX", "Pruned: GEMM is the best algorithm on CPUs, direct convolution on GPUs", "section 6.4",
                    (*_best(rows(gpu=False), SPARSE, "GEMM"), *_best(rows(gpu=True), SPARSE, "Direct"))),
        Observation("X", "Pruning rarely brings the speed-up that it should", "section 6.4",
                    tuple(_check(f"{_named(one)}: {one.percent:g} % of it, less than all", one.percent < 100)
                          for one in shares() if one.compression in SPARSE)),
        Observation("XI", "Tuning makes code much faster, and changes which algorithm or compression is best",
                    "section 6.5", tuple(_changed()), "times"),
        Observation("XII", "Tuning gains less on pruned models", "section 6.5", tuple(_less_when_tuned())),
        Observation("XIII", "The i7 is faster than the HiKey's CPU, the Xavier than its GPU", "section 6.6",
                    (), "times"),
    )  # fmt: skip


def _uncorrelated(size: Literal["macs", "parameters"]) -> Iterator[Check]:
    for dataset, rho in correlations(size).items():
        yield _check(f"{size} and accuracy, {dataset}: rho {rho:.1f} over four models", abs(rho) < STRONG)


def _sparse_wins() -> Iterator[Check]:
    for row in rows(gpu=False, tuned=True):
        wins = row.overall[0] in SPARSE
        yield _check(f"{row.place}: fastest is {'+'.join(row.overall)}", wins if row.table == 3 else not wins)


def _vulnerable() -> Iterator[Check]:
    for table, kind in product((2, 5), ("WP", "CP", "i8", "f16")):
        named = models(table)
        pairs = ((small, large) for small in named for large in named
                 if small.name in SMALL and large.name not in SMALL)  # fmt: skip
        yield from (_suffers(small, large, kind) for small, large in pairs)


def _suffers(small: Model, large: Model, kind: str) -> Check:
    """Compare the loss of a small model with that of a large one, which may have been compressed more."""
    mine, theirs = small.drop(kind), large.drop(kind)
    ratios = small.compressed[kind].ratio, large.compressed[kind].ratio
    what = (f"{kind}, Table {small.table}: {small.name} loses {mine:.1f} at {ratios[0]:g} %, "
            f"{large.name} {theirs:.1f} at {ratios[1]:g} %")  # fmt: skip
    if abs(mine - theirs) < NEGLIGIBLE or (mine < theirs and ratios[0] < ratios[1]):
        return Check(what, "open")
    return _check(what, mine > theirs)


def _weights_or_channels() -> Iterator[Check]:
    for one in (*models(2), *models(5)):
        weights, channels = (one.compressed[kind].ratio for kind in SPARSE)
        yield _check(f"ratio of {one.name}, Table {one.table}: {weights:g} and {channels:g} %", weights > channels)
    for row, algorithm in product(fastest(), ALGORITHMS):
        if row.compression[algorithm] in SPARSE:
            yield _check(f"{row.place}, {algorithm}: fastest is {row.compression[algorithm]}",
                         row.compression[algorithm] == "WP")  # fmt: skip
    for mine, other in _pairs(shares(), "WP", "CP"):
        what = f"{_named(mine)}: {mine.percent:g} % of it, channels {other.percent:g} %"
        yield _check(what, mine.percent < other.percent)


def _quantised() -> Iterator[Check]:
    for row in rows(gpu=False):
        yield _check(f"{row.place}: float16 is the fastest with no algorithm on a CPU",
                     "f16" not in row.compression.values())  # fmt: skip
    for row in rows(gpu=True):
        yield _check(f"{row.place}: float16 or int8 is the fastest with some algorithm on a GPU",
                     bool({"f16", "i8"} & set(row.compression.values())))  # fmt: skip


def mean_drop(table: int, compression: str, without: Iterable[str] = ()) -> float:
    """Return the mean loss of accuracy over the models of Table 2 or 5, in percentage points."""
    drops = [one.drop(compression) for one in models(table) if one.name not in without]
    return sum(drops) / len(drops)


def _accuracies() -> Iterator[Check]:
    for one in (*models(2), *models(5)):
        yield _check(f"float16 of {one.name}, Table {one.table}: {one.drop('f16'):.1f} points",
                     one.drop("f16") < NEGLIGIBLE)  # fmt: skip
    for table, stated, without in ((2, 1.8, ()), (5, 22.2, ()), (5, 3.8, ("EfficientNetB0",))):
        found = mean_drop(table, "i8", without)
        besides = f" without {without[0]}" if without else ""
        yield _check(f"int8, Table {table}{besides}: {found:.2f} points on average, stated {stated}",
                     abs(found - stated) < 0.06)  # fmt: skip


def _best(some: Iterable[Fastest], kinds: Iterable[str], algorithm: str) -> Iterator[Check]:
    for row, kind in product(some, tuple(kinds)):
        if kind in row.algorithm:
            yield _check(f"{row.place}, {kind}: {row.algorithm[kind]}", row.algorithm[kind] == algorithm)


def _changed() -> Iterator[Check]:
    for row in rows(tuned=True):
        before = untuned_of(row)
        if before is not None:
            is_other = before.overall != row.overall or before.algorithm["Dense"] != row.algorithm["Dense"]
            yield _check(f"{row.place}: {'+'.join(before.overall)} to {'+'.join(row.overall)}, "
                         f"dense {before.algorithm['Dense']} to {row.algorithm['Dense']}", is_other)  # fmt: skip


def _less_when_tuned() -> Iterator[Check]:
    for one in shares():
        if one.is_tuned and one.compression in SPARSE:
            before = next(
                other for other in shares()
                if not other.is_tuned and (other.dataset, other.device, other.compression)
                == (one.dataset, one.device, one.compression)
            )  # fmt: skip
            yield _check(f"{_named(one)}: {before.percent:g} % untuned, {one.percent:g} % tuned",
                         one.percent < before.percent)  # fmt: skip


def _pairs(some: Iterable[Share], first: str, second: str) -> Iterator[tuple[Share, Share]]:
    known = {(one.dataset, one.device, one.is_tuned, one.compression): one for one in some}
    for (*place, compression), one in known.items():
        other = known.get((*place, second))  # type: ignore[arg-type]
        if compression == first and other is not None:
            yield one, other


def _named(one: Share) -> str:
    tuned = "tuned" if one.is_tuned else "untuned"
    return f"section {one.section}, {one.compression} on {one.device} ({tuned})"


def observations_table() -> Table:
    """Return the thirteen with what the paper's own tables say of them, as docs/findings.md has it."""
    rows = (
        (one.number, one.sentence, one.place, *(str(one.count(answer)) for answer in ("yes", "open", "no")), one.lacks)
        for one in observations()
    )
    headings = ("", "observation", "where", "yes", "open", "no", "in figures only")
    return Table("The observations of the second paper and its own tables", headings, tuple(rows), left=3)
