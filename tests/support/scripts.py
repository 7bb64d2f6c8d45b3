"""Scripts that measure without pytest, in a folder of their own: written, run or started, and what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What else runs on the machine must not make launches invalid, and visits are short; pytest must not be needed.
HEAD = """
import sys
import tests.support.undisturbed, tests.support.brief, tests.support.undelayed, tests.support.workers
tests.support.workers.pytest_configure()
sys.modules["pytest"] = None
from pytest_ngraph import *
from pytest_ngraph import measure
"""
NULL = {"compiler": "null[sample_us=20]", "baseline": "null[sample_us=200]", "protocol": "quick"}
# The same for pytest.
OPTIONS = tuple(f"--ngraph-{name}={value}" for name, value in NULL.items())


def write(folder: Path, source: str, name: str = "bench.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{HEAD}NULL = {NULL!r}\n{source}")
    return path


def environment(**variables: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("CI", "PYTEST_ADDOPTS")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, **variables}


def start(folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """Start Python with these words in a folder."""
    return subprocess.Popen(
        [sys.executable, *words], cwd=folder, env=environment(**variables), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(folder: Path, source: str, *, name: str = "bench.py", **variables: str) -> tuple[int, str, str]:
    """Run a script. Return its exit status, what it printed, and what it said on standard error."""
    return finished(start(folder, str(write(folder, source, name)), **variables))


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    printed, said = process.communicate(timeout=180)
    return process.returncode, printed, said


def printed(folder: Path, source: str, *, name: str = "bench.py", **variables: str) -> str:
    """Run a script that must succeed, and return what it printed."""
    status, out, said = run(folder, source, name=name, **variables)
    assert status == 0, f"{out}\n{said}"
    return out
