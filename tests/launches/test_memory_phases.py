"""The pass for memory: its peaks by phase, with what a worker starts, and why one is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.checks.peaks import HostPeaks
from pytest_ngraph.launches.memory import memory_pass
from pytest_ngraph.spec.cells import CompileRecord, Outcome
from tests.support.fake_nvml import Card, installed
from tests.support.measuring import SMALL, cell, job

pytestmark = pytest.mark.real
# Holds 60 MiB and lets it go, says so, then holds 20 MiB; with a child that holds 30 MiB meanwhile.
HOLDS = """
import subprocess, sys
first = bytearray(b"x" * (60 << 20)); del first
print(flush=True); sys.stdin.readline()
code = "import sys; held = bytearray(b'x' * (30 << 20)); print(flush=True); sys.stdin.readline()"
child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
second = bytearray(b"y" * (20 << 20))
print(flush=True); sys.stdin.readline()
child.kill(); child.wait()
"""


def seen() -> HostPeaks:
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = HostPeaks(process.pid)
        process.stdout.readline()
        found.next_phase()
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        found.stop()
        process.kill()
    return found


def test_each_phase_has_its_own_peak_with_children() -> None:
    found = seen()
    assert found.why_unreadable == ""
    assert found.bytes_of["compiling"] > 60 << 20
    # The first 60 MiB are no more among it, the child's 30 are.
    assert 50 << 20 < found.bytes_of["running"] < found.bytes_of["compiling"] + (20 << 20)
    assert found.most == max(found.bytes_of.values())


def test_without_a_peak_that_begins_anew_there_is_none_of_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, *given: object, **named: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refused)
    found = seen()
    assert set(found.bytes_of) == {"compiling"}
    assert found.why_unreadable == "the kernel's peak cannot be begun again: Permission denied"


def test_a_pass_gives_both_peaks(tmp_path: Path) -> None:
    record, peak = memory_pass(job(tmp_path), cell("null"), SMALL, 1)
    found = dict(record.peaks)
    assert set(found) == {"compile_peak_memory_bytes", "run_peak_memory_bytes"}
    assert record.peak_memory_bytes == peak == max(found.values())
    assert CompileRecord.from_json(record.to_json()) == record
    assert record.unread == ()


def test_gpu_memory_that_cannot_be_read_is_missing_in_both_phases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = job(tmp_path)
    work = replace(work, device=replace(work.device, accelerator="cuda:0"))
    with installed(monkeypatch, Card(processes=lambda: {os.getpid(): 1})):
        record, _ = memory_pass(work, cell("null"), SMALL, 1)
    assert record.outcome is Outcome.OK
    assert set(dict(record.unread)) == {
        "peak_gpu_memory_bytes", "compile_peak_gpu_memory_bytes", "run_peak_gpu_memory_bytes",
    }  # fmt: skip
    assert all("NVML lists no process" in why for why in dict(record.unread).values())
