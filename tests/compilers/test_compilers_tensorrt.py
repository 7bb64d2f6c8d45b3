"""The TensorRT adapter on a GPU and a binding that pretend to be there: what it asks of them, keeps and refuses."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.compilers import tensorrt as adapter
from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.compilers.toolkit.kept import Kept
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.support import pretended_tensorrt as pretended

GPU_0 = Device("cuda", threads=2, accelerator="cuda:0")
MODEL = Workload(parse_model("block:conv"), 2)
INPUT = np.arange(6, dtype=np.float32).reshape(2, 3)
NETWORK: Mapping[str, Any] = {
    "inputs": {"x": {"shape": [2, 3], "type": "FLOAT"}},
    "outputs": {"twice": {"shape": [2, 3], "type": "FLOAT"}, "thrice": {"shape": [2, 3], "type": "FLOAT"}},
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[pretended.Gpu]:
    """Give a GPU that nothing was done with, and the packages that drive it."""
    monkeypatch.setattr(pretended, "GPU", pretended.Gpu())
    monkeypatch.setitem(sys.modules, "torch", pretended.torch())
    install(monkeypatch)
    yield pretended.GPU
    adapter._log.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, version: str = "10.13.0", *, strong: bool = True) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", pretended.tensorrt(version, strong=strong))
    adapter._log.cache_clear()


class Bench:
    """Compiles networks, with a shelf for what is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def compile(
        self,
        options: str = "",
        *,
        workload: Workload = MODEL,
        kept: bool = True,
        rebuild: bool = False,
        ranges: Mapping[str, Any] | None = None,
        is_bucket: bool = False,
        **network: Any,
    ) -> Executable:
        path = symmetric = self.folder / "model.onnx"
        path.write_text(json.dumps({**NETWORK, **network}), encoding="utf-8")
        if workload.precision == "int8":
            symmetric = self.folder / "symmetric.onnx"
            symmetric.write_text(json.dumps({**NETWORK, **network, "form": "symmetric"}), encoding="utf-8")
        shelf = Kept(self.folder / "compiled", "w", rebuild=rebuild) if kept else None
        loaded: Any = SimpleNamespace(
            spec=workload,
            graph_precision=workload.precision,
            kept=shelf,
            onnx_path=path,
            symmetric_onnx_path=symmetric,
            open_ranges=ranges or {},
            is_bucket=is_bucket,
        )
        values = adapter.COMPILER.resolve(CompilerSpec.parse(f"tensorrt[{options}]" if options else "tensorrt"))
        executable = adapter.COMPILER.compile(loaded, GPU_0, values)
        executable.bind({"x": INPUT})
        return executable

    def plan(self, executable: Executable) -> dict[str, Any]:
        """Return what the builder was asked for, as its plan tells."""
        asked: dict[str, Any] = self.engine(executable)["asked"]
        return asked

    def engine(self, executable: Executable) -> dict[str, Any]:
        """Return the plan: the network that was read, and what was asked for."""
        (file,) = [
            path
            for path in (self.folder / "compiled").glob("*/engine.plan")
            if hashlib.sha256(path.read_bytes()).hexdigest() == executable.placement["plan"]
        ]
        read: dict[str, Any] = json.loads(file.read_bytes())
        return read


@pytest.fixture
def bench(tmp_path: Path, gpu: pretended.Gpu) -> Bench:
    return Bench(tmp_path)


def call(executable: Executable) -> list[np.ndarray[Any, Any]]:
    executable.run()
    executable.synchronize()
    return list(executable.outputs() or ())


def slots_of(executable: Executable) -> list[Any]:
    return list(vars(executable)["_slots"])


def in_precision(precision: str) -> Workload:
    return replace(MODEL, precision=precision)


THROUGHPUT = replace(MODEL, scenario="throughput")


@pytest.mark.parametrize(("precision", "form"), [("f32", None), ("f16", None), ("int8", "symmetric")])
def test_int8_is_built_from_the_file_without_zero_points(bench: Bench, precision: str, form: str | None) -> None:
    """TensorRT's parser refuses zero points, so the file that other compilers read cannot be what it is given."""
    executable = bench.compile(workload=in_precision(precision))
    assert bench.engine(executable).get("form") == form
    assert bench.compile(workload=in_precision(precision)).loaded


OPEN: Mapping[str, Any] = {
    "inputs": {"x": {"shape": [-1, 3], "type": "FLOAT"}},
    "outputs": {"twice": {"shape": [-1, 3], "type": "FLOAT"}},
}
RANGES = {"x": ((1, 3), (2, 3), (5, 3))}


def test_an_engine_for_open_shapes_has_a_profile_and_serves_each_shape_of_it(bench: Bench) -> None:
    executable = bench.compile(workload=replace(MODEL, shapes="dynamic"), ranges=RANGES, **OPEN)

    assert bench.plan(executable)["profiles"] == [{"x": [[1, 3], [2, 3], [5, 3]]}]
    assert executable.placement["input_shapes"] == "x [1, 3] [2, 3] [5, 3]"
    for batch in (2, 5, 1, 2):
        given = np.arange(3 * batch, dtype=np.float32).reshape(batch, 3)
        executable.bind({"x": given})
        np.testing.assert_array_equal(call(executable)[0], given * 2)
    with pytest.raises(CompileFailed, match=r"does not take shape \(6, 3\) of 'x': it is not in its profile"):
        executable.bind({"x": np.zeros((6, 3), np.float32)})
    # Another range is another engine.
    wider = bench.compile(workload=replace(MODEL, shapes="dynamic"), ranges={"x": ((1, 3), (2, 3), (9, 3))}, **OPEN)
    assert not wider.loaded
    assert bench.compile(workload=replace(MODEL, shapes="dynamic"), ranges=RANGES, **OPEN).loaded


def test_a_graph_for_open_shapes_is_captured_again_for_each(bench: Bench) -> None:
    executable = bench.compile("cuda_graph=on", workload=replace(MODEL, shapes="dynamic"), ranges=RANGES, **OPEN)

    for batch in (5, 2):
        given = np.arange(3 * batch, dtype=np.float32).reshape(batch, 3)
        executable.bind({"x": given})
        np.testing.assert_array_equal(call(executable)[0], given * 2)


def test_a_call_computes_on_the_gpus_memory_and_outputs_come_in_the_networks_order(bench: Bench) -> None:
    executable = bench.compile()
    twice, thrice = call(executable)
    np.testing.assert_array_equal(twice, INPUT * 2)
    np.testing.assert_array_equal(thrice, INPUT * 3)
    executable.bind({"x": INPUT + 1})
    np.testing.assert_array_equal(call(executable)[0], INPUT * 2 + 2)
    # What was given out before is nobody else's.
    np.testing.assert_array_equal(twice, INPUT * 2)


def test_a_call_is_enqueued_and_not_waited_for(bench: Bench, gpu: pretended.Gpu) -> None:
    executable = bench.compile()
    executable.run()
    assert [len(stream.queue) for stream in gpu.streams] == [1]
    executable.synchronize()
    assert [len(stream.queue) for stream in gpu.streams] == [0]


def test_placement_says_what_an_engine_is(bench: Bench) -> None:
    executable = bench.compile("level=5,cuda_graph=on")
    placement = dict(executable.placement)
    assert len(str(placement.pop("plan"))) == 64
    assert placement.pop("driver")
    assert placement == {
        "provider": "tensorrt",
        "precision": "f32",
        "tf32": "off",
        "typing": "strong",
        "threads": 2,
        "requests": 1,
        "cuda_graph": "on",
        "layers": 7,
        "timings": "empty",
        "version": "10.13.0",
        "gpu": "Orin",
        "capability": "8.7",
        "level": 5,
    }
    assert bench.plan(executable) == {"strong": True, "flags": [], "level": 5, "threads": 2}
    assert executable.model_bytes == (next((bench.folder / "compiled").glob("*/engine.plan"))).stat().st_size


@pytest.mark.parametrize(("version", "by_default"), [("10.3.0", True), ("11.4.0", True), ("12.0.0", False)])
@pytest.mark.parametrize("precision", adapter.COMPILER.precisions)
def test_precision_is_the_graphs_and_tf32_is_off_unless_it_is_asked_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, precision: str, version: str, by_default: bool
) -> None:
    install(monkeypatch, version)
    monkeypatch.setattr(pretended.IBuilderConfig, "tf32_by_default", by_default)
    executable = bench.compile(workload=in_precision(precision))
    asked = bench.plan(executable)
    assert (asked["strong"], asked["flags"]) == (True, ["TF32"] if precision == "tf32" else [])
    assert executable.placement["tf32"] == ("on" if precision == "tf32" else "off")


@pytest.mark.parametrize(
    ("precision", "flags"), [("f32", []), ("tf32", ["TF32"]), ("f16", ["FP16"]), ("bf16", ["BF16"]), ("int8", ["INT8"])]
)
def test_without_strong_typing_the_builder_is_told_which_type_it_may_use(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, precision: str, flags: list[str]
) -> None:
    install(monkeypatch, "10.3.0", strong=False)
    executable = bench.compile(workload=in_precision(precision))
    asked = bench.plan(executable)
    assert (asked["strong"], asked["flags"], executable.placement["typing"]) == (False, flags, "weak")


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_precision_that_the_gpu_lacks_is_refused(bench: Bench, gpu: pretended.Gpu, precision: str) -> None:
    gpu.name, gpu.capability = "Xavier", (7, 2)
    with pytest.raises(Unsupported, match=rf"precision {precision} needs compute capability 8.0 .* Xavier has 7.2"):
        bench.compile(workload=in_precision(precision))


def test_the_device_is_asked_and_not_the_import(bench: Bench, gpu: pretended.Gpu) -> None:
    gpu.available = False
    with pytest.raises(Unsupported, match=r"torch 2\.13\.0: it finds no GPU"):
        bench.compile()


def test_the_gpu_is_opened_before_anything_is_compiled(gpu: pretended.Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    cuda = sys.modules["torch"].cuda
    for name in ("set_device", "synchronize"):
        monkeypatch.setattr(cuda, name, lambda device, name=name: asked.append((name, device.index)))
    adapter.COMPILER.open(Device("cuda", threads=2, accelerator="cuda:0"))
    assert asked == [("set_device", 0), ("synchronize", 0)]
    with pytest.raises(Unsupported, match=r"torch 2\.13\.0 sees 1 GPUs and no cuda:1"):
        adapter.COMPILER.open(Device("cuda", threads=2, accelerator="cuda:1"))
    gpu.available = False
    with pytest.raises(Unsupported, match=r"torch 2\.13\.0: it finds no GPU"):
        adapter.COMPILER.open(GPU_0)


def test_other_devices_are_refused_before_anything_is_imported() -> None:
    cell = Cell("local", CompilerSpec("tensorrt"), MODEL)
    assert adapter.COMPILER.why_not(cell, Device()) == "device cpu (it runs cuda)"
    assert adapter.COMPILER.why_not(cell, GPU_0) is None


MIX = "mix[batch=1x1+2x1]"


@pytest.mark.parametrize("shapes", [MIX, "mix[sequence=32x1+128x1,buckets=128]"])
def test_a_cuda_graph_of_a_mix_is_refused_for_its_calls_would_time_the_capture(bench: Bench, shapes: str) -> None:
    def why_not(options: str, shapes: str) -> str | None:
        spec = CompilerSpec.parse(f"tensorrt[{options}]" if options else "tensorrt")
        return adapter.COMPILER.why_not(Cell("cuda", spec, replace(MODEL, shapes=shapes)), GPU_0)

    said = why_not("cuda_graph=on", shapes) or ""
    assert said == (
        "cuda_graph=on with a mix of shapes: each of its calls binds its inputs, and the graph is captured again"
    )
    assert [why_not(options, shapes) for options in ("", "cuda_graph=off")] == [None, None]
    assert [why_not("cuda_graph=on", each) for each in ("static", "dynamic")] == [None, None]
    # Of a bucket the adapter is asked with static shapes, and knows only where it is compiled.
    with pytest.raises(Unsupported) as caught:
        bench.compile("cuda_graph=on", is_bucket=True)
    assert str(caught.value) == said
    assert bench.compile(is_bucket=True).placement["cuda_graph"] == "off"


def test_an_engine_is_built_once_and_read_back(bench: Bench, gpu: pretended.Gpu) -> None:
    first, second = bench.compile(), bench.compile()
    assert (gpu.builds, first.loaded, second.loaded) == (1, False, True)
    assert second.placement == first.placement
    np.testing.assert_array_equal(call(second)[0], INPUT * 2)


def test_without_a_shelf_nothing_is_kept(bench: Bench, gpu: pretended.Gpu) -> None:
    executable = bench.compile(kept=False)
    np.testing.assert_array_equal(call(executable)[0], INPUT * 2)
    assert (executable.loaded, executable.placement["timings"]) == (False, "none")
    assert [path.name for path in bench.folder.iterdir()] == ["model.onnx"]


def test_whatever_an_engine_depends_on_makes_another(
    bench: Bench, gpu: pretended.Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.compile()
    bench.compile(workload=in_precision("f16"))
    bench.compile("level=4")
    bench.compile("timings=fresh")
    gpu.name = "Thor"
    bench.compile()
    gpu.capability = (9, 0)
    bench.compile()
    monkeypatch.setattr(adapter, "_driver", lambda: "another")
    bench.compile()
    install(monkeypatch, "11.4.0")
    bench.compile()
    assert gpu.builds == 8
    # Neither how it is called nor how often at once is part of an engine.
    assert bench.compile("cuda_graph=on,requests=3").loaded


def test_kernels_are_timed_once_for_all_engines(bench: Bench, gpu: pretended.Gpu) -> None:
    said = [
        bench.compile(**asked).placement["timings"]
        for asked in (
            {},
            {"workload": in_precision("f16")},
            {"rebuild": True},
            {"options": "timings=fresh"},
            {"options": "level=1"},
        )
    ]
    assert said == ["empty", "used", "used", "none", "empty"]
    assert (gpu.builds, gpu.timed_kernels) == (5, 3)


def test_kernels_that_may_use_tf32_have_a_timing_cache_of_their_own(bench: Bench, gpu: pretended.Gpu) -> None:
    """A kernel that wins with TF32 need not be the one that wins without, under one name in the cache."""
    asked = [("f32", False), ("tf32", False), ("f16", False), ("tf32", True), ("int8", False), ("f32", True)]
    said = [
        bench.compile(workload=in_precision(precision), rebuild=rebuild).placement["timings"]
        for precision, rebuild in asked
    ]
    assert said == ["empty", "empty", "used", "used", "used", "used"]
    assert gpu.timed_kernels == 2
    assert len([*(bench.folder / "compiled").glob("*/timing.cache")]) == 2


@pytest.mark.parametrize("content", [b"another GPU's timings", b"damaged"])
def test_timings_that_do_not_fit_are_replaced(bench: Bench, gpu: pretended.Gpu, content: bytes) -> None:
    bench.compile()
    (file,) = (bench.folder / "compiled").glob("*/timing.cache")
    file.write_bytes(content)
    assert bench.compile(rebuild=True).placement["timings"] == "empty"
    assert file.read_bytes() == b"timings"
    assert [path.name for path in file.parent.iterdir()] == ["timing.cache"]


def test_a_rebuilt_cell_builds_for_itself(bench: Bench, gpu: pretended.Gpu) -> None:
    bench.compile()
    assert not bench.compile(rebuild=True).loaded
    assert gpu.builds == 2
    assert bench.compile().loaded


@pytest.mark.parametrize(
    ("network", "kind", "said"),
    [
        (
            {"parser_errors": [["UNSUPPORTED_NODE_ATTR", "no such\n mode"], ["INVALID_NODE", "and more"]]},
            Unsupported,
            "cannot take it: In node 4 (importer): UNSUPPORTED_NODE_ATTR: no such mode; In node 4",
        ),
        ({"parser_errors": [["INVALID_NODE", "cut short"]]}, CompileFailed, "cannot read it: In node 4 (importer)"),
        ({"builder_errors": ["no kernel", "no kernel", "given up"]}, CompileFailed, "an engine: no kernel; given up"),
        ({"builder_errors": ["Cuda Runtime (out of memory)"]}, MemoryError, "build an engine: Cuda Runtime (out"),
        ({"no_context": "Error Code 2: OutOfMemory"}, MemoryError, "cannot create an execution context: Error Code 2"),
        ({"unreadable": True}, CompileFailed, "cannot read its own plan back: it does not say why"),
        ({"refused_buffers": ["x"]}, CompileFailed, "does not take a buffer for 'x'"),
        ({"inputs": {"x": {"shape": [-1, 3], "type": "FLOAT"}}}, Unsupported, "dynamic shapes"),
        ({"outputs": {"y": {"shape": [-1], "type": "FLOAT"}}}, Unsupported, "shape of output 'y' depends on"),
        ({"inputs": {"x": {"shape": [2, 3], "type": "HALF"}}}, CompileFailed, "is torch.float32, its engine"),
    ],
)
def test_what_fails_says_why(bench: Bench, network: Mapping[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as caught:
        bench.compile(**network)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "this is no error" not in str(caught.value)


def test_a_failure_does_not_repeat_those_of_earlier_cells(bench: Bench) -> None:
    with pytest.raises(CompileFailed):
        bench.compile(builder_errors=["of the first"])
    with pytest.raises(CompileFailed) as caught:
        bench.compile(builder_errors=["of the second"])
    assert "of the first" not in str(caught.value)


def test_a_failed_build_keeps_nothing(bench: Bench, gpu: pretended.Gpu) -> None:
    with pytest.raises(CompileFailed):
        bench.compile(builder_errors=["no kernel"])
    assert not bench.compile().loaded


def test_a_call_that_cannot_be_enqueued_is_no_fast_call(bench: Bench) -> None:
    executable = bench.compile(cannot_run="illegal memory access")
    with pytest.raises(CompileFailed, match="cannot enqueue a call: illegal memory access"):
        executable.run()


def test_shapes_stay_with_the_host(bench: Bench) -> None:
    executable = bench.compile(on_host=["x", "thrice"])
    (slot,) = slots_of(executable)
    assert [tensor.device for tensor in slot._buffers] == ["cpu"]
    assert [tensor.device == "cpu" for tensor in slot._outputs] == [False, True]
    first = call(executable)[1]
    executable.bind({"x": INPUT + 1})
    call(executable)
    np.testing.assert_array_equal(first, INPUT * 3)


def test_a_cuda_graph_replays_what_was_captured_of_the_last_inputs(bench: Bench, gpu: pretended.Gpu) -> None:
    executable = bench.compile("cuda_graph=on")
    gpu.streams[0].done = 0
    np.testing.assert_array_equal(call(executable)[0], INPUT * 2)
    assert gpu.streams[0].done == 1
    executable.bind({"x": INPUT + 1})
    np.testing.assert_array_equal(call(executable)[0], INPUT * 2 + 2)


def test_what_cannot_be_captured_is_refused_only_where_a_cuda_graph_is_asked_for(bench: Bench) -> None:
    call(bench.compile(cannot_be_captured=True))
    with pytest.raises(Unsupported, match=r"cuda_graph=on, but the call cannot be captured: .* cannot enqueue a call"):
        bench.compile("cuda_graph=on", cannot_be_captured=True)


@pytest.mark.parametrize("options", ["", "cuda_graph=on"])
def test_the_gpus_own_times_are_those_of_the_streams_that_compute(
    bench: Bench, gpu: pretended.Gpu, options: str
) -> None:
    executable = bench.compile(options)
    before = call(executable)
    times = executable.device_times() or {}
    assert list(times) == ["device_call_seconds", "copy_in_seconds", "copy_out_seconds"]
    assert times["device_call_seconds"] == pytest.approx(1e-3)
    assert min(times.values()) > 0
    # Nothing is left as it was not.
    assert gpu.current is None
    np.testing.assert_array_equal(call(executable)[0], before[0])


def test_requests_in_flight_have_contexts_streams_and_buffers_of_their_own(bench: Bench, gpu: pretended.Gpu) -> None:
    executable = bench.compile("requests=3", workload=THROUGHPUT)
    assert (executable.in_flight, executable.placement["requests"], len(gpu.alive)) == (3, 3, 3)
    for number in range(3):
        executable.submit(number)
    assert [len(stream.queue) for stream in gpu.streams] == [1, 1, 1]
    assert sorted(executable.next_done() for _ in range(3)) == [0, 1, 2]
    slots = slots_of(executable)
    addresses = {slot._context._addresses[name] for slot in slots for name in ("x", "twice")}
    assert len(addresses) == 6
    for slot in slots:
        np.testing.assert_array_equal(slot.outputs()[0], INPUT * 2)


def test_the_request_that_is_done_first_is_given_first(bench: Bench, gpu: pretended.Gpu) -> None:
    executable = bench.compile(workload=THROUGHPUT)
    assert executable.in_flight == 2
    # Something else keeps the first slot's stream busy.
    gpu.streams[0].queue += [lambda: None] * 5
    executable.submit(0)
    executable.submit(1)
    assert executable.next_done() == 1
    executable.submit(1)
    assert [executable.next_done(), executable.next_done()] == [1, 0]
    with pytest.raises(RuntimeError, match="no call is in flight"):
        executable.next_done()


def test_requests_in_flight_can_be_cuda_graphs(bench: Bench, gpu: pretended.Gpu) -> None:
    executable = bench.compile("cuda_graph=on", workload=THROUGHPUT)
    for slot in range(2):
        executable.submit(slot)
    assert [len(stream.queue) for stream in gpu.streams] == [1, 1]
    assert sorted(executable.next_done() for _ in range(2)) == [0, 1]


def test_closing_gives_everything_back(bench: Bench, gpu: pretended.Gpu) -> None:
    executable = bench.compile("cuda_graph=on,requests=2", workload=THROUGHPUT)
    call(executable)
    emptied: list[int] = []
    sys.modules["torch"].cuda.empty_cache = lambda: emptied.append(len(gpu.alive))
    executable.close()
    # Contexts were gone when the cache was emptied.
    assert emptied == [0]


@pytest.mark.real
def test_the_real_packages_have_what_the_pretended_ones_have() -> None:
    skip_without("torch")
    mine = pretended.torch()
    names = [
        *(name for name in vars(mine) if name not in ("cuda", "version")),
        *(f"cuda.{name}" for name in vars(mine.cuda)),
        # Without CUDA its streams have no ``cuda_stream``.
        "cuda.Stream.synchronize",
        *(f"cuda.Event.{name}" for name in ("record", "query", "synchronize", "elapsed_time")),
        "cuda.CUDAGraph.replay",
        "version.cuda",
    ]
    assert missing("torch", [name for name in names if not name.rpartition(".")[2].startswith("_")]) == []


@pytest.mark.real
def test_the_real_binding_has_what_the_pretended_one_has(tmp_path: Path) -> None:
    package = next((name for name in ("tensorrt", "tensorrt_bindings") if find_spec(name) is not None), None)
    if package is None:
        pytest.skip("TensorRT's binding is not installed; its names alone come with pip install tensorrt-cu12-bindings")
    if package == "tensorrt_bindings":
        pretend_libraries(tmp_path)
    names = [f"{kind}.{name}" for kind, names in pretended.USED.items() for name in names]
    assert missing(package, names, LD_LIBRARY_PATH=str(tmp_path)) == []


def pretend_libraries(folder: Path) -> None:
    """Put libraries into a folder that the binding can be loaded with, and that do nothing."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("TensorRT's libraries are not installed, and there is no C compiler to make some in their place")
    code = folder / "nothing.c"
    code.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in pretended.ENTRY_POINTS))
    for library in ("nvinfer", "nvinfer_plugin", "nvonnxparser"):
        for major in (10, 11):
            file = f"lib{library}.so.{major}"
            subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / file, f"-Wl,-soname,{file}", code], check=True)


def missing(package: str, names: list[str], **environment: str) -> list[str]:
    """Return the names that a package lacks, found out in a process of its own."""
    code = f"""
import functools, json, {package}
def has(path):
    try:
        return functools.reduce(getattr, path.split("."), {package}) or True
    except AttributeError:
        return False
print(json.dumps([name for name in json.loads({json.dumps(json.dumps(names))}) if not has(name)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_the_pretended_binding_has_what_the_adapter_is_said_to_use() -> None:
    left_out = {"DataType.BF16", "DataType.INT8", "DataType.UINT8", "DataType.BOOL"}
    lacking = {
        f"{kind}.{name}"
        for kind, names in pretended.USED.items()
        for name in names
        if not hasattr(getattr(pretended, kind), name)
    }
    assert lacking == left_out
