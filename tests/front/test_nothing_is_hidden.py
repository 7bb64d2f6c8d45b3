"""What was asked for is printed and written, or the terminal says that it was not."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.conftest import Suite
from tests.support.forked import run_pytest
from tests.support.pretended import TWICE, UNDECIDABLE, Pretended, claim

# A conftest whose process is killed in its second launch.
KILLED = """
measured = local.run_launch
def killed_in_the_second(*arguments, **keywords):
    import signal
    if LOG.exists():
        os.kill(os.getpid(), signal.SIGKILL)
    measured(*arguments, **keywords)
local.run_launch = killed_in_the_second
"""
FILES = ("--ngraph-report=out.html", "--ngraph-export=out.csv", "--ngraph-benchmark-json=out.json")


@pytest.fixture
def pretended(suite: Suite) -> Pretended:
    """An empty suite whose launches are pretended."""
    return Pretended(suite.pytester)


@pytest.mark.parametrize("before", [0, 1])
def test_what_a_killed_run_left_is_judged_offline_and_shown_and_written(pretended: Pretended, before: int) -> None:
    pretended.write(claim(1.5))
    if before:
        pretended.bare(*TWICE, "--ngraph-seed=1").assert_outcomes(passed=1)
        (pretended.path / "measured.log").unlink()
    conftest = pretended.path / "conftest.py"
    measures = conftest.read_text()
    conftest.write_text(measures + KILLED)
    command = (sys.executable, "-m", "pytest", "-p", "ngraph", "-p", "tests.support.undisturbed", *TWICE)
    assert pretended.pytester.run(*command).ret == -signal.SIGKILL
    conftest.write_text(measures)

    result = pretended.bare(*TWICE, *FILES, "--ngraph-offline", "--ngraph-inconclusive=warn", "-Wignore")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["device local", "verdicts: 1 *", *(f"written: out.{kind}" for kind in ("html", "csv"))]
    )
    assert all((pretended.path / f"out.{kind}").stat().st_size > 100 for kind in ("html", "csv", "json"))


def test_files_there_is_nothing_for_are_named(pretended: Pretended) -> None:
    pretended.add_compilers()
    pretended.write(claim(1.5))

    result = pretended.bare("--ngraph-compiler=absent", *FILES)

    result.assert_outcomes(skipped=1)
    nothing = "no cell was measured or judged in this run"
    result.stdout.fnmatch_lines([f"ngraph: not written: out.{kind}: {nothing}" for kind in ("html", "csv", "json")])


# A conftest whose store cannot be opened any more when the run ends.
LOST = """
def pytest_sessionfinish():
    from pytest_ngraph.errors import StoreError
    from pytest_ngraph.store.sqlite import Store

    def refuse(*_, **__):
        raise StoreError("store: it is damaged")

    Store.open = refuse
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_files_of_a_store_that_cannot_be_read_are_named(pretended: Pretended, terminal: bool) -> None:
    conftest = pretended.path / "conftest.py"
    conftest.write_text(conftest.read_text() + LOST)
    pretended.write(claim(1.5))

    if terminal:
        result = pretended.bare(*TWICE, *FILES)
        why = "the store cannot be read"
        result.stdout.fnmatch_lines(["ngraph: no summary: store: it is damaged"])
        said = [line for line in result.outlines if "written" in line]
    else:
        _, said = alone(pretended, *TWICE, *FILES)
        why = "store: it is damaged"
    assert said == [f"ngraph: not written: out.{kind}: {why}" for kind in ("html", "csv", "json")]


def alone(pretended: Pretended, *options: str) -> tuple[int | pytest.ExitCode, list[str]]:
    """Run a suite without a terminal reporter. Return its exit status, and what standard error has of files."""
    loaded = ("-pngraph", "-ptests.support.undisturbed", "-pno:terminal")
    result = run_pytest(pretended.pytester, *loaded, *options)
    return result.ret, [line for line in result.errlines if "written" in line]


def test_without_a_terminal_files_are_written_and_named(pretended: Pretended) -> None:
    pretended.write(claim(1.5))

    status, said = alone(pretended, *TWICE, *FILES)

    assert status == pytest.ExitCode.OK
    assert said == [f"written: out.{kind}" for kind in ("html", "csv", "json")]
    assert all((pretended.path / f"out.{kind}").stat().st_size > 100 for kind in ("html", "csv", "json"))
    # Who only collects has nothing to write.
    assert alone(pretended, *TWICE, "--ngraph-export=none.csv", "--collect-only")[1] == []
    assert not (pretended.path / "none.csv").exists()


def test_without_a_terminal_files_there_is_nothing_for_are_named(pretended: Pretended) -> None:
    pretended.add_compilers()
    pretended.write(claim(1.5))

    _, said = alone(pretended, "--ngraph-compiler=absent", *FILES)

    nothing = "no cell was measured or judged in this run"
    assert said == [f"ngraph: not written: out.{kind}: {nothing}" for kind in ("html", "csv", "json")]


def test_a_file_that_cannot_be_written_keeps_no_other_from_being_written(pretended: Pretended) -> None:
    pretended.write(claim(1.5))
    (pretended.path / "here").write_text("")

    result = pretended.bare(*TWICE, "--ngraph-report=here/out.html", *FILES[1:])

    result.stdout.fnmatch_lines(["ngraph: not written: *here/out.html*", "written: out.csv", "written: out.json"])


def test_a_run_that_only_collects_says_nothing_of_what_was_measured(pretended: Pretended) -> None:
    pretended.write(claim(1.5))
    pretended.bare(*TWICE).assert_outcomes(passed=1)

    result = pretended.bare(*TWICE, *FILES, "--ngraph-offline", "--collect-only")

    assert "verdicts" not in result.stdout.str()
    assert "written" not in result.stdout.str()


def test_with_q_there_is_no_header_and_ids_are_all_that_is_collected(pretended: Pretended) -> None:
    pretended.write(claim(1.5))

    usual, quiet = pretended.bare(*TWICE), pretended.bare(*TWICE, "-q")
    ids = pretended.bare(*TWICE, "-q", "--collect-only")

    assert "ngraph: protocol gate" in usual.stdout.str()
    assert not any(line.startswith("ngraph: ") for line in quiet.outlines)
    assert "verdicts: 1 pass" in quiet.stdout.str()
    listed = ids.outlines[: ids.outlines.index("")]
    assert listed == ["test_suite.py::test_claim[local-null[fixed_us=1000]-block:conv-batch1]"]
    assert [line for line in ids.outlines if line][1:] == [
        "1 test collected" + ids.outlines[-1].partition("collected")[2]
    ]


TERSE = ("-qq", "-rN", "--tb=no", "--ngraph-inconclusive=warn", "-Wdefault")


def said(result: pytest.RunResult) -> list[str]:
    """Return what is printed after the letters of the tests."""
    lines = [line for line in result.outlines if line.strip()]
    return lines[next(number for number, line in enumerate(lines, 1) if line.endswith("[100%]")) :]


@pytest.mark.parametrize("parallel", [(), ("-n2",)])
def test_with_qq_a_run_that_holds_says_nothing_and_writes_its_files(
    pretended: Pretended, parallel: tuple[str, ...]
) -> None:
    pretended.add_compilers()
    pretended.write(claim(1.5))

    result = pretended.bare(
        "--ngraph-compiler=null[fixed_us=1000],absent", TWICE[1], *TERSE, *FILES, "--ngraph-summary=out.md", *parallel,
        plugins="xdist" if parallel else "",
    )  # fmt: skip

    assert said(result) == []
    assert all((pretended.path / f"out.{kind}").stat().st_size > 100 for kind in ("html", "csv", "json", "md"))


def test_with_qq_what_failed_and_what_is_undecided_is_said_with_its_numbers(pretended: Pretended) -> None:
    expected = "@pytest.mark.xfail\n" + claim(9).replace("test_claim", "test_expected").lstrip()
    pretended.write(
        claim(1.5) + claim(9).replace("test_claim", "test_failing") + UNDECIDABLE.replace("claim(", "open(") + expected
    )

    result = pretended.bare(*TWICE, *TERSE)

    node = "[local-null[fixed_us=1000]-block:conv-batch1]"
    lines = said(result)
    assert [line.partition(node)[0] for line in lines if not line.startswith(" ")] == [
        "FAIL test_suite.py::test_failing",
        "INCONCLUSIVE test_suite.py::test_open",
    ]
    numbers = [line for line in lines if line.startswith(" ")]
    assert " ".join(numbers).count("speed-up 1.99x [") == 2
    assert max(map(len, numbers)) <= 80
    # The letters are pytest's.
    assert ".FUx" in "".join(result.outlines[0].split())


def test_with_qq_what_went_wrong_is_said_all_the_same(pretended: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended.write(UNDECIDABLE)
    (pretended.path / "here").write_text("")
    wrong = pretended.bare(*TWICE, *TERSE, "--ngraph-report=here/out.html")
    assert [line for line in said(wrong) if "not written" in line]

    monkeypatch.setenv("CI", "1")
    assert any(line.startswith("no gate was decided") for line in said(pretended.bare(*TWICE, *TERSE)))

    pretended.write('@pytest.mark.ngraph(model="block:mha", batch=2)\ndef test_it(ngraph_cell): ngraph_cell.latency\n')
    lacking = said(pretended.bare(*TWICE, *TERSE, "--ngraph-offline"))
    assert lacking[0].startswith("INCONCLUSIVE test_suite.py::test_it[")
    assert "not in the store" in " ".join(lacking)


def test_the_list_of_what_failed_begins_with_numbers_and_keeps_ids_whole(
    pretended: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    pretended.write(
        claim(9)
        + """
@pytest.mark.ngraph(model="block:conv", batches=[1, 8])
def test_sweep(ngraph_batches): assert_bsr(ngraph_batches, batch=8, at_least=1.5)
@pytest.mark.ngraph(model="block:conv", batches=[1, 8])
def test_near(ngraph_batches): assert_bsr(ngraph_batches, batch=8, at_least=1.0004, tolerance=0)
def test_plain(): assert 1 == 2
"""
    )

    for extra in ((), ("-n1",)):
        result = pretended.bare(*TWICE, "-rf", *extra, plugins="xdist" if extra else "")

        node = "[[]local-null[[]fixed_us=1000]-block:conv"
        result.stdout.fnmatch_lines_random(
            [
                f"FAILED test_suite.py::test_claim{node}-batch1] - speed-up 1.99x < 9.00x: assert_speedup: *",
                f"FAILED test_suite.py::test_sweep{node}] - bsr@8 1.00 < 1.50: assert_bsr: *",
                f"FAILED test_suite.py::test_near{node}] - bsr@8 1.00 < 1.00 by 0.04 %: assert_bsr: *",
                "FAILED test_suite.py::test_plain - assert 1 == 2",
            ]
        )
        assert f"FAIL test_suite.py::test_claim{node.replace('[[]', '[')}-batch1]" in result.outlines or extra
