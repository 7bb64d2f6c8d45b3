"""Exports for papers and notebooks: golden files, LaTeX that holds together, and the recipes of the docs as written."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pytest_ngraph.errors import SpecError
from pytest_ngraph.front.summary.table import cell_table
from pytest_ngraph.options import settings as options_read
from pytest_ngraph.options.settings import EXPORT_FORMATS
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.export.layout import Table, escaped, latex, markdown, rounded, text
from pytest_ngraph.report.export.tables import TABLES, TIDY_TYPES, overview, write_export, write_table
from pytest_ngraph.report.results.cells import CellReport, tidy_rows
from pytest_ngraph.report.results.natural import natural
from tests.conftest import ROOT, Suite, skip_without
from tests.support.exported import FILES, GOLDEN, blocks, networks, report, write
from tests.support.pretended import Pretended

RECIPES = ROOT / "docs" / "exports.md"
_COMMAND = re.compile(r"\\(?:[A-Za-z]+\*?|.)")
_SPAN = re.compile(r"\\multicolumn\{(\d+)\}")


def broken(source: str) -> list[str]:
    """Return what is wrong with the structure of a LaTeX table: what a compiler would stumble over."""
    wrong = []
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{([a-z*]+)\}", source):
        if kind == "begin":
            opened.append(name)
        elif not opened or opened.pop() != name:
            wrong.append(f"\\end{{{name}}} without its beginning")
    wrong += [f"\\begin{{{name}}} without an end" for name in opened]
    spec = re.search(r"\\begin\{(?:tabular|longtable)\}\{([lr]+)\}", source)
    columns = len(spec[1]) if spec else 0
    for line in source.splitlines():
        if line.startswith("%"):
            continue
        bare = _COMMAND.sub("", line)
        if bare.count("{") != bare.count("}") or bare.count("$") % 2:
            wrong.append(f"unbalanced: {line}")
        if re.search(r"[%#^~]", bare) or re.search(r"_", re.sub(r"\\label\{.*?\}", "", bare)):
            wrong.append(f"a bare special character: {line}")
        if line.endswith(r"\\") and not line.startswith((r"\caption", r"\multicolumn{")):
            cells = len(re.findall(r"(?<!\\)&", line)) + 1 + sum(int(span) - 1 for span in _SPAN.findall(line))
            if cells != columns:
                wrong.append(f"{cells} cells in {columns} columns: {line}")
    return wrong


@pytest.mark.parametrize("name", FILES)
def test_exports_are_as_they_were_looked_at(name: str, tmp_path: Path) -> None:
    write(name, tmp_path)
    assert (tmp_path / name).read_text(encoding="utf-8") == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".tex")])
def test_latex_holds_together(name: str) -> None:
    source = (GOLDEN / name).read_text(encoding="utf-8")
    assert broken(source) == []
    assert source.count(r"\toprule") == (2 if "longtable" in source else 1)
    assert source.count(r"\bottomrule") == 1


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".tex")])
def test_latex_compiles_and_fits_a_page(name: str, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    table = (GOLDEN / name).read_text(encoding="utf-8")
    # The width of a page of two columns, where most papers of the field appear.
    packages = r"\usepackage[textwidth=516pt]{geometry}\usepackage{booktabs,longtable,textcomp}\usepackage[T1]{fontenc}"
    (tmp_path / "t.tex").write_text(
        f"\\documentclass{{article}}{packages}\\begin{{document}}\n{table}\\end{{document}}\n"
    )
    for _ in range(3):  # a table over several pages finds the widths of its columns by and by
        done = subprocess.run(["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    assert "Overfull" not in done.stdout


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (r"\begin{tabular}{lr}" + "\n" + r"a & b \\" + "\n", "without an end"),
        (r"\begin{tabular}{lr}" + "\n" + r"a \\" + "\n" + r"\end{tabular}", "1 cells in 2 columns"),
        (r"\begin{tabular}{lr}" + "\n" + r"a_b & c \\" + "\n" + r"\end{tabular}", "special character"),
        (r"\begin{tabular}{lr}" + "\n" + r"5 % & c \\" + "\n" + r"\end{tabular}", "special character"),
        (r"\begin{tabular}{lr}" + "\n" + r"{a & c \\" + "\n" + r"\end{tabular}", "unbalanced"),
    ],
)
def test_latex_that_does_not_is_noticed(source: str, complaint: str) -> None:
    assert any(complaint in line for line in broken(source))


@hypothesis_settings(deadline=None)
@given(st.text(st.characters(codec="latin-1", exclude_categories=["Cc"])))
def test_any_name_can_stand_in_a_table(name: str) -> None:
    table = Table(name, ("name", "value"), ((name, "-1.5"), ("[x", "1 ± 2")))
    assert broken(latex(table, "tab:any")) == []


def test_what_latex_reads_otherwise_is_escaped() -> None:
    assert escaped("a_b & 5 % #1 {x} ~^\\") == (
        r"a\_b \& 5 \% \#1 \{x\} \textasciitilde{}\textasciicircum{}\textbackslash{}"
    )
    # A minus is longer than the hyphen of a range, and a bracket at the beginning of a row is no argument.
    assert escaped("2-4: -0.5 [-1, 2] ± 1") == r"2-4: $-$0.5 [$-$1, 2] $\pm$ 1"
    assert "\n{}[x & y \\\\\n" in latex(Table("c", ("a", "b"), (("[x", "y"),)), "l")


def test_a_table_reads_alike_in_markdown_and_in_a_terminal() -> None:
    table = Table(
        "Times", ("model", "compiler", "b1", "b8"),
        (("net", "a|b", "1", "20"), ("net", "c", "3", ""), ("other", "c", "5", "6")),
        (("", 2), ("seconds", 2)), left=2, grouped=True,
    )  # fmt: skip
    assert markdown(table) == (
        "| model | compiler | seconds: b1 | seconds: b8 |\n"
        "| --- | --- | ---: | ---: |\n"
        "| net | a\\|b | 1 | 20 |\n"
        "| net | c | 3 |  |\n"
        "| other | c | 5 | 6 |\n"
    )
    assert text(table) == [
        "Times",
        "    compiler  seconds: b1  seconds: b8",
        "  net",
        "    a|b                 1           20",
        "    c                   3",
        "  other",
        "    c                   5            6",
    ]


def test_the_overview_says_once_what_is_the_same_for_all() -> None:
    table = overview(networks())
    assert "(device local, baseline identity)" in table.caption
    assert table.columns[:3] == ("Model", "Batch", "Compiler")
    rows = {(row[0], row[1], row[2]): row[3:] for row in table.rows}
    assert rows["timm:resnet18", "8", "openvino"][:2] == ("226 [222, 231]", "2.00 [1.94, 2.06]")
    # One launch has a value and no interval, a cell without a time its outcome.
    assert rows["timm:resnet18", "1", "onnxruntime[graph=basic,threads=2]"][:2] == ("55.00", "1.375")
    assert rows["timm:convnext_tiny", "1", "tvm"] == ("mismatch", "", "", "")


@pytest.mark.parametrize(
    ("value", "low", "high", "written"),
    [
        (0.003125, 0.001562, 0.004687, "0.0031 [0.0016, 0.0047]"),
        (1.0772, 1.0451, 1.1089, "1.08 [1.05, 1.11]"),
        (3612.3, 3610.8, 3613.2, "3,612 [3,611, 3,613]"),
        # Seconds of two launches: their interval is wide, and what they are must not be rounded away.
        (0.006, 0.0001, 0.432, "0.0060 [0.00010, 0.43]"),
        (0.31, 0.0045, 21.3, "0.31 [0.0045, 21]"),
        (9.6, 0.0, 1234.0, "9.6 [0, 1,234]"),
        (12.0, 1.0, 250.0, "12 [1, 250]"),
        # What may be negative is as good as zero where its interval says so.
        (0.0003, -0.5, 0.5, "0.00 [-0.50, 0.50]"),
        (226.3, 226.29, 226.31, "226 [226, 226]"),
        (0.0, -0.5, 0.5, "0.00 [-0.50, 0.50]"),
        (1.375, 1.375, 1.375, "1.375 [1.375, 1.375]"),
        (1.375, -math.inf, math.inf, "1.375"),
    ],
)
def test_a_number_has_the_digits_that_its_interval_leaves(value: float, low: float, high: float, written: str) -> None:
    assert rounded(Estimate("speedup", value, low, high, launches=4)) == written


def test_a_caption_says_what_stands_beside_a_value(tmp_path: Path) -> None:
    for protocol, words in (("gate", "99 % intervals"), ("quick", "one standard error"), ("paper", "one standard dev")):
        assert words in overview(networks(), protocol).caption
        write_table("iii", networks(), tmp_path / "t.tex", protocol)
        assert words.replace("%", r"\%") in (tmp_path / "t.tex").read_text()


def test_several_devices_have_a_column() -> None:
    table = overview([report("identity", "timm:resnet18", 1, {}, device=name) for name in ("orin", "xeon")])
    assert table.columns[0] == "Device"
    assert [row[0] for row in table.rows] == ["orin", "xeon"]


def test_a_depth_that_only_some_have_is_a_column() -> None:
    stack = [one for one in blocks() if one.cell.workload.depth == 1]
    mixed = overview([report("identity", "timm:resnet18", 1, {}), *stack])
    assert "depth" not in mixed.caption
    assert {row[mixed.columns.index("Depth")] for row in mixed.rows} == {"", "1"}
    assert "depth 1" in overview(stack).caption


def test_the_search_is_part_of_a_compile_time() -> None:
    table = TABLES["iii"](networks(), "")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    (first,) = (row for row in rows if row["Model"] == "timm:resnet18" and row["Batch Size"] == "1")
    assert first["tvm[tuned=64]"] == "3,612 [3,611, 3,613]"
    assert first["openvino"] == "2.50 [2.25, 2.75]"


def test_a_rebuilt_cell_gives_the_compile_time_where_there_is_one() -> None:
    loaded = report("openvino", "timm:resnet18", 1, {"compile_seconds": (9.0, 0.0, 1)})
    rebuilt = report("openvino", "timm:resnet18", 1, {"compile_seconds": (2.0, 0.1, 4)}, rebuild=True)
    for order in ([loaded, rebuilt], [rebuilt, loaded]):
        assert TABLES["iii"](order, "").rows == (("timm:resnet18", "1", "2.00 [1.80, 2.20]"),)


def test_a_run_without_what_a_table_shows_says_what_it_takes(tmp_path: Path) -> None:
    for name, what in (("iii", "rebuild=True"), ("vi", "batch 2, 4, 8 or 16"), ("vii", "block:conv"), ("viii", "mha")):
        with pytest.raises(SpecError, match=f"nothing for Table {name.upper()}: .*{what}"):
            write_table(name, [], tmp_path / "t.tex")
    untimed = [report("openvino", "timm:resnet18", 2, {})]
    with pytest.raises(SpecError, match="nothing for Table VI: none of its cells has a time"):
        write_table("vi", untimed, tmp_path / "t.tex")
    with pytest.raises(SpecError, match=r"table 'v' of the paper: .*known: iii, vi, vii, viii"):
        write_table("v", networks(), tmp_path / "t.tex")
    with pytest.raises(SpecError, match=r"written as \.tex or \.md, not '\.csv'"):
        write_table("vi", networks(), tmp_path / "t.csv")
    assert list(tmp_path.iterdir()) == []


def stack(model: str, width: int | None, depths: tuple[int, ...] = (1, 4), **more: Any) -> list[CellReport]:
    """Return a stack of a model with its baselines; slope and retention stand with the deepest."""
    whole: dict[str, tuple[float, float, int]] = {"slope": (0.25, 0.1, 3), "retention": (1.5, 0.1, 3)}
    return [
        report(compiler, model, 8, whole if compiler != "identity" and depth == depths[-1] else {}, depth=depth,
               width=width, **more)
        for depth in depths for compiler in ("identity", "openvino")
    ]  # fmt: skip


def test_models_of_ones_own_with_a_depth_stand_in_the_tables_of_depth() -> None:
    own = [*stack("pkg.nets:Deep", 128), *stack("pkg.nets:Deep", 64), *stack("pkg.nets:Deep", None)]
    for name, block in (("vii", "block:conv"), ("viii", "block:mha")):
        alone, beside = TABLES[name](own, "gate"), TABLES[name]([*own, *blocks()], "gate")

        assert "of 1 model of one's own: slope" in alone.caption
        assert alone.columns[:4] == ("Device", "Model", "Compiler", "Width")
        assert [row[1:4] for row in alone.rows] == [("pkg.nets:Deep", "openvino", width) for width in ("", "64", "128")]
        assert {row[4:] for row in alone.rows} == {("0.250 [0.225, 0.275]", "1.50 [1.35, 1.65]")}
        assert {row[1] for row in beside.rows} == {block, "pkg.nets:Deep"}
        assert "blocks and 1 model of one's own" in beside.caption
        assert broken(latex(beside, "tab:any")) == []
        # A run of blocks alone reads as in the paper.
        assert TABLES[name](blocks(), "gate").columns[:3] == ("Device", "Compiler", "Width")


def test_a_rebuilt_stack_does_not_take_the_place_of_another() -> None:
    rows = TABLES["vii"]([*stack("block:conv", 64), *stack("block:conv", 64, rebuild=True)], "gate").rows

    assert [row[1] for row in rows] == ["openvino", "openvino (rebuilt)"]


def test_names_with_numbers_come_in_the_order_of_the_numbers() -> None:
    names = ["w64", "w128", "w8", "w", "resnet101", "resnet18", "w08", "9", "10", "é2"]

    assert sorted(names, key=natural) == ["9", "10", "resnet18", "resnet101", "w", "w08", "w8", "w64", "w128", "é2"]


def test_every_table_comes_in_that_order() -> None:
    times = {"compile_seconds": (2.0, 0.1, 4), "throughput": (9.0, 0.1, 4)}
    wide = [
        report(f"openvino[streams={streams}]", model, batch, times, width=width, device=f"board{board}")
        for board in (10, 2)
        for streams in (16, 4)
        for model in ("timm:resnet101", "timm:resnet18")
        for width in (128, 64)
        for batch in (16, 2)
    ]
    compiled, whole, families = TABLES["iii"](wide, "gate"), overview(wide), TABLES["vi"](wide, "gate")

    assert list(dict.fromkeys(row[0] for row in compiled.rows)) == [
        f"timm:resnet{net} width{width}" for net in (18, 101) for width in (64, 128)
    ]
    assert [row[1] for row in compiled.rows] == ["2", "16"] * 4
    assert compiled.columns[2:] == ("openvino[streams=4]", "openvino[streams=16]") * 2
    assert compiled.groups[1:] == (("board2", 2), ("board10", 2))
    assert list(dict.fromkeys(row[0] for row in whole.rows)) == ["board2", "board10"]
    assert [row[1] for row in whole.rows[:4]] == ["timm:resnet18 width64"] * 4
    assert [row[1].partition(" ")[0] for row in families.rows[:4]] == [
        f"openvino[streams={streams}]" for streams in (4, 4, 16, 16)
    ]
    lines = [line.split()[-2] for line in cell_table(wide[:8], [], 120) if "openvino" in line]
    assert len(lines) == 8
    titles = [line for line in cell_table(wide[:8], [], 120) if line.startswith("timm:")]
    assert titles == [f"timm:resnet{net} width{width}" for net in (18, 101) for width in (64, 128)]


def test_a_table_that_does_not_fit_a_page_breaks_over_pages(tmp_path: Path) -> None:
    for rows, kind in ((40, "table"), (41, "longtable")):
        many = [report("openvino", f"timm:net{net}", 1, {"compile_seconds": (2.0, 0.1, 4)}) for net in range(rows)]
        write_table("iii", many, tmp_path / "t.tex")

        source = (tmp_path / "t.tex").read_text()
        assert rf"\begin{{{kind}}}" in source
        assert source.count(r"\toprule") == (2 if kind == "longtable" else 1)
        assert broken(source) == []


def test_the_types_are_those_of_the_tidy_rows() -> None:
    rows = list(tidy_rows([*networks(), *blocks()]))
    assert all(list(row) == list(TIDY_TYPES) for row in rows)
    for column, kind in TIDY_TYPES.items():
        assert {type(row[column]) for row in rows} <= {kind, type(None)}, column


def test_a_parquet_file_has_the_same_columns_whatever_the_run(tmp_path: Path) -> None:
    skip_without("pyarrow")
    import pyarrow.parquet as parquet

    for name, reports in (("networks", networks()), ("blocks", blocks()), ("none", [])):
        write_export(reports, tmp_path / f"{name}.parquet")
    schemas = [parquet.read_schema(tmp_path / f"{name}.parquet") for name in ("networks", "blocks", "none")]
    assert schemas[0] == schemas[1] == schemas[2]
    assert schemas[0].names == list(TIDY_TYPES)
    assert parquet.read_table(tmp_path / "blocks.parquet").to_pylist() == list(tidy_rows(blocks()))


def test_a_missing_pyarrow_is_said_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options_read, "find_spec", lambda name: None)
    given = {"export": ["results.parquet"]}
    with pytest.raises(SpecError, match=re.escape("--ngraph-export: 'results.parquet' needs pyarrow")):
        options_read.resolve(given, {}, rootdir=Path("/"), invocation_dir=Path("/"), environ={})


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``ngraph export`` in a process of its own: what it loads here, pytester would drop (see CONTRIBUTING)."""
    words = [sys.executable, "-m", "pytest_ngraph.cli", "export", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True)


@pytest.mark.parametrize("suffix", EXPORT_FORMATS)
def test_a_run_exports_itself(suite: Suite, suffix: str) -> None:
    if suffix == ".parquet":
        skip_without("pyarrow")
    suite = Pretended(suite.pytester)
    suite.write(
        "@pytest.mark.ngraph(model='block:conv', batch=[1, 2])\ndef test_it(ngraph_cell): ngraph_cell.ensure()\n"
    )
    result = suite.run(f"--ngraph-export=out/results{suffix}")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"written: *out/results{suffix}"])
    exported = suite.path / "out" / f"results{suffix}"
    again = suite.path / f"again{suffix}"
    done = command(again, "--store", suite.path / ".ngraph" / "results.sqlite")
    assert done.returncode == 0, done.stderr
    assert exported.read_bytes() == again.read_bytes()
    if suffix == ".tex":
        assert broken(exported.read_text()) == []
        assert r"null{\scriptsize [sample\_us=20]}" in exported.read_text()


def test_the_command_writes_tables_of_the_paper(suite: Suite) -> None:
    suite = Pretended(suite.pytester)
    suite.write(
        "@pytest.mark.ngraph(model='block:conv', width=8, batch=8, depths=[1, 2])\n"
        "def test_depth(ngraph_depths): ngraph_depths.ensure()\n"
    )
    suite.run(compiler="null[sample_us=20,layer_us=100]").assert_outcomes(passed=1)
    store = ["--store", suite.path / ".ngraph" / "results.sqlite"]
    # Two compilers at two depths, which are not averaged over.
    for table, rows in (("VII", 1), ("vi", 4)):
        target = suite.path / f"{table}.tex"
        done = command(target, "--table", table, *store)
        assert done.returncode == 0, done.stderr
        assert f"{target}: {rows} rows of run 1" in done.stdout
        assert broken(target.read_text()) == []
    refused = command(suite.path / "t.tex", "--table", "viii", *store)
    assert refused.returncode == 2
    assert "nothing for Table VIII: no stacks of block:mha" in refused.stderr


def recipes() -> list[tuple[str, str]]:
    """Return the Python of the docs and the output that stands below each."""
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", RECIPES.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 3
    return blocks


def pivoted(reports: list[CellReport], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the recipe that makes a table of speed-ups over these results."""
    (code,) = (code for code, _ in recipes() if "pivot" in code)
    write_export(reports, folder / "results.parquet")
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)


def test_the_table_of_speedups_has_what_was_measured_and_no_means_of_it(tmp_path: Path) -> None:
    skip_without("pyarrow", "pandas")
    reports = [*blocks(), *(one for one in networks() if one.failure is None)]
    measured = [f"{one.estimates['speedup'].value:.2f}" for one in reports if "speedup" in one.estimates]

    done = pivoted(reports, tmp_path)

    assert done.returncode == 0, done.stderr
    shown = re.findall(r"\d+\.\d+", done.stdout)
    # Each stands once; depth and width are shown as numbers with a point where some cells have none.
    assert Counter(measured) - Counter(shown) == Counter()
    assert "depth" in done.stdout.splitlines()[1]


def test_two_cells_in_one_place_end_that_recipe_instead_of_being_averaged(tmp_path: Path) -> None:
    skip_without("pyarrow", "pandas")
    twice = [report("openvino", "timm:resnet18", 1, {"speedup": (gain, 0.1, 3)}) for gain in (1.0, 3.0)]

    done = pivoted(twice, tmp_path)

    assert done.returncode == 1
    assert "duplicate entries" in done.stderr
    assert "2.0" not in done.stdout


@pytest.mark.parametrize(("code", "output"), recipes(), ids=[code.split()[1] for code, _ in recipes()])
def test_the_recipes_work_as_they_are_written(code: str, output: str, tmp_path: Path) -> None:
    skip_without("pyarrow", *re.findall(r"^import (\w+)", code, re.MULTILINE))
    write_export([one for one in networks() if one.failure is None], tmp_path / "results.parquet")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == output.split()
