"""How int8 is made: by whom, by which method, on what, how much of it - and what is refused."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.compilers.toolkit.equality import Comparison
from pytest_ngraph.errors import CompileFailed, SpecError, Unsupported
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.spec import precisions
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts, folders, keys
from pytest_ngraph.workloads.artifacts import Artifact
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.quantising import by_nncf, by_onnxruntime, calibration
from pytest_ngraph.workloads.quantising.layers import Layers, layers_of
from tests.conftest import ROOT, Suite, skip_without

METHODS = (
    "int8",
    "int8[calibrate=entropy]",
    "int8[calibrate=percentile]",
    "int8[per_channel=false]",
    "int8[by=nncf]",
    "int8[by=nncf,calibrate=percentile]",
    "int8[by=nncf,per_channel=false]",
)


def needs(precision: str) -> None:
    skip_without("torch", "onnx", "onnxscript", "onnxruntime", *(["nncf"] if "nncf" in precision else []))


def own(name: str, precision: str, batch: int = 2) -> Workload:
    model = parse_model(f"workload_models/calibrated.py:{name}", (ROOT / "tests" / "support",))
    return Workload(model, batch, precision=precision)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that all tests here share."""
    return tmp_path_factory.mktemp("artifacts") / "cache"


def made(root: Path, name: str, precision: str, batch: int = 2) -> Artifact:
    needs(precision)
    return artifacts.build(own(name, precision, batch), 0, root, True)


def facts(artifact: Artifact) -> dict[str, str]:
    found: dict[str, str] = artifact.meta["quantised"]
    return found


def load(artifact: Artifact) -> Any:
    import onnx

    assert artifact.onnx is not None
    return onnx.load(artifact.onnx)


def scales(model: Any) -> tuple[list[float], list[Any]]:
    """Return the scales of activations, in the order of the graph, and those of weights as arrays."""
    from onnx import numpy_helper

    stored = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    activations = [
        float(stored[node.input[1]])
        for node in model.graph.node
        if node.op_type == "QuantizeLinear" and node.input[0] not in stored
    ]
    weights = [
        stored[node.input[1]]
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and stored.get(node.input[0], np.zeros(0)).dtype == np.int8
    ]
    return activations, weights


def run_onnxruntime(path: Path, inputs: dict[str, Any]) -> list[Any]:
    import onnxruntime

    found: list[Any] = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)
    return found


def run_openvino(path: Path, inputs: dict[str, Any]) -> list[Any]:
    import openvino

    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [value.copy() for value in compiled(inputs).values()]


def complaint(artifact: Artifact, run: Any, path: Path | None = None) -> str:
    """Return what the check of outputs says of a file, as it is asked after the last visit."""
    reference = artifacts.reference(artifact)
    comparison = Comparison("int8", reference.means)
    assert artifact.onnx is not None
    for number in range(reference.calls):
        call = reference.call(number)
        comparison.add(run(path or artifact.onnx, dict(call.inputs)), call.outputs, call.rows)
    return comparison.agreement().reason


# The methods


@pytest.mark.real
@pytest.mark.parametrize("precision", METHODS)
def test_every_method_runs_in_every_runtime_and_its_outputs_are_right(root: Path, precision: str) -> None:
    skip_without("openvino")
    artifact = made(root, "six", precision)

    assert artifact.onnx is not None
    twin = artifact.onnx.with_name(artifacts.SYMMETRIC_NAME)
    for path in (artifact.onnx, twin):
        assert complaint(artifact, run_onnxruntime, path) == ""
    assert complaint(artifact, run_openvino) == ""
    by = "nncf" if "nncf" in precision else "onnxruntime"
    assert facts(artifact) == {
        "int8_nodes": "3 of 3 (100 % of MACs)",
        "quantised_by": f"{by} {importlib.metadata.version(by)}",
        "calibrated_on": "6 samples of the model",
    }


@pytest.mark.real
def test_methods_are_files_of_their_own_and_a_second_build_makes_none(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [made(root, "six", precision) for precision in METHODS]

    assert len({each.onnx for each in found}) == len(METHODS)
    assert len({each.onnx.read_bytes() for each in found if each.onnx is not None}) == len(METHODS)
    # Inputs and reference are those of f32.
    assert {each.key for each in found} == {made(root, "six", "f32").key}
    monkeypatch.setattr(by_onnxruntime, "quantise", None)
    monkeypatch.setattr(by_nncf, "quantise", None)
    assert [made(root, "six", precision) for precision in METHODS] == found


@pytest.mark.real
@pytest.mark.parametrize("by", ["onnxruntime", "nncf"])
def test_an_outlier_makes_the_scale_of_minmax_and_not_of_the_others(root: Path, by: str) -> None:
    minmax = scales(load(made(root, "outliers", f"int8[by={by}]")))[0][0]
    percentile = scales(load(made(root, "outliers", f"int8[by={by},calibrate=percentile]")))[0][0]

    # From the smallest number or from zero to 60, in 255 steps, or on either side of zero in 127.
    assert 60 / 255 < minmax < 70 / 127
    assert percentile < minmax / 2
    if by == "onnxruntime":
        entropy = scales(load(made(root, "outliers", "int8[calibrate=entropy]")))[0][0]
        assert entropy < minmax / 2
        assert entropy != percentile


@pytest.mark.real
@pytest.mark.parametrize("by", ["onnxruntime", "nncf"])
def test_per_channel_is_a_scale_for_each_channel_in_the_file(root: Path, by: str) -> None:
    each = scales(load(made(root, "six", f"int8[by={by}]")))[1]
    one = scales(load(made(root, "six", f"int8[by={by},per_channel=false]")))[1]

    assert sorted(array.size for array in each) == [8, 8, 10]
    assert len(set(each[0].ravel().tolist())) == 8
    assert [array.size for array in one] == [1, 1, 1]
    # The largest of them, as nothing may be cut off.
    assert one[0].item() == pytest.approx(each[0].max(), rel=0.02)


# What it is calibrated on


@pytest.mark.real
@pytest.mark.parametrize(
    "precision", ["int8", "int8[calibrate=entropy]", "int8[calibrate=percentile]", "int8[by=nncf]"]
)
def test_scales_are_the_same_at_every_batch_and_however_samples_are_given(root: Path, precision: str) -> None:
    first, _ = scales(load(made(root, "six", precision, 2)))

    assert len(first) >= 3
    for name, batch in (("six", 1), ("six", 4), ("six_one_by_one", 2)):
        assert scales(load(made(root, name, precision, batch)))[0] == pytest.approx(first, rel=1e-5)


@pytest.mark.real
def test_a_number_of_drawn_samples_is_the_same_samples_at_every_batch_and_plain_int8_is_not(root: Path) -> None:
    drawn = [made(root, "plain", "int8[samples=6]", batch) for batch in (1, 4)]
    plain = [made(root, "plain", "int8", batch) for batch in (1, 4)]

    assert scales(load(drawn[0]))[0] == pytest.approx(scales(load(drawn[1]))[0], rel=1e-5)
    assert scales(load(plain[0]))[0] != pytest.approx(scales(load(plain[1]))[0], rel=1e-2)
    assert {facts(each)["calibrated_on"] for each in drawn} == {"6 samples drawn from a seed"}
    assert {facts(each)["calibrated_on"] for each in plain} == {"5 batches drawn from a seed"}


@pytest.mark.real
def test_what_a_model_brings_is_used_up_to_a_number(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "MOST_BROUGHT", 9)

    assert facts(made(root, "endless", "int8[samples=3]"))["calibrated_on"] == "3 samples of the model"
    said = facts(made(root, "endless", "int8"))["calibrated_on"]
    assert said == "the first 9 samples of the model, which brings more"
    assert scales(load(made(root, "endless", "int8[samples=3]"))) != scales(load(made(root, "endless", "int8")))


@pytest.mark.parametrize(("samples", "batch", "calls"), [(6, 4, 3), (4, 4, 1), (3, 8, 3), (1, 2, 1), (64, 8, 8)])
def test_every_sample_is_in_as_many_calls_as_every_other(samples: int, batch: int, calls: int) -> None:
    pieces = [{"x": np.full((1, 2), number)} for number in range(samples)]
    whole = calibration.together(pieces, batch, "said")

    for _ in range(2):
        found = [call["x"] for call in whole.calls()]
        assert len(found) == whole.count == calls
        assert {call.shape for call in found} == {(batch, 2)}
        counts = np.bincount(np.concatenate(found)[:, 0])
        assert len(counts) == samples
        assert len(set(counts.tolist())) == 1


def test_of_what_has_no_rows_whole_calls_are_taken() -> None:
    timed = {"x": np.zeros((5, 2), np.float32)}  # the batch is its second dimension
    given = [{"x": np.ones((5, 2), np.float32)}] * 3

    found = calibration.brought(lambda: given, timed, "net", 2, None)
    assert (found.count, found.said) == (3, "3 calls of the model")
    with pytest.raises(SpecError, match=r"'x' of shape \(4, 2\) \(expected \(5, 2\)\)"):
        calibration.brought(lambda: [{"x": np.ones((4, 2), np.float32)}], timed, "net", 2, None)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "precision", "said"),
    [
        ("raises", "int8", "calibration_inputs() raised RuntimeError: no data here"),
        ("broken", "int8", "calibration_inputs() raised OSError: the disk is gone"),
        ("empty", "int8", "calibration_inputs() gave nothing (expected one sample or more)"),
        ("nobody", "int8", "gave, as number 0, a batch of 0 samples"),
        ("spoilt", "int8", "as number 1, 'input' with 1 of 864 numbers NaN or infinite: no scale holds them"),
        ("labelled", "int8", "the inputs x, input_1 (expected input, as example_inputs() does; leave labels out)"),
        ("flat", "int8", "'input' of shape (4, 3, 12) (expected (N, 3, 12, 12))"),
        ("wide", "int8", "'input' of shape (4, 3, 12, 13) (expected (N, 3, 12, 12))"),
        ("double", "int8", "'input' in float64 (expected float32, as example_inputs() does)"),
        ("tensor", "int8", "gave Tensor (expected a list, or what else can be iterated over"),
        ("number", "int8", "gave int (expected a list, or what else can be iterated over"),
        ("words", "int8", "calibration_inputs() gave str (allowed: a tensor, a tuple of tensors, a dict of tensors)"),
        ("attribute", "int8", "its calibration_inputs is list (expected a function without arguments"),
        ("six", "int8[samples=7]", "gave 6 samples where the precision asks for samples=7 (allowed: at most 6"),
    ],
)
def test_what_cannot_be_calibrated_on_is_refused_with_its_number(
    root: Path, name: str, precision: str, said: str
) -> None:
    with pytest.raises(SpecError) as raised:
        made(root, name, precision)
    assert said in str(raised.value)
    assert f"calibrated.py:{name}'" in str(raised.value)


# What must not pass


@pytest.mark.real
@pytest.mark.parametrize(
    "precision", ["int8", "int8[calibrate=entropy]", "int8[calibrate=percentile]", "int8[by=nncf]"]
)
def test_what_was_calibrated_on_nothing_but_zeros_is_a_mismatch(root: Path, precision: str) -> None:
    assert complaint(made(root, "zeros", precision), run_onnxruntime) != ""


@pytest.mark.real
def test_a_quantiser_that_leaves_everything_in_floats_is_a_failure(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaves(model: Any, target: Path, *given: Any) -> None:
        import onnx

        onnx.save(model, target)

    monkeypatch.setattr(by_onnxruntime, "quantise", leaves)
    with pytest.raises(CompileFailed, match=r"calibrated.py:plain batch2 int8: onnxruntime \S+ left all 3 layers with"):
        made(tmp_path / "cache", "plain", "int8")


@pytest.mark.real
def test_a_model_with_nothing_to_quantise_is_unsupported(root: Path) -> None:
    with pytest.raises(Unsupported, match="there is nothing to quantise in it: no convolution and no matrix product"):
        made(root, "sums", "int8")


@pytest.mark.real
def test_layers_of_which_one_side_is_in_floats_do_not_count(root: Path) -> None:
    model = load(made(root, "six", "int8"))
    assert layers_of(model).quantised == 3

    def floats(index: int, side: int) -> Layers:
        changed = load(made(root, "six", "int8"))
        makers = {node.output[0]: node for node in changed.graph.node}
        layer = [node for node in changed.graph.node if node.op_type in ("Conv", "Gemm")][index]
        rounded = makers[layer.input[side]]
        if side == 0:  # what was there before it was rounded
            layer.input[0] = makers[rounded.input[0]].input[0]
        else:
            from onnx import helper, numpy_helper

            stored = {each.name: numpy_helper.to_array(each) for each in changed.graph.initializer}
            values = stored[rounded.input[0]].astype(np.float32)
            changed.graph.initializer.append(numpy_helper.from_array(values, "whole"))
            layer.input[1] = "whole"
            assert helper is not None
        return layers_of(changed)

    first, second = floats(0, 0), floats(1, 1)
    assert (first.all, first.quantised) == (second.all, second.quantised) == (3, 2)
    assert first.quantised_macs < first.macs == layers_of(model).macs
    assert "2 of 3 (" in first.words


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (Layers(21, 21, 1000, 1000), "21 of 21 (100 % of MACs)"),
        (Layers(21, 20, 100_000, 99_999), "20 of 21 (99.9 % of MACs)"),
        (Layers(21, 1, 100_000, 1), "1 of 21 (below 0.1 % of MACs)"),
        (Layers(3, 0, 0, 0), "0 of 3"),
    ],
)
def test_a_share_is_not_rounded_to_all_or_nothing(layers: Layers, words: str) -> None:
    assert layers.words == words


# Keys, and what is not installed


def test_versions_of_the_quantiser_are_part_of_the_key_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, other = own("plain", "int8"), own("plain", "int8[by=nncf]")
    before = [keys.onnx_key(each, "sample") for each in (plain, other)]
    monkeypatch.setattr(keys, "version_of", lambda name: "9.9" if name == "nncf" else version_of(name))
    after = [keys.onnx_key(each, "sample") for each in (plain, other)]
    assert before[0] == after[0]
    assert before[1] != after[1]


@pytest.mark.real
def test_a_file_from_before_it_was_known_how_much_is_quantised_is_made_again(tmp_path: Path) -> None:
    artifact = made(tmp_path / "cache", "plain", "int8")
    assert artifact.onnx is not None
    folder, content = artifact.onnx.parent, artifact.onnx.read_bytes()
    marker = json.loads((folder / "meta.json").read_text())
    del marker["meta"]["quantised"], marker["digest"]
    marker["digest"] = folders._digest_of_marker(marker)
    (folder / "meta.json").write_text(json.dumps(marker))

    assert artifacts.find(own("plain", "int8"), 0, tmp_path / "cache", True) is None
    again = made(tmp_path / "cache", "plain", "int8")
    assert again.meta["quantised"] == artifact.meta["quantised"]
    assert again.onnx is not None
    assert again.onnx.read_bytes() == content


@pytest.fixture
def no_nncf(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter without NNCF."""
    known = importlib.util.find_spec

    def found(name: str) -> ModuleSpec | None:
        return None if name == "nncf" else known(name)

    monkeypatch.setattr(precisions, "find_spec", found)


@pytest.mark.usefixtures("no_nncf")
def test_what_a_precision_lacks_is_said_with_what_installs_it() -> None:
    said = 'precision int8[by=nncf]: nncf is not installed (pip install "pytest-ngraph[nncf]")'

    assert precisions.missing("int8[by=nncf]") == said
    assert [precisions.missing(each) for each in ("int8", "f32", "int8[calibrate=entropy]")] == [None] * 3


WITHOUT = """
import pytest_ngraph.spec.precisions as precisions
precisions.find_spec = lambda name: None
"""


def test_without_its_quantiser_a_cell_is_skipped_with_what_installs_it(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(WITHOUT)
    suite.write(
        """
@pytest.mark.ngraph(model="block:mha", precision="int8[by=nncf]", compilers="null")
def test_speed(ngraph_cell):
    raise AssertionError("it was run")
"""
    )
    result = suite.run()

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(['*precision int8[[]by=nncf[]]: nncf is not installed (pip install "pytest-ngraph*'])


@pytest.mark.real
@pytest.mark.usefixtures("no_nncf")
def test_without_its_quantiser_a_cell_is_unsupported_where_nobody_asked_before(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r'nncf is not installed \(pip install "pytest-ngraph\[nncf\]"\)'):
        artifacts.build(own("plain", "int8[by=nncf]"), 0, tmp_path / "cache", True)


TWO = """
@pytest.mark.ngraph(model="calibrated.py:six", precision=["int8[by=onnxruntime]", "int8[samples=6,by=nncf]"], batch=2)
def test_close(ngraph_cell):
    from pytest_ngraph import assert_outputs_match
    assert_outputs_match(ngraph_cell)
    facts = dict(ngraph_cell.placement)
    assert (facts["precision"], facts["int8_nodes"]) == ("int8", "3 of 3 (100 % of MACs)")
    assert facts["calibrated_on"] == "6 samples of the model"
"""


@pytest.mark.real
def test_two_quantisers_are_two_cells_from_the_marker_to_the_summary(suite: Suite) -> None:
    needs("nncf")
    source = ROOT / "tests" / "support" / "workload_models" / "calibrated.py"
    (suite.path / "calibrated.py").write_text(source.read_text())
    suite.write(TWO)
    result = suite.bare("--ngraph-compiler=onnxruntime", "--ngraph-baseline=onnxruntime", "--ngraph-protocol=quick")

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(
        [
            "PASSED test_suite.py::test_close[[]local-onnxruntime-*:six-int8-batch2[]]",
            "PASSED test_suite.py::test_close[[]local-onnxruntime-*:six-int8[[]by=nncf,samples=6[]]-batch2[]]",
        ]
    )
    said = " ".join(result.stdout.str().split())
    assert "3 of 3 (100 % of MACs) layers in int8 by nncf" in said
    assert "calibrated on 6 samples of the model" in said
