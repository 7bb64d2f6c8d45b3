"""Parts of graphs: whatever is cut gives what the whole gives there, and says when it cannot."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import skip_without

skip_without("onnx", "onnxruntime")

import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402

from pytest_ngraph.reducing.graph import Graph, NoPart  # noqa: E402
from pytest_ngraph.reducing.values import Recorded  # noqa: E402
from tests.support import cut_models  # noqa: E402


def cut(name: str, folder: Path) -> tuple[Graph, Recorded]:
    graph = Graph(cut_models.MODELS[name]())
    draw = np.random.default_rng(3)
    samples = [{"image": draw.standard_normal((4, 8)).astype(np.float32)} for _ in range(4)]
    return graph, Recorded(graph, samples, folder)


@pytest.mark.parametrize("name", cut_models.MODELS)
def test_every_part_gives_what_the_whole_gives_there(name: str, tmp_path: Path) -> None:
    import onnxruntime

    graph, values = cut(name, tmp_path)
    draw, ran = random.Random(7), 0
    every = [(number,) for number in range(len(graph))]
    some = [tuple(sorted(draw.sample(range(len(graph)), draw.randint(2, len(graph))))) for _ in range(20)]
    for nodes in [*every, *some]:
        part = graph.part(nodes, values)
        onnx.checker.check_model(part.model, full_check=True)
        session = onnxruntime.InferenceSession(part.model.SerializeToString(), providers=["CPUExecutionProvider"])
        for sample in range(values.count):
            fed = {name: values.array(name, sample) for name in part.inputs}
            outputs = session.run(None, fed)
            for given, made in zip(session.get_outputs(), outputs, strict=True):
                np.testing.assert_allclose(made, values.array(given.name, sample), rtol=1e-5, atol=1e-6)
            ran += len(outputs)
        assert [node.op_type for node in part.model.graph.node] == [graph.nodes[number].op_type for number in nodes]
    assert ran > 50


def test_values_of_around_a_subgraph_are_inputs_of_its_node(tmp_path: Path) -> None:
    graph, values = cut("subgraphs", tmp_path)

    (branch,) = (number for number, node in enumerate(graph.nodes) if node.op_type == "If")
    part = graph.part([branch], values)

    assert set(part.inputs) == {"a0", "b0"}
    assert [tensor.name for tensor in part.model.graph.initializer] == ["always"]


def test_shapes_and_what_is_constant_are_no_inputs(tmp_path: Path) -> None:
    graph, values = cut("branches", tmp_path)
    reshape = next(number for number, node in enumerate(graph.nodes) if node.op_type == "Reshape")
    part = graph.part([reshape], values)
    assert part.inputs == ("e0",)
    assert numpy_helper.to_array(part.model.graph.initializer[0]).tolist() == [4, 8]

    folder = tmp_path / "tail"
    folder.mkdir()
    graph, values = cut("folded_tail", folder)
    # The constant is no node, and what reads nothing else has a weight as its input: else it would be folded away.
    assert [node.op_type for node in graph.nodes] == ["Relu", "Transpose", "Tanh", "MatMul", "Relu"]
    part = graph.part([2], values)
    assert part.inputs == ("k1",)
    assert part.batch == 8


def test_outputs_are_those_of_the_model_and_what_nothing_inside_reads(tmp_path: Path) -> None:
    graph, values = cut("branches", tmp_path)

    assert [each.name for each in graph.part(range(10), values).model.graph.output] == ["side", "out"]
    assert [each.name for each in graph.part(range(6), values).model.graph.output] == ["c0", "side"]


def test_weights_that_nodes_share_are_one_in_a_part(tmp_path: Path) -> None:
    graph, values = cut("branches", tmp_path)

    part = graph.part([0, 2, 9], values)

    assert [tensor.name for tensor in part.model.graph.initializer] == ["shared"]
    assert part.inputs == ("image", "a1", "e1")


def test_what_has_no_elements_or_another_shape_each_time_is_no_input(tmp_path: Path) -> None:
    nodes = [
        cut_models.node("Relu", "image", "a0"),
        cut_models.node("NonZero", "a0", "places"),
        cut_models.node("Cast", "places", "out", to=1),
    ]
    graph = Graph(cut_models.model(nodes, [cut_models.value("out", 2, "n")], []))
    draw = np.random.default_rng(3)
    samples = [{"image": draw.standard_normal((4, 8)).astype(np.float32)} for _ in range(4)]
    values = Recorded(graph, samples, tmp_path)

    with pytest.raises(NoPart, match="places has no elements, or another shape each time"):
        graph.part([2], values)
    assert graph.part([1, 2], values).inputs == ("a0",)


def test_components_and_what_a_node_depends_on(tmp_path: Path) -> None:
    graph, _ = cut("branches", tmp_path)

    assert graph.components([0, 2, 3, 5]) == [(0, 5), (2, 3)]
    assert graph.before(3, range(10)) == (0, 1, 2, 3)
    assert graph.before(6, [2, 3, 4, 6]) == (2, 3, 4, 6)
