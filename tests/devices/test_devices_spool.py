"""The spool of a device: whole results wait there, and nothing that is half-written is ever found."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_ngraph.devices.agent import spool as module
from pytest_ngraph.devices.agent.spool import Spool
from pytest_ngraph.devices.wire import wire
from pytest_ngraph.errors import DeviceUnusable
from tests.conftest import ROOT

ONE, TWO = "1" * 64, "2" * 64


def lines(size: int = 1) -> list[str]:
    found: list[str] = []
    sent = wire.Lines(found.append)
    sent.note("x" * size)
    sent.answer({"measured": True})
    return found


def keep(spool: Spool, digest: str, size: int = 1) -> None:
    with spool.entry(digest) as entry:
        for line in lines(size):
            entry.write(line)
        entry.keep()


def test_a_result_that_was_kept_is_found_line_by_line(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    assert spool.find(ONE) is None
    keep(spool, ONE)
    assert spool.find(ONE) == lines()
    assert spool.find(TWO) is None
    assert Spool(tmp_path / "spool").find(ONE) == lines()


def test_what_was_not_kept_is_gone(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    with suppress(KeyboardInterrupt), spool.entry(ONE) as entry:
        entry.write(lines()[0])
        raise KeyboardInterrupt
    assert spool.find(ONE) is None
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_agent_wrote_is_never_found_and_is_removed_in_time(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
from pathlib import Path
from pytest_ngraph.devices.agent.spool import Spool
with Spool(Path({str(tmp_path)!r})).entry({ONE!r}) as entry:
    for line in {lines()!r}:
        entry.write(line)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert Spool(tmp_path).find(ONE) is None
    keep(Spool(tmp_path), TWO)
    assert left.exists()
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(left, (long_ago, long_ago))
    keep(Spool(tmp_path), TWO)
    assert not left.exists()


@pytest.mark.parametrize(
    "damage", ["", "garbage\n", '[0,"note",{"text":"x"}]\n', '[0,"answer",{}]\n[1,"note",{}]\n', "\0"]
)
def test_a_damaged_result_is_none_and_goes(tmp_path: Path, damage: str) -> None:
    spool = Spool(tmp_path)
    keep(spool, ONE)
    (file,) = tmp_path.iterdir()
    file.write_text(damage)
    assert spool.find(ONE) is None
    assert not file.exists()


def test_a_name_that_is_no_digest_leads_nowhere(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no digest"):
        Spool(tmp_path).find("../../etc/passwd")


def test_old_results_go_and_of_too_many_the_oldest(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=5000, most_seconds=1000)
    digests = [str(number) * 64 for number in range(6)]
    for number, digest in enumerate(digests):
        keep(spool, digest, 1500)
        written = time.time() - 600 + number
        os.utime(tmp_path / f"{digest}.jsonl", (written, written))
    keep(spool, "a" * 64)
    assert [spool.find(digest) is not None for digest in digests] == [False] * 3 + [True] * 3
    for path in tmp_path.iterdir():
        os.utime(path, (time.time() - 2000,) * 2)
    keep(spool, ONE)
    assert [path.stem for path in tmp_path.iterdir()] == [ONE]


def test_a_result_larger_than_a_spool_is_refused(tmp_path: Path) -> None:
    small = Spool(tmp_path, most_bytes=99)
    with pytest.raises(DeviceUnusable, match="grew larger than all that"), small.entry(ONE) as entry:
        entry.write("x" * 100)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_FREE_BYTES", 1 << 62)
    with pytest.raises(DeviceUnusable, match=r"the disk is full: .*make room there"), Spool(tmp_path).entry(ONE):
        raise AssertionError("it must not begin")


@pytest.mark.parametrize("when", ["write", "fsync"])
def test_a_disk_that_fills_up_meanwhile_is_said_and_nothing_half_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    spool = Spool(tmp_path)

    def write() -> None:
        with spool.entry(ONE) as entry:
            entry.write(lines()[0])
            monkeypatch.setattr(os, when, full)
            entry.write(lines()[1])
            entry.keep()

    with pytest.raises(DeviceUnusable, match="the disk is full"):
        write()
    monkeypatch.undo()
    assert spool.find(ONE) is None
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mount.returncode != 0:
        pytest.skip("a small tmpfs cannot be mounted here (root)")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_real_full_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_FREE_BYTES", 0)
    spool = Spool(small_disk)
    keep(spool, TWO)

    def fill() -> None:
        with spool.entry(ONE) as entry:
            for _ in range(64):
                entry.write("x" * 65536)

    with pytest.raises(DeviceUnusable, match="the disk is full"):
        fill()
    assert spool.find(ONE) is None
    assert spool.find(TWO) == lines()
