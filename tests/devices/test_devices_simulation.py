"""The simulated lab: a small one for real, and what is said of made-up ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.devices.lab.simulation import Findings, Load, Scale, Served, simulate
from tests.conftest import ROOT, skip_without

LOAD = Load(core=0.1, most_bytes=1 << 20, most_files=30)


def findings(*rows: tuple[str, str, str, float, float]) -> Findings:
    """Return the findings of requests: client, device, the one it ran on, begin and end; asked at 0."""
    served = [
        Served(client, device, ran, 0.0, began, ended, ended + 0.01) for client, device, ran, began, ended in rows
    ]
    return Findings(Scale(2, 2, 10, 1), 1.0, served, LOAD, LOAD, 0.1, 0.1)


@pytest.mark.real
def test_a_small_lab_serves_everybody_on_the_right_device() -> None:
    skip_without("distributed", "cryptography")
    said: list[str] = []
    found = simulate(Scale(agents=6, clients=2, seconds=3, request_seconds=0.3), said.append)
    assert {one.device for one in found.served} == {f"board-{number:04d}" for number in range(6)}
    assert {one.client for one in found.served} == {"client-0", "client-1"}
    assert found.misplaced == 0
    assert found.overlaps == 0
    # Each asks for one more when one is done: nobody can be far ahead.
    # On a busy machine one of them may be held up for a while, but nobody goes without.
    assert 1 <= found.fairness < 10
    assert 0.1 < found.busy_share <= 1
    assert found.busy.most_bytes > 1 << 20
    assert any("6 agents" in line for line in said)
    # Nothing of it is left.
    assert not list(parts())


def parts() -> Iterator[psutil.Process]:
    for process in psutil.Process().children(recursive=True):
        if process.status() != psutil.STATUS_ZOMBIE and "pytest_ngraph.devices.lab.simulation" in process.cmdline():
            yield process


@pytest.mark.real
def test_parts_end_with_the_one_who_started_them() -> None:
    skip_without("distributed", "cryptography")
    words = [sys.executable, "-m", "pytest_ngraph.cli", "simulate", "--agents=2", "--clients=1", "--seconds=60"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            for line in run.stdout:
                if "clients ask" in line:
                    break
            started = psutil.Process(run.pid).children()
            assert len(started) == 3
        finally:
            run.kill()
        _, alive = psutil.wait_procs(started, timeout=60)
        assert not alive


def test_a_request_on_another_device_and_two_at_once_are_found() -> None:
    good = findings(("a", "one", "one", 0, 2), ("b", "one", "one", 2, 3), ("b", "two", "two", 0, 3))
    assert (good.misplaced, good.overlaps, good.fairness) == (0, 0, 2.0)
    assert findings(("a", "one", "two", 0, 2), ("b", "two", "two", 2, 3)).misplaced == 1
    assert findings(("a", "one", "one", 0, 2), ("b", "one", "one", 1.5, 3)).overlaps == 1


def test_a_client_that_was_never_served_is_not_fair() -> None:
    assert findings(("a", "one", "one", 0, 2)).fairness == float("inf")


def test_a_bug_is_an_error_of_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    overlapping = findings(("a", "one", "one", 0, 2), ("b", "one", "one", 1.5, 3))
    monkeypatch.setattr("pytest_ngraph.devices.lab.simulation.simulate", lambda scale, say: overlapping)
    assert main(["simulate"]) == 2
    assert "not where they should be, or not alone there" in capsys.readouterr().err
    alone = replace(overlapping, served=overlapping.served[:1])
    monkeypatch.setattr("pytest_ngraph.devices.lab.simulation.simulate", lambda scale, say: alone)
    assert main(["simulate"]) == 0


@pytest.mark.parametrize("option", ["--agents=0", "--agents=many", "--agents=5000", "--seconds=0", "--seconds=soon"])
def test_what_cannot_be_simulated_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", option])
    assert "is not allowed (expected" in capsys.readouterr().err
