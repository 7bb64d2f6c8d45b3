"""Several calls in flight: what is measured of them, what may be claimed, and how adapters do it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from pytest_ngraph.compilers.toolkit.in_flight import ThreadedRequests
from pytest_ngraph.spec.cells import Cell, Outcome, Visit
from tests.conftest import Suite, skip_without
from tests.support.measuring import SMALL, cell, job, launch
from tests.support.pretended import TWICE, Pretended


def piped(compiler: str) -> Cell:
    one = cell(compiler)
    return replace(one, workload=replace(one.workload, scenario="throughput"))


# Null


def visits(folder: Path, *cells: Cell) -> dict[Cell, list[Visit]]:
    """Return the visits of a small launch, in real workers."""
    found = launch(job(folder), *cells, protocol=replace(SMALL, visit_seconds=0.06))
    assert {found.records[one].outcome for one in cells} <= {Outcome.OK, Outcome.UNSTABLE}
    return {one: [visit for (at, _), visit in found.visits.items() if at == one] for one in cells}


@pytest.mark.real
def test_littles_law_holds_of_every_visit_and_throughput_is_calls_in_flight_by_their_time(tmp_path: Path) -> None:
    truth = {
        piped(f"null[fixed_us={us},sample_us=0,requests={requests}]"): (us * 1000, requests)
        for us, requests in ((400, 2), (1000, 1), (1000, 4), (3000, 8), (7000, 3))
    }
    for one, mine in visits(tmp_path, *truth).items():
        call_ns, in_flight = truth[one]
        assert len(mine) == SMALL.blocks
        for visit in mine:
            assert len(visit.request_ns) == visit.calls * len(visit.wall_ns)
            throughput = len(visit.request_ns) / sum(visit.wall_ns)
            assert throughput * fmean(visit.request_ns) == pytest.approx(in_flight, rel=0.1)
            assert visit.run_delay_ns == ()
            # No call is faster than it is, and so no turn of all slots is.
            assert min(visit.request_ns) >= call_ns
            assert min(visit.wall_ns) / visit.calls >= call_ns / in_flight
        # However busy the machine is, in its best moment it is not far from that.
        at_best = min(min(visit.wall_ns) / visit.calls for visit in mine)
        assert at_best < 1.6 * call_ns / in_flight


@pytest.mark.real
def test_null_has_four_calls_in_flight_unless_told_otherwise_and_one_in_the_other_scenario(tmp_path: Path) -> None:
    cells = {piped("null"): "4", piped("null[requests=9]"): "9", cell("null[requests=5]"): None}
    found = launch(job(tmp_path), *cells)
    assert {one: dict(found.records[one].placement).get("in_flight") for one in cells} == cells
    assert all(not visit.request_ns for (one, _), visit in found.visits.items() if one.workload.scenario == "latency")


# What is made of it


@pytest.fixture
def pretended(suite: Suite) -> Pretended:
    """An empty suite whose launches are pretended: calls of 1 ms against 2 ms, four of them in flight."""
    return Pretended(suite.pytester)


def test_both_scenarios_have_their_own_values_and_rows(pretended: Pretended) -> None:
    pretended.write("""
@pytest.mark.ngraph(model="block:conv", batch=2, scenario=["latency", "throughput"])
def test_cell(ngraph_cell):
    in_flight = {"latency": 1, "throughput": 4}[ngraph_cell.workload.scenario]
    # Every other launch is pretended to be 1 % slower.
    assert ngraph_cell.throughput.value == pytest.approx(in_flight * 2 / 1e-3, rel=0.011)
    assert ngraph_cell.latency.value == pytest.approx(1e-3, rel=0.011)
    assert ngraph_cell.speedup.value == pytest.approx(2, rel=0.011)
""")

    result = pretended.bare(*TWICE, "--ngraph-protocol=quick", "--ngraph-export=table.csv")

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "PASSED test_suite.py::test_cell[[]local-null[[]fixed_us=1000]-block:conv-latency-batch2]",
            "PASSED test_suite.py::test_cell[[]local-null[[]fixed_us=1000]-block:conv-throughput-batch2]",
        ]
    )
    assert [line for line in result.outlines if line.startswith("block:conv")] == [
        "block:conv",
        "block:conv throughput",
    ]
    with (pretended.path / "table.csv").open(newline="") as file:
        values = {(row["scenario"], row["compiler"], row["metric"]): row["value"] for row in csv.DictReader(file)}
    for scenario, in_flight in (("latency", 1), ("throughput", 4)):
        for milliseconds in (1, 2):
            name = f"null[fixed_us={milliseconds}000]"
            assert float(values[scenario, name, "throughput"]) == pytest.approx(
                in_flight * 2000 / milliseconds, rel=0.011
            )
            assert float(values[scenario, name, "latency"]) == pytest.approx(milliseconds * 1e-3, rel=0.011)


def test_every_claim_about_times_can_be_made_of_calls_in_flight(pretended: Pretended) -> None:
    pretended.write("""
from pytest_ngraph import assert_ase, assert_latency, assert_throughput
@pytest.mark.ngraph(model="block:conv", scenario="throughput")
def test_cell(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.9)
    assert_throughput(ngraph_cell, at_least=3800)
    assert_throughput(ngraph_cell, at_most=4200)
    assert_latency(ngraph_cell, at_most=1.1e-3)
    assert_latency(ngraph_cell, at_least=0.9e-3)
    assert_latency(ngraph_cell, at_most=1.1e-3, percentile=90)
@pytest.mark.ngraph(model="block:conv", batches=[1, 4], scenario="throughput")
def test_batches(ngraph_batches):
    assert_ase(ngraph_batches, batch=4, at_least=0.9)
    assert_bsr(ngraph_batches, batch=4, at_least=0.9)
@pytest.mark.ngraph(model="block:conv", depths=[2], scenario="throughput")
def test_depths(ngraph_depths): assert_retention(ngraph_depths, at_least=0.95)
""")

    result = pretended.bare(*TWICE)

    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["verdicts: 9 pass"])


def test_a_message_shows_throughputs_and_says_which_scenario_they_are_of(pretended: Pretended) -> None:
    pretended.write("""
@pytest.mark.ngraph(model="block:conv", scenario="throughput")
def test_cell(ngraph_cell): assert_speedup(ngraph_cell, at_least=9)
""")

    result = pretended.bare(*TWICE)

    result.assert_outcomes(failed=1)
    for milliseconds in (1, 2):
        label = f"null[fixed_us={milliseconds}000] block:conv batch1 throughput"
        assert f"Throughput of local:{label}: " in result.stdout.str()


def test_percentiles_are_of_single_calls_however_short_they_are(pretended: Pretended) -> None:
    pretended.write("""
from pytest_ngraph import assert_latency
@pytest.mark.ngraph(model="block:conv", scenario="throughput")
def test_within(ngraph_cell): assert_latency(ngraph_cell, at_most=600e-6, percentile=50)
@pytest.mark.ngraph(model="block:conv", scenario="throughput")
def test_beyond(ngraph_cell): assert_latency(ngraph_cell, at_most=200e-6, percentile=50)
""")

    result = pretended.bare("--ngraph-compiler=null[fixed_us=300]", TWICE[1])

    result.assert_outcomes(passed=1, failed=1)
    assert "percentile 50 of the latency of local:null[fixed_us=300] block:conv batch1 throughput" in (
        result.stdout.str()
    )


def test_cells_of_different_scenarios_are_not_compared(pretended: Pretended) -> None:
    pretended.write("""
from pytest_ngraph import assert_faster
def test_it(ngraph):
    one, many = ngraph.measure(model="block:conv", scenario=["latency", "throughput"])
    assert_faster(many, one)
""")

    result = pretended.bare(*TWICE)

    result.assert_outcomes(failed=1)
    assert "its cells are of the scenarios latency and throughput; compare cells of one" in result.stdout.str()


def test_a_compiler_that_has_one_call_at_a_time_says_so(suite: Suite) -> None:
    suite.add_compilers()
    suite.write("""
@pytest.mark.ngraph(model="block:conv", scenario="throughput")
def test_cell(ngraph_cell): assert_speedup(ngraph_cell, at_least=1)
""")

    result = suite.run(compiler="mine")

    result.assert_outcomes(skipped=1)
    assert "block:conv batch1 throughput: scenario throughput (it runs latency)" in result.stdout.str()


# Threads for calls that are synchronous


@contextmanager
def requests(*runs: Callable[[], None]) -> Iterator[ThreadedRequests]:
    made = ThreadedRequests(runs)
    try:
        yield made
    finally:
        made.close()


def test_a_slot_has_a_thread_of_its_own_and_always_the_same() -> None:
    seen: list[list[int]] = [[], []]
    before = threading.active_count()
    runs = [lambda slot=slot: seen[slot].append(threading.get_ident()) for slot in range(2)]
    with requests(*runs) as made:
        for _ in range(3):
            for slot in range(2):
                made.submit(slot)
            assert {made.next_done(), made.next_done()} == {0, 1}
    assert [len(set(each)) for each in seen] == [1, 1]
    assert len({*seen[0], *seen[1], threading.get_ident()}) == 3
    assert threading.active_count() == before


def test_calls_are_given_back_as_they_finish() -> None:
    first = threading.Event()

    def hold() -> None:
        first.wait(60)

    with requests(hold, lambda: None) as made:
        made.submit(0)
        made.submit(1)
        assert made.next_done() == 1
        first.set()
        assert made.next_done() == 0


def test_what_a_call_raises_is_raised_where_it_is_waited_for_and_its_slot_lives_on() -> None:
    answers: list[Exception | None] = [ValueError("no memory"), None]

    def call() -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    with requests(call) as made:
        made.submit(0)
        with pytest.raises(ValueError, match="no memory"):
            made.next_done()
        made.submit(0)
        assert made.next_done() == 0


def test_closing_waits_for_the_calls_in_flight() -> None:
    done: list[int] = []

    def call() -> None:
        time.sleep(0.05)
        done.append(1)

    with requests(call) as made:
        made.submit(0)
    assert done == [1]


SLEEPING = """
import time
from pytest_ngraph import Compiler, Executable, Option
from pytest_ngraph.compilers.toolkit.in_flight import ThreadedRequests


class Sleeping(Executable):
    placement = {"provider": "sleep"}
    in_flight = 3

    def __init__(self, fails):
        self._left = fails
        self._requests = ThreadedRequests([self.run] * 3)

    def bind(self, inputs):
        pass

    def run(self):
        time.sleep(0.01)
        self._left -= 1
        if self._left == 0:
            raise RuntimeError("the device went away")

    def submit(self, slot):
        self._requests.submit(slot)

    def next_done(self):
        return self._requests.next_done()

    def close(self):
        self._requests.close()

    def outputs(self):
        return None


class SleepingCompiler(Compiler):
    name = "sleeping"
    reads = "nothing"
    scenarios = ("latency", "throughput")
    options = (Option("fails", "0", "At which call it fails", kind="int", minimum=0),)

    def compile(self, workload, device, options):
        return Sleeping(options["fails"])


COMPILER = SleepingCompiler()
"""


@pytest.fixture
def sleeping(suite: Suite) -> Suite:
    """A suite with a compiler that sleeps 10 ms a call, three of them in flight."""
    (suite.path / "sleeping.py").write_text(SLEEPING)
    (suite.path / "conftest.py").write_text(
        "def pytest_ngraph_compilers(catalogue): catalogue.add('sleeping', 'sleeping:COMPILER')\n"
    )
    suite.write("""
@pytest.mark.ngraph(model="block:conv", scenario="throughput")
def test_cell(ngraph_cell):
    assert ngraph_cell.placement["in_flight"] == "3"
    # A sleep may take longer and is never shorter.
    assert 0.6 * 3 / 0.01 < ngraph_cell.throughput.value <= 3 / 0.01
    assert 0.01 <= ngraph_cell.latency.value < 0.01 / 0.6
""")
    return suite


@pytest.mark.measures
def test_an_adapter_needs_only_threads_to_have_several_calls_in_flight(sleeping: Suite) -> None:
    sleeping.run(compiler="sleeping").assert_outcomes(passed=1)


def test_a_call_that_fails_in_flight_is_the_outcome_of_its_cell(sleeping: Suite) -> None:
    result = sleeping.run(compiler="sleeping[fails=20]")

    result.assert_outcomes(failed=1)
    assert "local:sleeping[fails=20] block:conv batch1 throughput: RuntimeError: the device went away" in (
        result.stdout.str()
    )


# OpenVINO

OPEN = """
import json, sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pytest_ngraph.compilers.openvino import COMPILER
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.worker.timing import visit
from pytest_ngraph.spec.cells import CompilerSpec, Device, ModelRef, Workload
from pytest_ngraph.workloads.kinds import parse_model


def compiled(options="", *, threads=2, **axes):
    workload = Workload(parse_model("block:conv"), **axes)
    spec = CompilerSpec.parse(f"openvino[{options}]" if options else "openvino")
    loaded = SimpleNamespace(onnx_path=Path(sys.argv[1]), spec=workload, open_axes={}, is_bucket=False)
    return COMPILER.compile(loaded, Device(threads=threads), COMPILER.resolve(spec))


draw = np.random.default_rng(0)
weights = [draw.normal(0, 0.1, (32, 32, 3, 3)).astype(np.float32) for _ in range(3)]
names = ["x", "a", "b", "y"]
nodes = [
    helper.make_node("Conv", [names[k], f"w{k}"], [names[k + 1]], pads=[1, 1, 1, 1]) for k in range(3)
]
image = [1, 32, 32, 32]
graph = helper.make_graph(
    nodes,
    "three convolutions",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, image)],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, image)],
    [numpy_helper.from_array(each, f"w{k}") for k, each in enumerate(weights)],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), sys.argv[1])
x = draw.normal(0, 1, image).astype(np.float32)
"""


def run_openvino(code: str, folder: Path) -> Any:
    """Run code in a process of its own; return what it printed, read as JSON."""
    skip_without("openvino", "onnx", "numpy")
    done = subprocess.run(
        [sys.executable, "-c", OPEN + textwrap.dedent(code), str(folder / "model.onnx")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.real
def test_openvino_keeps_its_streams_busy_and_every_slot_gives_the_same(tmp_path: Path) -> None:
    found = run_openvino(
        """
        one, many = compiled(), compiled("requests=4", scenario="throughput")
        own = compiled(scenario="throughput")
        for each in (one, many, own):
            each.bind({"x": x})
            each.run()
        unread = SimpleNamespace(has_run_delay=False, read=lambda: (0, 0, 0))
        stay = dict(calls=2, seconds=0.3, least_batches=1, discard_seconds=0.05, covariates=unread)
        visits = [visit(each, **stay, scenario="throughput") for each in (many, own)]
        slots = [request.get_output_tensor(0).data for request in many._requests]
        print(json.dumps({
            "hints": [each.placement["hint"] for each in (one, many, compiled("hint=latency", scenario="throughput"))],
            "streams": [each.placement["streams"] for each in (one, own)],
            "in_flight": [one.in_flight, many.in_flight, own.in_flight],
            "calls": [each.calls for each in visits],
            "walls": [list(each.wall_ns) for each in visits],
            "requests": [list(each.request_ns) for each in visits],
            "error": max(float(np.abs(slot - one.outputs()[0]).max()) for slot in slots),
            "size": float(np.abs(one.outputs()[0]).max()),
        }))
        for each in (one, many, own):
            each.close()
        """,
        tmp_path,
    )
    assert found["hints"] == ["LATENCY", "THROUGHPUT", "LATENCY"]
    assert found["in_flight"][:2] == [1, 4]
    assert found["in_flight"][2] >= found["streams"][1] >= found["streams"][0] == 1
    assert found["error"] <= 1e-5 * found["size"]
    for calls, walls, taken, in_flight in zip(
        found["calls"], found["walls"], found["requests"], found["in_flight"][1:], strict=True
    ):
        assert calls == 2 * in_flight
        assert len(taken) == calls * len(walls)
        assert len(taken) / sum(walls) * fmean(taken) == pytest.approx(in_flight, rel=0.1)
        assert median(taken) < 1e8


@pytest.mark.real
def test_openvino_does_not_wait_for_ever_for_a_request_that_fails(tmp_path: Path) -> None:
    said = run_openvino(
        """
        many = compiled("requests=2", scenario="throughput")
        many.bind({"x": x})
        # It calls nobody back, like one that failed.
        many._requests[0].set_callback(lambda slot: 1 / 0, 0)
        many.submit(0)
        try:
            many.next_done()
        except Exception as error:
            print(json.dumps(f"{type(error).__name__}: {error}"))
        """,
        tmp_path,
    )
    assert "division by zero" in said


@pytest.mark.real
def test_openvino_runs_a_precision_or_says_that_this_cpu_has_it_not(tmp_path: Path) -> None:
    found = run_openvino(
        """
        import openvino
        able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        found = {}
        for precision in ("f32", "bf16", "f16", "int8"):
            try:
                each = compiled(precision=precision)
            except NgraphError as error:
                found[precision] = [type(error).__name__, str(error)]
            else:
                found[precision] = [each.placement["precision"], each.placement["runtime_precision"]]
        print(json.dumps([able, found]))
        """,
        tmp_path,
    )
    able, ran = found
    assert ran["f32"][0] == "f32"
    assert "f16" not in ran["f32"][1]
    for precision, capability in (("bf16", "BF16"), ("f16", "FP16")):
        if ran[precision][0] == precision:
            assert f"{precision}:" in ran[precision][1]
        else:
            assert ran[precision][0] == "Unsupported"
            assert f"this CPU has no {precision}, it would compute in " in ran[precision][1]
            assert precision != "bf16" or capability not in able
    # Nothing is quantised in this graph.
    assert ran["int8"][0] == "Unsupported"
    assert "no node of the quantised graph would compute in int8" in ran["int8"][1]


@pytest.mark.real
def test_openvino_says_int8_of_what_it_computes_so_whatever_was_asked_for(tmp_path: Path) -> None:
    """What is quantised in a user's file is computed in int8; an image of bytes makes none of what computes in f32."""
    found = run_openvino(
        """
        QUANTISED = {"s": np.float32(0.02), "z": np.int8(0), "t": np.float32(0.1), "u": np.uint8(0)}
        SCALES = [numpy_helper.from_array(each, name) for name, each in QUANTISED.items()]

        def quantised(k):
            held = numpy_helper.from_array(draw.integers(-127, 127, (32, 32, 3, 3)).astype(np.int8), f"q{k}")
            return [held], [
                helper.make_node("QuantizeLinear", [names[k], "t", "u"], [f"{k}xq"]),
                helper.make_node("DequantizeLinear", [f"{k}xq", "t", "u"], [f"{k}xd"]),
                helper.make_node("DequantizeLinear", [f"q{k}", "s", "z"], [f"{k}wd"]),
                helper.make_node("Conv", [f"{k}xd", f"{k}wd"], [names[k + 1]], pads=[1, 1, 1, 1]),
            ]

        def plain(k):
            return [numpy_helper.from_array(weights[k], f"w{k}")], [nodes[k]]

        def placement(*parts, begin=(), kind=TensorProto.FLOAT, precision="f32"):
            made = [part(k) for k, part in enumerate(parts)]
            ends = [helper.make_tensor_value_info(begin[0].input[0] if begin else "x", kind, image)]
            graph = helper.make_graph(
                [*begin, *(node for _, nodes in made for node in nodes)], "net", ends,
                [helper.make_tensor_value_info(names[len(parts)], TensorProto.FLOAT, image)],
                [*SCALES, *(held for helds, _ in made for held in helds)],
            )
            opsets = [helper.make_opsetid("", 20)]
            onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), sys.argv[1])
            return compiled(precision=precision).placement

        bytes_in = [
            helper.make_node("Transpose", ["image"], ["turned"], perm=[0, 1, 3, 2]),
            helper.make_node("Cast", ["turned"], ["x"], to=TensorProto.FLOAT),
        ]
        found = {
            "plain": placement(plain, plain, plain),
            "quantised": placement(quantised, quantised),
            "in part": placement(quantised, plain),
            "asked for": placement(quantised, plain, precision="int8"),
            "bytes": placement(plain, begin=bytes_in, kind=TensorProto.UINT8),
        }
        print(json.dumps({name: [each["precision"], each["runtime_precision"]] for name, each in found.items()}))
        """,
        tmp_path,
    )
    said = {name: precision for name, (precision, _) in found.items()}
    assert said == {"plain": "f32", "quantised": "int8", "in part": "f32+int8", "asked for": "int8", "bytes": "f32"}
    assert "u8:" in found["bytes"][1]
