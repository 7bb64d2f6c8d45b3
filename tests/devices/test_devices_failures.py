"""What users see when things fail: whole pytest runs on a real lab of this machine, while somebody pulls plugs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import ROOT, skip_without
from tests.support import impatient
from tests.support.lab import Lab, Process, eventually
from tests.support.telling import adapter_that_writes, holding

ADAPTER = adapter_that_writes("{device.name} {workload.spec.model.text}")
CONFTEST = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("telling", "telling:ADAPTER")
    catalogue.add("bad", "bad_compilers:COMPILER")
"""
# A device that is lost is waited for as long as a test can wait.
IMPATIENT = "from pytest_ngraph.devices.lab import exchange\nexchange.REJOIN_SECONDS = 3.0\n"
# Launches of their own: their models differ.
SUITE = """
import pytest

@pytest.mark.ngraph(model="block:conv")
def test_conv(ngraph_cell):
    assert ngraph_cell.latency.value > 0

@pytest.mark.ngraph(model="block:mha")
def test_mha(ngraph_cell):
    assert ngraph_cell.latency.value > 0

@pytest.mark.ngraph(model="nets.py:net")
def test_mine(ngraph_cell):
    assert ngraph_cell.latency.value > 0
"""
# The launch that was cut short is measured again, and no other.
TWICE = ("block:conv", "block:mha", "block:mha", "nets.py:net")


class Repository:
    """A user's suite, the lab's registry beside it, and what its compiler tells."""

    def __init__(self, folder: Path, lab: Lab, *devices: str, suite: str = SUITE, impatient: bool = False) -> None:
        self.folder, self.told = folder, folder.with_name("told")
        self.registry = lab.registry(*devices)
        self._runs = 0
        files = {
            "telling.py": ADAPTER,
            "bad_compilers.py": (ROOT / "tests" / "support" / "bad_compilers.py").read_text(),
            "nets.py": "def net():\n    raise NotImplementedError\n",
            "conftest.py": (IMPATIENT if impatient else "") + CONFTEST,
            "test_suite.py": suite,
            "pytest.ini": "[pytest]\n",
        }
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        subprocess.run(["git", "add", "-A"], cwd=folder, check=True)

    def start(self, devices: str, *options: str, ms: float = 20, before: Sequence[str] = ()) -> Run:
        """Start pytest on some devices; ``before`` stands before its command."""
        self._runs += 1
        compiler = f"--ngraph-compiler=telling[file={self.told},ms={ms:g}]"
        common = ["-p", "ngraph", "-p", "no:cacheprovider", "-rA", "--ngraph-baseline=null", "--ngraph-protocol=quick"]
        chosen = [f"--ngraph-device={devices}", f"--ngraph-config={self.registry}"]
        if not any(option.startswith("--ngraph-compiler") for option in options):
            chosen.append(compiler)
        words = [*before, sys.executable, "-m", "pytest", *common, *chosen, *options]
        return Run(words, self.folder, self.folder.with_name(f"run-{self._runs}.log"))

    def holding(self, line: str) -> contextlib.AbstractContextManager[None]:
        """Let what tells this line measure one block and then no further, inside."""
        return holding(self.told, 2, line)

    def compiled(self) -> list[str]:
        """Return what was compiled so far: device and model."""
        return self.told.read_text().splitlines() if self.told.exists() else []

    def visits(self) -> dict[tuple[int, int, int], bytes]:
        """Return all committed samples."""
        path = self.folder / ".ngraph/results.sqlite"
        if not path.exists():
            return {}
        with contextlib.closing(sqlite3.connect(path, timeout=30)) as store:
            try:
                rows = store.execute("SELECT launch_id, cell_id, block, wall_ns FROM visits").fetchall()
            except sqlite3.OperationalError:
                # It is just being made.
                return {}
        return {(launch, cell, block): wall for launch, cell, block, wall in rows}


class Run:
    """A pytest run in a process of its own."""

    def __init__(self, words: Sequence[str], folder: Path, log: Path) -> None:
        self._log = log
        environment = {key: value for key, value in os.environ.items() if key not in ("CI", "PYTEST_ADDOPTS")}
        home = {"XDG_CONFIG_HOME": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                words,
                cwd=folder,
                env={**environment, **home, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._log.read_text(errors="replace")

    def when(self, what: str, is_so: Callable[[], Any], seconds: float = 120) -> None:
        """Wait until something is true; fail with what was waited for and what the run printed."""

        def found() -> bool:
            over = self.popen.poll() is not None
            return bool(is_so()) or over

        try:
            eventually(what, found, seconds)
        finally:
            if not is_so():
                self.popen.kill()
                raise AssertionError(f"{what}: never\n{self.output}")

    def end(self, seconds: float = 180) -> tuple[int, str]:
        """Wait for its end; return its status, and what it printed."""
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise AssertionError(f"not over after {seconds:g} s:\n{self.output}") from None
        return self.popen.returncode, self.output


def measured(output: str) -> tuple[int, int]:
    """Return how many launches a run says it measured and reused."""
    match = re.search(r"measured (\d+) launch.* reused (\d+)", output)
    assert match is not None, output
    return int(match[1]), int(match[2])


def passed(output: str) -> set[str]:
    return set(re.findall(r"^PASSED \S+::(\S+)", output, re.MULTILINE))


def failed(output: str) -> set[str]:
    return set(re.findall(r"^FAILED \S+::(\S+)", output, re.MULTILINE))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A hub with the agents orin and xeon."""
    skip_without("distributed", "cryptography")
    with Lab(tmp_path_factory.mktemp("lab")) as made:
        made.start_hub()
        for name in ("orin", "xeon"):
            made.start_agent(name)
        yield made


# The client


def interrupted(repository: Repository, lab: Lab, number: int) -> dict[tuple[int, int, int], bytes]:
    """Start a run, end it by a signal in its second launch, and return the samples that were committed."""
    with repository.holding("orin block:mha"):
        run = repository.start("orin", ms=40)
        run.when("the second launch has a block", lambda: len(repository.visits()) > 9)
        run.popen.send_signal(number)
        code, output = run.end()
        assert code == (-signal.SIGKILL if number == signal.SIGKILL else pytest.ExitCode.INTERRUPTED), output
        with lab.client() as client:
            lab.state(client, "orin", lambda state: state.online and state.busy_with is None)
    return repository.visits()


def test_a_run_that_is_killed_in_a_launch_frees_its_device_and_is_resumed(lab: Lab, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository", lab, "orin")
    kept = interrupted(repository, lab, signal.SIGKILL)

    code, output = repository.start("orin", "--ngraph-resume", ms=40).end()

    assert code == 0, output
    assert "resuming the run of" in output
    assert measured(output) == (2, 1)
    assert repository.compiled() == [f"orin {name}" for name in TWICE]
    assert kept.items() <= repository.visits().items()


def test_a_ctrl_c_frees_the_device_and_keeps_what_was_measured(lab: Lab, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository", lab, "orin")
    kept = interrupted(repository, lab, signal.SIGINT)
    assert len(kept) > 9
    time.sleep(1.0)
    # Nobody measures on.
    assert repository.compiled() == [f"orin {name}" for name in TWICE[:2]]


# The agent


def test_an_agent_that_is_killed_and_started_again_costs_one_launch(lab: Lab, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository", lab, "orin")
    lab.agents["orin"].end()
    # As systemd does with Restart=always.
    loop = lab.start_agent("orin", python=program(tmp_path, "while true; do", "; sleep 0.5; done"))
    try:
        with repository.holding("orin block:mha"):
            run = repository.start("orin", ms=40)
            run.when("the second launch has a block", lambda: len(repository.visits()) > 9)
            kept = repository.visits()
            (agent,) = psutil.Process(loop.popen.pid).children()
            agent.kill()

        code, output = run.end()

        assert code == 0, output
        assert "device 'orin': its agent 'orin' was killed or lost its link to the hub; trying once more" in output
        assert measured(output) == (3, 0)
        assert repository.compiled() == [f"orin {name}" for name in TWICE]
        assert kept.items() <= repository.visits().items()
    finally:
        # The loop and what it runs.
        os.killpg(loop.popen.pid, signal.SIGKILL)
        loop.popen.wait(60)
        lab.start_agent("orin")


def test_one_of_two_devices_dies_and_the_other_goes_on(lab: Lab, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository", lab, "orin", "xeon", impatient=True)
    with repository.holding("xeon block:mha"):
        run = repository.start("orin,xeon", ms=40)
        run.when("both measure", lambda: {line.split()[0] for line in repository.compiled()} == {"orin", "xeon"})
        run.when("a block is there", repository.visits)
        kept = repository.visits()
        lab.agents["xeon"].end(signal.SIGKILL)
        try:
            code, output = run.end()
        finally:
            lab.start_agent("xeon")

    assert code == 1, output
    assert len(passed(output)) + len(failed(output)) == 6
    assert len({name for name in passed(output) if "[orin-" in name}) == 3
    assert failed(output)
    assert re.search(r"^lost: xeon:telling\[.*: device 'xeon': agent 'xeon' is offline since", output, re.MULTILINE), (
        output
    )
    assert kept.items() <= repository.visits().items()

    # The board is back: what it lacks is measured, and nothing else.
    code, output = repository.start("orin,xeon", "--ngraph-resume", ms=40).end()

    assert code == 0, output
    new, reused = measured(output)
    assert new + reused == 6
    assert reused >= 3


# The cell


TROUBLED = """
import pytest

@pytest.mark.ngraph(model="block:conv", batches=[1, 4, 16])
def test_sweep(ngraph_batches):
    assert ngraph_batches.rtr(16).value > 0

@pytest.mark.ngraph(model="block:conv", batch=1)
def test_small(ngraph_cell):
    assert ngraph_cell.latency.value > 0
"""


def test_crash_hang_and_memory_end_one_cell_and_not_its_neighbours(lab: Lab, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository", lab, "orin", suite=TROUBLED)
    troubles = {"segfault": "crash", "hang": "timeout", "limited": "oom"}
    bad = [f"bad[do={trouble},at=call,batch=4]" for trouble in troubles]
    names = ",".join(["null[fixed_us=500]", *bad])

    code, output = repository.start("orin", f"--ngraph-compiler={names}", "--ngraph-timeout=8").end()

    assert code == 1, output
    assert {name.partition("[")[0] for name in failed(output)} == {"test_sweep"}
    assert len(failed(output)) == len(troubles), output
    assert len(passed(output)) == 1 + 1 + len(troubles)
    for trouble, outcome in troubles.items():
        # Of a batch that is too large, the larger one is what the test asked for, and says so.
        batch = 16 if outcome == "oom" else 4
        what = rf"^{outcome}: orin:bad\[.*do={trouble}\] block:conv batch{batch}: "
        assert re.search(what, output, re.MULTILINE), output
    assert measured(output)[0] >= 1


# The disk


def test_a_full_disk_on_the_device_is_said_and_nothing_is_lost(lab: Lab, tmp_path: Path) -> None:
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("a disk of its own needs root and unshare")
    disk = lab.folder / "home/cache/ngraph/agents/small"
    disk.mkdir(parents=True)
    # Nothing of it is left once the agent has ended.
    small = program(tmp_path, f"exec unshare -m sh -c 'mount -t tmpfs -o size=160m tmpfs {disk} && exec \"$@\"' sh")
    if subprocess.run([small, "-c", ""], capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    agent = lab.start_agent("small", python=small)
    try:
        inside = Path(f"/proc/{agent.popen.pid}/root{disk}")
        repository = Repository(tmp_path / "repository", lab, "small")
        code, output = repository.start("small", "-k", "conv", ms=40).end()
        assert code == 0, output
        with repository.holding("small block:mha"):
            run = repository.start("small", ms=40)
            run.when("the second launch measures", lambda: len(repository.compiled()) == 2)
            kept = repository.visits()
            (inside / "ballast").write_bytes(b"")
            fill(inside / "ballast")

        code, output = run.end()

        assert code == 1, output
        assert len(passed(output)) == 1, output
        assert re.search(r"the disk is full: nothing more can be written to \S*agents/small", output), output
        (inside / "ballast").unlink()

        code, output = repository.start("small", "--ngraph-resume", ms=40).end()

        assert code == 0, output
        assert kept.items() <= repository.visits().items()
    finally:
        lab.agents.pop("small").end()


def program(folder: Path, before: str, after: str = "") -> str:
    """Return a program that runs this interpreter with words of a shell around it."""
    file = folder / f"python-{uuid.uuid4().hex[:6]}"
    file.write_text(f'#!/bin/sh\n{before} {sys.executable} "$@"{after}\n')
    file.chmod(0o700)
    return str(file)


def fill(file: Path) -> None:
    """Fill a disk to its last byte."""
    with file.open("ab", buffering=0) as ballast:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError:
                continue


# The link


class Wired(Lab):
    """A lab whose hub and users are in one network namespace, and its board in another, with a cable between them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, agents=impatient.__name__, others=impatient.__name__)
        mark = uuid.uuid4().hex[:6]
        self.here, self.there = f"ngraph-{mark}-lab", f"ngraph-{mark}-board"
        self._made: list[str] = []

    def __enter__(self) -> Wired:
        try:
            for space in (self.here, self.there):
                self._ip("netns", "add", space)
                self._made.append(space)
                self._ip("-n", space, "link", "set", "lo", "up")
            self._ip(
                "-n", self.here, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", self.there
            )
            for space, address in ((self.here, "10.0.0.1/24"), (self.there, "10.0.0.2/24")):
                self._ip("-n", space, "addr", "add", address, "dev", "cable")
                self._ip("-n", space, "link", "set", "cable", "up")
        except subprocess.CalledProcessError as error:
            self.__exit__()
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for space in self._made:
            self._ip("netns", "del", space)

    def cable(self, state: str) -> None:
        """Pull the cable out of the board, or put it in again."""
        self._ip("-n", self.there, "link", "set", "cable", state)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def _start(self, *arguments: str, python: str = sys.executable) -> Process:
        is_hub = arguments[0] == "hub"
        words = program(self.folder, f"exec ip netns exec {self.here if is_hub else self.there}")
        return super()._start(*arguments, *(["--host=10.0.0.1"] if is_hub else []), python=words)


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    skip_without("distributed", "cryptography")
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root and the program ip")
    with Wired(tmp_path) as lab:
        lab.start_hub()
        lab.start_agent("orin")
        yield lab


def test_a_cut_link_is_lost_in_time_and_its_result_is_handed_over(wired: Wired, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository", wired, "orin")
    with repository.holding("orin block:mha"):
        run = repository.start("orin", "-k", "conv or mha", ms=200, before=["ip", "netns", "exec", wired.here])
        run.when("the second launch has a block", lambda: len(repository.visits()) > 9)
        kept = repository.visits()
        wired.cable("down")
    run.when("trying once more", lambda: "trying once more" in run.output)
    wired.cable("up")
    code, output = run.end()

    assert code == 0, output
    assert "device 'orin': its agent 'orin' was killed or lost its link to the hub; trying once more" in output
    # The device measured on while nobody heard it.
    assert repository.compiled() == ["orin block:conv", "orin block:mha"]
    assert measured(output) == (2, 0)
    assert kept.items() <= repository.visits().items()
