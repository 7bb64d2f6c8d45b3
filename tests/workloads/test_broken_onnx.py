"""What is wrong with a user's own ONNX file fails, and says what it is; it is never skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import Suite, skip_without
from tests.support import broken_onnx
from tests.support.broken_onnx import BROKEN, Write

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _onnx() -> None:
    skip_without("onnx", "onnxruntime")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "models"
    made.mkdir()
    return made


def build(path: Path, batch: int = 2) -> artifacts.Artifact:
    model = parse_model(f"onnx:{path}")
    return artifacts.build(Workload(model, batch), 0, path.parents[1] / "artifacts", True)


@pytest.mark.parametrize("write", BROKEN, ids=lambda write: write.__name__)
def test_what_is_wrong_with_a_file_is_said_of_the_file(folder: Path, write: Write) -> None:
    path = folder / f"{write.__name__}.onnx"
    write(path)

    # Unsupported would be what a compiler says, and a skip.
    with pytest.raises(SpecError) as caught:
        build(path)

    said = str(caught.value)
    assert BROKEN[write] in said
    assert said.startswith(f"model 'onnx:{path}': ")
    assert len(said) < 1500


def test_a_file_that_cannot_be_read_says_so(folder: Path) -> None:
    # Permissions do not stop root; the memory of a process that nobody traces does, at its first page.
    path = Path(f"/proc/{os.getpid()}/mem")
    with pytest.raises(SpecError, match=f"cannot read {path}: Input/output error"):
        artifacts.build(Workload(ModelRef("onnx:mem", "onnx", str(path))), 0, folder / "artifacts", True)


def test_a_suite_with_broken_files_fails_and_says_what_to_do(suite: Suite) -> None:
    for write in [*BROKEN, broken_onnx.sound]:
        write(suite.path / f"{write.__name__}.onnx")
    names = [f"onnx:{write.__name__}.onnx" for write in [*BROKEN, broken_onnx.sound]]
    suite.write(f"""
@pytest.mark.ngraph(model={names!r}, batch=2, compilers=["onnxruntime"])
def test_it(ngraph_cell):
    assert ngraph_cell.latency.value > 0
""")

    result = suite.bare("--ngraph-protocol=quick")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, failed=len(BROKEN))
    printed = result.stdout.str()
    for said in BROKEN.values():
        assert said in printed


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.mkdir(), "m.onnx is a folder; name the file in it"),
        (lambda path: path.symlink_to(path), "m.onnx is a link to a file that is not there"),
        (lambda path: path.symlink_to("gone"), "m.onnx is a link to a file that is not there"),
        (lambda path: None, "no file 'm.onnx' in "),
    ],
    ids=["folder", "loop", "dangling", "absent"],
)
def test_what_is_no_file_is_an_error_of_the_collection(suite: Suite, make: Write, said: str) -> None:
    make(suite.path / "m.onnx")
    suite.write("""
@pytest.mark.ngraph(model="onnx:m.onnx")
def test_it(ngraph_cell):
    pass
""")
    result = suite.collect()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"*model 'onnx:m.onnx':*{said}*"])


def test_a_batch_that_the_file_does_not_have_fails_with_the_one_it_has(suite: Suite) -> None:
    from onnx import TensorProto, helper, save

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "graph", value[:1], value[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), suite.path / "m.onnx")
    suite.write("""
@pytest.mark.ngraph(model="onnx:m.onnx", compilers=["onnxruntime"])
def test_it(ngraph_cell):
    ngraph_cell.latency
""")
    result = suite.bare("--ngraph-protocol=quick")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its batch is fixed at 4 in the file, not 1; write batch=4, or export it with*"])


def test_what_runs_is_sound_though_the_checker_is_stricter(folder: Path) -> None:
    import onnx
    from onnx import helper

    broken_onnx.sound(folder / "m.onnx")
    model = onnx.load(folder / "m.onnx")
    # Not in topological order, and an output without a type: files in the wild have both, and runtimes take them.
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["x"], ["a"])]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(str(folder / "m.onnx"), full_check=True)

    assert build(folder / "m.onnx").onnx is not None


def test_an_operator_of_onnxruntime_own_domain_is_sound(folder: Path) -> None:
    from onnx import TensorProto, helper

    def value(name: str) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4])

    graph = helper.make_graph(
        [helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")], "g", [value("x")], [value("y")]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    (folder / "m.onnx").write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())

    assert build(folder / "m.onnx").onnx is not None
