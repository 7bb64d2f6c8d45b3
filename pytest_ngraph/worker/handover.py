"""Arrays handed from one process to another as files, and read by one that does not trust the other."""

from __future__ import annotations

import io
import math
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pytest_ngraph.errors import NgraphError

if TYPE_CHECKING:
    import numpy as np

# Formats 1 to 3 of the .npy files have a header of a few hundred bytes at most.
_MOST_HEADER_BYTES = 4096
# Nothing that a runtime computes in has more: whatever precision it gives, the reference has at least a quarter of it.
_MOST_ITEM_BYTES = 16
_NUMBERS = "fciub"
# Below the folder that outputs are handed over in: those at other sizes than are measured.
ELSEWHERE = "elsewhere"


class Unreadable(NgraphError):
    """What was handed over is not what was asked for."""


def put(folder: Path, arrays: Iterable[np.ndarray[Any, Any]]) -> int:
    """Write arrays to a folder, by their position. Return how many. Raises ValueError for what is not numbers."""
    import numpy as np

    count = 0
    for count, array in enumerate(arrays, 1):
        np.save(folder / _name(count - 1), np.asarray(array), allow_pickle=False)
    return count


def take(folder: Path, elements: Sequence[int]) -> list[np.ndarray[Any, Any]]:
    """Read as many arrays as there are numbers of elements, and remove them.

    An array of another shape comes back as it is, but never one of more elements: raises Unreadable where a file is
    missing, is no plain file of its own, holds anything but numbers, or is longer or shorter than it says or may.
    """
    found = []
    for position, most in enumerate(elements):
        path = folder / _name(position)
        found.append(_read(path, position, most))
        path.unlink()
    return found


def put_named(folder: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[str]:
    """Write named arrays to a folder. Return the names in order."""
    put(folder, arrays.values())
    return list(arrays)


def load_named(folder: Path, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Read what ``put_named`` wrote."""
    import numpy as np

    return {name: np.load(folder / _name(position), allow_pickle=False) for position, name in enumerate(names)}


def _name(position: int) -> str:
    return f"{position}.npy"


def _read(path: Path, position: int, most: int) -> np.ndarray[Any, Any]:
    what = f"output {position}"
    try:
        # Not through a link, and without waiting for the other end of a pipe.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"{what} was not handed over: {error.strerror}") from None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(handle)
        raise Unreadable(f"{what} was handed over as something other than a file of its own")
    with os.fdopen(handle, "rb") as file:
        if status.st_size > most * _MOST_ITEM_BYTES + _MOST_HEADER_BYTES:
            raise Unreadable(f"{what} was handed over as {status.st_size} bytes where {most} numbers are wanted")
        return _numbers(file, what, most)


def _numbers(file: BinaryIO, what: str, most: int) -> np.ndarray[Any, Any]:
    import numpy as np

    shape, by_column, dtype = _header(file, what)
    if dtype.kind not in _NUMBERS or dtype.hasobject:
        raise Unreadable(f"{what} was handed over as {dtype}, which are no numbers that can be compared")
    count = math.prod(shape)
    if count > most or any(length < 0 for length in shape):
        raise Unreadable(f"{what} was handed over with shape {shape} where {most} numbers are wanted")
    array = np.fromfile(file, dtype, count)
    if array.size != count or file.read(1):
        raise Unreadable(f"{what} was handed over with shape {shape}, and the file is not as long as that")
    return array.reshape(shape[::-1]).T if by_column else array.reshape(shape)


def _header(file: BinaryIO, what: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of a .npy file. It is a literal that is parsed, never run, and bounded."""
    from numpy.lib import format as npy

    start = io.BytesIO(file.read(_MOST_HEADER_BYTES))
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    try:
        header: tuple[tuple[int, ...], bool, np.dtype[Any]] = readers[npy.read_magic(start)](start)
    except Exception:  # noqa: BLE001 - NumPy's reader raises whatever a header that means harm makes of it
        raise Unreadable(f"{what} was handed over as something that is not an .npy file") from None
    file.seek(start.tell())
    return header
