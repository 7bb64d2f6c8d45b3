"""A remote device, end to end on this machine: a real hub, real agents, and what becomes of it all when they die."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.lab.remote import RemoteBench, remote_bench
from pytest_ngraph.devices.local import LocalBench
from pytest_ngraph.devices.registry import DeviceEntry, Registry
from pytest_ngraph.errors import DeviceLost, DeviceOffline, DeviceUnusable, NgraphError, SpecError
from pytest_ngraph.launches.client import Job
from pytest_ngraph.launches.launch import GroupTooLarge, LaunchPlan
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, ModelRef, Outcome, Reading, Visit, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import ROOT, Suite, skip_without
from tests.support.lab import Lab, eventually
from tests.support.measuring import SMALL, is_gone, wait_until
from tests.support.telling import adapter_that_writes, holding

# A hub is gone and connections to it are refused: tornado leaves such a socket to the collector, whenever that comes.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)

ADAPTER = adapter_that_writes("{os.getpid()}")
MODELS = """
from pathlib import Path

import torch

from sizes import width


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = float(Path("data/bias.txt").read_text())
        self.layer = torch.nn.Linear(width(), width())

    def forward(self, x):
        return torch.relu(self.layer(x)) + self.bias

    def example_inputs(self, batch):
        return torch.randn(batch, width())

    def evaluate(self, predict):
        x = torch.linspace(-1, 1, 5 * width()).reshape(5, width())
        given = predict(x)
        near = torch.isclose(given, self(x), atol=1e-3).all(1)
        return {"near": near, "row": given.argmax(1) == given[:1].argmax()}


def net():
    return Net()


def broken():
    raise RuntimeError("no such size")
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A hub and an agent that live for all tests of this file; who ends one starts it again."""
    skip_without("distributed", "cryptography")
    with Lab(tmp_path_factory.mktemp("lab")) as lab:
        lab.start_hub()
        lab.start_agent("orin")
        yield lab


@pytest.fixture
def rootdir(tmp_path: Path) -> Path:
    """A user's repository, which is installed nowhere."""
    folder = tmp_path / "repository"
    files = {
        "adapters/mine.py": ADAPTER,
        "models/nets.py": MODELS,
        "models/sizes.py": "def width():\n    return 16\n",
        "data/bias.txt": "0.5",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    return folder


class Client:
    """What a pytest run has of a remote device."""

    def __init__(self, lab: Lab, rootdir: Path, **settings: Any) -> None:
        self.lab, self.rootdir = lab, rootdir
        self.notes: list[str] = []
        self.catalogue = Catalogue()
        self.catalogue.add("telling", "mine:ADAPTER")
        store = rootdir / ".ngraph" / "results.sqlite"
        given = {
            "seed": 0,
            "protocol": SMALL,
            "timeout_seconds": 60.0,
            "threads": 1,
            "wait_seconds": 0.0,
            "store": store,
        }
        given |= settings
        self.settings = cast(Settings, SimpleNamespace(**given))
        self._benches: list[RemoteBench] = []

    def bench(self, name: str = "orin", user: str = "alice", **entry: Any) -> RemoteBench:
        known = DeviceEntry(name, "lab", **{"resource": name, **entry})
        registry = Registry({"lab": self.lab.entry(user)}, {name: known})
        folders = [str(self.rootdir / "adapters"), str(self.rootdir / "models"), str(self.rootdir)]
        made = remote_bench(
            name, registry, self.settings, self.catalogue, lambda: folders, self.rootdir, self.notes.append
        )
        self._benches.append(made)
        return made

    def close(self) -> None:
        for bench in self._benches:
            bench.close()


@pytest.fixture
def client(lab: Lab, rootdir: Path) -> Iterator[Client]:
    client = Client(lab, rootdir)
    yield client
    client.close()


class Sink:
    """A sink that keeps what it is told, and may do something about it."""

    def __init__(self, react: Callable[[str], None] = lambda kind: None) -> None:
        self.kinds: list[str] = []
        self.moments: list[str] = []
        self.records: dict[Cell, CompileRecord] = {}
        self.visits: dict[tuple[Cell, int], Visit] = {}
        self._react = react

    def _told(self, kind: str) -> None:
        self.kinds.append(kind)
        self._react(kind)

    def surroundings(self, when: str, snapshot: Mapping[str, Any]) -> None:
        self.moments.append(when)
        self._told("surroundings")

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        self.records[cell] = record
        self._told("prepared")

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        self.visits[cell, block] = visit
        self._told("visited")

    def block_done(self, block: int, readings: tuple[Reading, Reading] | None) -> None:
        self._told("block_done")

    def progress(self, doing: str, done: int, total: int) -> None:
        self._react("progress")


def cell(compiler: str, model: ModelRef | str = "block:conv", batch: int = 1, device: str = "orin") -> Cell:
    reference = parse_model(model) if isinstance(model, str) else model
    return Cell(device, CompilerSpec.parse(compiler), Workload(reference, batch))


def plan(*cells: Cell, seed: int = 1) -> LaunchPlan:
    return LaunchPlan(cells, SMALL, seed)


def telling(file: Path, ms: float = 1) -> Cell:
    return cell(f"telling[file={file},ms={ms:g}]")


def nothing(doing: str, done: int, total: int) -> None:
    pass


# As on this machine


def twin(bench: RemoteBench, client: Client, folder: Path) -> LocalBench:
    """Return the same device as a bench of this machine."""
    names = {name: client.catalogue.place(name) for name in client.catalogue}
    path = (str(client.rootdir / "models"), str(client.rootdir / "adapters"), *sys.path)
    job = Job(path, bench.device, 0, folder / "artifacts", folder / "logs", names, 30.0)
    return LocalBench(job, client.catalogue, SMALL, 0)


def steps(sink: Sink) -> list[str]:
    """Return what a launch told, but for what it says of a cell again where something else ran beside its visits."""
    begins = sink.kinds.index("visited")
    return [kind for place, kind in enumerate(sink.kinds) if place < begins or kind != "prepared"]


def test_it_says_and_measures_what_a_bench_of_this_machine_does(client: Client, tmp_path: Path) -> None:
    bench = client.bench()
    local = twin(bench, client, tmp_path)
    assert bench.device.name == "orin"
    assert set(bench.device.cpus) == os.sched_getaffinity(0)
    assert bench.device.threads == 1
    cells = [cell("null"), cell("null[fixed_us=200]", batch=2)]
    assert bench.keys(cells) == local.keys(cells)
    assert all(bench.keys(cells).values())
    assert bench.artifacts(cells) == local.artifacts(cells)
    assert set(bench.artifacts(cells).values()) == {""}
    assert bench.refusals(cells) == local.refusals(cells) == {}
    known = [name for name in client.catalogue if name != "telling"]
    assert {name: bench.missing(name) for name in known} == {name: local.missing(name) for name in known}
    assert bench.missing("telling") is None
    for text in ("block:conv", "timm:resnet18", "pkg.module:net"):
        assert bench.missing_for(parse_model(text)) == local.missing_for(parse_model(text))
    facts = bench.facts()
    assert facts["agent"] == "orin"
    assert {key: facts[key] for key in ("node", "machine", "cpu")} == {
        key: local.facts()[key] for key in ("node", "machine", "cpu")
    }
    here, there = Sink(), Sink()
    with local.held(client.notes.append):
        local.launch(plan(*cells), here)
    with bench.held(client.notes.append):
        bench.launch(plan(*cells), there)
    assert steps(there) == steps(here)
    assert there.moments == here.moments == ["begun", "blocks", "blocks", "ended"]
    assert set(there.visits) == set(here.visits) == {(each, block) for each in cells for block in range(SMALL.blocks)}
    for each in cells:
        assert there.records[each].placement == here.records[each].placement
        quick = min(min(visit.wall_ns) / visit.calls for (which, _), visit in there.visits.items() if which == each)
        assert quick >= {1: 50_000, 2: 200_000}[each.workload.batch]
    with local.held(client.notes.append):
        _, mine, _ = local.memory(cells[0], SMALL, 1)
    before, record, after = bench.memory(cells[0], SMALL, 1)
    assert record.outcome is Outcome.OK
    assert record.peak_memory_bytes is not None
    assert mine.peak_memory_bytes is not None
    assert 0.5 < record.peak_memory_bytes / mine.peak_memory_bytes < 2
    assert after["at"] > before["at"]


@pytest.mark.real
def test_a_model_of_a_users_repository_is_built_and_measured_there(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("torch")
    bench = client.bench()
    local = twin(bench, client, tmp_path)
    model = parse_model("models/nets.py:net", (client.rootdir,))
    mine = cell("identity", model)
    assert bench.keys([mine])[mine] is None
    assert bench.artifacts([mine])[mine] is None
    doing: list[str] = []
    (answer,) = bench.build([mine], lambda what, done, total: doing.append(what))
    assert doing == ["building models/nets.py:net batch1"]
    monkeypatch.chdir(client.rootdir)
    with local.held(client.notes.append):
        (built,) = local.build([mine], nothing)
    assert answer["ok"], answer
    assert answer["key"] == built["key"]
    # What it is does not depend on where it lies.
    assert bench.keys([mine]) == local.keys([mine])
    key = answer["key"]
    assert bench.artifacts([mine])[mine] == key
    sink = Sink()
    bench.launch(LaunchPlan((mine,), SMALL, 1, {mine: key}), sink)
    assert sink.records[mine].outcome in (Outcome.OK, Outcome.UNSTABLE), sink.records[mine]
    assert {each for each, _ in sink.visits} == {mine}
    doing.clear()
    _, record, _ = bench.evaluate(mine, SMALL, 1, lambda what, done, total: doing.append(what))
    assert record.outcome is Outcome.OK, record.reason
    assert record.evaluation is not None
    assert (record.evaluation.samples, record.evaluation.calls) == (5, 5)
    assert record.evaluation.names == ["near", "row"]
    assert record.evaluation.scores[0].flags() == [True] * 5
    assert record == local.evaluate(mine, SMALL, 1, nothing)[1]
    assert doing[0] == "evaluating, 1 samples"
    other = parse_model("models/nets.py:broken", (client.rootdir,))
    (failed,) = bench.build([replace(mine, workload=replace(mine.workload, model=other))], nothing)
    assert failed["ok"] is False
    assert "no such size" in failed["reason"]


@pytest.mark.real
def test_what_was_edited_is_sent_when_it_is_looked_at_again(client: Client) -> None:
    """What was packed does not change during a run. A session that stays open has it look again."""
    skip_without("torch")
    bench, file = client.bench(), client.rootdir / "models" / "nets.py"
    mine, as_it_was = cell("identity", parse_model("models/nets.py:net", (client.rootdir,))), file.read_text()
    (answer,) = bench.build([mine], nothing)
    assert answer["ok"], answer
    known = bench.keys([mine])
    assert known[mine] is not None
    assert bench.artifacts([mine])[mine] == answer["key"]
    try:
        file.write_text(as_it_was + "\nEDITED = True\n")
        assert bench.keys([mine]) == known
        bench.look_again()
        assert bench.keys([mine])[mine] != known[mine]
        assert bench.artifacts([mine])[mine] != answer["key"]
    finally:
        file.write_text(as_it_was)
    bench.look_again()
    assert bench.keys([mine]) == known


@pytest.mark.real
def test_an_onnx_file_goes_along_wherever_it_lies(client: Client, tmp_path: Path) -> None:
    from tests.devices.test_devices_shipping import onnx_model

    model = onnx_model(tmp_path / "elsewhere")
    mine = cell("onnxruntime", model, batch=2)
    bench = client.bench()
    (answer,) = bench.build([mine], nothing)
    assert answer["ok"], answer
    sink = Sink()
    bench.launch(plan(mine), sink)
    assert sink.records[mine].outcome in (Outcome.OK, Outcome.UNSTABLE), sink.records[mine]


@pytest.mark.real
def test_the_sizes_of_open_dimensions_go_along_with_an_onnx_file(client: Client, tmp_path: Path) -> None:
    from tests.workloads.test_workloads_dims import two_open

    bench, sink = client.bench(), Sink()
    mine = cell("onnxruntime", two_open(tmp_path / "m.onnx", S=5), batch=2)
    unsized = replace(mine, workload=replace(mine.workload, model=two_open(tmp_path / "m.onnx")))
    answer, refused = bench.build([mine, unsized], nothing)
    assert answer["ok"], answer
    assert not refused["ok"]
    assert "dimension 1 (S) of input 'x' is open; give it a size" in refused["reason"]
    bench.launch(plan(mine), sink)
    assert sink.records[mine].outcome in (Outcome.OK, Outcome.UNSTABLE), sink.records[mine]
    assert {each for each, _ in sink.visits} == {mine}


def test_a_model_outside_the_rootdir_is_refused_here(client: Client, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("")
    with pytest.raises(SpecError, match="is outside the rootdir"):
        client.bench().keys([cell("identity", parse_model(f"{tmp_path}/other.py:net"))])


def test_a_group_that_is_too_large_says_so_as_on_this_machine(client: Client, tmp_path: Path) -> None:
    sink = Sink()
    slow = replace(plan(telling(tmp_path / "told", ms=60)), splittable=True, slow_call_seconds=0.05)
    with pytest.raises(GroupTooLarge, match="a call"):
        client.bench().launch(slow, sink)
    assert sink.moments[-1] == "ended"


@pytest.mark.parametrize(
    ("trouble", "outcome", "words"),
    [
        ("segfault", Outcome.CRASH, "SIGSEGV"),
        ("memory_error", Outcome.OOM, "memory"),
        ("hang", Outcome.TIMEOUT, "no answer"),
    ],
)
def test_crash_hang_and_memory_are_outcomes_of_the_cell(
    client: Client, trouble: str, outcome: Outcome, words: str
) -> None:
    client.catalogue.add("bad", "tests.support.bad_compilers:COMPILER")
    bench = client.bench(timeout_seconds=6.0, env={"PYTHONPATH": str(ROOT)})
    guilty, good = cell(f"bad[do={trouble},at=call]"), cell("null")
    sink = Sink()
    bench.launch(plan(good, guilty), sink)
    assert sink.records[guilty].outcome is outcome
    assert words in sink.records[guilty].reason
    assert {each for each, _ in sink.visits} == {good}


def test_a_suite_with_a_compiler_of_its_own_runs_there(lab: Lab, suite: Suite) -> None:
    suite.add_compilers()
    suite.write(
        """
@pytest.mark.ngraph(model="block:conv", batch=4)
def test_faster(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.5)
"""
    )
    elsewhere = (f"--ngraph-config={lab.registry('orin')}", "--ngraph-device=orin")
    result = suite.run(*elsewhere, compiler="mine,crashing")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*device orin*", "*SIGSEGV*"])
    # What is in the store is not asked of the device again.
    suite.run(*elsewhere, compiler="mine").stdout.fnmatch_lines(["measured 0 launches*"])


# Who may measure


def test_its_environment_has_no_thread_limits_that_were_not_given(
    lab: Lab, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    lab.start_agent("limited")
    try:
        seen = client.bench("limited").facts()["environment"]
        assert {name for name in seen if name.endswith("_THREADS")} == set()
        given = client.bench("limited", env={"OMP_NUM_THREADS": "2"})
        assert given.facts()["environment"]["OMP_NUM_THREADS"] == "2"
        no_threads = Client(lab, client.rootdir, threads=None)
        assert no_threads.bench("limited", env={"OMP_NUM_THREADS": "2"}).device.threads == 2
        assert no_threads.bench("limited").device.threads == len(os.sched_getaffinity(0))
        no_threads.close()
    finally:
        lab.agents.pop("limited").end()


def test_a_device_that_is_not_as_expected_is_an_error_that_says_both(client: Client) -> None:
    with pytest.raises(DeviceUnusable, match="agent 'orin': it is not as the registry expects: machine is"):
        client.bench(expect={"machine": "riscv"})
    with pytest.raises(DeviceUnusable, match="GiB of memory are free, min_free asks for"):
        client.bench(min_free={"memory": 1 << 60})
    with pytest.raises(DeviceUnusable, match="python: /nowhere/python cannot be started"):
        client.bench(python="/nowhere/python")


def test_another_release_is_an_error_that_names_both(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_ngraph.devices.doors import handshake

    mine = handshake.mine()
    monkeypatch.setattr(handshake, "mine", lambda: {**mine, "distributed": "1999.1.0"})
    with pytest.raises(DeviceUnusable, match=rf"distributed is {mine['distributed']} there and 1999\.1\.0 here"):
        client.bench()


def test_a_device_that_was_never_seen_or_went_away_is_offline_at_once(lab: Lab, client: Client) -> None:
    began = time.monotonic()
    with pytest.raises(DeviceOffline, match=r"agent 'xeon' was never seen by the hub; run there: ngraph agent xeon"):
        client.bench("xeon")
    lab.start_agent("gone").end()
    lab.agents.pop("gone")
    with pytest.raises(
        DeviceOffline,
        match=r"device 'gone': agent 'gone' is offline since (\d{4}-\d\d-\d\d )?\d\d:\d\d; run there: ngraph",
    ):
        client.bench("gone")
    assert time.monotonic() - began < 60


def test_it_is_waited_for_as_long_as_was_said(lab: Lab, client: Client) -> None:
    patient = Client(lab, client.rootdir, wait_seconds=2.0)
    began = time.monotonic()
    with pytest.raises(DeviceOffline):
        patient.bench("xeon")
    assert 2 <= time.monotonic() - began < 60
    (note,) = patient.notes
    assert note.endswith("run there: ngraph agent xeon; waiting for it up to 2 s")


def test_the_first_free_board_of_a_pool_is_taken_and_kept(lab: Lab, client: Client, tmp_path: Path) -> None:
    lab.start_agent("a", "--pool=boards")
    lab.start_agent("b", "--pool=boards")
    try:
        other = Client(lab, client.rootdir)
        with holding(tmp_path / "told", 1):
            busy = Running(other.bench("boards", resource=None, pool="boards"), telling(tmp_path / "told", 50), 5)
            eventually("somebody compiles", lambda: (tmp_path / "told").exists())
            mine = client.bench("boards", resource=None, pool="boards")
            taken = {each.facts()["agent"] for each in (busy.bench, mine)}
        assert taken == {"a", "b"}
        other.close()
        busy.join()
    finally:
        for name in ("a", "b"):
            lab.agents.pop(name).end()


def test_two_processes_of_a_run_do_not_measure_the_same(client: Client) -> None:
    first, second = client.bench(), client.bench()
    notes: list[str] = []
    order: list[str] = []

    def other() -> None:
        with second.held(notes.append):
            order.append("second")

    thread = threading.Thread(target=other)
    with first.held(notes.append):
        thread.start()
        eventually("the second waits", lambda: notes)
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]
    assert notes == ["waiting for device 'orin': another process measures there for this store"]


# Whoever dies


class Running:
    """A launch in a thread of its own."""

    def __init__(self, bench: RemoteBench, cell: Cell, seed: int) -> None:
        self.bench, self.sink = bench, Sink()
        self.error: NgraphError | None = None
        self._thread = threading.Thread(target=self._run, args=(cell, seed), daemon=True)
        self._thread.start()

    def _run(self, cell: Cell, seed: int) -> None:
        try:
            self.bench.launch(plan(cell, seed=seed), self.sink)
        except NgraphError as error:
            self.error = error

    def join(self, seconds: float = 60) -> float:
        """Wait for its end and return how long that took."""
        began = time.monotonic()
        self._thread.join(seconds)
        assert not self._thread.is_alive()
        return time.monotonic() - began


def compiling(told: Path) -> int:
    """Wait until a worker compiles, and return its process id."""
    return int(eventually("a worker compiles", lambda: told.exists() and told.read_text().split())[-1])


# Calls that make a launch last for half a minute and more: it does not end by itself before somebody ends it.
SLOW = 3000.0


def test_a_bench_that_is_let_go_of_ends_its_request_and_frees_the_device(client: Client, tmp_path: Path) -> None:
    told = tmp_path / "told"
    running = Running(client.bench(), telling(told, SLOW), 1)
    worker = compiling(told)
    running.bench.close()
    running.join()
    assert isinstance(running.error, DeviceLost)
    assert wait_until(lambda: is_gone(worker), 60)


def test_a_ctrl_c_frees_the_device_at_once_and_the_bench_goes_on(client: Client, tmp_path: Path) -> None:
    told = tmp_path / "told"

    def interrupt(kind: str) -> None:
        if kind == "prepared":
            raise KeyboardInterrupt

    bench = client.bench()
    with pytest.raises(KeyboardInterrupt):
        bench.launch(plan(telling(told, 1000)), Sink(interrupt))
    assert wait_until(lambda: is_gone(compiling(told)), 60)
    sink = Sink()
    bench.launch(plan(cell("null")), sink)
    assert sink.visits


def test_what_the_suite_raises_is_not_taken_for_a_lost_link(client: Client) -> None:
    def full(kind: str) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        client.bench().launch(plan(cell("null")), Sink(full))


def test_a_client_that_is_killed_frees_the_device(client: Client, tmp_path: Path) -> None:
    told, code = tmp_path / "told", tmp_path / "client.py"
    code.write_text(
        f"""
import sys
from pathlib import Path
from tests.support.lab import Lab
from tests.devices.test_devices_remote import Client, Sink, plan, telling
lab = Lab(Path({str(client.lab.folder)!r}))
lab.address = {client.lab.address!r}
bench = Client(lab, Path({str(client.rootdir)!r})).bench(user="bob")
bench.launch(plan(telling(Path({str(told)!r}), {SLOW}), seed=7), Sink())
"""
    )
    client.lab.entry("bob")
    other = subprocess.Popen([sys.executable, str(code)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        worker = compiling(told)
    finally:
        other.kill()
        other.wait(60)
    assert wait_until(lambda: is_gone(worker), 60)
    sink = Sink()
    client.bench().launch(plan(cell("null"), seed=8), sink)
    assert sink.visits


def test_an_agent_that_is_killed_is_lost_at_once_and_comes_back_by_itself(client: Client, tmp_path: Path) -> None:
    told = tmp_path / "told"
    bench = client.bench()
    running = Running(bench, telling(told, SLOW), 1)
    worker = compiling(told)
    client.lab.agents["orin"].end(signal.SIGKILL)
    running.join()
    assert isinstance(running.error, DeviceLost)
    assert "agent 'orin' was killed" in str(running.error)
    assert wait_until(lambda: is_gone(worker), 60)
    client.lab.start_agent("orin", joins=False)
    # It is met again without anybody doing anything.
    sink = Sink()
    bench.launch(plan(cell("null"), seed=2), sink)
    assert sink.visits


def test_a_device_that_comes_back_with_other_packages_is_not_measured(client: Client, tmp_path: Path) -> None:
    python = tmp_path / "python"

    def install(release: str) -> None:
        about = tmp_path / release / f"pytest_benchmark-{release}.dist-info" / "METADATA"
        about.parent.mkdir(parents=True)
        about.write_text(f"Metadata-Version: 2.1\nName: pytest-benchmark\nVersion: {release}\n")
        python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / release} exec {sys.executable} "$@"\n')
        python.chmod(0o755)

    install("1.0")
    bench = client.bench(python=str(python))
    client.lab.agents["orin"].end(signal.SIGKILL)
    install("2.0")
    client.lab.start_agent("orin", joins=False)
    # It was lost, as the next request would find out.
    bench._exchange._link.drop()

    sink = Sink()
    for _ in range(2):
        # Not the second time, either.
        with pytest.raises(DeviceUnusable, match=r"came back with pytest-benchmark 2\.0 \(it was 1\.0\); .*run again"):
            bench.launch(plan(cell("null"), seed=12), sink)
    assert sink.visits == {}


def test_a_result_outlives_its_hub_and_is_not_measured_twice(client: Client, tmp_path: Path) -> None:
    told = tmp_path / "told"
    bench, mine = client.bench(), telling(told, 200)
    with holding(told, 1):
        running = Running(bench, mine, 1)
        worker = compiling(told)
        assert client.lab.hub is not None
        client.lab.hub.end(signal.SIGKILL)
        running.join()
        assert isinstance(running.error, DeviceLost)
        assert not is_gone(worker)
    client.lab.start_hub()
    sink = Sink()
    bench.launch(plan(mine), sink)
    assert len(told.read_text().split()) == 1
    assert {block for _, block in sink.visits} == set(range(SMALL.blocks))
    assert sink.moments == ["begun", "blocks", "ended"]
    # And once more to another run, from the disk.
    again = Sink()
    client.bench().launch(plan(mine), again)
    assert again.visits == sink.visits
    assert len(told.read_text().split()) == 1


def test_a_link_that_goes_silent_is_lost_in_time(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pytest_ngraph.devices.lab import link

    monkeypatch.setattr(link, "_PULSE_SECONDS", 1.5)
    monkeypatch.setattr(link, "_PATIENCE_SECONDS", 3.0)
    told = tmp_path / "told"
    running = Running(client.bench(), telling(told, SLOW), 1)
    compiling(told)
    assert client.lab.hub is not None
    # A hub that is stopped is like a link that is cut: nothing comes, nothing is refused.
    client.lab.hub.popen.send_signal(signal.SIGSTOP)
    try:
        running.join()
    finally:
        client.lab.hub.popen.send_signal(signal.SIGCONT)
    assert isinstance(running.error, DeviceLost)
    assert "does not answer for" in str(running.error)


def test_patience_ends_before_35_seconds() -> None:
    from pytest_ngraph.devices.lab import link

    assert link._PATIENCE_SECONDS + 2 * link._PULSE_SECONDS <= 35


def test_a_missing_line_is_an_error_and_lines_come_in_order() -> None:
    from pytest_ngraph.devices.lab.exchange import InOrder
    from pytest_ngraph.devices.wire import wire

    lines: list[str] = []
    sent = wire.Lines(lines.append)
    for text in "abc":
        sent.note(text)
    sent.answer(5)
    heard: list[str] = []
    sink = SimpleNamespace(note=heard.append)
    ordered = InOrder((), sink)
    for line in (lines[2], lines[0], lines[0], lines[1], lines[2], lines[3]):
        ordered.receive(line)
    assert heard == list("abc")
    assert ordered.answer["value"] == 5
    gap = InOrder((), sink)
    gap.receive(lines[0])
    gap.receive(lines[3])
    with pytest.raises(DeviceUnusable, match="line 1 of the device's answer is missing"):
        gap.answer  # noqa: B018
    with pytest.raises(DeviceUnusable, match="a line of the kind 'note' was not asked for"):
        InOrder((), SimpleNamespace()).receive(lines[0])


# Another Python


def other_pythons() -> Iterator[str]:
    """Yield interpreters of other minors, the oldest first, of pyenv (whose shims are none) and of the path."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for minor in (10, 11, 12, 13, 14):
        found = [*map(str, pyenv.glob(f"versions/3.{minor}.*/bin/python")), shutil.which(f"python3.{minor}")]
        yield from (python for python in found if python is not None and minor != sys.version_info[1])


def with_packages(python: str, folder: Path) -> str | None:
    """Return an interpreter with what an agent needs, in an environment made of this one; None where it cannot be."""
    # Without a pip of its own, and of what is installed only that is compiled which is imported: a third of the time.
    if subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], capture_output=True).returncode:
        return None
    made = str(folder / "bin" / "python")
    wanted = [f"distributed=={version('distributed')}", "cryptography", "numpy", "scipy", "psutil", "pytest", "tomli"]
    pip = [sys.executable, "-m", "pip", "--python", made, "install", "-q", "--no-compile"]
    if subprocess.run([*pip, *wanted], capture_output=True, timeout=400).returncode:
        return None
    imports = "import distributed, cryptography.x509, psutil, scipy.optimize, scipy.special"
    kept = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([made, "-c", imports], env=kept, capture_output=True, check=True)
    # This package as if it were installed there.
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "ngraph.pth").write_text(f"{ROOT}\n")
    about = packages / "pytest_ngraph-0.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text(f"Metadata-Version: 2.1\nName: pytest-ngraph\nVersion: {version('pytest-ngraph')}\n")
    return made


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter of another minor with what an agent needs."""
    folder = tmp_path_factory.mktemp("other")
    for number, python in enumerate(other_pythons()):
        made = with_packages(python, folder / str(number))
        if made is not None:
            return made
    pytest.skip("no other Python with distributed, cryptography, numpy, scipy, psutil and pytest can be had here")


@pytest.mark.real
def test_an_agent_in_another_python(lab: Lab, client: Client, other_python: str) -> None:
    lab.start_agent("other", python=other_python)
    try:
        bench = client.bench("other")
        assert bench.facts()["python"].split(".")[:2] != sys.version.split()[0].split(".")[:2]
        assert bench.facts()["versions"]["pytest-ngraph"] == version("pytest-ngraph")
        sink = Sink()
        bench.launch(plan(cell("null", device="other")), sink)
        assert sink.visits
        # The interpreter that measures may be another one than the agent's, too.
        mine = client.bench(python=other_python)
        assert mine.facts()["python"] == bench.facts()["python"]
        sink = Sink()
        mine.launch(plan(cell("null"), seed=3), sink)
        assert sink.visits
    finally:
        lab.agents.pop("other").end()


# Links that are cut


class Far:
    """A machine of its own, as far as the network goes: what ``python`` runs there reaches this one by one link."""

    def __init__(self, folder: Path, number: int) -> None:
        # Of this test alone: another run may be at it, or one that was killed have left its links.
        network = f"10.{212 + number}.{os.getpid() % 256}"
        self.here, self.there = f"{network}.1", f"{network}.2"
        self._link, self._pid = f"ng{number}{uuid.uuid4().hex[:6]}", folder / f"pid{number}"
        self.python = str(folder / f"python{number}")
        up = f"ip link set {self._link}b up && ip addr add {self.there}/24 dev {self._link}b && ip link set lo up"
        Path(self.python).write_text(
            f"#!/bin/sh\nexec unshare -n sh -c 'echo $$ >{self._pid}; until {up}; do sleep 0.1; done; "
            f'exec {sys.executable} "$@"\' sh "$@"\n'
        )
        Path(self.python).chmod(0o755)

    def connect(self) -> None:
        """Lay the link to what was started there."""
        pid = eventually("something runs there", lambda: self._pid.exists() and self._pid.read_text().strip())
        ip("link", "add", self._link, "type", "veth", "peer", "name", f"{self._link}b", "netns", pid)
        ip("addr", "add", f"{self.here}/24", "dev", self._link)
        ip("link", "set", self._link, "up")

    def cut(self) -> None:
        """Let nothing pass any more, and nobody hear of it."""
        ip("link", "set", self._link, "down")

    def __enter__(self) -> Far:
        return self

    def __exit__(self, *_: object) -> None:
        # It ends with whatever runs there, sooner or later.
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "delete", self._link)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def may_have_networks() -> bool:
    tried = ["unshare", "-n", "ip", "link", "set", "lo", "up"]
    return bool(shutil.which("ip") and shutil.which("unshare")) and subprocess.run(tried).returncode == 0


@pytest.mark.real
def test_links_that_are_cut_are_lost_in_time(tmp_path: Path, rootdir: Path) -> None:
    skip_without("distributed", "cryptography")
    if not may_have_networks():
        pytest.skip("networks of one's own need root, ip and unshare")
    code, ready, go, told = (tmp_path / name for name in ("client.py", "ready", "go", "told"))
    with Far(tmp_path, 1) as board, Far(tmp_path, 2) as user, Lab(tmp_path / "lab") as lab:
        lab.folder.mkdir()
        lab.start_hub("--host=0.0.0.0")
        port = lab.address.rpartition(":")[2]
        lab.address = f"tls://{board.here}:{port}"
        agent = lab.start_agent("far", joins=False, python=board.python)
        board.connect()
        agent.wait_for("has joined the hub")
        lab.address = f"tls://127.0.0.1:{port}"
        lab.start_agent("near")
        code.write_text(
            f"""
import time
from pathlib import Path
from pytest_ngraph.errors import DeviceLost
from tests.support.lab import Lab, eventually
from tests.devices.test_devices_remote import Client, Running, cell
lab = Lab(Path({str(lab.folder)!r}))
lab.address = "tls://{user.here}:{port}"
bench = Client(lab, Path({str(rootdir)!r})).bench("near")
bench.keys([cell("null")])
Path({str(ready)!r}).touch()
eventually("go", Path({str(go)!r}).exists)
running = Running(bench, cell("null"), 1)
running.join(100)
assert isinstance(running.error, DeviceLost), running.error
Path({str(told)!r}).write_text(str(time.time()))
"""
        )
        other = subprocess.Popen([user.python, str(code)], env={**os.environ, "PYTHONPATH": str(ROOT)})
        client = Client(lab, rootdir)
        try:
            user.connect()
            eventually("the other client is ready", ready.exists)
            measuring = Running(client.bench("far"), telling(tmp_path / "compiled", SLOW), 1)
            compiling(tmp_path / "compiled")
            # It waits for the first, as both agents are on this machine.
            go.touch()
            time.sleep(1)
            began = time.time()
            board.cut()
            user.cut()
            measuring.join(60)
            assert isinstance(measuring.error, DeviceLost)
            # The limits are 35 s at most, as the test of patience says; this machine has others to serve, too.
            assert time.time() - began < 60
            assert other.wait(60) == 0
            assert float(told.read_text()) - began < 60
        finally:
            other.kill()
            other.wait(60)
            client.close()
