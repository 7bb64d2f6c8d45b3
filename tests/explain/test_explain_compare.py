"""Two explanations: what differs, the sentence that is computed from it, and when nothing is said."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from pytest_ngraph.errors import StoreError
from pytest_ngraph.explain.compare import Comparison, Measured, compare
from pytest_ngraph.explain.explanation import Explanation, RanNode
from pytest_ngraph.explain.lines import comparison_json, comparison_lines, explanation_lines, explanation_rows
from pytest_ngraph.explain.profile import NOTHING
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.explained import what_ran_lines
from pytest_ngraph.quantities.quantity import Measurer
from pytest_ngraph.spec.cells import Cell, CompilerSpec, ModelRef, Workload

US = 1e-6


def ran(name: str, us: float, parts: Sequence[str] = (), **facts: object) -> RanNode:
    return RanNode(name, str(facts.pop("kind", "Conv")), "Conv", us * US, parts=tuple(parts), **facts)  # type: ignore[arg-type]


def quantising(name: str, us: float) -> RanNode:
    return ran(name, us, [name], kind="QuantizeLinear", added="Q/DQ")


def explanation(*nodes: RanNode, plain: float | None = None, names: str = "onnx") -> Explanation:
    whole = sum(node.seconds or 0.0 for node in nodes)
    return Explanation("local:a m batch1", nodes, whole if plain is None else plain, whole, 10, "a test", names)


F32 = explanation(ran("c1", 100, ["c1", "r1"], precision="f32"), ran("c2", 100, ["c2"], precision="f32"))
INT8 = explanation(
    quantising("q1", 100),
    ran("c1", 80, ["c1", "r1"], precision="u8"),
    quantising("q2", 60),
    ran("reorder", 30, kind="Reorder", added="reorders"),
    ran("c2", 90, ["c2"], precision="u8"),
)


def said(first: Explanation, second: Explanation, measured: Measured | None = None) -> Comparison:
    return compare(first, second, ("f32", "int8"), measured)


def test_what_was_added_makes_it_slower_by_a_share_that_is_computed() -> None:
    found = said(F32, INT8)

    # 160 + 30 of the 160 that it is slower, of which faster convolutions win back 30.
    assert found.is_said
    assert found.sentence == "int8 is 1.8 times slower than f32: 2 unfused Q/DQ are 100 % of it"
    assert [row.what for row in found.rows] == ["added", "added", "added", "precision", "precision"]
    assert [row.name for row in found.rows][:3] == ["q1", "q2", "reorder"]


def test_the_slower_one_is_named_whichever_is_given_first() -> None:
    assert compare(INT8, F32, ("int8", "f32")).sentence == said(F32, INT8).sentence


def test_more_than_all_of_it_says_that_others_win_some_back() -> None:
    slower = explanation(
        *INT8.nodes[:1], quantising("q2", 90), *INT8.nodes[3:4], ran("c1", 50, ["c1"]), ran("c2", 50, ["c2"])
    )

    sentence = said(F32, slower).sentence
    assert sentence.endswith("times slower than f32: 2 unfused Q/DQ are 158 % of it, of which others win back a part")


def test_a_layer_in_several_nodes_is_told_from_one_that_takes_longer() -> None:
    fused = explanation(ran("f1", 100, ["c1", "b1", "r1"]), ran("f2", 100, ["c2"]))
    apart = explanation(
        ran("c1", 150, ["c1"]), ran("b1", 60, ["b1"], kind="BatchNorm"), ran("r1", 40, ["r1"]), ran("c2", 180, ["c2"])
    )
    found = said(fused, apart)

    assert [(row.what, round(row.delta / US)) for row in found.rows] == [("unfused", 150), ("same", 80)]
    assert found.sentence == (
        "int8 is 2.2 times slower than f32: 1 Conv in several nodes and 1 Conv that takes longer are 100 % of it"
    )


def test_without_names_kinds_are_compared_and_counted() -> None:
    unnamed = explanation(ran("k", 300), ran("k", 100), ran("p", 50, kind="MaxPool"), names=NOTHING)
    found = said(F32, unnamed)

    assert found.joined_by == "kinds of operators, as not both name their nodes"
    assert found.sentence == "int8 is 2.2 times slower than f32: 2 Conv are 80 % of it"


@pytest.mark.parametrize(
    ("first", "second", "measured", "why"),
    [
        (F32, explanation(*INT8.nodes, plain=3600 * US), None, "the profile of int8 accounts for 10 % of its call"),
        (F32, explanation(*INT8.nodes, plain=100 * US), None, "the profile of int8 accounts for 360 % of its call"),
        (F32, F32, None, "int8 is not shown to be slower or faster (1.00x by one pass of each)"),
        (
            F32,
            INT8,
            Measured(200 * US, 220 * US, "3 launches", 0.97, 1.22),
            "int8 is not shown to be slower or faster (1.10x [0.97x, 1.22x] by 3 launches)",
        ),
        (
            F32,
            INT8,
            Measured(300 * US, 200 * US, "8 launches", 0.6, 0.7),
            "f32 is slower than int8 by the clock, and not by the profile",
        ),
        (
            F32,
            INT8,
            Measured(200 * US, 600 * US, "8 launches", 2.9, 3.1),
            "int8 is 3 times slower by the clock, and 1.8 by the profiles",
        ),
    ],
)  # fmt: skip
def test_nothing_is_said_where_it_does_not_hold(
    first: Explanation, second: Explanation, measured: Measured | None, why: str
) -> None:
    found = said(first, second, measured)

    assert not found.is_said
    assert found.sentence == f"no sentence: {why}"
    # The parts are shown all the same.
    assert any("joined by" in line for line in comparison_lines(found))


def test_a_decided_measurement_gives_the_ratio_that_is_said() -> None:
    found = said(F32, INT8, Measured(200 * US, 300 * US, "8 launches", 1.4, 1.6))

    assert found.sentence.startswith("int8 is 1.5 times slower than f32: ")


def test_nothing_is_wider_than_80_columns() -> None:
    long = [
        ran(f"{'module.layer' * 9}{n}", 100 + n, [f"{'part' * 30}{n}", f"r{n}"], kernel="k" * 90) for n in range(40)
    ]
    wide = explanation(*long)
    other = explanation(
        *long[:20], *(ran(f"{'other' * 20}{n}", 300, kind="Reorder" * 9, added="reorders") for n in range(9))
    )
    lines = [*explanation_lines(wide), *comparison_lines(said(wide, other)), *comparison_lines(said(wide, other), None)]

    assert max(map(len, lines)) <= 80
    assert sum("further nodes (--all)" in line for line in lines) == 1


def test_a_share_of_what_was_measured_is_of_that_and_profiled_time_stands_beside_it() -> None:
    found = Explanation("local:a m batch1", (ran("c", 100, ["c"]),), 120 * US, 180 * US, 10, "a test")
    text = " ".join(" ".join(explanation_lines(found, "200 µs (8 launches)", 200 * US)).split())

    assert "measured 200 µs (8 launches), 120 µs in this process, 180 µs while profiled (1.5 times)" in text
    assert "1 node, 100 µs: 50 % of the measured call" in text


def test_rows_and_json_have_every_digit() -> None:
    rows = explanation_rows(INT8)

    assert [row["kind"] for row in rows] == ["Q/DQ", "Conv", "Q/DQ", "reorders", "Conv"]
    assert rows[0]["share"] == pytest.approx(100 / 360)
    assert rows[3]["in_onnx_file"] is None
    made = comparison_json(said(F32, INT8))
    assert made["parts"][0]["nodes"] == [[], ["q1"]]
    assert made["is_said"] is True


@pytest.mark.parametrize(
    "change",
    [
        {"plain_seconds": "1"},
        {"profiled_seconds": float("nan")},
        {"calls": None},
        {"nodes": 3},
        {"nodes": [{"name": "a", "kind": "Conv", "seconds": 1.0, "of_a_later_version": 1}]},
        {"nodes": [{"name": "a", "kind": "Conv", "seconds": -1.0}]},
        {"placement": [["one"]]},
        {"notes": None},
    ],
)
def test_what_this_version_does_not_read_is_no_explanation(change: dict[str, object]) -> None:
    kept = INT8.to_json()
    assert Explanation.from_json(kept) == INT8
    with pytest.raises(StoreError, match="is no explanation that this version reads"):
        Explanation.from_json({**kept, **change})
    with pytest.raises(StoreError, match="--again profiles it once more"):
        Explanation.from_json({name: value for name, value in kept.items() if name not in change})


def test_a_red_gate_names_the_command_where_what_is_kept_cannot_be_read() -> None:
    cells = [Cell("local", CompilerSpec(name), Workload(ModelRef("onnx:m.onnx", "onnx", "/m.onnx"))) for name in "ab"]
    source = Measurer.__new__(Measurer)
    kept = {"nodes": [{"of_a_later_version": 1}]}
    object.__setattr__(source, "session", SimpleNamespace(explained=lambda cell: kept))
    quantity = SimpleNamespace(source=source, metric=METRICS["speedup"], cells=cells)

    assert what_ran_lines(quantity) == [  # type: ignore[arg-type]
        "  what ran: ngraph explain 'local:b onnx:m.onnx batch1' 'local:a onnx:m.onnx batch1'"
    ]


def test_two_names_that_begin_alike_are_told_apart_in_the_head_of_the_table() -> None:
    lines = list(comparison_lines(compare(F32, INT8, ("onnxruntime", "onnxruntime[graph=all]"))))
    head = next(line for line in lines if line.lstrip().startswith("differs")).split()
    assert head[1] != head[2]
    assert max(map(len, lines)) <= 80


def test_nodes_of_two_models_that_are_called_the_same_are_not_joined() -> None:
    other = explanation(ran("c1", 400, ["c1", "r1"]), ran("c2", 10, ["c2"], kind="MatMul"))

    apart = compare(F32, other, ("small", "large"), is_one_model=False)
    assert apart.joined_by == "kinds of operators, as these are two models"
    assert sorted((row.name, row.what) for row in apart.rows) == [("Conv", "fused"), ("MatMul", "added")]
    assert compare(F32, other, ("small", "large")).joined_by == "the names of the ONNX nodes"
