"""Arrays from a process that is not trusted: what is read, and what is refused before it is."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.worker.handover import Unreadable, load_named, put, put_named, take


def save(folder: Path, array: Any, **how: Any) -> None:
    np.save(folder / "0.npy", array, **how)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool", "complex64", "float64"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3), (1,)])
def test_numbers_come_over_as_they_are_and_the_file_is_gone(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    assert put(tmp_path, [array]) == 1
    [found] = take(tmp_path, [array.size])
    assert found.dtype == array.dtype
    assert found.shape == shape
    assert (found == array).all()
    assert list(tmp_path.iterdir()) == []


def test_arrays_by_columns_come_over_in_their_order(tmp_path: Path) -> None:
    array = np.asfortranarray(np.arange(24, dtype="float32").reshape(2, 3, 4))
    put(tmp_path, [array])
    [found] = take(tmp_path, [24])
    assert (found == array).all()


def test_named_arrays_keep_names_that_are_no_file_names(tmp_path: Path) -> None:
    arrays = {"../up": np.ones(2, "float32"), "a/b": np.zeros(3, "int64"), "": np.ones((), "float32")}
    names = put_named(tmp_path, arrays)
    assert {path.name for path in tmp_path.iterdir()} == {"0.npy", "1.npy", "2.npy"}
    found = load_named(tmp_path, names)
    assert list(found) == list(arrays)
    assert all((found[name] == array).all() for name, array in arrays.items())


def test_nothing_that_runs_when_it_is_read_can_be_put(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        put(tmp_path, [np.array([print], dtype=object)])


def refused(folder: Path, most: int = 6) -> str:
    with pytest.raises(Unreadable) as error:
        take(folder, [most])
    return str(error.value)


def test_a_file_that_is_missing_is_said_to_be(tmp_path: Path) -> None:
    assert refused(tmp_path) == "output 0 was not handed over: No such file or directory"


def test_objects_are_refused_and_never_run(tmp_path: Path) -> None:
    witness = tmp_path / "ran"

    class Runs:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(witness),)

    save(tmp_path, np.array([Runs()], dtype=object), allow_pickle=True)
    assert refused(tmp_path) == "output 0 was handed over as object, which are no numbers that can be compared"
    assert not witness.exists()


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.zeros(2, "M8[s]"), np.zeros(2, [("x", "f4")]), np.zeros(2, "V2")]
)
def test_what_are_no_numbers_is_refused(tmp_path: Path, array: Any) -> None:
    save(tmp_path, array)
    assert "which are no numbers that can be compared" in refused(tmp_path)


def test_more_numbers_than_wanted_are_refused_before_they_are_read(tmp_path: Path) -> None:
    save(tmp_path, np.ones((7,), "float32"))
    assert refused(tmp_path) == "output 0 was handed over with shape (7,) where 6 numbers are wanted"


def test_a_huge_file_is_refused_by_its_size(tmp_path: Path) -> None:
    save(tmp_path, np.ones(6, "float32"))
    with (tmp_path / "0.npy").open("r+b") as file:
        file.truncate(1 << 40)  # a hole: it takes no room
    assert refused(tmp_path) == f"output 0 was handed over as {1 << 40} bytes where 6 numbers are wanted"


@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_that_is_not_as_long_as_it_says_is_refused(tmp_path: Path, change: int) -> None:
    save(tmp_path, np.ones(6, "float32"))
    size = (tmp_path / "0.npy").stat().st_size
    os.truncate(tmp_path / "0.npy", size + change)
    assert refused(tmp_path) == "output 0 was handed over with shape (6,), and the file is not as long as that"


def header(text: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"PK\x03\x04",
        b"cposix\nsystem\n(S'true'\ntR.",
        header(b"__import__('os').system('true')"),
        header(b"{'descr': '<f4', 'fortran_order': False, 'shape': 6}"),
        header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'more': 1}"),
        header(b"(" * 3000),
        header(b"{}", (9, 9)),
        header(b"{'descr': '|O', 'fortran_order': False, 'shape': ('6',)}"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0.npy").write_bytes(content)
    assert refused(tmp_path) == "output 0 was handed over as something that is not an .npy file"


@pytest.mark.parametrize("shape", ["(-1, -6)", "(-6,)", "(1 << 62, 4)", "(4611686018427387904, 4)", "(True, 6)"])
def test_shapes_that_lie_are_refused(tmp_path: Path, shape: str) -> None:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    (tmp_path / "0.npy").write_bytes(header(text) + bytes(24 if "True" not in shape else 0))
    assert "output 0 was handed over" in refused(tmp_path)


def test_neither_links_nor_pipes_nor_folders_are_followed(tmp_path: Path) -> None:
    right = tmp_path / "right.npy"
    np.save(right, np.ones(6, "float32"))
    place = tmp_path / "0.npy"
    place.symlink_to(right)
    assert "was not handed over: Too many levels of symbolic links" in refused(tmp_path)
    place.unlink()
    os.link(right, place)
    assert refused(tmp_path) == "output 0 was handed over as something other than a file of its own"
    place.unlink()
    os.mkfifo(place)
    assert refused(tmp_path) == "output 0 was handed over as something other than a file of its own"
    place.unlink()
    place.mkdir()
    assert "output 0 was handed over as something other than" in refused(tmp_path)
    assert right.exists()
