"""Files stay whole whenever their writer dies, keep their mode, and leave nothing beside them."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_ngraph.machine import files
from tests.conftest import ROOT

OLD, NEW = b"old\n" * 10_000, b"new\n" * 20_000
# Ends the process, as a power cut or the kernel would, at the given one of the steps that change what is on disk.
WRITER = """
import os, pathlib, signal, sys
from pytest_ngraph.machine import files

left = int(sys.argv[2])

def counted(real):
    def call(*arguments, **keywords):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **keywords)
    return call

os.umask(0)
os.open, os.fdopen, os.fsync = counted(os.open), counted(os.fdopen), counted(os.fsync)
pathlib.Path.replace, pathlib.Path.unlink = counted(pathlib.Path.replace), counted(pathlib.Path.unlink)
files.write(pathlib.Path(sys.argv[1]), b"new\\n" * 20_000, mode=0o600, durable=True)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_bytes(OLD)
    path.chmod(0o600)
    return path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("step", range(6))
def test_a_kill_between_the_steps_leaves_the_old_or_the_new_file(file: Path, step: int) -> None:
    done = subprocess.run([sys.executable, "-c", WRITER, str(file), str(step)], cwd=ROOT, check=False)

    assert (done.returncode == 0) == (step == 5), "the steps of a write are others than this test knows"
    assert file.read_bytes() == (OLD if step < 4 else NEW)
    assert {mode_of(path) for path in file.parent.iterdir()} == {0o600}
    # What a killed writer left goes with the first write a day later; that of a writer that lives stays.
    files.write(file, OLD)
    for left in set(file.parent.iterdir()) - {file}:
        os.utime(left, (time.time() - 90_000,) * 2)
    files.write(file, NEW)
    assert (list(file.parent.iterdir()), file.read_bytes()) == ([file], NEW)


@pytest.mark.parametrize("durable", [False, True])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(
    file: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write(file, NEW, durable=durable)
    monkeypatch.undo()

    assert (list(file.parent.iterdir()), file.read_bytes()) == ([file], OLD)


def test_a_private_file_is_private_whatever_the_old_one_was(file: Path) -> None:
    file.chmod(0o644)
    files.write(file, "käy", mode=0o600)

    assert (mode_of(file), file.read_bytes()) == (0o600, "käy".encode())


def test_a_name_as_long_as_names_may_be_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    files.write(path, "whole")

    assert path.read_text() == "whole"


def test_files_are_replaced_in_one_place() -> None:
    # Folders and a link are moved, too, a certificate and its key step by step; nothing else makes a scratch file.
    moves = re.compile(
        r"os\.(replace|rename|link)\(|\.(rename|replace)\([^,()]*(\([^()]*\))?[^,()]*\)|mkstemp|NamedTemp"
    )
    found = {
        str(path.relative_to(ROOT / "pytest_ngraph"))
        for path in (ROOT / "pytest_ngraph").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if moves.search(line)
    }

    assert found == {
        "machine/files.py", "workloads/folders.py", "devices/trust/authority.py", "devices/trust/tls.py",
        "devices/wire/shipping.py", "worker/sides.py", "upkeep/caches.py",
    }  # fmt: skip
