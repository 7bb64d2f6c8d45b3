"""Importing TVM: without the PyTorch that it would take along, and without the 20 s of its tensor intrinsics."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


def import_tvm() -> Any:
    """Import TVM, without PyTorch where that is not imported yet.

    It takes PyTorch along, where it is installed, to exchange tensors with it. A worker that reads an ONNX file has
    none to exchange.
    """
    # Read when the thread pool starts: the worker's affinity says where threads run, for this compiler as for others.
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    absent = sys.modules.setdefault("torch", None) is None  # type: ignore[arg-type]
    try:
        import tvm
    finally:
        if absent:
            del sys.modules["torch"]
    return tvm


def import_intrinsics() -> None:
    """Import the tensor intrinsics, which searching and building schedules needs and nothing else does."""
    import_tvm()
    with remembering_modules():
        import tvm.s_tir.tensor_intrin  # noqa: F401


@contextmanager
def remembering_modules() -> Iterator[None]:
    """Make ``inspect`` look for the module of a frame only once for each file.

    TVM asks for the whole stack at every statement of a script that it parses. Some frames on it, such as those of the
    import system, come from files that no module has: for each of them ``inspect`` goes through all modules there are,
    every time.
    """
    look_for = inspect.getmodule
    known: dict[str, ModuleType | None] = {}

    def getmodule(object: Any, _filename: str | None = None) -> ModuleType | None:
        if not inspect.isframe(object):
            return look_for(object, _filename)
        file = object.f_code.co_filename
        if file not in known:
            known[file] = look_for(object, _filename)
        return known[file]

    inspect.getmodule = getmodule
    try:
        yield
    finally:
        inspect.getmodule = look_for
