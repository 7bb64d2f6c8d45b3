"""ONNX Runtime's execution providers: which one a cell gets, which nodes it took, and several calls in flight."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from pytest_ngraph.compilers.onnxruntime import adapter, providers
from pytest_ngraph.compilers.toolkit.kept import Kept
from pytest_ngraph.errors import SpecError, Unsupported
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.support.fake_nvml import Card
from tests.support.fake_nvml import installed as installed_nvml

CPU, GPU_1 = Device(threads=2), Device("cuda:1", threads=2, accelerator="cuda:1")


def why_not(text: str, device: Device = CPU, precision: str = "f32") -> str | None:
    workload = Workload(parse_model("block:conv"), precision=precision)
    return adapter.COMPILER.why_not(Cell(device.name, CompilerSpec.parse(text), workload), device)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Give a function that pretends that a package of ONNX Runtime with these providers is installed."""

    def install(*keys: str) -> None:
        (tmp_path / "capi").mkdir(exist_ok=True)
        for key in keys:
            (tmp_path / "capi" / f"libonnxruntime_providers_{key}.so").touch()
        monkeypatch.setattr(providers, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py")))

    return install


def test_a_cell_runs_on_one_provider() -> None:
    with pytest.raises(SpecError) as caught:
        adapter.COMPILER.resolve(CompilerSpec.parse("onnxruntime[tensorrt,cuda]"))
    assert str(caught.value) == "compiler 'onnxruntime[cuda,tensorrt]': takes one provider, not cuda and tensorrt"


@pytest.mark.parametrize(
    ("text", "device", "said"),
    [
        ("onnxruntime", CPU, None),
        ("onnxruntime", GPU_1, None),
        ("onnxruntime[cuda]", GPU_1, None),
        ("onnxruntime[tensorrt]", GPU_1, None),
        ("onnxruntime[openvino]", CPU, None),
        ("onnxruntime[cuda]", CPU, "provider cuda on device cpu (it runs on cuda)"),
        ("onnxruntime[tensorrt]", CPU, "provider tensorrt on device cpu (it runs on cuda)"),
        ("onnxruntime[openvino]", GPU_1, "provider openvino on device cuda:1 (it runs on cpu)"),
    ],
)
def test_a_provider_runs_on_its_kind_of_device(
    installed: Callable[..., None], text: str, device: Device, said: str | None
) -> None:
    installed("cuda", "tensorrt", "openvino")
    assert why_not(text, device) == said


@pytest.mark.parametrize(
    ("text", "device", "runs"),
    [
        ("onnxruntime", CPU, {"f32", "int8"}),
        ("onnxruntime[openvino]", CPU, {"f32", "int8"}),
        ("onnxruntime", GPU_1, {"f32", "tf32", "f16", "bf16"}),
        ("onnxruntime[tensorrt]", GPU_1, {"f32", "f16", "bf16", "int8"}),
    ],
)
def test_a_provider_runs_the_precisions_that_it_computes_in(
    installed: Callable[..., None], text: str, device: Device, runs: set[str]
) -> None:
    installed("cuda", "tensorrt", "openvino")
    asked = adapter.COMPILER.precisions
    assert {precision for precision in asked if why_not(text, device, precision) is None} == runs
    said = why_not("onnxruntime", CPU, "f16")
    assert said == "precision f16 (its provider cpu runs f32, int8)"


def test_a_provider_that_is_not_installed_says_how_to_get_it(installed: Callable[..., None]) -> None:
    installed("cuda", "shared")
    assert why_not("onnxruntime", GPU_1) is None
    assert why_not("onnxruntime", CPU) is None
    said = why_not("onnxruntime[openvino]") or ""
    assert said.startswith("the installed ONNX Runtime has no OpenVINOExecutionProvider (pip uninstall onnxruntime, ")
    assert "pip install onnxruntime-openvino" in said


CUDA = Device("cuda", threads=2, accelerator="cuda:0")
OLD = Card(name="Tesla T4", capability=(7, 5))


class Opened(Exception):
    """The pretended runtime was asked for a session."""


def compile_on_cuda(monkeypatch: pytest.MonkeyPatch, precision: str, key: str = "cuda") -> None:
    """Compile on a runtime that has the provider. Raise Opened where it comes to opening a session."""

    def opened(*_: Any, **__: Any) -> None:
        raise Opened

    runtime = ModuleType("onnxruntime")
    runtime.__dict__.update(
        get_available_providers=lambda: [providers.PROVIDERS[key].name],
        GraphOptimizationLevel=SimpleNamespace(ORT_ENABLE_ALL=SimpleNamespace(name="ORT_ENABLE_ALL")),
        set_default_logger_severity=opened,
        __version__="1.31.1",
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    workload: Any = SimpleNamespace(spec=Workload(parse_model("block:conv"), 2, precision=precision), kept=None)
    options = adapter.COMPILER.resolve(CompilerSpec.parse(f"onnxruntime[{key}]"))
    adapter.COMPILER.open(CUDA)
    adapter.COMPILER.compile(workload, CUDA, options)


@pytest.mark.parametrize(("key", "precision"), [("cuda", "tf32"), ("cuda", "bf16"), ("tensorrt", "bf16")])
def test_a_precision_that_the_gpu_lacks_is_refused_and_never_said_to_be_on(
    monkeypatch: pytest.MonkeyPatch, key: str, precision: str
) -> None:
    with installed_nvml(monkeypatch, OLD), pytest.raises(Unsupported) as caught:
        compile_on_cuda(monkeypatch, precision, key)
    said = f"precision {precision} needs compute capability 8.0 or newer, and Tesla T4 has 7.5"
    assert str(caught.value) == said
    with installed_nvml(monkeypatch, Card()), pytest.raises(Opened):
        compile_on_cuda(monkeypatch, precision, key)
    silent = Card(refused={"nvmlDeviceGetCudaComputeCapability"})
    with installed_nvml(monkeypatch, silent), pytest.raises(Unsupported) as caught:
        compile_on_cuda(monkeypatch, precision, key)
    assert str(caught.value) == f"precision {precision}: NVML does not say whether this GPU has it (Not Supported)"


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_what_every_gpu_computes_in_needs_nobody_to_ask(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    with installed_nvml(monkeypatch, OLD), pytest.raises(Opened):
        compile_on_cuda(monkeypatch, precision)
    with installed_nvml(monkeypatch, driver=False):
        with pytest.raises(Opened):
            compile_on_cuda(monkeypatch, precision)
        with pytest.raises(SpecError, match="NVML finds no GPUs here"):
            compile_on_cuda(monkeypatch, "tf32")


def test_everything_that_precision_hangs_on_is_explicit() -> None:
    def settings(key: str, precision: str, device: Device = GPU_1) -> dict[str, str]:
        return providers.settings_of(key, device, precision, 4, 2)

    assert settings("cuda", "f32") == {"device_id": "1", "use_tf32": "0"}
    assert settings("cuda", "f16")["use_tf32"] == "0"
    assert settings("cuda", "tf32")["use_tf32"] == "1"
    assert settings("tensorrt", "f32") == {"device_id": "1"}
    assert settings("openvino", "f32", CPU) == {
        "device_type": "CPU",
        "precision": "FP32",
        "num_of_threads": "4",
        "num_streams": "2",
    }


def test_the_tensorrt_provider_never_uses_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    runtime = ModuleType("onnxruntime")
    runtime.__dict__["preload_dlls"] = lambda: loaded.append("cuda")
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    providers.make_ready.cache_clear()
    for key in ("cpu", "openvino", "cuda"):
        providers.make_ready(key)
    assert (os.environ["NVIDIA_TF32_OVERRIDE"], loaded) == ("1", ["cuda"])
    providers.make_ready("tensorrt")
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"
    providers.make_ready.cache_clear()


def test_shares_and_what_is_left_over_are_told_by_provider_and_operator() -> None:
    nodes = Counter({("Cpu", "Shape"): 2, ("Cuda", "Conv"): 40, ("Cuda", "Relu"): 1, ("Cpu", "Gather"): 1})
    assert list(providers.tally(nodes, "Cuda").items()) == [("Cuda", 41), ("Cpu", 3)]
    assert providers.left_over(nodes, "Cuda") == "Cuda takes 41 of the 44 nodes, not Gather, Shape"
    assert providers.tally(nodes, "Other")["Other"] == 0


class Recorded:
    """A session of the pretended runtime and its bindings: they write down what is asked of them."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.bindings = 0

    def get_inputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="x")]

    def get_outputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="y")]

    def io_binding(self) -> SimpleNamespace:
        number = self.bindings
        self.bindings += 1

        def record(what: str) -> Callable[..., None]:
            return lambda *arguments: self.asked.append((what, number, *arguments))

        return SimpleNamespace(
            bind_ortvalue_input=record("input"),
            bind_output=record("output"),
            synchronize_outputs=record("synchronize"),
            copy_outputs_to_cpu=record("copy"),
            number=number,
        )

    def run_with_iobinding(self, binding: SimpleNamespace) -> None:
        self.asked.append(("run", binding.number))


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Give the places of the values that are made on a pretended runtime."""
    made: list[tuple[Any, ...]] = []

    def ortvalue_from_numpy(array: Any, device_type: str = "cpu", device_id: int = 0) -> str:
        made.append((id(array), device_type, device_id))
        return f"value {len(made)}"

    runtime = ModuleType("onnxruntime")
    runtime.__dict__.update(OrtValue=SimpleNamespace(ortvalue_from_numpy=ortvalue_from_numpy), __version__="1.31.1")
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    return made


def test_on_a_gpu_inputs_and_outputs_stay_there_and_are_waited_for(pretended: list[tuple[Any, ...]]) -> None:
    session, array = Recorded(), np.zeros(3)
    executable = adapter.OnnxRuntimeExecutable(session, {}, ("cuda", 1))
    executable.bind({"x": array})
    executable.run()
    executable.synchronize()
    assert pretended == [(id(array), "cuda", 1)]
    assert session.asked == [
        ("input", 0, "x", "value 1"), ("output", 0, "y", "cuda", 1), ("run", 0), ("synchronize", 0),
    ]  # fmt: skip


def test_on_a_gpu_copies_are_timed_and_leave_what_is_bound(pretended: list[tuple[Any, ...]]) -> None:
    session, array = Recorded(), np.zeros(3)
    executable = adapter.OnnxRuntimeExecutable(session, {}, ("cuda", 1))
    executable.bind({"x": array})
    bound = list(session.asked)
    times = executable.device_times() or {}
    assert sorted(times) == ["copy_in_seconds", "copy_out_seconds"]
    assert set(pretended) == {(id(array), "cuda", 1)}
    assert [each for each in session.asked if each[0] != "copy"] == bound
    on_cpu = adapter.OnnxRuntimeExecutable(session, {}, ("cpu", 0))
    assert on_cpu.device_times() is None


def test_on_the_cpu_nothing_is_copied_and_nothing_waited_for(pretended: list[tuple[Any, ...]]) -> None:
    session, array = Recorded(), np.zeros(3)
    executable = adapter.OnnxRuntimeExecutable(session, {}, ("cpu", 0))
    executable.bind({"x": array})
    executable.run()
    executable.synchronize()
    assert pretended == [(id(array), "cpu", 0)]
    assert session.asked[-1] == ("run", 0)


def test_every_request_on_a_gpu_has_its_own_binding_and_waits_for_its_own_outputs(
    pretended: list[tuple[Any, ...]],
) -> None:
    session, array = Recorded(), np.zeros(3)
    executable = adapter.OnnxRuntimeExecutable(session, {}, ("cuda", 0), requests=2)
    executable.bind({"x": array})
    assert executable.in_flight == 2
    assert len({number for number, *_ in pretended}) == 2
    del session.asked[:]
    executable.submit(1)
    assert executable.next_done() == 1
    assert session.asked == [("run", 1), ("synchronize", 1)]
    executable.close()


def setup_of(strict: bool = True) -> adapter._Setup:
    workload: Any = SimpleNamespace(
        onnx_path=Path("model.onnx"),
        symmetric_onnx_path=Path("symmetric.onnx"),
        open_axes={},
        is_bucket=False,
        spec=Workload(parse_model("block:conv"), 2),
    )
    wanted, cpu = ("TensorrtExecutionProvider", {"device_id": "0"}), ("CPUExecutionProvider", dict[str, str]())
    return adapter._Setup(workload, SimpleNamespace(name="ORT_ENABLE_ALL"), 1, (wanted, cpu), strict)


def test_tensorrts_engines_are_built_once_and_a_stale_one_is_not_called_loaded(
    pretended: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, opened = ["sm87.engine"], list[Mapping[str, str]]()

    def pretend_to_open(setup: adapter._Setup) -> str:
        settings = setup.chain[0][1]
        assert (settings["trt_engine_cache_enable"], settings["trt_timing_cache_enable"]) == ("1", "1")
        (Path(settings["trt_engine_cache_path"]) / name[0]).write_text("engine")
        opened.append(settings)
        return f"session {len(opened)}"

    monkeypatch.setattr(adapter._Setup, "open", pretend_to_open)
    kept = Kept(tmp_path, "w")
    assert setup_of().open_kept(kept) == ("session 1", False)
    assert setup_of().open_kept(kept) == ("session 2", True)
    # As after TensorRT has become another: its provider looks for another file and builds it.
    name[0] = "sm90.engine"
    assert setup_of().open_kept(kept) == ("session 3", False)
    assert setup_of(strict=False).open_kept(kept) == ("session 4", False)
    assert setup_of().open_kept(Kept(tmp_path, "w", rebuild=True)) == ("session 5", False)
    assert len({settings["trt_timing_cache_path"] for settings in opened[:3]}) == 1


@pytest.mark.parametrize(("chosen", "file"), [("tensorrt", "symmetric.onnx"), ("cpu", "model.onnx")])
def test_tensorrt_is_given_the_file_without_zero_points(
    monkeypatch: pytest.MonkeyPatch, chosen: str, file: str
) -> None:
    skip_without("onnxruntime")
    import onnxruntime

    class Session:
        opened: ClassVar[list[str]] = []

        def __init__(self, path: str, settings: object, *, providers: Sequence[Any], enable_fallback: int) -> None:
            self.opened.append(path)
            self.providers = [name for name, _ in providers]

        def get_providers(self) -> list[str]:
            return self.providers

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    wanted = providers.PROVIDERS[chosen].name
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    replace(setup_of(), level=level, chain=((wanted, {}),), strict=False).open()
    assert Session.opened == [file]


@pytest.mark.parametrize(
    ("takes_turns", "decode", "stops"), [(False, None, False), (True, None, True), (False, 4, True)]
)
def test_threads_of_sessions_that_take_turns_stop_when_a_call_ends(
    monkeypatch: pytest.MonkeyPatch, takes_turns: bool, decode: int | None, stops: bool
) -> None:
    """Otherwise they take the CPUs from the session that is called next: 43 % of a call of two of them was waiting."""
    skip_without("onnxruntime")
    import onnxruntime

    written: list[str] = []

    def session(path: str, settings: Any, **_: object) -> Any:
        written.append(settings.get_session_config_entry("session.force_spinning_stop"))
        return SimpleNamespace(get_providers=lambda: ["CPUExecutionProvider"])

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    made = setup_of()
    made.workload.is_bucket, made.workload.spec = takes_turns, replace(made.workload.spec, decode=decode)
    opened = replace(
        made,
        level=onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
        chain=(("CPUExecutionProvider", {}),),
        strict=False,
    )
    if stops:
        opened.open()
        assert written == ["1"]
    else:
        with pytest.raises(RuntimeError, match="force_spinning_stop"):
            opened.open()


# ------------------------------------------------------------------------------------------------- the real runtime

PRELUDE = """
import json, sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from pytest_ngraph.compilers.onnxruntime import adapter
from pytest_ngraph.compilers.onnxruntime import providers
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.spec.cells import CompilerSpec, Device, ModelRef, Workload
from pytest_ngraph.workloads.kinds import parse_model

folder = Path(sys.argv[1])
random = np.random.default_rng(0)
WEIGHTS = numpy_helper.from_array(random.standard_normal((4, 3, 3, 3), dtype=np.float32), "w")
INPUTS = {"x": random.standard_normal((2, 3, 8, 8), dtype=np.float32)}
nodes = [
    helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c"], ["r"]),
    helper.make_node("Softmax", ["r"], ["y"]),
]
value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
graph = helper.make_graph(nodes, "graph", [value("x", [2, 3, 8, 8])], [value("y", [2, 4, 8, 8])], [WEIGHTS])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "model.onnx")
MODEL = Workload(parse_model("block:conv"), 2)

def compile(text, threads=2, scenario="latency", device=None):
    workload = SimpleNamespace(
        onnx_path=folder / "model.onnx",
        open_axes={},
        is_bucket=False,
        spec=replace(MODEL, scenario=scenario),
        graph_precision="f32",
        kept=None,
        inputs=INPUTS,
    )
    executable = adapter.COMPILER.compile(
        workload, device or Device(threads=threads), adapter.COMPILER.resolve(CompilerSpec.parse(text))
    )
    executable.bind(INPUTS)
    return executable

def refused(text, device=None):
    try:
        compile(text, device=device)
    except NgraphError as error:
        return [type(error).__name__, str(error)]
"""


def run(code: str, folder: Path) -> Any:
    """Run code after the prelude in a process of its own; return what it printed, read as JSON."""
    skip_without("onnx", "onnxruntime")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + textwrap.dedent(code), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # The runtime itself has nothing to say there.
    return json.loads(done.stdout)


@pytest.mark.real
def test_the_cpu_takes_all_nodes_and_its_threads_are_those_asked_for(tmp_path: Path) -> None:
    placement, tells = run(
        """
        executable = compile("onnxruntime")
        print(json.dumps([dict(executable.placement), providers.nodes_of(executable._session) is not None]))
        """,
        tmp_path,
    )
    assert placement["provider"] == "CPUExecutionProvider"
    # Before 1.24 nobody says how many; that it is all is known without.
    assert placement["nodes"] == ("CPUExecutionProvider:3" if tells else "CPUExecutionProvider:all")
    assert (placement["threads"], placement["precision"]) == (2, "f32")
    assert not {"requests", "tf32"} & set(placement)


@pytest.mark.real
def test_a_file_in_f16_is_computed_in_f32_on_an_x86_cpu_and_the_placement_says_so(tmp_path: Path) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("other CPUs have arithmetic of 16 bits")
    placement, ran, refused, precision = run(
        """
        def write(kind, content):
            weights = helper.make_tensor("w", kind, [8, 4], content, raw=True)
            ends = [helper.make_tensor_value_info("x", kind, [2, 8]), helper.make_tensor_value_info("y", kind, [2, 4])]
            nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
            graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], [weights])
            opsets = [helper.make_opsetid("", 20)]
            onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "short.onnx")

        def load(precision):
            return SimpleNamespace(
                onnx_path=folder / "short.onnx", open_axes={}, is_bucket=False, spec=MODEL, graph_precision=precision,
                kept=None,
            )

        def compile_short(precision):
            options = adapter.COMPILER.resolve(CompilerSpec("onnxruntime"))
            return adapter.COMPILER.compile(load(precision), Device(threads=1), options)

        write(TensorProto.FLOAT16, random.standard_normal((8, 4)).astype(np.float16).tobytes())
        executable = compile_short("f16")

        def profile(settings):
            settings.enable_profiling = True
            settings.profile_file_prefix = str(folder / "profile")

        session = executable.setup.open(profile)
        session.run(None, {"x": np.zeros((2, 8), np.float16)})
        events = json.loads(Path(session.end_profiling()).read_text())
        ran = [
            [event["args"]["op_name"], *event["args"]["input_type_shape"][0]]
            for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
        ]

        write(TensorProto.BFLOAT16, bytes(64))
        try:
            compile_short("bf16")
        except NgraphError as error:
            refused = [type(error).__name__, str(error)]

        from pytest_ngraph.workloads.onnx_files.tensors import precision_of
        print(json.dumps([dict(executable.placement), ran, refused, precision_of(onnx.load(folder / "short.onnx"))]))
        """,
        tmp_path,
    )
    assert (placement["precision"], placement["written_in"]) == ("f32", "f16")
    assert ran == [["Cast", "float16"], ["MatMul", "float"], ["Cast", "float"]]
    assert (refused[0], precision) == ("Unsupported", "bf16")
    assert "NOT_IMPLEMENTED" in refused[1]


def test_only_what_a_provider_is_known_to_cast_is_said_to_be_cast(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = "x86_64"
    monkeypatch.setattr(platform, "machine", lambda: machine)
    for key, written in (("cpu", "f32"), ("cpu", "int8"), ("cpu", "f64"), ("cuda", "f16"), ("tensorrt", "bf16")):
        assert providers.computes(key, written) == {"precision": written}
    for key in ("tensorrt", "openvino"):
        assert providers.computes(key, "int8") == {"precision": "int8"}
    for key, written in (("cpu", "f16"), ("cpu", "bf16"), ("openvino", "f16"), ("openvino", "bf16"), ("cuda", "int8")):
        assert providers.computes(key, written) == {"precision": "f32", "written_in": written}
    machine = "aarch64"
    assert providers.computes("cpu", "f16") == {"precision": "f16"}
    assert providers.computes("openvino", "f16") == {"precision": "f32", "written_in": "f16"}


@pytest.mark.real
def test_requests_in_flight_share_a_session_and_its_threads(tmp_path: Path) -> None:
    answer = run(
        """
        def look(text, threads):
            executable = compile(text, threads, "throughput")
            for slot in range(executable.in_flight):
                executable.submit(slot)
            done = sorted(executable.next_done() for _ in range(executable.in_flight))
            first = executable.outputs()[0]
            same = all(
                np.array_equal(binding.copy_outputs_to_cpu()[0], first) for binding in executable._bindings
            )
            buffers = len({binding.get_outputs()[0].data_ptr() for binding in executable._bindings})
            executable.run()
            pool = executable._session.get_session_options().intra_op_num_threads
            answer = [executable.in_flight, pool, executable.placement["threads"], done, same, buffers]
            executable.close()
            return answer

        import threading
        looks = [
            look("onnxruntime", 1), look("onnxruntime", 2), look("onnxruntime[requests=3]", 2),
            look("onnxruntime[requests=2]", 4), look("onnxruntime[requests=1]", 2),
        ]
        print(json.dumps([looks, threading.active_count()]))
        """,
        tmp_path,
    )
    # Calls in flight, threads of the pool, threads in all, what was done, right outputs, buffers.
    assert answer == [
        [
            [1, 1, 1, [0], True, 1],
            [2, 1, 2, [0, 1], True, 2],
            [3, 1, 3, [0, 1, 2], True, 3],
            [2, 3, 4, [0, 1], True, 2],
            [1, 2, 2, [0], True, 1],
        ],
        1,
    ]


@pytest.mark.real
def test_what_a_request_raises_is_raised_where_it_is_waited_for(tmp_path: Path) -> None:
    said = run(
        """
        executable = compile("onnxruntime", 2, "throughput")
        executable._bindings[1].clear_binding_inputs()
        executable.submit(1)
        try:
            executable.next_done()
        except Exception as error:
            print(json.dumps(str(error)))
        """,
        tmp_path,
    )
    assert "x" in said


@pytest.mark.real
def test_a_provider_that_the_package_lacks_is_refused_with_how_to_get_it(tmp_path: Path) -> None:
    kind, said = run(
        """
        onnxruntime.get_available_providers = lambda: ["CPUExecutionProvider"]
        print(json.dumps(refused("onnxruntime[openvino]")))
        """,
        tmp_path,
    )
    assert kind == "Unsupported"
    assert "has no OpenVINOExecutionProvider (pip uninstall onnxruntime, pip install onnxruntime-openvino" in said


# The package for the CPU has one more provider, which takes no node that is not made for it.
IDLE = """
if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
    print(json.dumps("skip"))
    sys.exit()
providers.PROVIDERS = {
    **providers.PROVIDERS, "openvino": providers.Provider("AzureExecutionProvider", "cpu", ("f32",), "onnxruntime")
}
providers.settings_of = lambda *_: {}
"""


def run_on_an_idle_provider(code: str, folder: Path) -> Any:
    answer = run(IDLE + textwrap.dedent(code), folder)
    if answer == "skip":
        pytest.skip("this package of ONNX Runtime has no provider that takes nothing")
    return answer


@pytest.mark.real
def test_a_provider_that_leaves_nodes_is_refused_and_the_nodes_are_named(tmp_path: Path) -> None:
    kind, said = run_on_an_idle_provider("print(json.dumps(refused('onnxruntime[openvino]')))", tmp_path)
    assert kind == "Unsupported"
    assert "AzureExecutionProvider takes 0 of the 3 nodes, not Conv, Relu, Softmax (fallback=on leaves them" in said


@pytest.mark.real
def test_with_fallback_a_provider_that_took_no_node_is_refused_all_the_same(tmp_path: Path) -> None:
    kind, said = run_on_an_idle_provider("print(json.dumps(refused('onnxruntime[openvino,fallback=on]')))", tmp_path)
    assert kind == "Unsupported"
    assert said.endswith("AzureExecutionProvider takes 0 of the 3 nodes, not Conv, Relu, Softmax")


@pytest.mark.real
def test_a_provider_that_does_not_start_is_a_failure_and_not_the_cpu(tmp_path: Path) -> None:
    kind, said = run(
        """
        available = onnxruntime.get_available_providers()
        onnxruntime.get_available_providers = lambda: ["OpenVINOExecutionProvider", *available]
        session = onnxruntime.InferenceSession
        onnxruntime.InferenceSession = lambda path, settings, providers, enable_fallback: session(
            path, settings, providers=["CPUExecutionProvider"]
        )
        print(json.dumps(refused("onnxruntime[openvino,fallback=on]")))
        """,
        tmp_path,
    )
    assert kind == "CompileFailed"
    assert "OpenVINOExecutionProvider cannot be started, its libraries are missing or of another version" in said


@pytest.mark.real
@pytest.mark.parametrize("text", ["onnxruntime[cuda]", "onnxruntime[tensorrt]", "onnxruntime[fallback=on,tensorrt]"])
def test_the_package_for_gpus_without_a_gpu_fails_and_never_runs_on_the_cpu(tmp_path: Path, text: str) -> None:
    answer = run(
        f"""
        import contextlib, io
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers() or Path("/dev/nvidia0").exists():
            print(json.dumps(None))
            sys.exit()
        # What it prints of libraries that it does not find is of no use here.
        with contextlib.redirect_stdout(io.StringIO()):
            answer = refused({text!r}, Device("cuda", threads=2, accelerator="cuda:0"))
        print(json.dumps(answer))
        """,
        tmp_path,
    )
    if answer is None:
        pytest.skip("the installed ONNX Runtime is not the one for GPUs, or there is a GPU")
    kind, said = answer
    assert kind == "CompileFailed"
    assert "ExecutionProvider cannot be started, its libraries are missing" in said


@pytest.mark.real
def test_the_profile_of_a_call_tells_older_versions_the_same_nodes(tmp_path: Path) -> None:
    told, profiled, disabled = run(
        """
        def look(text):
            opened = []
            open_session = adapter._Setup.open
            adapter._Setup.open = lambda setup, *adjust: opened.append(setup) or open_session(setup, *adjust)
            executable = compile(text)
            adapter._Setup.open = open_session
            return providers.nodes_of(executable._session), providers.profiled_nodes(opened[0].open, lambda _: INPUTS)

        counts = [*look("onnxruntime"), look("onnxruntime[graph=disabled]")[1]]
        print(json.dumps([each and sorted([*key, count] for key, count in each.items()) for each in counts]))
        """,
        tmp_path,
    )
    expected = [["CPUExecutionProvider", operator, 1] for operator in ("Conv", "Relu", "Softmax")]
    assert profiled == disabled == expected
    assert told in (expected, None)


@pytest.mark.real
def test_the_cpu_alone_needs_no_profile(tmp_path: Path) -> None:
    nodes = run(
        """
        providers.nodes_of = lambda session: None
        providers.profiled_nodes = None
        print(json.dumps(compile("onnxruntime").placement["nodes"]))
        """,
        tmp_path,
    )
    assert nodes == "CPUExecutionProvider:all"


@pytest.mark.real
def test_older_versions_find_a_provider_that_took_no_node_by_the_profile(tmp_path: Path) -> None:
    kind, said = run_on_an_idle_provider(
        "providers.nodes_of = lambda session: None\nprint(json.dumps(refused('onnxruntime[openvino,fallback=on]')))",
        tmp_path,
    )
    assert kind == "Unsupported"
    assert "AzureExecutionProvider takes 0 of the" in said


@pytest.mark.real
@pytest.mark.parametrize("text", ["onnxruntime[openvino]", "onnxruntime[fallback=on,openvino]"])
def test_openvinos_provider_takes_the_graph_in_f32(tmp_path: Path, text: str) -> None:
    answer = run(
        f"""
        if "OpenVINOExecutionProvider" not in onnxruntime.get_available_providers():
            print(json.dumps(None))
            sys.exit()
        mine, theirs = compile({text!r}), compile("onnxruntime")
        for each in (mine, theirs):
            each.run()
        (got,), (expected,) = mine.outputs(), theirs.outputs()
        error = float(np.abs(got - expected).max() / np.abs(expected).max())
        busy = compile({text!r}, 2, "throughput")
        for slot in range(busy.in_flight):
            busy.submit(slot)
        done = sorted(busy.next_done() for _ in range(busy.in_flight))
        print(json.dumps([dict(mine.placement), error, done]))
        """,
        tmp_path,
    )
    if answer is None:
        pytest.skip("the installed ONNX Runtime has no provider for OpenVINO (onnxruntime-openvino has)")
    placement, error, done = answer
    assert placement["provider"] == "OpenVINOExecutionProvider"
    assert placement["nodes"] == "OpenVINOExecutionProvider:3"
    # bf16, which it takes by itself where the CPU has it, is off by 1e-3 and more.
    assert error < 1e-5
    assert done == [0, 1]
