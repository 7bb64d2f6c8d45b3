"""Tests to launch groups: which cells are measured together, and against which baseline."""

from __future__ import annotations

from dataclasses import replace

from pytest_ngraph.options.settings import Budget
from pytest_ngraph.plan.groups import Group, groups_of, launch_seconds
from pytest_ngraph.plan.items import IDENTITY, ItemPlan, baseline_for, item_plan
from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    LaunchRecord,
    ModelRef,
    Outcome,
    Reading,
    Visit,
    Workload,
)
from pytest_ngraph.workloads.kinds import parse_model
from tests.options.test_settings import settings

NULL, MINE = CompilerSpec("null"), CompilerSpec("mine")
BUDGET = Budget(8)


def cell(batch: int = 1, *, model: str = "block:conv", compiler: CompilerSpec = NULL, width: int | None = None) -> Cell:
    return Cell("local", compiler, Workload(parse_model(model), batch, width=width))


def plan(name: str, *cells: Cell, baseline: CompilerSpec | None = MINE) -> ItemPlan:
    return item_plan(name, cells, settings(), baseline=baseline, budget=BUDGET, tolerance=0.05)


def names(groups: list[Group]) -> list[list[str]]:
    return [[item.nodeid for item in group.items] for group in groups]


def test_the_baseline_is_the_first_named_and_else_what_suits_the_model() -> None:
    conv, file = parse_model("block:conv"), ModelRef("onnx:n.onnx", "onnx", "/n.onnx")

    assert baseline_for(conv) == baseline_for(conv, None, None) == IDENTITY
    assert baseline_for(file, None) == CompilerSpec.parse("onnxruntime[graph=disabled]")
    assert baseline_for(file, None, NULL) == NULL
    assert baseline_for(conv, MINE, NULL) == MINE


def test_every_workload_has_its_cell_of_the_baseline() -> None:
    planned = plan("a", cell(1), cell(8))

    assert planned.cells == (cell(1), cell(8))
    assert planned.baselines == (cell(1, compiler=MINE), cell(8, compiler=MINE))
    assert planned.all_cells == (*planned.baselines, *planned.cells)


def test_the_baseline_of_the_command_line_counts_where_the_marker_names_none() -> None:
    chosen = replace(settings(), baseline=MINE)

    planned = item_plan("a", [cell()], chosen, baseline=None, budget=BUDGET, tolerance=0.05)

    assert planned.baselines == (cell(compiler=MINE),)


def test_a_compiler_that_is_its_own_baseline_is_measured_against_a_second_process() -> None:
    planned = plan("a", cell(), baseline=NULL)

    assert planned.baselines == (cell(),)
    assert planned.cells == (replace(cell(), replica=1),)


def test_tests_that_share_a_cell_or_a_baseline_are_measured_together() -> None:
    other = CompilerSpec("other")
    plans = [plan("a", cell(1)), plan("b", cell(1), cell(8)), plan("c", cell(8, compiler=other)), plan("d", cell(16))]

    groups = groups_of(plans)

    assert names(groups) == [["a", "b", "c"], ["d"]]
    assert len(groups[0].cells) == len(set(groups[0].cells)) == 5


def test_groups_stand_in_the_order_of_their_first_tests() -> None:
    # The third test joins what the first two left apart.
    plans = [plan("a", cell(1)), plan("b", cell(2)), plan("x", cell(3)), plan("c", cell(1), cell(2))]

    assert names(groups_of(plans)) == [["a", "b", "c"], ["x"]]


def test_no_tests_make_no_groups() -> None:
    assert groups_of([]) == []


def test_models_of_one_claim_share_a_group_and_others_do_not() -> None:
    together = plan("a", cell(model="block:conv"), cell(model="block:mha"))

    assert names(groups_of([together, plan("b", cell(model="block:mha"))])) == [["a", "b"]]
    assert names(groups_of([plan("a", cell()), plan("b", cell(model="block:mha"))])) == [["a"], ["b"]]


def test_a_group_is_named_by_its_models_and_the_one_width_they_have() -> None:
    (group,) = groups_of([plan("a", cell(1, width=64), cell(8, width=64))])
    (several,) = groups_of([plan("a", cell(width=64), cell(width=96, model="block:mha"))])

    assert group.name == "local block:conv width64"
    assert several.name == "local block:conv, block:mha"
    assert group.device == "local"


def test_a_group_that_is_too_large_pairs_each_compiler_with_the_baseline() -> None:
    other = CompilerSpec("other")
    (group,) = groups_of([plan("a", cell(1), cell(8)), plan("b", cell(8, compiler=other))])
    ours, theirs = cell(1, compiler=MINE), cell(8, compiler=MINE)
    assert group.parts(group.items) == [[ours, theirs, cell(1), cell(8), cell(8, compiler=other)]]

    group.is_split = True

    assert group.parts(group.items) == [[ours, theirs, cell(1), cell(8)], [theirs, cell(8, compiler=other)]]


def test_a_split_keeps_what_a_claim_compares_in_one_launch() -> None:
    # The second test's baseline is the first one's compiler.
    other = CompilerSpec("other")
    (group,) = groups_of([plan("a", cell(1), cell(8)), plan("b", cell(8, compiler=other), baseline=cell(8).compiler)])
    group.is_split = True

    for item in group.items:
        assert any(set(item.all_cells) <= set(part) for part in group.parts([item]))
        assert any(set(item.all_cells) <= set(part) for part in group.parts(group.items))


def test_the_first_test_that_names_a_cell_decides_what_it_is_compared_with() -> None:
    (group,) = groups_of([plan("a", cell()), plan("b", cell(), baseline=CompilerSpec("other"))])

    assert group.baselines() == {cell(): cell(compiler=MINE)}


def test_a_launch_counts_for_cells_that_it_measured_all() -> None:
    (group,) = groups_of([plan("a", cell(1), cell(8))])
    group.launches = [LaunchRecord(0, 1, "gate")]

    assert group.launches_with([cell(1)]) == []
    assert group.launches_with([]) == group.launches


def test_each_baseline_can_have_a_second_process_and_the_smallest_workload_is_the_first() -> None:
    other = CompilerSpec("other")
    (group,) = groups_of([plan("a", cell(8), cell(1), cell(4)), plan("b", cell(8), baseline=other)])

    assert list(group.controls.items()) == [
        (replace(cell(batch, compiler=compiler), replica=1), cell(batch, compiler=compiler))
        for batch, compiler in ((1, MINE), (4, MINE), (8, MINE), (8, other))
    ]
    # They are no cells of the tests: no claim is made of them.
    assert not set(group.controls) & set(group.cells)


def test_of_a_depth_sweep_the_single_block_is_the_first_to_be_controlled() -> None:
    deep = [replace(cell(), workload=replace(cell().workload, depth=depth)) for depth in (4, 1, 2)]
    (group,) = groups_of([plan("a", *deep)])

    assert [twin.workload.depth for twin in group.controls] == [1, 2, 4]


def test_a_baseline_against_its_own_second_process_is_its_own_control() -> None:
    (group,) = groups_of([plan("a", cell(), baseline=NULL)])

    assert set(group.controls) == set(group.items[0].cells)


def test_tests_with_the_same_baseline_share_its_control() -> None:
    (group,) = groups_of([plan("a", cell(1), cell(8)), plan("b", cell(1), cell(8, compiler=CompilerSpec("other")))])

    assert [twin.workload.batch for twin in group.controls] == [1, 8]


def test_a_plan_of_some_cells_has_what_they_are_compared_with_and_nothing_else() -> None:
    planned = plan("a", cell(1), cell(8), cell(4)).beside("main")
    old = [replace(one, side="main") for one in planned.cells]
    base = [cell(batch, compiler=MINE) for batch in (1, 8, 4)]

    assert planned.compared == list(zip(base, planned.cells, old, strict=True))
    for asked in (cell(8), base[1], old[1]):
        only = planned.only([asked])
        assert (only.nodeid, only.cells, only.baselines, only.others) == ("a", (cell(8),), (base[1],), (old[1],))
    # As the test has them, whatever order they are asked for in.
    assert planned.only([cell(4), cell(1)]).cells == (cell(1), cell(4))
    # A claim about something else is nothing to narrow by.
    assert planned.only([cell(2)]) == planned


def test_a_group_is_given_up_after_three_launches_in_a_row_that_did_not_count() -> None:
    (group,) = groups_of([plan("a", cell())])

    for fruitless, expected in ((0, False), (2, False), (3, True), (4, True)):
        group.fruitless_in_a_row = fruitless
        assert group.is_given_up is expected


def test_a_group_whose_state_of_the_machine_is_gone_is_given_up_later() -> None:
    (group,) = groups_of([plan("a", cell())])

    for outside, expected in ((5, False), (6, True)):
        group.outside_in_a_row = outside
        assert group.is_given_up is expected


def test_launches_count_in_one_state_of_the_machine_for_each_choice_of_cells() -> None:
    (group,) = groups_of([plan("a", cell(1), cell(8))])
    near, far = Reading(100_000, (360,)), Reading(100_000, (720,))
    both, one = (cell(1), cell(8)), (cell(1),)

    def launch(number: int, cells: tuple[Cell, ...], state: Reading) -> LaunchRecord:
        prepared = dict.fromkeys(cells, CompileRecord(Outcome.OK))
        visits = {(each, 0): Visit(1, (1000,)) for each in cells}
        return LaunchRecord(number, 1, "gate", prepared, visits, home=state)

    group.launches = [launch(0, one, near), launch(1, both, far), launch(2, one, near), launch(3, both, far)]
    group.launches.append(launch(4, one, near))

    assert [record.number for record in group.launches_with([cell(1)])] == [0, 2, 4]
    assert [record.number for record in group.launches_with([cell(1), cell(8)])] == [1, 3]


def test_a_launch_of_more_or_slower_cells_is_expected_to_take_longer() -> None:
    quick, gate = PROTOCOLS["quick"], PROTOCOLS["gate"]
    few, many = [cell(1)], [cell(1), cell(8), cell(1, compiler=MINE), cell(8, compiler=MINE)]

    assert launch_seconds(few, quick, {}) < launch_seconds(many, quick, {}) < launch_seconds(many, gate, {})
    assert launch_seconds(few, gate, {}) < launch_seconds(few, gate, {cell(1): 0.5})
