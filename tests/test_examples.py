"""The example suites run as they are shipped: on null in seconds, and once for real."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import skip_without

SUITES = Path(__file__).resolve().parent.parent / "example_suites"
NULL = ("--ngraph-compiler=null[sample_us=20]", "--ngraph-baseline=null[sample_us=40]", "--ngraph-protocol=quick")


def run(name: str, folder: Path, *options: str, limit: float = 300) -> tuple[int, str]:
    """Copy a suite into an empty folder and run it there, as a user who cloned it would."""
    suite = folder / name
    shutil.copytree(SUITES / name, suite, ignore=shutil.ignore_patterns(".ngraph", "__pycache__", "*.onnx"))
    environment = {**os.environ, "COLUMNS": "80"}
    environment.pop("CI", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(suite), *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=limit,
    )
    return done.returncode, done.stdout + done.stderr


def test_quickstart_on_null(tmp_path: Path) -> None:
    code, output = run("quickstart", tmp_path, *NULL)
    assert code == 0, output
    assert "8 passed" in output
    assert "verdicts: 11 pass" in output
    # 1 + 20 against 1 + 40 microseconds and more: the table shows the true speed-up.
    assert re.search(r"^ +8 .*\n +null\[sample_us=20\] +\d+ +1\.7\dx", output, re.MULTILINE)
    table = output[output.index("device local\n") :].splitlines()
    assert max(len(line) for line in table[: table.index("")]) <= 80
    assert f"results: {tmp_path / 'quickstart/.ngraph/results.sqlite'}" in output


def test_bring_your_own_on_null(tmp_path: Path) -> None:
    code, output = run("bring_your_own", tmp_path, *NULL)
    assert code == 0, output
    # The ONNX file is for two named compilers only, which null is not; null has no outputs to match.
    assert "1 passed, 2 skipped, 1 deselected" in output
    assert "no outputs to compare" in run("bring_your_own", tmp_path / "again", *NULL, "-rs")[1]


def test_compile_time_on_null(tmp_path: Path) -> None:
    code, output = run("compile_time", tmp_path, *NULL, "--ngraph-batch=32")
    assert code == 0, output
    assert "verdicts: 5 pass" in output
    assert output.count(" rebuilt\n") == 5


@pytest.mark.real
def test_quickstart_for_real(tmp_path: Path) -> None:
    skip_without("torch", "timm", "onnxruntime", "openvino")
    code, output = run("quickstart", tmp_path, "--ngraph-protocol=quick", limit=900)
    assert code in (0, 1), output
    assert "identity" in output
    assert "ran onnxruntime: CPUExecutionProvider, f32" in output
    assert "ran openvino: CPU, f32" in output
    # A quick verdict has no error control and may err on a busy machine; a cell without a time is a defect.
    assert not re.search(r"(failed|mismatch|crash|timeout|oom|unsupported):", output), output


@pytest.mark.real
def test_bring_your_own_for_real(tmp_path: Path) -> None:
    skip_without("torch", "onnxruntime", "openvino", "onnx")
    code, output = run("bring_your_own", tmp_path, "--ngraph-protocol=quick", limit=900)
    assert code in (0, 1), output
    assert "ran onnxreference: onnx.reference, f32" in output
    assert "onnx:models/squeezenet.onnx" in output
    assert "onnxruntime[graph=disabled]" in output
    assert not re.search(r"(failed|mismatch|crash|timeout|oom|unsupported):", output), output


@pytest.mark.real
def test_compile_time_for_real(tmp_path: Path) -> None:
    skip_without("torch", "timm", "onnxruntime", "openvino")
    less = ("--ngraph-model=timm:resnet101", "--ngraph-batch=1", "--ngraph-baseline=null", "--ngraph-protocol=quick")
    code, output = run("compile_time", tmp_path, *less, limit=900)
    assert code == 0, output
    assert "timm:resnet101 rebuilt" in output
    # The row of a compiler ends with what compiling took, and its verdict.
    assert len(re.findall(r"^ +(?:onnxruntime|openvino) .*\d m?s +pass$", output, re.MULTILINE)) == 2, output
