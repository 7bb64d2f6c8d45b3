"""The summary: verdicts that lose no number to a narrow terminal, what a run cost, and how noisy it was."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_ngraph.front.summary.colours import colour_of, write_coloured
from pytest_ngraph.front.summary.verdicts import skipped_lines, verdict_lines
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.html.content import Content, verdict_rows
from pytest_ngraph.report.noise.of_a_run import changes, environment_lines, run_noise_lines
from pytest_ngraph.report.results.cells import cell_reports
from pytest_ngraph.report.results.offline import is_whole, latest_with
from pytest_ngraph.session.ledger import Tally
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, Outcome, Reading, Visit
from pytest_ngraph.store.rows import RunRow, VerdictRow
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite
from tests.support.measuring import cell
from tests.support.pretended import TWICE, Pretended, claim

ONE, TWIN = cell("null"), cell("null", replica=1)
NEAR, FAR = Reading(150_000, (260,)), Reading(150_000, (460,))
QUIET: Mapping[str, Any] = {
    "at": 100.0, "own_seconds": 1.0, "set_busy_seconds": 10.0, "set_steal_seconds": 0.0, "throttled": 3,
    "governor": "performance", "load": 0.5,
}  # fmt: skip


@pytest.fixture
def pretended(suite: Suite) -> Pretended:
    """An empty suite whose launches are pretended."""
    return Pretended(suite.pytester)


# Verdicts


def verdict(verdict: str, nodeid: str, reason: str = "", *, estimate: float | None = 1.31) -> VerdictRow:
    claimed = "assert_speedup: speed-up of local:openvino[hint=latency] timm:resnet18 batch8 over identity at_least 1.2"
    extra = {"reason": reason, "subject": "local:openvino timm:resnet18 batch8", "name": "speed-up"}
    return VerdictRow(
        nodeid, claimed, "speedup", 1.2, True, 0.05, estimate, 1.27, 1.35, 8, verdict, 0.03, extra
    )  # fmt: skip


LONG = (
    "tests/speed/test_models_of_last_year.py::TestBatches::test_faster_than_eager[local-openvino-timm:resnet18-batch8]"
)
WHY = "3 launches do not count, and no further one was tried: other processes kept 1.3 of 2 CPUs busy"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("nodeid", ["test_a.py::test_a", LONG])
def test_no_verdict_is_wider_than_the_terminal_and_none_loses_a_number(width: int, nodeid: str) -> None:
    lines = verdict_lines([verdict("inconclusive", nodeid, WHY)], width)

    # A test's id stays in one piece, on a line of its own where it is long.
    assert max(len(line) for line in lines if nodeid not in line) <= width
    assert any(nodeid in line for line in lines)
    assert lines[0] == f"INCONCLUSIVE {nodeid}"
    assert len(lines) > 2
    assert all(line.startswith("    ") for line in lines[1:-1])
    whole = " ".join(line.strip() for line in lines)
    # A claim's numbers begin a line of their own, and stay together; what they are of stands in the id, or with them.
    subject = "" if nodeid == LONG else " of local:openvino timm:resnet18 batch8"
    assert lines[1].startswith(f"    speed-up{subject} 1.31x [1.27x, 1.35x],"[:width])
    assert f"speed-up{subject} 1.31x [1.27x, 1.35x], claimed at least 1.20x (passes above 1.14x), 8 launches" in whole
    assert f"8 launches (can show 3 %) why: {WHY} verdicts: 1 inconclusive" in whole
    assert lines[-1] == "verdicts: 1 inconclusive"


def test_two_launches_say_that_they_are_too_few_instead_of_ends_that_nobody_can_read() -> None:
    row = replace(verdict("inconclusive", "test_a.py::test_a", WHY), low=4.4e-06, high=3031908.0, smallest_effect=5.4e9)

    whole = " ".join(line.strip() for line in verdict_lines([row], 80))

    assert "1.31x (too few launches for an interval), claimed at least 1.20x" in whole
    assert "8 launches (too few to show less than 100 %)" in whole
    # What is wide, but not absurd, has its ends.
    wide = replace(row, low=0.1, high=90.0)
    assert "[0.10x, 90.0x]" in " ".join(verdict_lines([wide], 100))
    # One of 256 samples, at 99 %.
    share = replace(row, estimate=1 / 256, low=1.958e-05, high=0.0288)
    assert "too few launches for an interval" not in " ".join(verdict_lines([share], 100))


def test_gates_that_are_open_for_one_reason_stand_above_it() -> None:
    rows = [verdict("inconclusive", f"{LONG}-{name}", WHY if name != "c" else "other") for name in "abcd"]
    rows = [replace(row, extra={**row.extra, "advice": "a quieter machine"}) for row in rows]

    lines = verdict_lines(rows, 120)

    assert "".join(line[-1] for line in lines if line.startswith("INCONCLUSIVE")) == "abdc"
    assert [line for line in lines if line.startswith(("    why", "    what"))] == [
        f"    why, of these 3: {WHY}"[:120],
        "    what to do: a quieter machine",
        "    why: other",
        "    what to do: a quieter machine",
    ]


def test_what_pytest_shows_of_a_failure_is_not_said_again() -> None:
    rows = [replace(verdict("fail", LONG, WHY), estimate=1.1, low=1.0, high=1.15), verdict("invalid", LONG, WHY)]

    assert verdict_lines(rows, 80, explains_open=False) == [
        f"FAIL {LONG}",
        "    speed-up 1.10x [1.00x, 1.15x] < 1.20x, 8 launches",
        f"INVALID {LONG}",
        "    speed-up 1.31x [1.27x, 1.35x], claimed at least 1.20x (passes above 1.14x),",
        "    8 launches (can show 3 %)",
        "verdicts: 1 fail, 1 invalid",
    ]


def test_why_a_gate_has_no_number_is_said_also_where_pytest_shows_it() -> None:
    row = verdict("invalid", LONG, "its files changed", estimate=None)

    assert verdict_lines([row], 120, explains_open=False) == [
        f"INVALID {LONG}",
        "    speed-up not measured, claimed at least 1.20x",
        "    why: its files changed",
        "verdicts: 1 invalid",
    ]


def test_a_verdict_that_fits_stays_on_its_line_and_one_of_another_release_is_shown_by_its_claim() -> None:
    row = replace(verdict("fail", "test_a.py::test_a"), claim="assert_speedup: x at_least 1.2", extra={})

    assert verdict_lines([row], 80) == [
        "FAIL test_a.py::test_a",
        "    assert_speedup: x at_least 1.2:",
        "    1.31x [1.27x, 1.35x], 8 launches",
        "verdicts: 1 fail",
    ]
    assert verdict_lines([row], 120)[0] == (
        "FAIL test_a.py::test_a: assert_speedup: x at_least 1.2: 1.31x [1.27x, 1.35x], 8 launches"
    )


def test_an_invalid_verdict_says_why() -> None:
    lines = verdict_lines([verdict("invalid", LONG, WHY, estimate=None), verdict("pass", "b")], 120)

    assert lines[0] == f"INVALID {LONG}"
    assert lines[1] == "    speed-up not measured, claimed at least 1.20x"
    assert lines[-2].startswith("    why: 3 launches do not count")
    assert lines[-1] == "verdicts: 1 pass, 1 invalid"


@pytest.mark.parametrize(("low", "high"), [(0.0, math.inf), (-math.inf, math.inf), (None, None)])
def test_one_launch_has_no_interval(low: float | None, high: float | None) -> None:
    row = replace(verdict("inconclusive", "test_a.py::test_a"), low=low, high=high, launches=1)

    lines = verdict_lines([row], 80)

    assert lines[1].startswith("    speed-up of local:openvino timm:resnet18 batch8 1.31x, claimed at least")
    assert str(Estimate("speedup", 1.31, 0.0, math.inf, 1)) == "1.31x (no interval from 1 launch)"
    assert str(Estimate("speedup", 1.31, 1.2, 1.4, 2)) == "1.31x [1.20x, 1.40x]"
    (shown,) = verdict_rows(
        Content(RunRow(1, "", "", None, "", (), 0, "gate", {}, fresh=False, resumed=False), [], [row], [])
    )
    assert shown["text"] == "1.31x (no interval from 1 launch)"


# Colours, and what could not run


class Painted:
    """A reporter that shows the markup of what it writes."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, content: str, **markup: bool) -> None:
        """Write as pytest's terminal reporter does."""
        self.text += f"<{' '.join(markup)}>{content}</>" if markup else content


def painted(line: str) -> str:
    reporter: Any = Painted()
    write_coloured(reporter, line)
    return str(reporter.text)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("FAIL test_a.py::test_fail: pass  fail", "<red>FAIL</> test_a.py::test_fail: pass  fail"),
        ("INVALID test_a.py::test_a", "<yellow>INVALID</> test_a.py::test_a"),
        ("         openvino  548     4.95x  pass", "         openvino  548     4.95x  <green>pass</>"),
        ("         openvino    inconclusive", "         openvino    <yellow>inconclusive</>"),
        ("      1  tvm  mismatch", "      1  tvm  <red>mismatch</>"),
        ("      1  tvm  unsupported", "      1  tvm  <yellow>unsupported</>"),
        ("verdicts: 4 pass, 12 fail, 1 invalid", "verdicts: <green>4 pass</>, <red>12 fail</>, <yellow>1 invalid</>"),
        ("skipped 2 tests: tvm on local: failed", "<yellow>skipped</> 2 tests: tvm on local: failed"),
        # Names of models and words in claims are no verdicts.
        ("fail.py:invalid size64", "fail.py:invalid size64"),
        ("    assert_x: pass, 1 fail", "    assert_x: pass, 1 fail"),
        ("ran fail: CPU, f32", "ran fail: CPU, f32"),
        ("", ""),
    ],
)  # fmt: skip
def test_only_the_words_of_verdicts_are_coloured(line: str, shown: str) -> None:
    assert painted(line) == f"{shown}\n"
    assert re.sub("<.*?>", "", painted(line)) == f"{line}\n"


@pytest.mark.parametrize(
    ("words", "colour"),
    [(["pass"], "green"), (["pass", "inconclusive"], "yellow"), (["invalid", "fail", "pass"], "red"), ([], None)],
)
def test_the_title_has_the_colour_of_the_worst_verdict(words: list[str], colour: str | None) -> None:
    assert colour_of(verdict(word, "a") for word in words) == ({colour: True, "bold": True} if colour else {})


def test_there_are_no_colours_where_the_terminal_has_none(pretended: Pretended) -> None:
    pretended.write(claim(1.5) + claim(9).replace("test_claim", "test_other"))

    plain, coloured = pretended.bare(*TWICE), pretended.bare(*TWICE, "--color=yes").stdout.str()

    assert "\x1b" not in plain.stdout.str()
    assert "\x1b[32m1 pass\x1b[0m, \x1b[31m1 fail\x1b[0m" in coloured
    assert "\x1b[31mFAIL\x1b[0m test_suite.py::test_other[" in coloured
    assert re.search("\x1b\\[31m\x1b\\[1m=+ ngraph =+", coloured)


SKIPPED = """
@pytest.mark.ngraph(model="block:conv", batch=[1, 2, 4])
def test_many(ngraph_cell): ngraph_cell.latency
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_one(ngraph_cell): ngraph_cell.latency
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_what_could_not_run_is_named_once_with_its_reason(suite: Suite, workers: int) -> None:
    suite.add_compilers()
    suite.write(SKIPPED)
    parallel = [f"-n{workers}"] if workers else []

    result = suite.run(*parallel, compiler="absent,choosy,picky,mine", plugins="xdist" if workers else "")

    result.assert_outcomes(passed=4, skipped=12)
    lines = [line for line in result.outlines if line.startswith("skipped ")]
    assert sorted(lines) == [
        'skipped 4 tests: absent on local: not installed (pip install "surely-not")',
        "skipped 4 tests: choosy on local: no convolutions here",
        "skipped 4 tests: picky on local: it only runs on Sundays",
    ]


def test_it_is_named_where_nothing_was_measured(suite: Suite) -> None:
    suite.add_compilers()
    suite.write(SKIPPED)

    result = suite.run(compiler="absent")

    result.assert_outcomes(skipped=4)
    result.stdout.fnmatch_lines(["=* ngraph =*", "skipped 4 tests: absent on local: not installed (pip install *)"])
    assert "verdicts" not in result.stdout.str()


def test_a_reason_is_wrapped_between_words_and_a_skip_of_the_authors_own_is_not_named(suite: Suite) -> None:
    why = "x on local: " + "no convolution with dilation-and-groups " * 5 + "https://example.org/" + "a" * 90

    lines = skipped_lines({why: 1}, 80)

    assert " ".join(line.strip() for line in lines) == f"skipped 1 test: {why}"
    assert all(len(line) <= 80 for line in lines[:-1])
    suite.add_compilers()
    suite.write("@pytest.mark.skip(reason='not today')" + SKIPPED)
    result = suite.run(compiler="mine")
    result.assert_outcomes(passed=1, skipped=3)
    assert not any(line.startswith("skipped ") for line in result.outlines)


# The machine during a run


def span(**after: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return a launch of ten seconds on two CPUs in which nothing happened but what is given."""
    usual = {**QUIET, "at": 110.0, "own_seconds": 16.0, "set_busy_seconds": 25.0}
    return QUIET, {**usual, **after}


def test_nothing_is_said_of_a_quiet_environment() -> None:
    assert environment_lines([span(), span()], 2) == []
    # Nor of launches that were cut short, or stored by an older version.
    assert environment_lines([(QUIET, {}), ({"load": 0.1}, {"load": 0.2})], 2) == []
    # Nor of a visit in a hundred and more.
    assert environment_lines([span(visits=101, unsteady=[[0, 0]]), span(visits=80, unsteady=[])], 2) == []


@pytest.mark.parametrize(
    ("after", "line"),
    [
        ({"throttled": 15}, "  the cgroup's CPU quota stopped it 12 times, in 1 of 2 launches"),
        ({"governor": "powersave"}, "  the CPU's governor changed: performance to powersave"),
        ({"set_steal_seconds": 2.0}, "  the host took 5 % of the CPUs' time (steal)"),
        ({"set_busy_seconds": 37.0}, "  other processes kept 0.6 of 2 CPUs busy"),
        ({"load": 7.25}, "  load up to 7.2 on 2 CPUs"),
        (
            {"visits": 80, "unsteady": [[0, 3], [5, 1]]},
            "  the machine was not steady around 2 of 80 visits: these are left out, or count by the calls that were "
            "left alone",
        ),
    ],
)
def test_what_disturbed_launches_is_said(after: Mapping[str, Any], line: str) -> None:
    assert environment_lines([span(), span(**after)], 2) == [line]


def test_what_changed_during_the_run_is_said() -> None:
    begun = {
        "git_commit": "abc", "affinity": [0, 1], "versions": {"torch": "2.13", "numpy": "2.4"},
        "governor": "schedutil", "power_mode": {"governor": "schedutil", "nvpmodel": "pmode:0000"},
    }  # fmt: skip
    ended = {
        "git_commit": "abc-dirty", "affinity": [0, 1], "versions": {"torch": "2.14", "numpy": "2.4"},
        "governor": "powersave", "power_mode": {"governor": "powersave", "nvpmodel": "pmode:0002"},
    }  # fmt: skip

    assert changes(begun, begun) == []
    assert changes(begun, ended) == [
        "  changed during the run: git_commit, from abc to abc-dirty",
        "  changed during the run: governor, from schedutil to powersave",
        "  changed during the run: torch, from 2.13 to 2.14",
        "  changed during the run: nvpmodel of the power mode, from pmode:0000 to pmode:0002",
    ]


class Launch(NamedTuple):
    """What a store tells of a launch without its samples."""

    seed: int
    invalid: str
    environment: Mapping[str, Any]
    environment_end: Mapping[str, Any] | None


def noise_of(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *ratios: float,
    invalid: int = 0,
    control: Cell = TWIN,
    delay: float = 0.0,
    homes: tuple[Reading, ...] = (NEAR,),
    powers: Mapping[Cell, float] | None = None,
) -> list[str]:
    """Return what is said of a run whose launches saw these ratios of equal code; some more do not count.

    ``powers`` are other cells than the one and its control, and to which power of the ratio the time of each is.
    """
    powers = powers or {ONE: 1.0, control: 0.0}
    evidence = {at: f"evidence {number}" for number, at in enumerate(powers)}
    with Store.open(folder / "results.sqlite") as store:
        run = store.start_run(
            "run", command=[], seed=0, protocol=PROTOCOLS["gate"], environment={"affinity": [0, 1]}, fresh=False,
            resumed=False,
        )  # fmt: skip
        store.use_cells(run, evidence)
        before, after = span()
        for number, ratio in enumerate((1.5, *ratios, *[1.5] * invalid)):
            if number == 1:
                # The first was an earlier run's: it counts for gates, and says nothing of how noisy this run is.
                run = store.start_run(
                    "now", command=[], seed=0, protocol=PROTOCOLS["gate"], environment={"affinity": [0, 1]},
                    fresh=False, resumed=False,
                )  # fmt: skip
                store.use_cells(run, evidence)
            launch = store.start_launch(
                run, group="g", number=number, seed=number, protocol=PROTOCOLS["gate"], order=[], environment=before
            )
            for at, key in evidence.items():
                store.add_prepared(launch, at, key, CompileRecord(Outcome.OK))
                for block in range(4):
                    wall = round(1e9 * ratio ** powers[at])
                    store.add_visit(launch, at, block, 0, Visit(1, (wall,) * 9, (), (round(delay * wall),) * 9))
            home = homes[number % len(homes)]
            reason = "steal" if number > len(ratios) else ""
            store.finish_launch(launch, invalid=reason, environment=after, readings=[(home, home)] * 4)
        if not hasattr(Store, "run_launches"):
            mine = [Launch(number, "", before, after) for number in range(1, len(ratios) + 1)]
            mine += [Launch(len(ratios) + 1 + number, "steal", before, after) for number in range(invalid)]
            monkeypatch.setattr(Store, "run_launches", lambda store, run_id: mine, raising=False)
        (row,) = (each for each in store.runs() if each.uid == "now")
        return run_noise_lines(store, row)


def test_a_run_is_graded_by_its_own_launches_of_equal_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = [math.exp(value) for value in (-0.01, 0.0, 0.01)]

    assert noise_of(tmp_path, monkeypatch, *ratios) == [
        "noise: quiet in this run: equal code scattered by 1 % over 3 launches"
    ]


def test_a_run_of_scattered_launches_is_noisy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = [math.exp(value) for value in (-0.04, 0.0, 0.04)]

    (line,) = noise_of(tmp_path, monkeypatch, *ratios)

    assert line == "noise: noisy in this run: equal code scattered by 4 % over 3 launches"


def test_a_run_that_waited_for_the_cpu_is_noisy_however_alike_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = noise_of(tmp_path, monkeypatch, 1.0, 1.0, 1.0, delay=0.08)

    assert lines[0].startswith("noise: noisy in this run")
    assert lines[1:] == ["  ready to run but waiting for a CPU: 8 % of the time"]


def test_a_run_most_of_whose_launches_do_not_count_is_unusable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert noise_of(tmp_path, monkeypatch, 1.0, invalid=2) == [
        "noise: unusable in this run: 2 of 3 launches do not count"
    ]


def test_a_run_some_of_whose_launches_do_not_count_is_not_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert noise_of(tmp_path, monkeypatch, 1.0, 1.0, 1.0, invalid=2) == [
        "noise: noisy in this run: equal code scattered by 0 % over 3 launches, 2 more do not count"
    ]


def test_without_controls_a_run_has_no_grade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = noise_of(tmp_path, monkeypatch, 1.0, 1.0, 1.0, control=cell("null", batch=2))

    assert lines == ["noise: not known in this run: it takes two launches in which the baseline runs twice"]


def in_world(**axes: Any) -> tuple[Cell, Cell]:
    """Return a cell and its second process that are measured under something else than usual."""
    one, two = (replace(at, workload=replace(at.workload, **axes)) for at in (ONE, TWIN))
    return one, two


BESIDE, BESIDE_TWIN = in_world(neighbour="block:mha@null", beside=ONE.workload.model)


def test_equal_code_beside_a_neighbour_says_nothing_of_the_machine_and_is_named_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was graded by the control beside a neighbour, which scattered by 33 %, on a quiet machine."""
    ratios = [math.exp(value) for value in (-0.01, 0.0, 0.01)]
    powers = {ONE: 1.0, TWIN: 0.0, BESIDE: 30.0, BESIDE_TWIN: 0.0}

    assert noise_of(tmp_path, monkeypatch, *ratios, powers=powers) == [
        "noise: quiet in this run: equal code scattered by 1 % over 3 launches",
        "  beside a neighbour equal code scattered by 30 %: no part of that grade",
    ]


@pytest.mark.parametrize("scatter", [0.0, 30.0])
def test_a_run_whose_only_control_has_a_neighbour_has_no_grade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scatter: float
) -> None:
    ratios = [math.exp(value) for value in (-0.01, 0.0, 0.01)]

    lines = noise_of(tmp_path, monkeypatch, *ratios, powers={BESIDE: scatter, BESIDE_TWIN: 0.0})

    assert lines == [
        "noise: not known in this run: it takes two launches in which the baseline runs twice, without neighbours and "
        "arrivals",
        f"  beside a neighbour equal code scattered by {scatter:g} %: no part of that grade",
    ]


def test_calls_that_arrive_make_no_machine_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would pass on garbage: as many calls are answered as arrive, so that equal code never scatters."""
    one, twin = in_world(scenario="server[rate=20]")

    lines = noise_of(tmp_path, monkeypatch, 1.0, 1.0, 1.0, powers={one: 1.0, twin: 0.0})

    assert lines == [
        "noise: not known in this run: it takes two launches in which the baseline runs twice, without neighbours and "
        "arrivals"
    ]


def test_the_states_of_the_machine_are_named_where_there_were_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = noise_of(tmp_path, monkeypatch, *[1.0] * 6, homes=(NEAR, NEAR, FAR))

    assert lines[-3:] == [
        "  the machine was in 2 states; a gate compares launches of one:",
        "    arithmetic 150 us, CPU to CPU 260 ns",
        "    arithmetic 150 us, CPU to CPU 460 ns",
    ]


def test_a_run_that_measured_nothing_has_no_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "run_launches", lambda store, run_id: [], raising=False)
    run = RunRow(1, "now", "", None, "running", (), 0, "gate", {}, fresh=False, resumed=False)

    with Store.open(tmp_path / "results.sqlite") as store:
        assert run_noise_lines(store, run) == []
        assert run_noise_lines(store, replace(run, protocol="quick")) == []


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("quick", ["other programs had the CPUs in 3 of 4 visits: these times are too long"]),
        # The paper's protocol takes every repetition as it comes.
        ("paper", []),
    ],
)
def test_a_disturbed_number_is_shown_and_said_where_no_verdict_rests_on_it(
    tmp_path: Path, protocol: str, said: list[str]
) -> None:
    with Store.open(tmp_path / "results.sqlite") as store:
        kept = PROTOCOLS[protocol]
        run = store.start_run("u", command=[], seed=0, protocol=kept, environment={}, fresh=False, resumed=False)
        store.use_cells(run, {ONE: "one"})
        launch = store.start_launch(run, group="g", number=0, seed=0, protocol=kept, order=[], environment={})
        store.add_prepared(launch, ONE, "one", CompileRecord(Outcome.OK))
        for block in range(4):
            store.add_visit(launch, ONE, block, 0, Visit(1, (2_000_000,) * 9, (), (1_000_000 if block else 0,) * 9))
        store.finish_launch(launch, invalid="", environment={})
        (row,) = store.runs()

        lines = run_noise_lines(store, row)
        (report,) = cell_reports(store, run)

    assert len(lines) == len(said)
    assert all(text in line for text, line in zip(said, lines, strict=True))
    assert report.estimates["latency"].value == pytest.approx(0.002)


# Whole runs


def test_a_run_says_what_it_cost_and_what_100_repetitions_would_have(pretended: Pretended) -> None:
    pretended.write(claim(1.5))

    result = pretended.bare(*TWICE)

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "verdicts: 1 pass",
            "measured 3 launches (* calls) in *, reused 0 from the store",
            "  100 calls of each cell instead: * calls, *s, without an error rate",
            "results: *",
        ]
    )


def test_a_claim_that_is_long_is_wrapped_in_a_real_summary(pretended: Pretended) -> None:
    pretended.write(claim(1.99, "tolerance=1e-9, budget=4"))

    output = pretended.bare(*TWICE).stdout.str().splitlines()

    began = next(number for number, line in enumerate(output) if line.startswith("INCONCLUSIVE "))
    ended = next(number for number, line in enumerate(output) if line.startswith("verdicts: "))
    assert output[began] == "INCONCLUSIVE test_suite.py::test_claim[local-null[fixed_us=1000]-block:conv-batch1]"
    assert max(len(line) for line in output[began + 1 : ended]) <= 80
    assert "    why: the budget is spent" in output[began:ended]


@pytest.mark.parametrize("parallel", [(), ("-n2",)])
def test_offline_the_table_shows_the_cells_that_are_judged_now(pretended: Pretended, parallel: tuple[str, ...]) -> None:
    pretended.write(claim(1.5))
    pretended.bare(*TWICE).assert_outcomes(passed=1)
    pretended.write(claim(1.5).replace("batch=1", "batch=4"))
    pretended.bare(*TWICE).assert_outcomes(passed=1)
    pretended.write(claim(1.5))

    output = pretended.bare(*TWICE, "--ngraph-offline", *parallel, plugins="xdist" if parallel else "").stdout.str()

    table = output[output.index("\ndevice local\n") :]
    rows = [line.split() for line in table.splitlines() if "null[" in line]
    # The latest stored run was about batch 4.
    assert [row[0] for row in rows[:1]] == ["1"]
    assert "\n      4  " not in table
    assert "pass" in rows[1]
    assert "\nverdicts: 1 pass\n" in output


@pytest.mark.parametrize("parallel", [(), ("-n2",)])
def test_a_run_to_resume_that_never_began_shows_no_other_run(pretended: Pretended, parallel: tuple[str, ...]) -> None:
    """No test of it measures anything, as nothing is installed to measure with: an earlier run is not its own."""
    pretended.add_compilers()
    pretended.write(claim(3.0))
    pretended.bare(*TWICE).assert_outcomes(failed=1)
    absent = ("--ngraph-compiler=absent", "--ngraph-baseline=null", "--ngraph-resume", "--ngraph-export=t.csv")

    result = pretended.bare(*absent, *parallel, plugins="xdist" if parallel else "")

    result.assert_outcomes(skipped=1)
    output = result.stdout.str()
    assert "FAIL" not in output
    assert "verdicts: 1 fail" not in output
    assert (
        not (pretended.path / "t.csv").exists() or "null[fixed_us=1000]" not in (pretended.path / "t.csv").read_text()
    )


@pytest.mark.parametrize("parallel", [(), ("-n2",)])
def test_the_run_that_is_resumed_is_shown_whichever_ended_last(
    pretended: Pretended, monkeypatch: pytest.MonkeyPatch, parallel: tuple[str, ...]
) -> None:
    """By the clock another one ended in the year 2999."""
    pretended.write(claim(1.4).replace("batch=1", "batch=4"))
    pretended.bare(*TWICE).assert_outcomes(passed=1)
    pretended.write(claim(1.5))
    pretended.bare(*TWICE).assert_outcomes(passed=1)
    with Store.open(pretended.store) as store, monkeypatch.context() as patched:
        first, second = store.runs()
        store.finish_run(second.id, "interrupted")
        patched.setattr("pytest_ngraph.store.sqlite._now", lambda: "2999-01-01T00:00:00.000+00:00")
        store.finish_run(first.id, "finished")

    output = pretended.bare(*TWICE, "--ngraph-resume", *parallel, plugins="xdist" if parallel else "").stdout.str()

    with Store.open(pretended.store, read_only=True) as store:
        assert [run.status for run in store.runs()] == ["finished", "finished"]
    table = output[output.index("\ndevice local\n") :]
    assert [line.split()[0] for line in table.splitlines() if "null[" in line][:1] == ["1"]
    assert "\n      4  " not in table


OUTPUTS = ("--ngraph-export=t.md", "--ngraph-export=t.csv", "--ngraph-benchmark-json=b.json")


@pytest.mark.parametrize("parallel", [(), ("-n2",)])
def test_offline_a_run_is_named_by_its_own_protocol_and_launches_and_not_by_the_latest_run(
    pretended: Pretended, parallel: tuple[str, ...]
) -> None:
    both = claim(1.5) + claim(1.5).replace("batch=1", "batch=4").replace("test_claim", "test_other")
    pretended.write(both)
    pretended.bare(*TWICE).assert_outcomes(passed=2)
    pretended.bare(*TWICE, "--ngraph-protocol=quick").assert_outcomes(passed=2)
    pretended.bare(*TWICE, "--ngraph-seed=1").assert_outcomes(passed=2)
    pretended.write(claim(1.5))

    plugins = "xdist" if parallel else ""
    output = pretended.bare(*TWICE, *OUTPUTS, "--ngraph-offline", *parallel, plugins=plugins).stdout.str()

    assert "\nverdicts: 1 pass\n" in output
    assert "no error control" not in output
    assert "with 99 % intervals over launches" in (pretended.path / "t.md").read_text()
    with (pretended.path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["run"], row["batch"]) for row in rows} == {("1", "1")}
    timed = json.loads((pretended.path / "b.json").read_text())
    assert timed["ngraph"] == {"run": 1, "digest": rows[0]["digest"]}
    # Of gates a round is a launch, of which there are three; and only what was judged is there.
    assert [entry["stats"]["rounds"] for entry in timed["benchmarks"]] == [3, 3]
    assert {entry["group"] for entry in timed["benchmarks"]} == {"block:conv batch1"}
    judged = [entry for entry in timed["benchmarks"] if "ngraph_verdict" in entry["extra_info"]]
    assert [entry["extra_info"]["ngraph_verdict"] for entry in judged] == ["pass"]


def test_offline_what_no_run_has_is_in_no_file(pretended: Pretended) -> None:
    pretended.write(claim(1.5))
    pretended.bare(*TWICE, "--ngraph-protocol=quick").assert_outcomes(passed=1)

    result = pretended.bare(*TWICE, *OUTPUTS, "--ngraph-offline", "--ngraph-inconclusive=warn", "-Wdefault")

    missing = "no run in the store has what was judged"
    result.stdout.fnmatch_lines([f"ngraph: not written: {name}: {missing}" for name in ("t.md", "t.csv", "b.json")])
    assert "protocol quick" not in result.stdout.str()
    assert not (pretended.path / "t.md").exists()


def test_the_run_of_what_is_judged_offline_is_the_latest_that_has_it(tmp_path: Path) -> None:
    other = cell("null", batch=4)
    with Store.open(tmp_path / "results.sqlite") as store:
        kept: list[tuple[str, int, dict[Cell, str]]] = [
            ("gate", 0, {ONE: "one", TWIN: "twin", other: "other"}),
            ("gate", 0, {ONE: "one"}),
            ("gate", 0, {ONE: "changed", other: "changed"}),
            ("gate", 1, {ONE: "seed 1"}),
            ("quick", 0, {ONE: "quick"}),
        ]
        for number, (protocol, seed, cells) in enumerate(kept):
            run = store.start_run(
                f"run-{number}", command=[], seed=seed, protocol=PROTOCOLS[protocol], environment={}, fresh=False,
                resumed=False,
            )  # fmt: skip
            store.use_cells(run, cells)

        def found(cells: dict[Cell, str] | None, protocol: str = "gate", seed: int = 0) -> int | None:
            run = latest_with(store, cells, protocol, seed)
            return None if run is None else run.id

        assert found({ONE: "one"}) == 2
        # Of several that have a part of it the one that has most.
        assert found({ONE: "one", other: "other"}) == 1
        assert found({ONE: "one", other: "changed"}) == 3
        assert found({ONE: "seed 1"}, seed=1) == 4
        assert found({ONE: "one"}, seed=1) is None
        assert found({ONE: "of no run"}) is None
        assert (found(None), found(None, "quick"), found(None, "paper")) == (3, 5, None)
        # What controls a baseline is no result.
        first, second = store.runs()[:2]
        assert is_whole(store, first, ({ONE: "one", other: "other"}, {}))
        assert not is_whole(store, first, ({ONE: "one"}, {}))
        assert not is_whole(store, second, ({ONE: "changed"}, {}))


@pytest.mark.parametrize("plugins", ["rerunfailures", "xdist", "xdist rerunfailures"])
def test_offline_no_verdict_is_lost_and_none_counts_twice(pretended: Pretended, plugins: str) -> None:
    pretended.write(claim(2.2) + claim(1.5).replace("test_claim", "test_other"))
    pretended.bare(*TWICE)
    options = [*(("-n2",) if "xdist" in plugins else ()), *(("--reruns=2",) if "rerun" in plugins else ())]

    result = pretended.bare(*TWICE, "--ngraph-offline", "--ngraph-export=table.csv", *options, plugins=plugins)

    result.stdout.fnmatch_lines(["FAIL test_suite.py::test_claim*", "verdicts: 1 pass, 1 fail", "2 gates: *"])


def test_a_tally_of_launches_that_do_not_count_is_shown(pretended: Pretended) -> None:
    assert Tally().invalid_launches == 0
    conftest = pretended.path / "conftest.py"
    conftest.write_text(
        conftest.read_text()
        + """
said = ["the host took 9 % of the CPUs' time (steal)"]
environment.disturbance = lambda *_: said.pop() if said else ""
"""
    )
    pretended.write(claim(1.5))

    result = pretended.bare(*TWICE)

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["measured 4 launches *", "noise: *, 1 more*", "    *not count"])
    assert max(map(len, result.outlines[result.outlines.index("device local") :])) <= 80
    said = " ".join(result.stdout.str().split())
    assert ", 1 more does not count" in said
    # It is said once.
    assert said.count("not count") == 2
