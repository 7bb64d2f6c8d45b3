"""What a run says it will take: more where more is built, what the store remembers from the second run on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.front.header import cost_lines, thread_lines, wrapped
from pytest_ngraph.front.progress import Steps
from pytest_ngraph.front.run import _guessed
from pytest_ngraph.load.neighbours import parse, with_neighbour, with_neighbours
from pytest_ngraph.options.settings import Budget
from pytest_ngraph.plan.costs import Cost, Estimator, Known
from pytest_ngraph.plan.groups import groups_of, launch_seconds
from pytest_ngraph.plan.items import ItemPlan
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import kind_of, parse_model
from tests.conftest import Suite
from tests.options.test_settings import settings
from tests.support.pretended import TWICE, Pretended, claim

GATE = PROTOCOLS["gate"]


def cell(compiler: str, batch: int = 1, model: str = "timm:resnet18") -> Cell:
    return Cell("local", CompilerSpec.parse(compiler), Workload(parse_model(model), batch))


def cost(*compilers: str, batches: tuple[int, ...] = (1,), known: tuple[Known, ...] = (), cpus: int = 2,
         memory: bool = False, model: str = "timm:resnet18", fresh: bool = False) -> Cost:  # fmt: skip
    """Return what one group of these compilers over eager takes."""
    items = [
        ItemPlan(
            f"test_{name}",
            tuple(cell(name, batch, model) for batch in batches),
            tuple(cell("identity", batch, model) for batch in batches),
            Budget(8),
            0.05,
            memory,
        )
        for name in compilers
    ]
    groups = groups_of(items)
    estimator = Estimator(replace(settings(), fresh=fresh), Catalogue(), cpus, known)
    return estimator.cost(groups, {id(group): group.cells for group in groups}, 3)


def test_what_is_exported_compiled_and_imported_is_counted() -> None:
    alone, more = cost("torchscript"), cost("torchscript", "openvino")
    onnx, larger, inductor = cost("openvino"), cost("openvino", batches=(1, 2, 4)), cost("inductor")

    assert onnx.build_seconds > alone.build_seconds > 0
    assert larger.build_seconds > onnx.build_seconds + 4
    assert more.launch_seconds > max(alone.launch_seconds, onnx.launch_seconds)
    assert inductor.launch_seconds > alone.launch_seconds + 10
    # What is compiled once is loaded by the later launches.
    assert inductor.launch_seconds < 3 * (alone.launch_seconds / 3 + 15)
    assert onnx.groups == 1
    assert onnx.launches == 3
    assert onnx.seconds == onnx.build_seconds + onnx.launch_seconds


def test_workers_import_side_by_side_on_the_cpus_there_are() -> None:
    names = ("torchscript", "inductor", "openvino", "onnxruntime")

    assert (
        cost(*names, cpus=1).launch_seconds > cost(*names, cpus=2).launch_seconds > cost(*names, cpus=8).launch_seconds
    )
    assert cost(*names, cpus=0) == cost(*names, cpus=1)


def test_models_of_null_and_onnx_files_cost_no_export(tmp_path: Path) -> None:
    assert cost("null[fixed_us=9]", model="block:conv").launch_seconds > 0
    file = tmp_path / "model.onnx"
    file.touch()
    given = cost("openvino", model=f"onnx:{file}")
    assert 0 < given.build_seconds < cost("openvino").build_seconds


def beside(name: str, *texts: str, cpus: int = 2) -> Cost:
    """Return what one group takes of a compiler's cells beside these neighbours (none: alone), over eager."""
    cells, baselines = list[Cell](), list[Cell]()
    for text in texts:
        for given, compiler in ((cells, name), (baselines, "identity")):
            one = cell(compiler)
            if text != "none":
                neighbour = parse(text)
                workload = with_neighbour(one.workload, neighbour, parse_model(neighbour.model))
                one = replace(one, workload=workload)
            given.append(one)
    groups = groups_of([ItemPlan("test_beside", tuple(cells), tuple(baselines), Budget(8), 0.05)])
    return Estimator(settings(), Catalogue(), cpus, ()).cost(groups, {id(group): group.cells for group in groups}, 3)


def test_what_preparing_a_neighbour_takes_is_counted() -> None:
    """A neighbour is built, started, compiled, compared and warmed up as a cell is: none of that was in the minutes."""
    alone = beside("openvino", "none")
    same, other = beside("openvino", "timm:resnet18@openvino"), beside("openvino", "timm:resnet50@openvino")
    slow, two = (
        beside("openvino", "timm:resnet50@inductor"),
        beside("openvino", "timm:resnet50@openvino", "timm:vgg16@openvino"),
    )

    # The same model is built once; another one is made and exported as well.
    assert same.build_seconds == alone.build_seconds
    assert other.build_seconds == pytest.approx(alone.build_seconds + 4.0)
    assert same.launch_seconds > alone.launch_seconds + 3
    # What compiles for long does so for a neighbour, too, and each neighbour has a process of its own.
    assert slow.launch_seconds > other.launch_seconds + 10
    assert two.launch_seconds > other.launch_seconds + 3
    assert (
        beside("openvino", "timm:resnet50@openvino", cpus=1).launch_seconds
        > beside("openvino", "timm:resnet50@openvino", cpus=8).launch_seconds
    )


def test_a_neighbour_that_several_cells_have_is_prepared_once_in_a_launch() -> None:
    one = cell("null[fixed_us=5]")
    near = [replace(one, workload=with_neighbour(replace(one.workload, batch=batch), parse("block:mha@null"),
            parse_model("block:mha"))) for batch in (1, 2)]  # fmt: skip
    assert len(with_neighbours(near)) == 3
    twice, once = launch_seconds(near, GATE, {}), launch_seconds(near[:1], GATE, {})
    assert twice - once < once


def test_visits_beside_a_slow_neighbour_are_as_long_as_its_calls_need() -> None:
    one = cell("null[fixed_us=5]")
    near = replace(one, workload=with_neighbour(one.workload, parse("block:mha@null"), parse_model("block:mha")))
    (_, neighbour) = with_neighbours([near])
    quick, slow = (launch_seconds([near], GATE, {neighbour: seconds}) for seconds in (0.001, 0.5))
    # Twelve of its calls in each of eight visits, one before each, and what warming it up takes.
    assert slow - quick > GATE.blocks * (12 * 0.5 + 0.5 - 4 * 0.15)
    assert launch_seconds([one], GATE, {}) == launch_seconds([one], GATE, {neighbour: 0.5})


def test_passes_for_memory_are_counted_where_a_test_names_them() -> None:
    assert cost("openvino").memory_seconds == 0
    assert cost("openvino", memory=True).memory_seconds > 3


def test_large_networks_of_known_names_take_long_before_anything_is_timed() -> None:
    """The third paper's suite was said to take two minutes and took twenty-seven."""
    small, large = cost("openvino"), cost("openvino", model="torchvision:resnet50")
    assert large.launch_seconds > 1.1 * small.launch_seconds
    assert cost("openvino", model="torchvision:resnet50", batches=(1, 8)).launch_seconds > 50
    # A call of BERT-base at a batch of eight takes seconds, each visit three and warming up ten of them.
    bert = cost("openvino", model="transformers:bert-base-uncased", batches=(8,))
    assert 200 < bert.launch_seconds < 900
    assert cost("openvino", model="transformers:bert-base-uncased", batches=(8,), cpus=32).launch_seconds < 120
    assert cost("openvino", model="transformers:bert-tiny", batches=(8,)).launch_seconds < 60
    assert (small.untold, large.untold, bert.untold) == (0, 0, 0)


def test_what_nobody_knows_the_size_of_is_said(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.touch()
    given = cost("openvino", "onnxruntime", model=f"onnx:{file}", batches=(1, 8))
    assert given.untold == 2
    assert "ngraph: nothing says how long calls of 2 workloads take: of a large network it is many times that" in (
        cost_lines([given], GATE)
    )
    # What was measured, and what reads no model, is known.
    assert cost("null[fixed_us=9]", model="block:conv").untold == 0
    assert cost("openvino", known=remembered(40.0)).untold == 0
    assert not any("nothing says" in line for line in cost_lines([cost("openvino")], GATE))


@pytest.mark.parametrize(
    ("text", "values", "giga"),
    [
        ("torchvision:resnet50", {"image_size": 224}, 4.1),
        ("torchvision:resnet50", {"image_size": 112}, 1.0),
        ("timm:vgg16_bn.tv_in1k", {"image_size": 224}, 15.5),
        ("transformers:bert-base-uncased", {"sequence": 128}, 11.2),
        ("transformers:bert-base-uncased[layers=6]", {"sequence": 128}, 5.6),
        ("transformers:vit-base-patch16-224", {"image_size": 224}, 17.2),
        ("transformers:gpt2", {"sequence": 128}, 16.0),
        ("transformers:whisper-tiny", {}, 17.5),
        ("block:conv", {"depth": 4, "width": 64, "image_size": 32}, 0.153),
        ("block:mha", {"depth": 8, "width": 512, "sequence": 128}, 1.21),
    ],
)
def test_the_work_of_networks_is_known_by_their_names(text: str, values: dict[str, int], giga: float) -> None:
    model = parse_model(text)
    assert (kind_of(model).rough_macs(model, values) or 0) / 1e9 == pytest.approx(giga, rel=0.1)


def test_a_launch_that_takes_far_longer_than_was_said_is_announced_again() -> None:
    class Said(Steps):
        def __init__(self) -> None:
            super().__init__(silent=False, live=True)
            self.notes: list[str] = []

        def note(self, text: str) -> None:
            self.notes.append(text.partition("about ")[2])

    steps = Said()
    for seconds in (20.0, 25.0, 180.0, 190.0, 60.0):
        steps.group_started("local resnet50", 4, 3, seconds)
    assert steps.notes == ["20 s each", "3 min 00 s each"]


def test_a_search_is_named_and_not_counted() -> None:
    assert cost("openvino").searches == ()
    assert cost("tvm[tuned]").searches == ("tvm[tuned]",)


def remembered(seconds: float, times: int = 1, counted: bool = True) -> tuple[Known, ...]:
    cells = frozenset(one.label for one in (cell("identity"), cell("openvino")))
    return (Known("local timm:resnet18", cells, seconds, counted),) * times


def test_what_the_store_remembers_replaces_the_rule_of_thumb() -> None:
    known = cost("openvino", known=remembered(40.0))
    assert known.launch_seconds == 120
    # What was exported is kept.
    assert known.build_seconds == 0
    # Other cells are another launch.
    assert cost("onnxruntime", known=remembered(40.0)).launch_seconds < 60


def test_a_group_whose_first_look_is_stored_is_not_to_be_measured() -> None:
    whole = cost("openvino", known=remembered(40.0, 3))
    assert (whole.groups, whole.seconds, whole.stored, whole.stored_seconds) == (0, 0.0, 1, 120.0)
    invalid = cost("openvino", known=remembered(40.0, 3, counted=False))
    assert (invalid.groups, invalid.seconds) == (1, 120.0)
    anew = cost("openvino", known=remembered(40.0, 3), fresh=True)
    assert (anew.groups, anew.seconds, anew.stored) == (1, 120.0, 0)


# What is said of it


def test_the_header_says_what_it_counts_and_what_not() -> None:
    whole = Cost(2, 3, 18.3, 39.4, 6.0, 1, 33.0, ("tvm[tuned]",))

    assert cost_lines([whole], GATE) == [
        "ngraph: to measure: 2 launch groups, about 64 s at least: building 18 s, memory 6 s, 3 launches each 39 s",
        "ngraph: and 6.6 s for each further launch where a gate is not sure by then; 4 to 12 confirm a fail",
        "ngraph: and the search for code of tvm[tuned], if it was not done before",
        "ngraph: stored: 1 launch group; about 33 s if code, versions or options have changed",
    ]
    assert cost_lines([], GATE) == cost_lines([Cost()], GATE) == []


def test_what_is_only_evaluated_takes_passes_and_no_launches() -> None:
    """A suite of assert_accuracy alone was said to take launches, which nobody makes."""
    cells, baselines = (cell("openvino"), cell("onnxruntime")), (cell("identity"),)
    timed = ItemPlan("test_fast", cells, baselines, Budget(8), 0.05)
    told = replace(timed, nodeid="test_right", is_untimed=True)
    estimator = Estimator(settings(), Catalogue(), 2, ())

    def of(*items: ItemPlan) -> Cost:
        groups = groups_of(list(items))
        return estimator.cost(groups, {id(group): group.cells for group in groups}, 3)

    alone, both = of(told), of(told, timed)
    assert (alone.groups, alone.launch_seconds, alone.passes) == (0, 0.0, 2)
    assert alone.build_seconds > 0
    (line,) = cost_lines([alone], GATE)
    assert re.fullmatch(
        r"ngraph: to evaluate: 2 untimed passes of outputs, about \d+ s at least, building \d+ s of it; "
        "nothing is timed",
        line,
    )
    # Cells that another test times as well are measured as ever.
    assert both.groups == 1
    assert "3 launches" in cost_lines([both], GATE)[0]


@pytest.mark.parametrize(
    ("source", "memory", "untimed"),
    [
        ("assert_accuracy(cell, at_least=0.9)", False, True),
        ("assert_accuracy_drop(cell); assert_agreement(cell)", False, True),
        ("assert_accuracy(cell); assert_latency(cell, at_most=1)", False, False),
        ("assert_accuracy(cell); print(cell.latency)", False, False),
        ("print(cell)", False, False),
        ("(lambda: assert_memory(cell))()", True, False),
        ("assert_accuracy(cell); (lambda: assert_memory(cell))()", True, False),
    ],
)
def test_what_a_body_names_says_what_it_takes(source: str, memory: bool, untimed: bool) -> None:
    space: dict[str, Any] = {}
    exec(f"def test(cell):\n    {source}", space)
    found = _guessed(SimpleNamespace(function=space["test"]))  # type: ignore[arg-type]

    assert found == (memory, untimed)
    assert _guessed(SimpleNamespace()) == (False, False)  # type: ignore[arg-type]


def test_devices_measure_side_by_side() -> None:
    both = [Cost(1, 3, 0.0, 30.0), Cost(2, 3, 0.0, 60.0)]

    assert cost_lines(both, PROTOCOLS["quick"]) == [
        "ngraph: to measure: 3 launch groups, about 60 s at least: 3 launches each 60 s",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_lines_of_the_header_are_wrapped_between_words(width: int) -> None:
    long = "ngraph: store /srv/" + "a" * 90 + " and-words-with-hyphens" * 5
    lines = wrapped(["ngraph: short", long], width)

    assert lines[0] == "ngraph: short"
    assert all(len(line) <= width or "aaaa" in line for line in lines)
    assert all(line.startswith("        ") for line in lines[2:])
    assert " ".join(line.strip() for line in lines[1:]) == long


def pair(device: str, compiler: str) -> ItemPlan:
    return ItemPlan("", (), (), Budget(8), 0.05, device=device, compiler=CompilerSpec.parse(compiler))


def test_more_threads_than_cpus_are_warned_of() -> None:
    two = Device("board", (0, 1), 2)
    points = [pair("board", name) for name in ("openvino[threads=4]", "null", "openvino[threads=2]")]
    elsewhere = [pair("local", "openvino[threads=9]")]

    assert thread_lines(two, [*points, *elsewhere]) == [
        "ngraph: warning: openvino[threads=4]: 4 threads on the 2 CPUs of board wait for one another; 2 at most are "
        "measured well"
    ]
    assert thread_lines(replace(two, threads=3), []) == [
        "ngraph: warning: --ngraph-threads: 3 threads on the 2 CPUs of board wait for one another; 2 at most are "
        "measured well"
    ]
    assert thread_lines(replace(two, cpus=()), points) == []


def test_a_run_says_less_the_second_time(suite: Suite) -> None:
    pretended = Pretended(suite.pytester)
    pretended.write(claim(1.5))

    first, second = pretended.bare(*TWICE), pretended.bare(*TWICE, "--ngraph-threads=512")

    first.stdout.fnmatch_lines(
        ["ngraph: to measure: 1 launch group, about * s at least: 3 launches * s", "ngraph: and * further launch *"]
    )
    second.stdout.fnmatch_lines(
        [
            "ngraph: warning: --ngraph-threads: 512 threads on the * CPUs of local wait for*",
            "        *measured well",
            "ngraph: stored: 1 launch group; about * if code, versions or options have*",
        ]
    )
    assert "to measure" not in second.stdout.str()
    for result in (first, second):
        header = [line for line in result.outlines if re.match("ngraph: |        ", line)]
        assert max(map(len, header)) <= 80
