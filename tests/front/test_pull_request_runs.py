"""When a run gives a pull request what: its file, the step's summary and annotations, and when it gives nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ngraph.front.pull_request.publish import _machine_of
from pytest_ngraph.store.rows import RunRow
from tests.conftest import Suite
from tests.report.test_pull_request import Page
from tests.support.forked import run_pytest
from tests.support.pretended import TWICE, UNDECIDABLE, Pretended

SUITE = (
    """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_holds(ngraph_cell): assert_speedup(ngraph_cell, at_least=1.2)

@pytest.mark.ngraph(model="block:conv", batch=2)
def test_misses(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=3)

@pytest.mark.ngraph(model="block:conv", batch=4)
def test_breaks(ngraph_cell):
    ngraph_cell.latency
    raise ValueError("</td> it | broke, 100% @octocat")
"""
    + UNDECIDABLE
)
PLAIN = "def test_plain(): pass\n"
WARN = ("--ngraph-inconclusive=warn", "-Wignore")
SAID = (
    "ngraph: 1 of 3 gates failed, 1 test failed without a verdict, 1 undecided, "
    "1 passed (1 by more than the tolerance)."
)


@pytest.fixture
def suite(suite: Suite) -> Pretended:
    return Pretended(suite.pytester)


@pytest.fixture
def step(suite: Pretended, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The summary of a step on GitHub, and its annotations switched on."""
    path = suite.path / "step.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    return path


def lines(result: pytest.RunResult, start: str = "::") -> list[str]:
    return [line for line in result.outlines + result.errlines if line.startswith(start)]


def test_the_machine_is_named_where_there_is_one_device() -> None:
    facts = {"cpu": "A processor", "gpu": {"name": "NVIDIA H200"}, "device": "cuda"}
    others = {"others": {"orin": {"cpu": "Another"}}}
    run = RunRow(1, "u", "2026-01-01", None, "finished", (), 0, "gate", {**facts, **others}, fresh=False, resumed=False)
    assert _machine_of(run, ["cuda"]) == "A processor, NVIDIA H200"
    assert _machine_of(run, ["orin"]) == "Another"
    assert _machine_of(run, ["local"]) == ""
    # The first one's machine is not that of all.
    assert _machine_of(run, ["cuda", "orin"]) == ""


@pytest.mark.parametrize("how", ["", "-n2", "-p no:terminal"])
def test_file_step_and_annotations_say_the_same_once_whoever_ran_the_tests(
    suite: Pretended, step: Path, how: str
) -> None:
    file = suite.write(SUITE)
    source = file.read_text().splitlines()

    loaded = ("-pngraph", "-ptests.support.undisturbed", *(["-pxdist"] if "-n" in how else []))
    result = run_pytest(suite.pytester, *loaded, *how.split(), *TWICE, *WARN, "--ngraph-summary=out/s.md")

    assert result.ret == 1
    text = (suite.path / "out" / "s.md").read_text()
    assert text.splitlines()[0] == SAID
    assert text.splitlines()[-1] == "<!-- ngraph: device=local suite=. -->"
    assert step.read_text() == text
    rows = Page(text).rows
    assert [row[0] for row in rows if row[0] != "test"] == [
        f"test_suite.py::test_{name}[local-null[fixed_us=1000]-block:conv-batch{batch}]"
        for name, batch in (("misses", 2), ("breaks", 4), ("claim", 1), ("holds", 1))
    ]
    assert rows[1][2].startswith("1.9")
    assert rows[3][-1] == "failed </td> it | broke, 100% @octocat"
    annotations = lines(result)
    assert [line.split()[0] for line in annotations] == ["::error", "::error", "::warning"]
    for line, name in zip(annotations, ("misses", "breaks", "claim"), strict=True):
        number = 1 + source.index(next(line for line in source if line.startswith(f"def test_{name}"))) - 1
        assert f"file=test_suite.py,line={number}," in line
    assert "100%25 @octocat" in annotations[1]
    assert ("written: out/s.md" in result.stdout.str()) is (how != "-p no:terminal")


def test_a_test_that_failed_beside_an_open_gate_is_there_with_why(suite: Pretended) -> None:
    """The gate only warned: what failed the test is none of its claims."""
    suite.write(UNDECIDABLE.rstrip() + "; raise ValueError('the labels are gone')\n")
    suite.bare(*TWICE, *WARN, "--ngraph-summary=pr.md").assert_outcomes(failed=1)
    said = (suite.path / "pr.md").read_text()
    assert "1 test failed without a verdict" in said
    assert "the labels are gone" in said
    # Where open gates fail their tests it is the gate, which ends the test before that.
    suite.bare(*TWICE, "--ngraph-inconclusive=fail", "--ngraph-summary=pr.md").assert_outcomes(failed=1)
    assert "failed without a verdict" not in (suite.path / "pr.md").read_text()
    # Nor where warnings are errors.
    suite.bare(*TWICE, "--ngraph-inconclusive=warn", "-Werror", "--ngraph-summary=pr.md").assert_outcomes(failed=1)
    assert "failed without a verdict" not in (suite.path / "pr.md").read_text()


def test_the_step_is_added_to_and_keeps_what_others_wrote(suite: Pretended, step: Path) -> None:
    step.write_text("before")
    suite.write(SUITE)

    suite.bare(*TWICE, *WARN)

    assert step.read_text().startswith(f"before\n\n{SAID}\n")


@pytest.mark.parametrize("kind", ["folder", "missing", "full"])
def test_a_step_that_cannot_be_written_is_a_warning(
    suite: Pretended, step: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    suite.write('@pytest.mark.ngraph(model="block:conv", batch=1)\ndef test_it(ngraph_cell): ngraph_cell.latency\n')
    if kind == "folder":
        step.mkdir()
    elif kind == "full":
        step.write_text("x" * 921_590)
    else:
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(suite.path / "not" / "there.md"))

    result = suite.bare(*TWICE)

    assert result.ret == 0
    (line,) = lines(result, "ngraph: warning: GITHUB_STEP_SUMMARY")
    what = {"folder": "Is a directory", "missing": "No such file", "full": "921590 bytes, which leaves no room"}[kind]
    assert what in line


def test_a_step_that_is_nearly_full_gets_what_there_is_room_for(suite: Pretended, step: Path) -> None:
    step.write_text("x" * (900 * 1024 - 400))
    suite.write(SUITE)

    suite.bare(*TWICE, *WARN)

    assert step.stat().st_size <= 900 * 1024
    assert SAID in step.read_text()


def test_a_file_that_cannot_be_written_is_said(suite: Pretended) -> None:
    (suite.path / "s.md").mkdir()
    suite.write('@pytest.mark.ngraph(model="block:conv", batch=1)\ndef test_it(ngraph_cell): ngraph_cell.latency\n')

    result = suite.bare(*TWICE, "--ngraph-summary=s.md")

    assert result.ret == 0
    assert lines(result, "ngraph: not written: ")


@pytest.mark.parametrize("arguments", [("-k", "plain"), ("--collect-only",)])
def test_a_run_that_measures_nothing_writes_nothing(suite: Pretended, step: Path, arguments: tuple[str, ...]) -> None:
    suite.write(SUITE + PLAIN)
    suite.bare(*TWICE, *WARN, "-k", "holds")
    step.unlink()

    result = suite.bare(*TWICE, "--ngraph-summary=s.md", *arguments)

    assert not step.exists()
    assert not (suite.path / "s.md").exists()
    assert lines(result) == []


def test_without_github_nothing_is_written_unasked(suite: Pretended) -> None:
    suite.write(SUITE)

    result = suite.bare(*TWICE, *WARN)

    assert lines(result) == []
    assert list(suite.path.glob("*.md")) == []


def test_the_ini_option_is_from_the_rootdir_on_and_has_to_be_markdown(suite: Pretended) -> None:
    suite.write(SUITE)
    suite.pytester.makeini("[pytest]\nngraph_summary = s.md\n")
    suite.bare(*TWICE, *WARN, "-k", "holds")
    assert (suite.path / "s.md").exists()

    result = suite.bare(*TWICE, "--ngraph-summary=s.txt")

    assert result.ret == 4
    assert "--ngraph-summary: 's.txt' is not allowed (expected a file name that ends in .md)" in result.stderr.str()


def test_what_is_skipped_is_counted_where_nothing_was_measured(suite: Pretended) -> None:
    suite.add_compilers()
    suite.write(
        '@pytest.mark.ngraph(model="block:conv", batch=[1, 2])\ndef test_it(ngraph_cell): ngraph_cell.latency\n'
    )

    suite.bare("--ngraph-compiler=absent", TWICE[1], "--ngraph-summary=s.md")

    text = (suite.path / "s.md").read_text()
    assert text.splitlines()[0] == "ngraph: no gate was judged, 2 tests skipped."
    assert "absent" in text


def test_what_is_not_stored_is_undecided(suite: Pretended, step: Path) -> None:
    suite.write(SUITE)
    suite.bare(*TWICE, *WARN, "-k", "holds")

    result = suite.bare(*TWICE, *WARN, "--ngraph-offline", "-k", "holds or misses", "--ngraph-summary=s.md")

    text = (suite.path / "s.md").read_text()
    assert text.splitlines()[0] == "ngraph: 1 undecided, 1 passed (1 by more than the tolerance)."
    assert "not in the store" in text or "not stored" in text
    (line,) = lines(result)
    assert line.startswith("::warning file=test_suite.py,line=")


def test_a_test_that_passes_at_its_second_try_did_not_fail(suite: Pretended) -> None:
    suite.write("""
tries = []
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_it(ngraph_cell):
    tries.append(1)
    ngraph_cell.latency
    assert len(tries) > 1
""")

    suite.bare(*TWICE, "--reruns=1", "--ngraph-summary=s.md", plugins="rerunfailures")

    assert (suite.path / "s.md").read_text().splitlines()[0] == "ngraph: no gate was judged."


def test_a_run_that_is_cut_short_says_so(suite: Pretended) -> None:
    suite.write(SUITE + "def test_stops(): raise KeyboardInterrupt\n")

    suite.bare(*TWICE, *WARN, "--ngraph-summary=s.md")

    text = (suite.path / "s.md").read_text()
    assert text.splitlines()[0] == SAID
    assert "The run was cut short: tests that were still to come are not here." in text


def test_files_are_named_from_the_checkout_and_the_suite_by_what_was_given(
    suite: Pretended, step: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(suite.path))
    (suite.path / "project" / "gates").mkdir(parents=True)
    suite.write(SUITE, "project/gates/test_suite.py")
    # Below a rootdir pytest takes none from above it, and launches would be made in earnest.
    (suite.path / "conftest.py").rename(suite.path / "project" / "conftest.py")
    (suite.path / "project" / "pytest.ini").write_text("[pytest]\n")

    result = suite.bare(*TWICE, *WARN, "project/gates")

    assert all("file=project/gates/test_suite.py,line=" in line for line in lines(result))
    assert "<!-- ngraph: device=local suite=gates -->" in step.read_text()


def test_a_test_that_is_expected_to_fail_is_no_error(suite: Pretended, step: Path) -> None:
    suite.write(SUITE.replace("@pytest.mark.ngraph(model=\"block:conv\", batch=2)",
                              "@pytest.mark.xfail\n@pytest.mark.ngraph(model=\"block:conv\", batch=2)"))  # fmt: skip

    result = suite.bare(*TWICE, *WARN, "-k", "misses or holds")

    assert lines(result) == []
    assert not re.search("gates? failed", step.read_text())


def test_where_another_plugin_annotates_failed_tests_there_are_no_second_annotations(
    suite: Pretended, step: Path
) -> None:
    # Under the name by which pytest-github-actions-annotate-failures registers itself.
    conftest = suite.path / "conftest.py"
    conftest.write_text(
        conftest.read_text()
        + "def pytest_configure(config): config.pluginmanager.register(object(), 'annotate_errors')\n"
    )
    suite.write(SUITE)

    result = suite.bare(*TWICE, *WARN)

    assert lines(result) == []
    assert step.read_text().startswith(SAID)


def test_what_is_slower_than_a_saved_baseline_and_may_only_warn_is_not_folded(
    suite: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.write('@pytest.mark.ngraph(model="block:conv", batch=1)\ndef test_it(ngraph_cell): ngraph_cell.latency\n')
    suite.bare(*TWICE)
    # In a process of its own: what it loads here, pytester would drop (see CONTRIBUTING).
    words = [sys.executable, "-m", "pytest_ngraph.cli", "baseline", "save", "main"]
    subprocess.run(words, cwd=suite.path, check=True)
    monkeypatch.setenv("PRETEND_FACTOR", "1.5")

    suite.bare(
        *TWICE, "--ngraph-fresh", "--ngraph-seed=1", "--ngraph-compare=main", "--ngraph-summary=s.md", "-Wignore"
    )

    text = (suite.path / "s.md").read_text()
    first = next(row for row in Page(text).rows if row[0] != "test")
    assert "### Beyond the bound, but not judged" in text
    assert first[1].startswith("compare: ")
    assert first[2].startswith("0.6")
