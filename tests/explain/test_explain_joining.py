"""Profiles joined with the ONNX file: what a runtime names, what is derived, and what is not in the file at all."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from pytest_ngraph.errors import CompileFailed
from pytest_ngraph.explain import explanation as explained
from pytest_ngraph.explain.explanation import Explanation, explanation_of
from pytest_ngraph.explain.graph import Graph, GraphNode
from pytest_ngraph.explain.profile import MODULE, NOTHING, Profile, ProfiledNode, undisturbed


def chain(*nodes: tuple[str, str, str, str]) -> Graph:
    """Nodes as name, operator, inputs and output, the inputs with spaces between them."""
    return Graph([GraphNode(name, operator, tuple(given.split()), (made,)) for name, operator, given, made in nodes])


# A residual block as it is exported: conv, relu, conv, sum, relu.
BLOCK = chain(
    ("n_conv", "Conv", "x w1", "conv"),
    ("n_relu", "Relu", "conv", "relu"),
    ("n_conv_1", "Conv", "relu w2", "conv_1"),
    ("n_add", "Add", "conv_1 x", "add"),
    ("n_relu_1", "Relu", "add", "relu_1"),
)
INT8 = chain(
    ("q", "QuantizeLinear", "x", "xq"),
    ("dq", "DequantizeLinear", "xq", "xd"),
    ("wdq", "DequantizeLinear", "wq", "wd"),
    ("n_conv", "Conv", "xd wd", "conv"),
    ("n_relu", "Relu", "conv", "relu"),
    ("q_1", "QuantizeLinear", "relu", "reluq"),
    ("dq_1", "DequantizeLinear", "reluq", "y"),
)


def profile(*nodes: ProfiledNode, names: str = "onnx", seconds: float = 1e-3) -> Profile:
    return Profile(nodes, seconds, 10, "a test", names)


def node(name: str, operator: str = "", seconds: object = 1e-4, contains: Sequence[str] = ()) -> ProfiledNode:
    return ProfiledNode(name, operator, seconds, contains=tuple(contains))  # type: ignore[arg-type]


def explain(given: Profile, graph: Graph | None = BLOCK) -> Explanation:
    return explanation_of("local:a model batch1", given, graph, 1e-3)


def test_a_fused_node_that_is_named_after_its_activation_has_the_layer_before_it() -> None:
    # As ONNX Runtime names what its NCHWc kernels compute: by tensors, each fused node after another of its parts.
    found = explain(profile(node("relu_nchwc", "Conv"), node("conv_1_nchwc", "Conv"), node("ReorderOutput")))

    assert [each.parts for each in found.nodes] == [("n_conv", "n_relu"), ("n_conv_1", "n_add", "n_relu_1"), ()]
    assert [each.added for each in found.nodes] == ["", "", "reorders"]
    assert not any(each.is_stranger for each in found.nodes)


def test_what_a_runtime_lists_is_taken_and_not_derived() -> None:
    lists = node("n_conv/WithoutBiases", "Convolution", contains=("n_conv/WithoutBiases", "n_conv", "n_relu"))
    second = node("n_conv_1", "Convolution", contains=("n_conv_1", "n_add", "relu_1"))

    assert [each.parts for each in explain(profile(lists, second)).nodes] == [
        ("n_conv", "n_relu"),
        ("n_conv_1", "n_add", "n_relu_1"),
    ]


def test_dequantising_is_in_the_node_that_reads_it_and_what_runs_by_itself_is_added() -> None:
    ran = profile(node("q", "QuantizeLinear"), node("n_conv_token_1", "QLinearConv"), node("dq_1", "DequantizeLinear"))
    found = explain(ran, INT8)

    assert [each.parts for each in found.nodes] == [("q",), ("dq", "wdq", "n_conv", "n_relu", "q_1"), ("dq_1",)]
    assert [each.added for each in found.nodes] == ["Q/DQ", "", "Q/DQ"]


def test_an_activation_is_never_said_to_be_in_what_only_quantises() -> None:
    graph = chain(
        ("n_add", "Add", "x y", "add"),
        ("q", "QuantizeLinear", "add", "addq"),
        ("dq", "DequantizeLinear", "addq", "addd"),
        ("n_relu", "Relu", "addd", "relu"),
        ("q_1", "QuantizeLinear", "relu", "out"),
    )
    ran = profile(node("n_add", "QLinearAdd"), node("dq", "DequantizeLinear"), node("q_1", "QuantizeLinear"))

    assert [each.parts for each in explain(ran, graph).nodes] == [("n_add", "q", "n_relu"), ("dq",), ("q_1",)]


def test_an_adapter_that_lies_is_shown_as_what_the_file_does_not_have() -> None:
    found = explain(profile(node("secret_kernel", "Conv", contains=("no_such_node",)), node("n_conv", "Conv")))

    assert [each.is_stranger for each in found.nodes] == [True, False]
    assert found.nodes[0].parts == ()
    assert "1 of its nodes are not in the ONNX file by the names it gives them" in found.notes


def test_without_a_file_or_names_nothing_is_said_to_be_strange() -> None:
    assert not explain(profile(node("anything", "Conv")), None).nodes[0].is_stranger
    assert not explain(profile(node("anything", "Conv"), names=NOTHING)).nodes[0].is_stranger


def test_layers_of_a_module_need_no_file() -> None:
    found = explain(profile(node("0.c:conv2d", "conv2d", contains=("0.c",)), names=MODULE), None)

    assert (found.nodes[0].layers, found.nodes[0].kind) == (("0.c",), "Conv")


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, "fast", True, 10**400])
def test_what_is_no_time_is_none_and_is_counted(seconds: object) -> None:
    found = explain(profile(node("n_conv", "Conv", seconds), node("n_relu", "Relu", 2e-4)))

    assert [each.seconds for each in found.nodes] == [None, 2e-4]
    assert found.nodes_seconds == 2e-4
    assert "1 of its nodes have a time below zero or none that is a number: left out" in found.notes


def test_a_node_without_a_time_or_a_name_stays_a_node() -> None:
    found = explain(profile(ProfiledNode("", seconds=None), node("x\x1b[31m\n" + 500 * "y")))

    assert found.nodes[0].name == "node 1"
    assert found.nodes[0].seconds is None
    assert len(found.nodes[1].name) == 200
    assert found.nodes[1].name.isprintable()
    assert not any("left out" in note for note in found.notes)


@pytest.mark.parametrize("whole", [0.0, -1.0, math.nan, math.inf])
def test_a_call_must_take_some_time(whole: float) -> None:
    with pytest.raises(
        CompileFailed, match=r"its explain\(\) says that a call takes .* s \(expected a number above 0\)"
    ):
        explain(profile(node("n_conv"), seconds=whole))


def test_what_is_no_profile_is_refused_by_what_it_is() -> None:
    with pytest.raises(CompileFailed, match=r"its explain\(\) gave \{'nodes': \[\]\} \(expected a Profile\)"):
        explanation_of("a", {"nodes": []}, None, 1e-3)  # type: ignore[arg-type]


def test_a_huge_profile_keeps_what_takes_longest_and_adds_up_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explained, "MOST_NODES", 100)
    found = explain(profile(*(node(f"k{number}", "Conv", number * 1e-6) for number in range(1000)), names=NOTHING))

    assert len(found.nodes) == 101
    assert found.nodes[-1].name == "900 further nodes"
    assert found.nodes[0].name == "k900"
    assert math.isclose(found.nodes_seconds, sum(range(1000)) * 1e-6)


def test_an_empty_profile_says_so() -> None:
    found = explain(profile())

    assert found.nodes == ()
    assert "the profile names no node" in found.notes
    assert found.coverage == 0


def test_it_is_read_back_as_it_was() -> None:
    found = explain(profile(node("relu_nchwc", "Conv"), node("odd", "Conv", math.nan), node("ReorderOutput")))

    assert Explanation.from_json(found.to_json()) == found


def test_a_neighbour_that_disturbs_now_this_node_and_now_that_one_changes_nothing() -> None:
    calm = [1.0, 2.0, 3.0]
    rows = [list(calm) for _ in range(9)]
    for number in range(3):
        rows[number][number] += 100
    calls = [sum(row) + 0.5 for row in rows]
    # A call in which another number of nodes ran says nothing.
    nodes, whole = undisturbed([*calls, 50.0], [*rows, [50.0]])

    assert nodes == calm
    assert whole == 6.5
    assert undisturbed([2.0, 3.0, 4.0], []) == ([], 3.0)


def test_a_shuffle_of_the_models_own_is_none_that_the_compiler_added() -> None:
    shuffles = chain(("n_up", "DepthToSpace", "x", "up"), ("n_mix", "ShuffleChannels", "up", "mix"))
    named = (node("n_up", "pixel_shuffle", contains=["n_up"]), node("n_mix", "ShuffleChannels", contains=["n_mix"]))
    in_module = node("pixel_shuffle", "aten::pixel_shuffle", contains=["up"])

    found = [*explain(profile(*named), shuffles).nodes, *explain(profile(in_module, names=MODULE), None).nodes]

    assert [each.added for each in found] == ["", "", ""]
    assert [each.added for each in explain(profile(node("shuffle_1", "Shuffle")), shuffles).nodes] == ["reorders"]
