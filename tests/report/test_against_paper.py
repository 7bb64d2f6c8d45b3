"""The paper's figures as they are printed, what its tables say of its prose, and our own launches beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.errors import SpecError
from pytest_ngraph.report.export import layout
from pytest_ngraph.report.paper.against import Comparison, Gate, compare, paper_device, why_apart
from pytest_ngraph.report.paper.findings import VENDOR, Check, findings
from pytest_ngraph.report.paper.page import comparison_lines, comparison_page, findings_table
from pytest_ngraph.report.paper.published import DEVICES, FAMILIES, LARGE, SMALL, Figure, figure, figures
from pytest_ngraph.report.results.families import BATCH_RANGES, family_of
from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    Outcome,
    Reading,
    Visit,
    Workload,
)
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import ROOT

XEON = {"machine": "x86_64", "cpu": "A processor", "affinity": [0, 1], "versions": {"openvino": "2026.4.1"}}
HERE = Reading(150_000, (260,))
PAGE = ROOT / "docs" / "findings.md"


# The published figures


def test_the_tables_have_as_many_numbers_as_the_paper() -> None:
    assert [len(figures(table)) for table in ("iii", "vi", "vii", "viii")] == [40, 160, 40, 40]
    for table in ("iii", "vi", "vii", "viii"):
        places = [one.place for one in figures(table)]
        assert len(set(places)) == len(places)
        assert {one.device for one in figures(table)} <= set(DEVICES)


def test_their_sums_are_those_of_the_paper() -> None:
    # Added up by hand from the printed pages.
    retentions = {
        table: [one.value for one in figures(table) if one.metric == "retention"] for table in ("vii", "viii")
    }
    assert sum(retentions["vii"]) == pytest.approx(25.1184)
    assert sum(retentions["viii"]) == pytest.approx(23.2508)


@pytest.mark.parametrize(
    ("keys", "value", "deviation", "place"),
    [
        (("iii", "Xeon", "openvino", "timm:swin_s3_base_224", (32,), "compile_seconds"), 12.628, None,
         "Table III, Swin-Base, batch 32, OpenVINO Xeon"),
        (("iii", "GPU", "tvm", "timm:efficientnet_b5", (1,), "compile_seconds"), 69364.992, None,
         "Table III, EfficientNet-B5, batch 1, TVM GPU"),
        (("vi", "Xeon", "openvino", "ConvNeXts", LARGE, "throughput"), 45.50, 1.29,
         "Table VI, ConvNeXts, OpenVINO (CPU), Throughput 8-16 [t/s]"),
        (("vi", "Orin", "identity", "Swins", LARGE, "cpu_percent"), 3.08, 4.38,
         "Table VI, Swins, Identity (Orin), CPU 8-16 [%]"),
        (("vi", "GPU", "tvm", "ResNets", LARGE, "throughput"), 1823.83, 374.62,
         "Table VI, ResNets, TVM (GPU), Throughput 8-16 [t/s]"),
    ],
)  # fmt: skip
def test_a_number_is_found_with_its_place(
    keys: tuple[str, str, str, str, tuple[int, ...], str], value: float, deviation: float | None, place: str
) -> None:
    found = figure(*keys)
    assert (found.value, found.deviation, found.place) == (value, deviation, place)


def test_what_a_table_does_not_have_is_refused() -> None:
    with pytest.raises(SpecError, match="Table VI has no throughput of openvino on Orin for Swins"):
        figure("vi", "Orin", "openvino", "Swins", SMALL, "throughput")
    with pytest.raises(SpecError, match=r"table 'iv' of the paper: .*known: iii, vi, vii, viii"):
        figures("iv")


def test_the_families_are_those_that_are_aggregated() -> None:
    assert {family_of(model): family for family, models in FAMILIES.items() for model in models} == {
        family: family for family in FAMILIES
    }
    assert (SMALL, LARGE) == BATCH_RANGES
    assert {one.subject for one in figures("vi")} == set(FAMILIES)
    assert {one.subject for one in figures("iii")} == {models[-1] for models in FAMILIES.values()}


# What the tables say of the prose


def number(value: float, deviation: float | None = None, metric: str = "throughput") -> Figure:
    return Figure("vi", "row", "column", "Xeon", "openvino", "ResNets", SMALL, metric, value, deviation)


@pytest.mark.parametrize(
    ("terms", "bound", "at_least", "says"),
    [
        (((number(120, 3), 1.0), (number(100, 4), -1.0)), 1.0, True, "yes"),
        (((number(120, 3), 1.0), (number(100, 4), -1.0)), 1.0, False, "no"),
        (((number(104, 3), 1.0), (number(100, 4), -1.0)), 1.0, True, "tie"),
        (((number(96, 3), 1.0), (number(100, 4), -1.0)), 1.0, True, "tie"),
        (((number(1.04, metric="retention"), 1.0),), 1.0, True, "tie"),
        (((number(1.06, metric="retention"), 1.0),), 1.0, True, "yes"),
        (((number(0.94, metric="retention"), 1.0),), 1.0, True, "no"),
        (((number(-0.01, metric="slope"), 1.0),), 0.0, True, "no"),
        (((number(7.0, 0.5, "cpu_percent"), 1.0), (number(6.0, 0.5, "cpu_percent"), -1.0)), 0.0, True, "yes"),
        (((number(6.5, 0.5, "cpu_percent"), 1.0), (number(6.0, 0.5, "cpu_percent"), -1.0)), 0.0, True, "tie"),
    ],
)
def test_a_check_is_beyond_its_own_deviations_or_a_tie(
    terms: tuple[tuple[Figure, float], ...], bound: float, at_least: bool, says: str
) -> None:
    assert Check("it", terms, at_least, bound).says == says


def test_numbers_of_one_row_must_agree() -> None:
    good, bad = (Check("it", ((number(value, metric="retention"), 1.0),)) for value in (2.0, 0.5))
    assert replace(good, agree=(good,)).says == "yes"
    assert replace(good, agree=(bad,)).says == replace(bad, agree=(good,)).says == "no"


def test_throughput_can_count_per_sample() -> None:
    small, large = number(100.0, 1.0), replace(number(200.0, 1.0), batches=LARGE)
    terms = ((large, 1.0), (small, -1.0))
    assert Check("it", terms).value == pytest.approx(2)
    # The geometric means of 8 and 16 and of 2 and 4 are a factor of four apart.
    assert Check("it", terms, per_batch=True).value == pytest.approx(0.5)


ANSWERS = {
    "compile-fast": (40, 0, 0), "compile-batch": (7, 1, 12), "vendor-small": (15, 0, 0), "vendor-large": (14, 1, 0),
    "convolutional": (2, 0, 2), "tvm-attention": (12, 0, 0), "depth-cpu": (16, 0, 0), "eightfold": (0, 0, 1),
    "efficiency": (40, 0, 0), "sequential": (0, 0, 10), "cpu-xeon": (0, 9, 1),
    "cpu-gpu": (0, 10, 0), "cpu-orin": (7, 3, 0),
}  # fmt: skip


@pytest.mark.parametrize("key", ANSWERS)
def test_what_the_tables_answer(key: str) -> None:
    (finding,) = (one for one in findings() if one.key == key)
    assert tuple(finding.count(answer) for answer in ("yes", "tie", "no")) == ANSWERS[key]


def test_the_inconsistencies_that_are_known() -> None:
    by_key = {finding.key: finding for finding in findings()}
    # OpenVINO on the Xeon keeps less of its gain on convolutional blocks than on attention: the reverse of the prose.
    retentions = {
        table: [one.value for one in figures(table)
                if (one.device, one.compiler, one.metric) == ("Xeon", "openvino", "retention")]
        for table in ("vii", "viii")
    }  # fmt: skip
    assert (min(retentions["vii"]), max(retentions["vii"])) == (0.3379, 0.8669)
    assert (min(retentions["viii"]), max(retentions["viii"])) == (0.9635, 1.577)
    assert {check.says for check in by_key["depth"].checks if check.device == "Xeon"} == {"no"}
    # Of all rows, 21 of 40 have a rising line and a lower end, or the other way round.
    rows = [
        (slope.value > 0, retention.value > 1)
        for table in ("vii", "viii")
        for slope, retention in zip(
            *([one for one in figures(table) if one.metric == metric] for metric in ("slope", "retention")), strict=True
        )
    ]
    assert (len(rows), sum(slope != retention for slope, retention in rows)) == (40, 21)
    # ConvNeXt on the Xeon at batches 8 to 16 is a tie, and the only one among vendors' compilers.
    ties = [check.what for check in by_key["vendor-large"].checks if check.says == "tie"]
    assert ties == ["speed-up of openvino on Xeon, ConvNeXts, batches 8-16"]
    # Attention retains less on average only where two outliers are averaged in.
    conv, mha = ([one.value for one in figures(table) if one.metric == "retention"] for table in ("vii", "viii"))
    assert fmean(mha) < fmean(conv)
    assert median(mha) > median(conv)


def test_every_check_can_be_said_in_a_line() -> None:
    for finding in findings():
        assert finding.checks
        for check in finding.checks:
            assert check.terms
            assert {one.device for one, _ in check.terms} == {check.device}
            assert math.isfinite(check.value)
    assert {device for device, _ in VENDOR.items()} == set(DEVICES)


# Which of our machines and cells are compared


@pytest.mark.parametrize(
    ("facts", "theirs", "words"),
    [
        (XEON, "Xeon", "A processor, 2 CPUs"),
        ({"machine": "aarch64", "cpu": "Neoverse", "affinity": [0]}, None, "compiles for no aarch64 CPU"),
        ({"machine": "x86_64", "gpu": {"name": "NVIDIA H200"}}, "GPU", "NVIDIA H200"),
        ({"machine": "aarch64", "gpu": {"name": "Orin (nvgpu)"}}, "Orin", "Orin"),
        ({}, None, "does not say"),
    ],
)
def test_machines_are_compared_within_a_class(facts: Mapping[str, Any], theirs: str | None, words: str) -> None:
    found, said = paper_device(facts)
    assert found == theirs
    assert words in said


def cell(compiler: str, model: str = "timm:resnet18", batch: int = 2, **axes: Any) -> Cell:
    return Cell("local", CompilerSpec.parse(compiler), Workload(parse_model(model), batch, **axes))


@pytest.mark.parametrize(
    ("mine", "reason"),
    [
        (cell("openvino"), ""),
        (cell("openvino", image_size=224), ""),
        (cell("tvm[tuned=64]"), ""),
        (cell("onnxruntime", "block:mha", depth=2, width=128), ""),
        (cell("openvino", image_size=64), "images of another size"),
        (cell("openvino", "block:conv", image_size=64), "images of another size"),
        (cell("openvino", "block:mha", sequence=10), ""),
        (cell("openvino", "block:mha", sequence=128), "sequences of another length"),
        (cell("openvino", shapes="dynamic"), "one build for several shapes"),
        (cell("openvino", batch=8, shapes="mix[batch=1x7+8x3]"), "one build for several shapes"),
        (cell("openvino", "timm:vit_tiny_patch16_224"), "not among its fifteen"),
        (cell("openvino", optimize="channel_prune=0.5"), "pruned"),
        (cell("openvino", precision="bf16"), "another precision"),
        (cell("openvino", scenario="throughput"), "several calls in flight"),
        (cell("torchscript"), "none of its tables"),
        (cell("openvino[streams=2]"), "with options"),
        (cell("tvm"), "its TVM has searched"),
    ],
)
def test_only_cells_like_the_papers_are_compared(mine: Cell, reason: str) -> None:
    why = why_apart(mine, replace(mine, compiler=CompilerSpec("identity")))
    assert reason in why
    assert bool(reason) == bool(why)


def test_another_baseline_makes_other_ratios() -> None:
    assert "another baseline" in why_apart(cell("openvino"), cell("onnxruntime"))


# Our launches beside them

Times = Mapping[Cell, float]


@contextmanager
def measured(
    folder: Path,
    *groups: Sequence[Times],
    protocol: str = "gate",
    facts: Mapping[str, Any] = XEON,
    control: float = 1.0,
) -> Iterator[Store]:
    """Give a store with a run of launch groups; each launch has the seconds of a call of its cells.

    The first cell's baseline runs in a second process, ``control`` times as fast.
    """
    run_protocol = PROTOCOLS[protocol]
    with Store.open(folder / "results.sqlite") as store:
        run = store.start_run(
            "run", command=[], seed=0, protocol=run_protocol, environment=facts, fresh=False, resumed=False
        )  # fmt: skip
        for group, launches in enumerate(groups):
            for number, times in enumerate(launches):
                twins = {
                    replace(one, replica=1): seconds * control
                    for one, seconds in list(times.items())[:1] if one.compiler.name == "identity"
                }  # fmt: skip
                every = {**times, **twins}
                evidence = {one: one.label for one in every}
                store.use_cells(run, evidence)
                store.use_baselines(
                    run,
                    {
                        one: replace(one, compiler=CompilerSpec("identity"))
                        for one in times
                        if one.compiler.name != "identity"
                    },
                )
                launch = store.start_launch(
                    run, group=str(group), number=number, seed=number, protocol=run_protocol, order=[], environment={}
                )  # fmt: skip
                for one, seconds in every.items():
                    record = CompileRecord(Outcome.OK, compile_seconds=seconds * 100 if seconds else None)
                    store.add_prepared(launch, one, evidence[one], record)
                    for block in range(4):
                        store.add_visit(launch, one, block, 0, Visit(1, (round(1e9 * seconds),) * 9, (), (0,) * 9))
                store.finish_launch(launch, readings=[(HERE, HERE)] * 4)
        store.finish_run(run, "finished")
        yield store


def sweep(gain: Mapping[int, float], model: str = "timm:resnet18", compiler: str = "openvino") -> dict[Cell, float]:
    """Return seconds of a call by batch: 10 ms and 5 ms a sample under identity, ``gain`` times faster compiled."""
    identity = {cell("identity", model, batch): 0.01 + 0.005 * batch for batch in gain}
    return {
        **identity,
        **{cell(compiler, model, batch): (0.01 + 0.005 * batch) / factor for batch, factor in gain.items()},
    }


def noisy(times: Times, launches: int, scatter: float = 0.005) -> list[Times]:
    """Return launches that scatter by so much, the compilers against the baseline."""
    each = [-1, 1, 0, 1, -1, 0, 1, -1, 1, 0, -1, 1]
    factors = [math.exp(scatter * each[number % len(each)]) for number in range(launches)]
    return [
        {one: seconds * (1 if one.compiler.name == "identity" else factor) for one, seconds in times.items()}
        for factor in factors
    ]


def compared(store: Store) -> Comparison:
    return compare(store, store.runs()[-1])


def gates(comparison: Comparison, finding: str) -> dict[str, Gate]:
    return {gate.what: gate for gate in comparison.gates if gate.finding == finding}


def test_throughput_and_speedup_stand_beside_the_papers(tmp_path: Path) -> None:
    with measured(tmp_path, noisy(sweep({1: 1.2, 2: 1.5, 4: 1.5, 8: 1.1}), 3)) as store:
        comparison = compared(store)
    rows = {(row[0], row[1]): row[2:] for row in comparison.throughputs}
    small = "ResNets at batches 2-4; here resnet18 at 2, 4"
    large = "ResNets at batches 8-16; here resnet18 at 8"
    assert list(rows) == [(small, "identity"), (small, "openvino"), (large, "identity"), (large, "openvino")]
    # The geometric mean of 2 / 20 ms and 4 / 30 ms.
    assert rows[small, "identity"] == ("68.08 ± 1.75", "", "115 /s [115 /s, 115 /s]", "")
    assert rows[small, "openvino"][:2] == ("136.94 ± 5.80", "2.01x")
    assert rows[small, "openvino"][3].startswith("1.50x [1.4")
    assert rows[large, "openvino"][3].startswith("1.10x [1.0")
    assert comparison.compile_times == []


RESNETS = ("timm:resnet18", "timm:resnet50", "timm:resnet101")


def test_a_family_that_was_measured_whole_is_a_mean_as_the_papers_is(tmp_path: Path) -> None:
    """Each network has launches of its own; one of three beside a mean of three says nothing of the compiler."""
    gains = dict(zip(RESNETS, (1.5, 2.0, 3.0), strict=True))
    groups = [noisy(sweep({2: gain, 4: gain, 8: gain}, model), 3) for model, gain in gains.items()]
    with measured(tmp_path, *groups) as store:
        comparison = compared(store)
    rows = {(row[0], row[1]): row[2:] for row in comparison.throughputs}
    whole = "ResNets at batches 2-4, both means of three networks"
    assert {place for place in rows if " 2-4" in place[0]} == {(whole, "identity"), (whole, "openvino")}
    # 2 in 20 ms, 4 in 30 ms: means of 100 and 133.3, all of it times 6.5 / 3.
    theirs, gain, mine, factor = rows[whole, "openvino"]
    assert (theirs, gain) == ("136.94 ± 5.80", "2.01x")
    assert mine.startswith("253 /s [")
    assert factor.startswith("2.17x [")
    assert rows[whole, "identity"][2].startswith("117 /s [")
    # Of batches 8 and 16 one is missing: networks by themselves, each with its name.
    assert ("ResNets at batches 8-16; here resnet50 at 8", "openvino") in rows


def test_two_networks_of_three_are_no_family(tmp_path: Path) -> None:
    groups = [noisy(sweep({2: 1.5, 4: 1.5}, model), 3) for model in RESNETS[:2]]
    with measured(tmp_path, *groups) as store:
        names = {row[0] for row in compared(store).throughputs}
    assert names == {f"ResNets at batches 2-4; here {name} at 2, 4" for name in ("resnet18", "resnet50")}


def test_a_compiler_that_lacks_a_network_is_not_averaged_over_the_others(tmp_path: Path) -> None:
    """The baseline is a mean of three then, the compiler is not: no mean is of other networks than the paper's."""
    groups = [noisy(sweep({2: 1.5, 4: 1.5}, model), 3) for model in RESNETS]
    groups[2] = [{one: s for one, s in times.items() if one.compiler.name == "identity"} for times in groups[2]]
    with measured(tmp_path, *groups) as store:
        rows = {(row[0].partition(";")[0].partition(",")[0], row[1]): row for row in compared(store).throughputs}
    assert "both means of three" in rows["ResNets at batches 2-4", "identity"][0]
    assert "; here resnet50 at 2, 4" in rows["ResNets at batches 2-4", "openvino"][0]


def test_what_the_tables_support_is_gated(tmp_path: Path) -> None:
    groups = [
        noisy(sweep({2: 1.5, 4: 1.5, 8: 0.8}), 7),
        noisy(sweep({2: 1.5, 8: 1.0}, "timm:convnext_tiny"), 7),
    ]
    with measured(tmp_path, *groups) as store:
        comparison = compared(store)
    small = gates(comparison, "vendor-small")
    assert {what: gate.says for what, gate in small.items()} == {
        "openvino, resnet18 at 2, 4": "pass", "openvino, convnext_tiny at 2": "pass",
    }  # fmt: skip
    # ConvNeXt at batches 8 to 16 is a tie in the paper's own table, so that nothing is claimed of it.
    large = gates(comparison, "vendor-large")
    assert {what: gate.says for what, gate in large.items()} == {"openvino, resnet18 at 8": "fail"}
    (fail,) = large.values()
    assert fail.estimate is not None
    assert fail.estimate.high < 1
    assert fail.check.value == pytest.approx(163.90 / 75.12)
    # Throughput still rises: 8 / 50 ms over the mean of 2 / 20 ms and 4 / 30 ms, under identity.
    rises = gates(comparison, "throughput")["identity, resnet18 at 2, 4, 8"]
    assert rises.says == "pass"
    assert rises.estimate is not None
    assert rises.estimate.value == pytest.approx(160 / math.sqrt(100 * 4 / 0.03), rel=1e-3)
    # What the prose says and the tables do not is no gate.
    assert not gates(comparison, "depth")
    assert not gates(comparison, "convolutional")
    # The families of a check that compares two were never in one launch.
    assert {gate.says for gate in gates(comparison, "convnext").values()} <= {"-"}


def test_families_are_compared_where_they_were_measured_together(tmp_path: Path) -> None:
    identity = {cell("identity", "timm:efficientnet_b3"): 0.03, cell("identity", "timm:deit3_small_patch16_224"): 0.02}
    openvino = {cell("openvino", "timm:efficientnet_b3"): 0.01, cell("openvino", "timm:deit3_small_patch16_224"): 0.015}
    with measured(tmp_path, noisy({**identity, **openvino}, 4)) as store:
        order = gates(compared(store), "order")
    assert {what: gate.says for what, gate in order.items()} == {
        "identity, efficientnet_b3 over deit3_small_patch16_224 at 2": "pass",
        "openvino, efficientnet_b3 over deit3_small_patch16_224 at 2": "pass",
    }


@pytest.mark.parametrize(
    ("gain", "launches", "says", "reason"),
    [
        (1.5, 3, "pass", ""),
        (1.5, 2, "inconclusive", "the store has no further launch"),
        (0.7, 3, "fail", "so far beyond the bound that it needs no confirmation"),
        (0.9, 7, "fail", "the first 3 launches said fail, 4 fresh ones confirmed it"),
        (0.9, 5, "inconclusive",
         "the first 3 launches said fail; of the 4 that confirm it there are 2: the store has no further launch"),
        (0.99, 8, "pass", ""),
    ],
)  # fmt: skip
def test_a_gate_is_judged_as_a_test_would(tmp_path: Path, gain: float, launches: int, says: str, reason: str) -> None:
    with measured(tmp_path, noisy(sweep({2: gain}), launches)) as store:
        (gate,) = gates(compared(store), "vendor-small").values()
    assert (gate.says, gate.reason) == (says, reason)


def test_launches_that_scatter_too_much_decide_nothing(tmp_path: Path) -> None:
    with measured(tmp_path, noisy(sweep({2: 1.0}), 16, scatter=0.2)) as store:
        (gate,) = gates(compared(store), "vendor-small").values()
    assert (gate.says, gate.reason) == ("inconclusive", "the budget is spent")


def test_a_fail_that_the_next_launches_do_not_repeat_is_none(tmp_path: Path) -> None:
    slow, fast = noisy(sweep({2: 0.9}), 3), noisy(sweep({2: 1.5}), 4)
    with measured(tmp_path, [*slow, *fast]) as store:
        (gate,) = gates(compared(store), "vendor-small").values()
    assert gate.says == "inconclusive"
    assert "did not confirm it" in gate.reason


def test_a_violated_control_makes_a_gate_invalid(tmp_path: Path) -> None:
    launches = [
        {one: seconds * (1 + 1e-4 * k if one.compiler.name == "identity" else 1) for one, seconds in times.items()}
        for k, times in enumerate(noisy(sweep({2: 1.5}), 3))
    ]
    with measured(tmp_path, launches, control=1.3) as store:
        (gate,) = gates(compared(store), "vendor-small").values()
    assert gate.says == "invalid"
    assert "the control is violated" in gate.reason


def test_a_quick_run_controls_no_error(tmp_path: Path) -> None:
    with measured(tmp_path, [sweep({2: 1.5})], protocol="quick") as store:
        (gate,) = gates(compared(store), "vendor-small").values()
    assert (gate.says, gate.reason) == ("not judged", "quick, no error control")


def test_depth_stands_beside_tables_vii_and_viii(tmp_path: Path) -> None:
    stacks: dict[Cell, float] = {}
    for compiler, gains in (("onnxruntime", {1: 1.0, 3: 1.0, 6: 1.0}), ("openvino", {1: 1.0, 3: 1.5, 6: 2.0})):
        for depth, gain in gains.items():
            stacks[cell("identity", "block:mha", 8, depth=depth, width=128)] = 0.01 * depth
            stacks[cell(compiler, "block:mha", 8, depth=depth, width=128)] = 0.01 * depth / gain
    with measured(tmp_path, noisy(stacks, 4)) as store:
        comparison = compared(store)
    rows = {row[1]: row for row in comparison.depths}
    assert set(rows) == {"onnxruntime", "openvino"}
    assert rows["openvino"][0] == "block:mha width 128 at batch 8, depths 1 to 6"
    assert (rows["openvino"][2], rows["openvino"][4]) == ("0.1113", "1.115")
    assert rows["openvino"][5].startswith("2.00 [")
    # On the Xeon only ONNX Runtime's indifference is what the tables agree on.
    assert {gate.says for gate in gates(comparison, "depth-cpu").values()} == {"pass"}
    assert not gates(comparison, "depth")


def test_compile_times_stand_beside_table_iii(tmp_path: Path) -> None:
    built = {cell("openvino", "timm:resnet101", 1): 0.03, cell("openvino", "timm:resnet101", 32): 0.05}
    with measured(tmp_path, [built] * 3) as store:
        comparison = compared(store)
    assert [row[:3] for row in comparison.compile_times] == [
        ("ResNet-101, batch 1", "openvino", "2.25 s"), ("ResNet-101, batch 32", "openvino", "4.08 s"),
    ]  # fmt: skip
    assert comparison.compile_times[0][3].startswith("3.00 s [")
    assert {gate.says for gate in gates(comparison, "compile-fast").values()} == {"pass"}


def test_what_is_not_compared_is_counted(tmp_path: Path) -> None:
    times = {cell("identity"): 0.02, cell("torchscript"): 0.02, cell("openvino", image_size=64): 0.01}
    with measured(tmp_path, [times]) as store:
        comparison = compared(store)
    assert sorted(comparison.left_out.items()) == [
        ("compilers that none of its tables has", 1),
        ("images of another size than its 224 pixels for networks and 244 for blocks", 1),
    ]


def test_a_device_that_the_paper_has_none_of_is_not_compared(tmp_path: Path) -> None:
    with measured(tmp_path, [sweep({2: 1.5})], facts={"machine": "aarch64", "cpu": "Neoverse"}) as store:
        comparison = compared(store)
    assert (comparison.throughputs, comparison.gates) == ([], [])
    assert any("compiles for no aarch64 CPU" in line for line in comparison_lines(comparison))


# The pages


def test_the_command_prints_the_comparison_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with measured(tmp_path, noisy(sweep({2: 1.5, 8: 0.8}), 7)):
        pass
    store = ["--store", str(tmp_path / "results.sqlite")]
    assert main(["report", str(tmp_path / "beside.md"), "--against", "paper", *store]) == 0
    output = capsys.readouterr().out
    assert "local    A processor, 2 CPUs  Xeon: 8 CPUs of a Xeon Skylake at 3.0 GHz, no GPU" in output
    assert "nothing" in output
    assert "FAIL Vendor compilers are faster than the dynamic graph at batch 16, too:" in output
    assert "claimed at least 1.00x, the paper's 2.18x" in output
    assert f"{tmp_path / 'beside.md'}: written" in output
    page = (tmp_path / "beside.md").read_text(encoding="utf-8")
    for title in ("What is compared", "Throughput and speed-up beside Table VI", "Findings of the paper", "Gates"):
        assert f"## {title}\n" in page
    assert "100 repetitions" in page
    assert "with a 99 % interval" in page
    assert "| openvino | 2024.3.0 | 2026.4.1 |" in page
    assert "at batch 16, too | openvino, resnet18 at 8 | 2.18x | at least 1.00x | 0.80x [" in page
    assert "Compile times rise with the batch for TVM only" in page[page.index("## Not gated") :]


def test_a_page_has_tables_that_are_tables(tmp_path: Path) -> None:
    with measured(tmp_path, noisy(sweep({2: 1.5, 8: 0.8}), 3)) as store:
        page = comparison_page(compared(store))
    for paragraph in page.split("\n\n"):
        if paragraph.startswith("|"):
            assert len({line.replace(r"\|", "").count("|") for line in paragraph.splitlines()}) == 1, paragraph


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "dlas"], "--against: unknown publication 'dlas' (known: paper, lvt)"),
        (["page.html", "--against", "paper"], "page.html: not the name of a Markdown page"),
        (["--against", "paper", "--run", "9"], "--run: no run 9"),
        (["--against", "paper", "--format", "png"], "--format is for figures: give --figures DIR as well"),
        (["--against", "paper", "--figure", "5"], "--figure is for figures: give --figures DIR as well"),
    ],
)
def test_the_command_says_what_is_wrong(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with measured(tmp_path, [sweep({2: 1.5})]):
        pass
    assert main(["report", *arguments, "--store", str(tmp_path / "results.sqlite")]) == 2
    assert message in capsys.readouterr().err


def told_by_the_tables() -> Iterator[str]:
    """Yield the numbers that docs/findings.md quotes, made anew from the tables."""

    def value(device: str, compiler: str, family: str, batches: tuple[int, ...], metric: str = "throughput") -> float:
        return figure("vi", device, compiler, family, batches, metric).value

    def gain(device: str, compiler: str, family: str, batches: tuple[int, ...]) -> float:
        return value(device, compiler, family, batches) / value(device, "identity", family, batches)

    def span(values: Iterable[float]) -> str:
        known = list(values)
        return f"{min(known):.2f} to {max(known):.2f}"

    growth = {
        (one.compiler, one.device, one.subject): one.value
        / figure("iii", one.device, one.compiler, one.subject, (1,), "compile_seconds").value
        for one in figures("iii") if one.batches == (32,)
    }  # fmt: skip
    for compiler in ("openvino", "tensorrt"):
        yield f"by {span(value for key, value in growth.items() if key[0] == compiler)}"
    yield f"EfficientNet-B5 to {growth['tvm', 'GPU', 'timm:efficientnet_b5']:.2f}"
    yield f"Swin-Base to {growth['tvm', 'GPU', 'timm:swin_s3_base_224']:.2f} times"
    for batch in (1, 32):
        one = figure("iii", "Xeon", "tvm", "timm:swin_s3_base_224", (batch,), "compile_seconds")
        yield f"{one.value / 3600:.1f} h"
    xeon, gpu = ([f"{gain(d, 'tvm', family, SMALL):.2f}" for family in FAMILIES] for d in ("Xeon", "GPU"))
    yield f"ResNets at {xeon[0]} and EfficientNets at {xeon[1]} times"
    yield f"it is {gpu[0]} and {gpu[1]} times"
    (kept,) = (c for one in findings() if one.key == "vendor-only" for c in one.checks if c.says == "no")
    share = math.hypot(*(one.deviation / one.value for one, _ in kept.terms if one.deviation))
    yield f"{kept.value:.2f} ± {kept.value * share:.2f} times"
    for device, family in (("Orin", "DeiTs"), ("Xeon", "ResNets")):
        small, large = (gain(device, VENDOR[device], family, batches) for batches in (SMALL, LARGE))
        yield f"{family} from {small:.2f} to {large:.2f} times"
    by_tvm = {
        (device, family, batches): gain(device, "tvm", family, batches)
        for device in ("Xeon", "GPU") for family in FAMILIES for batches in (SMALL, LARGE)
    }  # fmt: skip
    of = {name: [gain for key, gain in by_tvm.items() if key[1] == name] for name in FAMILIES}
    yield f"{span(of['DeiTs'] + of['Swins'])} times"
    yield f"{span(of['DeiTs'])} against {span(of['ConvNeXts'])} times"
    for device in ("GPU", "Orin"):
        gains = [gain(device, "tensorrt", f, LARGE) / gain(device, "tensorrt", f, SMALL) for f in FAMILIES]
        yield span(gains)
    every = {(one.device, one.compiler) for one in figures("vi")} - {(device, "identity") for device in DEVICES}
    gains = [gain(*key, family, batches) for key in every for family in FAMILIES for batches in (SMALL, LARGE)]
    yield f"The largest factor of Table VI is {max(gains):.2f}"
    conv, mha = ([one.value for one in figures(table) if one.metric == "retention"] for table in ("vii", "viii"))
    yield f"{fmean(mha):.2f} against {fmean(conv):.2f}"
    yield f"{median(mha):.2f} and {median(conv):.2f}"


def test_the_docs_quote_the_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [told for told in told_by_the_tables() if told not in page] == []


def test_the_docs_have_what_the_tables_answer() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for line in layout.markdown(findings_table()).splitlines():
        assert line in page
