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
from pytest_ngraph.report.paper.pairs import Pair
from pytest_ngraph.report.paper.published import FAMILIES, LARGE, SMALL, figure, figures

# A mean of the paper's: family, batches and compiler.
Place = tuple[str, tuple[int, ...], str]
# Samples per second, or per cent of the CPUs, by compiler, model and batch.
Rates = Mapping[tuple[str, str, int], Estimate]


def family_rows(
    device: str, theirs: str, rates: Rates, on: str = ""
) -> Iterator[tuple[Place, tuple[str, ...], list[Pair]]]:
    """Yield each mean of a device of the paper's that was measured whole here, its row beside Table VI, its numbers.

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
        ratio = _ratio(mine, before) if before else None
        at = range_of(batches)
        pairs = [Pair(device, "throughput", family, at, compiler, published.value, published.deviation, mine)]
        if gain and ratio:
            pairs.append(Pair(device, "speedup", family, at, compiler, gain.value, None, ratio))
        yield (
            (family, batches, compiler),
            (
                f"{family} at batches {batches[0]}-{batches[1]}, both means of three networks{on}",
                compiler,
                f"{published.value:.2f} ± {published.deviation:.2f}",
                units.factor(gain.value) if gain else "",
                with_interval(mine, METRICS["throughput"].format),
                with_interval(ratio, METRICS["speedup"].format) if ratio else "",
            ),
            pairs,
        )


def cpu_pairs(device: str, theirs: str, used: Rates) -> Iterator[Pair]:
    """Yield what Table VI has of CPU usage and ours: of a family where it was measured whole, else of each network."""
    compilers = dict.fromkeys(one.compiler for one in figures("vi") if one.device == theirs)
    for family, batches, compiler in product(FAMILIES, (SMALL, LARGE), compilers):
        published = figure("vi", theirs, compiler, family, batches, "cpu_percent")
        keys = [(compiler, model, batch) for model in FAMILIES[family] for batch in batches]
        groups: dict[str, list[tuple[str, str, int]]] = {"": keys} if all(key in used for key in keys) else {}
        for key in keys if not groups else ():
            if key in used:
                groups.setdefault(key[1], []).append(key)
        for model, some in groups.items():
            here = single(model, [batch for *_, batch in some]) if model else ""
            mean = _mean_of("cpu_percent", [used[key] for key in some])
            yield Pair(
                device,
                "cpu_percent",
                family,
                range_of(batches),
                compiler,
                published.value,
                published.deviation,
                mean,
                here,
            )


def range_of(batches: Sequence[int]) -> str:
    """Name the batches of a mean."""
    return f"batches {batches[0]}-{batches[1]}"


def single(model: str, batches: Sequence[int]) -> str:
    """Name what of a family was measured, where that is not all of it."""
    return f"{model.partition(':')[2]} at {', '.join(map(str, batches))}"


def _mean(rates: Rates, compiler: str, family: str, batches: Sequence[int]) -> Estimate | None:
    """Return the mean over a family's models and these batches, or None where one of them has no throughput."""
    found = [rates.get((compiler, model, batch)) for model in FAMILIES[family] for batch in batches]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    return _mean_of("throughput", known)


def _mean_of(metric: str, known: Sequence[Estimate]) -> Estimate:
    value, low, high = (fmean(getattr(one, end) for one in known) for end in ("value", "low", "high"))
    return Estimate(metric, value, low, high, min(one.launches for one in known))


def _ratio(mine: Estimate, before: Estimate) -> Estimate:
    low = mine.low / before.high if before.high > 0 else 0.0
    high = mine.high / before.low if before.low > 0 else float("inf")
    return Estimate("speedup", mine.value / before.value, low, high, min(mine.launches, before.launches))
