"""Folders of the cache appear whole or not at all."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ngraph.workloads import folders

WRITER = """
import sys, time
from pathlib import Path
from pytest_ngraph.workloads import folders

def write(scratch):
    for index in range(20):
        (scratch / f"part{index}").write_bytes(sys.argv[2].encode() * 50_000)
    return {"by": sys.argv[2]}

for number in range(20):
    folders.publish(Path(sys.argv[1]) / f"folder{number}", write)
"""


def make(folder: Path, text: str = "content") -> None:
    def write(scratch: Path) -> dict[str, str]:
        (scratch / "data").write_text(text)
        return {"text": text}

    folders.publish(folder, write)


def test_what_is_published_is_read_back(tmp_path: Path) -> None:
    make(tmp_path / "root" / "one")
    assert folders.read(tmp_path / "root" / "one") == {"text": "content"}
    assert folders.read(tmp_path / "root" / "two") is None


def test_the_first_to_finish_stays(tmp_path: Path) -> None:
    make(tmp_path / "one", "first")
    before = (tmp_path / "one" / "data").stat().st_ino
    make(tmp_path / "one", "second")
    assert folders.read(tmp_path / "one") == {"text": "first"}
    assert (tmp_path / "one" / "data").stat().st_ino == before


@pytest.mark.parametrize("damage", ["no marker", "half a marker", "other marker", "short file", "no file"])
def test_a_damaged_folder_is_not_trusted_and_made_again(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "one"
    make(folder, "first")
    marker = folder / "meta.json"
    if damage == "no marker":
        marker.unlink()
    elif damage == "half a marker":
        marker.write_text(marker.read_text()[:20])
    elif damage == "other marker":
        marker.write_text("[1]")
    elif damage == "short file":
        (folder / "data").write_text("fir")
    else:
        (folder / "data").unlink()
    assert folders.read(folder) is None
    make(folder, "second")
    assert folders.read(folder) == {"text": "second"}


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def write(scratch: Path) -> dict[str, str]:
        (scratch / "data").write_text("half")
        raise MemoryError

    with pytest.raises(MemoryError):
        folders.publish(tmp_path / "one", write)
    assert list(tmp_path.iterdir()) == []


def test_what_dead_processes_left_is_swept_after_a_day(tmp_path: Path) -> None:
    old, young = tmp_path / ".making-old", tmp_path / ".making-young"
    for path in (old, young):
        path.mkdir()
    os.utime(old, (1, 1))
    make(tmp_path / "one")
    assert not old.exists()
    assert young.exists()


def test_processes_that_publish_the_same_folders_at_once_never_mix_them(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name], cwd=root) for name in ("a", "b", "c")
    ]
    assert [writer.wait(timeout=300) for writer in writers] == [0, 0, 0]
    for number in range(20):
        folder = tmp_path / f"folder{number}"
        meta = folders.read(folder)
        assert meta is not None
        assert {part.read_bytes() for part in folder.glob("part*")} == {meta["by"].encode() * 50_000}
    assert not list(tmp_path.glob(".making-*"))


def test_a_flipped_bit_in_any_file_is_found_and_the_folder_made_again(tmp_path: Path) -> None:
    folder, draw = tmp_path / "one", random.Random(12)
    make(folder, "content " * 2000)
    whole = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert folders.damage(folder) == folders.drop_damaged(folder) == ""
    for name, content in whole.items():
        for _ in range(40):
            changed = bytearray(content)
            changed[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            (folder / name).write_bytes(changed)
            assert folders.damage(folder) == name
            assert name == "data" or folders.read(folder) is None
        (folder / name).write_bytes(content)
    (folder / "data").write_bytes(whole["data"][:-1] + b"!")
    assert folders.drop_damaged(folder) == f"{folder}/data is damaged: removed, and made again"
    assert not folder.exists()
    make(folder)
    assert folders.read(folder) == {"text": "content"}
