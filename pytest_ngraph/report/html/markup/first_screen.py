"""The first screen: the answer in a sentence, what it rests on, what fails, what could not run, and the scoreboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.report.answer.headline import facts_line, headline
from pytest_ngraph.report.answer.not_run import NotRun, not_run
from pytest_ngraph.report.answer.scoreboard import ALL_MODELS, EVERY_MODEL, Score
from pytest_ngraph.report.html.markup.tables import Markup, element, joined, shown, table
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.texts.shown import one_line

if TYPE_CHECKING:
    from pytest_ngraph.report.html.content import Content, Row

WORST = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE)
# Written into the file for a reader without JavaScript; the script shows all of them.
_MOST_ROWS = 200
_LONGEST_CLAIM = 160


def answer(content: Content, rows: Sequence[Row], scores: Sequence[Score]) -> Markup:
    """Return the sentence and the line of what it rests on. ``rows`` are those of the verdicts, the worst first."""
    worst = [_in_words(row) for row in rows if row["verdict"] == Verdict.FAIL]
    said = headline(content.run, content.verdicts, worst, scores, not_run(content.reports, content.run.left_out))
    facts = facts_line(content.run, content.reports, content.noise)
    pairs = (element("div", joined([element("dt", name), element("dd", fact)])) for name, fact in facts)
    return joined([element("p", said, class_="answer"), element("dl", joined(pairs), class_="about")])


def _in_words(row: Row) -> str:
    # The helper's name says no more than its title.
    _, _, title = row["about"].partition(": ")
    about = one_line(title or row["about"], _LONGEST_CLAIM)
    return f"{about}: {row['text']} against {row['bound']}" + (f", {row['off']}" if row["off"] else "")


def counts(content: Content, signs: Mapping[Verdict, str]) -> Markup:
    """Return how many claims have which verdict, each with its sign."""
    found = Counter(row.verdict for row in content.verdicts)
    if not found:
        text = "No claim was made in this run: tests claim with assert_speedup, assert_bsr and the other helpers."
        return element("p", text, class_="empty")
    return joined(
        element(
            "div",
            joined([element("b", f"{found[name]:,}"), element("span", f"{sign} {name}")]),
            class_=f"count {name}",
            data_verdict=name,
        )
        for name, sign in signs.items()
        if found[name] or name is not Verdict.NOT_JUDGED
    )


_CLAIM_HEADINGS = ("claim", "verdict", "measured [interval]", "bound", "off by", "why", "launches", "state", "test")


def claims(rows: Sequence[Row], signs: Mapping[Verdict, str]) -> Markup:
    """Return a table of claims."""
    if not rows:
        return Markup()
    written = (
        [
            _of_cell(row),
            element("span", f"{signs[row['verdict']]} {row['verdict']}", class_=row["verdict"]),
            row["text"], row["bound"], row["off"], row["reason"], row["launches"], row["state"], row["test"],
        ]
        for row in rows[:_MOST_ROWS]
    )  # fmt: skip
    return joined([table(_CLAIM_HEADINGS, written, numbers=("launches",)), _more(len(rows), "claims")])


def _of_cell(row: Row) -> Markup:
    if row["cell"] is None or row["cell"] >= _MOST_ROWS:
        return shown(row["about"])
    return element("a", row["about"], href=f"#cell-{row['cell']}")


def _more(count: int, things: str) -> Markup:
    if count <= _MOST_ROWS:
        return Markup()
    return element("p", f"The first {_MOST_ROWS} of {count:,} {things}; all of them with JavaScript.", class_="says")


def results(content: Content) -> Markup:
    """Return the first results of the run, with what most people ask for."""
    if not content.reports:
        return Markup()
    headings = ("what", "batch", "compiler", "device", "throughput", "speed-up", "launches", "outcome")
    written = []
    for number, report in enumerate(content.reports[:_MOST_ROWS]):
        workload, found = report.cell.workload, report.estimates
        rate, speedup = found.get("throughput"), found.get("speedup")
        side = [f"of {report.cell.side}"] if report.cell.side else []
        what = " ".join([workload.model.text, *workload.axis_labels("batch"), *side])
        name = Markup(f'<span id="cell-{number}">{shown(what)}</span>')
        written.append(
            [name, workload.batch, report.cell.compiler, report.cell.device, rate or "", speedup or "",
             rate.launches if rate is not None else "", report.outcome or "not measured"]
        )  # fmt: skip
    return joined([table(headings, written, numbers=headings[1:2]), _more(len(content.reports), "cells")])


def plain_rows(rows: Sequence[Row]) -> Markup:
    """Return rows as a table of their own keys, the second of which names them."""
    if not rows:
        return Markup()
    first, name, *others = rows[0]
    headings = (name, first, *others)
    return table(headings, [[row[heading] for heading in headings] for row in rows[:_MOST_ROWS]])


def missing(content: Content) -> Markup:
    """Return what could not run: models by compilers, with what became of each and why, or nothing."""
    found = not_run(content.reports, content.run.left_out)
    if not found:
        return Markup()
    compilers = sorted({one.compiler for one in found}, key=natural)
    places = list(dict.fromkeys((one.device, one.model) for one in found))
    # One that is not installed may be of a device on which nothing was measured.
    has_devices = content.has_devices or len({one.device for one in found}) > 1
    head = joined(element("th", name, scope="col", data_compiler=name) for name in compilers)
    body = []
    for device, model in places[:_MOST_ROWS]:
        name = f"{model} on {device}" if has_devices else model
        cells = [
            element(
                "td",
                joined(_why(one) for one in found if (one.device, one.model, one.compiler) == (device, model, each)),
                class_="text",
                data_compiler=each,
            )
            for each in compilers
        ]
        row = joined([element("th", name, scope="row"), *cells])
        body.append(element("tr", row, data_device=device, data_model=model))
    top = element("thead", element("tr", joined([element("th", "model", scope="col"), head])))
    return joined(
        [element("table", joined([top, element("tbody", joined(body))])), _more(len(places), "models")]
    )  # fmt: skip


def _why(one: NotRun) -> Markup:
    reason = f": {one.reason}" if one.reason else ""
    said = joined([element("b", one.outcome), reason, " ", element("small", one.which)])
    if not one.numbers:
        return element("div", said, data_outcome=one.outcome)
    return element("div", said, data_cells=" ".join(map(str, one.numbers)))


def scores(found: Sequence[Score]) -> Markup:
    """Return a table of compilers by families for each device, or what would bring one."""
    if not found:
        text = "No speed-up was measured: it takes a compiler and its baseline in one launch group."
        return element("p", text, class_="empty")
    devices = list(dict.fromkeys(score.device for score in found))
    return joined(_scores_of(device, [score for score in found if score.device == device]) for device in devices)


def _scores_of(device: str, found: Sequence[Score]) -> Markup:
    families = list(dict.fromkeys(score.family for score in found))
    families.sort(key=lambda name: (name != EVERY_MODEL, natural(name)))
    by_row: dict[tuple[str, str], dict[str, Score]] = {}
    for score in found:
        by_row.setdefault((score.compiler, score.baseline), {})[score.family] = score
    has_baselines = len({baseline for _, baseline in by_row}) > 1
    names = [ALL_MODELS if name == EVERY_MODEL else name for name in families]
    head = element("tr", joined(element("th", name, scope="col") for name in ("compiler", *names)))
    body = [
        element(
            "tr",
            joined(
                [
                    element("th", f"{compiler} over {baseline}" if has_baselines else compiler, scope="row"),
                    *(_score(mine.get(family)) for family in families),
                ]
            ),
            data_compiler=compiler,
        )
        for (compiler, baseline), mine in by_row.items()
    ]
    baselines = dict.fromkeys(score.baseline for score in found)
    caption = element("caption", f"{device}: times the throughput of {', '.join(baselines)}")
    whole = joined([caption, element("thead", head), element("tbody", joined(body))])
    return element("table", whole, data_device=device)


def _score(score: Score | None) -> Markup:
    if score is None:
        return element("td", "not measured", class_="none")
    value, _, spread = str(score).partition(" ")
    claim = score.claim or "no claim"
    said = joined([element("b", value), " ", element("small", spread), " ", element("span", claim, class_="claim")])
    basis = element("small", score.basis, class_="basis")
    return element("td", joined([said, basis]), class_=score.claim or "none")


def passes_title(rows: Sequence[Row]) -> str:
    """Say how many claims are folded away: those that hold, and those that were not judged."""
    count = Counter(row["verdict"] for row in rows)
    parts = []
    if count[Verdict.PASS]:
        parts.append(
            f"{units.count(count[Verdict.PASS], 'claim')} that {'holds' if count[Verdict.PASS] == 1 else 'hold'}"
        )
    if count[Verdict.NOT_JUDGED]:
        parts.append(f"{units.count(count[Verdict.NOT_JUDGED], 'claim')} not judged")
    return " and ".join(parts)
