"""Other sides on a remote device: what travels, what is of the device, what is refused, and what is resumed."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import sys
import threading
import venv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_ngraph.devices.agent import permissions, tasks
from pytest_ngraph.devices.agent.permissions import Permissions
from pytest_ngraph.devices.lab.remote import RemoteBench
from pytest_ngraph.devices.local import LocalBench
from pytest_ngraph.devices.wire import shipping, wire
from pytest_ngraph.devices.wire.sides import MOST_SIDES, known_runtimes, sent_sides
from pytest_ngraph.errors import DeviceLost, DeviceUnusable, SpecError
from pytest_ngraph.launches.client import Job
from pytest_ngraph.launches.launch import LaunchPlan
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.sides import SidesOfRun, read
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Outcome, Workload
from pytest_ngraph.spec.sides import NOT_THERE
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import QUICK_GATES, Suite, skip_without
from tests.devices.test_devices_remote import Client, Sink, nothing
from tests.devices.test_devices_shipping import onnx_model
from tests.support import forking_agent, linear_net, wheels
from tests.support import git_repository as repositories
from tests.support.git_repository import commit, git
from tests.support.lab import Lab, eventually
from tests.support.measuring import SMALL, TIMED
from tests.support.telling import adapter_that_writes, holding

pytestmark = [
    pytest.mark.real,
    # As in test_devices_remote.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"),
]

NAME = "ngraph_tests_layer"
DASHED = NAME.replace("_", "-")
ADAPTER = """
import time
from pathlib import Path

from pytest_ngraph import Compiler, Executable, Option
from speed import MS, WHERE


class Waiting(Executable):
    placement = {"provider": WHERE}

    def __init__(self, hold):
        self._hold, self._bound = hold, False

    def bind(self, inputs):
        # Not before the visits begin.
        while self._bound and self._hold.exists():
            time.sleep(0.05)
        self._bound = True

    def run(self):
        time.sleep(MS / 1000)

    def outputs(self):
        return None


class Mine(Compiler):
    name = "mine"
    reads = "nothing"
    requires = REQUIRES
    options = (Option("file", "", "A file", kind="text"),)

    def compile(self, workload, device, options):
        if options["file"]:
            with open(options["file"], "a") as file:
                file.write(f"{WHERE}\\n")
        return Waiting(Path(options["file"] + ".hold"))


ADAPTER = Mine()
"""


def adapter(*requires: str) -> str:
    return ADAPTER.replace("REQUIRES", repr(requires))


def speed(where: str, ms: float = 1) -> str:
    return f"WHERE = {where!r}\nMS = {ms!r}\n"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A hub, and an agent whose pip looks in a folder of wheels and which may compare with an environment."""
    skip_without("distributed", "cryptography")
    folder = tmp_path_factory.mktemp("lab")
    for version in ("1.0", "1.1"):
        wheels.write(folder / "wheels", NAME, version)
    settings = folder / "home" / "config" / "pip" / "pip.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[global]\nno-index = true\nfind-links = {folder / 'wheels'}\n")
    with Lab(folder, agents=forking_agent.prepared(folder)) as lab:
        lab.start_hub()
        lab.start_agent("orin", "--allow-packages", f"--allow-python={folder / 'env'}")
        yield lab


class Compared(Client):
    """A client whose repository has the branch main, and which measures it beside what is here."""

    def __init__(self, lab: Lab, rootdir: Path, **settings: Any) -> None:
        super().__init__(lab, rootdir, against_outputs="same", offline=False, **settings)
        self.catalogue.add("mine", "adapters:ADAPTER")
        self.labels: dict[str, str] = {}

    def against(self, *texts: str, agent: str = "orin", **entry: Any) -> RemoteBench:
        bench = self.bench(agent, **entry)
        sides = SidesOfRun(texts, self.settings, self.rootdir, self.notes.append)
        self.labels |= {text: side.label for text, side in bench.take_sides(sides).items()}
        return bench

    def pair(self, compiler: str = "mine", model: str = "block:conv", text: str = "main") -> tuple[Cell, Cell]:
        here = Cell("orin", CompilerSpec.parse(compiler), Workload(parse_model(model, (self.rootdir,)), 1))
        return here, replace(here, side=self.labels[text])

    def agent_folder(self) -> Path:
        return self.lab.folder / "home" / "cache" / "ngraph" / "agents" / "orin"

    def local(self, folder: Path, bench: RemoteBench, *texts: str) -> LocalBench:
        """Return the same device as a bench of this machine."""
        sides = SidesOfRun(texts, self.settings, self.rootdir, self.notes.append).here
        names = {name: self.catalogue.place(name) for name in self.catalogue}
        path = (str(self.rootdir), *sys.path)
        known = {side.label: side for side in sides.values()}
        job = Job(path, bench.device, 0, folder / "artifacts", folder / "logs", names, 30.0, sides=known)
        return LocalBench(job, self.catalogue, SMALL, 0)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    files = {
        ".gitignore": ".ngraph/\n__pycache__/\n",
        "adapters.py": adapter(),
        "speed.py": speed("there"),
        "mine.py": adapter_that_writes("x"),
    }
    return repositories.make(tmp_path / "repository", files)


@pytest.fixture
def client(lab: Lab, repository: Path) -> Iterator[Compared]:
    client = Compared(lab, repository)
    yield client
    client.close()


def built(bench: RemoteBench, *cells: Cell) -> dict[Cell, str]:
    """Build what is read, and return its keys."""
    lacking = [cell for cell, key in bench.artifacts(cells).items() if key is None]
    for answer in bench.build(lacking, nothing) if lacking else ():
        assert answer["ok"], answer
    return {cell: key for cell, key in bench.artifacts(cells).items() if key}


# What is measured


def test_a_revision_travels_and_is_measured_beside_what_is_here(
    client: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (client.rootdir / "speed.py").write_text(speed("here"))
    monkeypatch.syspath_prepend(str(client.rootdir))
    bench = client.against("main")
    here, there = client.pair()
    assert there.side == f"main@{git(client.rootdir, 'rev-parse', '--short=7', 'main')}"
    assert bench.refusals([here, there]) == {}
    keys = bench.keys([here, there])
    assert keys[here] != keys[there]
    local = client.local(tmp_path / "local", bench, "main")
    assert keys == local.keys([here, there])
    local.close()
    for name in ("adapters", "speed"):
        sys.modules.pop(name, None)
    assert bench.same_content([there]) == set()
    sink = Sink()
    bench.launch(LaunchPlan((here, there), replace(SMALL, blocks=4), 1), sink)
    assert [dict(sink.records[cell].placement).get("provider") for cell in (here, there)] == ["here", "there"]
    assert dict(sink.records[there].placement)["side"] == there.side
    # A machine that others disturb goes on for further blocks.
    blocks = {block for _, block in sink.visits}
    assert blocks >= {*range(4)}
    assert set(sink.visits) == {(cell, block) for cell in (here, there) for block in blocks}
    _, record, _ = bench.memory(there, SMALL, 1)
    assert record.outcome is Outcome.OK, record.reason
    # Nothing but archives that are named by their contents came to the device, and each is whole.
    for blob in (client.agent_folder() / "blobs").iterdir():
        assert shipping.content_of(blob) == blob.name


def test_what_no_cell_is_made_of_does_not_count(client: Compared) -> None:
    (client.rootdir / "notes.txt").write_text("nothing that is measured\n")
    bench = client.against("main")
    here, there = client.pair()
    assert None not in bench.keys([here, there]).values()
    assert bench.same_content([there]) == {there}
    (client.rootdir / "other.txt").write_text("committed\n")
    git(client.rootdir, "tag", "first")
    commit(client.rootdir, {}, "second")
    both = client.against("first", "HEAD")
    (_, first), (_, second) = client.pair(text="first"), client.pair(text="HEAD")
    assert both.same_content([second], first.side) == {second}


def test_a_changed_model_is_a_mismatch_there_unless_it_is_meant(lab: Lab, client: Compared) -> None:
    skip_without("torch")
    commit(client.rootdir, {"nets.py": linear_net.source()}, "a net")
    (client.rootdir / "nets.py").write_text(linear_net.source("2 * self.layer(x)"))
    bench = client.against("main")
    here, there = client.pair("identity", "nets.py:net")
    keys, sink = built(bench, here, there), Sink()
    assert bench.same_content([there]) == set()
    assert keys[here] != keys[there]
    bench.launch(LaunchPlan((here, there), SMALL, 1, keys), sink)
    assert sink.records[here].outcome in TIMED
    assert sink.records[there].outcome is Outcome.MISMATCH
    assert "gives other outputs here than on main@" in sink.records[there].reason
    own = Compared(lab, client.rootdir)
    own.settings = cast(Settings, SimpleNamespace(**{**vars(client.settings), "against_outputs": "own"}))
    try:
        meant, sink = own.against("main"), Sink()
        meant.launch(LaunchPlan((here, there), SMALL, 1, keys, own_outputs=True), sink)
        assert [sink.records[cell].outcome in TIMED for cell in (here, there)] == [True, True], sink.records
        assert meant.keys([there]) != bench.keys([there])
    finally:
        own.close()


def test_what_building_says_of_a_side_is_said_with_the_paths_of_the_side(client: Compared) -> None:
    skip_without("torch")
    commit(client.rootdir, {"nets.py": linear_net.source() + "\nraise RuntimeError(__file__)\n"}, "broken")
    (client.rootdir / "nets.py").write_text(linear_net.source())
    bench = client.against("main")
    _, there = client.pair("identity", "nets.py:net")
    (answer,) = bench.build([there], nothing)
    assert answer["ok"] is False
    assert f"{there.side}/nets.py" in answer["reason"]
    assert str(client.agent_folder()) not in answer["reason"].partition("\n")[0]


def test_an_onnx_file_is_that_of_its_side_and_one_that_is_new_is_not_there(client: Compared) -> None:
    onnx_model(client.rootdir / "models")
    commit(client.rootdir, {}, "a model")
    bench = client.against("main")
    here, there = client.pair("onnxruntime", "onnx:models/model.onnx")
    assert bench.refusals([here, there]) == {}
    # What proves to be the same is built on neither side.
    assert not built(bench, here, there)
    assert bench.same_content([there]) == {there}
    # Its weights are another file: what the device has of here says nothing of there.
    (client.rootdir / "models" / "weights.bin").write_bytes(b"\0" * 64)
    shutil.copytree(client.rootdir / "models", client.rootdir / "new")
    changed = client.against("main")
    assert changed.same_content([there]) == set()
    keys, sink = built(changed, here, there), Sink()
    assert keys[here] != keys[there]
    assert changed.same_content([there]) == set()
    changed.launch(LaunchPlan((here, there), SMALL, 1, keys), sink)
    assert sink.records[there].outcome is Outcome.MISMATCH, sink.records[there]
    only_here, not_there = client.pair("onnxruntime", "onnx:new/model.onnx")
    refused = changed.refusals([only_here, not_there])
    assert set(refused) == {not_there}
    assert refused[not_there].startswith(NOT_THERE)


def test_a_suite_compares_with_a_revision_on_a_device(lab: Lab, suite: Suite) -> None:
    (suite.path / ".gitignore").write_text(".ngraph/\n__pycache__/\n")
    (suite.path / "adapters.py").write_text(adapter())
    (suite.path / "speed.py").write_text(speed("x", 2))
    (suite.path / "conftest.py").write_text(
        "def pytest_ngraph_compilers(catalogue):\n    catalogue.add('mine', 'adapters:ADAPTER')\n"
    )
    suite.write(
        """
from pytest_ngraph import assert_no_slower

@pytest.mark.ngraph(model="block:conv", batch=1, compilers="mine")
def test_change(ngraph_cell):
    assert_no_slower(ngraph_cell)
"""
    )
    repositories.make(suite.path)
    options = (
        "--ngraph-baseline=null", "--ngraph-protocol=quick", "--ngraph-quick-gates=fail", "--ngraph-against=main",
        f"--ngraph-config={lab.registry('orin')}", "--ngraph-device=orin",
    )  # fmt: skip
    base = git(suite.path, "rev-parse", "--short=7", "main")

    same = suite.bare(*options)
    (suite.path / "speed.py").write_text(speed("x", 4))
    slower = suite.bare(*options)
    again = suite.bare(*options)

    same.assert_outcomes(passed=1)
    same.stdout.fnmatch_lines([f"ngraph: against main@{base}", f"*against main@{base}: 1 cell unchanged"])
    assert "measured 0 launches (0 calls)" in same.stdout.str()
    slower.assert_outcomes(failed=1)
    slower.stdout.fnmatch_lines([f"*over main@{base}*", "*fail: 0.[45]*x*", "*1 cell slower: mine block:conv batch1*"])
    again.assert_outcomes(failed=1)
    assert "measured 0 launches" in again.stdout.str()
    # Git is read here and nowhere else, and nothing is installed here for a device.
    assert not list((suite.path / ".ngraph" / "sides").glob(".package-*"))


def requests_of(lab: Lab) -> dict[str, str]:
    """Return the methods of the requests that the device remembers, each of which was a process there."""
    logs = (lab.folder / "home" / "cache" / "ngraph" / "agents" / "orin" / "logs" / "requests").glob("*.log")
    return {log.name: log.stem.split("-", 3)[3] for log in logs}


def test_a_run_of_unchanged_gates_costs_a_device_as_many_processes_as_one_gate(lab: Lab, suite: Suite) -> None:
    skip_without("torch")
    (suite.path / ".gitignore").write_text(".ngraph/\n__pycache__/\n")
    (suite.path / "nets.py").write_text(linear_net.source())
    gates = "".join(
        f"""
@pytest.mark.ngraph(model="nets.py:net", batch={batch}, compilers="identity", baseline="null")
def test_change_{batch}(ngraph_cell):
    assert_no_slower(ngraph_cell)
"""
        for batch in range(1, 4)
    )
    suite.write("from pytest_ngraph import assert_no_slower\n" + gates)
    repositories.make(suite.path)
    options = ("--ngraph-against=main", f"--ngraph-config={lab.registry('orin')}", "--ngraph-device=orin", *QUICK_GATES)

    def run() -> list[str]:
        before = requests_of(lab)
        result = suite.bare(*options)
        result.assert_outcomes(passed=3)
        result.stdout.fnmatch_lines(["*against main@*: 3 cells unchanged"])
        assert "measured 0 launches (0 calls)" in result.stdout.str()
        return sorted(method for log, method in requests_of(lab).items() if log not in before)

    # A look at the model says which files all of its batches are made of.
    assert run() == ["build", "hello", "known", "known"]
    assert run() == ["hello", "known"]


# What is stored


def compared_suite(suite: Suite, source: str = adapter()) -> None:
    """Write a repository with two gates, one of which has another speed on the branch main."""
    files = {
        ".gitignore": ".ngraph/\n__pycache__/\n",
        "adapters.py": source,
        "speed.py": speed("x", 2),
        "conftest.py": "def pytest_ngraph_compilers(catalogue):\n    catalogue.add('mine', 'adapters:ADAPTER')\n",
    }
    for name, text in files.items():
        (suite.path / name).write_text(text)
    suite.write(
        """
from pytest_ngraph import assert_no_slower

@pytest.mark.ngraph(model="block:conv", batch=1, compilers="mine")
def test_one(ngraph_cell):
    assert_no_slower(ngraph_cell)

@pytest.mark.ngraph(model="block:conv", batch=2, compilers="mine")
def test_two(ngraph_cell):
    assert_no_slower(ngraph_cell)
"""
    )
    repositories.make(suite.path)


def nowhere(lab: Lab) -> Path:
    """Write the registry of a lab that is not there, and for which nobody has a certificate."""
    file = lab.folder / "nowhere.toml"
    file.write_text('[hub.lab]\naddress = "tls://127.0.0.1:9"\nca = "/nowhere/ca.pem"\n[devices.orin]\nhub = "lab"\n')
    return file


COMPARED = ("--ngraph-baseline=null", *QUICK_GATES, "--ngraph-device=orin", "--ngraph-inconclusive=fail")


def test_offline_what_is_stored_of_both_sides_is_judged_and_nobody_is_asked(lab: Lab, suite: Suite) -> None:
    compared_suite(suite)
    online, offline = f"--ngraph-config={lab.registry('orin')}", (f"--ngraph-config={nowhere(lab)}", "--ngraph-offline")
    options = (*COMPARED, "--ngraph-against=main")

    # What was unchanged still is, and what was not measured is said by its name.
    suite.bare(*options, online, "-k", "one").assert_outcomes(passed=1)
    before = requests_of(lab)
    same = suite.bare(*options, *offline)
    same.assert_outcomes(passed=1, failed=1)
    same.stdout.fnmatch_lines(
        ["*block:conv batch2 over main@*: not in the store*", "*against main@*: 1 cell unchanged"]
    )
    assert requests_of(lab) == before

    # Measured since: it is that what is judged.
    (suite.path / "speed.py").write_text(speed("x", 6))
    suite.bare(*options, online, "-k", "one").assert_outcomes(failed=1)
    judged = suite.bare(*options, *offline)
    judged.assert_outcomes(failed=2)
    judged.stdout.fnmatch_lines(["*assert_no_slower: *orin:mine block:conv batch1 over main@*", "*fail: 0.[23]*x*"])
    judged.stdout.fnmatch_lines(["*throughput of orin:mine block:conv batch2 over main@*: not in the store*"])

    # On another revision nothing is stored at all.
    commit(suite.path, {}, "another")
    other = suite.bare(*options, *offline, "-k", "one")
    other.assert_outcomes(failed=1)
    base = git(suite.path, "rev-parse", "--short=7", "main")
    other.stdout.fnmatch_lines([f"*orin:mine block:conv batch1 over main@{base}: not in the store*"])


def test_offline_packages_of_a_device_are_known_by_what_was_asked_and_an_interpreter_is_not(
    lab: Lab, suite: Suite
) -> None:
    compared_suite(suite)
    (suite.path / "speed.py").write_text(speed("x", 1))
    packages = (*COMPARED, f"--ngraph-against=main,{NAME}==1.0", "-k", "one")
    online, offline = f"--ngraph-config={lab.registry('orin')}", (f"--ngraph-config={nowhere(lab)}", "--ngraph-offline")
    suite.bare(*packages, online).assert_outcomes(passed=1)

    judged = suite.bare(*packages, *offline)

    judged.assert_outcomes(passed=1)
    judged.stdout.fnmatch_lines([f"ngraph: against main@*+{DASHED}==1.0"])
    assert "measured 0 launches" in judged.stdout.str()
    refused = suite.bare(*COMPARED, "--ngraph-against=python:/opt/env", *offline)
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    assert "against 'python:/opt/env': device 'orin' knows which interpreter that is" in refused.stderr.str()


# What the device has


def test_a_package_is_the_devices_own_and_what_was_loaded_is_read_back(client: Compared) -> None:
    (client.rootdir / "adapters.py").write_text(f"import {NAME}\n" + adapter(NAME))
    one, two = f"{NAME}==1.0", f"{NAME}==1.1"
    # Of a first try, whatever became of that.
    for left in (client.agent_folder() / "sides").glob(f".package-{DASHED}-*"):
        shutil.rmtree(left)
    bench = client.against(one, two, f"main,{one}")
    assert client.labels[one] == f"{DASHED}==1.0"
    assert client.labels[f"main,{one}"].endswith(f"+{DASHED}==1.0")
    assert [note for note in client.notes if "installing" in note] != []
    assert not (client.rootdir / ".ngraph" / "sides").exists() or not list(
        (client.rootdir / ".ngraph" / "sides").glob(".package-*")
    )
    (_, old), (_, new) = client.pair(text=one), client.pair(text=two)
    # Here, on the device, it is not installed at all.
    with pytest.raises(SpecError, match=f"No module named '{NAME}'"):
        bench.missing("mine")
    sink = Sink()
    bench.launch(LaunchPlan((old, new), SMALL, 1), sink)
    kept = client.agent_folder() / "sides"
    for cell, version in ((old, "1.0"), (new, "1.1")):
        assert sink.records[cell].outcome in TIMED, sink.records[cell]
        loaded = dict(sink.records[cell].placement)[f"loaded {DASHED}"]
        assert loaded.startswith(f"{version} from {kept}/.package-{DASHED}-{version}-")
    assert bench.keys([old])[old] != bench.keys([new])[new]
    assert bench.same_content([old], new.side) == set()
    # It is installed once, for whoever asks.
    client.notes.clear()
    client.against(one)
    assert client.notes == []


def test_a_version_that_the_device_cannot_have_is_an_error_of_the_device(client: Compared) -> None:
    with pytest.raises(SpecError, match=rf"device 'orin': {DASHED}==9.9: no such version .*\(known: 1.0, 1.1\)"):
        client.against(f"{NAME}==9.9")


def test_a_package_that_is_damaged_or_another_by_now_is_not_measured(client: Compared) -> None:
    (client.rootdir / "adapters.py").write_text(f"import {NAME}\n" + adapter(NAME))
    text = f"{NAME}==1.0"
    bench = client.against(text)
    _, there = client.pair(text=text)
    (kept,) = (client.agent_folder() / "sides").glob(f".package-{DASHED}-1.0-*")
    (kept / "site-packages" / NAME / "__init__.py").write_text("VERSION = '9.9'\n")
    with pytest.raises(DeviceUnusable, match=rf"device 'orin': {DASHED}==1.0 is not there: it was, and is no longer"):
        bench.launch(LaunchPlan((there,), SMALL, 1), Sink())
    # Another run has it made again.
    again, sink = client.against(text), Sink()
    again.launch(LaunchPlan((there,), SMALL, 1), sink)
    assert sink.records[there].outcome in TIMED, sink.records[there]


def test_an_interpreter_is_the_devices_own_and_one_that_its_agent_allows(lab: Lab, client: Compared) -> None:
    home = lab.folder / "env"
    if not home.exists():
        venv.create(home, with_pip=False, symlinks=True)
        (site,) = home.glob("lib/python*/site-packages")
        import numpy as np

        (site / "numpy").symlink_to(Path(np.__file__).parent)
        for each in Path(np.__file__).parents[1].glob("numpy*.libs"):
            (site / each.name).symlink_to(each)
        for each in Path(np.__file__).parents[1].glob("numpy-*.dist-info"):
            (site / each.name).symlink_to(each)
    text = f"python:{home}"
    bench = client.against(text)
    _, there = client.pair(text=text)
    assert there.side.startswith("python:env@")
    sink = Sink()
    bench.launch(LaunchPlan((there,), SMALL, 1), sink)
    assert sink.records[there].outcome in TIMED, sink.records[there]
    assert dict(sink.records[there].placement)["python"].partition(" ")[2].startswith(str(home))


# What is refused


@pytest.mark.parametrize("path", ["/usr/bin/env", "{env}/../env2", "{env}/bin/python"])
def test_an_interpreter_that_the_agent_was_not_told_of_is_refused_by_name(
    lab: Lab, client: Compared, path: str
) -> None:
    given = path.format(env=lab.folder / "env")
    with pytest.raises(DeviceUnusable) as caught:
        client.against(f"python:{given}")
    assert f"device 'orin': python:{given} is no interpreter that its agent starts" in str(caught.value)
    assert f"(allowed: {lab.folder / 'env'}); let it with ngraph agent orin --allow-python={given}" in str(caught.value)


@pytest.mark.parametrize("path", ["python3", "~/env", "../env"])
def test_an_interpreter_of_a_device_is_an_absolute_path(client: Compared, path: str) -> None:
    with pytest.raises(DeviceUnusable, match=rf"python:{path} is of that device, and so an absolute path"):
        client.against(f"python:{path}")


def test_an_agent_that_was_told_nothing_installs_and_starts_nothing_but_measures_revisions(
    lab: Lab, client: Compared
) -> None:
    lab.start_agent("strict")
    with pytest.raises(SpecError) as caught:
        client.against(f"{NAME}==1.0", agent="strict")
    assert f"device 'strict': {DASHED}==1.0 is not there: its agent installs no packages" in str(caught.value)
    assert "let it with ngraph agent strict --allow-packages" in str(caught.value)
    with pytest.raises(DeviceUnusable, match=r"no interpreter that its agent starts \(allowed: none\)"):
        client.against(f"python:{lab.folder / 'env'}", agent="strict")
    bench = client.against("main", agent="strict")
    _, there = client.pair()
    assert bench.same_content([replace(there, device="strict")]) == {replace(there, device="strict")}


def request(bench: dict[str, Any], **asked: Any) -> str:
    made_of = {**json.loads(tasks.hello_request(ENTRY))["bench"], **bench}
    return wire.Request("known", made_of, {"cells": [], "others": [], **asked}, {"quiet_seconds": 60.0}).to_text()


ENTRY = cast(
    Any,
    SimpleNamespace(name="orin", cpus=None, threads=1, accelerator="cpu", python=None, env={}, expect={}, min_free={}),
)
SIDE = {"label": "main@1a2b3c4", "archive": "a" * 64, "files": {}, "runtimes": "", "content": ""}


def refused(text: str) -> str:
    answer = json.loads(tasks.run_cell(text))[-1][2]
    assert answer["ok"] is False
    return str(answer["reason"])


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(tasks.FOLDER_VARIABLE, str(tmp_path / "agent"))
    monkeypatch.setattr(permissions, "_GIVEN", [Permissions()])
    (tmp_path / "agent" / "blobs").mkdir(parents=True)
    return tmp_path / "agent"


@pytest.mark.parametrize(
    "wrong",
    [
        {"label": ""},
        {"label": "../../etc/\n\x1b[31m"},
        {"label": "x" * 61},
        {"label": 7},
        {"archive": "../" * 21 + "x"},
        {"archive": "A" * 64},
        {"archive": None},
        {"archive": ""},
        {"files": {"../x": ""}},
        {"files": {"a" * 32: "/etc"}},
        {"files": []},
        {"runtimes": "main"},
        {"runtimes": "onnxruntime==1.27.0", "content": ""},
        {"runtimes": "onnxruntime==1.27.0 ; rm -rf /", "content": "a" * 64},
        {"runtimes": "git+https://example.lab/x", "content": "a" * 64},
        {"runtimes": "--index-url=x", "content": "a" * 64},
        {"runtimes": ",".join(f"x{number}==1" for number in range(2000)), "content": "a" * 64},
        {"content": "a" * 64},
    ],
)
def test_no_side_is_anything_but_what_it_may_be(agent: Path, wrong: dict[str, Any]) -> None:
    reason = refused(request({"project": None, "sides": [{**SIDE, **wrong}]}))
    assert reason.startswith("the sides of the request cannot be understood: ")
    assert "\x1b" not in reason
    assert [path.name for path in agent.iterdir()] == ["blobs"]


def test_sides_that_are_too_many_or_twice_are_refused(agent: Path) -> None:
    many = [{**SIDE, "label": f"s{number}"} for number in range(MOST_SIDES + 1)]
    assert f"at most {MOST_SIDES} sides" in refused(request({"sides": many}))
    assert "two sides with one label" in refused(request({"sides": [SIDE, SIDE]}))
    assert "cannot be understood" in refused(request({"sides": {"main": SIDE}}))
    with pytest.raises(ValueError, match="at most"):
        sent_sides(many)


def put(content: str, data: bytes, size: int | None = None, offset: int = 0) -> dict[str, Any]:
    import base64

    asked = {
        "sha256": content,
        "size": len(data) if size is None else size,
        "offset": offset,
        "data": base64.b64encode(data).decode(),
    }
    return cast("dict[str, Any]", json.loads(tasks.put_blob(json.dumps(asked))))


def test_an_archive_that_is_false_half_twice_or_hostile_measures_nothing(agent: Path, tmp_path: Path) -> None:
    import hashlib
    import io
    import zipfile

    def zipped(name: str, data: bytes = b"A = 1\n") -> bytes:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, data)
        return packed.getvalue()

    mine = zipped("a.py")
    project = hashlib.sha256(mine).hexdigest()
    assert put(project, mine)["have"] is True
    # False: another content than its name says.
    other = zipped("b.py")
    false = put("b" * 64, other)
    assert false["ok"] is False
    assert "arrived damaged" in false["reason"]
    # Half of it, then a request that takes it for whole.
    whole = hashlib.sha256(other).hexdigest()
    assert put(whole, other[:20], len(other)) == {"ok": True, "have": False, "offset": 20}
    side = {**SIDE, "archive": whole}
    half = refused(request({"project": project, "sides": [side]}))
    assert f"the project {whole[:12]} is not here, or only a part of it; run again" in half
    # Twice, and out of order.
    assert put(whole, other[30:], len(other), 30)["offset"] == 20
    assert put(whole, other[20:], len(other), 20)["have"] is True
    assert put(whole, other)["have"] is True
    # Files without a project that they stand for.
    assert "the request has none of the project" in refused(request({"project": None, "sides": [side]}))
    # Out of its folder, and larger than it may be.
    for name in ("../escaped.py", "/etc/escaped.py", "a/../../escaped.py"):
        hostile = zipped(name)
        named = hashlib.sha256(hostile).hexdigest()
        assert put(named, hostile)["have"] is True
        reason = refused(request({"project": project, "sides": [{**side, "archive": named}]}))
        assert "which is not a plain file inside of it" in reason
    assert not list(tmp_path.rglob("escaped.py"))
    bomb = zipped("zeros.bin", b"\0" * (shipping.MOST_BYTES + 1))
    named = hashlib.sha256(bomb).hexdigest()
    assert put(named, bomb)["have"] is True
    assert "is larger than" in refused(request({"project": project, "sides": [{**side, "archive": named}]}))
    # Files of a model that nobody sent.
    assert "were not shipped" in refused(request({"project": project, "sides": [{**side, "files": {"c" * 32: ""}}]}))


def test_a_side_that_is_huge_does_not_leave(client: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(client.rootdir, {"large.bin": b"x" * 4096}, "large")
    (client.rootdir / "large.bin").unlink()
    git(client.rootdir, "rm", "-q", "--cached", "large.bin")
    bench = client.against("main")
    here, _ = client.pair()
    monkeypatch.setattr(shipping, "MOST_BYTES", 4000)
    with pytest.raises(SpecError, match=r"^main@\w{7} is too large for a remote device: .*large\.bin"):
        bench.keys([here])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"versions": [[DASHED, "1.1"]]}, "was asked for, and the device has"),
        ({"versions": []}, "was asked for, and the device has"),
        ({"labels": ["another==1.0"]}, "is not what was asked for"),
        ({"labels": []}, "are no names of"),
        ({"content": "../../x"}, "is no digest"),
        ({"content": None}, "is no text"),
    ],
)
def test_a_device_that_says_it_has_something_else_is_not_believed(said: dict[str, Any], why: str) -> None:
    good = {"labels": [f"{DASHED}==1.0"], "versions": [[DASHED, "1.0"]], "content": "a" * 64}
    asked = read(f"{NAME}==1.0")
    assert known_runtimes(asked, good).labels == (f"{DASHED}==1.0",)
    with pytest.raises((ValueError, TypeError), match=why):
        known_runtimes(asked, {**good, **said})


def test_half_an_answer_about_cells_is_refused_and_nothing_of_it_is_kept(
    client: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = client.against("main")
    here, there = client.pair()
    bench.expect({here: None, there: ""})
    link = bench._exchange._link
    one = [None, "a" * 64, False]
    for half in (
        None,
        [],
        [one],
        [one, one, one],
        [one, one[:2]],
        [one, [None, 7, False]],
        [one, [None, None, None]],
        "ab",
    ):
        answer = wire.result_of([json.dumps([0, "answer", {"ok": True, "value": half}])])
        with monkeypatch.context() as patched:
            patched.setattr(link, "ask", lambda task, text, on_line, answer=answer: answer)
            patched.setattr(bench._cargo, "_send", lambda *_: None)
            with pytest.raises(DeviceUnusable, match="what it knows of cells cannot be understood"):
                bench.keys([here, there])
    said = bench.keys([here, there])
    assert None not in said.values()
    assert said[here] != "a" * 64
    assert bench.same_content([there]) == {there}


def test_an_interpreter_of_before_sides_says_what_to_do(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request({})
    monkeypatch.setattr(wire, "PROTO", 1)
    assert re.fullmatch(r"the client speaks protocol \d, this agent 1; upgrade the older", refused(asked))


# What is resumed


def test_a_launch_of_two_sides_outlives_its_hub_and_is_not_measured_twice(client: Compared, tmp_path: Path) -> None:
    told = tmp_path / "told"
    (client.rootdir / "speed.py").write_text(speed("here", 200))
    commit(client.rootdir, {"speed.py": speed("there", 200)}, "slow")
    (client.rootdir / "speed.py").write_text(speed("here", 200))
    bench = client.against("main")
    pair = client.pair(f"mine[file={told}]")
    plan, lost = LaunchPlan(pair, SMALL, 1), list[BaseException]()

    def launch() -> None:
        try:
            bench.launch(plan, Sink())
        except DeviceLost as error:
            lost.append(error)

    with holding(told, 1):
        running = threading.Thread(target=launch)
        running.start()
        eventually("both sides are compiled", lambda: told.exists() and len(told.read_text().split()) == 2)
        assert client.lab.hub is not None
        client.lab.hub.end(signal.SIGKILL)
        running.join(60)
        assert len(lost) == 1
    client.lab.start_hub()
    sink = Sink()
    bench.launch(plan, sink)
    assert sorted(told.read_text().split()) == ["here", "there"]
    assert set(sink.visits) == {(cell, block) for cell in pair for block in range(SMALL.blocks)}
    again = Sink()
    client.against("main").launch(plan, again)
    assert again.visits == sink.visits
    assert sorted(told.read_text().split()) == ["here", "there"]
    # What is held to other outputs is another launch.
    with contextlib.suppress(DeviceLost):
        bench.launch(replace(plan, own_outputs=True), Sink())
    assert len(told.read_text().split()) == 4
