"""What the machine did meanwhile: snapshots of it, and what two of them say against a launch."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.machine import facts as environment
from pytest_ngraph.machine.facts import disturbance, git_commit, others_cpus, snapshot
from tests.support.fake_nvml import Card, FakeNvml, installed
from tests.support.git_repository import git, make

CPUS = tuple(sorted(os.sched_getaffinity(0)))
FACTS = (
    "at", "set_busy_seconds", "set_steal_seconds", "own_seconds", "load", "busy_seconds", "steal_seconds",
    "available_memory_bytes", "throttled", "governor", "frequency_khz", "pressure_cpu", "power_mode", "hot_seconds",
)  # fmt: skip


def facts(at: float, **known: Any) -> dict[str, Any]:
    """Return a snapshot of a machine of two CPUs that did nothing until then."""
    calm = {
        **dict.fromkeys(FACTS),
        "set_busy_seconds": 100.0,
        "set_steal_seconds": 5.0,
        "own_seconds": 40.0,
        "throttled": 7,
        "governor": "performance",
    }
    return {**calm, "at": at, **known}


# A launch of 20 s, the last 10 of which were timed.
BEGUN, BLOCKS = facts(1000.0), facts(1010.0)
AFTER = 1020.0


def said(
    ended: dict[str, Any], *, begun: dict[str, Any] = BEGUN, blocks: dict[str, Any] = BLOCKS, cpus: int = 2
) -> str:
    return disturbance(begun, blocks, ended, cpus)


def test_a_calm_launch_counts() -> None:
    assert said(facts(AFTER)) == ""
    # It may use all of the CPUs itself.
    assert said(facts(AFTER, set_busy_seconds=140.0, own_seconds=80.0)) == ""


def test_a_throttled_cgroup_is_a_reason_at_the_first_time() -> None:
    assert said(facts(AFTER, throttled=8)) == "the cgroup's CPU quota stopped this process 1 times"
    assert "stopped this process 93 times" in said(facts(AFTER, throttled=100))
    # While compiling it may have been: nothing was timed then.
    assert said(facts(AFTER, throttled=8), blocks=facts(1010.0, throttled=8)) == ""


def test_a_governor_that_changed_is_a_reason() -> None:
    changed = facts(AFTER, governor="powersave")

    assert said(changed) == "the CPU's governor changed from performance to powersave"
    assert said(changed, begun=facts(1000.0, governor="powersave")) == ""


@pytest.mark.parametrize(
    ("stolen", "cpus", "expected"),
    [
        # 5 % of two CPUs in the ten seconds of the blocks.
        (0.99, 2, ""),
        (1.01, 2, "the host took 5 % of the CPUs' time (steal)"),
        (4.0, 2, "the host took 20 % of the CPUs' time (steal)"),
        (0.49, 1, ""),
        (0.51, 1, "the host took 5 % of the CPUs' time (steal)"),
        (3.9, 8, ""),
        (4.1, 8, "the host took 5 % of the CPUs' time (steal)"),
    ],
)
def test_time_that_the_host_took_is_a_reason_beyond_a_twentieth(stolen: float, cpus: int, expected: str) -> None:
    assert said(facts(AFTER, set_steal_seconds=5.0 + stolen), cpus=cpus) == expected


def test_steal_before_the_blocks_is_none_of_theirs() -> None:
    assert said(facts(AFTER, set_steal_seconds=15.0), blocks=facts(1010.0, set_steal_seconds=15.0)) == ""


@pytest.mark.parametrize(
    ("others_seconds", "cpus", "expected"),
    [
        # Half the wall of the whole launch, 20 s.
        (9.9, 2, ""),
        (10.1, 2, "other processes kept 0.5 of 2 CPUs busy"),
        (30.0, 2, "other processes kept 1.5 of 2 CPUs busy"),
        (9.9, 1, ""),
        (10.1, 1, "other processes kept 0.5 of 1 CPUs busy"),
        # A quarter of many.
        (39.9, 8, ""),
        (40.1, 8, "other processes kept 2.0 of 8 CPUs busy"),
    ],
)
def test_others_that_kept_the_cpus_busy_are_a_reason(others_seconds: float, cpus: int, expected: str) -> None:
    own = 11.0
    ended = facts(AFTER, set_busy_seconds=100.0 + own + others_seconds, own_seconds=40.0 + own)
    assert said(ended, cpus=cpus) == expected


def test_only_what_others_use_is_a_matter_of_visits() -> None:
    """Throttling and a governor are reasons against a launch as a whole, and are said first."""
    busy = {"set_busy_seconds": 131.0, "own_seconds": 51.0}
    assert isinstance(said(facts(AFTER, **busy)), environment.Company)
    for reason in ({"throttled": 8}, {"governor": "powersave"}):
        found = said(facts(AFTER, **busy, **reason))
        assert found
        assert not isinstance(found, environment.Company)
    # Beside others that take more than 70 % of all CPUs there is nothing to tell apart.
    for others_seconds, is_shared in ((27.9, True), (28.1, False), (40.0, False)):
        found = said(facts(AFTER, set_busy_seconds=111.0 + others_seconds, own_seconds=51.0))
        assert isinstance(found, environment.Company) is is_shared
    # How calls to a GPU take other load was not measured.
    around = gpu_facts(1000.0), gpu_facts(1010.0)
    on_gpu = said({**gpu_facts(AFTER), **busy}, begun=around[0], blocks=around[1])
    assert on_gpu == "other processes kept 1.0 of 2 CPUs busy"
    assert not isinstance(on_gpu, environment.Company)
    assert "heat slowed" in said({**gpu_facts(AFTER, hot_seconds=5.5), **busy}, begun=around[0], blocks=around[1])


def test_so_is_what_the_host_took_beside_whomever_but_not_beside_more_than_can_be_told_apart() -> None:
    """Each visit has an account of its own, of what others used and of what the host took."""
    stolen, busy = {"set_steal_seconds": 25.0}, {"set_busy_seconds": 131.0, "own_seconds": 51.0}
    for also in ({}, busy):
        found = said(facts(AFTER, **stolen, **also))
        assert found == "the host took 100 % of the CPUs' time (steal)"
        assert isinstance(found, environment.Company)
    worse = {"set_busy_seconds": 151.0, "own_seconds": 51.0}
    for reason, more in (("stopped this process 1 times", {"throttled": 8}), ("kept 2.0 of 2 CPUs busy", worse)):
        found = said(facts(AFTER, **stolen, **more))
        assert reason in found
        assert not isinstance(found, environment.Company)
    on_gpu = said({**gpu_facts(AFTER), **stolen}, begun=gpu_facts(1000.0), blocks=gpu_facts(1010.0))
    assert on_gpu == "the host took 100 % of the CPUs' time (steal)"
    assert not isinstance(on_gpu, environment.Company)


@pytest.mark.parametrize("name", ["throttled", "set_steal_seconds", "set_busy_seconds", "own_seconds"])
def test_what_cannot_be_read_is_no_reason(name: str) -> None:
    busy = {"throttled": 99, "set_steal_seconds": 25.0, "set_busy_seconds": 140.0, "own_seconds": 40.0}
    ended = facts(AFTER, **{name: busy[name]}, **({"set_busy_seconds": 140.0} if name == "own_seconds" else {}))
    assert said(ended) != ""

    assert said({**ended, name: None}) == ""
    assert said(ended, begun={**BEGUN, name: None}, blocks={**BLOCKS, name: None}) == ""


def test_a_power_mode_that_changed_midway_is_a_reason() -> None:
    begun, ended = facts(1000.0, power_mode={"nvpmodel": "pmode:0"}), facts(AFTER, power_mode={"nvpmodel": "pmode:2"})
    assert said(ended, begun=begun) == "the power mode changed midway: nvpmodel from pmode:0 to pmode:2"
    assert said(facts(AFTER), begun=begun) == ""


def test_a_machine_without_a_governor_has_none_that_changed() -> None:
    assert said(facts(AFTER, governor=None), begun=facts(1000.0, governor=None)) == ""


def test_others_are_what_is_busy_and_not_ours() -> None:
    assert others_cpus(BEGUN, facts(1010.0, set_busy_seconds=115.0, own_seconds=45.0)) == pytest.approx(1.0)
    assert others_cpus(BEGUN, facts(1010.0)) == 0.0
    # The clocks of processes and of CPUs tick apart: never less than nothing.
    assert others_cpus(BEGUN, facts(1010.0, set_busy_seconds=100.0, own_seconds=40.3)) == 0.0
    assert others_cpus(BEGUN, facts(1010.0, set_busy_seconds=None)) is None
    assert others_cpus(facts(1000.0, own_seconds=None), facts(1010.0)) is None


# Snapshots of this machine


def test_a_snapshot_has_every_fact_and_only_grows() -> None:
    before = snapshot(CPUS)
    after = snapshot(CPUS)

    assert tuple(before) == tuple(after) == FACTS
    for name in ("at", "set_busy_seconds", "set_steal_seconds", "own_seconds", "busy_seconds", "throttled"):
        assert before[name] is None or after[name] >= before[name], name


def test_without_cpus_or_with_unknown_ones_their_times_are_not_known() -> None:
    for cpus in ((), (CPUS[0], 100_000)):
        found = snapshot(cpus)
        assert (found["set_busy_seconds"], found["set_steal_seconds"]) == (None, None)
        assert found["busy_seconds"] > 0


@contextmanager
def spinner(cpu: int) -> Iterator[subprocess.Popen[bytes]]:
    code = f"import os\nos.sched_setaffinity(0, [{cpu}])\nprint(flush=True)\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.measures
def test_a_child_that_lives_is_of_others_and_ours_once_it_was_waited_for() -> None:
    cpu = CPUS[-1]
    before = snapshot([cpu])
    with spinner(cpu):
        time.sleep(0.5)
        during = snapshot([cpu])
    after = snapshot([cpu])

    # Whoever else is there keeps the CPU busy, too.
    assert during["set_busy_seconds"] - before["set_busy_seconds"] > 0.3
    assert during["own_seconds"] - before["own_seconds"] < 0.3
    assert after["own_seconds"] - before["own_seconds"] > 0.1


def test_the_governor_and_the_throttled_times_are_read_where_the_kernel_says_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_CPU", tmp_path)
    monkeypatch.setattr(environment, "_CGROUP", tmp_path)
    assert (snapshot()["governor"], snapshot()["throttled"]) == (None, None)

    (tmp_path / "cpu0/cpufreq").mkdir(parents=True)
    (tmp_path / "cpu0/cpufreq/scaling_governor").write_text("powersave\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 12\nnr_periods 40\nnr_throttled 3\nthrottled_usec 4\n")

    assert (snapshot()["governor"], snapshot()["throttled"]) == ("powersave", 3)


# GPUs


def gpu_facts(at: float, **known: Any) -> dict[str, Any]:
    """Return a snapshot of a machine whose GPU did nothing until then."""
    calm = {"hot_seconds": 3.0, "slowed_by": [], "power_limit_watts": 700.0, "others": []}
    return facts(at, gpu={**calm, **known})


def gpu_said(*, begun: dict[str, Any] | None = None, blocks: dict[str, Any] | None = None, **ended: Any) -> str:
    earlier = gpu_facts(1000.0, **(begun or {})), gpu_facts(1010.0, **(blocks or {}))
    return said(gpu_facts(AFTER, **ended), begun=earlier[0], blocks=earlier[1])


def test_a_calm_gpu_is_no_reason() -> None:
    assert gpu_said() == ""
    # The power limit holds the clocks down under full load, of whatever is timed.
    assert gpu_said(begun={"power_capped_seconds": 0.0}, power_capped_seconds=9.0) == ""


def test_a_gpu_that_heat_slowed_down_is_a_reason_beyond_a_twentieth() -> None:
    assert gpu_said(hot_seconds=3.49) == ""
    assert gpu_said(hot_seconds=5.5) == "heat slowed the GPU's clocks down for 25 % of the time"
    # Before the blocks it may have.
    assert gpu_said(blocks={"hot_seconds": 5.5}, hot_seconds=5.5) == ""
    assert gpu_said(hot_seconds=None) == gpu_said(blocks={"hot_seconds": None}, hot_seconds=9.0) == ""


def test_clocks_that_are_slowed_down_at_either_end_are_a_reason() -> None:
    brake = ["a power brake (hardware slowdown)"]
    expected = "the GPU's clocks were slowed down by a power brake (hardware slowdown)"
    assert gpu_said(slowed_by=brake) == gpu_said(blocks={"slowed_by": brake}, slowed_by=brake) == expected
    assert gpu_said(blocks={"slowed_by": brake}, slowed_by=["heat"]) == f"{expected}, heat"
    # Before the blocks nothing was timed.
    assert gpu_said(begun={"slowed_by": brake}) == gpu_said(slowed_by=None) == ""


def test_a_power_limit_that_changed_is_a_reason() -> None:
    assert gpu_said(power_limit_watts=350.0) == "the GPU's power limit changed from 700 to 350 W"
    assert gpu_said(begun={"power_limit_watts": None}) == gpu_said(power_limit_watts=None) == ""


def test_others_that_compute_on_the_gpu_are_a_reason() -> None:
    expected = "others have the GPU open for computing: pid 12 (python) (end them, or take another GPU)"
    assert gpu_said(begun={"others": ["pid 12 (python)"]}) == expected
    assert gpu_said(others=["pid 12 (python)"]) == expected
    # While blocks are timed the workers are there, which NVML may number otherwise.
    assert gpu_said(blocks={"others": ["pid 12 (python)"]}) == ""
    assert gpu_said(others=None) == ""


def test_the_cpus_are_looked_at_too() -> None:
    assert "stopped this process" in said(
        {**gpu_facts(AFTER), "throttled": 9}, begun=gpu_facts(1000.0), blocks=gpu_facts(1010.0)
    )


def test_a_gpu_is_in_the_snapshot_the_facts_and_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, Card()):
        state, known = snapshot(CPUS, "cuda:0"), environment.describe("cuda:0")
        mark = environment.fingerprint("cuda:0")["gpu"]

    assert state["gpu"] == {
        "sm_clock_mhz": 1755,
        "memory_clock_mhz": 3201,
        "power_limit_watts": 700.0,
        "used_memory_bytes": 1 << 30,
        "slowed_by": [],
        "hot_seconds": 1.0,
        "power_capped_seconds": 5.0,
        "others": [],
        "unreadable": {},
    }
    assert known["gpu"] == {
        "name": "NVIDIA H200",
        "driver": "580.65.06",
        "compute_capability": "9.0",
        "memory_bytes": 150 << 30,
        "most_sm_clock_mhz": 1980,
        "most_memory_clock_mhz": 3201,
        "power_limit_watts": 700.0,
        "persistence_mode": True,
        "mig": False,
        "unreadable": {},
    }
    assert mark == {name: known["gpu"][name] for name in mark}
    assert set(mark) == {"name", "driver", "compute_capability", "memory_bytes", "power_limit_watts", "mig"}
    assert json.loads(json.dumps([state, known, mark])) == [state, known, mark]
    assert environment.summary_line(known).endswith("GiB, NVIDIA H200")


def test_without_a_gpu_nothing_speaks_of_one() -> None:
    for found in (snapshot(CPUS), environment.describe(), environment.fingerprint()):
        assert "gpu" not in found
    assert "NVIDIA" not in environment.summary_line(environment.describe())


def test_two_snapshots_of_a_gpu_show_what_happened_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card()
    with installed(monkeypatch, card):
        before = snapshot(CPUS, "cuda:0")
        card.held_down_ns[1] += 2_000_000_000
        card.slow_bits = 32 | 128
        after = snapshot(CPUS, "cuda:0")

    assert "heat slowed the GPU's clocks down" in disturbance(before, before, {**after, "at": before["at"] + 10}, 2)
    assert after["gpu"]["slowed_by"] == ["heat", "a power brake (hardware slowdown)"]


def test_what_a_gpu_does_not_tell_is_null_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"nvmlDeviceGetViolationStatus", "nvmlDeviceGetComputeRunningProcesses"}
    with installed(monkeypatch, Card(refused={*refused, "nvmlDeviceGetMigMode"})):
        state, known = snapshot(CPUS, "cuda:0")["gpu"], environment.describe("cuda:0")["gpu"]

    nulls = {"hot_seconds", "power_capped_seconds", "others"}
    assert {name for name, value in state.items() if value is None} == nulls
    assert state["unreadable"] == dict.fromkeys(nulls, "Not Supported")
    assert (known["mig"], known["unreadable"]) == (None, {"mig": "Not Supported"})


def test_others_are_who_computes_and_is_not_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        # Process 1 is nobody's child, and this number nobody's at all.
        known = {os.getpid(): 1, child.pid: 1, 1: 1, 1 << 22: None}
        with installed(monkeypatch, Card(processes=lambda: {**known})):
            others = snapshot(CPUS, "cuda:0")["gpu"]["others"]
    finally:
        child.communicate(b"\n")

    first, nobody = others
    assert first.startswith("pid 1 (")
    assert nobody == f"pid {1 << 22}"


def test_the_binding_has_every_name_that_is_asked_for() -> None:
    pynvml = pytest.importorskip("pynvml")
    fake = FakeNvml()
    names = [name for name in dir(FakeNvml) if name.startswith(("nvml", "NVML"))]
    assert len(names) > 15
    for name in names:
        real = getattr(pynvml, name)
        if name.startswith("nvml") and callable(real):
            theirs = inspect.signature(real).parameters
            ours = list(inspect.signature(getattr(fake, name)).parameters)
            assert list(theirs)[: len(ours)] == ours
            assert all(theirs[further].default is None for further in list(theirs)[len(ours) :])
        elif name != "NVMLError":
            assert real == getattr(fake, name)


def test_the_commit_is_read_without_a_change_of_the_repository(tmp_path: Path) -> None:
    """Also where what git remembers of a file is out of date, which it would write down under a lock."""
    folder = make(tmp_path / "repository", {"model.py": "DEPTH = 1\n"})
    os.utime(folder / "model.py", (1_000_000_000, 1_000_000_000))
    index = (folder / ".git" / "index").read_bytes()

    assert git_commit(folder) == git(folder, "rev-parse", "HEAD")
    assert (folder / ".git" / "index").read_bytes() == index
    git(folder, "status")
    assert (folder / ".git" / "index").read_bytes() != index


def test_versions_are_those_that_the_library_reads() -> None:
    found = {name: environment.version_of(name) for name in environment.VERSIONED}
    for name, version in found.items():
        try:
            assert version == importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            assert version is None
    assert found["pytest"] == pytest.__version__


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ("Metadata-Version: 2.1\nName: made\nVersion: 1.2.3+cpu\n\nVersion: 9\n", "1.2.3+cpu"),
        ("Name: made\nSummary: of\n        Version: 7\nVersion:4.5 \n", "4.5"),
        ("Name: made\r\nVersion: 1.0\r\n\r\n", "1.0"),
        ("Name: made\nversion: 3.0\n", "3.0"),
    ],
)
def test_a_version_is_read_of_any_file_of_headers(
    headers: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those that only the library understands: names in small letters, and lines of the long description."""
    (tmp_path / "made-0.dist-info").mkdir()
    (tmp_path / "made-0.dist-info" / "METADATA").write_bytes(headers.encode())
    monkeypatch.syspath_prepend(tmp_path)
    assert environment.version_of("made") == expected


def test_a_version_that_was_read_before_is_that_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents live for months: what is installed, replaced, removed or hidden meanwhile is noticed."""
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.syspath_prepend(second)
    assert environment.version_of("made") is None
    for version in ("1.0", "2.0"):
        folder = second / f"made-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: made\nVersion: {version}\n")
        assert environment.version_of("made") == version
        folder.rename(tmp_path / version)
        assert environment.version_of("made") is None

    (tmp_path / "1.0").rename(second / "made-1.0.dist-info")
    (first / "made-2.0.dist-info").mkdir(parents=True)
    (first / "made-2.0.dist-info" / "METADATA").write_text("Name: made\nVersion: 2.0\n")
    assert environment.version_of("made") == "1.0"
    monkeypatch.syspath_prepend(first)
    assert environment.version_of("made") == "2.0"


def test_a_version_that_is_rewritten_in_place_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a folder with sources is, which none of the folders on the import path shows."""
    (tmp_path / "made.egg-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    for version in ("1.0", "2.0"):
        (tmp_path / "made.egg-info" / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: made\nVersion: {version}\n")
        assert environment.version_of("made") == version


def test_a_finder_that_hides_what_is_installed_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of the worker of another side is."""
    assert environment.version_of("pytest") == pytest.__version__
    monkeypatch.setattr(sys, "meta_path", [])
    assert environment.version_of("pytest") is None


def test_what_brings_a_module_is_what_the_library_finds() -> None:
    """Of all that is installed. The library of Python 3.11 knows no extension modules, and folders of scripts."""
    ours, theirs = environment.distributions_by_module(), importlib.metadata.packages_distributions()
    both = ours.keys() & theirs.keys()
    assert {"pytest", "numpy"} <= both
    assert {name: (ours[name], theirs[name]) for name in both if not set(ours[name]) >= set(theirs[name])} == {}
    if sys.version_info[:2] == (3, 11):
        assert {name for name in theirs if name.isidentifier()} <= ours.keys()


def test_a_module_that_is_called_otherwise_than_its_distribution_has_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names that it declares, and where it declares none by its files, whatever stands in their names."""
    for name, file, content in (
        ("first-of-all", "top_level.txt", "one\ntwo\n"),
        (
            "second",
            "RECORD",
            '"three/a,b.py",sha256=x,1\nthree/c.so,,\nfour.py,,\nfive/d.txt,,\nsecond-2.dist-info/RECORD,,\n',
        ),
        ("third", "RECORD", "three/e.py,,\n../../bin/third.py,,\nthird.libs/libgomp.so,,\n"),
        # Nothing but extension modules, one of them in a folder.
        ("fourth", "RECORD", f"six{EXTENSION_SUFFIXES[0]},,\nseven/g{EXTENSION_SUFFIXES[-1]},,\n"),
        # Its modules are where its .pth says: below itself, as pywin32's, and in the folder of an editable project.
        ("fifth-one", "RECORD", "fifth_one.pth,,\nfifth_one-2.dist-info/RECORD,,\n"),
    ):
        folder = tmp_path / f"{name.replace('-', '_')}-2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {len(name)}\n\nName: none\n")
        (folder / file).write_text(content)
    (tmp_path / "fifth_one.pth").write_text(f"# theirs\nimport os\nlib32\n\n{tmp_path / 'src'}\nis-not-there\n")
    for file in ("lib32/eight.py", "src/nine/__init__.py", "src/tests/__init__.py", "src/setup.py", "src/a/b.txt"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    environment.distributions_by_module.cache_clear()
    try:
        found = environment.distributions_by_module()
        assert {module: sorted(names) for module, names in found.items()} == {
            "one": ["first-of-all"],
            "two": ["first-of-all"],
            "three": ["second", "third"],
            "four": ["second"],
            "six": ["fourth"],
            "seven": ["fourth"],
            "eight": ["fifth-one"],
            "nine": ["fifth-one"],
        }
        assert [environment.version_of_module(name) for name in ("one", "three", "five")] == ["12", "5,6", None]
    finally:
        environment.distributions_by_module.cache_clear()
