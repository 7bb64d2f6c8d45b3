"""Families beside Table VI: means over its three models and two batches, where all six were measured here as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean

from pytest_ngraph import units
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.export.layout import with_interval
from pytest_ngraph.report.paper.findings import Check, speedup, throughput
from pytest_ngraph.report.paper.published import FAMILIES, LARGE, SMALL, figures

# A mean of the paper's: family, batches and compiler.
Place = tuple[str, tuple[int, ...], str]
# Samples per second by compiler, model and batch.
Rates = Mapping[tuple[str, str, int], Estimate]


def family_rows(theirs: str, rates: Rates, on: str = "") -> Iterator[tuple[Place, tuple[str, ...]]]:
    """Yield each mean of a device of the paper's that was measured whole here, and its row beside Table VI.

    The means are the paper's, arithmetic over the same models and batches, and a speed-up is a ratio of two of them.
    The ends of an interval are means of the ends, so that it holds however the cells depend on one another.
    """
    compilers = dict.fromkeys(one.compiler for one in figures("vi") if one.device == theirs)
    for family, batches, compiler in product(FAMILIES, (SMALL, LARGE), compilers):
        mine = _mean(rates, compiler, family, batches)
        if mine is None:
            continue
        published = throughput(theirs, compiler, family, batches)
        before = None if compiler == "identity" else _mean(rates, "identity", family, batches)
        gain = Check("", speedup(theirs, compiler, family, batches)) if compiler != "identity" else None
        yield (
            (family, batches, compiler),
            (
                f"{family} at batches {batches[0]}-{batches[1]}, both means of three networks{on}",
                compiler,
                f"{published.value:.2f} ± {published.deviation:.2f}",
                units.factor(gain.value) if gain else "",
                with_interval(mine, METRICS["throughput"].format),
                with_interval(_ratio(mine, before), METRICS["speedup"].format) if before else "",
            ),
        )


def _mean(rates: Rates, compiler: str, family: str, batches: Sequence[int]) -> Estimate | None:
    """Return the mean over a family's models and these batches, or None where one of them has no throughput."""
    found = [rates.get((compiler, model, batch)) for model in FAMILIES[family] for batch in batches]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    value, low, high = (fmean(getattr(one, end) for one in known) for end in ("value", "low", "high"))
    return Estimate("throughput", value, low, high, min(one.launches for one in known))


def _ratio(mine: Estimate, before: Estimate) -> Estimate:
    low = mine.low / before.high if before.high > 0 else 0.0
    high = mine.high / before.low if before.low > 0 else float("inf")
    return Estimate("speedup", mine.value / before.value, low, high, min(mine.launches, before.launches))
