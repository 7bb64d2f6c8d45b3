"""Friction over widths, CPU usage beside the baseline's, savings per second and families, from launches by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from pytest_ngraph import metrics
from pytest_ngraph.claims.assertions import assert_faster
from pytest_ngraph.claims.changes import assert_no_slower, decide_served
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.load.queues import OVERLOADED
from pytest_ngraph.quantities.comparisons import change, friction, friction_scale
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate, NotStored, Quantity
from pytest_ngraph.report.paper.published import FAMILIES
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.families import FamilyRow, family_of, family_table
from pytest_ngraph.report.results.frictions import with_friction
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    LaunchRecord,
    Outcome,
    Visit,
    Workload,
)
from pytest_ngraph.stats.verdict import Bound
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import QUICK_GATES, Suite

COMPILED, BASELINE = CompilerSpec("openvino"), CompilerSpec("identity")
# ASE 0.8, 0.6 and 0.5 at batch 4: seconds of a call at batch 1 and at batch 4.
SECONDS = {64: (0.001, 0.00125), 128: (0.003, 0.005), 256: (0.010, 0.020)}
EFFICIENCY = {64: 0.8, 128: 0.6, 256: 0.5}


def block(width: int, batch: int, compiler: CompilerSpec = COMPILED) -> Cell:
    return Cell("local", compiler, Workload(parse_model("block:conv"), batch, depth=6, width=width))


def launch(seconds: Mapping[Cell, float], shares: Mapping[Cell, float] | None = None, number: int = 0) -> LaunchRecord:
    """Return a launch of four blocks whose calls take these seconds, on so many cores."""
    visits = {}
    for cell, each in seconds.items():
        wall = round(each * 1e9)
        cpu = round(wall * (shares or {}).get(cell, 1.0))
        for number_of_block in range(4):
            visits[cell, number_of_block] = Visit(1, (wall,) * 5, (cpu,) * 5)
    return LaunchRecord(number, number, "gate", {cell: CompileRecord(Outcome.OK) for cell in seconds}, visits)


def stored(*records: LaunchRecord, cpus: int = 2) -> Stored:
    return Stored(records, [], PROTOCOLS["gate"], cpus)


def measured(source: Stored, cells: Sequence[Cell]) -> list[Measurement]:
    return [Measurement(source, cell, replace(cell, compiler=BASELINE)) for cell in cells]


ARRIVING = "server[rate=20]"


def answered(
    here: Sequence[float],
    there: Sequence[float],
    *,
    is_overloaded: bool = False,
    is_other_overloaded: bool = False,
    shared: str = "",
) -> Quantity:
    """Return the change of a cell under load, given how long its calls take in each launch, in ms, on either side.

    Calls are answered as often as they arrive, every 50 ms, but where a side is overloaded: then every 100 ms.
    """
    mine = Cell("local", COMPILED, replace(parse_workload(), scenario=ARRIVING))
    theirs, launches = replace(mine, side="main@1234567"), []
    for number, pair in enumerate(zip(here, there, strict=True)):
        is_late = {mine: is_overloaded, theirs: is_other_overloaded}
        visits, every = {}, {cell: 100_000_000 if late else 50_000_000 for cell, late in is_late.items()}
        for cell, each in zip((mine, theirs), pair, strict=True):
            for block in range(4):
                visits[cell, block] = Visit(1, (every[cell],) * 5, request_ns=(round(each * 1e6),) * 5)
        late = CompileRecord(Outcome.UNSTABLE, f"{OVERLOADED}: 20 calls a second arrive")
        records = {cell: late if is_late[cell] else CompileRecord(Outcome.OK) for cell in is_late}
        launches.append(LaunchRecord(number, number, "gate", records, visits, shared=shared))
    source = stored(*launches)
    source.most_launches = 16
    return change(Measurement(source, mine, mine, theirs))


def parse_workload() -> Workload:
    return Workload(parse_model("block:conv"), 1)


def test_of_calls_that_arrive_at_a_rate_a_change_is_one_of_their_latency() -> None:
    """As many are answered as arrive: by throughput whatever keeps up is as fast as before."""
    slower = answered([15.0, 15.1, 14.9], [5.0, 5.0, 5.0])
    assert slower.estimate().value == pytest.approx(1 / 3, rel=0.01)
    assert "speed of" in slower.label
    assert decide_stored(slower) == "fail"
    assert decide_stored(answered([5.0, 5.01, 4.99], [5.0, 5.0, 5.0])) == "pass"


@pytest.mark.parametrize(
    ("here", "there", "verdict"), [(True, False, "fail"), (False, True, "pass"), (True, True, "inconclusive")]
)
def test_where_one_side_does_not_keep_up_that_one_is_slower_by_what_it_answers(
    here: bool, there: bool, verdict: str
) -> None:
    late = answered([700.0] * 7, [5.0] * 7, is_overloaded=here, is_other_overloaded=there)
    decision = decide_served(late, Bound(1.0, True, 0.05, "log"), 0.05)
    assert decision.verdict == verdict
    assert decision.estimate.value == pytest.approx({(True, False): 0.5, (False, True): 2.0}.get((here, there), 1.0))
    assert f"{'here' if here else 'on main@1234567'} overloaded: 20 calls" in decision.reason
    # Three launches are no confirmation.
    few = answered([700.0] * 3, [5.0] * 3, is_overloaded=here, is_other_overloaded=there)
    assert decide_stored(few) == "inconclusive"


def test_a_queue_that_grew_while_others_used_the_cpus_makes_no_side_the_slower_one() -> None:
    """Whoever used them may have kept it from keeping up: the fail above is inconclusive."""
    late = answered([700.0] * 7, [5.0] * 7, is_overloaded=True, shared="other processes kept 0.9 of 2 CPUs busy")
    assert decide_stored(late) == "inconclusive"


def decide_stored(quantity: Quantity) -> str:
    return decide_served(quantity, Bound(1.0, True, 0.05, "log"), 0.05).verdict.value


def test_what_is_faster_is_not_asked_of_calls_that_arrive_at_a_rate() -> None:
    workload = replace(parse_workload(), scenario=ARRIVING)
    one, other = measured(stored(), [Cell("local", each, workload) for each in (COMPILED, CompilerSpec("tvm"))])
    for claim in (assert_faster, assert_no_slower):
        with pytest.raises(ClaimError, match="as many calls are answered as arrive"):
            claim(one, other)


def widths(*factors: float) -> tuple[Stored, list[Cell]]:
    """Return launches of three widths at batches 1, 2 and 4; at batch 4 each launch is slower by a factor."""
    cells = [block(width, batch) for width in SECONDS for batch in (1, 2, 4)]

    def seconds(cell: Cell, factor: float) -> float:
        one, four = SECONDS[cell.workload.width or 0]
        return {1: one, 2: one, 4: four * factor}[cell.workload.batch]

    records = [launch({cell: seconds(cell, factor) for cell in cells}, number=k) for k, factor in enumerate(factors)]
    return stored(*records), cells


# Friction


def test_friction_is_that_of_the_efficiencies_and_has_an_interval() -> None:
    source, cells = widths(1.0, 1.0, 1.0)
    quantity = friction(measured(source, cells), 4)

    assert quantity.estimate().value == pytest.approx(metrics.friction(EFFICIENCY))
    assert quantity.label == "Batch-width friction at batch 4 of local:openvino block:conv over widths 64 to 256"
    assert [part.estimate().value for part in quantity.parts] == [pytest.approx(0.8), pytest.approx(0.5)]
    assert friction_scale(measured(source, cells), 4) == pytest.approx((0.8 + 0.6 + 0.5) / 3 / 2)


def test_the_interval_is_over_launches() -> None:
    factors = (1.0, 1.1, 1.2)
    source, cells = widths(*factors)
    estimate = friction(measured(source, cells), 4).estimate()

    each = [metrics.friction({width: ase / factor for width, ase in EFFICIENCY.items()}) for factor in factors]
    mean = math.fsum(each) / 3
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in each) / 2)
    assert estimate.value == pytest.approx(mean)
    assert (estimate.high - estimate.low) / 2 == pytest.approx(9.925 * deviation / math.sqrt(3), rel=1e-3)


@pytest.mark.parametrize(
    ("wanted", "batch", "message"),
    [
        (
            [(64, 1), (64, 4), (128, 1)],
            4,
            r"batch 4 needs two widths, each at batch 1 and 4 \(there: block:conv batch1",
        ),
        ([], 4, r"there: none\); measure them together: ngraph.measure\(width=\[64, 128\], batch=\[1, 4\]\)"),
        ([(64, 1), (128, 1)], 1, r"batch 1 \(expected 2 or more: it is about what batching gains\)"),
    ],
)
def test_friction_needs_two_widths_at_both_batches(wanted: Sequence[tuple[int, int]], batch: int, message: str) -> None:
    source, _ = widths(1.0)
    with pytest.raises(ClaimError, match=message):
        friction(measured(source, [block(*place) for place in wanted]), batch)


def test_friction_is_of_one_model_and_one_launch() -> None:
    source, cells = widths(1.0, 1.0, 1.0)
    deeper = [replace(cell, workload=replace(cell.workload, depth=7)) for cell in cells]
    with pytest.raises(ClaimError, match="differ in more than width and batch; give those of one model"):
        friction(measured(source, [*cells, *deeper]), 4)
    apart = stored(*(launch({block(width, batch): 0.001 for batch in (1, 4)}) for width in SECONDS))
    with pytest.raises(NotStored):
        friction(measured(apart, cells), 4).estimate()


FRICTION = """
from time import perf_counter_ns
from pytest_ngraph.compilers.null import NullCompiler, NullExecutable


class WideCompiler(NullCompiler):
    name = "wide"

    def compile(self, workload, device, options):
        spec = workload.spec
        return NullExecutable(round(200_000 + 1_000 * spec.width * spec.batch))


COMPILER = WideCompiler()


def pytest_ngraph_compilers(catalogue):
    catalogue.add("wide", "conftest:COMPILER")
"""


@pytest.mark.measures
def test_friction_is_measured_for_real(suite: Suite) -> None:
    """200 us and 1 us a sample and channel: at batch 4 ASE is 264 / 456 at width 64 and 456 / 1224 at width 256."""
    (suite.path / "conftest.py").write_text(FRICTION)
    suite.write(
        """
from pytest_ngraph import assert_friction


def test_friction(ngraph):
    cells = ngraph.measure(model="block:conv", width=[64, 256], batch=[1, 4])
    expected = (264 / 456 - 456 / 1224) / 2
    assert assert_friction(cells, batch=4, at_most=2 * expected).value == pytest.approx(expected, abs=0.03)
    assert_friction(cells, batch=4, at_most=expected / 2)


def test_narrowed(ngraph):
    assert_friction(ngraph.measure(model="block:conv", width=[64, 128], batch=[1, 4]), batch=4, at_most=1)
"""
    )
    options = (*QUICK_GATES, "--ngraph-baseline=null", "--ngraph-compiler=wide")
    result = suite.bare(*options, "-k", "friction")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["E *assert_friction: Batch-width friction at batch 4 of local:wide block:conv over *"])
    narrowed = suite.bare(*options, "-k", "narrowed", "--ngraph-width=64")
    narrowed.assert_outcomes(skipped=1, deselected=1)
    narrowed.stdout.fnmatch_lines(["*the others were narrowed away on the command line*"])


# CPU usage and savings


def test_the_reduction_of_cpu_usage_is_block_by_block() -> None:
    cell = block(64, 1)
    baseline = replace(cell, compiler=BASELINE)
    one = launch({cell: 0.001, baseline: 0.002}, {cell: 0.5, baseline: 2.0})
    (measurement,) = measured(stored(one, one, one), [cell])

    assert measurement.cpu_reduction_percent.value == pytest.approx(75.0, abs=0.01)
    assert measurement.cpu_percent.value == pytest.approx(25.0, abs=0.01)
    parts = measurement.quantity("cpu_reduction_percent").parts
    assert [round(part.estimate().value) for part in parts] == [25, 100]


def test_savings_per_second_are_throughput_times_what_is_saved() -> None:
    cell = block(64, 4)
    (measurement,) = measured(stored(*[launch({cell: 0.002})] * 3), [cell])

    estimate = measurement.tcr_per_second(150_000, 30_000)

    assert estimate.value == pytest.approx(metrics.tcr_per_second(150_000, 30_000, 2000.0))
    assert str(estimate).startswith("229 MiB/s [")
    for sizes in ((100, 100), (100, 200), (100, -1), (math.inf, 1)):
        with pytest.raises(ClaimError, match=r"tcr_per_second: bytes_before=.* the second smaller than the first"):
            measurement.tcr_per_second(*sizes)


# Families


@pytest.mark.parametrize("family", FAMILIES)
def test_the_papers_models_are_of_its_families(family: str) -> None:
    assert {family_of(model) for model in FAMILIES[family]} == {family}


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("timm:resnet18.a1_in1k", "ResNets"),
        ("timm:deit_tiny_patch16_224", "DeiTs"),
        ("timm:resnext50_32x4d", "resnext"),
        ("timm:mobilenetv3_small_100", "mobilenet"),
        ("timm:swinv2_tiny_window8_256", "Swins"),
        ("timm:vit_tiny_patch16_224", "vit"),
        ("block:conv", "Conv blocks"),
        ("block:mha", "MHA blocks"),
        ("nets/net.py:make", "nets/net.py:make"),
        ("onnx:swin.onnx", "onnx:swin.onnx"),
    ],
)
def test_other_models_are_known_by_how_their_names_begin(model: str, family: str) -> None:
    assert family_of(model) == family


def estimate(metric: str, value: float, half: float, launches: int) -> Estimate:
    """Return an estimate whose interval is so wide, on its metric's scale."""
    if metrics.METRICS[metric].scale == "log":
        return Estimate(metric, value, value * math.exp(-half), value * math.exp(half), launches)
    return Estimate(metric, value, value - half, value + half, launches)


def report(model: str, batch: int, rate: float, *, compiler: CompilerSpec = BASELINE, launches: int = 1) -> CellReport:
    cell = Cell("local", compiler, Workload(parse_model(model), batch))
    baseline = replace(cell, compiler=BASELINE) if compiler == COMPILED else None
    estimates = {
        "throughput": estimate("throughput", rate, 0.02, launches),
        "cpu_percent": estimate("cpu_percent", 50.0, 1.0, launches),
    }
    return CellReport(cell, baseline, estimates, None, None)


def test_a_row_is_a_family_on_a_compiler_over_a_range_of_batches() -> None:
    reports = [
        *(report("timm:swin_s3_tiny_224", batch, 10.0 * batch, compiler=COMPILED) for batch in (1, 2, 4, 8)),
        *(report("timm:swin_s3_tiny_224", batch, 5.0 * batch) for batch in (1, 2, 4, 8)),
        report("timm:swin_s3_base_224", 4, 10.0),
        report("timm:resnet18", 2, 100.0),
    ]

    rows = family_table(reports)

    assert [(row.family, row.compiler, row.batches, row.throughput.value, row.cells) for row in rows] == [
        ("Swins", "identity", (2, 4), pytest.approx((10 + 20 + 10) / 3), 3),
        ("Swins", "identity", (8, 16), 40.0, 1),
        ("Swins", "openvino", (2, 4), 30.0, 2),
        ("Swins", "openvino", (8, 16), 80.0, 1),
        ("ResNets", "identity", (2, 4), 100.0, 1),
    ]
    assert [row.missing for row in rows] == [(), (), ("timm:swin_s3_base_224 batch4",), (), ()]
    assert rows[0].cpu_percent is not None
    assert rows[0].cpu_percent.value == 50.0


def only(*reports: CellReport, protocol: str = "gate") -> FamilyRow:
    (row,) = family_table(reports, protocol=protocol)
    return row


def test_the_deviation_is_the_mean_of_the_cells_own_as_in_the_paper() -> None:
    # One launch of the protocol paper: the interval is one standard deviation to each side, 2 % of the value.
    cells = report("timm:resnet18", 2, 100.0), report("timm:resnet101", 4, 10.0)
    row = only(*cells, protocol="paper")
    assert row.throughput.deviation == pytest.approx((2.0 + 0.2) / 2)
    assert row.cpu_percent is not None
    assert row.cpu_percent.deviation == pytest.approx(1.0)
    assert str(row.throughput) == "55.0 /s ± 1.10 /s"
    assert row.throughput.low == pytest.approx((100 + 10) / 2 * math.exp(-0.02))
    # Of one short launch there is a standard error, which is no deviation.
    assert only(*cells, protocol="quick").throughput.deviation is None


def test_the_deviation_over_launches_is_that_behind_the_interval() -> None:
    # Four launches: half a width is t(0.995, 3) s / 2 = 2.92 s.
    row = only(report("timm:resnet18", 2, 100.0, launches=4))
    assert row.throughput.deviation == pytest.approx(100 * 0.02 * 2 / 5.8409, rel=1e-3)
    unknown = replace(
        report("timm:resnet18", 2, 1.0), estimates={"throughput": Estimate("throughput", 1.0, 0.0, math.inf, 1)}
    )
    row = only(unknown)
    assert row.throughput.deviation is None
    assert row.cpu_percent is None
    assert str(row.throughput) == "1.00 /s ± ?"


def test_a_second_process_and_cells_without_a_time_are_left_out() -> None:
    good = report("timm:resnet18", 2, 100.0)
    twin = replace(good, cell=replace(good.cell, replica=1))
    failed = replace(report("timm:resnet50", 2, 1.0), estimates={})
    assert family_table([good, twin, failed]) == family_table([good])
    assert family_table([]) == []


def test_what_differs_in_a_further_axis_is_not_averaged() -> None:
    full = report("timm:resnet18", 2, 100.0)
    half = replace(full, cell=replace(full.cell, workload=replace(full.cell.workload, precision="f16")))
    rebuilt = replace(full, cell=replace(full.cell, rebuild=True))
    rows = family_table([full, half, rebuilt])
    assert [(row.family, row.cells) for row in rows] == [("ResNets", 1), ("ResNets f16", 1)]
    assert family_table([rebuilt])[0].cells == 1


# Friction of a run whose widths were measured apart


def test_widths_that_were_measured_apart_have_a_friction_in_the_report() -> None:
    reports = [
        CellReport(block(width, 4), None, {"ase": Estimate("ase", ase, ase - 0.01, ase + 0.01, 3 + k)}, None, None)
        for k, (width, ase) in enumerate(EFFICIENCY.items())
    ]
    other = CellReport(block(64, 8), None, {"ase": Estimate("ase", 0.5, 0.4, 0.6, 3)}, None, None)

    *narrow, widest, alone = with_friction([*reports, other])

    found = widest.estimates["friction"]
    assert found.value == pytest.approx(metrics.friction(EFFICIENCY))
    assert found.launches == 3
    # Weights 1/2, 0, -1/2: however the widths depend on one another.
    assert found.high - found.value == pytest.approx(0.01)
    assert all("friction" not in one.estimates for one in (*narrow, alone))
    assert set(widest.estimates) == {"ase", "friction"}
