"""Several runs as one HTML file: what differs on top, then answers, claims, means and results side by side.

Nothing is judged here, and no run is divided by another: their launches are not the same ones, so that no interval of
such a ratio would hold. The page says so, and what compares properly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import TypeVar

from pytest_ngraph import units
from pytest_ngraph.report.answer.scoreboard import EVERY_MODEL, Score, scoreboard
from pytest_ngraph.report.export.files import write_text
from pytest_ngraph.report.export.tables import SPREADS
from pytest_ngraph.report.html.content import Content, Row, verdict_rows
from pytest_ngraph.report.html.markup import first_screen
from pytest_ngraph.report.html.markup.tables import Markup, element, joined, shown, table
from pytest_ngraph.report.html.page import style
from pytest_ngraph.report.html.pictures.palette import SIGNS
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.several.differences import Fact, facts_of

_MOST_ROWS = 2000
_ABSENT = "not in this run"
_WARNING = (
    "Nothing is judged here, and no run is divided by another: each number is of its own run, and whatever differs "
    "below may be why two of them do. To compare two sides, measure them in the same launches (ngraph compare), or "
    "hold a run against a baseline of its machine (--ngraph-compare)."
)
_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
$style
</style>
</head>
<body class="several">
<a class="skip" href="#main">Skip to the results</a>
<header><div class="top"><h1>$title</h1></div><p class="answer">$sentence</p><p class="says">$warning</p></header>
<main id="main">$sections</main>
<footer><p>Made by pytest-ngraph.</p></footer>
</body>
</html>
""")

_Key = TypeVar("_Key")


def write_several(contents: Sequence[Content], names: Sequence[str], path: Path) -> None:
    """Write runs side by side as one file. Raise StoreError where it cannot be written."""
    write_text(several(contents, names), path)


def several(contents: Sequence[Content], names: Sequence[str]) -> str:
    """Return runs side by side as one HTML document, each under its name."""
    facts = facts_of(contents)
    differing = [fact for fact in facts if fact.differs]
    sentence = (
        f"{units.count(len(contents), 'run')} side by side; they differ in {units.count(len(differing), 'fact')}."
    )
    if not differing:
        sentence = f"{units.count(len(contents), 'run')} side by side, alike in all that is known of them."
    parts = {
        "title": shown(f"ngraph report: {', '.join(names)}"),
        "style": style(),
        "sentence": shown(sentence),
        "warning": shown(_WARNING),
        "sections": joined(_sections(contents, names, facts)),
    }
    return _PAGE.substitute(parts)


def _sections(contents: Sequence[Content], names: Sequence[str], facts: Sequence[Fact]) -> Iterator[Markup]:
    differing = [fact for fact in facts if fact.differs]
    alike = [fact for fact in facts if not fact.differs]
    folded = element("summary", f"{units.count(len(alike), 'fact')} alike in all of them")
    yield _section(
        "differences",
        "What differs",
        "Machine, versions, protocol and what else is known, where the runs do not agree or one of them does not say.",
        _table("fact", names, ((fact.name, fact.values) for fact in differing)),
        element("details", joined([folded, _holder(_table("fact", names, ((one.name, one.values) for one in alike)))])),
    )
    rows = [verdict_rows(content) for content in contents]
    means = [scoreboard(content.reports, content.run.protocol) for content in contents]
    answers = [
        joined([element("h3", name), first_screen.answer(content, mine, scores)])
        for name, content, mine, scores in zip(names, contents, rows, means, strict=True)
    ]
    yield element(
        "section", joined([element("h2", "The answer of each", id="answers-title"), *answers]),
        id="answers", aria_labelledby="answers-title",
    )  # fmt: skip
    claims = _beside(rows, lambda row: (row["test"], row["about"], row["bound"]))
    some = [
        (key, each) for key, each in claims.items() if any(row and row["verdict"] in first_screen.WORST for row in each)
    ]
    yield _section(
        "claims",
        "Claims that fail or are undecided in one of them",
        "Each verdict is of its own run.",
        _table("claim", names, ((f"{about} (bound {bound})", map(_claim, each)) for (_, about, bound), each in some)),
    )
    beside = _beside(
        means,
        lambda score: (score.device, score.compiler, score.baseline, score.family),
    )
    yield _section(
        "scoreboard",
        "Scoreboard",
        "Geometric means of speed-ups over the baseline of the same launches, as in the page of one run. Means of "
        "other models or cells are no more alike than these are.",
        _table("compiler and models", names, ((_of_score(*key), map(_score, each)) for key, each in beside.items())),
    )
    found = _beside([content.reports for content in contents], lambda report: report.cell.label)
    listed = sorted(found.items(), key=lambda one: natural(one[0]))
    spreads = (SPREADS.get(content.run.protocol, f"by the protocol {content.run.protocol}") for content in contents)
    what = "; ".join(f"{name} {spread}" for name, spread in zip(names, spreads, strict=True))
    left = len(listed) - _MOST_ROWS
    more = f" The first {_MOST_ROWS:,} of {len(listed):,} cells; ngraph export has all of a run." if left > 0 else ""
    yield _section(
        "results",
        "Throughput and speed-up",
        f"A row for each cell: {what}.{more}",
        _table("cell", names, ((label, map(_result, each)) for label, each in listed[:_MOST_ROWS])),
    )


_Thing = TypeVar("_Thing")


def _beside(runs: Sequence[Sequence[_Thing]], key: Callable[[_Thing], _Key]) -> Mapping[_Key, list[_Thing | None]]:
    """Return, by key, what each run has of it, None where it has none."""
    by_run = [{key(one): one for one in each} for each in runs]
    names = dict.fromkeys(name for each in by_run for name in each)
    return {name: [each.get(name) for each in by_run] for name in names}


def _section(name: str, title: str, says: str, content: Markup, *more: Markup) -> Markup:
    parts = [element("h2", title, id=f"{name}-title"), element("p", says, class_="says"), _holder(content), *more]
    return element("section", joined(parts), id=name, aria_labelledby=f"{name}-title")


def _holder(content: Markup) -> Markup:
    return element("div", content, class_="table", tabindex="0") if content else element("p", "None.", class_="empty")


def _table(heading: str, names: Sequence[str], rows: object) -> Markup:
    written = [(first, *others) for first, others in rows]  # type: ignore[attr-defined]
    return table((heading, *names), written) if written else Markup()


def _claim(row: Row | None) -> object:
    if row is None:
        return element("small", _ABSENT)
    said = element("span", f"{SIGNS[row['verdict']]} {row['verdict']}", class_=row["verdict"])
    return joined([said, " ", row["text"], " ", element("small", units.count(row["launches"], "launch", "launches"))])


def _of_score(device: str, compiler: str, baseline: str, family: str) -> str:
    models = "all models" if family == EVERY_MODEL else family
    return f"{compiler} over {baseline} on {device}, {models}"


def _score(score: Score | None) -> object:
    if score is None:
        return element("small", _ABSENT)
    return joined([str(score), " ", element("small", f"{score.claim or 'no claim'}, {score.basis}")])


def _result(report: CellReport | None) -> object:
    if report is None:
        return element("small", _ABSENT)
    found = [str(report.estimates[name]) for name in ("throughput", "speedup") if name in report.estimates]
    return "; ".join(found) or (report.outcome or "not measured")
