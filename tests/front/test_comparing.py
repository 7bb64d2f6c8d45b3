"""Runs that are held against a saved baseline: what fails, what only warns, and what is refused."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.commands import noise_session
from pytest_ngraph.commands.noise_session import SessionMeans, measure_sessions
from pytest_ngraph.errors import CompileFailed
from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.report.baselines.comparing import RATIO, Against, Compared
from pytest_ngraph.report.baselines.file import FOLDER, read
from pytest_ngraph.report.baselines.saved import Saved
from pytest_ngraph.report.baselines.saving import baseline_of_run
from pytest_ngraph.report.noise.profile import SessionNoise, read_profile, write_profile
from pytest_ngraph.report.results.verdicts import family_line
from pytest_ngraph.spec.cells import PROTOCOLS
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.sqlite import Store
from tests.conftest import ROOT, Suite
from tests.report.test_noise import profile
from tests.support import workers
from tests.support.compared import run, saved
from tests.support.sessions import BASE, FACTS, FAST, Day, add_day, evidence

QUIET = profile(sessions=SessionNoise(10, 3, 0.005, 0.003))
UNKNOWN = profile()


def against(
    tmp_path: Path,
    then: Day,
    now: Day,
    *,
    noise: object = QUIET,
    edit: Callable[[Saved], Saved] = lambda saved: saved,
    facts: Mapping[str, Any] = FACTS,
) -> dict[str, Compared]:
    """Save one day in a store of its own, and hold another day against it."""
    add_day(tmp_path / "then.sqlite", then, 1)
    with Store.open(tmp_path / "then.sqlite", read_only=True) as store:
        saved = edit(baseline_of_run(store, store.runs()[-1], "main", tmp_path))
    add_day(tmp_path / "now.sqlite", now, 2)
    with Store.open(tmp_path / "now.sqlite", read_only=True) as store:
        machine = Machine.of(facts)
        held = Against(saved, store, machine, PROTOCOLS["gate"], 0, tmp_path, noise)  # type: ignore[arg-type]
        kept = held.now(evidence(now), {FAST: BASE})
        return {one.metric: one for one in held.compare(kept, {FAST: 0.05}, {})}


SLOWER = Day(ms=4.6, code="slower")


def test_code_that_became_slower_fails_by_the_clock_and_as_a_ratio(tmp_path: Path) -> None:
    said = against(tmp_path, Day(), SLOWER)
    assert said["latency"].verdict is Verdict.FAIL
    assert said["speedup"].verdict is Verdict.FAIL
    assert said["latency"].change.value == pytest.approx(4.0 / 4.6, rel=0.01)
    assert said["latency"].change.low < said["latency"].change.value < said["latency"].change.high < 0.95
    assert not said["latency"].warns


def test_code_that_is_as_fast_passes_and_what_is_faster_is_said(tmp_path: Path) -> None:
    assert against(tmp_path, Day(), Day(ms=4.02, code="other"))["latency"].verdict is Verdict.PASS
    faster = against(tmp_path, Day(), Day(ms=3.0, code="faster"))["latency"]
    assert faster.verdict is Verdict.PASS
    assert "better by more than the tolerance: save it (ngraph baseline save main --replace)" in faster.reason


def test_without_a_term_for_sessions_it_only_warns(tmp_path: Path) -> None:
    said = against(tmp_path, Day(), SLOWER, noise=UNKNOWN)["latency"]
    assert said.verdict is Verdict.NOT_JUDGED
    assert said.warns
    assert "ngraph doctor --noise --sessions" in said.reason
    assert not against(tmp_path, Day(), Day(code="other"), noise=UNKNOWN)["latency"].warns
    # A profile says nothing of compile times.
    assert against(tmp_path, Day(), SLOWER)["compile_seconds"].verdict is Verdict.NOT_JUDGED


def test_where_sessions_differ_by_much_it_is_undecided(tmp_path: Path) -> None:
    noisy = profile(sessions=SessionNoise(10, 3, 0.08, 0.08))
    said = against(tmp_path, Day(), SLOWER, noise=noisy)["latency"]
    assert said.verdict is Verdict.INCONCLUSIVE
    assert "sessions of equal code scatter by 8.0 % here" in said.reason


def test_the_history_of_the_cell_itself_comes_before_the_profile(tmp_path: Path) -> None:
    for number in range(3, 10):
        add_day(tmp_path / "now.sqlite", Day(ms=4.0 * math.exp(0.1 * (-1) ** number)), number)
    # By the profile it would fail.
    said = against(tmp_path, Day(), SLOWER)["latency"]
    assert said.verdict is Verdict.INCONCLUSIVE
    assert "7 sessions in the store" in said.reason
    # And what another machine has measured says nothing of this one.
    other = tmp_path / "other"
    other.mkdir()
    for number in range(3, 10):
        day = Day(ms=4.0 * math.exp(0.1 * (-1) ** number), facts={"node": "bench-2"})
        add_day(other / "now.sqlite", day, number)
    assert against(other, Day(), SLOWER)["latency"].verdict is Verdict.FAIL


def test_sessions_that_were_measured_afresh_are_the_history_of_equal_code(tmp_path: Path) -> None:
    """As those of every night are: without --ngraph-fresh nothing of the same code is measured a second time."""
    for number in range(3, 10):
        day = Day(ms=4.0 * math.exp(0.001 * (-1) ** number), fresh=True)
        add_day(tmp_path / "now.sqlite", day, number)
    said = against(tmp_path, Day(), SLOWER, noise=UNKNOWN)["latency"]
    assert said.verdict is Verdict.FAIL
    # And no session of before counts for what is measured now.
    kept = against(tmp_path, Day(), replace(SLOWER, fresh=True), noise=UNKNOWN)["latency"]
    assert (kept.verdict, kept.change.launches) == (Verdict.FAIL, said.change.launches)


def test_the_same_code_is_unchanged_whatever_the_numbers_say(tmp_path: Path) -> None:
    said = against(tmp_path, Day(), Day(ms=4.6))["latency"]
    assert (said.verdict, said.reason) == (
        Verdict.PASS, "unchanged: the same code, versions and machine as saved",
    )  # fmt: skip


def test_a_machine_of_the_same_class_may_warn_and_never_fails(tmp_path: Path) -> None:
    said = against(tmp_path, Day(facts={"node": "bench-9"}), SLOWER)["latency"]
    assert (said.verdict, said.warns) == (Verdict.NOT_JUDGED, True)
    assert "of bench-9, a machine of the same class as bench-1" in said.reason


def test_another_machine_is_refused_with_what_differs(tmp_path: Path) -> None:
    for fact, there in (("cpu", "Another processor"), ("governor", "powersave"), ("cpu_quota", 1.5)):
        folder = tmp_path / fact
        folder.mkdir()
        said = against(folder, Day(facts={fact: there}), SLOWER)["latency"]
        assert said.verdict is Verdict.INVALID
        assert said.reason.startswith("not comparable: it was saved on another machine (")
        assert f"{fact}: {there} there, {FACTS[fact] or 'not known'} here" in said.reason
        assert math.isnan(said.change.value)
    folder = tmp_path / "both"
    folder.mkdir()
    said = against(folder, Day(facts={"node": "bench-9", "kernel": "5.4"}), Day(code="same speed"))["latency"]
    assert "kernel: 5.4 there, 6.1 here" in said.reason


def test_what_changed_on_the_same_machine_is_judged_and_named(tmp_path: Path) -> None:
    old = {**FACTS["versions"], "onnxruntime": "1.27.0"}
    said = against(tmp_path, Day(facts={"versions": old}), SLOWER)["latency"]
    assert said.verdict is Verdict.FAIL
    assert "changed on this machine: onnxruntime 1.27.0 then, 1.31.1 now" in said.reason


def test_a_run_says_what_comparisons_add_to_the_chance_of_a_false_fail(tmp_path: Path) -> None:
    from tests.support.report_stores import of, verdict

    gate = verdict(of("timm:resnet18"), "pass", 1.2, (2.65, 2.6, 2.7))
    said = family_line(
        [gate, type(gate)(**{**{name: getattr(gate, name) for name in gate.__slots__}, "extra": {"helper": "compare"}})]
    )
    assert said.startswith("2 gates: chance of any false fail at most 1")


# Runs

SUITE = """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_speed(ngraph_cell):
    pass
"""


@pytest.fixture
def measured(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A suite that was run once and saved as main; its compiler is then changed."""
    return saved(suite, SUITE, monkeypatch)


def slow_down(suite: Suite) -> None:
    """Change the compiler: what takes 100 microseconds takes 200."""
    text = (suite.path / "adapters.py").read_text()
    (suite.path / "adapters.py").write_text(text.replace('Option("us", "100"', 'Option("us", "200"'))


def with_noise(suite: Suite) -> None:
    write_profile(QUIET, suite.path / ".ngraph" / "noise-local.json")


def test_a_run_without_a_change_is_unchanged(measured: Suite) -> None:
    done = run(measured, "--ngraph-compare=main")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["verdicts: * pass"])
    with Store.open(measured.store, read_only=True) as store:
        rows = store.verdicts(store.runs()[-1].id)
    assert {(row.extra["helper"], row.metric, row.verdict) for row in rows} == {("compare", RATIO, "pass")}
    assert {row.extra["reason"] for row in rows} == {"unchanged: the same code, versions and machine as saved"}


def test_a_slower_compiler_fails_its_test_and_stands_in_the_store_and_junit(measured: Suite) -> None:
    slow_down(measured)
    with_noise(measured)
    done = run(measured, "--ngraph-compare=main", "--junitxml=junit.xml")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["*compare: Latency of local:mine block:conv* as good as saved in main (tolerance 0.05)*"]
    )
    done.stdout.fnmatch_lines(["*below 1 is worse*"])
    done.stdout.fnmatch_lines(["FAIL test_suite.py::test_speed*"])
    with Store.open(measured.store, read_only=True) as store:
        rows = store.verdicts(store.runs()[-1].id)
    (latency,) = [row for row in rows if "Latency" in row.claim]
    assert latency.verdict == "fail"
    assert latency.estimate == pytest.approx(0.5, rel=0.15)
    assert 'value="compare: Latency' in (measured.path / "junit.xml").read_text()


FAILING = """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_speed(ngraph_cell):
    {body}
"""

SWEEP = """
@pytest.mark.ngraph(model="block:conv", batches=[1, 4])
def test_speed(ngraph_batches):
    pass
"""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("assert_speedup(ngraph_cell, at_least=1000)", id="a claim that fails"),
        pytest.param("assert 2 + 2 == 5", id="before anything is measured"),
    ],
)
def test_what_a_test_claims_itself_does_not_hide_that_it_became_slower(measured: Suite, body: str) -> None:
    slow_down(measured)
    with_noise(measured)
    measured.write(FAILING.format(body=body))

    done = run(measured, "--ngraph-compare=main")

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([f">   *{body}"])
    done.stdout.fnmatch_lines(
        ["*compare: Latency of local:mine block:conv* as good as saved in main (tolerance 0.05)*"]
    )
    with Store.open(measured.store, read_only=True) as store:
        rows = store.verdicts(store.runs()[-1].id)
    assert [row.verdict for row in rows if "compare: Latency" in row.claim] == ["fail"]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [('pytest.skip("not today")', "skipped"), ('pytest.fail("not today")', "failed"), ("1 / 0", "failed")],
)
def test_a_test_that_its_author_ends_is_not_compared(measured: Suite, body: str, outcome: str) -> None:
    slow_down(measured)
    with_noise(measured)
    measured.write(FAILING.format(body=body))

    done = run(measured, "--ngraph-compare=main")

    done.assert_outcomes(**{outcome: 1})
    done.stdout.no_fnmatch_line("*compare: *")


@pytest.mark.parametrize("missing", ["warn", "fail", "record"])
def test_a_cell_that_cannot_run_is_not_missing_from_the_baseline(
    measured: Suite, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where it is set, what is named has to run.
    monkeypatch.delenv("CI", raising=False)
    adapters = measured.path / "adapters.py"
    refusing = 'raise Unsupported("not today")'
    adapters.write_text(adapters.read_text().replace('return Busy(options["us"])', refusing))
    measured.write(SUITE.replace("batch=1", "batch=4"))
    before = (measured.path / FOLDER / "main.json").read_bytes()

    done = run(measured, "--ngraph-compare=main", f"--ngraph-missing-baseline={missing}")

    done.assert_outcomes(skipped=1)
    assert (measured.path / FOLDER / "main.json").read_bytes() == before


def test_of_a_test_that_failed_nothing_is_recorded(measured: Suite) -> None:
    measured.write(FAILING.format(body="assert_speedup(ngraph_cell, at_least=1000)").replace("batch=1", "batch=4"))
    before = (measured.path / FOLDER / "main.json").read_bytes()

    # That batch 4 is not there is a warning, which does not stand in place of the claim, though warnings are errors.
    done = run(measured, "--ngraph-compare=main", "--ngraph-missing-baseline=record")

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*claimed at least *1000*", "FAILED *"])
    assert (measured.path / FOLDER / "main.json").read_bytes() == before


def test_the_cause_of_what_a_body_raises_is_shown(measured: Suite) -> None:
    measured.write(FAILING.format(body='raise AssertionError("no") from ValueError("what it comes from")'))
    done = run(measured, "--ngraph-compare=main")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*ValueError: what it comes from*", "*direct cause*"])


def test_one_cell_without_a_time_does_not_hide_that_another_became_slower(measured: Suite) -> None:
    slow_down(measured)
    with_noise(measured)
    adapters = measured.path / "adapters.py"
    breaks = """        if workload.spec.batch == 4:
            raise CompileFailed("the graph has a cycle")
"""
    text = adapters.read_text()
    adapters.write_text(
        text.replace('        return Busy(options["us"])', breaks + '        return Busy(options["us"])')
    )
    measured.write(SWEEP)

    done = run(measured, "--ngraph-compare=main", "--ngraph-missing-baseline=fail")

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*compare: Latency of local:mine block:conv batch1 *"])
    done.stdout.fnmatch_lines(["*the graph has a cycle*"])


def test_without_the_term_a_run_warns_and_passes(measured: Suite) -> None:
    slow_down(measured)
    done = run(measured, "--ngraph-compare=main", "-Wdefault")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*BaselineWarning: compare: *"])


def test_a_file_that_cannot_be_used_stops_the_run_before_anything_is_measured(measured: Suite) -> None:
    path = measured.path / FOLDER / "main.json"
    path.write_text(path.read_text().replace('"seed": "0"', '"seed": "1"'))
    done = run(measured, "--ngraph-compare=main")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*main.json: digest does not fit the file*"])
    # A name that is mistyped must not compare with nothing.
    for wrong in (".x", "a b", "mian", "../main", "none.json"):
        assert run(measured, f"--ngraph-compare={wrong}").ret == pytest.ExitCode.USAGE_ERROR


def test_a_file_that_the_ini_file_names_is_that_of_the_rootdir_from_any_folder(
    measured: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    (measured.path / "pytest.ini").write_text(f"[pytest]\nngraph_compare = {FOLDER}/main.json\n")
    (measured.path / "below").mkdir()
    monkeypatch.chdir(measured.path / "below")

    done = run(measured, "../test_suite.py")

    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["verdicts: * pass"])


def test_what_the_baseline_does_not_have_fails_warns_or_is_recorded(measured: Suite) -> None:
    measured.write(SUITE.replace("batch=1", "batch=[1, 4]"))
    assert run(measured, "--ngraph-compare=main", "--ngraph-missing-baseline=fail").ret == 1
    done = run(measured, "--ngraph-compare=main", "-Wdefault")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*BaselineWarning: the baseline main has no local:mine block:conv batch4*"])
    before = read(measured.path / FOLDER / "main.json")
    assert run(measured, "--ngraph-compare=main", "--ngraph-missing-baseline=record").ret == 0
    after = read(measured.path / FOLDER / "main.json")
    assert len(after.cells) == len(before.cells) + 1
    assert run(measured, "--ngraph-compare=main", "--ngraph-missing-baseline=fail").ret == 0
    # A baseline that is not there yet is made.
    assert run(measured, "--ngraph-compare=new", "--ngraph-missing-baseline=record").ret == 0
    assert len(read(measured.path / FOLDER / "new.json").cells) == 2


def test_nothing_is_recorded_in_a_baseline_of_another_machine(measured: Suite) -> None:
    path = measured.path / FOLDER / "main.json"
    from pytest_ngraph.spec.cells import digest

    fields = json.loads(path.read_text())
    del fields["digest"]
    fields["machines"]["local"]["hardware"]["cpu"] = "Another"
    path.write_text(json.dumps({**fields, "digest": digest(fields)}))
    before = path.read_bytes()
    measured.write(SUITE.replace("batch=1", "batch=4"))
    done = run(measured, "--ngraph-compare=main", "--ngraph-missing-baseline=record")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*is of another machine (cpu: Another there*"])
    assert path.read_bytes() == before


def test_a_protocol_without_error_rates_is_not_compared(measured: Suite) -> None:
    done = run(measured, "--ngraph-compare=main", "--ngraph-protocol=quick", "-Wdefault")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*not compared with main: --ngraph-protocol=quick has no error rate*"])


# How sessions differ


def test_sessions_are_measured_at_intervals_and_kept_as_they_come() -> None:
    now, slept, kept, said = [0.0], list[float](), list[SessionNoise](), list[str]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    def one(store: Path, launches: int) -> SessionMeans | None:
        now[0] += 40
        number = len(slept)
        return None if number == 2 else SessionMeans(-7 + 0.01 * (number % 2), 0.001 * (number % 2))

    measure_sessions(
        Path("x"), 9, 3, 600.0, keep=kept.append, say=said.append, one=one, sleep=sleep, clock=lambda: now[0]
    )
    assert slept == [560.0] * 8
    assert [noise.count for noise in kept] == [6, 7, 8]
    assert kept[-1].latency == pytest.approx(0.00535, rel=0.01)
    assert kept[-1].ratio == pytest.approx(0.000535, rel=0.01)
    assert any("left out" in line for line in said)
    few: list[str] = []
    measure_sessions(Path("x"), 2, 3, 0.0, keep=kept.append, say=few.append, one=one, sleep=sleep, clock=lambda: now[0])
    assert "nothing is kept" in few[-1]
    assert len(kept) == 3


def test_a_session_that_cannot_be_measured_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(store: Path, launches: int) -> SessionMeans | None:
        raise CompileFailed("no memory")

    with pytest.raises(CompileFailed, match="no memory"):
        measure_sessions(Path("x"), 6, 3, 0.0, keep=lambda noise: None, say=lambda text: None, one=broken)
    monkeypatch.setattr(noise_session, "command", lambda *words: ["sh", "-c", "echo nonsense; echo why >&2; exit 3"])
    with pytest.raises(CompileFailed, match=r"status 3: why"):
        noise_session.in_a_process(Path("x"), 3)


# In the process of a session, and in none that it starts: what else runs here makes no launch invalid, so that none is
# made again, and nobody waits for whoever measures on this machine.
AS_IF_ALONE = """
import os, sys
if "pytest_ngraph.commands.noise_session" in sys.orig_argv:
    os.environ["NGRAPH_TESTS_LOCKS"] = {folder!r}
    import tests.support.brief, tests.support.one_thread, tests.support.undelayed, tests.support.undisturbed
    import tests.support.workers
    tests.support.workers.pytest_configure()
    from pytest_ngraph.worker.counting import Counting
    Counting.why_not = lambda *_: ""
    with open({log!r}, "a") as log: log.write(f"{{os.getpid()}} {{os.getppid()}}\\n")
"""


# Beside other tests its visits may have to wait, and too few be left for a ratio.
@pytest.mark.measures
def test_a_session_is_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "sessions.log"
    (tmp_path / "sitecustomize.py").write_text(AS_IF_ALONE.format(folder=str(tmp_path), log=str(log)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.setenv(workers.ADDRESS, workers.FORK_SERVER.start())

    found = noise_session.in_a_process(Path(".ngraph/results.sqlite"), 3)

    assert found is not None
    assert -14 < found.latency < 0
    assert abs(found.ratio) < 0.5
    # One process for the session, and it is not this one.
    ((session, parent),) = [map(int, line.split()) for line in log.read_text().splitlines()]
    assert parent == os.getpid() != session


def test_a_profile_keeps_sessions_and_refuses_damaged_ones(tmp_path: Path) -> None:
    path = tmp_path / "noise-local.json"
    write_profile(QUIET, path)
    assert read_profile(path, "local")[0] == QUIET
    for wrong in ({"latency": "1"}, {"latency": -1.0}, {"count": 0}, {"count": True}, {"more": 1}):
        fields = json.loads(path.read_text())
        fields["sessions"].update(wrong)
        (tmp_path / "x.json").write_text(json.dumps(fields))
        assert read_profile(tmp_path / "x.json", "local") == (None, "x.json is damaged")
    fields = json.loads(path.read_text())
    del fields["sessions"]
    path.write_text(json.dumps(fields))
    found, _ = read_profile(path, "local")
    assert found is not None
    assert found.sessions is None


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--noise", "--sessions=5"], "expected a whole number of at least 6"),
        (["--noise", "--sessions=6", "--every=soon"], "expected seconds greater than 0"),
    ],
)
def test_sessions_are_asked_for_rightly(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", *words])
    assert complaint in capsys.readouterr().err


def test_sessions_without_a_profile_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--sessions=6"]) == 2
    assert "--sessions: given without --noise" in capsys.readouterr().err
