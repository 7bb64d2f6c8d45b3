"""Which convolutions and products of matrices of a call oneDNN has computed, and by which of its algorithms.

oneDNN says so on standard output, in a mode that can be switched on for one call. At rest it costs nothing: a call of a
depthwise convolution takes 50 us before and after, and one that is listened to up to 7 % longer.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

# Whoever has asked for it himself reads it himself.
_VARIABLES = ("ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE")
_COUNTED = ("convolution", "deconvolution", "inner_product", "matmul")


def algorithms_of(call: Callable[[], Any]) -> str | None:
    """Call once and return what oneDNN had to do with it, or None where it does not say.

    What it had nothing to do with PyTorch has computed by itself, or with another library.
    """
    from torch.backends import mkldnn

    if not mkldnn.is_available() or any(map(os.environ.get, _VARIABLES)):
        return None
    with _standard_output() as said:
        with mkldnn.verbose(mkldnn.VERBOSE_ON):
            call()
        ctypes.CDLL(None).fflush(None)
        said.seek(0)
        found = used(said.read().decode("utf-8", "replace").splitlines())
    return f"oneDNN {found}" if found else "none of oneDNN"


def used(lines: Iterable[str]) -> str:
    """Return what oneDNN says to have computed: each kind and implementation, the most frequent ones first."""
    counts: Counter[str] = Counter()
    for line in lines:
        # Until 3.4 a line says neither its version nor that this is a primitive.
        words = line.removeprefix("onednn_verbose,").removeprefix("v1,primitive,").split(",")
        if words[0] == "exec" and len(words) > 3 and words[2] in _COUNTED:
            counts[f"{words[2]} {words[3]}"] += 1
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    """Lead what this process writes to standard output into a file, for C as for Python."""
    sys.stdout.flush()
    flush = ctypes.CDLL(None).fflush
    flush(None)
    before = os.dup(1)
    try:
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 1)
            try:
                yield file
            finally:
                flush(None)
                os.dup2(before, 1)
    finally:
        os.close(before)
