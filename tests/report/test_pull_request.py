"""What a pull request shows: the order of the gates, how much of them, and that names and reasons stay text."""

from __future__ import annotations

import html.parser
import re
from dataclasses import replace

import pytest
from hypothesis import given
from markdown_it import MarkdownIt

from pytest_ngraph.report.pull_request.annotations import MOST, commands
from pytest_ngraph.report.pull_request.comment import COMMENT_BYTES, STEP_BYTES, comment, mark_of
from pytest_ngraph.report.pull_request.gates import Gate, Gates, Noted, gates_of, is_better_by_the_tolerance
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.texts.escaping import markdown_code
from pytest_ngraph.texts.shown import clean
from tests.report.test_hostile_text import QUICK, TEXTS
from tests.support.report_stores import VERDICTS, of, verdict

MARK = mark_of(["local"], "gates")
PASSED, _, FAILED, UNDECIDED, INVALID, _ = VERDICTS
BARELY = verdict(of("timm:vit"), "pass", 1.2, (1.25, 1.22, 1.28))
NOT_JUDGED = verdict(of("timm:vgg"), "not judged", 1.2, (1.25, 1.22, 1.28))


class Page(html.parser.HTMLParser):
    """A page as a browser has it: its tags, and the texts of the cells of its tables."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.comments: list[str] = []
        self.rows: list[list[str]] = []
        self._cell: list[str] | None = None
        self.feed(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self.rows[-1].append("".join(self._cell))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def written(*rows: VerdictRow, most_bytes: int = COMMENT_BYTES) -> str:
    return comment(gates_of(rows, {}, {}), [], MARK, most_bytes)


def titles(text: str) -> list[str]:
    return re.findall(r"(?:### |<summary>)(.*?) \(", text)


def test_fails_come_first_and_what_passed_is_folded() -> None:
    noted = {"t.py::test_out": Noted("t.py", 3, "mismatch: outputs differ")}
    gates = gates_of(
        (BARELY, PASSED, NOT_JUDGED, UNDECIDED, FAILED, INVALID), noted, {"tvm on local: not installed": 3}
    )

    text = comment(gates, ["A note."], MARK)

    lines = text.splitlines()
    assert lines[0] == (
        "ngraph: 1 of 5 gates failed, 1 test failed without a verdict, 2 undecided, 2 passed (1 by more than the "
        "tolerance), 1 shown and not judged, 3 tests skipped."
    )
    assert lines[-1] == MARK == "<!-- ngraph: device=local suite=gates -->"
    assert "A note." in lines
    assert titles(text) == [
        "Failed", "Failed without a verdict", "Undecided", "Better than the bound by more than the tolerance", "Passed",
        "Not judged, or expected to fail", "Skipped",
    ]  # fmt: skip
    folded = text[text.index("<details>") :]
    assert "### " not in folded
    assert text.count("<details>") == text.count("</details>") == 4
    assert Page(text).rows[1] == [
        FAILED.nodeid, "assert_speedup: speed-up of xeon:openvino timm:efficientnet_b3 batch8 over identity",
        "1.20x [1.17x, 1.23x]", "at least 1.40x, tolerance 5 %", "4", "fail 4 fresh launches confirmed it",
    ]  # fmt: skip


def test_an_undecided_gate_says_what_it_could_have_seen_and_one_without_launches_that_it_was_not_measured() -> None:
    undecided, invalid = Page(written(UNDECIDED, INVALID)).rows[1:]

    assert undecided[-1] == "inconclusive the budget is spent; the smallest effect it could have seen is 2 %"
    assert invalid[2] == "not measured"


def test_what_could_not_see_a_factor_of_two_says_no_more_than_that() -> None:
    page = Page(written(replace(UNDECIDED, smallest_effect=7e8)))

    assert page.rows[1][-1].endswith("; it could have seen no effect of less than 100 %")


@pytest.mark.parametrize(
    ("low", "title"),
    [(1.06, "Better than what they are compared with, by more than the tolerance"), (1.04, "Passed")],
)
def test_a_comparison_that_is_better_by_the_tolerance_is_an_improvement_and_not_folded(low: float, title: str) -> None:
    extra = {**PASSED.extra, "helper": "assert_no_slower"}
    row = replace(PASSED, metric="throughput_ratio", bound=1.0, low=low, estimate=1.2, high=1.3, extra=extra)

    text = written(row, BARELY)

    assert titles(text)[0] == title
    assert ("### " in text) is (title != "Passed")
    improved = "1 better than what it is compared with, 1 passed." if title != "Passed" else "2 gates passed."
    assert text.splitlines()[0] == f"ngraph: {improved}"


@pytest.mark.parametrize(
    ("verdict", "reason", "low", "high", "title"),
    [
        ("pass", "better by more than the tolerance: save it", 1.1, 1.3, "Better than what they are compared with, by"),
        ("pass", "unchanged: the same code, versions and machine as saved", 1.1, 1.3, "Passed"),
        ("not judged", "this warns and never fails", 0.8, 0.9, "Beyond the bound, but not judged"),
        ("not judged", "this warns and never fails", 0.9, 1.1, "Not judged, or expected to fail"),
        ("fail", "", 0.8, 0.9, "Failed"),
    ],
)
def test_what_is_held_against_a_saved_baseline_stands_where_it_belongs(
    verdict: str, reason: str, low: float, high: float, title: str
) -> None:
    extra = {**PASSED.extra, "helper": "compare", "reason": reason}
    row = replace(PASSED, metric="saved_ratio", bound=1.0, low=low, high=high, extra=extra, verdict=verdict)

    assert titles(written(row))[0].startswith(title)


def test_a_slower_time_is_beyond_its_bound_at_the_other_end() -> None:
    row = replace(NOT_JUDGED, metric="latency", at_least=False, bound=1.0, low=1.1, high=1.2)

    assert written(row).startswith("ngraph: no gate was judged, 1 beyond the bound but not judged.")


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ((), "ngraph: no gate was judged."),
        ((PASSED,), "ngraph: 1 gate passed (1 by more than the tolerance)."),
        ((BARELY, PASSED), "ngraph: 2 gates passed (1 by more than the tolerance)."),
        ((NOT_JUDGED,), "ngraph: no gate was judged, 1 shown and not judged."),
        ((UNDECIDED,), "ngraph: 1 undecided."),
        ((FAILED,), "ngraph: 1 of 1 gate failed."),
        ((FAILED, FAILED), "ngraph: 1 of 1 gate failed."),
        ((replace(FAILED, verdict="pass"), FAILED), "ngraph: 1 of 1 gate failed."),
    ],
)
def test_the_first_line_counts(rows: tuple[VerdictRow, ...], sentence: str) -> None:
    assert written(*rows).splitlines()[0] == sentence


def test_a_gate_that_is_expected_to_fail_is_no_regression() -> None:
    gates = gates_of([FAILED], {FAILED.nodeid: Noted("t.py", 1, is_expected=True)}, {})

    assert (gates.failed, [gate.verdict for gate in gates.others]) == ([], ["fail"])
    assert "its author expects it to fail" in gates.others[0].why
    assert commands(gates, str) == []


@pytest.mark.parametrize(
    ("at_least", "bound", "interval", "tolerance", "is_better"),
    [
        (True, 1.0, (1.06, 1.2), 0.05, True),
        (True, 1.0, (1.04, 1.2), 0.05, False),
        (False, 1.0, (0.90, 0.94), 0.05, True),
        (False, 1.0, (0.90, 0.96), 0.05, False),
        (True, 1.0, (1.06, 1.2), 0.0, False),
        (True, 1.0, (1.06, float("inf")), 0.05, False),
        (True, 1.0, (None, None), 0.05, False),
    ],
)
def test_better_is_what_a_whole_interval_says(
    at_least: bool, bound: float, interval: tuple[float, float], tolerance: float, is_better: bool
) -> None:
    low, high = interval
    row = replace(PASSED, at_least=at_least, bound=bound, low=low, high=high, tolerance=tolerance)

    assert is_better_by_the_tolerance(row) is is_better


def test_the_tolerance_of_a_linear_metric_is_an_amount() -> None:
    slope = replace(PASSED, metric="slope", bound=0.0, tolerance=0.02, low=0.021, high=0.03, estimate=0.025)

    assert is_better_by_the_tolerance(slope)
    assert not is_better_by_the_tolerance(replace(slope, low=0.019))


# How much of it


def many(count: int, row: VerdictRow) -> list[VerdictRow]:
    return [replace(row, nodeid=f"{row.nodeid}-{number}-{'é' * 100}") for number in range(count)]


def test_a_comment_is_cut_at_the_end_and_says_how_much() -> None:
    rows = [*many(500, PASSED), *many(60, UNDECIDED), *many(40, FAILED)]

    text = written(*rows)

    assert 0.9 * COMMENT_BYTES < len(text.encode()) <= COMMENT_BYTES
    page = Page(text)
    assert len([row for row in page.rows if row[-1].startswith("fail ")]) == 40
    left = re.findall(r"^(\d+) of (\d+) (.*) are cut off here", text, re.MULTILINE)
    shown = len([row for row in page.rows if row[-1].startswith(("pass", "inconclusive"))])
    assert 600 - 40 - shown == sum(int(cut) for cut, _, _ in left)
    assert left[-1][2] == "gates that are better by more than the tolerance"
    assert text.endswith(f"{MARK}\n")
    assert text.count("<details>") == text.count("</details>")


def test_fails_alone_may_fill_it_and_the_others_are_counted() -> None:
    text = written(*many(2000, FAILED), *many(10, UNDECIDED), *many(10, BARELY))

    assert len(text.encode()) <= COMMENT_BYTES
    assert re.search(r"\d+ of 2000 gates that failed are cut off here", text)
    assert re.search(r"\d+ of 10 undecided gates are cut off here", text)
    assert re.search(r"\d+ of 10 gates that passed are cut off here", text)


@pytest.mark.parametrize("most_bytes", [0, 200, 500, 1000, 2000, 5000])
def test_where_there_is_hardly_room_the_sentence_and_the_mark_are_left(most_bytes: int) -> None:
    text = written(*many(50, FAILED), *many(50, UNDECIDED), *many(50, PASSED), most_bytes=most_bytes)

    assert text.startswith("ngraph: 50 of 150 gates failed")
    assert text.endswith(f"{MARK}\n")
    assert len(text.encode()) <= max(most_bytes, 200)


def test_the_limits_are_those_of_github() -> None:
    assert (COMMENT_BYTES, STEP_BYTES) == (65536, 900 * 1024)


# The mark


@pytest.mark.parametrize(
    ("name", "mark"),
    [("tests/gates", "tests/gates"), ("--> <b>", None), ("a" * 500, None), ("a b", None), ("a--b", None), ("é", None)],
)
def test_the_mark_is_one_comment_whatever_the_names(name: str, mark: str | None) -> None:
    page = Page(mark_of([name], name))

    assert len(page.comments) == 1
    assert len(page.comments[0]) < 400
    assert page.tags <= {"p"}
    assert mark is None or page.comments == [f" ngraph: device={mark} suite={mark} "]


def test_marks_of_two_suites_differ() -> None:
    suites = ["a b", "a_b", "a  b", "a" * 121, "a" * 122, "gates", "other"]

    assert len({mark_of(["local"], suite) for suite in suites}) == len(suites)


# Text of others


@QUICK
@given(TEXTS)
def test_names_and_reasons_are_text_in_a_comment_and_nothing_else(text: str) -> None:
    row = replace(FAILED, nodeid=text, claim=text, extra={"reason": text})
    gates = gates_of([row], {f"{text}-b": Noted("t.py", 1, why=text or "x")}, {text: 1})

    page = Page(comment(gates, [f"Device {markdown_code(text)}"], MARK))

    assert page.tags <= {"p", "h3", "table", "thead", "tbody", "tr", "th", "td", "code", "strong", "details", "summary",
                         "ul", "li"}  # fmt: skip
    assert len(page.comments) == 1
    assert [len(row) for row in page.rows] == [6, 6, 6, 6]
    shown = " ".join(clean(text).split())
    if re.search(r"\\\|", shown) is None and len(shown) < 400:
        assert page.rows[1][0] == page.rows[1][1] == shown
        assert page.rows[1][5] == " ".join(filter(None, ["fail", shown]))


@pytest.mark.parametrize(
    "text", ["@octocat", "https://evil.example/x", "www.evil.example", "#1", "$a$", ":tada:", "a@b.de"]
)
def test_nobody_is_mentioned_and_nothing_is_linked(text: str) -> None:
    # GitHub looks for mentions, issues, formulas and emoji outside of code.
    assert markdown_code(text) == f"`{text}`"


# Annotations


def gate(nodeid: str = "t.py::test_a", **others: object) -> Gate:
    return Gate(nodeid, "fail", "assert_speedup: it", "1.1x [1.0x, 1.2x]", "at least 1.4x", 4, **others)  # type: ignore[arg-type]


def test_an_annotation_has_file_line_title_and_what_was_measured() -> None:
    gates = Gates(
        failed=[gate(noted=Noted("t.py", 7), why="50% sure: no, \r\nyes")],
        undecided=[gate("dir/u.py::test_u[a,b:c]", noted=Noted("dir/u.py", 9))],
    )

    error, warning = commands(gates, lambda path: f"sub/{path}")

    assert error == (
        "::error file=sub/t.py,line=7,title=fail test_a::t.py::test_a%0Afail: assert_speedup: it%0A1.1x [1.0x, 1.2x], "
        "4 launches; claimed at least 1.4x%0A50%25 sure: no, yes"
    )
    assert warning.startswith("::warning file=sub/dir/u.py,line=9,title=fail test_u[a%2Cb%3Ac]::")


@QUICK
@given(TEXTS)
def test_an_annotation_is_one_command_whatever_is_in_it(text: str) -> None:
    gates = Gates(broken=[Gate(text, text, text, text, text, 1, text, Noted(text, 1))])

    (line,) = commands(gates, str)

    assert "\n" not in line
    assert "\r" not in line
    head, _, _ = line.removeprefix("::error ").partition("::")
    assert [part.partition("=")[0] for part in head.split(",")] == ["file", "line", "title"]


def test_no_more_than_ten_of_a_kind_and_the_last_says_how_many_more() -> None:
    gates = Gates(failed=[gate()] * 12, undecided=[gate()] * MOST)

    lines = commands(gates, str)

    assert [line.split()[0] for line in lines] == ["::error"] * 10 + ["::warning"] * 10
    assert lines[9] == "::error title=ngraph::3 more gates failed; the log and --ngraph-summary have them"
