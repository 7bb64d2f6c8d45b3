"""Each of the ways to have a time that was not earned, caught by the conformance suite and by a real run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import skip_without

ROOT = Path(__file__).resolve().parents[1]
HOOK = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("cheat", "tests.cheating_compilers:COMPILER")
"""
# cheat: what the conformance suite finds.
FOUND = {
    "reference": "bind() or run() keeps what was",
    "outputs": "it works in outputs()",
    "first": "results are cached",
    "cached": "results are cached",
    "once": "bind() or run() keeps what was",
    "clock": "it replaced time.perf_counter and time.perf_counter_ns",
}


def conformance(folder: Path, compiler: str, *select: str) -> str:
    (folder / "cheats.py").write_text(HOOK, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "cheats", "-p", "no:cacheprovider", "--tb=short"]
    done = subprocess.run(
        [*command, "--pyargs", "pytest_ngraph.conformance", f"--ngraph-compiler={compiler}", *select],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    return done.stdout + done.stderr


@pytest.mark.real
def test_conformance_has_a_case_for_every_cheat(tmp_path: Path) -> None:
    skip_without("torch")
    every = ("nothing", *FOUND)
    said = conformance(
        tmp_path,
        ",".join(f"cheat[do={cheat}]" for cheat in every),
        "-k",
        "calls_do_their_work or (test_contract and block-conv and (agrees or follows_inputs or leaves_clocks))",
    )
    failed = set(re.findall(r"^FAILED .*cheat\[do=(\w+)\]", said, re.MULTILINE))
    assert failed == set(FOUND), said
    for words in FOUND.values():
        assert words in said, said


@pytest.mark.real
@pytest.mark.parametrize("compiler", ["identity", "torchscript", "onnxruntime", "openvino"])
def test_honest_adapters_do_their_work_when_they_are_timed(tmp_path: Path, compiler: str) -> None:
    skip_without("torch", *{"onnxruntime": ["onnxruntime"], "openvino": ["openvino"]}.get(compiler, []))
    chosen = "calls_do_their_work or (test_contract and works_when_called and (block-conv or tokens or named-inputs))"
    said = conformance(tmp_path, compiler, "-k", chosen)
    assert re.search(r"^[2-9] passed", said, re.MULTILINE), said
    assert "failed" not in said, said
