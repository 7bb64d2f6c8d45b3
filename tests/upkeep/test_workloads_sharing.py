"""Files that cached folders share: kept once, verified with each of the folders, and gone with the last of them."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_ngraph.workloads import folders

# Weights are small files here; what they are called is their content, as in the cache.
WEIGHTS = {f"{hashlib.sha256(content).hexdigest()}.bin": content for content in (b"one" * 3000, b"two" * 2000)}
ONE, TWO = WEIGHTS
VERSIONS = itertools.count(1)


def make(folder: Path, names: tuple[str, ...] = (ONE, TWO), text: str = "graph") -> list[Path]:
    """Publish a folder that rests on a graph of its own and weights; return these files."""

    def write(scratch: Path) -> Mapping[str, str]:
        graph = folders.shared_file(scratch / folder.name, ".onnx")
        graph.parent.mkdir()
        graph.write_text(f"{text} of {folder.name}")
        for name in names:
            graph.with_name(name).write_bytes(WEIGHTS[name])
        return {"text": text}

    folders.publish(folder, write, shares=True)
    graph = folders.shared_file(folder, ".onnx")
    return [graph, *(graph.with_name(name) for name in names)]


def put(file: Path, content: bytes) -> None:
    """Write to a file so that it is seen to be another version, however soon after the last one."""
    file.write_bytes(content)
    os.utime(file, ns=(next(VERSIONS),) * 2)


def flip(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    put(file, bytes(content))


def shared(root: Path) -> set[str]:
    return {path.name for path in (root / "weights").iterdir()}


def test_a_file_of_the_same_content_is_kept_once(tmp_path: Path) -> None:
    _, first, _ = make(tmp_path / "one")
    before = first.stat().st_ino
    make(tmp_path / "two", (ONE,))
    assert shared(tmp_path) == {"one.onnx", "two.onnx", ONE, TWO}
    assert first.stat().st_ino == before
    assert first.stat().st_nlink == 1
    assert folders.read(tmp_path / "one") == folders.read(tmp_path / "two") == {"text": "graph"}
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["meta.json"]


def test_a_file_knows_the_folder_that_it_was_published_with(tmp_path: Path) -> None:
    graph, *_ = make(tmp_path / "onnx-1")
    assert folders.owner_of(graph) == tmp_path / "onnx-1"
    assert folders.owner_of(tmp_path / "onnx-2" / "model.onnx") == tmp_path / "onnx-2"


def test_a_flipped_bit_in_a_shared_file_is_found_with_every_folder_that_rests_on_it(tmp_path: Path) -> None:
    draw = random.Random(7)
    files = make(tmp_path / "one")
    make(tmp_path / "two", (TWO,))
    for file in files:
        whole = file.read_bytes()
        for _ in range(20):
            flip(file, draw)
            assert folders.damage(tmp_path / "one") == file.name
            assert folders.damage(tmp_path / "two") == (file.name if file.name == TWO else "")
            put(file, whole)
    assert folders.damage(tmp_path / "one") == folders.damage(tmp_path / "two") == ""


def test_one_folder_that_is_made_again_makes_all_whole_that_rest_on_the_same(tmp_path: Path) -> None:
    _, _, file = make(tmp_path / "one")
    make(tmp_path / "two", (TWO,))
    flip(file, random.Random(1))

    assert folders.drop_damaged(tmp_path / "one") == f"{file} is damaged: removed, and made again"
    # It is gone already, and was named.
    assert folders.drop_damaged(tmp_path / "two") == ""
    assert folders.read(tmp_path / "one") is folders.read(tmp_path / "two") is None
    make(tmp_path / "two", (TWO,), "again")
    assert folders.read(tmp_path / "one") == {"text": "graph"}
    assert folders.damage(tmp_path / "one") == folders.damage(tmp_path / "two") == ""


def test_everything_that_is_damaged_is_dropped_where_the_first_is_gone_already(tmp_path: Path) -> None:
    draw = random.Random(2)
    _, one = make(tmp_path / "a", (ONE,))
    _, _, two = make(tmp_path / "b")
    flip(one, draw)
    flip(two, draw)
    assert folders.drop_damaged(tmp_path / "a") == f"{one} is damaged: removed, and made again"
    assert folders.drop_damaged(tmp_path / "b") == f"{two} is damaged: removed, and made again"
    make(tmp_path / "a", (ONE,))
    # Only one of both is back.
    assert folders.read(tmp_path / "b") is None


def test_several_that_are_damaged_are_counted(tmp_path: Path) -> None:
    files = make(tmp_path / "one")
    for file in files:
        flip(file, random.Random(3))
    assert folders.drop_damaged(tmp_path / "one").endswith(" and 2 more are damaged: removed, and made again")
    assert shared(tmp_path) == set()


@pytest.mark.parametrize("how", ["half", "flipped", "longer", "empty"])
@pytest.mark.parametrize("left_by", ["another folder", "nobody"])
def test_publishing_replaces_a_damaged_file_that_is_there(tmp_path: Path, how: str, left_by: str) -> None:
    file = tmp_path / "weights" / ONE
    if left_by == "nobody":
        file.parent.mkdir()
        file.write_bytes(WEIGHTS[ONE])
    else:
        make(tmp_path / "one", (ONE,))
    if how == "flipped":
        flip(file, random.Random(4))
    else:
        put(file, {"half": WEIGHTS[ONE][:4500], "longer": WEIGHTS[ONE] + b"!", "empty": b""}[how])
        assert folders.read(tmp_path / "one") is None
    reader = file.open("rb")

    make(tmp_path / "two", (ONE,))

    assert file.read_bytes() == WEIGHTS[ONE]
    assert folders.damage(tmp_path / "one") == folders.damage(tmp_path / "two") == ""
    # Whoever had it open goes on with what it was: it was replaced, not written to.
    assert reader.read() != WEIGHTS[ONE]
    reader.close()


def test_a_folder_whose_graph_is_damaged_is_published_with_the_graph_of_who_comes(tmp_path: Path) -> None:
    graph, *_ = make(tmp_path / "one", text="first")
    make(tmp_path / "one", text="second")
    assert graph.read_text() == "first of one"
    put(graph, b"fjrst of one")
    make(tmp_path / "one", text="second")
    assert graph.read_text() == "second of one"
    assert folders.read(tmp_path / "one") == {"text": "second"}
    assert folders.damage(tmp_path / "one") == ""


def test_a_writer_that_fails_leaves_no_shared_file(tmp_path: Path) -> None:
    def write(scratch: Path) -> Mapping[str, str]:
        (scratch / "weights").mkdir()
        (scratch / "weights" / ONE).write_bytes(WEIGHTS[ONE][:10])
        raise MemoryError

    with pytest.raises(MemoryError):
        folders.publish(tmp_path / "one", write, shares=True)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_share_nothing_may_have_a_folder_of_that_name(tmp_path: Path) -> None:
    def write(scratch: Path) -> Mapping[str, str]:
        (scratch / "weights").mkdir()
        (scratch / "weights" / "engine").write_text("mine")
        return {}

    folders.publish(tmp_path / "one", write)
    assert (tmp_path / "one" / "weights" / "engine").read_text() == "mine"
    assert not (tmp_path / "weights").exists()


# Sweeping


def test_a_shared_file_goes_with_the_last_folder_that_rests_on_it(tmp_path: Path) -> None:
    make(tmp_path / "one", (ONE,))
    make(tmp_path / "two")
    assert folders.sweep_shared(tmp_path) == 0
    assert {path.name for path in folders.unneeded(tmp_path, [tmp_path / "two"])} == {"two.onnx", TWO}
    assert folders.drop_unused(tmp_path / "two", time.time() + 1)
    assert folders.sweep_shared(tmp_path) == len(WEIGHTS[TWO]) + len("graph of two")
    assert shared(tmp_path) == {"one.onnx", ONE}
    assert folders.damage(tmp_path / "one") == ""
    assert folders.drop_unused(tmp_path / "one", time.time() + 1)
    folders.sweep_shared(tmp_path)
    assert shared(tmp_path) == set()
    assert folders.sweep_shared(tmp_path / "nowhere") == 0


def test_a_folder_that_is_read_meanwhile_stays(tmp_path: Path) -> None:
    make(tmp_path / "one")
    os.utime(tmp_path / "one" / "meta.json", (1, 1))
    before = time.time() - 1000
    folders.read(tmp_path / "one")
    assert not folders.drop_unused(tmp_path / "one", before)
    assert folders.read(tmp_path / "one") is not None


def test_what_a_dead_process_had_written_is_no_reason_to_keep_what_it_shares_for_ever(tmp_path: Path) -> None:
    make(tmp_path / "one")
    (tmp_path / "one").rename(tmp_path / ".making-dead")
    assert folders.sweep_shared(tmp_path) == 0
    os.utime(tmp_path / ".making-dead", (1, 1))
    make(tmp_path / "two", (ONE,))
    folders.sweep_shared(tmp_path)
    assert shared(tmp_path) == {"two.onnx", ONE}


AT_ONCE = """
import random, sys, time
from pathlib import Path
from pytest_ngraph.workloads import folders
from tests.upkeep.test_workloads_sharing import make

root, role = Path(sys.argv[1]), sys.argv[2]
draw = random.Random(role)
if role.startswith("publisher"):
    for number in range(60):
        # Every second one is called as that of another publisher, and each shares its weights with all.
        folder = root / (f"{role}-{number}" if number % 2 else f"both-{number}")
        make(folder, text=role)
        assert (root / "weights").is_dir()
else:
    until = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < until:
        if role == "pruner":
            for folder in list(root.glob("[bp]*-1?")):
                folders.drop_unused(folder, time.time() + 1)
            folders.sweep_shared(root)
        else:
            for file in list(root.glob("weights/*.bin")):
                try:
                    # As a disk does, not as somebody who writes a file anew.
                    content = bytearray(file.read_bytes())
                    with file.open("r+b") as handle:
                        handle.seek(draw.randrange(len(content)))
                        handle.write(b"?")
                except (OSError, ValueError):
                    continue
            for folder in list(root.glob("[bp]*-*")):
                folders.drop_damaged(folder)
        time.sleep(0.01)
"""


@pytest.mark.real
@pytest.mark.parametrize("beside", ["pruner", "damager"])
def test_processes_that_share_weights_at_once_leave_no_folder_that_is_wrong(tmp_path: Path, beside: str) -> None:
    here = Path(__file__).parents[2]
    other = subprocess.Popen([sys.executable, "-c", AT_ONCE, str(tmp_path), beside, "3"], cwd=here)
    publishers = [
        subprocess.Popen([sys.executable, "-c", AT_ONCE, str(tmp_path), f"publisher{name}"], cwd=here) for name in "ab"
    ]
    assert [each.wait(timeout=600) for each in (*publishers, other)] == [0, 0, 0]
    if beside == "damager":
        # What was damaged last is not found by anybody yet.
        for folder in tmp_path.glob("[bp]*-*"):
            folders.drop_damaged(folder)
        make(tmp_path / "last")
    else:
        folders.sweep_shared(tmp_path)
    there = [folder for folder in tmp_path.iterdir() if folder.is_dir() and folder.name != "weights"]
    assert len(there) > 60
    for folder in there:
        graph = folders.shared_file(folder, ".onnx")
        meta = folders.read(folder)
        assert meta is not None, folder
        assert folders.damage(folder) == ""
        assert graph.read_text() == f"{meta['text']} of {folder.name}"
    for name, content in WEIGHTS.items():
        assert (tmp_path / "weights" / name).read_bytes() == content
    assert shared(tmp_path) == {*WEIGHTS, *(f"{folder.name}.onnx" for folder in there)}
