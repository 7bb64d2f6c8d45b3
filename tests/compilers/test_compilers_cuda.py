"""The compilers of PyTorch modules: calls side by side for real on a CPU, and CUDA where one missing call is faked."""

from __future__ import annotations

import json
import os
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.compilers.torch import inductor
from pytest_ngraph.compilers.torch import shared as pytorch
from pytest_ngraph.launches.memory import memory_pass
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Outcome, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.support import workers
from tests.support.bad_compilers import workers_of
from tests.support.fake_nvml import Card, installed
from tests.support.measuring import SMALL, cell, job

NAMES = ("identity", "torchscript", "inductor")
ON_GPU = Device("cuda", (0,), 1, "cuda:0")


def why_not(text: str, device: Device, **axes: Any) -> str | None:
    spec, workload = CompilerSpec.parse(text), Workload(parse_model("block:conv"), **axes)
    return Catalogue().get(spec.name).why_not(Cell("cuda", spec, workload), device)


# What is refused, before anything is imported


@pytest.fixture
def with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PyTorch that was built with CUDA, and triton beside it."""
    monkeypatch.setattr(pytorch, "version_of", lambda name: "2.13.0+cu130")
    monkeypatch.setattr(inductor, "find_spec", lambda name: name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("scenario", ["latency", "throughput"])
def test_every_precision_and_scenario_runs_on_both_kinds_of_device(
    with_cuda: None, monkeypatch: pytest.MonkeyPatch, name: str, precision: str, scenario: str
) -> None:
    monkeypatch.setattr(inductor, "find_cxx", lambda: "/usr/bin/c++")
    for device in (Device(), ON_GPU):
        assert why_not(name, device, precision=precision, scenario=scenario) is None


@pytest.mark.parametrize("name", NAMES)
def test_tf32_is_refused_on_a_cpu_only(with_cuda: None, name: str) -> None:
    assert why_not(name, Device(), precision="tf32") == "precision tf32 (only NVIDIA GPUs have it)"
    assert why_not(name, ON_GPU, precision="tf32") is None


@pytest.mark.parametrize("name", NAMES)
def test_int8_is_refused_with_what_runs(name: str) -> None:
    assert why_not(name, Device(), precision="int8") == "precision int8 (it runs f32, tf32, f16, bf16)"


@pytest.mark.parametrize("name", NAMES)
def test_a_torch_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(pytorch, "version_of", lambda name: "2.13.0+cpu")
    said = why_not(name, ON_GPU)
    assert said == "torch 2.13.0+cpu is built without CUDA (pytorch.org/get-started says how to install one with it)"
    assert why_not("identity", Device()) is None


def test_inductor_needs_triton_on_a_gpu(with_cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor, "find_spec", lambda name: None)
    assert why_not("inductor", ON_GPU) == "needs triton on a GPU (pip install triton)"


def test_cuda_graphs_are_for_one_call_at_a_time(with_cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor, "find_cxx", lambda: "/usr/bin/c++")
    for mode in ("reduce-overhead", "max-autotune"):
        text = f"inductor[mode={mode}]"
        assert why_not(text, ON_GPU) is None
        said = why_not(text, ON_GPU, scenario="throughput")
        assert said == f"mode={mode} replays one CUDA graph, which cannot run beside itself"
    assert why_not("inductor[mode=max-autotune]", Device(), scenario="throughput") is None
    assert why_not("inductor[mode=max-autotune-no-cudagraphs]", ON_GPU, scenario="throughput") is None


@pytest.mark.parametrize("name", NAMES)
def test_what_was_not_tried_on_hardware_says_so(name: str) -> None:
    assert Catalogue().get(name).verified == {"cpu": "x86-64 Linux", "cuda": "unverified on hardware"}


# What was kept of kernels


class Kernels:
    """Folders of inductor and of Triton, and a process that has written so many kernels."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inductor, self.triton, self.written = folder / "inductor", folder / "triton", 0
        self.inductor.mkdir()
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(self.inductor))
        monkeypatch.setenv("TRITON_CACHE_DIR", str(self.triton))
        monkeypatch.setattr(inductor, "_generated_kernels", lambda: self.written)

    def are_kept(self, *built: Path, written: int = 1) -> bool:
        """Return what is said of a compilation that writes kernels and builds these files of them."""
        workload: Any = SimpleNamespace(artifact=None, spec=SimpleNamespace(label="cell"))
        kernels = inductor._Kernels.of(workload, {})
        self.written += written
        for file in built:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        are_kept = kernels.are_kept()
        kernels.leave_mark()
        return are_kept


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    return Kernels(tmp_path, monkeypatch)


@pytest.mark.parametrize("kind", ["cubin", "hsaco", "spv", "zebin", "so"])
def test_kernels_that_triton_builds_now_were_not_kept(kernels: Kernels, kind: str) -> None:
    """Of a graph that PyTorch's own cache passes by, such as one with torch.cond, nothing else says that it is new."""
    file = kernels.triton / "HASH" / f"triton_poi_fused_0.{kind}"
    assert not kernels.are_kept(file)
    assert kernels.are_kept()
    assert not kernels.are_kept(file.with_stem("triton_poi_fused_1"))
    # What it keeps beside them is read from the kernel, and no kernel.
    assert kernels.are_kept(file.with_suffix(".ttir"), file.with_suffix(".json"))


def test_triton_may_keep_its_kernels_in_inductors_folder(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_CACHE_DIR")
    assert not kernels.are_kept(kernels.inductor / "triton" / "0" / "HASH" / "triton_poi_fused_0.cubin")
    assert kernels.are_kept()
    assert not kernels.are_kept(kernels.inductor / "ab" / "cab.main.so")


def test_a_graph_without_a_kernel_was_built_before_where_it_left_its_mark(kernels: Kernels) -> None:
    assert [kernels.are_kept(written=0) for _ in range(2)] == [False, True]


# In processes of their own: PyTorch

SETUP = """
import json, sys, threading, warnings
warnings.simplefilter("error")
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from pytest_ngraph.compilers.torch import shared as pytorch
from pytest_ngraph.compilers.toolkit import torch_cuda
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.compilers.toolkit.equality import compare
from pytest_ngraph.errors import NgraphError, Unsupported
from pytest_ngraph.spec.cells import CompilerSpec, Device, ModelRef, Workload
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.loaded import LoadedWorkload

model = parse_model("pytest_ngraph.conformance.models:TwoInputs")

def load(scenario="latency", precision="f32"):
    built = artifacts.build(Workload(model, 2), 0, Path(sys.argv[1]), False)
    return LoadedWorkload(Workload(model, 2, precision=precision, scenario=scenario), 0, built)

def compiled(text, workload, device):
    spec = CompilerSpec.parse(text)
    adapter = Catalogue().get(spec.name)
    executable = adapter.compile(workload, device, adapter.resolve(spec))
    executable.bind(workload.inputs)
    return executable

def refused(call):
    try:
        call()
    except NgraphError as error:
        return [type(error).__name__, str(error)]

def agrees(executable, workload):
    return compare(executable.outputs(), artifacts.reference(workload.artifact).timed, "f32").reason == ""
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where what the processes build is kept for all of them."""
    return tmp_path_factory.mktemp("torch")


def run_code(code: str, folder: Path, *arguments: str, threads: int = 2) -> Any:
    """Run code after SETUP in a process where warnings are errors; return what it printed, read as JSON."""
    skip_without("torch")
    loaded = "inductor" if any(word.startswith("inductor") for word in arguments) else "torch"
    cache = str(folder / "inductor")
    done = workers.run_code(
        loaded,
        SETUP + textwrap.dedent(code),
        str(folder),
        *arguments,
        variables={"OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_CACHE_DIR": cache},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


THROUGHPUT = """
workload = load("throughput")
executable = compiled(sys.argv[2], workload, Device(threads=4))
executable.run()
alone = agrees(executable, workload)
slots = executable._slots
for _ in range(3):
    for slot in range(executable.in_flight):
        executable.submit(slot)
    done = sorted(executable.next_done() for _ in range(executable.in_flight))
together = [agrees(slot, workload) for slot in slots]
inputs = {tensor.data_ptr() for slot in slots for tensor in slot._arguments}
other = {name: array * np.float32(0.5) for name, array in workload.inputs.items()}
executable.bind(other)
executable.submit(1)
changed = [executable.next_done(), agrees(slots[1], workload), agrees(slots[0], workload)]
dynamo = sys.modules.get("torch._dynamo.utils")
graphs = dynamo.counters["stats"]["unique_graphs"] if dynamo else 0
threads = threading.active_count()
executable.close()
print(json.dumps({
    "alone": alone, "done": done, "together": together, "inputs": len(inputs), "changed": changed,
    "placement": dict(executable.placement), "threads": [threads, threading.active_count()],
    "times": executable.device_times(), "graphs": graphs,
}))
"""


@pytest.mark.real
@pytest.mark.parametrize("name", NAMES)
def test_calls_run_side_by_side_each_on_its_own_tensors(folder: Path, name: str) -> None:
    if name == "inductor" and inductor.find_cxx() is None:
        pytest.skip("no C++ compiler")
    found = run_code(THROUGHPUT, folder, f"{name}[requests=3]", threads=4)

    assert found["alone"]
    assert found["done"] == [0, 1, 2]
    assert found["together"] == [True] * 3
    # Two inputs for each of three calls.
    assert found["inputs"] == 6
    # Bound anew, slot 1 has computed something else, slot 0 has not computed anything since.
    assert found["changed"] == [1, False, True]
    placement = found["placement"]
    assert (placement["threads"], placement["provider"]) == (1, "torch-cpu")
    assert found["threads"][0] - found["threads"][1] == 3
    assert found["times"] is None
    # No thread compiles anew.
    assert found["graphs"] == (1 if name == "inductor" else 0)


@pytest.mark.real
def test_calls_in_flight_share_the_threads_of_the_device(folder: Path) -> None:
    code = """
    import torch
    seen = []
    def look(module, inputs):
        seen.append([threading.get_ident(), torch.get_num_threads(), torch.is_inference_mode_enabled()])

    def threads_of(executable, slots):
        seen.clear()
        for slot in slots:
            executable.submit(slot)
        for _ in slots:
            executable.next_done()
        threads = {ident for ident, _, _ in seen}
        return [len(threads), sorted({count for _, count, _ in seen}), all(mode for _, _, mode in seen)]

    workload = load("throughput")
    workload.module().register_forward_pre_hook(look)
    found = {}
    for text in ("identity", "identity[requests=2]", "identity[requests=1]", "identity[requests=9]",
                 "identity[threads=2]"):
        executable = compiled(text, workload, Device(threads=4))
        found[text] = [executable.in_flight, *threads_of(executable, range(executable.in_flight))]
        executable.close()
    print(json.dumps(found))
    """
    found = run_code(code, folder, threads=4)

    assert found == {
        "identity": [4, 4, [1], True],
        "identity[requests=2]": [2, 2, [2], True],
        "identity[requests=1]": [1, 1, [4], True],
        "identity[requests=9]": [9, 9, [1], True],
        "identity[threads=2]": [2, 2, [1], True],
    }


@pytest.mark.real
def test_cells_of_one_process_keep_their_own_threads(folder: Path) -> None:
    code = """
    import torch
    seen = []
    def watched(scenario):
        workload = load(scenario)
        workload.module().register_forward_pre_hook(lambda module, inputs: seen.append(torch.get_num_threads()))
        return compiled("identity", workload, Device(threads=2))

    latency, throughput = watched("latency"), watched("throughput")
    latency.run()
    throughput.submit(0)
    throughput.next_done()
    latency.run()
    throughput.run()
    latency.run()
    throughput.close()
    print(json.dumps(seen))
    """
    assert run_code(code, folder) == [2, 1, 2, 1, 2]


@pytest.mark.real
def test_a_call_that_fails_in_its_slot_raises_where_it_is_waited_for(folder: Path) -> None:
    code = """
    def fail(module, inputs):
        raise ValueError("not today")

    workload = load("throughput")
    executable = compiled("identity[requests=2]", workload, Device(threads=2))
    executable.run()
    hook = workload.module().register_forward_pre_hook(fail)
    executable.submit(1)
    try:
        executable.next_done()
    except ValueError as error:
        said = str(error)
    hook.remove()
    executable.submit(1)
    print(json.dumps([said, executable.next_done()]))
    executable.close()
    """
    assert run_code(code, folder) == ["not today", 1]


# CUDA, with a CPU in the place of the GPU


@pytest.mark.real
def test_tf32_is_one_setting_under_its_old_and_its_new_names(folder: Path) -> None:
    code = """
    import torch, warnings

    def names(tf32):
        torch_cuda.settle(tf32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # As Dynamo and inductor do; PyTorch raises where old and new names disagree.
            old = [torch._C._get_cublas_allow_tf32(), torch.backends.cudnn.allow_tf32]
        backends = torch.backends
        new = hasattr(backends.cudnn, "fp32_precision")
        return {
            "matmul": torch.get_float32_matmul_precision(),
            "new": [backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision,
                    backends.cudnn.rnn.fp32_precision, backends.cudnn.fp32_precision] if new else None,
            "old": old,
            "benchmark": backends.cudnn.benchmark,
        }

    torch.backends.cudnn.benchmark = True
    torch.cuda.get_device_name = lambda device: "NVIDIA H200"
    torch.cuda.get_device_capability = lambda device: (9, 0)
    on, facts = names(True), torch_cuda.facts(torch.device("cpu"))
    print(json.dumps([on, names(False), facts, torch_cuda.facts(torch.device("cpu"))["tf32"]]))
    """
    on, off, facts, after = run_code(code, folder)

    assert (on["matmul"], off["matmul"]) == ("high", "highest")
    assert (on["old"], off["old"]) == ([True, True], [False, False])
    assert on["new"] in (None, ["tf32"] * 4)
    assert off["new"] in (None, ["ieee"] * 4)
    assert on["benchmark"] is False
    assert (facts["gpu"], facts["capability"], facts["tf32"], after) == ("NVIDIA H200", "9.0", "on", "off")
    assert facts["cudnn_benchmark"] == "off"


@pytest.mark.real
def test_a_gpu_that_torch_cannot_use_is_refused_with_the_reason(folder: Path) -> None:
    code = """
    import torch
    torch.cuda.is_available = lambda: False
    torch.version.cuda = None
    without = refused(lambda: Catalogue().get("identity").open(Device("cuda", (), 1, "cuda:0")))
    torch.version.cuda = "13.0"
    no_driver = refused(lambda: torch_cuda.open_device("cuda:0"))
    torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 1
    too_few = refused(lambda: torch_cuda.open_device("cuda:1"))
    calls = []
    torch.cuda.set_device = lambda device: calls.append(["set", str(device)])
    torch.cuda.synchronize = lambda device: calls.append(["synchronize", str(device)])
    opened = str(torch_cuda.open_device("cuda:0"))
    torch.cuda.get_device_name = lambda device: "Tesla T4"
    torch.cuda.get_device_capability = lambda device: (7, 5)
    device = torch.device("cuda:0")
    old = {name: refused(lambda: torch_cuda.check_precision(device, name)) for name in ("f32", "tf32", "f16", "bf16")}
    Catalogue().get("identity").open(Device())
    print(json.dumps([torch.__version__, without, no_driver, too_few, opened, calls, old]))
    """
    version, without, no_driver, too_few, opened, calls, old = run_code(code, folder)

    assert without == ["Unsupported", f"torch {version}: it is built without CUDA"]
    assert no_driver == ["Unsupported", f"torch {version}: it finds no GPU that it can use"]
    assert too_few == ["Unsupported", f"torch {version} sees 1 GPUs and no cuda:1"]
    assert (opened, calls) == ("cuda:0", [["set", "cuda:0"], ["synchronize", "cuda:0"]])
    said = "needs compute capability 8.0 or newer, and Tesla T4 has 7.5"
    assert old == {
        "f32": None,
        "tf32": ["Unsupported", f"precision tf32 {said}"],
        "f16": None,
        "bf16": ["Unsupported", f"precision bf16 {said}"],
    }


FAKE_GPU = """
import torch

log = []
here = torch.device("cpu")
torch_cuda.open_device = lambda accelerator: log.append(["open", accelerator]) or here

class Stream:
    made = 0
    current = "default"
    def __init__(self, device):
        assert device is here
        self.name = f"stream {Stream.made}"
        Stream.made += 1

class On:
    def __init__(self, stream):
        self.name = stream.name
    def __enter__(self):
        self.before, Stream.current = Stream.current, self.name
    def __exit__(self, *error):
        Stream.current = self.before

class Event:
    clock = 0.0
    ready = set()
    def __init__(self, enable_timing=False):
        self.timing = enable_timing
    def record(self):
        self.stream, self.at = Stream.current, Event.clock
    def query(self):
        return self.stream in Event.ready
    def synchronize(self):
        log.append(["wait for event", self.stream])
    def elapsed_time(self, end):
        assert self.timing and end.timing
        return end.at - self.at

for name, fake in {
    "Stream": Stream, "stream": On, "Event": Event,
    "synchronize": lambda device: log.append(["synchronize", str(device)]),
    "get_device_name": lambda device: "NVIDIA H200",
    "get_device_capability": lambda device: (9, 0),
}.items():
    assert hasattr(torch.cuda, name)
    setattr(torch.cuda, name, fake)
gpu = Device("cuda", (), 2, "cuda:0")

def look(module, inputs):
    Event.clock += 3.0  # milliseconds of the GPU's clock
    log.append(["call", Stream.current, torch.get_float32_matmul_precision()])

def watched(text, scenario="latency", precision="f32"):
    workload = load(scenario, precision)
    workload.module().register_forward_pre_hook(look)
    return compiled(text, workload, gpu), workload
"""


@pytest.mark.real
@pytest.mark.parametrize("text", ["identity", "torchscript", "torchscript[optimize=inference]"])
def test_on_a_gpu_calls_are_enqueued_and_waited_for_where_it_is_asked(folder: Path, text: str) -> None:
    code = FAKE_GPU + textwrap.dedent(
        """
        (executable, workload), begun = watched(sys.argv[2]), list(log)
        log.clear()
        executable.run()
        executable.run()
        running = [entry for entry in log if entry[0] != "call"]
        executable.synchronize()
        executable.bind(workload.inputs)
        print(json.dumps([begun, running, log[-2:], agrees(executable, workload), dict(executable.placement)]))
        """
    )
    begun, running, ended, agrees, placement = run_code(code, folder, text)

    assert begun[0] == ["open", "cuda:0"]
    # The inputs are there before anything uses them, on whichever stream.
    assert begun[-1] == ["synchronize", "cpu"]
    assert running == []
    assert ended == [["synchronize", "cpu"]] * 2
    assert agrees
    assert {name: placement[name] for name in ("gpu", "capability", "tf32", "precision", "threads")} == {
        "gpu": "NVIDIA H200",
        "capability": "9.0",
        "tf32": "off",
        "precision": "f32",
        "threads": 2,
    }
    assert {"cudnn", "cudnn_benchmark", "cuda", "version"} <= set(placement)
    assert "instructions" not in placement


@pytest.mark.real
def test_on_a_gpu_each_cell_computes_in_its_own_precision(folder: Path) -> None:
    code = FAKE_GPU + textwrap.dedent(
        """
        (rounded, _), (exact, _) = watched("identity", precision="tf32"), watched("identity")
        log.clear()
        for executable in (rounded, exact, exact, rounded):
            executable.run()
        print(json.dumps([[entry[2] for entry in log], rounded.placement["precision"], exact.placement["precision"]]))
        """
    )
    assert run_code(code, folder) == [["high", "highest", "highest", "high"], "tf32", "f32"]


@pytest.mark.real
def test_the_times_of_the_gpu_itself_and_of_copies_are_measured_once(folder: Path) -> None:
    code = FAKE_GPU + textwrap.dedent(
        """
        executable, workload = watched("identity")
        executable.run()
        times = executable.device_times()
        print(json.dumps([times, agrees(executable, workload)]))
        """
    )
    times, agrees = run_code(code, folder)

    assert set(times) == {"device_call_seconds", "copy_in_seconds", "copy_out_seconds"}
    assert times["device_call_seconds"] == pytest.approx(3e-3)
    assert 0 < times["copy_in_seconds"] < 1
    assert 0 < times["copy_out_seconds"] < 1
    assert agrees


@pytest.mark.real
def test_on_a_gpu_each_slot_has_a_stream_and_slots_come_back_as_they_finish(folder: Path) -> None:
    code = FAKE_GPU + textwrap.dedent(
        """
        executable, workload = watched("identity[requests=3]", "throughput")
        log.clear()
        for slot in (0, 1, 2):
            executable.submit(slot)
        streams = [entry[1] for entry in log]
        Event.ready = {"stream 2"}
        done = [executable.next_done()]
        Event.ready = {"stream 0", "stream 1", "stream 2"}
        done += [executable.next_done(), executable.next_done()]
        try:
            executable.next_done()
        except RuntimeError as error:
            done.append(str(error))
        executable.submit(1)
        log.clear()
        outside = Stream.current
        executable.close()
        closing = list(log)
        usual = watched("identity", "throughput")[0].in_flight
        print(json.dumps([executable.in_flight, streams, done, outside, closing, dict(executable.placement), usual]))
        """
    )
    in_flight, streams, done, outside, closing, placement, usual = run_code(code, folder)

    assert (in_flight, usual) == (3, 4)
    assert streams == ["stream 0", "stream 1", "stream 2"]
    assert done == [2, 0, 1, "no call is in flight"]
    assert outside == "default"
    assert closing == [["wait for event", "stream 1"]]
    # One thread enqueues all calls, so each has all threads of the host.
    assert placement["threads"] == 2


# Memory


@pytest.mark.real
def test_the_most_that_a_worker_held_on_the_gpu_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def held() -> dict[int, int | None]:
        looks.append(1)
        megabytes = 300 if len(looks) == 2 else 100
        return dict.fromkeys(workers_of(os.getpid()), megabytes << 20)

    work = job(tmp_path)
    work = replace(work, device=replace(work.device, accelerator="cuda:0"))
    with installed(monkeypatch, Card(processes=held)):
        record, peak = memory_pass(work, cell("bad[us=30000]"), SMALL, 1)

    assert (record.outcome, record.reason) == (Outcome.OK, "")
    assert len(looks) > 2
    assert record.peak_gpu_memory_bytes == 300 << 20
    assert record.peak_memory_bytes == peak
    assert peak is not None


@pytest.mark.real
@pytest.mark.parametrize(
    ("card", "reason"),
    [
        (Card(refused={"nvmlDeviceGetComputeRunningProcesses"}), "Not Supported"),
        (Card(processes=lambda: {1: 5}), "NVML lists no process"),
        (
            Card(processes=lambda: dict.fromkeys(workers_of(os.getpid()))),
            "NVML does not say how much memory of this GPU a process holds",
        ),
    ],
)
def test_gpu_memory_that_cannot_be_read_is_null_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: Card, reason: str
) -> None:
    work = job(tmp_path)
    work = replace(work, device=replace(work.device, accelerator="cuda:0"))
    with installed(monkeypatch, card):
        record, _ = memory_pass(work, cell("null"), SMALL, 1)

    assert record.outcome is Outcome.OK
    assert record.peak_gpu_memory_bytes is None
    assert record.reason.startswith("GPU memory cannot be read: ")
    assert reason in record.reason


@pytest.mark.real
def test_without_a_gpu_no_memory_of_one_is_read(tmp_path: Path) -> None:
    record, _ = memory_pass(job(tmp_path), cell("null"), SMALL, 1)

    assert (record.peak_gpu_memory_bytes, record.reason) == (None, "")
