"""Real runtimes in workers: what they import, and that they agree with themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_ngraph.launches.client import Job
from pytest_ngraph.launches.launch import memory_pass
from tests.conftest import skip_without
from tests.support.measuring import SMALL, TIMED, build, cell, job, launch, nothing_left_behind

pytestmark = pytest.mark.real

CELLS = (cell("identity"), cell("onnxruntime"), cell("onnxruntime", 4))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job in whose folder everything is built that the cells of this file read."""
    skip_without("torch", "onnxscript", "onnxruntime")
    made = job(tmp_path_factory.mktemp("real"), timeout=300)
    build(made, *CELLS)
    return made


def test_a_worker_that_reads_the_onnx_file_never_imports_torch(tmp_path: Path, work: Job) -> None:
    witness = tmp_path / "modules.json"
    one = cell(f"spy[witness={witness}]")
    with nothing_left_behind():
        found = launch(work, one, cell("null"))
    record = found.records[one]
    assert record.outcome in TIMED, record.reason
    assert found.blocks_of(one) == [0, 1]
    modules = json.loads(witness.read_text(encoding="utf-8"))
    assert "onnxruntime" in modules
    assert "torch" not in modules
    assert record.max_error is not None
    assert record.max_error < 1e-4
    assert record.model_bytes is not None
    assert record.export_seconds is not None


def test_torch_and_onnx_runtime_share_a_launch_parked(work: Job) -> None:
    with nothing_left_behind():
        found = launch(work, *CELLS)
        record, peak = memory_pass(work, CELLS[1], SMALL, 1)
    for one in CELLS:
        assert found.records[one].outcome in TIMED, found.records[one].reason
        assert sorted(found.blocks_of(one)) == [0, 1]
    assert peak is not None
    assert 20 << 20 < peak < 1 << 30, record
