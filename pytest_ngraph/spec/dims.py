"""Sizes of the open dimensions of a model, as they stand behind its reference: ``onnx:bert.onnx[S=128,T=7]``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.texts.shown import one_line

EXPECTED = "a name and a whole number >= 1 for each open dimension, such as [S=128] or [S=128,T=7]"
# How a file calls the dimension that is the length of its sequences, without case, dashes and underscores.
_LENGTHS = frozenset({"sequence", "seq", "seqlen", "seqlength", "sequencelen", "sequencelength"})
_BEHIND = re.compile(r"\[([^\[\]]*)\]\Z")
_SIZE = re.compile(r"[1-9][0-9]*\Z")
# Runtimes count in 32 bits, and a shape of ONNX in 64.
LARGEST = 2**31 - 1


def split(name: str) -> tuple[str, str]:
    """Split what stands in brackets at the end of a reference, a path or a locator off, without the brackets."""
    found = _BEHIND.search(name)
    return (name[: found.start()], found.group(1)) if found else (name, "")


def read(name: str) -> dict[str, int]:
    """Return the sizes that a reference, a path or a locator ends with, by dimension. Raise SpecError for others."""
    if _BEHIND.search(name) is None:
        return {}
    dims: dict[str, int] = {}
    for part in split(name)[1].split(","):
        dim, _, size = (piece.strip() for piece in part.rpartition("="))
        if not dim or not _SIZE.match(size):
            raise SpecError(f"model {name!r}: {part.strip()!r} in its brackets is not allowed (expected {EXPECTED})")
        if dim in dims:
            raise SpecError(f"model {name!r}: dimension {dim!r} is given twice")
        # By its length first: Python refuses to read a number of thousands of digits.
        if len(size) > len(str(LARGEST)) or int(size) > LARGEST:
            raise SpecError(f"model {one_line(name)!r}: dimension {dim!r} is too large (allowed: at most {LARGEST})")
        dims[dim] = int(size)
    return dims


def written(name: str, dims: Mapping[str, int]) -> str:
    """Write sizes behind a reference or a path, by name, so that equal ones are written equally."""
    inner = ",".join(f"{dim}={size}" for dim, size in sorted(dims.items()))
    return f"{name}[{inner}]" if inner else name


def refuse_name(name: object) -> str | None:
    """Return why something can be no name of a dimension, or None."""
    if not isinstance(name, str) or not name.strip():
        return "is no name of a dimension"
    return "cannot be written in a reference: it has one of [ ] , =" if set("[],=") & set(name) else None


def with_dims(model: ModelRef, dims: Mapping[str, int], *, taken: bool) -> str:
    """Return the reference of a model with more sizes.

    ``taken`` says whether its kind takes any. Raises SpecError where it does not, and for another size than its own.
    """
    given = f"dims={one_line(repr(dict(dims)))}"
    if not taken:
        raise SpecError(f"{given}: model {model.text!r}: it does not take dims (ONNX files do, for open dimensions)")
    own = read(model.text)
    for dim, size in dims.items():
        if own.get(dim, size) != size:
            raise SpecError(f"{given}: model {model.text!r} gives {dim}={own[dim]} itself; write one of them")
    return written(split(model.text)[0], {**own, **dims})


def is_length(name: str) -> bool:
    """Return whether a dimension is called as the length of sequences is: ``sequence``, ``seq_len`` or the like."""
    return re.sub(r"[-_ ]", "", name.lower()) in _LENGTHS
