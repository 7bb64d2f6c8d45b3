"""What draws charts: whether it is installed, the browser's libraries as one script, and their notices."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from pytest_ngraph import interpreter
from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    from types import ModuleType

# The page draws by this name; nothing else of the libraries is reachable.
_SNIPPET = "window.vegaEmbed = vegaEmbed;"
# What makes the script meanwhile.
_beside: subprocess.Popen[bytes] | None = None


def drawing() -> tuple[ModuleType, ModuleType]:
    """Return the modules altair and vl_convert. Raise SpecError where one is missing."""
    try:
        import altair
        import vl_convert
    except ImportError as error:
        raise SpecError(f'charts need {error.name}: pip install "pytest-ngraph[report]"') from None
    return altair, vl_convert


def vega_lite() -> str:
    """Return the version of Vega-Lite that definitions are written in, such as ``v6.1``."""
    altair, _ = drawing()
    version: str = altair.SCHEMA_VERSION
    return ".".join(version.split(".")[:2])


@contextmanager
def bundled_beside() -> Iterator[None]:
    """Make the script in a process of its own while the block does something else, such as to read a large store."""
    global _beside
    # It keeps Python's lock while it works, so that a thread would gain nothing.
    words = interpreter.command(__name__)
    environment = {**os.environ, "PYTHONPATH": interpreter.path_for_others()}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as _beside:
        try:
            yield
        finally:
            _beside.kill()
            _beside = None


def main(_: Sequence[str]) -> int:
    """Write the script to standard output."""
    sys.stdout.buffer.write(_bundle().encode())
    return 0


@cache
def libraries() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as vl-convert ships them, as one script without imports."""
    if _beside is not None:
        script, _ = _beside.communicate()
        if _beside.returncode == 0:
            return script.decode()
    return _bundle()


def _bundle() -> str:
    _, convert = drawing()
    script: Any = convert.javascript_bundle(_SNIPPET, vl_version=vega_lite())
    # No text may end the element that the script stands in; inside JavaScript's strings and patterns "<\/" is "</".
    return re.sub(r"</(script)", r"<\\/\1", str(script), flags=re.IGNORECASE)


def notices() -> str:
    """Return the copyright notices and licences of these libraries."""
    return resources.files("pytest_ngraph.report.html").joinpath("notices.txt").read_text(encoding="utf-8")
