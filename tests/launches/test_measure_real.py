"""Real runtimes in workers: what they import, and that they agree with themselves."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_ngraph.launches.client import Job
from pytest_ngraph.launches.launch import memory_pass
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.support.measuring import SMALL, TIMED, build, cell, job, launch, nothing_left_behind

pytestmark = pytest.mark.real


def artifacts_of(job: Job, one: Cell) -> artifacts.Artifact:
    """Return what was built for a cell."""
    found = artifacts.find(one.workload, job.seed, job.artifacts, one.compiler.name != "identity", job.sys_path)
    assert found is not None
    return found


def deployed(job: Job, one: Cell) -> set[Path]:
    """Return the ONNX file of a cell, and those that it says its weights are in."""
    import onnx

    path = artifacts_of(job, one).onnx
    assert path is not None
    held = onnx.load(path, load_external_data=False).graph.initializer
    return {path, *(path.with_name(each.value) for one in held for each in one.external_data if each.key == "location")}


def of_mine(name: str, *compilers: str) -> list[Cell]:
    """Return cells of a network of the user's own."""
    model = parse_model(f"shapes.py:{name}", (MODELS,))
    return [Cell("local", CompilerSpec.parse(each), Workload(model, 3)) for each in compilers]


MODELS = Path(__file__).parents[1] / "support" / "workload_models"
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


@pytest.mark.usefixtures("forked_workers")
def test_torch_and_onnx_runtime_share_a_launch_parked(work: Job) -> None:
    with nothing_left_behind():
        found = launch(work, *CELLS)
        record, peak = memory_pass(work, CELLS[1], SMALL, 1)
    for one in CELLS:
        assert found.records[one].outcome in TIMED, found.records[one].reason
        assert sorted(found.blocks_of(one)) == [0, 1]
    assert peak is not None
    assert 20 << 20 < peak < 1 << 30, record
    # What is deployed: the weights of a module, or the file that is read, whatever it is for.
    sizes = [found.records[one].model_bytes for one in CELLS]
    files = [sum(each.stat().st_size for each in deployed(work, one)) for one in CELLS[1:]]
    assert sizes[1:] == files == [record.model_bytes, files[1]]
    meta = artifacts_of(work, CELLS[0]).meta
    assert sizes[0] == meta["model_bytes"]
    assert files[0] > 4 * meta["parameters"]


@pytest.mark.usefixtures("forked_workers")
def test_a_model_that_writes_into_its_input_is_compared_on_what_it_was_given(tmp_path: Path) -> None:
    skip_without("torch", "onnxscript", "onnxruntime")
    cells = of_mine("ScalesItsInput", "identity", "torchscript", "inductor", "onnxruntime")
    found = launch(job(tmp_path, timeout=300), *cells)
    changed = []
    for one in cells:
        record = found.records[one]
        assert record.outcome in TIMED, (one.label, record.reason)
        assert record.max_error is not None
        assert record.max_error < 1e-5
        changed.append(dict(record.placement).get("inputs_changed"))
    # An ONNX file has the same in new values.
    assert changed == ["input", "input", "input", None]


@pytest.mark.usefixtures("forked_workers")
def test_a_number_alone_is_an_input_to_every_compiler(tmp_path: Path) -> None:
    skip_without("torch", "onnxscript", "onnxruntime")
    rest = [name for name in ("openvino", "tvm", "executorch", "iree") if find_spec(name)]
    cells = of_mine("OneStep", "identity", "torchscript", "inductor", "onnxruntime", *rest)
    found = launch(job(tmp_path, timeout=300), *cells)
    assert {one.compiler.name: found.records[one].reason for one in cells} == {one.compiler.name: "" for one in cells}
    assert all(sorted(found.blocks_of(one)) == [0, 1] for one in cells)
