"""What is shared of a private model: its operators, and nothing that has a meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conftest import skip_without

skip_without("onnx", "onnxruntime")

import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from pytest_ngraph.reducing.graph import Graph  # noqa: E402
from pytest_ngraph.reducing.private import anonymous, redraw  # noqa: E402
from tests.support import cut_models  # noqa: E402
from tests.support.cut_models import SECRET  # noqa: E402


def made_of(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    made, drawn = anonymous(model, {"key": "value"})
    redraw(made, seed, drawn)
    return made


def secret(data: bytes) -> bool:
    return SECRET.encode() in data


@pytest.mark.parametrize("whole", [True, False])
def test_no_field_of_the_model_is_in_what_is_made_of_it(whole: bool) -> None:
    model = cut_models.secrets() if whole else Graph(cut_models.secrets()).model
    assert secret(model.SerializeToString())
    assert secret(numpy_helper.to_array(model.graph.initializer[0]).tobytes())

    made = made_of(model)

    onnx.checker.check_model(made, full_check=True)
    assert not secret(made.SerializeToString())
    assert not secret(numpy_helper.to_array(made.graph.initializer[0]).tobytes())
    assert [node.op_type for node in made.graph.node] == [node.op_type for node in model.graph.node]
    assert {entry.key: entry.value for entry in made.metadata_props} == {"key": "value"}


def test_subgraphs_functions_and_texts_have_no_secret_left() -> None:
    words = helper.make_tensor(SECRET, TensorProto.STRING, [2], [SECRET.encode(), b"x"])
    inner = helper.make_graph(
        [helper.make_node("Identity", [f"{SECRET}s"], [f"{SECRET}r"], name=SECRET, doc_string=SECRET)],
        SECRET,
        [],
        [helper.make_tensor_value_info(f"{SECRET}r", 1, [f"{SECRET}rows", 8])],
    )
    function = helper.make_function(
        SECRET, f"{SECRET}Fun", ["x"], ["y"], [helper.make_node("Relu", ["x"], ["y"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        helper.make_node(f"{SECRET}Fun", ["image"], [f"{SECRET}s"], domain=SECRET),
        helper.make_node("If", ["flag"], ["out"], then_branch=inner, else_branch=inner, name=SECRET),
        helper.make_node("Constant", [], ["texts"], value=words),
        helper.make_node("Constant", [], ["text"], value_strings=[SECRET]),
    ]
    flag = numpy_helper.from_array(np.array(True), "flag")
    model = cut_models.model(nodes[:2], [cut_models.value("out", 4, 8)], [flag])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid(SECRET, 1))
    graph = Graph(model)
    graph.model.graph.node.extend(nodes[2:])
    assert secret(graph.model.SerializeToString())

    made = made_of(graph.model)
    left = [each.domain for each in made.opset_import]

    # The opset of a domain that nothing uses any more is no operator.
    assert left == [""]
    assert not secret(made.SerializeToString())


def test_weights_have_the_shape_and_spread_of_before_and_none_of_their_numbers() -> None:
    before: dict[str, np.ndarray[Any, Any]] = {
        "floats": np.random.default_rng(1).normal(3.0, 0.5, (64, 64)).astype(np.float32),
        "halves": np.random.default_rng(2).normal(0.0, 0.1, (64, 64)).astype(np.float16),
        "sparse": np.where(np.random.default_rng(3).random((64, 64)) < 0.75, 0, 2.0).astype(np.float32),
        "variance": np.random.default_rng(4).uniform(0.01, 2, 512).astype(np.float32),
        "bytes": np.random.default_rng(5).integers(-90, 90, (64, 64)).astype(np.int8),
        "shape": np.array([4, 8, -1], np.int64),
        "indices": np.arange(100, dtype=np.int64),
        "mask": np.array([[0, -np.inf] * 20], np.float32),
        "scalar": np.array(0.125, np.float32),
        "zeros": np.zeros((4, 4), np.float32),
    }
    weights = [numpy_helper.from_array(array, name) for name, array in before.items()]
    model = cut_models.model([cut_models.node("Relu", "image", "out")], [cut_models.value("out", 4, 8)], weights)

    made, again = made_of(model, 3), made_of(model, 3)

    assert made.SerializeToString() == again.SerializeToString()
    after = dict(zip(before, map(numpy_helper.to_array, made.graph.initializer), strict=True))
    for name, array in before.items():
        assert (after[name].shape, after[name].dtype) == (array.shape, array.dtype)
    for name in ("floats", "halves", "variance", "bytes"):
        assert (after[name] == before[name]).mean() < 0.05
        np.testing.assert_allclose(after[name].mean(), before[name].mean(dtype=np.float64), rtol=0.1, atol=2)
        np.testing.assert_allclose(after[name].astype(float).std(), before[name].astype(float).std(), rtol=0.2)
    assert (after["sparse"] == 0).mean() == pytest.approx(0.75, abs=0.05)
    assert after["variance"].min() > 0
    for name in ("shape", "indices", "mask", "scalar", "zeros"):
        np.testing.assert_array_equal(after[name], before[name])


def test_operators_keep_their_attributes() -> None:
    nodes = [
        cut_models.node("LSTM", "image3 w r", "h0", hidden_size=8, direction="forward"),
        cut_models.node("Gemm", "image w2", "g0", alpha=0.5, transB=1),
        cut_models.node("Pad", "g0 pads", "out", mode="reflect"),
    ]
    nodes.insert(0, cut_models.node("Unsqueeze", "image axis", "image3"))
    weights = [cut_models.weight("w", 1, 32, 8), cut_models.weight("r", 1, 32, 8), cut_models.weight("w2", 8, 8)]
    weights += [numpy_helper.from_array(np.array([0]), "axis"), numpy_helper.from_array(np.array([0, 1, 0, 1]), "pads")]
    model = cut_models.model(nodes, [cut_models.value("out", 4, 10)], weights)

    made = made_of(model)

    onnx.checker.check_model(made, full_check=True)
    for ours, theirs in zip(made.graph.node, model.graph.node, strict=True):
        assert list(ours.attribute) == list(theirs.attribute)


def test_of_a_tensor_of_two_numbers_neither_is_left() -> None:
    two = np.where(np.random.default_rng(1).random((16, 16)) < 0.5, 0.123456, 7.654321).astype(np.float32)
    model = cut_models.model(
        [cut_models.node("Relu", "image", "out")], [cut_models.value("out", 4, 8)], [numpy_helper.from_array(two, "w")]
    )

    (made,) = map(numpy_helper.to_array, made_of(model).graph.initializer)

    assert not np.isin(made, two).any()
    assert (made > 0).all()


def test_other_seeds_draw_other_weights() -> None:
    one, other = (made_of(cut_models.branches(), seed).SerializeToString() for seed in (1, 2))

    assert one != other


def test_floats_that_operators_hold_are_drawn_again_and_words_of_tables_are_not_copied() -> None:
    """Trees and linear models have their weights in attributes, and vectorizers their words."""
    numbers = [float(each) for each in np.random.default_rng(1).normal(3, 0.5, 64).astype(np.float32)]
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value_floats=numbers)], "g", [], [cut_models.value("c", 64)]
    )
    nodes = [
        helper.make_node("LinearRegressor", ["image"], ["a"], domain="ai.onnx.ml", coefficients=numbers, targets=1),
        helper.make_node("If", ["flag"], ["b"], then_branch=inner, else_branch=inner),
        helper.make_node("TfIdfVectorizer", ["text"], ["t"], pool_strings=[SECRET], weights=numbers, mode="TF"),
        cut_models.node("LSTM", "image w r", "h0", hidden_size=8, activation_alpha=[0.5, 0.25]),
    ]
    made, drawn = anonymous(cut_models.model(nodes, [cut_models.value("b", 64)], []), {})
    redraw(made, 0, drawn)

    assert not secret(made.SerializeToString())
    held = [a for node in made.graph.node for a in node.attribute if a.name in ("coefficients", "weights")]
    held += [a.g.node[0].attribute[0] for node in made.graph.node for a in node.attribute if a.HasField("g")]
    assert len(held) == 4
    for attribute in held:
        assert not np.isin(np.array(attribute.floats, np.float32), np.array(numbers, np.float32)).any()
        assert np.mean(attribute.floats) == pytest.approx(np.mean(numbers), abs=0.5)
    # What the standard's operators are set to is no weight.
    assert list(made.graph.node[-1].attribute[0].floats) == [0.5, 0.25]


def test_trees_keep_the_words_of_the_standard_and_lose_their_labels() -> None:
    import onnxruntime

    tree = helper.make_node(
        "TreeEnsembleClassifier",
        ["image"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        nodes_hitrates=[1.0, 1.0, 1.0],
        nodes_missing_value_tracks_true=[0, 0, 0],
        class_treeids=[0, 0],
        class_nodeids=[1, 2],
        class_ids=[0, 1],
        class_weights=[1.0, 1.0],
        classlabels_strings=[f"{SECRET}a", f"{SECRET}b"],
        post_transform="SOFTMAX",
    )
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1])]
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.STRING, [1]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 2]),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(helper.make_graph([tree], "g", inputs, outputs), opset_imports=opsets, ir_version=9)

    made = made_of(model)

    assert not secret(made.SerializeToString())
    held = {each.name: each for each in made.graph.node[0].attribute}
    assert list(held["nodes_modes"].strings) == [b"BRANCH_LEQ", b"LEAF", b"LEAF"]
    assert held["post_transform"].s == b"SOFTMAX"
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    [label, scores] = session.run(None, {session.get_inputs()[0].name: np.zeros((1, 1), np.float32)})
    assert label[0] in ("s0", "s1")
    assert scores.shape == (1, 2)


@pytest.mark.parametrize("given", ["initializer", "tensor", "floats"])
def test_by_what_images_are_resized_is_kept_and_weights_of_the_same_size_are_not(given: str) -> None:
    """With other factors the output has another shape: the file that is written would not be valid."""
    factors, bias = np.array([1, 1, 2, 2], np.float32), np.array([0.3, -0.2, 0.7, 0.1], np.float32)
    nodes, weights = [], [numpy_helper.from_array(bias, "bias")]
    if given == "initializer":
        weights.append(numpy_helper.from_array(factors, "factors"))
    elif given == "tensor":
        nodes.append(helper.make_node("Constant", [], ["factors"], value=numpy_helper.from_array(factors)))
    else:
        nodes.append(helper.make_node("Constant", [], ["factors"], value_floats=[float(each) for each in factors]))
    nodes += [
        helper.make_node("Resize", ["x", "", "factors"], ["large"], mode="cubic"),
        helper.make_node("Add", ["large", "bias"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [cut_models.value("x", 1, 3, 2, 2)], [cut_models.value("y", 1, 3, 4, 4)], weights
    )
    made = made_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))

    onnx.checker.check_model(made, full_check=True)
    values = [numpy_helper.to_array(each) for each in made.graph.initializer]
    assert not any(np.array_equal(each, bias) for each in values)
    if given == "initializer":
        assert any(np.array_equal(each, factors) for each in values)
