"""What an agent does, without a hub: requests run in children, and whatever becomes of them is JSON."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.agent import children, spool, tasks
from pytest_ngraph.devices.agent.measuring_process import Child
from pytest_ngraph.devices.bench import Sink
from pytest_ngraph.devices.doors import handshake
from pytest_ngraph.devices.lab import remote
from pytest_ngraph.devices.lab.remote import RemoteBench
from pytest_ngraph.devices.local import LOCK
from pytest_ngraph.devices.lock import lock_path
from pytest_ngraph.devices.registry import DeviceEntry, HubEntry
from pytest_ngraph.devices.wire import wire
from pytest_ngraph.errors import DeviceLost, DeviceUnusable, NgraphError
from pytest_ngraph.launches.launch import LaunchPlan
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Outcome, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import ROOT
from tests.support.measuring import SMALL, is_gone, wait_until

ENTRY = DeviceEntry("orin", "lab", "orin")
BAD = {"bad": "tests.support.bad_compilers:COMPILER"}


@pytest.fixture(autouse=True)
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an agent; afterwards nothing that it started lives."""
    folder = tmp_path / "agent"
    monkeypatch.setenv(tasks.FOLDER_VARIABLE, str(folder))
    yield folder
    assert wait_until(lambda: measuring() == [], 60), measuring()


def measuring() -> list[int]:
    """Return the measuring processes among the children of this process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(parent) == os.getpid() and b"pytest_ngraph.devices.agent.measuring" in command:
            found.append(int(folder.name))
    return found


def cell(compiler: str, batch: int = 1) -> Cell:
    return Cell("orin", CompilerSpec.parse(compiler), Workload(parse_model("block:conv"), batch))


def request(method: str, quiet: float = 60.0, entry: DeviceEntry = ENTRY, **asked: Any) -> wire.Request:
    device = Device("orin", tuple(sorted(os.sched_getaffinity(0))), 3)
    made_of = tasks.bench_of(entry, device, protocol=SMALL, seed=0, timeout_seconds=20.0, places=BAD)
    return wire.Request(method, made_of, asked, {"quiet_seconds": quiet})


def launch(*compilers: str, seed: int = 1) -> wire.Request:
    plan = LaunchPlan(tuple(cell(each) for each in compilers), SMALL, seed, patience_seconds=0.0)
    return request("launch", plan=wire.plan_to_json(plan))


def run(asked: wire.Request) -> Any:
    return answer_of(tasks.run_cell(asked.to_text()))


def answer_of(result: str) -> Any:
    return wire.value_of(wire.event_of(wire.lines_of(result)[-1]).values[0], "orin")


def error_of(result: str) -> str:
    with pytest.raises(NgraphError) as caught:
        answer_of(result)
    return str(caught.value)


class Heard:
    def __init__(self, result: str, *compilers: str) -> None:
        self.kinds: list[str] = []
        self.records: dict[str, Any] = {}
        self.visits = 0
        cells = tuple(cell(each) for each in compilers)
        for line in wire.lines_of(result)[:-1]:
            event = wire.event_of(line, cells)
            # Other tests of this machine may measure now, which is a note.
            self.kinds += [event.kind] if event.kind != "note" else []
            if event.kind == "prepared":
                self.records[compilers[cells.index(event.values[0])]] = event.values[1]
            self.visits += event.kind == "visited"


# Hello


def hello(entry: DeviceEntry = ENTRY) -> dict[str, Any]:
    said = json.loads(tasks.hello(tasks.hello_request(entry)))
    assert isinstance(said, dict)
    return said


@pytest.mark.real
def test_hello_says_what_both_the_agent_and_its_interpreter_are() -> None:
    said = hello(replace(ENTRY, expect={"machine": os.uname().machine}, min_free={"disk": 1, "memory": 1}))
    assert said["agent"] == handshake.mine()
    assert said["ok"] is True
    value = said["value"]
    assert value["pytest-ngraph"] == handshake.mine()["pytest-ngraph"]
    assert value["python"] == sys.version.split()[0]
    assert value["compilers"]["null"] is None
    assert "tensorrt" in value["compilers"]
    assert set(value["models"]) == {
        *("timm", "torchvision", "block", "onnx", "file", "import", "transformers", "transformers-folder")
    }
    assert value["facts"]["affinity"] == sorted(os.sched_getaffinity(0))
    assert value["fingerprint"]["node"] == os.uname().nodename
    assert value["free"]["disk"] > 0
    assert value["free"]["memory"] > 0
    assert value["unmet"] == []


@pytest.mark.real
def test_hello_says_what_is_not_as_expected() -> None:
    expect = {"machine": "riscv", "nvpmodel": "MAXN_SUPER", "pytest": "0.1", "colour": "green"}
    unmet = hello(replace(ENTRY, expect=expect, min_free={"disk": 1 << 60}))["value"]["unmet"]
    assert unmet[0] == f"machine is {os.uname().machine}, expected riscv"
    assert unmet[1] == "nvpmodel is None, expected MAXN_SUPER"
    assert unmet[2] == f"pytest is {pytest.__version__}, expected 0.1"
    assert unmet[3].startswith("it was expected that colour is green, and nothing there says so (known: ")
    assert unmet[4].endswith("GiB of disk are free, min_free asks for 1073741824.00 GiB")


def test_hello_to_an_agent_that_cannot_understand_says_what_it_is() -> None:
    said = json.loads(tasks.hello("garbage"))
    assert said["agent"] == handshake.mine()
    assert (said["ok"], said["error"]) == (False, "DeviceUnusable")


@pytest.mark.real
def test_an_interpreter_that_is_not_there_or_has_not_this_package_is_said(tmp_path: Path) -> None:
    said = hello(replace(ENTRY, python="/nowhere/python"))
    assert said["reason"] == "python: /nowhere/python cannot be started: No such file or directory"
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    said = hello(replace(ENTRY, python=str(bare)))
    assert "the process that measures exited with status 1" in said["reason"]
    assert "No module named" in said["reason"]


# The environment


@pytest.mark.real
def test_a_child_has_no_thread_limits_and_secrets_that_the_agent_has(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    for name in (*limits, "PYTEST_X", "API_TOKEN", "PYTHONWARNINGS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LC_NUMERIC", "C")
    seen = hello(replace(ENTRY, env={"MKL_NUM_THREADS": "6", "OWN": "yes"}))["value"]["facts"]["environment"]
    assert "OMP_NUM_THREADS" not in seen
    assert "OPENBLAS_NUM_THREADS" not in seen
    assert (seen["MKL_NUM_THREADS"], seen["OWN"], seen["LC_NUMERIC"]) == ("6", "yes", "C")
    assert {"PYTEST_X", "API_TOKEN", "PYTHONWARNINGS", tasks.FOLDER_VARIABLE} & set(seen) == set()
    result = tasks.run_cell(launch("bad").to_text())
    threads = json.loads(dict(Heard(result, "bad").records["bad"].placement)["import"])["threads"]
    # Those of the device, as on any machine.
    assert set(threads.values()) == {"3"}


@pytest.mark.real
def test_variables_of_the_registry_are_part_of_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    # Those of the agent do not reach the child.
    monkeypatch.setenv("KMP_BLOCKTIME", "1")

    def key(**variables: str) -> Any:
        entry = replace(ENTRY, env=variables)
        ((_, known, _),) = run(request("known", entry=entry, cells=[cell("null").to_json()], others=[None]))
        return [known]

    plain = key()
    monkeypatch.delenv("KMP_BLOCKTIME")
    assert key(OWN="yes") == plain
    assert len({*plain, *key(OMP_WAIT_POLICY="active"), *key(OMP_WAIT_POLICY="passive")}) == 3


@pytest.mark.real
def test_a_child_keeps_to_the_cpus_of_its_device() -> None:
    last = max(os.sched_getaffinity(0))
    value = hello(replace(ENTRY, cpus=(last,)))["value"]
    assert value["facts"]["affinity"] == [last]
    here = min(os.sched_getaffinity(0))
    # Linux itself takes the CPUs that are there and leaves the others out without a word.
    said = hello(replace(ENTRY, cpus=(here, 4095)))
    assert said["reason"].startswith("cpus: 4095 are not available (available: ")
    said = hello(replace(ENTRY, cpus=(4095,)))
    assert said["reason"].startswith("cpus: 4095 are not available (available: ")


# Requests


@pytest.mark.real
def test_a_launch_is_told_line_by_line_to_its_answer() -> None:
    compilers = ("null", "null[fixed_us=200]")
    result = tasks.run_cell(launch(*compilers).to_text())
    assert answer_of(result) is None
    heard = Heard(result, *compilers)
    assert heard.kinds[0] == "surroundings"
    assert heard.kinds[-1] == "surroundings"
    assert heard.kinds.count("surroundings") == 4
    assert heard.kinds.count("block_done") == SMALL.blocks
    assert heard.visits == SMALL.blocks * 2
    assert {record.outcome for record in heard.records.values()} <= {Outcome.OK, Outcome.UNSTABLE}


@pytest.mark.real
def test_what_else_a_bench_is_asked() -> None:
    cells = [cell("null"), cell("null[fixed_us=5]")]
    shown = [each.to_json() for each in cells]
    known = run(request("known", cells=shown, others=[None, None]))
    keys = [key for _, key, _ in known]
    assert all(len(key) == 64 for key in keys)
    assert keys[0] != keys[1]
    assert known == [[None, key, False] for key in keys]
    assert run(request("artifacts", cells=shown)) == ["", ""]
    assert run(request("missing", compilers=["bad"])) == {"bad": None}
    memory = request("memory", cell=shown[0], protocol=SMALL.to_json(), seed=1, once="x")
    before, record, after = run(memory)
    assert after["at"] > before["at"]
    assert record["outcome"] == "ok"
    assert record["peak_memory_bytes"] > 1 << 20
    alone = {"cell": shown[0], "protocol": SMALL.to_json(), "seed": 1, "once": "x"}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("evaluate", alone),
        ("agree", {**alone, "dense": shown[1], "samples": 8}),
    ]
    for method, fields in asked:
        before, record, after = run(request(method, **fields))
        assert after["at"] > before["at"]
        assert record["outcome"] == "failed"
        assert "its compiler reads nothing of the model" in record["reason"]


@pytest.mark.real
@pytest.mark.parametrize(
    ("trouble", "outcome", "words"),
    [
        ("bad[do=segfault,at=call]", Outcome.CRASH, "SIGSEGV"),
        ("bad[do=memory_error,at=call]", Outcome.OOM, "out of memory"),
        ("bad[do=failed,at=compile]", Outcome.FAILED, "cannot fold this node"),
    ],
)
def test_what_a_compiler_does_is_the_outcome_of_its_cell(trouble: str, outcome: Outcome, words: str) -> None:
    result = tasks.run_cell(launch("null", trouble).to_text())
    assert answer_of(result) is None
    heard = Heard(result, "null", trouble)
    assert heard.records[trouble].outcome is outcome
    assert words in heard.records[trouble].reason
    assert heard.visits == SMALL.blocks


@pytest.mark.real
def test_a_worker_that_hangs_is_ended_at_the_limit_of_a_cell() -> None:
    trouble = "bad[do=hang,at=call]"
    asked = launch("null", trouble)
    result = tasks.run_cell(replace(asked, bench={**asked.bench, "timeout_seconds": 6.0}).to_text())
    assert Heard(result, "null", trouble).records[trouble].outcome is Outcome.TIMEOUT


# What becomes of children


def with_adapter(folder: Path, code: str, quiet: float = 60.0) -> str:
    """Return a request for which a child imports an adapter that does something when it is imported."""
    (folder / "adapter.py").write_text(f"import os, signal, sys, time\n{code}\n")
    entry = replace(ENTRY, env={"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"})
    asked = request("missing", quiet, entry, compilers=["mine"])
    return replace(asked, bench={**asked.bench, "places": {"mine": "adapter:MINE"}}).to_text()


@pytest.mark.real
def test_a_child_that_crashes_is_said_with_its_signal_and_its_last_words(tmp_path: Path) -> None:
    asked = with_adapter(tmp_path, "print('before', file=sys.stderr); os.kill(os.getpid(), signal.SIGSEGV)")
    said = error_of(tasks.run_cell(asked))
    assert "the process that measures was ended by SIGSEGV (during 'missing')" in said
    assert "before" in said
    assert "adapter.py" in said


@pytest.mark.real
def test_a_child_that_leaves_is_said_with_its_status(tmp_path: Path) -> None:
    assert "exited with status 7" in error_of(tasks.run_cell(with_adapter(tmp_path, "os._exit(7)")))


@pytest.mark.real
def test_a_child_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""
import subprocess
child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
time.sleep(300)
"""
    said = error_of(tasks.run_cell(with_adapter(tmp_path, code, quiet=8.0)))
    assert "said nothing for 8 s and was ended" in said
    assert wait_until(lambda: all(is_gone(int(pid)) for pid in pids.read_text().split()), 60)


@pytest.mark.real
@pytest.mark.parametrize(
    "code",
    ["os.write(int(sys.argv[2]), b'\\xff not json {\\n')", "os.write(int(sys.argv[2]), b'[0,\"note\"]\\n')"],
)
def test_a_child_that_breaks_the_protocol_is_ended_and_what_it_wrote_is_said(tmp_path: Path, code: str) -> None:
    said = error_of(tasks.run_cell(with_adapter(tmp_path, f"{code}; time.sleep(300)")))
    assert "a line of the device cannot be understood" in said


@pytest.mark.real
def test_an_error_of_ours_comes_with_its_traceback(tmp_path: Path) -> None:
    said = error_of(tasks.run_cell(with_adapter(tmp_path, "raise RuntimeError('no such thing')")))
    assert "RuntimeError: no such thing" in said
    assert "adapter.py" in said


@pytest.mark.real
def test_what_is_printed_is_kept_for_the_latest_requests_only(tmp_path: Path, agent: Path) -> None:
    logs = agent / "logs" / "requests"
    logs.mkdir(parents=True)
    for number in range(30):
        (logs / f"20000101-0000{number:02}-x.log").write_text("old")
    tasks.run_cell(with_adapter(tmp_path, "print('printed')"))
    kept = sorted(logs.iterdir())
    assert len(kept) == 20
    assert kept[-1].name.endswith("-missing.log")
    assert "printed" in kept[-1].read_text()


@pytest.mark.parametrize("text", ["", "garbage", "{}", "[1]", '{"proto": 1}', '{"proto": 99}', "\ud800"])
def test_whatever_is_asked_the_answer_is_json(text: str) -> None:
    with pytest.raises(DeviceUnusable):
        answer_of(tasks.run_cell(text))
    assert json.loads(tasks.hello(text))["ok"] is False
    assert json.loads(tasks.put_blob(text))["ok"] is False


# Results that wait


@pytest.mark.real
def test_the_same_launch_is_not_measured_twice(monkeypatch: pytest.MonkeyPatch, agent: Path) -> None:
    first = tasks.run_cell(launch("null").to_text())

    def started(*_: object) -> None:
        raise AssertionError("a second child was started")

    with monkeypatch.context() as patched:
        patched.setattr(tasks, "Child", started)
        # Another limit is another text, and the same request.
        again = tasks.run_cell(replace(launch("null"), terms={"quiet_seconds": 99.0}).to_text())
        assert again == first
        assert "a second child" in error_of(tasks.run_cell(launch("null", seed=2).to_text()))
    assert len(list((agent / "spool").iterdir())) == 1


def test_a_result_of_other_software_is_not_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    evidence = "a"

    class Measuring:
        # Of no process.
        pid = 1 << 30

        def __init__(self, asked: wire.Request, *_: object) -> None:
            self._method = asked.method

        def receive(self, on_line: Callable[[str], None]) -> str:
            measured.append(self._method)
            return json.dumps([0, "answer", {"ok": True, "value": None}])

    class There:
        """An agent without a hub, whose evidence keys are as the test says."""

        agent = "orin"

        def __init__(self, *_: object) -> None:
            self.greeting = {"facts": {"affinity": [0], "power_mode": {}}}

        def send(self, *_: object) -> None:
            pass

        def ask(self, method: str, made_of: Callable[[], Any], asked: dict[str, Any], **_: object) -> Any:
            if method == "known":
                return [[None, evidence, False] for _ in asked["cells"]]
            # An agent of 0.3.0 reads no more of what is asked than the plan.
            assert set(asked) == {"plan", "evidence"}
            return run(wire.Request(method, made_of(), asked, {"quiet_seconds": 1.0}))

    def launched() -> None:
        given = {"wait_seconds": 0.0, "threads": 1, "timeout_seconds": 20.0, "protocol": SMALL, "seed": 0}
        settings = cast(Settings, SimpleNamespace(**given))
        hub = HubEntry("lab", "tls://hub:1", tmp_path, tmp_path, tmp_path)
        bench = RemoteBench(ENTRY, hub, settings, Catalogue(), list, tmp_path / "repository", print)
        bench.launch(LaunchPlan((cell("null"),), SMALL, 1), cast(Sink, None))

    (tmp_path / "repository").mkdir()
    monkeypatch.setattr(tasks, "Child", Measuring)
    monkeypatch.setattr(remote, "Exchange", There)
    launched()
    launched()
    assert measured == ["launch"]
    # The board has another release of something by now.
    evidence = "b"
    launched()
    assert measured == ["launch", "launch"]


@pytest.mark.real
def test_what_changed_since_its_evidence_was_asked_for_is_refused(tmp_path: Path) -> None:
    """Its launches would be kept with those of before. The next run asks again, and its keys are those of now."""
    adapter = tmp_path / "mine_changing.py"
    adapter.write_text("from pytest_ngraph.compilers.null import COMPILER\n")
    entry = replace(ENTRY, env={"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"})
    cells = (cell("null"), cell("mine"), cell("mine", 2))

    def asked(method: str, **fields: Any) -> wire.Request:
        one = request(method, entry=entry, **fields)
        return replace(one, bench={**one.bench, "places": {"mine": "mine_changing:COMPILER"}})

    def keys() -> list[str]:
        return [key for _, key, _ in run(asked("known", cells=[one.to_json() for one in cells], others=[None] * 3))]

    def launched(seed: int, evidence: Sequence[str | None]) -> str:
        plan = LaunchPlan(cells, SMALL, seed, patience_seconds=0.0)
        return tasks.run_cell(asked("launch", plan=wire.plan_to_json(plan), evidence=list(evidence)).to_text())

    before = keys()
    assert answer_of(launched(1, before)) is None
    adapter.write_text("from pytest_ngraph.compilers.null import COMPILER as COMPILER\n")
    result = launched(2, before)
    assert Heard(result).kinds == []
    said = error_of(result)
    assert said.startswith("device 'orin': packages or files on the device changed during this run, and ")
    assert ", ".join(one.label for one in cells[1:]) in said
    assert cells[0].label not in said
    assert "run again" in said
    # What was not known then is not held against what it is now.
    assert answer_of(launched(3, [before[0], None, None])) is None
    assert answer_of(launched(4, keys())) is None
    assert "the request" in error_of(launched(5, before[:2]))
    assert "the request" in error_of(launched(6, [*before[:2], 7]))  # type: ignore[list-item]
    # Nor is an untimed pass over one of them a result of its key.
    now, shown = keys(), [one.to_json() for one in cells]
    how: dict[str, Any] = {"protocol": SMALL.to_json(), "seed": 1, "once": "x"}
    for method, fields, of in (
        ("memory", {"cell": shown[1]}, [1]),
        ("evaluate", {"cell": shown[1]}, [1]),
        ("agree", {"cell": shown[0], "dense": shown[1], "samples": 8}, [0, 1]),
        ("power", {"cells": shown[:2]}, [0, 1]),
    ):
        said = error_of(
            tasks.run_cell(asked(method, **fields, **how, evidence=[before[each] for each in of]).to_text())
        )
        assert "changed during this run" in said, method
        assert cells[1].label in said
    held = asked("memory", cell=shown[1], **how, evidence=[now[1]])
    assert answer_of(tasks.run_cell(held.to_text()))[1]["outcome"] == "ok"


@pytest.mark.real
def test_keys_are_of_the_power_mode_in_which_the_run_began() -> None:
    """Else what is measured after a switch would have keys of its own, and nothing would say that it was switched."""

    def key(mode: Any) -> str:
        one = request("known", cells=[cell("null").to_json()], others=[None])
        return tasks.run_cell(replace(one, bench={**one.bench, "power_mode": mode}).to_text())

    first, other, hot = ({"nvpmodel": "pmode:0"}, {"nvpmodel": "pmode:2"}, {"highest clock (kHz)": "1"})
    (_, known, _), (_, switched, _), (_, none, _), (_, still_none, _) = (
        answer_of(key(mode))[0] for mode in (first, other, {}, hot)
    )
    assert len({known, switched, none}) == 3
    assert none == still_none
    for garbage in (["pmode:0"], {"nvpmodel": 0}, "pmode:0"):
        assert "the request" in error_of(key(garbage))


@pytest.mark.real
def test_what_failed_is_measured_again(monkeypatch: pytest.MonkeyPatch, agent: Path) -> None:
    def lost(*_: object) -> None:
        raise DeviceLost("gone")

    with monkeypatch.context() as patched:
        patched.setattr(tasks, "Child", lost)
        assert "gone" in error_of(tasks.run_cell(launch("null").to_text()))
    assert list((agent / "spool").iterdir()) == []
    assert answer_of(tasks.run_cell(launch("null").to_text())) is None


def test_a_full_disk_is_said_and_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "LEAST_FREE_BYTES", 1 << 62)
    monkeypatch.setattr(tasks, "Child", lambda *_: pytest.fail("a child was started"))
    assert "the disk is full" in error_of(tasks.run_cell(launch("null").to_text()))


def in_thread(work: Callable[[], str]) -> tuple[threading.Thread, list[str]]:
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    return thread, results


@pytest.mark.real
def test_a_request_that_comes_again_while_it_runs_waits_for_the_same_child(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    real = Child

    def counted(*arguments: Any) -> Any:
        starts.append(1)
        return real(*arguments)

    monkeypatch.setattr(tasks, "Child", counted)
    asked = launch("null").to_text()
    both = [in_thread(lambda: tasks.run_cell(asked)) for _ in range(2)]
    for thread, _ in both:
        thread.join(60)
    (one,), (other,) = (results for _, results in both)
    assert one == other
    assert len(starts) == 1


@pytest.mark.real
def test_a_task_that_is_taken_back_ends_its_child_and_frees_the_device(agent: Path) -> None:
    thread, results = in_thread(lambda: tasks.run_cell(launch("bad[do=hang,at=call]").to_text()))
    assert wait_until(lambda: bool(measuring()), 60)
    (child,) = measuring()
    assert wait_until(lambda: str(child) in lock_path(LOCK).read_text(), 60)
    children.kill(f"thread-{thread.ident}")
    thread.join(60)
    assert is_gone(child)
    assert "was ended by SIGKILL" in error_of(results[0])
    assert list((agent / "spool").iterdir()) == []
    began = time.monotonic()
    assert answer_of(tasks.run_cell(launch("null").to_text())) is None
    assert time.monotonic() - began < 60


@pytest.mark.real
def test_a_child_ends_with_its_agent(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    # It neither reads nor writes, so that nothing but its agent's end can end it.
    hanging = f"open({str(pid)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(300)"
    (tmp_path / "asked").write_text(with_adapter(tmp_path, hanging))
    code = f"from pytest_ngraph.devices.agent import tasks; tasks.run_cell(open({str(tmp_path / 'asked')!r}).read())"
    agent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        assert wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"), 60)
    finally:
        agent.kill()
        agent.wait(60)
    assert wait_until(lambda: is_gone(int(pid.read_text())), 60)


# The process itself


@pytest.mark.real
def test_a_request_that_is_large_and_of_many_lines_is_read_whole() -> None:
    asked = {**json.loads(tasks.hello_request(ENTRY)), "more": "x" * (1 << 20), "odd": "a\u2028b\x85c"}
    said = json.loads(tasks.hello(json.dumps(asked, indent=1, ensure_ascii=False)))

    assert said["ok"] is True


@pytest.mark.real
def test_a_measuring_process_that_is_forgotten_ends(tmp_path: Path) -> None:
    asked = wire.Request.from_text(tasks.hello_request(ENTRY))
    child = Child(asked, asked.to_text(), tmp_path)
    pid = child.pid
    del child
    gc.collect()

    assert wait_until(lambda: is_gone(pid), 60)
