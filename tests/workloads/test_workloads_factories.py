"""Models of the user's own: every shape of input and output, and errors that name the reference."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.loaded import LoadedWorkload
from tests.support.references import must_give

pytestmark = pytest.mark.real

HERE = Path(__file__).parents[1] / "support"
MODELS = HERE / "workload_models"


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch")


def reference(name: str) -> ModelRef:
    return parse_model(f"shapes.py:{name}", (MODELS,))


def loaded(name: str, root: Path, want_onnx: bool = False, **axes: int) -> LoadedWorkload:
    workload = Workload(reference(name), 3, **axes)  # type: ignore[arg-type]
    return LoadedWorkload(workload, 0, artifacts.build(workload, 0, root, want_onnx))


def closest(outputs: list[Any], wanted: list[Any] | None) -> None:
    import numpy as np

    assert wanted is not None
    assert len(outputs) == len(wanted)
    for output, reference in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(output), reference, atol=1e-5)


def build(name: str, **axes: int) -> Any:
    from pytest_ngraph.workloads.building import build

    return build(Workload(reference(name), 2, **axes), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("TwoInputs", ["wide", "narrow"], ["output"]),
        ("ready", ["wide", "narrow"], ["output"]),
        ("Keywords", ["weights", "tokens"], ["output_0", "output_1"]),
        ("Structured", ["input"], ["output_0", "output_1", "output_2"]),
        ("ChangesItsInput", ["input"], ["output"]),
        ("stack", ["input"], ["output"]),
    ],
)
def test_every_kind_of_module_agrees_in_torch_onnx_runtime_and_openvino(
    tmp_path: Path, name: str, inputs: list[str], outputs: list[str]
) -> None:
    import torch

    pytest.importorskip("onnxscript")
    workload = loaded(name, tmp_path, want_onnx=True)
    assert list(workload.inputs) == inputs
    args, kwargs = workload.arguments({name: array.copy() for name, array in workload.inputs.items()})
    with torch.inference_mode():
        closest(workload.flatten(workload.module()(*args, **kwargs)), must_give(workload))

    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(workload.onnx_path, providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == inputs
    assert [each.name for each in session.get_outputs()] == outputs
    assert all(isinstance(size, int) for each in session.get_inputs() for size in each.shape)
    closest(session.run(None, workload.inputs), must_give(workload))

    if importlib.util.find_spec("openvino") is not None:
        import openvino

        compiled = openvino.Core().compile_model(workload.onnx_path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        answers = compiled(workload.inputs)
        closest([answers[index] for index in range(len(outputs))], must_give(workload))


def test_what_a_compiler_calls_on_is_no_part_of_what_is_timed(tmp_path: Path) -> None:
    workload = loaded("ScalesItsInput", tmp_path)
    before = workload.inputs["input"].copy()
    for given in (workload.inputs_built_with, workload.copied_inputs):
        assert workload.written_to(given) == []
        args, _ = workload.arguments(given)
        workload.module()(*args)
        assert workload.written_to(given) == ["input"]
    assert (workload.inputs["input"] == before).all()


def test_a_factory_gets_the_axes_that_are_set() -> None:
    sizes = [sum(tensor.numel() for tensor in build("stack", **axes).module.parameters()) for axes in AXES]
    assert sizes == [2 * 72 + 18, 5 * 72 + 18, 3 * 20 + 10]


AXES: list[dict[str, int]] = [{}, {"depth": 5}, {"depth": 3, "width": 4}]


@pytest.mark.parametrize(
    ("name", "axes", "said"),
    [
        ("stack", {"image_size": 8}, r"it does not take image_size \(it takes: depth, width\)"),
        ("ready", {"depth": 2}, r"it does not take depth \(it takes: no axis but batch\)"),
        ("TwoInputs", {"width": 2}, r"it does not take width \(it takes: no axis but batch\)"),
        ("broken", {}, r"its factory raised KeyError: 'the weights'"),
        ("not_a_module", {}, r"its factory gives list, not a torch\.nn\.Module"),
        ("silent", {}, r"offer it as a method .*\n    def example_inputs\(self, batch\):\n        return torch\.randn"),
        ("Missing", {}, r"no 'Missing' in it \(names that are there: Answer, Any, BranchesOnData"),
        ("__doc__", {}, r"str is no factory"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(name: str, axes: dict[str, int], said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        build(name, **axes)
    assert f"model 'shapes.py:{name}'" in str(caught.value)


def test_the_original_error_is_kept() -> None:
    with pytest.raises(SpecError) as caught:
        build("broken")
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return torch.zeros(batch, 4).numpy()", r"example_inputs\(2\) gave ndarray"),
        ("return ()", r"example_inputs\(2\) gave tuple"),
        ("return {'a': 1}", r"example_inputs\(2\) gave dict"),
        ("return torch.zeros(1, 4)", r"example_inputs\(2\) gave no input of batch 2: input \(1, 4\)"),
        ("raise OSError('no data')", r"example_inputs\(2\) raised OSError: no data"),
        ("return torch.zeros(batch, 5)", r"its forward raised RuntimeError: .*shapes cannot be multiplied"),
    ],
)
def test_inputs_that_cannot_be_used_are_refused(tmp_path: Path, body: str, said: str) -> None:
    source = "import torch\nnet = torch.nn.Linear(4, 4)\ndef make():\n    return net\n"
    (tmp_path / "m.py").write_text(f"{source}def feed(batch):\n    {body}\nmake.example_inputs = feed\n")
    with pytest.raises(SpecError, match=said):
        artifacts.build(Workload(parse_model("m.py:make", (tmp_path,)), 2), 0, tmp_path / "artifacts", False)


def test_a_file_that_fails_on_import_is_tried_again_and_named(tmp_path: Path) -> None:
    file = tmp_path / "fails.py"
    file.write_text("import not_there_at_all\n")
    workload = Workload(parse_model("fails.py:Net", (tmp_path,)), 2)
    for _ in range(2):
        with pytest.raises(SpecError, match=r"importing it raised ModuleNotFoundError: No module named 'not_there"):
            artifacts.build(workload, 0, tmp_path / "artifacts", False)


def test_two_files_of_one_name_live_side_by_side(tmp_path: Path) -> None:
    counts = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "twin.py").write_text(
            f"import torch\ndef make():\n    net = torch.nn.Linear({number}, 1)\n"
            f"    net.example_inputs = lambda batch: torch.randn(batch, {number})\n    return net\n"
        )
        workload = Workload(parse_model("twin.py:make", (folder,)), 1)
        counts.append(artifacts.build(workload, 0, tmp_path / "artifacts", False).meta["parameters"])
    assert counts == [2, 3]
    assert "twin" not in sys.modules


def test_a_factory_in_a_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "user_package"
    package.mkdir()
    (package / "__init__.py").write_text("WIDTH = 4\n")
    (package / "nets.py").write_text(
        "from torch import nn, randn\nfrom . import WIDTH\n"
        "class Nets:\n    @staticmethod\n    def make():\n        return nn.Linear(WIDTH, 1)\n"
        "Nets.make.example_inputs = lambda batch: randn(batch, WIDTH)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = Workload(parse_model("user_package.nets:Nets.make"), 2)
    artifact = artifacts.build(workload, 0, tmp_path / "artifacts", False)
    assert {Path(path).name for path in artifact.meta["project_files"]} == {"__init__.py", "nets.py"}
    assert artifact.meta["parameters"] == 5


def test_a_users_own_weights_are_left_as_they_are() -> None:
    import torch

    assert torch.equal(
        build("ready").module.left.weight, sys.modules[type(build("ready").module).__module__].ready.left.weight
    )
