"""Several runs as one HTML file: what differs on top, then answers, claims, means and results side by side.

Nothing is judged here, and no run is divided by another: their launches are not the same ones, so that no interval of
such a ratio would hold. The page says so, and what compares properly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pytest_ngraph import units
from pytest_ngraph.report.answer.scoreboard import ALL_MODELS, EVERY_MODEL, Score, scoreboard
from pytest_ngraph.report.export.files import write_text
from pytest_ngraph.report.export.tables import SPREADS
from pytest_ngraph.report.html.charts import Chart, sections
from pytest_ngraph.report.html.content import Content, Row, cell_row, verdict_rows
from pytest_ngraph.report.html.data import data_of
from pytest_ngraph.report.html.markup import first_screen
from pytest_ngraph.report.html.markup.sections import chart_links, chart_sections
from pytest_ngraph.report.html.markup.tables import Markup, element, joined, table
from pytest_ngraph.report.html.page import Document, document
from pytest_ngraph.report.html.pictures.palette import SIGNS
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.several.charts import charts_of_runs, look_of
from pytest_ngraph.report.several.differences import Fact, facts_of
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.texts.shown import clean

_MOST_ROWS = 200
_ABSENT = "not in this run"
_WARNING = (
    "Nothing is judged here, and no run is divided by another: each number is of its own run, and whatever differs "
    "below may be why two of them do. To compare two sides, measure them in the same launches (ngraph compare), or "
    "hold a run against a baseline of its machine (--ngraph-compare)."
)
_OF_ALL = (
    '<p id="of-all" class="says" hidden>What differs and the answers are of whole runs, whatever the filters leave.</p>'
)
_BY_RESULT = (
    "The cells of these means were chosen by outcome or verdict, so by what was measured of them: no interval would "
    "hold, and there is no claim."
)

_Key = TypeVar("_Key")


def write_several(contents: Sequence[Content], names: Sequence[str], path: Path) -> None:
    """Write runs side by side as one file. Raise StoreError where it cannot be written."""
    write_text(several(contents, names), path)


def several(contents: Sequence[Content], names: Sequence[str]) -> str:
    """Return runs side by side as one HTML document, each under its name."""
    names = apart(names)
    facts = facts_of(contents)
    differing = [fact for fact in facts if fact.differs]
    sentence = (
        f"{units.count(len(contents), 'run')} side by side; they differ in {units.count(len(differing), 'fact')}."
    )
    if not differing:
        sentence = f"{units.count(len(contents), 'run')} side by side, alike in all that is known of them."
    rows = [verdict_rows(content) for content in contents]
    charts = charts_of_runs(contents)
    title = f"ngraph report: {', '.join(names)}"
    said = joined([element("p", sentence, class_="answer"), element("p", _WARNING, class_="says"), Markup(_OF_ALL)])
    data = {**data_of(contents, rows, look_of(names), charts, names), "spreads": []}
    main = joined(_sections(contents, names, rows, facts, charts))
    return document(Document(title, said, main, data, "several.js", heading=title, kind="several"))


def apart(names: Sequence[str]) -> list[str]:
    """Return names as a page shows them, each with its place behind it where two would be the same."""
    shown_names = [clean(name) for name in names]
    once = [
        name if shown_names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(shown_names, start=1)
    ]
    if len(set(once)) == len(once):
        return once
    return [f"{name} ({place})" for place, name in enumerate(shown_names, start=1)]


def _sections(
    contents: Sequence[Content],
    names: Sequence[str],
    rows: Sequence[Sequence[Row]],
    facts: Sequence[Fact],
    charts: Sequence[Chart],
) -> Iterator[Markup]:
    differing = [fact for fact in facts if fact.differs]
    alike = [fact for fact in facts if not fact.differs]
    folded = element("summary", f"{units.count(len(alike), 'fact')} alike in all of them")
    table_of_alike = _table("fact", names, ((one.name, one.values) for one in alike))
    yield _section(
        "differences",
        "What differs",
        "Machine, versions, protocol and what else is known, where the runs do not agree or one of them does not say.",
        _holder(_table("fact", names, ((fact.name, fact.values) for fact in differing)), "differences"),
        element("details", joined([folded, _holder(table_of_alike, "differences")])),
    )
    means = [scoreboard(content.reports, content.run.protocol) for content in contents]
    answers = [
        element("div", joined([element("h3", name), first_screen.answer(content, mine, scores)]), data_run=name)
        for name, content, mine, scores in zip(names, contents, rows, means, strict=True)
    ]
    yield _section("answers", "The answer of each", "Each is of its own run.", *answers)
    claims = _beside(rows, lambda row: (row["test"], row["about"], row["bound"]))
    some = [
        (key, each) for key, each in claims.items() if any(row and row["verdict"] in first_screen.WORST for row in each)
    ]
    yield _filled(
        "claims",
        "Claims that fail or are undecided in one of them",
        "Each verdict is of its own run.",
        _table("claim", names, ((f"{about} (bound {bound})", map(_claim, each)) for (_, about, bound), each in some)),
        "No claim fails or is undecided in any of them.",
    )
    has_devices = any(content.has_devices for content in contents)
    beside = _beside(means, lambda score: _of_score(score, has_devices=has_devices))
    yield _filled(
        "scoreboard",
        "Scoreboard",
        "Geometric means of speed-ups over the baseline of the same launches, as in the page of one run, of the cells "
        "that the filters leave. Means of other models or cells are no more alike than these are.",
        _table("compiler and models", names, ((name, map(_score, each)) for name, each in beside.items())),
        "No speed-up was measured: it takes a compiler and its baseline in one launch group.",
        element("p", _BY_RESULT, id="scoreboard-note", class_="says", hidden=""),
    )
    links = joined(
        element("li", element("a", title, href=f"#{name}"))
        for name, title in (("claims", "Claims"), ("scoreboard", "Scoreboard"))
    )
    last = element("li", element("a", "All results", href="#results"))
    yield element(
        "nav",
        element("ul", joined([links, Markup(chart_links(sections(charts))), last])),
        aria_label="Charts and tables",
    )
    yield joined(map(Markup, chart_sections(sections(charts)).values()))
    found = _beside(
        [content.reports for content in contents], lambda report: tuple(_of_cell(report.cell, has_devices=has_devices))
    )
    listed = sorted(found.items(), key=lambda one: natural(" ".join(map(str, one[0]))))
    spreads = (SPREADS.get(content.run.protocol, f"by the protocol {content.run.protocol}") for content in contents)
    what = "; ".join(f"{name} {spread}" for name, spread in zip(names, spreads, strict=True))
    left = len(listed) - _MOST_ROWS
    more = f"The first {_MOST_ROWS:,} of {len(listed):,} cells; all of them with JavaScript." if left > 0 else ""
    yield _filled(
        "results",
        "Throughput and speed-up",
        f"A row for each cell: {what}. A heading sorts.",
        joined(
            [
                _table("cell", names, ((" ".join(key), map(_result, each)) for key, each in listed[:_MOST_ROWS])),
                *([element("p", more, class_="says")] if more else []),
            ]
        ),
        "No cell was measured in any of them.",
    )


_Thing = TypeVar("_Thing")


def _beside(runs: Sequence[Sequence[_Thing]], key: Callable[[_Thing], _Key]) -> Mapping[_Key, list[_Thing | None]]:
    """Return, by key, what each run has of it, None where it has none."""
    by_run = [{key(one): one for one in each} for each in runs]
    names = dict.fromkeys(name for each in by_run for name in each)
    return {name: [each.get(name) for each in by_run] for name in names}


def _of_cell(cell: Cell, *, has_devices: bool) -> Iterator[str]:
    """Yield what a cell is called in all runs: by its device only where one of them has several."""
    row = cell_row(cell, device=has_devices)
    yield from (row["subject"], f"batch{row['batch']}", row["compiler"])


def _section(name: str, title: str, says: str, *content: Markup) -> Markup:
    parts = [element("h2", title, id=f"{name}-title"), element("p", says, class_="says"), *content]
    return element("section", joined(parts), id=name, aria_labelledby=f"{name}-title")


def _filled(name: str, title: str, says: str, content: Markup, empty: str, *before: Markup) -> Markup:
    """Return a section whose table the script fills, with the words that stand there where it is empty."""
    hidden = {"hidden": ""} if content else {}
    words = element("p", empty, class_="empty", data_of=name, data_some="yes" if content else "no", **hidden)
    return _section(name, title, says, *before, element("div", content, class_="table"), words)


def _holder(content: Markup, name: str) -> Markup:
    if not content:
        return element("p", "None.", class_="empty")
    return element("div", content, class_="table", tabindex="0", role="region", aria_labelledby=f"{name}-title")


def _table(heading: str, names: Sequence[str], rows: object) -> Markup:
    written = [(first, *others) for first, others in rows]  # type: ignore[attr-defined]
    return table((heading, *names), written) if written else Markup()


def _claim(row: Row | None) -> object:
    if row is None:
        return element("small", _ABSENT)
    said = element("span", f"{SIGNS[row['verdict']]} {row['verdict']}", class_=row["verdict"])
    return joined([said, " ", row["text"], " ", element("small", units.count(row["launches"], "launch", "launches"))])


def _of_score(score: Score, *, has_devices: bool) -> str:
    models = ALL_MODELS if score.family == EVERY_MODEL else score.family
    place = f" on {score.device}" if has_devices else ""
    return f"{score.compiler} over {score.baseline}{place}, {models}"


def _score(score: Score | None) -> object:
    if score is None:
        return element("small", _ABSENT)
    return joined([str(score), " ", element("small", f"{score.claim or 'no claim'}, {score.basis}")])


def _result(report: CellReport | None) -> object:
    if report is None:
        return element("small", _ABSENT)
    found = [str(report.estimates[name]) for name in ("throughput", "speedup") if name in report.estimates]
    return "; ".join(found) or (report.outcome or "not measured")
