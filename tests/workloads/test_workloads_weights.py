"""Exports keep large weights in files that other exports share, and every reader of ONNX files finds them there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts, folders
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.support.workers import FORK_SERVER, run_code

pytestmark = pytest.mark.real

MHA = Workload(parse_model("block:mha"), 1, width=256)


@pytest.fixture(autouse=True)
def _torch() -> None:
    skip_without("torch", "onnx", "onnxscript")


def build(workload: Workload, root: Path) -> Path:
    onnx = artifacts.build(workload, 0, root, True).onnx
    assert onnx is not None
    return onnx


def sizes(root: Path) -> dict[str, int]:
    """Return the bytes of each file of weights."""
    return {file.name: file.stat().st_size for file in root.glob("weights/*.bin")}


def counted_exports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    from pytest_ngraph.workloads import source
    from pytest_ngraph.workloads.modules.export import export

    calls = []

    def counting(*given: Any) -> dict[str, Any]:
        calls.append(given[3].name)
        return export(*given)

    monkeypatch.setattr(source, "export", counting)
    return calls


@pytest.mark.parametrize(
    "model",
    [MHA, Workload(parse_model("block:conv"), 1, width=64, image_size=16)],
    ids=["mha", "conv"],
)
def test_batches_share_all_their_weights(tmp_path: Path, model: Workload) -> None:
    first = build(model, tmp_path)
    alone = sizes(tmp_path)
    assert sum(alone.values()) > 100_000
    graphs = [first, *(build(replace(model, batch=batch), tmp_path) for batch in (4, 8))]
    assert sizes(tmp_path) == alone
    assert len({*graphs}) == 3
    # What is left in the graphs is less than what is shared.
    assert all(graph.stat().st_size < 64_000 for graph in graphs)


def test_depths_of_attention_share_the_weights_of_the_first_blocks(tmp_path: Path) -> None:
    build(replace(MHA, depth=1), tmp_path)
    shallow = sizes(tmp_path)
    build(replace(MHA, depth=2), tmp_path)
    assert shallow.items() < sizes(tmp_path).items()
    assert sum(sizes(tmp_path).values()) == 2 * sum(shallow.values())


def test_the_size_of_an_export_counts_its_weights(tmp_path: Path) -> None:
    artifact = artifacts.build(MHA, 0, tmp_path, True)
    assert artifact.onnx is not None
    assert artifact.meta["onnx_bytes"] == artifact.onnx.stat().st_size + sum(sizes(tmp_path).values())


def test_a_weight_of_another_export_is_written_again_by_whoever_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(MHA, tmp_path)
    build(replace(MHA, batch=4), tmp_path)
    whole = {file: file.read_bytes() for file in tmp_path.glob("weights/*.bin")}
    calls = counted_exports(monkeypatch)
    for file, content in whole.items():
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    # Neither of the two that rest on it is asked for, but another.
    build(replace(MHA, batch=8), tmp_path)

    assert {file: file.read_bytes() for file in whole} == whole
    for batch in (1, 4, 8):
        assert artifacts.drop_damaged(replace(MHA, batch=batch), 0, tmp_path) == []
    assert len(calls) == 1


def test_exports_that_share_a_damaged_weight_are_built_by_one_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workloads = [replace(MHA, batch=batch) for batch in (1, 4, 8)]
    for workload in workloads:
        build(workload, tmp_path)
    calls = counted_exports(monkeypatch)
    file = next(tmp_path.glob("weights/*.bin"))
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    said = [artifacts.drop_damaged(workload, 0, tmp_path) for workload in workloads]
    assert said == [[f"{file} is damaged: removed, and made again"], [], []]
    assert [artifacts.find(workload, 0, tmp_path, True) for workload in workloads] == [None] * 3
    for workload in workloads:
        build(workload, tmp_path)

    assert len(calls) == 1
    assert file.read_bytes() == content


def test_two_processes_export_the_same_weights_at_once(tmp_path: Path) -> None:
    code = """
import sys
from dataclasses import replace
from pathlib import Path
from pytest_ngraph.workloads import artifacts
from tests.workloads.test_workloads_weights import MHA
for batch in map(int, sys.argv[2:]):
    artifacts.build(replace(MHA, batch=batch), 0, Path(sys.argv[1]), True)
"""
    FORK_SERVER.start()
    with ThreadPoolExecutor(2) as each:
        orders = (("1", "2", "4"), ("1", "4", "2"))
        done = list(each.map(lambda batches: run_code("builder", code, str(tmp_path), *batches), orders))
    assert [process.returncode for process in done] == [0, 0], done
    for batch in (1, 2, 4):
        assert artifacts.drop_damaged(replace(MHA, batch=batch), 0, tmp_path) == []
        assert artifacts.find(replace(MHA, batch=batch), 0, tmp_path, True) is not None
    assert len(list(tmp_path.glob("weights/*.onnx"))) == 3
    assert folders.unneeded(tmp_path) == []


def test_int8_and_users_files_stay_whole(tmp_path: Path) -> None:
    skip_without("onnxruntime")
    import onnx

    exported = build(MHA, tmp_path)
    quantised = build(replace(MHA, precision="int8"), tmp_path)
    copied = build(Workload(parse_model(f"onnx:{exported}"), 1), tmp_path)
    for path in (quantised, copied):
        assert path.name == "model.onnx"
        assert path.parent.name.startswith("onnx-")
        model = onnx.load(path, load_external_data=False)
        assert not any(tensor.external_data for tensor in model.graph.initializer)


def test_a_cache_behind_a_link_is_read(tmp_path: Path) -> None:
    skip_without("onnxruntime")
    import onnx
    import onnxruntime

    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "there")
    path = build(MHA, tmp_path / "here" / "artifacts")
    assert path.is_relative_to(tmp_path / "here")
    onnx.checker.check_model(str(path))
    assert onnx.load(path).graph.initializer
    onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


COMPILE = """
import json, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
import onnx
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.spec.cells import CompilerSpec, Device, Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.loaded import LoadedWorkload

name, root, workload = sys.argv[1], Path(sys.argv[2]), Workload.from_json(json.loads(sys.argv[3]))
shared = artifacts.find(workload, 0, root, True)
whole = replace(shared, onnx=root / "whole" / "model.onnx")
whole.onnx.parent.mkdir(exist_ok=True)
onnx.save(onnx.load(shared.onnx), whole.onnx)
adapter = Catalogue().get(name)
adapter.load()

def outputs(artifact):
    loaded = LoadedWorkload(workload, 0, artifact)
    executable = adapter.compile(loaded, Device(threads=1), adapter.resolve(CompilerSpec(name)))
    executable.bind(loaded.inputs)
    executable.run()
    return [array.copy() for array in executable.outputs()]

pairs = list(zip(outputs(shared), outputs(whole), strict=True))
print(json.dumps({
    "bytes": [shared.onnx.stat().st_size, whole.onnx.stat().st_size],
    "equal": [bool(np.array_equal(*pair)) for pair in pairs],
    "largest": [float(abs(one.astype("float32")).max()) for one, _ in pairs],
}))
"""


# Large enough for weights beside the graph.
SMALL = {
    "block:mha": Workload(parse_model("block:mha"), 2),
    "block:conv": Workload(parse_model("block:conv"), 2, width=64, image_size=16),
}


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Each model's export in a folder of its own, for all runtimes that read it."""
    skip_without("torch", "onnx", "onnxscript")
    folders = {model: tmp_path_factory.mktemp("export") for model in SMALL}
    for model, folder in folders.items():
        build(SMALL[model], folder)
    return folders


@pytest.mark.parametrize("compiler", ["onnxruntime", "openvino", "tvm"])
@pytest.mark.parametrize("model", ["block:mha", "block:conv"])
def test_outputs_are_those_of_a_file_with_its_weights_inside(
    exports: Mapping[str, Path], compiler: str, model: str
) -> None:
    skip_without(compiler)
    answer = compared(exports[model], compiler, SMALL[model])
    least, most = answer["bytes"]
    assert most > least + 0.9 * sum(sizes(exports[model]).values())
    assert all(answer["equal"])
    assert min(answer["largest"]) > 0


def test_another_precision_has_weights_of_its_own(tmp_path: Path) -> None:
    skip_without("onnxruntime")
    build(SMALL["block:mha"], tmp_path)
    wide = set(sizes(tmp_path))
    narrow = replace(SMALL["block:mha"], precision="f16")
    build(narrow, tmp_path)
    answer = compared(tmp_path, "onnxruntime", narrow)
    assert all(answer["equal"])
    assert set(sizes(tmp_path)) > wide


def compared(root: Path, compiler: str, workload: Workload) -> Mapping[str, Any]:
    done = run_code(compiler, COMPILE, compiler, str(root), json.dumps(workload.to_json()))
    assert done.returncode == 0, done.stderr[-3000:]
    answer: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
