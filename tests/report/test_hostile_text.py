"""Names and messages that are markup, formulas or orders to a terminal are shown as what they are, and nothing more."""

from __future__ import annotations

import csv
import html.parser
import io
import itertools
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ngraph.devices.doors.status import AgentState, HubState, hub_lines
from pytest_ngraph.errors import DeviceUnusable, SpecError
from pytest_ngraph.front.ci import PROPERTIES, properties
from pytest_ngraph.front.summary.notes import placement_lines
from pytest_ngraph.front.summary.table import cell_table
from pytest_ngraph.front.summary.verdicts import verdict_lines
from pytest_ngraph.report.export import layout
from pytest_ngraph.report.export.files import write_rows
from pytest_ngraph.report.export.layout import Table
from pytest_ngraph.report.export.tables import write_export
from pytest_ngraph.report.html.content import content_of
from pytest_ngraph.report.html.page import page
from pytest_ngraph.report.results.cells import CellReport, cell_reports
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, ModelRef, Outcome, Workload
from pytest_ngraph.store.rows import RunRow, VerdictRow
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.texts.escaping import csv_text, markdown_text
from pytest_ngraph.texts.shown import clean
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import Suite, skip_without
from tests.support.report_stores import Lab, write_store
from tests.texts.test_shown import ANY, is_clean

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "'=1", "＝1", "=cmd|' /C calc'!A0", "-", "'", ""]
MARKUP = [
    "<script>alert(1)</script>", "</script><script>alert(1)//", "<!--", "-->", "]]>", "<img src=x onerror=alert(1)>",
    "a|b", "a\\|b", "a\\", "`a|b`", "[a](javascript:b)", "![a](http://b)", "a\n\n| b |", "&lt;b>", "$name", "%s",
    "\" onmouseover=\"alert(1)", "' onmouseover='alert(1)", "{{x}}", "\\input{/etc/passwd}", "$\\$", "^^M", "\\",
    "}", "{", "a\n\nb", "模型 👍", "é", "‮abc", "\x1b[31mred", "\x07", "\udc80", "\x00", "[a] * & _ ~", "*", "[x",
]  # fmt: skip
TEXTS = st.one_of(st.sampled_from(FORMULAS + MARKUP), ANY)
QUICK = settings(max_examples=150, derandomize=True, deadline=None)
CELL = Cell("local", CompilerSpec("null"), Workload(parse_model("block:conv")))


def named(text: str) -> Cell:
    """Return a cell whose device and model have this name, as only a file of somebody else's can have it."""
    return Cell(text, CompilerSpec("null"), Workload(ModelRef(text, "file", text)))


def report_of(text: str) -> CellReport:
    record = CompileRecord(Outcome.FAILED, text, placement=((text, text), ("provider", text), ("version", text)))
    return CellReport(named(text), None, {}, record, record)


def verdict_of(text: str) -> VerdictRow:
    extra = {"target": f"{text}:null", "subject": f"{text}:null {text}", "reason": text}
    return VerdictRow(text, text, "speedup", 1.0, True, 0.05, None, None, None, 0, "inconclusive", None, extra)


# Spreadsheets


def csv_original(cell: str) -> str:
    """Return the text that ``csv_text`` was given, but for what ``clean`` changes."""
    return cell[1:] if cell.startswith("'") else cell


@QUICK
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_csv_reader_gives_back_every_text_and_a_spreadsheet_calculates_none(texts: list[str]) -> None:
    rows = [{"name": text, "value": -1.5} for text in texts]
    written = table_of(rows, "csv")
    found = list(csv.DictReader(io.StringIO(written, newline="")))
    assert [csv_original(row["name"]) for row in found] == list(map(clean, texts))
    assert [float(row["value"]) for row in found] == [-1.5] * len(texts)
    assert not any(row["name"].lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠")) for row in found)
    assert is_clean(written)


def table_of(rows: list[dict[str, Any]], format: str) -> str:
    from pytest_ngraph.report.export import files as export

    columns = list(rows[0])
    return export._TEXTS[format](columns, [{key: _clean(value) for key, value in row.items()} for row in rows])


def _clean(value: Any) -> Any:
    return clean(value) if isinstance(value, str) else value


@pytest.mark.parametrize("text", FORMULAS)
def test_what_begins_like_a_formula_has_an_apostrophe_in_the_file(tmp_path: Path, text: str) -> None:
    write_rows([{"model": text, "value": -0.25, "low": None, "count": -3}], tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert csv_original(row["model"]) == clean(text)
    assert (row["model"].startswith("'")) == bool(clean(text).strip())
    assert (row["value"], row["low"], row["count"]) == ("-0.25", "", "-3")
    assert csv_text("resnet18-1") == "resnet18-1"


# Markdown


def cells_of(line: str) -> list[str]:
    """Split a line of a table as GitHub does: at the bars that no backslash takes along."""
    pieces = re.findall(r"(?:\\.|[^|\\])*", line.strip().removeprefix("|").removesuffix("|") + "|")
    return [piece for piece in pieces if piece][: line.count("|")]


@QUICK
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3))
def test_a_markdown_table_keeps_its_shape_and_holds_no_html(rows: list[tuple[str, str]]) -> None:
    tables = [
        layout.markdown(Table("c", ("a", "b"), tuple(rows))),
        table_of([{"a": first, "b": second} for first, second in rows], "md"),
    ]
    for text in tables:
        lines = text.splitlines()
        assert len(lines) == 2 + len(rows)
        for line in lines:
            assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3, line
        assert is_clean(text)
        assert "<" not in text
        assert not re.search(r"(?<!\\)`|\]\(|!\[", text)


def test_markdown_text_reads_as_it_was() -> None:
    assert markdown_text("onnxruntime[graph=basic,threads=1]") == "onnxruntime[graph=basic,threads=1]"
    assert markdown_text("R&D <b> a|b `c` \\d") == r"R&amp;D &lt;b> a\|b \`c\` \\d"


# LaTeX


def test_latex_prints_any_name(tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    latin = [chr(code) for code in range(0xA0, 0x180)]
    ascii = [chr(code) for code in range(0x20, 0x7F)]
    pairs = ["".join(pair) for pair in itertools.product("-'?!`\"[]{}\\$%#&~^_<>|*+,=.:;/@ ", repeat=2)]
    names = [*FORMULAS, *MARKUP, *latin, *ascii, *pairs, "ﬁ", "\u0301", "e\u0301", "\u2028x", "µ", "×", "–", "—", "“"]
    rows = tuple((name, name) for name in names)
    for place, (long, first) in enumerate([(False, rows[:20]), (True, rows)]):
        text = layout.latex(Table(names[place], ("a", names[place]), first, (("x", 1), ("&", 1))), "tab:x", long=long)
        (tmp_path / f"t{place}.tex").write_text(text, encoding="utf-8")
    body = "".join(f"\\input{{t{place}.tex}}\n" for place in range(2))
    packages = r"\usepackage{booktabs,longtable}"
    (tmp_path / "all.tex").write_text(
        f"\\documentclass{{article}}{packages}\\begin{{document}}\n{body}\\end{{document}}"
    )
    done = subprocess.run(["pdflatex", "-halt-on-error", "all.tex"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-2000:]
    if shutil.which("pdftotext"):
        subprocess.run(["pdftotext", "-layout", "all.pdf"], cwd=tmp_path, check=True)
        printed = (tmp_path / "all.txt").read_text(encoding="utf-8")
        assert "(U+6A21)" in printed
        assert "root:" not in printed


@QUICK
@given(TEXTS)
def test_latex_has_no_letter_of_a_name_that_it_would_obey(text: str) -> None:
    written = layout.escaped(text)
    assert is_clean(written)
    assert "\n" not in written
    left = re.sub(r"\\[A-Za-z]+\{\}|\\[&%$#_{}]|\$(\\[a-z]+|-)\$|\{\}", "", written)
    assert not set(left) & set('\\{}$&#^_%~"<>|'), (text, written)


# JUnit


@QUICK
@given(TEXTS)
def test_properties_are_texts_that_xml_has(text: str) -> None:
    pairs = properties([verdict_of(text)])
    case = ET.Element("testcase")
    for name, value in pairs:
        ET.SubElement(case, "property", name=name, value=value)
        assert is_clean(value)
        assert "\n" not in value
    again = ET.fromstring(ET.tostring(case, encoding="utf-8"))
    assert [each.get("value") for each in again] == [value for _, value in pairs]
    assert {name.split(".")[2] for name, _ in pairs} <= set(PROPERTIES)


# HTML


class Tags(html.parser.HTMLParser):
    """Collects the elements of a page, and the texts of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))


def page_of(text: str) -> str:
    facts = {text: text, "git_commit": text, "more": {text: [text]}}
    run = RunRow(1, text, text, text, text, (text,), 0, text, facts, fresh=False, resumed=False)
    return page(content_of(run, [report_of(text)], [verdict_of(text)], [text]))


def elements(text: str) -> list[tuple[str, tuple[str, ...]]]:
    parser = Tags()
    parser.feed(text)
    return parser.tags


def test_a_page_has_the_same_elements_whatever_names_there_are() -> None:
    skip_without("altair")
    plain = elements(page_of("plain"))
    # What could matter together, and what ends an element for itself.
    for text in ("".join(MARKUP), *MARKUP[:4], MARKUP[15], MARKUP[16], "\udc80\x00"):
        shown = page_of(text)
        assert elements(shown) == plain, text
        assert is_clean(shown.replace("\t", "")), text
        shown.encode()
        (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', shown, re.DOTALL)
        assert not set("<>&") & set(data)
        assert json.loads(data)["verdicts"][0]["test"] == clean(text)


# The terminal


@QUICK
@given(TEXTS)
def test_the_summary_of_a_stored_run_gives_a_terminal_no_orders(text: str) -> None:
    reports = [report_of(clean(text))]
    lines = [*cell_table(reports, [], 80), *placement_lines(reports, 80), *verdict_lines([verdict_of(clean(text))], 80)]
    lines += layout.text(Table("c", (text,), ((text,),), left=1))
    assert is_clean("\n".join(lines).replace("\0", ""))


def test_a_store_of_somebody_else_is_read_in_clean_words(tmp_path: Path) -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J\u202e<b>\r\nfail\x08"
    # A device of such a name, which no registry can have, loses its launches with it.
    cell = replace(named(nasty), device="local")
    path = tmp_path / "results.sqlite"
    write_store(path, Lab(models=(), widths=()), [verdict_of(nasty)], {cell: nasty, named(nasty): nasty})
    with Store.open(path, read_only=True) as store:
        (run,) = store.runs()
        reports = cell_reports(store, run.id)
        said = [repr(store.verdicts(run.id)), repr(run), *(repr(report) for report in reports)]
    assert [text for text in said if not is_clean(text) or "\\x1b" in text.replace("\\\\", "")] == []
    failures = [report.failure.reason for report in reports if report.failure is not None]
    assert failures == [clean(nasty)]
    for suffix in (".csv", ".md", ".tex", ".json"):
        write_export(reports, tmp_path / f"e{suffix}")
        assert is_clean((tmp_path / f"e{suffix}").read_text(encoding="utf-8"))


@QUICK
@given(TEXTS)
def test_a_hub_and_its_agents_give_a_terminal_no_orders(text: str) -> None:
    facts = {"python": text, "pytest-ngraph": text, "distributed": text}
    agents = [AgentState(text, online, 1e9, text, (text,), text, 1e9, 0, 5, 4e9, facts) for online in (True, False)]
    state = HubState.from_json(HubState(1e9, 4e9, facts, tuple(agents)).to_json())
    for line in hub_lines(state, [], lambda facts: str(facts["python"]) or None):
        assert is_clean(line)
        assert "\n" not in line or line.startswith("  ! ")


@pytest.mark.parametrize(
    "change",
    [{"since": "now"}, {"since": 1e300}, {"since": float("nan")}, {"name": 5}, {"busy_since": []}, {"waiting": "x"},
     {"facts": []}, {"busy_with": 7}, {"pools": [1]}, {"free_disk_bytes": 0.5}, {"expires": "never"}, {"more": 1}],
)  # fmt: skip
def test_a_hub_that_answers_with_garbage_is_refused(change: dict[str, Any]) -> None:
    told = json.loads(HubState(1e9, 4e9, {}, (AgentState("orin", True, 1e9),)).to_json())
    told["agents"][0].update(change)
    with pytest.raises(DeviceUnusable, match="the hub answers as another release would"):
        HubState.from_json(json.dumps(told))


# Names of one's own


@pytest.mark.parametrize("letter", ["\x1b", "\x07", "\u202e", "\n", "\t", "\udc80", "\u2066", "\x9b"])
def test_a_model_whose_name_cannot_be_shown_is_refused(letter: str) -> None:
    for name in (f"timm:a{letter}b", f"onnx:a{letter}.onnx", f"a{letter}.py:make"):
        with pytest.raises(SpecError, match="is no letter that can be shown; rename the file or the folder") as caught:
            parse_model(name)
        assert is_clean(str(caught.value))


def test_a_test_that_fails_with_orders_to_a_terminal_leaves_junit_valid(suite: Suite) -> None:
    suite.add_compilers()
    adapters = suite.path / "adapters.py"
    adapters.write_text(
        adapters.read_text().replace("the graph has a cycle", "\\x1b[31mred\\x07\\x00\\ud800<b>\\u202e")
    )
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_fails(ngraph_cell): assert_speedup(ngraph_cell, at_least=1)
""")

    result = suite.run("--junitxml=j.xml", "--color=no", "--ngraph-report=r.html", compiler="broken")

    result.assert_outcomes(failed=1)
    (failure,) = ET.parse(suite.path / "j.xml").iter("failure")
    assert r"red\x07\x00\ud800<b>\u202e" in (failure.get("message") or "")
    assert is_clean(result.stdout.str())
    assert is_clean((suite.path / "r.html").read_text(encoding="utf-8").replace("\t", ""))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "raise RuntimeError('\\x1b[31mboom\\x07' + 'x\\n' * 3_000_000)",
            r"picky: its why_not() failed: RuntimeError: boom\x07x x",
        ),
        ("return True", "picky: its why_not() gave True (expected a reason, or None)"),
    ],
)  # fmt: skip
def test_an_adapter_that_does_not_say_why_not_fails_in_a_line(suite: Suite, body: str, said: str) -> None:
    suite.add_compilers()
    adapters = suite.path / "adapters.py"
    adapters.write_text(adapters.read_text().replace('return "it only runs on Sundays"', body))
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_fails(ngraph_cell): assert_speedup(ngraph_cell, at_least=1)
""")

    result = suite.run("--color=no", compiler="picky")

    result.assert_outcomes(failed=1)
    assert said in result.stdout.str()
    assert len(result.stdout.str()) < 10_000
    assert is_clean(result.stdout.str())


def test_an_adapter_whose_module_fails_is_a_usage_error(suite: Suite) -> None:
    suite.add_compilers()
    (suite.path / "adapters.py").write_text("raise RuntimeError('\\x1b[31mno' + 'x\\n' * 3_000_000)")
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_fails(ngraph_cell): assert_speedup(ngraph_cell, at_least=1)
""")

    result = suite.run("--color=no", compiler="mine")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = result.stdout.str() + result.stderr.str()
    assert "compiler 'mine': its adapter 'adapters:MINE' cannot be imported: RuntimeError: nox x" in said
    assert len(said) < 10_000
    assert is_clean(said)
