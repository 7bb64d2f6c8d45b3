"""Named arrays in .npz files, kept by position, so that any name will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def save(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write the arrays, uncompressed and in order. Their names are kept by ``describe``."""
    import numpy as np

    np.savez(path, *arrays.values())


def load(path: Path, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Read the arrays that ``save`` wrote, under their names."""
    import numpy as np

    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[f"arr_{index}"] for index, name in enumerate(names)}


def in_doubles(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array in f64, and complex numbers in two of them: as f64 they would lose their imaginary parts."""
    import numpy as np

    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def describe(arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[dict[str, Any]]:
    """Return name, dtype and shape of each array, in order, in a form that JSON takes."""
    return [{"name": name, "dtype": str(array.dtype), "shape": list(array.shape)} for name, array in arrays.items()]
