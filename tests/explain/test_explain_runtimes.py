"""The profiles of real runtimes, each in a worker of its own, and of TensorRT's calls where there is none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.local import LocalBench, job, local_device
from pytest_ngraph.explain.compare import compare
from pytest_ngraph.explain.explanation import Explanation
from pytest_ngraph.explain.runtimes.onnxruntime import nodes_of
from pytest_ngraph.options.settings import resolve
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.support import workers

NETS = """
import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()

    def forward(self, x):
        return self.act(self.norm(self.conv(x)) + x)


def net():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), Block(), torch.nn.Flatten(), torch.nn.Linear(8 * 256, 10)
    )


net.example_inputs = lambda batch: torch.randn(batch, 3, 16, 16)


def small():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))


small.example_inputs = lambda batch: torch.randn(batch, 8)


class Sparing(torch.nn.Module):
    # The tracer knows no None among outputs, so that this is traced within another module.
    def __init__(self):
        super().__init__()
        self.module = small()

    def forward(self, x):
        return self.module(x), None


def sparing():
    return Sparing()


sparing.example_inputs = small.example_inputs
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBench]:
    here = tmp_path_factory.mktemp("explained")
    (here / "nets.py").write_text(NETS)
    settings = resolve({}, {}, rootdir=here, invocation_dir=here, environ=os.environ)
    settings = replace(settings, store=here / "results.sqlite", threads=1)
    catalogue = Catalogue()
    bench = LocalBench(job(settings, catalogue, local_device(settings), []), catalogue, PROTOCOLS["gate"], 0)
    with workers.forking(measures=True):
        yield bench
        bench.close()


def explained(bench: LocalBench, compiler: str, precision: str = "f32", name: str = "net", **axes: Any) -> Explanation:
    here = bench.job.artifacts.parent
    model = parse_model(f"nets.py:{name}", (here,))
    workload = Workload(model, **{"batch": 1, "precision": precision, **axes})
    cell = Cell("local", CompilerSpec.parse(compiler), workload)
    (built,) = bench.build([cell], lambda doing, done, total: None)
    assert built["ok"], built
    answer = bench.explain(cell, bench.artifacts([cell])[cell])
    assert answer["ok"], answer["reason"]
    return Explanation.from_json(answer["explanation"])


def kinds(found: Explanation) -> list[str]:
    return [node.added or node.kind for node in found.nodes]


@pytest.mark.real
def test_of_a_mix_it_is_said_at_which_batch_calls_were_profiled(bench: LocalBench) -> None:
    skip_without("torch", "onnxscript", "onnxruntime")
    found = explained(bench, "onnxruntime", name="small", batch=4, shapes="mix[batch=1x1+4x1]")
    assert "of calls at batch 4, the largest of its mix[batch=1x1+4x1]" in found.notes


@pytest.mark.real
def test_onnx_runtime_says_what_int8_adds(bench: LocalBench) -> None:
    skip_without("torch", "onnxscript", "onnxruntime")
    f32, int8 = explained(bench, "onnxruntime"), explained(bench, "onnxruntime", "int8")

    assert [kind for kind in kinds(f32) if kind in ("Conv", "MatMul")] == ["Conv", "Conv", "MatMul"]
    assert "Q/DQ" in kinds(int8)
    for found in (f32, int8):
        assert not any(node.is_stranger for node in found.nodes)
        assert all(node.provider == "CPUExecutionProvider" for node in found.nodes)
        assert 0 < found.nodes_seconds <= found.profiled_seconds
    assert {node.precision for node in f32.nodes} == {"f32"}
    assert "u8" in {node.precision for node in int8.nodes}
    joined = compare(f32, int8, ("f32", "int8"))
    assert joined.joined_by == "the names of the ONNX nodes"
    both = [row for row in joined.rows if row.first and row.second]
    assert {row.kind for row in both} >= {"Conv", "MatMul"}
    assert any(row.what == "added" and row.kind == "Q/DQ" for row in joined.rows)


@pytest.mark.real
def test_eager_and_openvino_are_joined_by_the_layers_of_the_module(bench: LocalBench) -> None:
    skip_without("torch", "onnxscript", "openvino")
    eager, openvino = explained(bench, "identity"), explained(bench, "openvino")

    assert "2.conv" in {layer for node in eager.nodes for layer in node.layers}
    assert "2:add" in {layer for node in eager.nodes for layer in node.layers}
    assert any(note == "profiled in another compiled model, with PERF_COUNT on" for note in openvino.notes)
    assert not any(node.is_stranger for node in openvino.nodes)
    joined = compare(eager, openvino, ("identity", "openvino"))
    assert joined.joined_by == "the module's layers"
    block = next(row for row in joined.rows if any("2.conv" in node.layers for node in row.first))
    # Convolution, normalisation, sum and activation, which OpenVINO runs as one.
    assert len(block.first) == 4, [node.name for node in block.first]
    assert {"2.conv", "2.norm", "2:add", "2.act"} == {layer for node in block.first for layer in node.layers}
    assert sum(not node.added for node in block.second) == 1


@pytest.mark.real
def test_torchscript_knows_in_which_layers_it_was_traced(bench: LocalBench) -> None:
    skip_without("torch")
    found = explained(bench, "torchscript")

    assert found.names == "module"
    assert {"0", "1", "2.conv", "2:add", "2.act", "4"} <= {layer for node in found.nodes for layer in node.layers}


@pytest.mark.real
def test_torchscript_names_the_layers_of_a_model_that_was_traced_within_another_as_eager_does(
    bench: LocalBench,
) -> None:
    skip_without("torch")
    eager, traced = (
        {layer for node in explained(bench, compiler, name="sparing").nodes for layer in node.layers}
        for compiler in ("identity", "torchscript")
    )
    assert traced == eager == {"module.0", "module.1", "module.2"}


@pytest.mark.real
def test_inductor_names_kernels_and_no_layers(bench: LocalBench) -> None:
    skip_without("torch")
    found = explained(bench, "inductor", name="small")

    assert found.names == ""
    assert any("fused" in node.kernel for node in found.nodes)
    assert any("cpp.enable_kernel_profile" in note for note in found.notes)


@pytest.mark.real
def test_tvm_says_what_its_virtual_machine_calls(bench: LocalBench) -> None:
    skip_without("torch", "onnxscript", "tvm")
    found = explained(bench, "tvm")

    assert kinds(found)[:2] == ["Conv", "Conv"]
    assert found.nodes[-1].name == "vm.builtin"
    assert all(node.seconds is not None for node in found.nodes)


@pytest.mark.real
def test_an_adapter_that_offers_nothing_is_unsupported_and_says_so(bench: LocalBench) -> None:
    cell = Cell("local", CompilerSpec.parse("null[fixed_us=100]"), Workload(parse_model("block:conv", ()), 1))
    answer = bench.explain(cell, "")

    assert (answer["ok"], answer["outcome"]) == (False, "unsupported")
    assert answer["reason"] == "null: its adapter has no explain(), so nothing says what ran inside a call"


def ran_at(name: str, begins: int, lasts: int, thread: int = 1) -> dict[str, Any]:
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": begins, "dur": lasts, "tid": thread}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # As ONNX Runtime 1.31 writes an If: its body is first, and within its time.
        ([("first", 66, 320), ("second", 391, 313), ("if", 55, 991), ("last", 1050, 40)], ["if", "last"]),
        ([("inner", 62, 10), ("scan", 60, 20), ("inner", 92, 10), ("scan", 90, 20), ("loop", 55, 80)], ["loop"]),
        # Nodes that take less than a microsecond, or end as the next one begins, are not within it.
        ([("one", 55, 0), ("two", 55, 5), ("three", 60, 0), ("four", 60, 3)], ["one", "two", "three", "four"]),
        ([("one", 55, 100), ("two", 60, 10, 2)], ["one", "two"]),
    ],
)
def test_the_body_of_a_node_is_counted_once(events: list[tuple[Any, ...]], expected: list[str]) -> None:
    run = {"cat": "Session", "name": "model_run", "ts": 50, "dur": 1100}

    nodes, seconds = nodes_of([*(ran_at(*each) for each in events), run], [1.1e-3])

    assert [node.name for node in nodes] == expected
    assert seconds == pytest.approx(1.1e-3)
    assert sum(node.seconds for node in nodes if isinstance(node.seconds, float)) <= 1.1e-3


@pytest.mark.real
def test_an_if_of_onnx_runtime_has_the_time_of_its_branch(tmp_path: Path) -> None:
    skip_without("onnx", "onnxruntime", "numpy")
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper

    def value(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64])

    def branch(name: str, operators: tuple[str, ...]) -> Any:
        made = ["x", *(f"{name}{number}" for number in range(len(operators)))]
        nodes = [
            helper.make_node(operator, [each, each] if operator == "MatMul" else [each], [after], name=after)
            for operator, each, after in zip(operators, made, made[1:], strict=False)
        ]
        return helper.make_graph(nodes, name, [], [value(made[-1])])

    nodes = [
        helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branch("then", ("MatMul", "Tanh", "MatMul")),
                         else_branch=branch("else", ("Tanh",))),
        helper.make_node("Erf", ["y"], ["z"], name="last"),
    ]  # fmt: skip
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "graph", [condition, value("x")], [value("z")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    settings = ort.SessionOptions()
    settings.enable_profiling, settings.profile_file_prefix = True, str(tmp_path / "profile")
    session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    for _ in range(5):
        session.run(None, {"c": np.array(True), "x": np.full((64, 64), 0.01, "f4")})

    found, _ = nodes_of(json.loads(Path(session.end_profiling()).read_text()), [1.0] * 5)

    assert [(node.name, node.operator) for node in found] == [("choice", "If"), ("last", "Erf")]


def test_tensorrt_is_asked_as_its_documentation_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a fake of its calls: nothing of it was verified on hardware."""
    fake: Any = ModuleType("tensorrt")

    class IProfiler:
        def __init__(self) -> None:
            self.is_initialised = True

    fake.IProfiler = IProfiler
    fake.LayerInformationFormat = SimpleNamespace(JSON="json")
    monkeypatch.setitem(__import__("sys").modules, "tensorrt", fake)
    from pytest_ngraph.explain.runtimes.tensorrt import profile

    context = SimpleNamespace(profiler=None)
    detailed = {"Name": "fc", "LayerType": "gemm", "TacticName": "sm80_gemm", "Metadata": "[ONNX Layer: n_fc]"}
    text = json.dumps({"Layers": ["n_conv + n_relu", detailed]})
    times = {"Reformatting CopyNode for Input Tensor 0 to n_conv": 0.1, "n_conv + n_relu": 0.5, "fc": 0.2}
    inspector = SimpleNamespace(get_engine_information=lambda format: text)
    engine = SimpleNamespace(create_engine_inspector=lambda: inspector)

    def call() -> None:
        if context.profiler is not None:
            assert context.profiler.is_initialised
            for name, ms in times.items():
                context.profiler.report_layer_time(name, ms)

    found = profile(engine, context, call, 5)

    assert [node.contains for node in found.nodes][1:] == [("n_conv", "n_relu"), ("n_fc",)]
    assert [node.seconds for node in found.nodes] == pytest.approx([1e-4, 5e-4, 2e-4])
    assert found.nodes[0].operator == "Reformat"
    assert found.nodes[2].kernel == "sm80_gemm"
    assert "unverified on hardware" in found.notes
