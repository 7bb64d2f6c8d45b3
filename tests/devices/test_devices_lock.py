"""One measuring run at a time on a device, whoever the others are and however they end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_ngraph.devices.lock import device_lock, lock_path
from pytest_ngraph.errors import DeviceBusy
from tests.support.measuring import ROOT

HOLDER = """
import sys, time
from pytest_ngraph.devices.lock import device_lock
device, journal, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])

def note(text):
    with open(journal, "a") as file:
        file.write(text)

with device_lock(device, waiting=lambda text: print(text, flush=True)):
    note("in ")
    print("held", flush=True)
    time.sleep(seconds)
    note("out ")
"""


@pytest.fixture
def device() -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    path = lock_path(name)
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def holder(device: str, journal: Path, seconds: float, *, wait: bool = True) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, device, str(journal), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    if wait:
        assert process.stdout.readline() == "held\n"
    return process


def try_lock(device: str, held_by: subprocess.Popen[str] | None = None) -> list[str]:
    """Take and leave a lock; return what was said meanwhile. Who holds it is ended once that was said."""
    said: list[str] = []

    def waiting(text: str) -> None:
        said.append(text)
        if held_by is not None:
            held_by.kill()

    with device_lock(device, waiting=waiting, limit_seconds=60):
        pass
    return said


def test_two_processes_take_turns(device: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    processes = [holder(device, journal, 0.3, wait=False) for _ in range(3)]
    for process in processes:
        process.communicate(timeout=120)
    assert journal.read_text(encoding="utf-8").split() == ["in", "out"] * 3


def test_who_waits_is_told_once_who_holds_the_device(device: str, tmp_path: Path) -> None:
    process = holder(device, tmp_path / "journal", 60)
    said = try_lock(device, process)
    process.communicate(timeout=120)
    assert len(said) == 1
    form = rf"waiting for device '{device}', held by pid {process.pid} of \w+ since \d\d:\d\d:\d\d \(-c {device} .*\)"
    assert re.fullmatch(form, said[0])


def test_waiting_ends_at_its_limit_with_the_holders_name(device: str, tmp_path: Path) -> None:
    process = holder(device, tmp_path / "journal", 60)
    try:
        with pytest.raises(DeviceBusy, match=rf"is held by pid {process.pid} of .* gave up after 0.2 s"):
            device_lock(device, waiting=lambda text: None, limit_seconds=0.2).__enter__()
    finally:
        process.kill()
        process.communicate()


def test_a_holder_that_is_killed_frees_the_device(device: str, tmp_path: Path) -> None:
    process = holder(device, tmp_path / "journal", 60)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    assert try_lock(device) == []


def test_an_error_inside_frees_the_device(device: str) -> None:
    with pytest.raises(RuntimeError), device_lock(device, waiting=lambda text: None):
        raise RuntimeError
    assert try_lock(device) == []


def test_a_process_forked_meanwhile_does_not_keep_the_device(device: str) -> None:
    with device_lock(device, waiting=lambda text: None):
        pid = os.fork()
        if pid == 0:
            signal.pause()
    try:
        assert try_lock(device) == []
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_the_lock_is_the_same_whatever_the_users_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    before = lock_path("local")
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    monkeypatch.setattr("tempfile.tempdir", None)
    assert lock_path("local") == before


def test_a_planted_link_is_refused_and_what_it_points_to_is_left_alone(device: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious", encoding="utf-8")
    lock_path(device).symlink_to(victim)
    with pytest.raises(DeviceBusy) as caught:
        try_lock(device)
    assert str(caught.value) == (
        f"device '{device}': its lock {lock_path(device)} cannot be used: it is a symbolic link; "
        "remove it and run again"
    )
    assert caught.value.__cause__ is None
    assert victim.read_text(encoding="utf-8") == "precious"


def test_a_dangling_link_is_refused_and_nothing_is_made_behind_it(device: str, tmp_path: Path) -> None:
    lock_path(device).symlink_to(tmp_path / "nothing")
    with pytest.raises(DeviceBusy, match="symbolic link"):
        try_lock(device)
    assert not (tmp_path / "nothing").exists()


def test_a_planted_hard_link_is_refused(device: str, tmp_path: Path) -> None:
    victim = lock_path(device).with_name(f"victim-{device}")
    victim.write_text("precious", encoding="utf-8")
    try:
        os.link(victim, lock_path(device))
        with pytest.raises(DeviceBusy, match="not a plain file of its own"):
            try_lock(device)
        assert victim.read_text(encoding="utf-8") == "precious"
    finally:
        victim.unlink()


@pytest.mark.parametrize("kind", ["folder", "pipe", "socket"])
def test_what_is_no_plain_file_is_refused(device: str, kind: str) -> None:
    path = lock_path(device)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as plug:
            plug.bind(str(path))
    with pytest.raises(DeviceBusy, match=r"cannot be used: .*; remove it and run again"):
        try_lock(device)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff garbage",
        b"[" * 4000,
        b'"text"',
        b"[1, 2]",
        b'{"pid": "x", "user": 1, "since": 0, "command": ""}',
        b'{"pid": 1, "user": "u", "since": 1e300, "command": ""}',
        b'{"pid": 1e400, "user": "u", "since": 0, "command": ""}',
    ],
)
def test_garbage_in_the_file_names_nobody(device: str, tmp_path: Path, content: bytes) -> None:
    process = holder(device, tmp_path / "journal", 60)
    lock_path(device).write_bytes(content)
    assert try_lock(device, process) == [f"waiting for device '{device}', held by another run"]
    process.communicate(timeout=120)


def test_a_holders_name_cannot_play_with_the_terminal(device: str, tmp_path: Path) -> None:
    process = holder(device, tmp_path / "journal", 60)
    planted = {"pid": 1, "user": "u\x1b[2J", "since": 0, "command": "\r\n" + 4000 * "x"}
    lock_path(device).write_text(json.dumps(planted)[:4096], encoding="utf-8")
    lock_path(device).write_text(json.dumps({**planted, "command": "\r\n" + 3000 * "x"}), encoding="utf-8")
    (said,) = try_lock(device, process)
    process.communicate(timeout=120)
    assert said.isprintable()
    assert "pid 1 of u since" in said
    assert len(said) < 500


def said_by_somebody_else(do: Callable[[], object]) -> str:
    """Return what a process of another user returns, or what it raises, as text.

    The process ends here whatever happens: one that came back would run the rest of these tests beside its parent.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            os.umask(0o077)
            try:
                said = str(do())
            except Exception as error:  # noqa: BLE001 - the parent compares it
                said = f"{type(error).__name__}: {error}"
            os.write(write, said.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_what_somebody_else_raises_comes_back_and_its_process_does_not() -> None:
    def fail() -> None:
        raise ValueError("no such folder")

    def leave() -> None:
        raise SystemExit(3)

    pid = os.getpid()
    assert said_by_somebody_else(os.getuid) == "65534"
    assert said_by_somebody_else(fail) == "ValueError: no such folder"
    assert said_by_somebody_else(leave) == ""
    assert os.getpid() == pid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.skipif(not lock_path("any").parent.stat().st_mode & stat.S_IWOTH, reason="others may not write in /tmp")
class TestAnotherUser:
    @pytest.fixture(autouse=True)
    def made_by_somebody_else(self, device: str) -> None:
        def made() -> None:
            with device_lock(device, waiting=lambda text: None):
                # It ends while it holds the lock.
                os._exit(0)

        assert said_by_somebody_else(made) == ""
        assert lock_path(device).stat().st_uid == 65534

    def test_the_lock_of_somebody_else_can_be_taken(self, device: str) -> None:
        assert try_lock(device) == []

    def test_somebody_else_can_take_ours(self, device: str) -> None:
        lock_path(device).unlink()
        assert try_lock(device) == []
        assert said_by_somebody_else(lambda: try_lock(device)) == "[]"

    def test_a_lock_that_may_not_be_opened_says_so(self, device: str) -> None:
        lock_path(device).chmod(0o600)
        os.chown(lock_path(device), 0, 0)
        said = said_by_somebody_else(lambda: try_lock(device))
        assert said.startswith("DeviceBusy: ")
        assert "cannot be used: Permission denied" in said
