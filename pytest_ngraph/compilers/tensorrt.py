"""TensorRT, 10.3 (JetPack 6.2) to 11: one engine of the shared ONNX file, its buffers and stream owned by PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import REQUESTS, Compiler, Executable, Option
from pytest_ngraph.compilers.toolkit import torch_cuda
from pytest_ngraph.compilers.toolkit.copies import median_seconds
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.machine import files
from pytest_ngraph.spec.cells import Cell, Device
from pytest_ngraph.spec.shapes.mixes import is_mix

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.explain.profile import Profile
    from pytest_ngraph.workloads.loaded import LoadedWorkload

_PLAN = "engine.plan"
_TIMINGS = "timing.cache"
# Says which driver is loaded; the second is Jetson's, whose driver comes with the system.
_DRIVER = (Path("/proc/driver/nvidia/version"), Path("/etc/nv_tegra_release"))
# Types of inputs and outputs: TensorRT's names and PyTorch's.
_TYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "BOOL": "bool",
}
# Without strong typing the builder uses a smaller type only where it is allowed to.
_WEAK_FLAGS = {"f16": "FP16", "bf16": "BF16", "int8": "INT8"}
_Ranges = Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]
_MEMORY_WORDS = ("out of memory", "outofmemory", "could not be allocated")
# The first errors are the cause, the others what followed.
_TOLD = 3
# One request computes while the next is being enqueued.
_REQUESTS = 2
_CAPTURES = "cuda_graph=on with a mix of shapes: each of its calls binds its inputs, and the graph is captured again"


class _Slot:
    """An execution context of an engine, with buffers and a stream of its own."""

    def __init__(self, engine: Any, outputs: Sequence[str], device: Any, *, graph: bool) -> None:
        import tensorrt
        import torch

        self._engine: Any = engine
        self._context: Any = engine.create_execution_context()
        if self._context is None:
            raise _failure("cannot create an execution context")
        self._stream: Any = torch.cuda.Stream(device)
        self._handle: int = self._stream.cuda_stream
        self._done: Any = torch.cuda.Event()
        self._current: Any = torch.cuda.stream(self._stream)
        self._wants_graph = graph
        self._graph: Any = None
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        kinds = {name: getattr(torch, _TYPES[engine.get_tensor_dtype(name).name]) for name in names}
        # What holds shapes is read and written by the host.
        places = {
            name: "cpu" if engine.get_tensor_location(name) == tensorrt.TensorLocation.HOST else device
            for name in names
        }
        self._inputs = {
            name: (kinds[name], places[name])
            for name in names
            if engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT
        }
        # What was bound, on the host, and where to; then where it is.
        self._hosts: list[tuple[Any, Any]] = []
        self._buffers: list[Any] = []
        self._outputs: list[Any] = []
        # An engine for open shapes knows those of its outputs once it is told those of a call.
        self._is_open = any(size < 0 for name in self._inputs for size in engine.get_tensor_shape(name))
        self._given = [(name, kinds[name], places[name]) for name in outputs]
        if not self._is_open:
            self._place_outputs(engine)

    def _place_outputs(self, knows: Any) -> None:
        """Make buffers for the outputs, of the shapes that an engine, or the context of a call, knows."""
        import torch

        self._outputs = []
        for name, kind, place in self._given:
            shape = tuple(knows.get_tensor_shape(name))
            if any(size < 0 for size in shape):
                raise Unsupported(f"tensorrt: the shape of output {name!r} depends on the values of the inputs")
            self._outputs.append(torch.empty(shape, dtype=kind, device=place))
            self._set_address(name, self._outputs[-1])

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Copy the inputs into new buffers. Capture the call again where it is a CUDA graph."""
        import numpy as np
        import torch

        self.wait()
        self._hosts, self._buffers = [], []
        for name, (kind, device) in self._inputs.items():
            # Not ascontiguousarray, which gives a number alone a dimension.
            host = torch.from_numpy(np.require(inputs[name], requirements="C"))
            if host.dtype != kind:
                raise CompileFailed(f"tensorrt: input {name!r} is {host.dtype}, its engine reads {kind}")
            self._hosts.append((host, device))
            self._buffers.append(host.to(device))
            if self._is_open and not self._context.set_input_shape(name, tuple(inputs[name].shape)):
                raise _failure(f"does not take shape {tuple(inputs[name].shape)} of {name!r}: it is not in its profile")
            self._set_address(name, self._buffers[-1])
        if self._is_open:
            self._place_outputs(self._context)
        if self._wants_graph:
            self._graph = self._capture()

    def profiled(self, calls: int) -> Profile:
        """Return TensorRT's own profile of calls. Those of a CUDA graph are enqueued for it as they are."""
        from pytest_ngraph.explain.runtimes.tensorrt import profile

        def call() -> None:
            self._enqueue()
            self.wait()

        return profile(self._engine, self._context, call, calls)

    def start(self) -> None:
        """Enqueue a call on the stream, and do not wait for it."""
        if self._graph is None:
            self._enqueue()
            return
        # PyTorch replays on whichever stream is current.
        with self._current:
            self._graph.replay()

    def mark(self) -> None:
        """Remember what was enqueued until now, for ``is_done``."""
        self._done.record(self._stream)

    def is_done(self) -> bool:
        """Return whether all that was marked has been computed."""
        return bool(self._done.query())

    def wait(self) -> None:
        """Wait until the stream is empty."""
        self._stream.synchronize()

    def outputs(self) -> list[np.ndarray]:
        """Return the last call's outputs as arrays of their own."""
        self.wait()
        return [tensor.cpu().numpy().copy() for tensor in self._outputs]

    def device_times(self) -> dict[str, float]:
        """Return the seconds of a call by the GPU's own clock, and those of copying from and to pageable memory."""
        import torch

        with torch.cuda.stream(self._stream):
            call = torch_cuda.device_seconds(self.start)
        return {
            "device_call_seconds": call,
            "copy_in_seconds": median_seconds(lambda: [host.to(device) for host, device in self._hosts]),
            "copy_out_seconds": median_seconds(lambda: [tensor.cpu() for tensor in self._outputs]),
        }

    def _set_address(self, name: str, tensor: Any) -> None:
        if not self._context.set_tensor_address(name, tensor.data_ptr()):
            raise _failure(f"does not take a buffer for {name!r}")

    def _enqueue(self) -> None:
        if not self._context.execute_async_v3(self._handle):
            raise _failure("cannot enqueue a call")

    def _capture(self) -> Any:
        import torch

        # The first call with new addresses lets TensorRT set itself up, which cannot be captured.
        self._enqueue()
        self.wait()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._enqueue()
        except (RuntimeError, CompileFailed) as error:
            raise Unsupported(f"tensorrt: cuda_graph=on, but the call cannot be captured: {_line(error)}") from error
        return graph


class TensorRtExecutable(Executable):
    """An engine with one slot, or one for each request in flight."""

    enqueues = True

    def __init__(self, slots: Sequence[_Slot], placement: Mapping[str, str | int], plan_bytes: int) -> None:
        self._slots = list(slots)
        self._running: list[int] = []
        self.in_flight = len(self._slots)
        self.placement = placement
        self.model_bytes = plan_bytes

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Copy the inputs into the memory of the GPU, for each slot apart."""
        for slot in self._slots:
            slot.bind(inputs)

    def run(self) -> None:
        """Enqueue a call on the first slot's stream."""
        self._slots[0].start()

    def synchronize(self) -> None:
        """Wait for the first slot's stream."""
        self._slots[0].wait()

    def outputs(self) -> Sequence[np.ndarray]:
        """Return the last call's outputs, copied from the GPU."""
        return self._slots[0].outputs()

    def device_times(self) -> Mapping[str, float]:
        """Return the times of the first slot."""
        return self._slots[0].device_times()

    def submit(self, slot: int) -> None:
        """Enqueue a call on a slot's stream."""
        self._slots[slot].start()
        self._slots[slot].mark()
        self._running.append(slot)

    def next_done(self) -> int:
        """Ask the calls in flight, the oldest first, until one of them is done."""
        while self._running:
            for slot in self._running:
                if self._slots[slot].is_done():
                    self._running.remove(slot)
                    return slot
        raise RuntimeError("tensorrt: no call is in flight")

    def profiled(self, calls: int) -> Profile:
        """Return TensorRT's own profile of calls in the first slot."""
        return self._slots[0].profiled(calls)

    def close(self) -> None:
        """Release the engine, and the buffers' memory on the GPU."""
        import torch

        while self._slots:
            self._slots.pop().wait()
        torch.cuda.empty_cache()


class TensorRtCompiler(Compiler):
    """``tensorrt[level=0..5,cuda_graph=on|off]``: strongly typed, so that precision is what the ONNX file says.

    TF32 is another matter, how float32 is multiplied: it is allowed for precision ``tf32`` only.
    """

    name = "tensorrt"
    # Before, kernels may have been chosen by what they take with TF32 where it is off, and the other way round.
    since = "0.4.0"
    rough_seconds = (20.0, 1.0)
    requires = ("tensorrt", "torch")
    variables = ("TENSORRT_", "TRT_")
    extra = "tensorrt"
    reads = "onnx"
    accelerators = ("cuda",)
    precisions = ("f32", "tf32", "f16", "bf16", "int8")
    scenarios = ("latency", "throughput")
    shapes = ("static", "dynamic")
    verified: Mapping[str, str] = {"cuda": "unverified on hardware"}
    options = (
        Option("level", "3", "How long the builder searches", choices=("0", "1", "2", "3", "4", "5")),
        Option("timings", "kept", "Reuse the kept timings of kernels, or time all again", choices=("kept", "fresh")),
        Option("cuda_graph", "off", "Replay the call as a CUDA graph", choices=("on", "off")),
        REQUESTS,
    )

    def open(self, device: Device) -> None:
        """Open the GPU, so that no compile time contains it. Raise Unsupported where PyTorch cannot use it."""
        torch_cuda.open_device(device.accelerator)

    def why_not(self, cell: Cell, device: Device) -> str | None:
        """Return the reason of the base class, or that calls would be timed with the capture of their CUDA graph."""
        if reason := super().why_not(cell, device):
            return reason
        is_graph = dict(cell.compiler.options).get("cuda_graph") == "on"
        return _CAPTURES if is_graph and is_mix(cell.workload.shapes) else None

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Build the engine, or read it back where it was built before from the same facts.

        Raises Unsupported for a bucket's build as CUDA graph: ``why_not`` is asked for static shapes there.
        """
        import tensorrt

        if workload.is_bucket and options["cuda_graph"] == "on":
            raise Unsupported(_CAPTURES)
        precision, keep = workload.spec.base_precision, workload.kept
        # In int8 it takes neither zero points nor offsets in integers.
        path = workload.symmetric_onnx_path
        _log().errors.clear()
        gpu, where = _ask(device, precision)
        where["level"] = int(options["level"])
        timings, ranges = None, workload.open_ranges
        # By NVIDIA's documentation a timing cache is of one device, CUDA and TensorRT, and of flags such as kTF32.
        timed_by = {**where, "tf32": precision == "tf32"}
        if keep is not None and options["timings"] == "kept":
            timings = keep.records(self.name, timed_by) / _TIMINGS

        def build(folder: Path) -> Mapping[str, Any]:
            plan, meta = _build(path, precision, where["level"], device.threads, timings, ranges)
            (folder / _PLAN).write_bytes(plan)
            return meta

        with TemporaryDirectory() as scratch:
            if keep is None:
                folder = Path(scratch)
                meta, loaded = build(folder), False
            else:
                facts = {**timed_by, "precision": precision, "timings": options["timings"], "file": path.name}
                if ranges:
                    facts["profile"] = {name: list(map(list, shapes)) for name, shapes in ranges.items()}
                folder, meta, loaded = keep.built(self.name, facts, build)
            plan = (folder / _PLAN).read_bytes()
        engine = tensorrt.Runtime(_log()).deserialize_cuda_engine(plan)
        if engine is None:
            raise _failure("cannot read its own plan back")
        in_flight = (options["requests"] or _REQUESTS) if workload.spec.scenario == "throughput" else 1
        graph = options["cuda_graph"] == "on"
        executable = TensorRtExecutable(
            [_Slot(engine, meta["outputs"], gpu, graph=graph) for _ in range(in_flight)],
            {
                "provider": "tensorrt",
                "precision": workload.graph_precision,
                "tf32": meta["tf32"],
                "typing": meta["typing"],
                # They are the builder's; a call has none but its own.
                "threads": device.threads,
                "requests": in_flight,
                "cuda_graph": options["cuda_graph"],
                "layers": engine.num_layers,
                "timings": meta["timings"],
                "plan": meta["plan"],
                **({"input_shapes": _written(ranges)} if ranges else {}),
                **where,
            },
            len(plan),
        )
        executable.loaded = loaded
        return executable

    def explain(
        self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], executable: Executable, calls: int
    ) -> Profile:
        """Profile the engine's layers as TensorRT reports them."""
        if not isinstance(executable, TensorRtExecutable):
            raise Unsupported("tensorrt: there is no engine to profile")
        return executable.profiled(calls)


def _ask(device: Device, precision: str) -> tuple[Any, dict[str, Any]]:
    """Return the GPU, made the current one, and what of it and of its software an engine depends on.

    The binding imports without a GPU, and even its runtime starts: only PyTorch can be asked.
    """
    import tensorrt
    import torch

    gpu = torch_cuda.open_device(device.accelerator)
    torch_cuda.check_precision(gpu, precision)
    return gpu, {
        "version": tensorrt.__version__,
        "gpu": torch.cuda.get_device_name(gpu),
        "capability": ".".join(map(str, torch.cuda.get_device_capability(gpu))),
        "driver": _driver(),
    }


def _build(
    path: Path, precision: str, level: int, threads: int, timings: Path | None, ranges: _Ranges
) -> tuple[bytes, Mapping[str, Any]]:
    """Build a plan of an ONNX file. Return it with what must be known when it is read back.

    ``timings`` is the file of the timing cache, which is read and written. None times every kernel. ``ranges`` are the
    least, the usual and the largest shape of each input whose shape is open.
    """
    import tensorrt

    builder = tensorrt.Builder(_log())
    builder.max_threads = threads
    strong = getattr(tensorrt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if strong is None else 1 << int(strong))
    _parse(network, path, is_open=bool(ranges))
    config = builder.create_builder_config()
    if ranges:
        profile = builder.create_optimization_profile()
        for name, shapes in ranges.items():
            profile.set_shape(name, *shapes)
        config.add_optimization_profile(profile)
    config.builder_optimization_level = level
    if precision == "tf32":
        config.set_flag(tensorrt.BuilderFlag.TF32)
    else:
        # It is allowed unless this is said.
        config.clear_flag(tensorrt.BuilderFlag.TF32)
    if strong is None and precision in _WEAK_FLAGS:
        config.set_flag(getattr(tensorrt.BuilderFlag, _WEAK_FLAGS[precision]))
    had = _read_timings(config, timings)
    built = builder.build_serialized_network(network, config)
    if built is None:
        raise _failure("cannot build an engine")
    if timings is not None:
        _write_timings(config, timings)
    plan = bytes(built)
    return plan, {
        "plan": hashlib.sha256(plan).hexdigest(),
        "outputs": [network.get_output(index).name for index in range(network.num_outputs)],
        "tf32": "on" if config.get_flag(tensorrt.BuilderFlag.TF32) else "off",
        "typing": "weak" if strong is None else "strong",
        "timings": had,
    }


def _written(ranges: _Ranges) -> str:
    """Return the shapes that an engine is for: the least, the usual and the largest."""
    return ", ".join(f"{name} {' '.join(map(str, map(list, shapes)))}" for name, shapes in ranges.items())


def _parse(network: Any, path: Path, *, is_open: bool) -> None:
    """Read an ONNX file into a network. Raise Unsupported for what TensorRT does not know, CompileFailed otherwise."""
    import tensorrt

    parser = tensorrt.OnnxParser(network, _log())
    if not parser.parse_from_file(str(path)):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        said = "; ".join(_line(error) for error in errors[:_TOLD]) or _log().said()
        # Before 11 these codes have no names but their text.
        if any("UNSUPPORTED" in str(error.code()) for error in errors):
            raise Unsupported(f"tensorrt {tensorrt.__version__} cannot take it: {said}")
        raise CompileFailed(f"tensorrt {tensorrt.__version__} cannot read it: {said}")
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    if not is_open and any(size < 0 for each in inputs for size in each.shape):
        raise Unsupported("tensorrt: the ONNX file has dynamic shapes, which are another measurement")


def _read_timings(config: Any, file: Path | None) -> str:
    """Give the builder its timing cache. Return ``used`` or ``empty``, or ``none`` without a file to keep it in."""
    if file is None:
        return "none"
    if file.exists():
        known = config.create_timing_cache(file.read_bytes())
        if known is not None and config.set_timing_cache(known, ignore_mismatch=False):
            return "used"
    config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)
    return "empty"


def _write_timings(config: Any, file: Path) -> None:
    """Keep the timing cache. Where two processes write, one of theirs stays, whole."""
    files.write(file, bytes(config.get_timing_cache().serialize()))


@cache
def _log() -> Any:
    """Return the logger of this process, as TensorRT takes only one. It keeps errors and prints nothing."""
    import tensorrt

    class Log(tensorrt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            tensorrt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            if severity in (tensorrt.ILogger.INTERNAL_ERROR, tensorrt.ILogger.ERROR):
                self.errors.append(_line(msg))

        def said(self) -> str:
            """Return the first errors since the last compilation began."""
            return "; ".join(dict.fromkeys(self.errors[:_TOLD])) or "it does not say why"

    return Log()


def _failure(what: str) -> Exception:
    """Return what to raise where TensorRT fails: why is in its log, where memory ran out too."""
    import tensorrt

    text = f"tensorrt {tensorrt.__version__} {what}: {_log().said()}"
    if any(words in said.lower() for said in _log().errors for words in _MEMORY_WORDS):
        return MemoryError(text)
    return CompileFailed(text)


def _driver() -> str:
    for file in _DRIVER:
        if file.exists():
            return _line(file.read_text(encoding="utf-8", errors="replace").partition("\n")[0])
    return "unknown"


def _line(said: object) -> str:
    return " ".join(str(said).split())


COMPILER = TensorRtCompiler()
