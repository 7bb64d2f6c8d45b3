"""The charts of a report: what each shows of which rows, how to read it, and what to do where there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_ngraph.report.html import drawing
from pytest_ngraph.report.html.content import (
    MAX_ERROR_NAME,
    Content,
    Row,
    estimate_rows,
    reversal_rows,
    trend_rows,
    verdict_rows,
)
from pytest_ngraph.report.html.drawing import CONFIG, MOST_LINES, MOST_PANELS, PANEL_WIDTH, Look
from pytest_ngraph.report.results.cells import STACK_METRICS
from pytest_ngraph.report.results.reversals import not_looked_for


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: what it shows of which rows, how to read it, and what to do where there are none.

    ``rows`` names the rows' source in the page: the estimates of ``metrics``, or a table of its own. Only rows that
    have ``needs`` are shown, of the first ``most`` values of ``limits`` - the panels, or the lines of an axis.
    """

    name: str
    title: str
    says: str
    empty: str
    build: Callable[[Look], Any]
    metrics: tuple[str, ...] = ()
    rows: str = "estimates"
    needs: str | None = None
    limits: str | None = None
    most: int = MOST_PANELS
    panel_width: int | None = PANEL_WIDTH


def charts_of(content: Content) -> list[Chart]:
    """Return the charts of a report. That of the reversals says how its run's protocol looks for them, or that none."""
    first, *others = CHARTS
    if content.run.protocol == "paper":
        says = first.says.replace("Intervals at 99 %.", _POINTS)
        first = replace(first, says=says, empty="By the points, no pair of models changes places.")
    return [replace(first, empty=not_looked_for(content.run.protocol) or first.empty), *others]


def rows_of(chart: Chart, content: Content) -> tuple[list[Row], int]:
    """Return the rows that a chart shows, and how many panels or lines are left out."""
    makers: dict[str, Callable[[], Iterable[Row]]] = {
        "estimates": lambda: estimate_rows(content, chart.metrics),
        "trends": lambda: trend_rows(content),
        "verdicts": lambda: (row for row in verdict_rows(content) if row["estimate"] is not None),
        "reversals": lambda: reversal_rows(content),
    }
    rows = [row for row in makers[chart.rows]() if chart.needs is None or row[chart.needs] is not None]
    if chart.limits is None:
        return rows, 0
    known = list(dict.fromkeys(row[chart.limits] for row in rows))
    shown = set(known[: chart.most])
    return [row for row in rows if row[chart.limits] in shown], max(0, len(known) - chart.most)


def spec_of(chart: Chart, look: Look) -> dict[str, Any]:
    """Return a chart as Vega-Lite, without rows and without colours of a theme."""
    # Our charts are validated by a test; validating takes as long as drawing them.
    spec: dict[str, Any] = chart.build(look).to_dict(validate=False)
    spec["config"] = {**spec.get("config", {}), **CONFIG}
    return spec


_MEASURE = "Nothing of this was measured. "
_POINTS = (
    "Points are compared, as the paper did, with one standard deviation to each side: no error is controlled, so that "
    "some of these may be chance."
)
_BATCHES = f"{_MEASURE}Give a test several batches: @pytest.mark.ngraph(model=..., batches=[1, 2, 4, 8])."

# In the order of the page: what changes places first, then how fast, then why.
CHARTS: Sequence[Chart] = (
    Chart("reversals", "Which models change places",
          "Each line is a pair of models that is one way round under the baseline and the other way round when "
          "compiled: left of the dashed line the second is faster, right of it the first. Intervals at 99 %.",
          "No pair of models changes places between the baseline and a compiler.",
          drawing.reversals, rows="reversals", limits="pair", most=MOST_LINES, panel_width=None),
    Chart("verdicts", "Verdicts with their intervals",
          "How far each claim is from its bound, in tolerances; good is to the right. A claim passes where its "
          "interval is right of the shaded zone's left edge, and fails where all of it is left of the bound. Those of "
          "assert_order have no single number and stand in the table of claims only.",
          f"{_MEASURE}Claims are made by assert_speedup, assert_bsr and the other helpers in tests.",
          drawing.verdicts, rows="verdicts", limits="claim", most=MOST_LINES, panel_width=None),
    Chart("throughput", "Throughput by batch",
          "Samples per second of each compiler, a panel for each model.",
          f"{_MEASURE}Run a suite whose cells have times, or choose more in the filters.",
          drawing.throughput, ("throughput",), limits="subject"),
    Chart("speedup", "Speed-up over the baseline",
          "Throughput over that of the baseline: blue is faster, orange slower, white the same.",
          f"{_MEASURE}Speed-ups need a compiler and its baseline in one launch group.",
          drawing.speedup_map, ("speedup",), limits="subject", most=MOST_LINES),
    Chart("ase", "Absolute scaling efficiency",
          "ASE: throughput at a batch over batch times the throughput at batch 1. At 1 a larger batch costs nothing; "
          "it decays as the device saturates.",
          _BATCHES, drawing.ase, ("ase",), limits="subject"),
    Chart("bsr", "Batch scaling resilience",
          "BSR: the compiler's ASE over the baseline's. Above the line at 1 it loses less to larger batches than the "
          "baseline; below it there may be optimisations that it missed.",
          _BATCHES, drawing.bsr, ("bsr",), limits="subject"),
    Chart("depth", "Speed-up by depth",
          "Speed-up of stacks of the same block. A rising curve says that the compiler gains from repeated patterns.",
          f'{_MEASURE}Give a test several depths: @pytest.mark.ngraph(model="block:conv", depths=range(1, 7)).',
          drawing.depth, ("speedup",), needs="depth", limits="stack"),
    Chart("depth_trend", "Slope and retention",
          "Slope: change of the speed-up for each layer, by least squares. Retention: speed-up of the deepest stack "
          "over that of a single block. The dashed lines say that depth does not matter.",
          f'{_MEASURE}Give a test several depths: @pytest.mark.ngraph(model="block:conv", depths=range(1, 7)).',
          drawing.trend, STACK_METRICS, rows="trends", limits="stack", most=MOST_LINES, panel_width=300),
    Chart("width", "Scaling efficiency by width and batch",
          "ASE for each width: the faster it darkens to the right and with width, the larger the batch-width friction.",
          f"{_MEASURE}Give a test widths and batches: @pytest.mark.ngraph(model=\"block:conv\", width=[64, 96], "
          "batches=[1, 2, 4, 8]).",
          drawing.width_map, ("ase",), needs="width", limits="map"),
    Chart("cpu", "CPU usage by batch",
          "CPU time over wall time while calls run, in per cent of the device's CPUs; dashed, by how much less than "
          "the baseline a compiler uses.",
          f"{_MEASURE}CPU usage is measured with every timed cell.",
          drawing.cpu, ("cpu_percent", "cpu_reduction_percent"), limits="subject"),
    Chart("compile", "Compile and tuning time",
          "Seconds to compile, export and first call apart, and to tune where the compiler searches; logarithmic.",
          f"{_MEASURE}Compile times are kept when something is compiled, not when it is loaded: rebuild=True.",
          drawing.compile_times, ("compile_seconds", "tuning_seconds"), limits="subject"),
    Chart("accuracy", "Agreement with the reference",
          "Largest difference from the reference's outputs over their largest value, before anything was timed. Right "
          "of the red line a cell is a mismatch and has no time. 1e-9 stands for less, 1e+3 for more and for outputs "
          "that cannot be compared.",
          f"{_MEASURE}Outputs are compared where the reference is measured, too; those of null compilers never are.",
          drawing.errors, (MAX_ERROR_NAME,), panel_width=320),
)  # fmt: skip
