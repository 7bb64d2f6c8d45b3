"""A run beside the third paper's Table 1, as lines for the terminal and as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from pytest_ngraph.errors import SpecError
from pytest_ngraph.report.dlas.tables import is_gpu
from pytest_ngraph.report.export import layout
from pytest_ngraph.report.export.layout import Table, with_interval
from pytest_ngraph.report.lvt.arithmetic import oddities
from pytest_ngraph.report.lvt.published import (
    BERT,
    CALLED,
    LATENCY,
    METRICS,
    PROTOCOL,
    RESNET,
    THROUGHPUT,
    Metric,
    printed,
)
from pytest_ngraph.report.lvt.setups import FOCUSES, NULL, SUITE, Setup, setups, why_null
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.stack.cells import ratio_of
from pytest_ngraph.store.rows import RunRow

_RATIOS = (
    "Another machine has other times: what can be compared is what throughput costs and brings, the last table of a "
    "device. No claim of the paper is judged: its numbers have no deviation, and some cannot be so."
)
# Of sentences on a terminal; tables are as wide as they are.
_COLUMNS = 80
_GAINED = {"latency": "time of a call", "throughput": "throughput", "cpu_percent": "CPU",
           "gpu_utilisation_percent": "GPU", "run_peak_memory_bytes": "memory", "model_bytes": "model"}  # fmt: skip


def against_lines(run: RunRow, reports: Sequence[CellReport]) -> list[str]:
    """Return the comparison for a terminal. Raise SpecError for a run that has none of the paper's models."""
    lines = [line for text in (_head(run), PROTOCOL, _RATIOS) for line in wrap(text, _COLUMNS)]
    for table in _tables(reports):
        lines += ["", *layout.text(table)]
    lines += ["", odd_table().caption]
    for one in oddities():
        lines += wrap(
            f"{one.where}: {one.says} - {one.numbers}.", _COLUMNS, initial_indent="- ", subsequent_indent="  "
        )
    return lines


def against_page(run: RunRow, reports: Sequence[CellReport]) -> str:
    """Return the comparison as a Markdown page. Raise SpecError for a run that has none of the paper's models."""
    parts = ["# Beside the third paper", _head(run), PROTOCOL, _RATIOS]
    for table in (*_tables(reports), odd_table()):
        parts += [f"## {table.caption}", layout.markdown(table).rstrip("\n")]
    return "\n\n".join(parts) + "\n"


def odd_table() -> Table:
    """Return what cannot be so in the paper's numbers, and what its prose says otherwise."""
    rows = tuple((one.where, one.says, one.numbers) for one in oddities())
    return Table("What its numbers contradict", ("where", "what is printed", "what the numbers say"), rows, left=3)


def _head(run: RunRow) -> str:
    return f"Run {run.id} of {run.started_at[:10]}, protocol {run.protocol}, beside Table 1 of Nassef et al."


def _tables(reports: Sequence[CellReport]) -> list[Table]:
    found = [one for one in setups(reports) if one.model in (RESNET, BERT)]
    if not found:
        raise SpecError(f"--against lvt: the run has neither ResNet-50 nor BERT-base (measure them: {SUITE})")
    tables = []
    for device in dict.fromkeys(one.device for one in found):
        here = [one for one in found if one.device == device]
        tables += [*filter(None, (_beside(device, focus, here) for focus in FOCUSES)), *_gained(device, here)]
    return tables


def _beside(device: str, focus: str, here: Sequence[Setup]) -> Table | None:
    """Return one setup: each number of the paper and what ran here as that, null with its reason."""
    mine = [one for one in here if one.focus == focus]
    if not mine:
        return None
    hows = list(dict.fromkeys(one.how for one in mine))
    rows = []
    for model in dict.fromkeys(one.model for one in mine):
        by = {one.how: one for one in mine if one.model == model}
        for metric in METRICS:
            row = printed(focus, model)
            cells = [_cell(metric, by.get(how)) for how in hows]
            rows.append((model, metric.title, row.texts[metric.name], *cells))
    title = f"{device}, {focus}, beside Table 1's {CALLED[focus]} Configuration"
    return Table(title, ("Model", "Metric", "paper", *(f"here: {how}" for how in hows)), tuple(rows), left=2)


def _cell(metric: Metric, one: Setup | None) -> str:
    if one is None:
        return ""
    estimate = one.estimate(metric)
    if estimate is None:
        return f"{NULL} ({why_null(metric, one, on_gpu=is_gpu(one.device))})"
    return metric.write(estimate.value) if estimate.low == estimate.high else with_interval(estimate, metric.write)


def _gained(device: str, here: Sequence[Setup]) -> Iterator[Table]:
    """Yield what the throughput-focused setup has for what the other has, by compiler, where one has both."""
    pairs = [
        (one, other)
        for one in here
        for other in here
        if (one.focus, other.focus) == (LATENCY, THROUGHPUT)
        and (one.model, one.report.cell.compiler.name) == (other.model, other.report.cell.compiler.name)
    ]
    rows = []
    for metric in METRICS:
        for model in (RESNET, BERT):
            theirs = printed(THROUGHPUT, model).value(metric.name) / printed(LATENCY, model).value(metric.name)
            for one, other in pairs:
                before, after = one.estimate(metric), other.estimate(metric)
                if one.model == model and before is not None and after is not None and before.value and after.value:
                    ours = with_interval(ratio_of(after, before), "{:.2f}x".format)
                    rows.append((model, _GAINED[metric.name], f"{theirs:.2f}x", f"{other.how} over {one.how}", ours))
    if rows:
        title = f"{device}, throughput-focused over latency-focused, intervals as if the two were independent"
        yield Table(title, ("Model", "what", "paper", "here", "ratio"), tuple(rows), left=2)
