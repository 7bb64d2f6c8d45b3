"""Reruns do not launder: nothing but a deliberate new start gives a gate that was judged a second chance."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite, skip_without
from tests.support.fake_machine import VARIABLE
from tests.support.fake_sys import put
from tests.support.pretended import TWICE, UNDECIDABLE, Pretended, claim

# Three launches say fail, four more confirm it.
FAILED = 7
AGAIN = [
    pytest.param("", (), id="second-run"),
    pytest.param("cacheprovider", ("--lf",), id="lf"),
    pytest.param("rerunfailures", ("--reruns=3",), id="rerunfailures"),
    pytest.param("xdist", ("-n2",), id="xdist"),
    pytest.param("xdist rerunfailures", ("-n2", "--reruns=3"), id="xdist-rerunfailures"),
    pytest.param("", ("--ngraph-resume",), id="resume"),
    pytest.param("", ("--ngraph-offline",), id="offline"),
]

# After the first launch somebody switches the machine of tests.support.fake_machine to another mode.
SWITCHED = """
measured = local.run_launch


def switched(*given, **named):
    measured(*given, **named)
    Path(os.environ["NGRAPH_TESTS_MACHINE"], "var/lib/nvpmodel/status").write_text("pmode:0002")


local.run_launch = switched
"""


@pytest.fixture
def suite(suite: Suite) -> Pretended:
    return Pretended(suite.pytester)


def verdicts(suite: Pretended) -> list[VerdictRow]:
    with Store.open(suite.store, read_only=True) as store:
        return [row for run in store.runs() for row in store.verdicts(run.id)]


def cells(suite: Pretended) -> dict[Cell, str]:
    """Return the cells of the last run with their evidence."""
    with Store.open(suite.store, read_only=True) as store:
        return dict(store.cells(store.runs()[-1].id))


def from_now_on_all_is_ten_times_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRETEND_FACTOR", "0.1")


# Decided gates


def test_what_is_pretended_passes_and_fails_where_it_should(suite: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.write(claim(1.9))
    suite.bare(*TWICE).assert_outcomes(passed=1)
    assert suite.measured == 3
    suite.write(claim(2.2), "test_other.py")
    from_now_on_all_is_ten_times_faster(monkeypatch)

    # Without a store there is nothing that speaks against the faster machine: the tests below can fail.
    suite.bare(*TWICE, "--ngraph-store=other.sqlite", "test_other.py").assert_outcomes(passed=1)


@pytest.mark.parametrize(("plugins", "options"), AGAIN)
def test_a_gate_that_failed_stays_failed_on_a_machine_that_got_faster(
    suite: Pretended, monkeypatch: pytest.MonkeyPatch, plugins: str, options: tuple[str, ...]
) -> None:
    suite.write(claim(2.2))
    suite.bare(*TWICE, plugins="cacheprovider").assert_outcomes(failed=1)
    assert suite.measured == FAILED
    from_now_on_all_is_ten_times_faster(monkeypatch)

    again = suite.bare(*TWICE, *options, plugins=plugins)

    assert again.parseoutcomes()["failed"] == 1
    assert "passed" not in again.parseoutcomes()
    assert suite.measured == FAILED
    # Neither the interval nor the verdict may move, however often it is judged.
    first, *others = verdicts(suite)
    assert first.verdict == "fail"
    assert all(row == first for row in others)


@pytest.mark.parametrize("plugins", ["rerunfailures", "xdist rerunfailures"])
def test_trying_a_failed_test_again_within_a_run_measures_nothing(
    suite: Pretended, monkeypatch: pytest.MonkeyPatch, plugins: str
) -> None:
    monkeypatch.setenv("PRETEND_FROM", str(FAILED))
    from_now_on_all_is_ten_times_faster(monkeypatch)
    suite.write(claim(2.2))
    parallel = ("-n2",) if "xdist" in plugins else ()

    result = suite.bare(*TWICE, "--reruns=3", *parallel, plugins=plugins)

    assert result.parseoutcomes() == {"failed": 1, "rerun": 3}
    assert suite.measured == FAILED


def test_a_fresh_start_is_one_start_however_often_its_tests_are_tried(
    suite: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETEND_FROM", str(FAILED))
    from_now_on_all_is_ten_times_faster(monkeypatch)
    suite.write(claim(2.2))

    result = suite.bare(*TWICE, "--reruns=3", "-n2", "--ngraph-fresh", plugins="xdist rerunfailures")

    assert result.parseoutcomes() == {"failed": 1, "rerun": 3}
    assert suite.measured == FAILED


def test_workers_of_xdist_that_share_a_group_do_not_measure_it_twice(suite: Pretended) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
@pytest.mark.parametrize("at_least", [2.2, 2.21, 2.22, 2.23])
def test_claim(ngraph_cell, at_least): assert_speedup(ngraph_cell, at_least=at_least)
""")

    result = suite.bare(*TWICE, "-n2", plugins="xdist")

    result.assert_outcomes(failed=4)
    assert suite.measured == FAILED


def test_a_narrower_run_finds_what_a_wider_one_measured(suite: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batches=[1, 4, 8])
def test_sweep(ngraph_batches): assert_speedup(ngraph_batches[8], at_least=2.2)
@pytest.mark.ngraph(model="block:conv", batch=8)
def test_claim(ngraph_cell): assert_speedup(ngraph_cell, at_least=2.2)
""")
    suite.bare(*TWICE).assert_outcomes(failed=2)
    assert suite.measured == FAILED
    from_now_on_all_is_ten_times_faster(monkeypatch)

    suite.bare(*TWICE, "-k", "test_claim").assert_outcomes(failed=1)

    assert suite.measured == FAILED


# Undecided gates


@pytest.mark.parametrize(("plugins", "options"), AGAIN[:4])
def test_a_gate_whose_budget_is_spent_gets_no_second_one(
    suite: Pretended, monkeypatch: pytest.MonkeyPatch, plugins: str, options: tuple[str, ...]
) -> None:
    suite.write(UNDECIDABLE)
    suite.bare(*TWICE, "--ngraph-inconclusive=fail", plugins="cacheprovider").assert_outcomes(failed=1)
    assert suite.measured == 4
    from_now_on_all_is_ten_times_faster(monkeypatch)

    again = suite.bare(*TWICE, "--ngraph-inconclusive=fail", *options, plugins=plugins)

    assert again.parseoutcomes()["failed"] == 1
    assert "the budget is spent" in again.stdout.str()
    assert suite.measured == 4
    first, *others = verdicts(suite)
    assert (first.verdict, first.launches) == ("inconclusive", 4)
    assert all(row == first for row in others)


def test_the_seconds_of_stored_launches_are_spent(suite: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.write(UNDECIDABLE.replace(", budget=4", ""))
    monkeypatch.setenv("PRETEND_SECONDS", "0.3")
    options = (*TWICE, "--ngraph-inconclusive=fail", "--ngraph-budget=0.8s")
    suite.bare(*options).assert_outcomes(failed=1)
    # The first look is three launches whatever they cost, and here they cost the budget.
    assert suite.measured == 3

    suite.bare(*options).assert_outcomes(failed=1)

    assert suite.measured == 3


def test_a_larger_budget_goes_on_where_the_smaller_one_ended(suite: Pretended) -> None:
    suite.write(UNDECIDABLE)
    suite.bare(*TWICE, "--ngraph-inconclusive=fail").assert_outcomes(failed=1)
    suite.write(UNDECIDABLE.replace("budget=4", "budget=6"))

    suite.bare(*TWICE, "--ngraph-inconclusive=fail").assert_outcomes(failed=1)

    assert suite.measured == 6
    assert [row.launches for row in verdicts(suite)] == [4, 6]


# Changed bounds


def test_a_changed_bound_is_judged_on_what_is_stored(suite: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.write(claim(2.2))
    suite.bare(*TWICE).assert_outcomes(failed=1)
    from_now_on_all_is_ten_times_faster(monkeypatch)

    for at_least, outcome in ((2.4, "failed"), (1.5, "passed"), (3.0, "failed")):
        suite.write(claim(at_least))
        assert suite.bare(*TWICE).parseoutcomes() == {outcome: 1}

    assert suite.measured == FAILED


def test_a_stricter_bound_measures_only_what_confirms_that_it_fails(suite: Pretended) -> None:
    suite.write(claim(1.5))
    suite.bare(*TWICE).assert_outcomes(passed=1)
    assert suite.measured == 3
    suite.write(claim(2.2))

    suite.bare(*TWICE).assert_outcomes(failed=1)

    assert suite.measured == FAILED


# Changed code


def test_another_test_file_is_no_other_evidence_and_another_adapter_is(suite: Pretended) -> None:
    suite.add_compilers()
    suite.write(claim(0.5))
    options = ("--ngraph-compiler=mine", "--ngraph-baseline=null[fixed_us=1000]")
    suite.bare(*options).assert_outcomes(passed=1)
    first = cells(suite)
    suite.write("# a remark\n\n" + claim(0.5))
    (suite.path / "notes.txt").write_text("  ")
    adapters = suite.path / "adapters.py"
    os.utime(adapters, (1, 1))

    suite.bare(*options).assert_outcomes(passed=1)

    assert suite.measured == 3
    assert cells(suite) == first
    adapters.write_text(adapters.read_text() + "\n# another\n")
    suite.bare(*options).assert_outcomes(passed=1)
    assert suite.measured == 6


def test_another_checkout_of_the_same_content_gets_no_second_chance(
    suite: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    for checkout in ("one", "other"):
        (suite.path / checkout).mkdir()
        (suite.path / checkout / "net.py").write_text("def make(): ...\n")
        suite.write(claim(2.2).replace("block:conv", "net.py:make"), f"{checkout}/test_suite.py")
    suite.bare(*TWICE, "one").assert_outcomes(failed=1)
    assert suite.measured == FAILED
    from_now_on_all_is_ten_times_faster(monkeypatch)

    suite.bare(*TWICE, "other").assert_outcomes(failed=1)

    assert suite.measured == FAILED


NET = """
import torch
from sizes import SIZE
class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(SIZE, SIZE)
    def example_inputs(self, batch):
        return torch.randn(batch, SIZE)
"""


@pytest.mark.real
@pytest.mark.parametrize("model", ["net.py:Net", "net:Net"])
def test_a_model_is_known_by_the_content_of_the_files_it_imports(suite: Pretended, model: str) -> None:
    skip_without("torch")
    net, sizes, unused = (suite.path / name for name in ("net.py", "sizes.py", "unused.py"))
    net.write_text(NET)
    sizes.write_text("SIZE = 8\n")
    unused.write_text("SIZE = 9\n")
    # Identity against a second process of it is one, which no other bound could say for sure.
    suite.write(claim(0.5).replace("block:conv", model))

    def launches_of_a_run() -> int:
        before = suite.measured
        suite.bare("--ngraph-compiler=identity").assert_outcomes(passed=1)
        return suite.measured - before

    assert launches_of_a_run() == 3
    os.utime(net, (1, 1))
    unused.write_text("SIZE = 10  \n\n")
    assert launches_of_a_run() == 0
    # The file that is imported by the model's own.
    sizes.write_text("SIZE = 16\n")
    assert launches_of_a_run() == 3
    # What it was is known from before, and comes back with its verdict.
    sizes.write_text("SIZE = 8\n")
    assert launches_of_a_run() == 0


# A deliberate new start


def test_a_fresh_start_measures_anew_and_says_so(suite: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.write(claim(2.2))
    suite.bare(*TWICE).assert_outcomes(failed=1)
    from_now_on_all_is_ten_times_faster(monkeypatch)

    fresh = suite.bare(*TWICE, "--ngraph-fresh")

    fresh.assert_outcomes(passed=1)
    assert suite.measured == FAILED + 3
    fresh.stdout.fnmatch_lines(["*evidence was started again (--ngraph-fresh)*"])
    with Store.open(suite.store, read_only=True) as store:
        assert [run.fresh for run in store.runs()] == [False, True]
    # From here on the new evidence is the evidence.
    later = suite.bare(*TWICE)
    later.assert_outcomes(passed=1)
    assert suite.measured == FAILED + 3


class Board:
    """The power mode of the machine that a suite runs on."""

    plugins = "tests.support.fake_machine"

    def __init__(self, root: Path) -> None:
        self._status = put(root / "var/lib/nvpmodel/status", "pmode:0000")
        self._clock = put(root / "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "2201600")

    def switch(self, status: str, clock: str = "2201600") -> None:
        """Put it in a mode, and have heat hold its clock down."""
        self._status.write_text(status)
        self._clock.write_text(clock)


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "board"))
    return Board(tmp_path / "board")


def test_a_run_is_not_resumed_in_another_power_mode(suite: Pretended, board: Board) -> None:
    """Its first launches were of the mode in which it began. What was switched since is none of their noise."""
    suite.write(claim(1.5))
    suite.bare(*TWICE, plugins=board.plugins).assert_outcomes(passed=1)
    with Store.open(suite.store) as store:
        store.finish_run(store.runs()[-1].id, "interrupted")
    board.switch("pmode:0002")

    result = suite.bare(*TWICE, "--ngraph-resume", plugins=board.plugins)

    result.assert_outcomes(passed=1)
    said = "so it is not resumed (nvpmodel of the power mode: 0000 then, 0002 now)"
    assert said in " ".join(result.stdout.str().split())
    assert suite.measured == 6
    with Store.open(suite.store, read_only=True) as store:
        assert len(store.runs()) == 2


def test_a_launch_in_another_power_mode_than_its_run_began_in_does_not_count(suite: Pretended, board: Board) -> None:
    """It is switched when the run knows its cells already, as by hand in another terminal."""
    conftest = suite.path / "conftest.py"
    conftest.write_text(conftest.read_text() + SWITCHED)
    suite.write(claim(1.5))

    result = suite.bare(*TWICE, "--ngraph-inconclusive=skip", plugins=board.plugins)

    result.assert_outcomes(skipped=1)
    assert "the power mode changed midway: nvpmodel from pmode:0000 to pmode:0002" in result.stdout.str()


def test_what_was_measured_in_another_power_mode_is_none_of_a_gate(suite: Pretended, board: Board) -> None:
    """Nor is it lost: who switches back has it again. A clock that heat holds down makes no other machine."""
    suite.write(claim(1.5))
    for status, clock, measured in (
        ("pmode:0000 fmode:quiet", "2201600", 3),
        ("pmode:0002 fmode:quiet", "2201600", 6),
        ("pmode:0000 fmode:cool", "2201600", 6),
        ("pmode:0002 fmode:quiet", "1190400", 6),
    ):
        board.switch(status, clock)
        suite.bare(*TWICE, plugins=board.plugins).assert_outcomes(passed=1)
        assert suite.measured == measured, (status, clock)
