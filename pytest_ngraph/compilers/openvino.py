"""OpenVINO on the CPU: synchronous infer requests, or several in flight, in the precision asked for and read back."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import REQUESTS, THREADS, Compiler, Decoder, Executable, Option, threads_of
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.spec.cells import Cell, Device
from pytest_ngraph.workloads.decoding.files import CACHE, NEXT
from pytest_ngraph.workloads.decoding.generation import POSITION, TOKEN

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.explain.profile import Profile
    from pytest_ngraph.workloads.loaded import LoadedWorkload

_HINTS = {"latency": "LATENCY", "throughput": "THROUGHPUT"}
# The plugin computes in this type what the graph leaves open; what is quantised in the graph stays so.
_COMPUTES_IN = {"f32": "f32", "bf16": "bf16", "f16": "f16", "int8": "f32"}
_QUANTISED = {"i8", "u8"}
# Nodes that hold numbers or bring them into another form.
_NO_ARITHMETIC = {"Const", "Convert", "FakeQuantize", "Input", "Output", "Reorder"}
# Convolutions and products of matrices, by the plugin's names.
_COMPUTES = {"Convolution", "Deconvolution", "FullyConnected", "MatMul", "MHA", "ScaledDotProductAttention"}
_STATEFUL = "stateful"
# After so much silence each request is asked whether it failed.
_SILENCE_SECONDS = 1.0


class OpenVinoExecutable(Executable):
    """Infer requests with their inputs set once: 14 us a call of a tiny model, where passing them takes 24 to 42.

    With ``calls_back`` they are also started without waiting for them: each puts itself into a queue when it has
    finished.
    """

    def __init__(
        self, compiled: Any, precision: str, in_flight: int = 1, *, calls_back: bool = False, is_open: bool = False
    ) -> None:
        self.in_flight, self._is_open = in_flight, is_open
        self._compiled, self._precision = compiled, precision
        self._requests = [compiled.create_infer_request() for _ in range(in_flight)]
        self._request = self._requests[0]
        self._inputs: list[Any] = []
        self._done: SimpleQueue[int] = SimpleQueue()
        for slot, request in enumerate(self._requests if calls_back else ()):
            request.set_callback(self._done.put, slot)

    @cached_property
    def placement(self) -> Mapping[str, str | int]:  # type: ignore[override]
        """Read back what really runs. Not part of compiling, for walking the runtime's graph takes its time."""
        import openvino

        def read(name: str) -> str:
            value = self._compiled.get_property(name)
            return str(getattr(value, "name", value))

        nodes = _runtime_nodes(self._compiled)
        kinds = Counter(precision for _, precision, _ in nodes)
        algorithms = Counter(algorithm for layer, _, algorithm in nodes if layer in _COMPUTES)
        return {
            "provider": "+".join(self._compiled.get_property("EXECUTION_DEVICES")),
            "precision": self._computes_in(nodes),
            "runtime_precision": ",".join(f"{kind}:{count}" for kind, count in sorted(kinds.items())),
            "algorithms": ", ".join(f"{name} {count}" for name, count in algorithms.most_common()) or "none",
            "threads": int(self._compiled.get_property("INFERENCE_NUM_THREADS")),
            "streams": int(self._compiled.get_property("NUM_STREAMS")),
            "hint": read("PERFORMANCE_HINT"),
            "execution_mode": read("EXECUTION_MODE_HINT"),
            "pinning": read("ENABLE_CPU_PINNING"),
            **({"input_shapes": self._shapes()} if self._is_open else {}),
            "version": openvino.__version__.partition("-")[0],
        }

    def _computes_in(self, nodes: Sequence[tuple[str, str, str]]) -> str:
        """Return the precision that was asked for, and int8 where convolutions and products are quantised in the graph.

        Both where some of them are. Others that run in eight bits only move such numbers, or read an image of them.
        """
        computing = [kind for layer, kind, _ in nodes if layer in _COMPUTES]
        found = {"int8" if kind in _QUANTISED else self._precision for kind in computing}
        return "+".join(sorted(found or {self._precision}))

    def _shapes(self) -> str:
        """Return the shapes that the compiled model takes, as it says so itself."""
        return ", ".join(f"{port.get_any_name()} {port.get_partial_shape()}" for port in self._compiled.inputs)

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Set the arrays as the inputs, without a copy where they are contiguous. Further requests get copies."""
        import numpy as np
        import openvino

        self._inputs = []
        for slot, request in enumerate(self._requests):
            for port in self._compiled.inputs:
                array = inputs[next(name for name in port.get_names() if name in inputs)]
                # Not ascontiguousarray, which gives a number alone a dimension.
                own = array.copy() if slot else np.require(array, requirements="C")
                tensor = openvino.Tensor(own, shared_memory=True)
                request.set_tensor(port, tensor)
                self._inputs.append(tensor)

    def run(self) -> None:
        """Infer once, synchronously, on what is bound."""
        self._request.infer(share_inputs=True, share_outputs=True)

    def submit(self, slot: int) -> None:
        """Start a slot's request."""
        self._requests[slot].start_async()

    def next_done(self) -> int:
        """Wait for the request that finishes next."""
        while True:
            try:
                slot = self._done.get(timeout=_SILENCE_SECONDS)
            except Empty:
                # One that failed does not call back; to look at it raises why.
                for request in self._requests:
                    request.wait_for(0)
            else:
                # Until its callback has returned a request has none: started before, it might finish unheard.
                self._requests[slot].wait()
                return slot

    def outputs(self) -> Sequence[np.ndarray]:
        """Return the last call's outputs as arrays of their own."""
        return [self._request.get_tensor(port).data.copy() for port in self._compiled.outputs]

    @property
    def request(self) -> Any:
        """Return the request of ``run``."""
        return self._request

    def profiled(self) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return what the nodes took in the last call, of a model compiled to count it, and the nodes of its graph."""
        return list(self._request.get_profiling_info()), list(self._compiled.get_runtime_model().get_ops())

    def close(self) -> None:
        """Release the requests and the compiled model."""
        self._request = self._compiled = None
        self._requests, self._inputs = [], []


class OpenVinoDecoder(Decoder):
    """A request for the prompt, and two for a token in turn: each reads the cache where the one before has left it.

    Logits are copied, since a request writes its next ones to the same place.
    """

    _in_turn = 2

    def __init__(self, first: OpenVinoExecutable, step: Any) -> None:
        """Take the prompt's executable and the compiled model of a token."""
        self._first = first
        self._step = step
        # A port's names are looked up once, and not in each step.
        self._ports = [(port, next(filter(_is_of_a_step, port.get_names()))) for port in step.inputs]
        self._outputs = [[*first.request.model_outputs], [*step.outputs]]
        self._requests = [step.create_infer_request() for _ in range(self._in_turn)]
        self._last: Any = None
        self._next = 0
        self._held: Mapping[str, Any] = {}

    @property
    def placement(self) -> Mapping[str, str | int]:  # type: ignore[override]
        """Return what really runs, of the model of the prompt, and in which precision that of a token computes."""
        kinds = Counter(precision for _, precision, _ in _runtime_nodes(self._step))
        runs = ",".join(f"{kind}:{count}" for kind, count in sorted(kinds.items()))
        return {**self._first.placement, "runtime_precision_of_a_token": runs, "cache": self._cache()}

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Set the prompt."""
        self._first.bind(inputs)

    def first(self) -> np.ndarray:
        """Infer the prompt."""
        self._first.run()
        self._last, self._next = self._first.request, 0
        return self._logits()

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        """Infer a token on the cache that was left last, where it is."""
        import numpy as np
        import openvino

        request = self._requests[self._next]
        given = {TOKEN: token, POSITION: np.array([position])}
        tensors = {name: openvino.Tensor(array, shared_memory=True) for name, array in given.items()}
        self._held = {**tensors, **self._left()}
        for port, name in self._ports:
            request.set_tensor(port, self._held[name])
        request.infer(share_inputs=True, share_outputs=True)
        self._last, self._next = request, (self._next + 1) % self._in_turn
        return self._logits()

    def close(self) -> None:
        """Release the requests and both models."""
        self._first.close()
        self._last = self._step = None
        self._requests, self._ports, self._outputs, self._held = [], [], [], {}

    def _left(self) -> Mapping[str, Any]:
        """Return the cache that was left last, by the names of a step's inputs."""
        ports = self._outputs[self._last is not self._first.request][1:]
        return {CACHE.format(index): self._last.get_tensor(port) for index, port in enumerate(ports)}

    def _cache(self) -> str:
        """Return how the cache goes from a step to the next."""
        return "past inputs"

    def _logits(self) -> np.ndarray:
        port = self._outputs[self._last is not self._first.request][0]
        array: np.ndarray = self._last.get_tensor(port).data.copy()
        return array


class OpenVinoStatefulDecoder(OpenVinoDecoder):
    """A request for the prompt, and one for a token, in which the cache stays: it is variables of the model.

    Each call begins with what its own prompt gave, in place of all that the call before has left there.
    """

    _in_turn = 1

    def __init__(self, first: OpenVinoExecutable, step: Any) -> None:
        """Take the prompt's executable and the compiled model of a token. Raise CompileFailed without its variables."""
        super().__init__(first, step)
        known = {state.name: state for state in self._requests[0].query_state()}
        caches = [(_variable(index), port) for index, port in enumerate(self._outputs[0][1:])]
        self._states = [(known.pop(name), port) for name, port in caches if name in known]
        if known or not self._states:
            named = ", ".join(known) or "none"
            raise CompileFailed(f"openvino: variables of a token that no output of the prompt begins: {named}")

    def first(self) -> np.ndarray:
        """Infer the prompt, and begin the state with the cache that it gives."""
        logits = super().first()
        for state, port in self._states:
            state.state = self._last.get_tensor(port)
        return logits

    def close(self) -> None:
        """Release the state, the requests and both models."""
        self._states = []
        super().close()

    def _left(self) -> Mapping[str, Any]:
        return {}

    def _cache(self) -> str:
        kinds = {state.state.element_type.get_type_name() for state, _ in self._states}
        asked = self._step.get_property("KV_CACHE_PRECISION").get_type_name()
        return f"{len(self._states)} variables of the model, {','.join(sorted(kinds))} ({asked})"


class OpenVinoCompiler(Compiler):
    """``openvino[hint=latency|throughput,streams=N]``: the CPU plugin on the shared ONNX file.

    Without ``hint`` it is the cell's scenario. Without ``requests=N`` the runtime says how many calls are in flight.
    With ``stateful=on`` the cache of a cell that decodes is variables of the model, else inputs and outputs of it.
    """

    name = "openvino"
    requires = ("openvino",)
    variables = ("OPENVINO_", "OV_")
    extra = "openvino"
    reads = "onnx"
    precisions = tuple(_COMPUTES_IN)
    scenarios = tuple(_HINTS)
    shapes = ("static", "dynamic")
    decodes = True
    verified: Mapping[str, str] = {"cpu": "x86-64 Linux"}
    options = (
        THREADS,
        Option("hint", "scenario", "What the runtime tunes itself for", choices=("scenario", *_HINTS)),
        Option("streams", "0", "Parallel streams; 0 leaves it to the hint", kind="int", minimum=0),
        REQUESTS,
        Option(_STATEFUL, "off", "The cache of decode= as variables of the model", choices=("on", "off")),
    )

    def load(self) -> None:
        """Import the runtime without its telemetry."""
        _import_openvino()

    def why_not(self, cell: Cell, device: Device) -> str | None:
        """Return the reason of the base class, or that there is no cache to keep."""
        if _STATEFUL in dict(cell.compiler.options) and cell.workload.decode is None:
            return f"option {_STATEFUL}: it is of the cache of decode=, and this cell generates no tokens"
        return super().why_not(cell, device)

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Read the workload's ONNX file and compile it for the CPU in the workload's precision.

        Raises Unsupported where this CPU would run it in another.
        """
        return self._compile(workload, device, options, {})

    def explain(
        self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], executable: Executable, calls: int
    ) -> Profile:
        """Profile another compiled model, which counts what its nodes take."""
        from pytest_ngraph.explain.runtimes.openvino import profile

        return profile(self._compile(workload, device, options, {"PERF_COUNT": True}), workload.inputs, calls)

    def _compile(
        self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], further: Mapping[str, Any]
    ) -> Executable:
        openvino = _import_openvino()
        core = openvino.Core()
        scenario, precision = workload.spec.scenario, workload.spec.base_precision
        hint = scenario if options["hint"] == "scenario" else options["hint"]
        settings: dict[str, Any] = {
            # By itself it takes bf16 where the CPU has it: half the time at 1e-2 of error.
            "INFERENCE_PRECISION_HINT": _COMPUTES_IN[precision],
            "PERFORMANCE_HINT": _HINTS[hint],
            "INFERENCE_NUM_THREADS": threads_of(device, options),
            # The worker's CPU affinity says where threads run, for this compiler as for every other.
            "ENABLE_CPU_PINNING": False,
            **further,
        }
        if options["streams"]:
            settings["NUM_STREAMS"] = options["streams"]
        piped = scenario == "throughput"
        if piped and options["requests"]:
            settings["PERFORMANCE_HINT_NUM_REQUESTS"] = options["requests"]
        is_open = bool(workload.open_axes)
        compiled = _compiled(core, workload.onnx_path, precision, settings, is_open=is_open)
        if workload.spec.decode is not None:
            path, first = workload.step_onnx_path, OpenVinoExecutable(compiled, precision)
            if options[_STATEFUL] == "off":
                return OpenVinoDecoder(first, _compiled(core, path, precision, settings))
            # By itself the plugin may keep such a cache in eight bits.
            kept = {**settings, "KV_CACHE_PRECISION": _COMPUTES_IN[precision]}
            return OpenVinoStatefulDecoder(first, _compiled(core, path, precision, kept, adjust=_make_stateful))
        if not piped:
            return OpenVinoExecutable(compiled, precision, is_open=is_open)
        requests = options["requests"] or int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        return OpenVinoExecutable(compiled, precision, requests, calls_back=True, is_open=is_open)


def _is_of_a_step(name: str) -> bool:
    """Return whether a tensor goes by the name of an input of a step."""
    return name in (TOKEN, POSITION) or name.startswith(CACHE.format(""))


def _variable(index: int) -> str:
    """Return the name of the variable that holds a tensor of the cache: MakeStateful gives it this one."""
    return CACHE.format(index) + NEXT.format(index)


def _make_stateful(model: Any) -> None:
    """Make variables of the inputs of a step that are its cache, and of the outputs that are the next one."""
    from openvino.passes import MakeStateful, Manager

    given = {name for port in model.inputs for name in port.get_names() if name not in (TOKEN, POSITION)}
    pairs = {CACHE.format(index): NEXT.format(index) for index in range(len(model.outputs) - 1)}
    manager = Manager()
    manager.register_pass(MakeStateful({name: follows for name, follows in pairs.items() if name in given}))
    manager.run_passes(model)


def _compiled(
    core: Any,
    path: Path,
    precision: str,
    settings: Mapping[str, Any],
    *,
    is_open: bool = False,
    adjust: Callable[[Any], None] = lambda model: None,
) -> Any:
    """Read an ONNX file and compile it for the CPU. Raise Unsupported where it cannot be had in the precision.

    ``adjust`` changes what was read before it is compiled.
    """
    import openvino

    try:
        model = core.read_model(path)
    except RuntimeError as error:
        raise Unsupported(f"openvino {openvino.__version__} cannot read it: {_gist(error)}") from error
    if model.is_dynamic() and not is_open:
        raise Unsupported("openvino: the ONNX file has dynamic shapes, which are another measurement")
    adjust(model)
    try:
        compiled = core.compile_model(model, "CPU", settings)
    except RuntimeError as error:
        raise CompileFailed(f"openvino {openvino.__version__}: {_gist(error)}") from error
    _check_precision(compiled, precision, openvino.__version__)
    return compiled


def _check_precision(compiled: Any, precision: str, version: str) -> None:
    """Raise Unsupported where the plugin computes in another type than was asked for, which it does silently."""
    used = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    if used != _COMPUTES_IN[precision]:
        raise Unsupported(f"openvino {version}: this CPU has no {precision}, it would compute in {used}")
    if precision == "int8":
        computing = {kind for layer, kind, _ in _runtime_nodes(compiled) if layer not in _NO_ARITHMETIC}
        if not computing & _QUANTISED:
            raise Unsupported(f"openvino {version}: no node of the quantised graph would compute in int8")


def _runtime_nodes(compiled: Any) -> list[tuple[str, str, str]]:
    """Return the kind of each node of the compiled graph, the type that it runs in and what computes it."""
    each = [node.get_rt_info() for node in compiled.get_runtime_model().get_ops()]
    return [
        (facts["layerType"].astype(str), facts["runtimePrecision"].astype(str), facts["primitiveType"].astype(str))
        for facts in each
    ]


def _import_openvino() -> Any:
    """Import OpenVINO without its telemetry, which writes into the home folder and calls home from a thread."""
    # Where that package cannot be imported OpenVINO takes the stub that it brings for this case.
    absent = sys.modules.setdefault("openvino_telemetry", None) is None  # type: ignore[arg-type]
    import openvino

    if absent:
        del sys.modules["openvino_telemetry"]
    return openvino


def _gist(error: Exception) -> str:
    """Return what happened: the last line that is not about where in the C++ sources it happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Exception from", "Check '"))]
    return (telling or lines or [type(error).__name__])[-1]


COMPILER = OpenVinoCompiler()
