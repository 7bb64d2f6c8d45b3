"""The session as suites meet it: stored verdicts, split groups, launches that do not count, files that change."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from pytest_ngraph.spec.cells import PROTOCOLS
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from tests.conftest import QUICK_GATES, Suite, skip_without
from tests.support.git_repository import commit, make
from tests.support.pretended import CONFTEST, TWICE, Pretended

# Gates, with launches that take a second each and are disturbed by nothing but what a test does to them.
SHORT = """
from dataclasses import replace
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.session import launcher
from pytest_ngraph.worker import counting
from pytest_ngraph.launches.reference import Reference
from pytest_ngraph.spec.cells import PROTOCOLS

PROTOCOLS["gate"] = replace(PROTOCOLS["gate"], blocks=4, visit_seconds=0.02, warmup_seconds=0.05)
environment.disturbance = lambda *_: ""
counting.why_disturbed = counting.why_changed = lambda *_, **__: ""
Reference.read = Reference.glance = lambda self: None
import tests.support.undelayed
"""
# Visits count however often others had the CPUs.
UNDELAYED = "tests.support.undelayed"
UNDECIDABLE = """
@pytest.mark.ngraph(model="block:conv", batch=1, tolerance=1e-9, budget=4)
def test_claim(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.0)
"""
SAME = ("--ngraph-compiler=null[fixed_us=1000]", "--ngraph-baseline=null[fixed_us=1000]", "--ngraph-inconclusive=fail")


def verdicts(suite: Suite) -> list[VerdictRow]:
    with Store.open(suite.store, read_only=True) as store:
        return [row for run in store.runs() for row in store.verdicts(run.id)]


def test_a_gate_that_was_inconclusive_stays_so_when_it_is_judged_again(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(SHORT)
    suite.write(UNDECIDABLE)

    first = suite.bare(*SAME)
    again = suite.bare(*SAME)
    offline = suite.bare(*SAME, "--ngraph-offline")

    first.assert_outcomes(failed=1)
    again.assert_outcomes(failed=1)
    offline.assert_outcomes(failed=1)
    one, other = verdicts(suite)
    # The same launches at the same levels: neither the interval nor the verdict may move.
    assert asdict(one) == asdict(other)
    assert (one.verdict, one.launches) == ("inconclusive", 4)
    interval = re.compile(r"inconclusive: .* launches")
    assert interval.search(offline.stdout.str()) is not None
    assert interval.findall(first.stdout.str())[0] == interval.findall(offline.stdout.str())[0]


def test_offline_the_summary_shows_what_is_judged_now(suite: Suite) -> None:
    body = UNDECIDABLE.replace("tolerance=1e-9, budget=4", "")
    options = (*QUICK_GATES, *SAME[:2])
    suite.write(body.replace("1.0)", "0.5)"))
    suite.bare(*options).stdout.fnmatch_lines(["verdicts: 1 not judged"])
    suite.write(body.replace("1.0)", "100.0)"))

    result = suite.bare(*options, "--ngraph-offline")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["verdicts: 1 fail"])


def test_a_launch_is_counted_once_however_many_calls_read_it(suite: Suite) -> None:
    pretended = Pretended(suite.pytester)
    pretended.write("""
def test_calls(ngraph):
    for batch in (1, 1, [1, 4]):
        ngraph.measure(model="block:conv", batch=batch)
    for one in ngraph.measure(model="block:conv", batch=[1, 4]): assert_speedup(one, at_least=1.5)
    assert_speedup(ngraph.measure(model="block:conv", batch=1), at_least=1.5)
""")

    first, again = pretended.bare(*TWICE), pretended.bare(*TWICE)

    first.stdout.fnmatch_lines(["measured 3 launches * reused 0 from the store"])
    again.stdout.fnmatch_lines(["measured 0 launches * reused 3 from the store"])


def test_a_group_that_does_not_fit_goes_in_parts_and_its_claims_hold(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text("""
from pytest_ngraph.machine import facts as environment
environment.spare_memory_share = lambda: 0.05
""")
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batches=[1, 4])
def test_claim(ngraph_batches):
    assert_bsr(ngraph_batches, batch=4, at_least=0.1)
""")

    result = suite.run(compiler="null[sample_us=20],null[sample_us=30]")

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*memory ran short with*each compiler gets launches of its own*"])
    with Store.open(suite.store, read_only=True) as store:
        cells = dict(store.cells(store.runs()[-1].id))
        launches = store.launches(cells)
    assert [len({cell.compiler for cell in record.prepared}) for record in launches] == [2, 2]


def test_one_compiler_and_its_baseline_are_not_split_further(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text("""
from pytest_ngraph.machine import facts as environment
environment.spare_memory_share = lambda: 0.05
""")
    suite.write(UNDECIDABLE.replace("tolerance=1e-9, budget=4", "").replace("1.0)", "0.0001)"))

    # With the second process of the baseline there are three, of which two go together anyway.
    result = suite.bare(*SAME[:2], plugins=UNDELAYED)

    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*launches of its own*")
    result.stdout.fnmatch_lines(["*measured 3 launches*"])


def test_a_launch_with_too_few_usable_visits_does_not_count_and_is_replaced(suite: Suite) -> None:
    # The visits of the first launch - two cells, eight blocks - are called unusable.
    (suite.path / "conftest.py").write_text("""
from dataclasses import replace
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.worker import counting

environment.disturbance = lambda *_: ""
real, seen = counting.summarise, []

def disturbed(visit):
    seen.append(visit)
    summary = real(visit)
    return replace(summary, ln_seconds=None) if len(seen) <= 16 else summary

counting.summarise = disturbed
""")
    suite.write(UNDECIDABLE.replace("tolerance=1e-9, budget=4", "").replace("1.0)", "0.0001)"))

    result = suite.bare(*SAME[:2], plugins=UNDELAYED)

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*launch 1 does not count: only 0 of 16 visits were usable*", "*measured 4 launches*"])


def test_a_cell_that_gets_its_memory_anew_now_and_then_decides_nothing(suite: Suite) -> None:
    # Every other visit maps and touches a megabyte in each call: 256 faults, and another speed.
    moody = """
import mmap
from pytest_ngraph.compilers.null import NullCompiler, NullExecutable

class Moody(NullExecutable):
    visits = 0

    def bind(self, inputs):
        self.visits += 1

    def run(self):
        if self.visits % 2:
            with mmap.mmap(-1, 1 << 20) as memory:
                for start in range(0, 1 << 20, 4096):
                    memory[start] = 1
        super().run()

class MoodyCompiler(NullCompiler):
    name = "moody"

    def compile(self, workload, device, options):
        return Moody(1_000_000)

COMPILER = MoodyCompiler()

def pytest_ngraph_compilers(catalogue):
    catalogue.add("moody", "conftest:COMPILER")
"""
    (suite.path / "conftest.py").write_text(SHORT + moody)
    suite.write(UNDECIDABLE.replace("tolerance=1e-9, budget=4", "budget=3").replace("1.0)", "0.01)"))

    result = suite.bare("--ngraph-compiler=moody", SAME[1], "--ngraph-inconclusive=fail")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*inconclusive*minor faults a call, depending on the visit*"])


def test_only_the_latest_run_can_be_resumed(suite: Suite) -> None:
    suite.write(UNDECIDABLE.replace("tolerance=1e-9, budget=4", "").replace("1.0)", "0.5)"))
    quick = PROTOCOLS["quick"]
    with Store.open(suite.store) as store:
        for uid, status in (("killed", ""), ("later", "finished")):
            run = store.start_run(
                uid, command=["pytest"], seed=0, protocol=quick, environment={}, fresh=False, resumed=False
            )
            if status:
                store.finish_run(run, status)
    options = ("--ngraph-protocol=quick", *SAME[:2], "--ngraph-resume")

    result = suite.bare(*options)

    result.stdout.fnmatch_lines(["*nothing to resume: a new run*"])
    with Store.open(suite.store) as store:
        store.start_run("other", command=["pytest"], seed=1, protocol=quick, environment={}, fresh=False, resumed=False)
    # Another seed measures other weights: that run is not this one.
    suite.bare(*options).stdout.fnmatch_lines(["*nothing to resume: a new run*"])
    with Store.open(suite.store) as store:
        store.start_run("mine", command=["pytest"], seed=0, protocol=quick, environment={}, fresh=False, resumed=False)
    suite.bare(*options).stdout.fnmatch_lines(["*resuming the run of*"])


def test_a_run_is_of_the_commit_of_its_rootdir_wherever_its_tests_have_gone(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_it(ngraph_cell, monkeypatch):
    monkeypatch.chdir("/")
    assert_speedup(ngraph_cell, at_least=0.01)
""")
    head = commit(make(suite.path, {"notes.txt": "a first commit"}), {"notes.txt": "another one"})

    suite.bare(*SAME, "--ngraph-protocol=quick").assert_outcomes(passed=1)

    with Store.open(suite.store, read_only=True) as store:
        (run,) = (each.on("local") for each in store.runs())
    assert run.environment["git_commit"] == head
    assert run.environment_end is not None
    assert run.environment_end["git_commit"] == head


NET = """
import torch
class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(64, 64)
    def example_inputs(self, batch):
        return torch.randn(batch, 64)
"""


@pytest.mark.real
def test_a_model_that_changes_while_it_is_measured_is_refused(suite: Suite) -> None:
    skip_without("torch")
    (suite.path / "conftest.py").write_text(SHORT)
    (suite.path / "net.py").write_text(NET)
    suite.write("""
from pathlib import Path

@pytest.mark.ngraph(model="net.py:Net", batch=1, tolerance=1e-9, budget=4)
def test_claim(ngraph_cell):
    assert ngraph_cell.latency.value > 0
    net = Path(__file__).with_name("net.py")
    net.write_text(net.read_text() + "# changed")
    assert_speedup(ngraph_cell, at_least=1.0)
""")

    result = suite.bare("--ngraph-compiler=identity", "--ngraph-threads=1")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its files changed while this run measured it; run again*"])


@pytest.mark.real
def test_an_exported_model_is_measured_and_reused_after_its_artifacts_are_gone(suite: Suite) -> None:
    skip_without("torch", "onnxruntime")
    import shutil

    suite.write("""
@pytest.mark.ngraph(model="block:conv", image_size=16, width=8, batch=2)
def test_claim(ngraph_cell):
    assert ngraph_cell.placement["provider"] == "CPUExecutionProvider"
    assert ngraph_cell.max_error < 1e-4
    assert ngraph_cell.export_seconds.value > 0
""")
    options = ("--ngraph-compiler=onnxruntime", "--ngraph-protocol=quick")
    suite.bare(*options).assert_outcomes(passed=1)
    shutil.rmtree(Path(suite.store).parent / "artifacts")

    again = suite.bare(*options)

    again.assert_outcomes(passed=1)
    again.stdout.fnmatch_lines(["measured 0 launches *, reused 1 from the store"])


# The second process of a baseline takes half as long again.
UNEVEN = CONFTEST.replace("wall_ns[cell] *= 1 if", "wall_ns[cell] *= 1 + cell.replica / 2 if")
FASTER = """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_claim(ngraph_cell):
    assert_speedup(ngraph_cell, at_least={bound})
"""
HALF = "--ngraph-compiler=null[fixed_us=490]"
WARN = "-Wdefault::pytest_ngraph.claims.assertions.InconclusiveWarning"


def test_a_baseline_whose_second_process_is_slower_makes_the_verdict_invalid(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(UNEVEN)
    suite.write(FASTER.format(bound=1.5))

    result = suite.bare(HALF, "--ngraph-baseline=null[fixed_us=990]", "--ngraph-inconclusive=fail")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*invalid: *x, 99 % interval *, 3 launches; the control is violated: null[[]fixed_us=990] against a second "
            "process of it is 0.6??x [[]*] over 3 launches and should be 1",
            "*what to do: end what else runs on this machine, or measure on another*",
            "verdicts: 1 invalid",
        ]
    )


def test_equal_processes_pass_and_the_second_is_in_no_table_and_no_export(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(CONFTEST)
    suite.write(FASTER.format(bound=1.5))

    result = suite.bare(
        HALF,
        "--ngraph-baseline=null[fixed_us=990]",
        "--ngraph-export=cells.csv",
        "--ngraph-benchmark-json=samples.json",
    )

    result.assert_outcomes(passed=1)
    with Store.open(suite.store, read_only=True) as store:
        cells = dict(store.cells(store.runs()[-1].id))
        assert [sum(cell.replica for cell in record.prepared) for record in store.launches(cells)] == [1, 1, 1]
    assert "second process" not in result.stdout.str()
    assert "A/A" not in result.stdout.str()
    rows = list(csv.DictReader((suite.path / "cells.csv").read_text(encoding="utf-8").splitlines()))
    assert {row["compiler"] for row in rows} == {"null[fixed_us=490]", "null[fixed_us=990]"}
    assert len([row for row in rows if row["metric"] == "latency"]) == 2
    samples = json.loads((suite.path / "samples.json").read_text(encoding="utf-8"))["benchmarks"]
    assert sorted(entry["fullname"] for entry in samples) == [
        "local:null[fixed_us=490] block:conv batch1",
        "local:null[fixed_us=990] block:conv batch1",
    ]


def test_a_fail_costs_four_launches_more_than_the_budget_and_the_next_run_none(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(CONFTEST)
    suite.write(FASTER.format(bound=2.2))
    options = (HALF, "--ngraph-baseline=null[fixed_us=990]", "--ngraph-budget=3")

    first = suite.bare(*options)
    again = suite.bare(*options)
    offline = suite.bare(*options, "--ngraph-offline")

    for result, measured in ((first, 7), (again, 0), (offline, 0)):
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [
                "*fail: *x, 98 % interval *, 7 launches; the first 3 launches said fail, 4 fresh ones confirmed it",
                "verdicts: 1 fail",
                f"*measured {measured} launch*",
            ]
        )
    one, other = verdicts(suite)
    assert asdict(one) == asdict(other)


@pytest.mark.parametrize(("choice", "outcome"), [("fail", "failed"), ("warn", "undecided"), ("skip", "skipped")])
def test_a_machine_on_which_no_launch_counts_makes_the_verdict_invalid(suite: Suite, choice: str, outcome: str) -> None:
    reason = "the cgroup's CPU quota stopped this process 12 times"
    (suite.path / "conftest.py").write_text(SHORT.replace('lambda *_: ""', f'lambda *_: "{reason}"'))
    suite.write(FASTER.format(bound=1.5))

    result = suite.bare(HALF, "--ngraph-baseline=null[fixed_us=990]", f"--ngraph-inconclusive={choice}", WARN)

    assert result.parseoutcomes() == {outcome: 1}
    said = f"3 launches do not count, and no further one was tried: {reason}"
    assert f"{'why' if choice == 'warn' else 'invalid'}: {said}" in " ".join(result.stdout.str().split())
    result.stdout.fnmatch_lines([f"*launch {number} does not count: {reason}*" for number in (1, 2, 3)])
    result.stdout.fnmatch_lines(["verdicts: 1 invalid"])
    (row,) = verdicts(suite)
    assert (row.verdict, row.launches, row.extra["reason"]) == ("invalid", 0, said)


def test_a_resumed_run_does_not_draw_the_seed_of_a_finished_launch_again(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first launch does not count, the fourth is cut short. By its seed an agent knows what it has measured.
    (suite.path / "conftest.py").write_text(f"""{SHORT}
import os

seen = []

def why_invalid(self, mode):
    seen.append(self)
    if os.environ.get("SCENE") == "first" and len(seen) == 4:
        raise KeyboardInterrupt
    return "disturbed" if os.environ.get("SCENE") == "first" and len(seen) == 1 else ""

launcher.StoreSink.why_invalid = why_invalid
""")
    suite.write(UNDECIDABLE)
    monkeypatch.setenv("SCENE", "first")
    suite.bare(*SAME)
    with Store.open(suite.store, read_only=True) as store:
        (run,) = store.runs()
        before = [launch.seed for launch in store.run_launches(run.id)]
        assert (len(before), store.incomplete_launches(run.id)) == (3, 1)
    monkeypatch.setenv("SCENE", "second")

    suite.bare(*SAME, "--ngraph-resume")

    with Store.open(suite.store, read_only=True) as store:
        seeds = [launch.seed for launch in store.run_launches(run.id)]
    assert seeds[:3] == before
    assert len(seeds) > 4
    assert len(set(seeds)) == len(seeds)


def test_a_long_launch_that_did_not_count_is_followed_by_shorter_ones(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(f"""{SHORT}
from pytest_ngraph.session import group_runner

group_runner._LONG_LAUNCH_SECONDS = 0.1
reasons = ["disturbed"]
launcher.StoreSink.why_invalid = lambda self, mode: reasons.pop() if reasons else ""
""")
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batches=[1, 2])
def test_sweep(ngraph_batches):
    ngraph_batches.ensure()
""")

    names = "null[fixed_us=900],null[fixed_us=700]"
    result = suite.run("--ngraph-protocol=gate", compiler=names, plugins=UNDELAYED)

    result.assert_outcomes(passed=2)
    with Store.open(suite.store, read_only=True) as store:
        cells = dict(store.cells(store.runs()[-1].id))
        records = store.launches(cells, include_invalid=True)
    compared = [{str(cell.compiler) for cell in record.prepared} - {"null[sample_us=200]"} for record in records]
    both = {"null[fixed_us=900]", "null[fixed_us=700]"}
    # All together at first; then each with the baseline, as often as the first look wants.
    assert compared[0] == both
    assert [len(each) for each in compared[1:]] == [1] * 6
    assert set.union(*compared[1:]) == both
