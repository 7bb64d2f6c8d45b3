"""The second paper's tables of a run: accuracies (2, 5), what is the fastest (3, 4, 6), times, expected speed-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.dlas.sizes import Sizes, expected, share_gone, sizes_of
from pytest_ngraph.report.export.layout import Table, rounded, with_interval
from pytest_ngraph.report.export.specifications import Specified
from pytest_ngraph.report.export.tables import SPREADS
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.stack.cells import (
    Point,
    Winner,
    fastest,
    hows,
    in_order,
    method_of,
    points,
    ratio_of,
)
from pytest_ngraph.report.stack.names import short_names
from pytest_ngraph.spec.cells import DENSE

SUITE = "pytest example_suites/dlas"
_MARK = "?: its interval overlaps that of another one, so that it is not shown to be the fastest"
_Reports = Sequence[CellReport]
_Key = TypeVar("_Key")


def accuracies(reports: _Reports, spread: str, is_large: bool) -> Table:
    """Return Table 2 or 5: parameters, MACs and the accuracy at each compression, with the share that is gone."""
    found = [point for point in points(reports, is_large) if point.accuracy is not None]
    compressions = in_order(point.compression for point in found)
    rows = []
    for (model, how), some in _grouped(found, lambda point: (point.model, _how(point))).items():
        by = {point.compression: point for point in some}
        known = [sizes for sizes in map(sizes_of, (point.report for point in found if point.model == model)) if sizes]
        counts = (_millions(known[0].dense_parameters), _millions(known[0].dense_macs)) if known else ("", "")
        rows.append((model, how, *counts, *(_accuracy(by.get(name)) for name in compressions)))
    caption = (
        f"Accuracy (top 1) of compiled {_images(is_large)} by compression, on samples of the model's own evaluation, "
        "with 99 % binomial intervals, and in brackets the share of the parameters or bits that is gone"
    )
    return Table(
        caption, ("Model", "Compiler", "Params", "MACs", *short_names(compressions).values()), tuple(rows), left=2
    )


def fastest_of(reports: _Reports, spread: str, is_large: bool, gpu: bool | None) -> Table:
    """Return Table 3, 4 or 6: by compression the fastest compiler, by compiler the fastest compression, and both."""
    found = [
        point for point in points(reports, is_large)
        if point.latency is not None and (gpu is None or is_gpu(point.platform.device) is gpu)
    ]  # fmt: skip
    compressions = in_order(point.compression for point in found)
    methods = short_names(map(method_of, compressions))
    short = short_names(compressions)
    computed = hows(found)
    rows = []
    for (platform, model), some in _grouped(found, lambda point: (point.platform, point.model)).items():
        by_method = [fastest([(p.how, p) for p in some if method_of(p.compression) == name]) for name in methods]
        by_how = [fastest([(short[p.compression], p) for p in some if p.how == how]) for how in computed]
        overall = fastest([(f"{short[p.compression]} by {p.how}", p) for p in some])
        rows.append((str(platform), model, *map(_winner, by_method), *map(_winner, by_how), _winner(overall)))
    marked = any(cell.endswith("?") for row in rows for cell in row)
    return Table(
        f"The fastest compiler of each compression, and the fastest compression of each compiler ({_images(is_large)})"
        + (f" ({_MARK})" if marked else ""),
        ("Platform", "Model", *methods.values(), *computed, "Overall"),
        tuple(rows),
        (("", 2), ("Fastest compiler", len(methods)), ("Fastest compression", len(computed)), ("", 1)),
        left=3 + len(methods) + len(computed),
        grouped=True,
    )


def times(reports: _Reports, spread: str) -> Table:
    """Return what Figures 4 to 7 draw: the time of a call by platform, model, compression and what computes it."""
    found = [point for point in points(reports) if point.latency is not None]
    computed, short = hows(found), short_names(point.compression for point in found)
    rows = []
    for (platform, model), some in _grouped(found, lambda point: (point.platform, point.model)).items():
        by = {(point.compression, point.how): point for point in some}
        for compression in in_order(point.compression for point in some):
            cells = [_time(by.get((compression, how))) for how in computed]
            rows.append((f"{platform}, {model}", short[compression], *cells))
    return Table(
        f"Milliseconds of a call by compression and compiler, {spread}",
        ("Platform, model", "Compression", *computed), tuple(rows), left=2, grouped=True,
    )  # fmt: skip


def speedups(reports: _Reports, spread: str) -> Table:
    """Return which speed-up a compression leads one to expect, from MACs and from parameters, and which it gave.

    Each compiler is compared with itself on the dense network, and the fastest with the fastest.
    """
    found = [point for point in points(reports) if point.latency is not None]
    computed, short = hows(found), short_names(point.compression for point in found)
    rows = []
    for (platform, model), some in _grouped(found, lambda point: (point.platform, point.model)).items():
        by = {(point.compression, point.how): point for point in some}
        best = {name: _best(some, name) for name in in_order(point.compression for point in some)}
        dense = best.get(DENSE)
        for compression, winner in best.items():
            if compression == DENSE or winner is None or dense is None:
                continue
            macs, parameters = expected(_sizes(some, compression), winner.point.report.cell.workload)
            achieved = ratio_of(_latency(dense.point), _latency(winner.point))
            of = next((each for each in (macs, parameters) if each is not None and each > 1), None)
            cells = [_achieved(by.get((DENSE, how)), by.get((compression, how))) for how in computed]
            share = "" if of is None else f"{100 * achieved.value / of:.0f} %"
            rows.append(
                (f"{platform}, {model}", short[compression], _factor(macs), _factor(parameters), *cells,
                 with_interval(achieved, "{:.2f}".format), share)
            )  # fmt: skip
    return Table(
        "Speed-up of compressed networks over dense ones: expected from multiply-accumulates and from the bytes of "
        "parameters that are left, achieved by each compiler over itself and by the fastest over the fastest, and the "
        "share of what was expected, from multiply-accumulates where these fall; intervals as if both times were "
        "independent",
        ("Platform, model", "Compression", "of MACs", "of size", *computed, "Best", "Share"),
        tuple(rows),
        (("", 2), ("Expected", 2), ("Achieved", len(computed) + 1), ("", 1)),
        left=2,
        grouped=True,
    )


def story(reports: _Reports, spread: str) -> Table:
    """Return what a compression costs and what it brings: accuracy, what is gone, and the time by each compiler."""
    found = [point for point in points(reports) if point.latency is not None or point.accuracy is not None]
    models = {point.model for point in found if point.accuracy is not None}
    found = [point for point in found if point.model in models]
    computed, short = hows(found), short_names(point.compression for point in found)
    rows = []
    for (platform, model), some in _grouped(found, lambda point: (point.platform, point.model)).items():
        by = {(point.compression, point.how): point for point in some}
        for compression in in_order(point.compression for point in some):
            first = next(point for point in some if point.compression == compression)
            gone = share_gone(_sizes(some, compression), first.report.cell.workload, compression)
            accuracy = [point.accuracy for point in some if point.compression == compression and point.accuracy]
            cells = [_time(by.get((compression, how))) for how in computed]
            rows.append((f"{platform}, {model}", short[compression], "" if gone is None else f"{gone:.0%}",
                         _range([each.value for each in accuracy]), *cells))  # fmt: skip
    return Table(
        "Accuracy of compiled networks, lowest and highest over compilers, share of parameters or bits that is gone, "
        f"and milliseconds of a call, {spread}",
        ("Platform, model", "Compression", "Gone", "Accuracy", *computed), tuple(rows), left=2, grouped=True,
    )  # fmt: skip


def _grouped(found: Sequence[Point], key: Callable[[Point], _Key]) -> dict[_Key, list[Point]]:
    groups: dict[_Key, list[Point]] = {}
    for point in sorted(found, key=lambda p: (natural(str(p.platform)), natural(p.model), natural(p.how))):
        groups.setdefault(key(point), []).append(point)
    return groups


def _how(point: Point) -> str:
    return point.how + (" (tuned)" if point.platform.is_tuned else "")


def _images(is_large: bool) -> str:
    return "networks of libraries for large images" if is_large else "networks for small images"


def is_gpu(device: str) -> bool:
    """Return whether a device is a GPU, by its name."""
    return "cuda" in device or "gpu" in device.lower()


def _sizes(some: Sequence[Point], compression: str) -> Sizes | None:
    """Return what was achieved by a compression, as any of the cells that have it says."""
    known = (sizes_of(point.report) for point in some if point.compression == compression)
    return next((sizes for sizes in known if sizes is not None), None)


def _accuracy(point: Point | None) -> str:
    if point is None or point.accuracy is None:
        return ""
    one = point.accuracy
    gone = share_gone(sizes_of(point.report), point.report.cell.workload, point.compression)
    return with_interval(one, "{:.1%}".format) + ("" if gone is None else f" ({gone:.0%})")


def _winner(winner: Winner | None) -> str:
    return "" if winner is None else str(winner)


def _best(some: Sequence[Point], compression: str) -> Winner | None:
    return fastest([(point.how, point) for point in some if point.compression == compression])


def _latency(point: Point) -> Estimate:
    assert point.latency is not None
    return point.latency


def _achieved(dense: Point | None, point: Point | None) -> str:
    if dense is None or point is None or dense.latency is None or point.latency is None:
        return ""
    return with_interval(ratio_of(dense.latency, point.latency), "{:.2f}".format)


def _factor(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _time(point: Point | None) -> str:
    """Write a time with its interval in milliseconds."""
    if point is None or point.latency is None:
        return ""
    one = point.latency
    return rounded(replace(one, value=1e3 * one.value, low=1e3 * one.low, high=1e3 * one.high))


def _range(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = f"{min(values):.1%}", f"{max(values):.1%}"
    return low if low == high else f"{low} to {high}"


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f}M" if count < 1e9 else f"{count / 1e9:.1f}G"


def _specified(made: Callable[[_Reports, str], Table], needs: str) -> Specified:
    """Return a table whose caption says what stands behind a number, by the protocol of its run."""
    return Specified(
        lambda reports, run: made(reports, SPREADS.get(run.protocol, f"by protocol {run.protocol}")), needs
    )


_SPEED = f"no cell of its kind has a time ({SUITE}/test_dlas_speed.py)"
_RIGHT = f"no cell was evaluated: its model brings no evaluate(predict) ({SUITE}/test_dlas_digits.py)"
DLAS_TABLES: Mapping[str, Specified] = {
    "dlas-2": _specified(partial(accuracies, is_large=False), _RIGHT),
    "dlas-3": _specified(partial(fastest_of, is_large=False, gpu=False), _SPEED),
    "dlas-4": _specified(partial(fastest_of, is_large=False, gpu=True), f"{_SPEED}, on a GPU (--ngraph-device=cuda)"),
    "dlas-5": _specified(partial(accuracies, is_large=True), _RIGHT),
    "dlas-6": _specified(partial(fastest_of, is_large=True, gpu=None), _SPEED),
    "dlas-times": _specified(times, _SPEED),
    "dlas-speedups": _specified(
        speedups, f"no network was measured both dense and compressed ({SUITE}/test_dlas_speed.py)"
    ),
    "dlas-accuracy": _specified(story, _RIGHT),
}
