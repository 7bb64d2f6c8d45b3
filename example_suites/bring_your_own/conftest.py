"""Add a compiler of our own, and fetch an ONNX file to measure from the onnx package."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ngraph.compilers.catalogue import Catalogue

_LIGHT = "backend/test/data/light/light_squeezenet.onnx"
_HERE = Path(__file__).parent


def pytest_ngraph_compilers(catalogue: Catalogue) -> None:
    """Make ``onnxreference`` known; the worker imports the string on its own."""
    catalogue.add("onnxreference", "my_compiler:COMPILER")


def pytest_configure() -> None:
    """Copy a real third-party model out of the onnx package, once."""
    package = find_spec("onnx")
    target = _HERE / "models" / "squeezenet.onnx"
    if package is not None and package.origin is not None and not target.exists():
        shutil.copyfile(Path(package.origin).parent / _LIGHT, target)
