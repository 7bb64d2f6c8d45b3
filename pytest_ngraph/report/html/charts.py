"""The charts of a report: what each shows of which rows, how to read it, and what to do where there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from pytest_ngraph.metrics import METRICS
from pytest_ngraph.report.html import lines, maps
from pytest_ngraph.report.html.content import (
    MAX_ERROR_NAME,
    Content,
    Row,
    estimate_rows,
    reversal_rows,
    verdict_rows,
)
from pytest_ngraph.report.html.derived import (
    break_even_rows,
    capacity_rows,
    depth_rows,
    length_rows,
    load_rows,
    score_rows,
    token_rows,
    visit_rows,
)
from pytest_ngraph.report.html.drawing import CONFIG, MOST_LINES, MOST_PANELS, NAMES_WIDTH, Look, over
from pytest_ngraph.report.html.pictures.palette import VERDICTS
from pytest_ngraph.report.html.pictures.sizes import models_by_size
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.results.reversals import not_looked_for


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: what it shows of which rows, how to read it, and what to do where there are none.

    ``rows`` names the rows' source in the page: the estimates of ``metrics``, or a table of its own. Only rows that
    have ``needs`` are shown, at first the ``most`` first values of ``limits`` - the panels, or the lines of an axis -,
    which stand in the order of their names where it is ``natural``, models by family and size, stacks after them.

    A panel is drawn for each value of ``panel``, at least ``width`` wide. It is ``height`` high, and ``step`` more for
    each value of ``line``, so that the page has room for it before it is drawn. ``along`` is the axis of batches or
    depths of lines; ``span`` says that values share one axis, logarithmic where ``is_log``. ``numbers`` are the columns
    of its table. Panels of one value of ``columns`` stand below one another, where there is room for all values,
    and stacks of blocks after them; with ``beside`` those of one value of it stand in one row instead.
    Charts of one ``section`` share its place in the page; ``choice`` is what they are chosen by. One that is
    ``seldom`` measured is left out of the page of a run that has none of it.
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
    natural: bool = True
    panel: str | None = None
    width: int = 330
    height: int = 200
    line: tuple[str, ...] = ()
    step: int = 0
    along: str | None = None
    span: bool = False
    is_log: bool = False
    line_at: float | None = None
    names_width: int = 0
    legend: str = "compiler"
    numbers: tuple[str, ...] = ("subject", "compiler", "batch", "what", "text")
    section: str = ""
    choice: str = ""
    columns: str | None = None
    beside: str | None = None
    seldom: bool = False


def charts_of(content: Content) -> list[Chart]:
    """Return the charts of a report. Those of the reversals say how its run's protocol looks for them, or that none."""
    protocol = content.run.protocol
    charts = []
    for chart in CHARTS:
        if not has_place(chart, [content]):
            continue
        if chart.rows == "reversals" and protocol == "paper":
            says = chart.says.replace("Intervals at 99 %.", "") + f" {_POINTS}"
            chart = replace(chart, says=says, empty="By the points, no pair of models changes places.")
        if chart.rows == "reversals":
            chart = replace(chart, empty=not_looked_for(protocol) or chart.empty)
        charts.append(chart)
    return charts


def has_place(chart: Chart, contents: Sequence[Content]) -> bool:
    """Return whether a chart is in the page of some runs: it is measured as a rule, or one of them has some of it."""
    return not chart.seldom or any(next(_made(chart, content), None) is not None for content in contents)


def sections(charts: Sequence[Chart]) -> dict[str, list[Chart]]:
    """Return the charts by the section of the page that they stand in, in its order."""
    found: dict[str, list[Chart]] = {}
    for chart in charts:
        found.setdefault(chart.section or chart.name, []).append(chart)
    return found


def rows_of(chart: Chart, content: Content) -> tuple[list[Row], int]:
    """Return the rows that a chart shows, and how many panels or lines are left out."""
    rows = list(_made(chart, content))
    limits = chart.limits
    if limits is None:
        return rows, 0
    known = list(dict.fromkeys(row[limits] for row in rows))
    if chart.natural:
        models = {name: place for place, name in enumerate(models_by_size(content.reports))}
        of = {row[limits]: row for row in rows}

        def place_of(name: str) -> tuple[Any, ...]:
            if limits != "subject":
                return (natural(name),)
            # A model before itself at another width, and stacks of blocks after all models.
            return (of[name]["depth"] is not None, models[of[name]["model"]], natural(name))

        known.sort(key=place_of)
        place = {name: number for number, name in enumerate(known)}
        rows.sort(key=lambda row: place[row[limits]])
    shown = set(known[: chart.most])
    return [row for row in rows if row[limits] in shown], max(0, len(known) - chart.most)


def _made(chart: Chart, content: Content) -> Iterator[Row]:
    """Yield all rows of a chart."""
    makers: dict[str, Callable[[], Iterable[Row]]] = {
        "estimates": lambda: estimate_rows(content, chart.metrics),
        "verdicts": lambda: (row for row in verdict_rows(content) if row["estimate"] is not None),
        "reversals": lambda: reversal_rows(content),
        "scores": lambda: score_rows(content),
        "break_even": lambda: break_even_rows(content),
        "depths": lambda: depth_rows(content),
        "lengths": lambda: length_rows(content, chart.metrics),
        "tokens": lambda: token_rows(content, chart.metrics),
        "loads": lambda: load_rows(content, chart.metrics),
        "capacities": lambda: capacity_rows(content),
        "visits": lambda: visit_rows(content),
    }
    return (row for row in makers[chart.rows]() if chart.needs is None or row[chart.needs] is not None)


def spec_of(chart: Chart, look: Look) -> dict[str, Any]:
    """Return a chart as Vega-Lite, without rows and without colours of a theme."""
    from altair.utils.schemapi import debug_mode

    # Our charts are validated by a test; validating, also of each part as it is made, takes as long as drawing them.
    with debug_mode(False):
        spec: dict[str, Any] = chart.build(look).to_dict(validate=False)
    spec["config"] = {**spec.get("config", {}), **CONFIG}
    return spec


def facts_of(chart: Chart) -> dict[str, Any]:
    """Return what ``charts.js`` knows of a chart beside its definition."""
    texts = ("title", "says", "empty", "build", "section", "choice", "seldom")
    return {field.name: getattr(chart, field.name) for field in fields(chart) if field.name not in texts}


def look_of_page(look: Look) -> dict[str, Any]:
    """Return how the page's legends draw compilers and verdicts."""
    return {
        "colours": look.colours,
        "shapes": look.shapes,
        "dashes": look.dashes,
        "verdict_colours": VERDICTS,
        "verdict_shapes": dict(zip(VERDICTS, lines.VERDICT_SHAPES, strict=True)),
    }


_MEASURE = "Nothing of this was measured. "
_POINTS = (
    "Points are compared, as the paper did, with one standard deviation to each side: no error is controlled, so that "
    "some of these may be chance."
)
_BATCHES = f"{_MEASURE}Give a test several batches: @pytest.mark.ngraph(model=..., batches=[1, 2, 4, 8])."
_DEPTHS = f'{_MEASURE}Give a test several depths: @pytest.mark.ngraph(model="block:conv", depths=range(1, 7)).'
_LENGTHS = f"{_MEASURE}Give a test several lengths: @pytest.mark.ngraph(model=..., sequences=[32, 128, 512])."
_LENGTH = ("lengths", "compiler", "sequence", "what", "text", "label")
_STACK = ("stack", "compiler", "what", "text")


def _lines(
    name: str,
    title: str,
    says: str,
    empty: str,
    metric: str,
    *,
    along: str = "batch",
    panel: str = "subject",
    is_log: bool = False,
    line_at: float | None = None,
    axis: str = "",
    fitted: str = "",
    **further: Any,
) -> Chart:
    """Return a chart of lines over batches, depths or lengths, all panels on the same axes.

    What a line that is fitted says stands at its end.
    """
    unit = METRICS[metric].unit if metric in METRICS else ""
    named = axis or (f"{METRICS[metric].title} [{unit}]" if unit else METRICS[metric].title)
    names_width = 230 if fitted else NAMES_WIDTH

    def build(look: Look) -> Any:
        return over(
            named, look, x=along, panel=panel, line_at=line_at, is_log=is_log, fitted=fitted, names_width=names_width
        )

    return Chart(
        name, title, says, empty, build, (metric,), limits=panel, panel=panel, along=along, span=True, is_log=is_log,
        line_at=line_at, names_width=names_width, **further,
    )  # fmt: skip


def _over_length(name: str, metric: str, says: str, choice: str, **how: Any) -> Chart:
    return _lines(
        name, f"{METRICS[metric].title} over length", says, _LENGTHS, metric, along="sequence", panel="lengths",
        is_log=True, rows="lengths", numbers=_LENGTH, section="lengths", choice=choice, seldom=True, **how,
    )  # fmt: skip


def _under_load(share: int) -> Chart:
    return _lines(
        f"load_p{share}", f"Latency within which {share} % of calls are answered",
        f"From the arrival of a call to its answer: {share} of 100 calls of all launches took no longer. Calls arrive "
        "by themselves, so that a line that bends up is one that waits: nearer to capacity a little more load costs "
        "much. A rate at which more arrive than can be answered has no latency and no point here; it stands in what "
        "could not run as asked.",
        f'{_MEASURE}Let calls arrive: @pytest.mark.ngraph(model=..., scenario=["server[rate=10]", "server[rate=20]"]).',
        f"p{share}", along="rate", panel="served", axis=f"latency, percentile {share} [s]", is_log=True, rows="loads",
        numbers=("served", "compiler", "rate", "what", "text"), section="load", choice=f"{share} %", seldom=True,
    )  # fmt: skip


def _trend(metric: str, says: str, neutral: float) -> Chart:
    title = METRICS[metric].title

    def build(look: Look) -> Any:
        return lines.trend(look, title, neutral)

    return Chart(
        metric, f"{title} over depth", says, _DEPTHS, build, (metric,), limits="stack", most=MOST_LINES,
        width=0, height=46, line=("stack",), step=40, span=True, line_at=neutral, numbers=_STACK, section="trend",
        choice=title,
    )  # fmt: skip


# In the order of the page: what changes places first, then how fast, then why.
CHARTS: Sequence[Chart] = (
    Chart("reversal_map", "Where models change places",
          "A row for each pair of models and compiler: throughput of the first over the second, under the baseline and "
          "then compiled, at each batch where they change places; nothing stands where they do not.",
          "No pair of models changes places between the baseline and a compiler.",
          maps.reversal_map, rows="reversals", needs="changed", limits="models", most=MOST_LINES, natural=False,
          panel="device", width=640, height=44, line=("models",), step=22, numbers=("pair", "changed", "text"),
          section="places", choice="By batch and device"),
    Chart("reversals", "Which models change places",
          "Each line is a pair of models that is one way round under the baseline and the other way round when "
          "compiled: left of the dashed line the second is faster, right of it the first. Intervals at 99 %.",
          "No pair of models changes places between the baseline and a compiler.",
          lines.reversals, rows="reversals", limits="pair", most=MOST_LINES, natural=False, width=0, height=46,
          line=("pair",), step=24, span=True, is_log=True, line_at=1.0, legend="under",
          numbers=("pair", "under", "text"), section="places", choice="With intervals"),
    Chart("scores", "Geometric means by family",
          "Geometric mean of the speed-ups of each family of models. Hollow where the interval at 99 % holds 1, so "
          "that nothing is claimed. Intervals are over models from three models on, else over launches.",
          f"{_MEASURE}Speed-ups need a compiler and its baseline in one launch group.",
          lines.scores, rows="scores", limits="place", most=MOST_LINES, natural=False, panel="device", width=460,
          height=46, line=("place",), step=18, span=True, is_log=True, line_at=1.0,
          numbers=("device", "family", "compiler", "text", "claim", "basis")),
    Chart("verdicts", "Verdicts with their intervals",
          "How far each claim is from its bound, in tolerances; good is to the right. A claim passes where its "
          "interval is right of the shaded zone's left edge, and fails where all of it is left of the bound. The axis "
          "ends at eight tolerances: a triangle says that an interval goes on. What "
          "has no tolerance, such as assert_faster and assert_accuracy, or no single number, such as assert_order, "
          "stands in the table of claims only.",
          f"{_MEASURE}Claims are made by assert_speedup, assert_bsr and the other helpers in tests; those without a "
          "tolerance stand in the table of claims only.",
          lines.verdicts, rows="verdicts", limits="claim", most=MOST_LINES, natural=False, width=0, height=46,
          line=("what",), step=22, legend="verdict", numbers=("verdict", "claim", "text", "bound", "test")),
    _lines("throughput", "Throughput by batch",
           "Samples per second of each compiler, a panel for each model; logarithmic, so that equal distances are "
           "equal factors.",
           f"{_MEASURE}Run a suite whose cells have times, or choose more in the filters.",
           "throughput", is_log=True, section="models", columns="family", width=215, most=40, choice="Throughput"),
    _lines("speedup_lines", "Speed-up by batch",
           "Throughput over that of the baseline, which is the dashed line at 1; logarithmic, so that half and twice "
           "as fast are equally far from it.",
           f"{_MEASURE}Speed-ups need a compiler and its baseline in one launch group.",
           "speedup", is_log=True, line_at=1.0, section="models", columns="family", width=215, most=40,
            choice="Speed-up"),
    _lines("ase", "Absolute scaling efficiency",
           "ASE: throughput at a batch over batch times the throughput at batch 1. At 1 a larger batch costs nothing; "
           "it decays as the device saturates.",
           _BATCHES, "ase", line_at=1.0, section="models", columns="family", width=215, most=40, choice="ASE"),
    _lines("bsr", "Batch scaling resilience",
           "BSR: the compiler's ASE over the baseline's. Above the line at 1 it loses less to larger batches than the "
           "baseline, below it more. That is usual where it is already much faster at batch 1, and no fault.",
           _BATCHES, "bsr", line_at=1.0, section="models", columns="family", width=215, most=40, choice="BSR"),
    Chart("speedup", "Speed-up over the baseline",
          "Throughput over that of the baseline: blue is faster, orange slower, white the same. Colours end at 4x and "
          "1/4x, numbers do not.",
          f"{_MEASURE}Speed-ups need a compiler and its baseline in one launch group.",
          maps.speedup_map, ("speedup",), limits="subject", most=MOST_LINES, panel="compiler", height=44,
          line=("subject",), step=22, width=380, legend=""),
    _lines("energy", "Energy of a sample by batch",
           "Joules for each sample while calls run, of what the probe covers - packages, a module or a board - and "
           "with what that draws when idle; logarithmic. Cells whose energy could not be read are not here.",
           f"{_MEASURE}Claim it: assert_energy(cell, at_most=...).",
           "joules_per_sample", is_log=True, section="models", columns="family", width=215, most=40, choice="Energy",
           seldom=True),
    _over_length("length_time", "latency",
                 "Time of a call over the length of its samples, both logarithmic, with the line of least squares: "
                 "twice the length takes 2^e times as long where n^e stands at its end, with its interval. "
                 "1 is linear, 2 is what attention alone takes.",
                 "Time of a call", width=500, fitted="pow"),
    _over_length("length_first", "time_to_first_token",
                 "Time to the first token over the length of the prompt, both logarithmic.", "First token"),
    _over_length("length_token", "time_per_token",
                 "Time of each further token over the length of the prompt, both logarithmic.", "Per token"),
    _over_length("length_speedup", "speedup",
                 "Throughput over that of the baseline at the same length, which is the dashed line at 1; logarithmic.",
                 "Speed-up", line_at=1.0),
    _over_length("length_energy", "joules_per_sample",
                 "Joules for each sample while calls run, of what the probe covers and with what that draws when idle, "
                 "over length; both logarithmic.",
                 "Energy"),
    Chart("tokens", "Tokens: the prompt, and each one after it",
          "Time to the first token beside the time of each further one, on one logarithmic axis of seconds: the first "
          "has the whole prompt before it, the others one step each on the kept keys and values.",
          f"{_MEASURE}Let a decoder generate tokens: @pytest.mark.ngraph(model=..., decode=16).",
          lines.tokens, ("time_to_first_token", "time_per_token"), rows="tokens", limits="place", most=MOST_LINES,
          panel="what", width=460, height=46, line=("place",), step=34, span=True, is_log=True,
          numbers=("subject", "compiler", "batch", "what", "text"), seldom=True),
    _under_load(99),
    _under_load(90),
    _under_load(50),
    Chart("capacity", "Capacity: how many calls a second may arrive",
          "The highest rate at which the percentile of a claim stays within its bound, by the calls of each launch, "
          "with its interval; logarithmic. The upright stroke is the rate that is claimed, which is judged at that "
          "rate.",
          f"{_MEASURE}Claim it: assert_capacity(cell, percentile=99, within=0.05, at_least=20).",
          lines.capacities, rows="capacities", limits="place", most=MOST_LINES, width=0, height=46, line=("place",),
          step=24, span=True, is_log=True, numbers=("place", "verdict", "text", "bound"), section="load",
          choice="Capacity", seldom=True),
    _lines("depth", "Speed-up by depth",
           "Speed-up of stacks of the same block, with the straight line of least squares. At its end stand its slope "
           "- the change for each further layer - and the retention: speed-up of the deepest stack over that of a "
           "single block. A rising line says that the compiler gains from repeated patterns.",
           _DEPTHS, "speedup", along="depth", panel="stack", line_at=1.0, needs="depth", rows="depths", width=500,
           fitted="linear",
           numbers=("stack", "compiler", "depth", "what", "text", "label")),
    _trend("slope", "Change of the speed-up for each further layer, by least squares. At the dashed line depth does "
           "not matter.", 0.0),
    _trend("retention", "Speed-up of the deepest stack over that of a single block. At the dashed line depth does not "
           "matter.", 1.0),
    Chart("width", "Scaling efficiency by width and batch",
          "ASE for each width: the faster it darkens to the right and with width, the larger the batch-width friction, "
          "which is the loss of ASE for each doubling of the width and stands below each batch.",
          f"{_MEASURE}Give a test widths and batches: @pytest.mark.ngraph(model=\"block:conv\", width=[64, 96], "
          "batches=[1, 2, 4, 8]).",
          maps.width_map, ("ase", "friction"), needs="width", limits="map", panel="map", height=22,
          line=("width", "metric"), step=22, width=290, legend="", numbers=("map", "width", "batch", "what", "text")),
    _lines("cpu", "CPU usage by batch",
           "CPU time over wall time while calls run, in per cent of the device's CPUs.",
           f"{_MEASURE}CPU usage is measured with every timed cell.",
           "cpu_percent", section="cpu_usage", choice="Used"),
    _lines("cpu_saved", "CPU usage saved",
           "How much less of the device's CPUs than the baseline a compiler uses, in per cent of what the baseline "
           "uses; below the dashed line it uses more.",
           f"{_MEASURE}CPU usage is measured with every timed cell.",
           "cpu_reduction_percent", line_at=0.0, section="cpu_usage", choice="Saved"),
    _lines("compile", "Compile time",
           "Seconds to compile, export and first call apart; logarithmic.",
           f"{_MEASURE}Compile times are kept when something is compiled, not when it is loaded: rebuild=True.",
           "compile_seconds", is_log=True, section="cost", choice="Compiling"),
    _lines("tuning", "Tuning time",
           "Seconds that a compiler searched before it compiled; logarithmic.",
           f"{_MEASURE}Only compilers that search have a tuning time, such as tvm[trials=64].",
           "tuning_seconds", is_log=True, section="cost", choice="Tuning"),
    _lines("break_even", "Calls after which compiling pays",
           "Compile and tuning time over what a call saves against the baseline; logarithmic. Cells that are slower "
           "than the baseline never pay and are not here, nor those of whose speed-up the interval holds 1: they stand "
           "in all results.",
           f"{_MEASURE}It needs a compile time and a speed-up that is more than chance: rebuild=True.",
           "throughput", is_log=True, rows="break_even", axis="calls", section="cost", choice="Pays after"),
    Chart("visits", "One cell: launches, visits and percentiles",
          "A dot for each visit to the cell, by launch, and percentiles of all its samples. Choose a cell here, or "
          "click its point in a chart.",
          f"{_MEASURE}Run a suite whose cells have times.",
          lines.visits, rows="visits", width=0, height=240, legend="", numbers=("launch", "what", "text")),
    Chart("accuracy", "Agreement with the reference",
          "Largest difference from the reference's outputs over their largest value, before anything was timed. Right "
          "of the red line a cell is a mismatch and has no time. 1e-9 stands for less, 1e+3 for more and for outputs "
          "that cannot be compared.",
          f"{_MEASURE}Outputs are compared where the reference is measured, too; those of null compilers never are.",
          lines.errors, (MAX_ERROR_NAME,), panel="precision", height=46, line=("compiler",), step=24, width=420,
          numbers=("subject", "compiler", "batch", "what", "value")),
)  # fmt: skip
