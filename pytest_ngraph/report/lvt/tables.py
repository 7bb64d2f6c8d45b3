"""The third paper's Table 1 of a run: six metrics of each model in either setup, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pytest_ngraph.report.dlas.tables import is_gpu
from pytest_ngraph.report.export.layout import Table, with_interval
from pytest_ngraph.report.export.specifications import Specified
from pytest_ngraph.report.export.tables import SPREADS
from pytest_ngraph.report.lvt.published import METRICS
from pytest_ngraph.report.lvt.setups import NULL, SUITE, Setup, setups, why_null
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.store.rows import RunRow

_MEANS = (
    "Time and throughput are of the same cell: of calls one after the other, or, where several are in flight, the mean "
    "time from submission to completion. Memory is the peak, while calls run, of a process that runs this cell "
    "alone; the model is what is deployed: the file that the compiler makes or reads"
)


def table_1(reports: Sequence[CellReport], run: RunRow) -> Table:
    """Return Table 1: a row for each setup, model and what it ran as; what could not be read is null, with a reason."""
    found = setups(reports)
    devices = list(dict.fromkeys(one.device for one in found))
    rows = []
    for one in found:
        place = (one.device,) if len(devices) > 1 else ()
        rows.append((*place, one.focus, one.model, one.how, *_numbers(one)))
    names = (*(("Device",) if len(devices) > 1 else ()), "Configuration", "Model", "Ran as")
    spread = SPREADS.get(run.protocol, f"by protocol {run.protocol}")
    return Table(
        f"Six metrics of a latency-focused and a throughput-focused configuration, {spread}. {_MEANS}",
        (*names, *(metric.title for metric in METRICS)),
        tuple(rows),
        left=len(names),
        grouped=True,
    )


def _numbers(one: Setup) -> list[str]:
    """Return the six numbers of a cell as texts, and why one of them is null."""
    texts = []
    for metric in METRICS:
        estimate = one.estimate(metric)
        if estimate is None:
            texts.append(f"{NULL}: {why_null(metric, one, on_gpu=is_gpu(one.device))}")
        else:
            # A count has no width: the size of a file.
            texts.append(metric.write(estimate.value) if estimate.low == estimate.high else with_interval(
                estimate, metric.write
            ))  # fmt: skip
    return texts


LVT_TABLES: Mapping[str, Specified] = MappingProxyType(
    {"lvt-1": Specified(table_1, f"no cell has any of its six metrics ({SUITE})")}
)
