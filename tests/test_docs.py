"""The documentation: every block of code is run or says why not, every link leads somewhere, no name is missing."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import shlex
import subprocess
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pytest_ngraph
from pytest_ngraph import cli
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.table import ROWS
from pytest_ngraph.plan.marker import PLURAL, SINGULAR
from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.stats.verdict import Verdict
from tests.conftest import BRIEFLY, Suite, skip_without
from tests.support import pages
from tests.support.pages import README, ROOT, Block, anchors, blocks, links, names, prose, rows

REFERENCE = ROOT / "docs" / "reference"
BYO = ROOT / "example_suites" / "bring_your_own"
EXTEND, SAMPLES = ROOT / "docs" / "extend.md", ROOT / "docs" / "samples.md"
PROJECT = pages.project()

# Blocks that another test runs as they are written: page, language, test.
RUN_BY = (
    ("docs/accuracy.md", "python", "test_accuracy_claims.py::test_the_suite_of_the_page_runs"),
    ("docs/ci.md", "yaml", "test_ci.py::test_the_workflow_in_the_docs_is_complete_and_like_our_own"),
    ("docs/decoding.md", "python", "test_decoding_real.py::test_the_suite_and_the_model_of_the_page_run"),
    (
        "docs/devices.md",
        "toml",
        "test_devices_registry.py::test_the_page_of_the_docs_shows_a_registry_that_holds_and_every_key",
    ),
    ("docs/exports.md", "python", "test_exports.py::test_the_recipes_work_as_they_are_written"),
    ("docs/exports.md", "latex", "test_exports.py::test_latex_compiles_and_fits_a_page"),
    ("docs/extend.md", "python", "test_docs.py::test_the_compiler_of_ten_minutes_keeps_the_contract"),
    ("docs/kinds.md", "python", "test_kinds.py::test_the_kind_of_the_documentation_is_built_and_its_suite_runs"),
    ("docs/script.md", "python", "test_script_session.py::test_the_script_of_the_docs_runs"),
    ("docs/sides.md", "python", "test_sides_page.py::test_the_suite_of_the_page_is_held_against_a_side"),
    ("docs/sides.md", "yaml", "test_sides_page.py::test_the_workflow_of_the_page_checks_out_what_a_merge_base_needs"),
    ("docs/writing.md", "toml", "test_bounds.py::test_the_file_of_the_docs_bounds_its_suite"),
    ("docs/samples.md", "python", "test_docs.py::test_the_walk_to_the_samples_finds_what_the_gate_said"),
)
# First words of the commands that stand in blocks of commands.
PROGRAMS = ("pytest", "ngraph", "make", "python", "pip", "scp", "rm", "mkdir", "tar")
# Found in the text of a suite: it asks for runtimes by name.
NAMED = "compilers="


def is_commands(block: Block) -> bool:
    return not block.info and all(line.split()[0] in PROGRAMS for line in block.code.splitlines() if line.strip())


def is_session(block: Block) -> bool:
    """Tell whether a block shows a command after a dollar, and what it printed."""
    return not block.info and block.code.startswith("$ ")


def runner(block: Block) -> str | None:
    page = block.page.relative_to(ROOT).as_posix()
    return next((test for path, info, test in RUN_BY if (path, info) == (page, block.info)), None)


def python_blocks(*, suites: bool) -> list[Any]:
    """Return the blocks of Python that are run here: suites, or plain code."""
    return [
        pytest.param(block, id=block.place)
        for block in blocks()
        if block.info == "python" and runner(block) is None and not block.note and ("def test_" in block.code) == suites
    ]


# Words


def test_docstrings_and_pages_use_plain_words() -> None:
    """Instead of these: again, remote or outside, those who, reused, of this package, receive and make."""
    private = re.compile(
        r"\b([Aa]new|[Ee]lsewhere|[Ww]hoever|told (?:again|otherwise)|of ours|[Hh]ears?|[Hh]eard|Let)\b"
    )
    said = [(page, prose(page)) for page in pages.PAGES]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for module in sorted(Path(pytest_ngraph.__file__).parent.rglob("*.py")):
        nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        said += [(module, ast.get_docstring(node) or "") for node in nodes if isinstance(node, documented)]
    assert [f"{path}: {word[0]}" for path, text in said for word in private.finditer(text)] == []


def test_the_reference_is_written_in_whole_sentences() -> None:
    offered = [getattr(pytest_ngraph, name) for name in pytest_ngraph.__all__]
    members = [
        value for each in offered if inspect.isclass(each) for name, value in vars(each).items() if name[0] != "_"
    ]
    summaries = [(inspect.getdoc(each) or "").partition("\n")[0] for each in (*offered, *members)]
    assert len([summary for summary in summaries if summary.endswith(".")]) > 80
    assert [summary for summary in summaries if ";" in summary] == []


# README


def test_the_readme_is_a_page() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_the_readme_names_what_is_done_beside_measuring() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for name in ("compression", "accuracy", "explain", "reduce", "choosing"):
        assert [line for line in lines if f"](docs/{name}.md)" in line], name
        assert f"]({name}.md)" in index, name


def test_the_first_suite_has_a_bound_by_the_clock_and_the_readme_says_why() -> None:
    first = next(block for block in blocks(README) if block.info == "python")
    assert "assert_throughput(ngraph_cell, at_least=" in first.code
    for page in (README, ROOT / "docs" / "writing.md"):
        text = " ".join(prose(page).split())
        assert "A ratio of two compilers does not see that the model itself became slower" in text, page


def test_the_picture_of_the_readme_is_there_and_small() -> None:
    (picture,) = re.findall(r"^!\[[^\]]+\]\(([^)]+)\)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    data = (ROOT / picture).read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) < 200_000


# Blocks of code


def uncovered(block: Block) -> str:
    """Say what is wrong with a block that no test runs and that does not say why; nothing where all is well."""
    if block.note.startswith("not run: ") and len(block.note) > 20:
        return ""
    if block.info in ("", "python", "toml", "yaml", "latex"):
        covered = runner(block) is not None or block.info == "python" or is_commands(block) or is_session(block)
        return "" if covered else f"{block.place}: neither commands nor run by a test; output is ```text"
    # Output, and what only the site reads.
    return "" if block.info in ("text", "{toctree}", "{eval-rst}") else f"{block.place}: ```{block.info}"


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in blocks()])
def test_every_block_is_run_or_says_why_not(block: Block) -> None:
    assert uncovered(block) == ""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```\npytest --ngraph-report=x.html\n```\n", ""),
        ("```\n$ pytest\n1 passed\n```\n", ""),
        ("<!-- not run: it takes a board of the reader's -->\n```yaml\na: 1\n```\n", ""),
        ("```\n1 passed in 0.01 s\n```\n", "neither commands nor run by a test"),
        ("<!-- not run: no -->\n```yaml\na: 1\n```\n", "neither commands nor run by a test"),
        ("```json\n{}\n```\n", "```json"),
        ("```bash\nrm -rf /\n```\n", "```bash"),
    ],
)
def test_a_block_that_nobody_runs_is_noticed(text: str, complaint: str) -> None:
    page = ROOT / "docs" / "none.md"
    (block,) = pages.blocks_of(page, text)
    assert complaint in uncovered(block)
    assert bool(complaint) == bool(uncovered(block))


def unbound(code: str) -> list[str]:
    """Return the names that code uses as globals and neither imports nor assigns: pasted, it raises NameError."""

    def scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
        yield table
        for child in table.get_children():
            yield from scopes(child)

    module = symtable.symtable(code, "block", "exec")
    found = [
        symbol
        for scope in scopes(module)
        for symbol in scope.get_symbols()
        # At the top of a module its names are local as well as global.
        if scope is module or symbol.is_global()
    ]
    bound = {symbol.get_name() for symbol in found if symbol.is_assigned() or symbol.is_imported()}
    return sorted({symbol.get_name() for symbol in found if symbol.is_referenced()} - bound - {*dir(builtins)})


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in blocks() if block.info == "python"])
def test_a_block_of_python_imports_what_it_uses(block: Block) -> None:
    """Those that no test runs among them: what they take is time, and they are pasted like all others."""
    assert unbound(block.code) == []


@pytest.mark.parametrize(
    ("code", "names"),
    [
        # A suite as it once stood on a page.
        (
            "@pytest.mark.ngraph(compilers=['openvino'])\n"
            "def test_generality(ngraph):\n"
            "    dynamic, static = ngraph.measure(shapes=['dynamic', 'static'])\n"
            "    assert_speedup(dynamic, over=static)\n",
            ["assert_speedup", "pytest"],
        ),
        ("import pytest\nfrom pytest_ngraph import assert_speedup\npytest.skip(assert_speedup)\n", []),
        (
            "import torch\nclass Net(torch.nn.Module):\n    def f(self, x: Tensor):\n        return self.w + x\n",
            ["Tensor"],
        ),
        ("print([len(each) for each in LENGTHS])\n", ["LENGTHS"]),
        ("LENGTHS = {}\nprint([len(each) for each in LENGTHS], __name__)\n", []),
    ],
)
def test_a_name_that_nothing_binds_is_noticed(code: str, names: list[str]) -> None:
    assert unbound(code) == names


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_block_of_a_page_is_overlooked(page: Path) -> None:
    """Such as one in a list, which stands further right, or one within tildes."""
    fences = re.findall(r"^\s*(?:```|~~~)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(list(blocks(page)))


@pytest.mark.parametrize(("page", "info", "test"), RUN_BY)
def test_what_is_said_to_run_a_block_exists(page: str, info: str, test: str) -> None:
    assert [block for block in blocks(ROOT / page) if block.info == info]
    name, _, function = test.partition("::")
    (file,) = (ROOT / "tests").rglob(name)
    assert f"def {function}(" in file.read_text(encoding="utf-8")


def test_the_suites_of_the_docs_run(suite: Suite) -> None:
    """On null, which needs no runtime, all in one run; what names a runtime is collected, and run for real below."""
    found: list[Block] = [each.values[0] for each in python_blocks(suites=True)]
    (suite.path / "bert.onnx").write_bytes(b"")  # null reads no model
    for block in found:
        name = re.sub(r"\W", "_", block.place)
        suite.pytester.makepyfile(**{f"{'named' if NAMED in block.code else 'test'}_{name}": block.code})
    assert suite.collect(*(path.name for path in suite.path.glob("named_*.py"))).ret == pytest.ExitCode.OK

    done = suite.bare(
        "--ngraph-compiler=null[fixed_us=1000]", "--ngraph-baseline=null[fixed_us=2000]", "--ngraph-protocol=quick"
    )

    assert set(done.parseoutcomes()) == {"passed"}, done.stdout.str()
    ran = {line.split("::")[0].removeprefix("PASSED ") for line in done.outlines if line.startswith("PASSED ")}
    assert ran == {path.name for path in suite.path.glob("test_*.py")}
    assert len(ran) > 5


@pytest.mark.real
def test_the_suites_of_the_docs_that_name_runtimes_run(suite: Suite) -> None:
    skip_without("torch", "timm", "onnxruntime", "openvino", "onnx")
    found: list[Block] = [each.values[0] for each in python_blocks(suites=True) if NAMED in each.values[0].code]
    suite.pytester.makepyfile(**{f"test_{number}": block.code for number, block in enumerate(found)})

    done = suite.bare("--ngraph-protocol=quick", "--ngraph-batch=1", plugins=BRIEFLY)

    assert set(done.parseoutcomes()) == {"passed"}, done.stdout.str()
    ran = {line.split("::")[0] for line in done.outlines if line.startswith("PASSED ")}
    assert len(ran) == len(found) >= 2


@pytest.mark.parametrize("block", python_blocks(suites=False))
def test_code_of_the_docs_runs(block: Block, tmp_path: Path) -> None:
    skip_without(*(["torch"] if "torch" in block.code else []))
    done = subprocess.run([sys.executable, "-c", block.code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_model_of_the_docs_is_that_of_the_example() -> None:
    """It is shown without its docstrings, and run by the example suite."""
    block, *_ = blocks(ROOT / "docs" / "models.md")
    shown = [line for line in block.code.splitlines() if line.strip()]
    file = (BYO / "net.py").read_text(encoding="utf-8").splitlines()
    assert [line for line in file if line.strip() and '"""' not in line and "__future__" not in line] == shown


# The two walks


def test_the_adapter_of_the_docs_is_that_of_the_example() -> None:
    module, hook = (block.code for block in blocks(EXTEND) if block.info == "python")
    assert module == (BYO / "my_compiler.py").read_text(encoding="utf-8")
    name = re.search(r'name = "(\w+)"', module)
    assert name is not None
    assert f'catalogue.add("{name[1]}", "my_compiler:COMPILER")' in hook
    assert f"--ngraph-compiler={name[1]}" in EXTEND.read_text(encoding="utf-8")


@pytest.mark.real
def test_the_compiler_of_ten_minutes_keeps_the_contract(suite: Suite) -> None:
    """With the command that the page gives, on the network that it names."""
    skip_without("torch", "onnx", "onnxscript")
    module, hook = (block.code for block in blocks(EXTEND) if block.info == "python")
    suite.pytester.makepyfile(my_compiler=module, my_plugin=hook)
    (line,) = (line for line in EXTEND.read_text(encoding="utf-8").splitlines() if "--pyargs" in line)
    (select,) = re.findall(r"`(-k [\w-]+)` tries one network", prose(EXTEND))

    command = shlex.split(line)
    # As suites are run here, and not the script, which would not find the plugin.
    assert command[:3] == ["python", "-m", "pytest"]

    done = suite.bare(*command[3:], *shlex.split(select), "-p", "no:cacheprovider")

    outcomes = done.parseoutcomes()
    assert not {"failed", "errors"} & set(outcomes), done.stdout.str()
    assert outcomes["passed"] >= 5, done.stdout.str()


# Three launches must count.
@pytest.mark.measures
def test_the_walk_to_the_samples_finds_what_the_gate_said(suite: Suite) -> None:
    """The suite is red, and the samples that it leaves behind give the number of its message."""
    red, *steps = (block.code for block in blocks(SAMPLES) if block.info == "python")
    suite.pytester.makepyfile(test_doubt=red)
    (command,) = (line for line in SAMPLES.read_text(encoding="utf-8").splitlines() if line.startswith("pytest "))

    done = suite.bare(*shlex.split(command)[1:])

    done.assert_outcomes(failed=1)
    said = [line[1:].strip() for line in done.outlines if line.startswith("E  ")]
    (shown,) = (block.code for block in blocks(SAMPLES) if block.info == "text")
    # The ratios are this machine's.
    written = [line[1:].strip() for line in shown.splitlines()]
    assert [re.sub(r"^(AssertionError: speed-up 1\.2)\dx", r"\1x", line) for line in written[:2]] == [
        re.sub(r"^(AssertionError: speed-up 1\.2)\dx", r"\1x", line) for line in said[:2]
    ]
    assert said[2].startswith("fail: 1.2")
    assert said[2].endswith("3 launches; so far beyond the bound that it needs no confirmation") or "state" in said[2]
    printed = []
    for step in steps:
        ran = subprocess.run([sys.executable, "-c", step], cwd=suite.path, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        printed.append(ran.stdout)
    verdict, launches, by_hand = printed
    assert "'fail', 1.2" in verdict
    estimate = float(verdict.split("'fail', ")[1].split(",")[0])
    assert len(launches.splitlines()) >= 3
    assert abs(float(by_hand.split()[0]) / estimate - 1) < 0.005
    assert by_hand.split(maxsplit=1)[1] == "over 3 launches\n"


# Commands


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_is_to_be_installed_exists(page: Path) -> None:
    """No name of an index where the package is not, but for the extras of what is installed; no address of nobody's."""
    text = page.read_text(encoding="utf-8")
    known = {*PROJECT["optional-dependencies"]}
    for extras in re.findall(r"pytest[-_]ngraph[\w.-]*\[([\w,]+)\]", text):
        assert set(extras.split(",")) <= known, f"extras {extras}"
    for wheel in re.findall(r"pytest_ngraph-[\w.]+-py3-none-any\.whl", text):
        assert wheel == f"pytest_ngraph-{PROJECT['version']}-py3-none-any.whl"
    assert "github.com/pytest-ngraph" not in text


def test_the_project_names_no_address_that_does_not_exist() -> None:
    assert "urls" not in PROJECT


def test_the_version_has_its_section() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1].startswith(f"{PROJECT['version']} - ")


@pytest.mark.parametrize(
    "page",
    [*pages.PAGES, ROOT / "CHANGELOG.md", ROOT / "pyproject.toml"],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_every_address_is_one_that_exists(page: Path) -> None:
    """Those that are named, each looked at by hand; ``.lab`` and ``HOST`` are the reader's."""
    named = set(re.findall(r"\b(?:https?|tls)://([\w.-]+)", page.read_text(encoding="utf-8")))
    known = {"download.pytorch.org", "keepachangelog.com", "semver.org"}
    assert {host for host in named if not host.endswith(".lab") and host != "HOST"} <= known


# Links


@pytest.mark.parametrize(
    "page", [*pages.PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.is_file(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}: {sorted(anchors(target))}"


def test_every_page_of_the_docs_is_in_the_navigation_and_leads_on_from_the_readme() -> None:
    index = ROOT / "docs" / "index.md"
    listed = [(index.parent / f"{entry}.md").resolve() for entry in pages.navigation()]
    assert len(listed) == len(set(listed)), "a page twice"
    assert {page for page in pages.PAGES if page.is_relative_to(ROOT / "docs")} - set(listed) == {index}
    assert all(page.is_file() for page in listed)


# The reference has every name


def test_every_metric_has_its_formula_unit_range_and_source() -> None:
    """The metrics page against the table of metrics that the product goes by."""
    found = {names(row[0])[0]: row for row in rows(REFERENCE / "metrics.md") if len(row) == 6}
    assert set(found) == set(METRICS)
    units = {"": {"factor", "number"}}
    for name, (_, formula, unit, interval, good, source) in found.items():
        metric = METRICS[name]
        assert unit in units.get(metric.unit, {metric.unit}), name
        assert all(len(text) > 1 for text in (formula, interval, source)), name
        # A metric need not say what is good of it; where it does, the page says the same.
        assert good in {getattr(metric, "better", good)} & {"higher", "lower"}, name


def test_what_the_metrics_page_says_of_scales_is_so() -> None:
    (sentence,) = re.findall(
        r"`cpu_percent` and .*? are on a linear scale, as `slope` and `friction` are",
        " ".join(prose(REFERENCE / "metrics.md").split()),
    )
    assert set(names(sentence)) == {name for name, metric in METRICS.items() if metric.scale == "linear"}


def test_every_fixture_and_helper_is_in_the_reference() -> None:
    page = REFERENCE / "fixtures.md"
    named = {name.partition("(")[0] for row in rows(page) for name in names(row[0])}
    helpers = {name for name in pytest_ngraph.__all__ if name.startswith("assert_")}
    assert helpers == {name for name in named if name.startswith("assert_")}
    source = (ROOT / "pytest_ngraph" / "front" / "fixtures.py").read_text(encoding="utf-8")
    assert set(re.findall(r"^def (ngraph\w*)\(", source, re.MULTILINE)) == {
        name for name in named if name.startswith("ngraph")
    }


def test_every_axis_is_on_its_page() -> None:
    table = [row for row in rows(ROOT / "docs" / "models.md") if len(row) == 4]
    assert {name for row in table for name in names(row[0])} == set(SINGULAR)
    assert {name for row in table for name in names(row[1])} == set(PLURAL)


def test_every_option_and_command_is_in_the_reference() -> None:
    named = [name for row in rows(REFERENCE / "options.md") for name in names(row[0])]
    assert sorted(name for name in named if name.startswith("--")) == sorted(row.flag for row in ROWS)
    commands = {module.__name__.rpartition(".")[2] for module in cli.COMMANDS}
    assert {name.removeprefix("ngraph ") for name in named if name.startswith("ngraph ")} == commands


def test_every_default_in_the_reference_is_the_options() -> None:
    """Where the row of an option ends with its default."""
    meanings = {name: row[1] for row in rows(REFERENCE / "options.md") if len(row) == 2 for name in names(row[0])}
    for row in ROWS:
        if row.default not in (None, "no") and row.flag != "--ngraph-wait":
            assert re.search(rf"(^|; |\W){re.escape(str(row.default))}`?$", meanings[row.flag]), row.flag


def test_every_outcome_and_verdict_is_in_the_reference() -> None:
    named = [names(row[0]) for row in rows(REFERENCE / "outcomes.md") if len(row) == 3]
    assert [each[0] for each in named if each] == [*map(str, Verdict), *map(str, Outcome)]


def test_the_api_page_has_every_public_name() -> None:
    text = (REFERENCE / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\.\. auto(?:function|class|exception):: (\w+)$", text, re.MULTILINE)) == sorted(
        pytest_ngraph.__all__
    )
