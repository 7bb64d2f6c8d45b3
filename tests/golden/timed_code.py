"""What launches time and compile, as digests of code; run as a script, it writes the golden file of today's.

Whoever changes that code decides here whether launches of before still count: ``SINCE`` in ``devices/evidence.py``.
"""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path

import pytest_ngraph
from pytest_ngraph.devices.evidence import SINCE

HOUSE = Path(pytest_ngraph.__file__).parent
GOLDEN = Path(__file__).with_suffix(".json")
# The clock loop, the calls of a mix, what draws weights, and the adapters.
TIMED = (
    "worker/timing.py",
    "checks/mixed.py",
    "load/open_loop.py",
    "workloads/building.py",
    "workloads/loaded.py",
    "workloads/kinds/blocks.py",
    "workloads/kinds/images.py",
    "workloads/kinds/transformers/*.py",
    "workloads/modules/*.py",
    "workloads/shapes/padding.py",
    "compilers/**/*.py",
)


def today() -> dict[str, object]:
    """Return the version that the evidence names, and a digest of each file's code."""
    files = sorted({path for pattern in TIMED for path in HOUSE.glob(pattern)})
    return {"since": SINCE, "code": {path.relative_to(HOUSE).as_posix(): digest(path.read_text()) for path in files}}


def digest(code: str) -> str:
    """Return a digest of the lines of code that are neither empty nor a comment nor of a docstring.

    Lines, since neither tokens nor the syntax tree are the same in all versions of Python.
    """
    words: set[int] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            words.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = ((number, line.strip()) for number, line in enumerate(code.splitlines(), 1))
    kept = [line for number, line in lines if line and not line.startswith("#") and number not in words]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:16]


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(today(), indent=1) + "\n")
