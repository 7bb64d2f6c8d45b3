"""ONNX Runtime on its provider for the CPU, CUDA, TensorRT or OpenVINO: one session with every setting explicit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import REQUESTS, THREADS, Compiler, Executable, Option, threads_of
from pytest_ngraph.compilers.onnxruntime import providers
from pytest_ngraph.compilers.onnxruntime.decoding import OnnxRuntimeDecoder
from pytest_ngraph.compilers.toolkit.copies import median_seconds
from pytest_ngraph.compilers.toolkit.in_flight import ThreadedRequests
from pytest_ngraph.errors import CompileFailed, SpecError, Unsupported
from pytest_ngraph.machine import gpu
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.compilers.toolkit.kept import Kept
    from pytest_ngraph.explain.profile import Profile
    from pytest_ngraph.workloads.loaded import LoadedWorkload

_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "layout": "ORT_ENABLE_LAYOUT",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "disabled": "ORT_DISABLE_ALL",
}
_NAMED = ("cuda", "tensorrt", "openvino")
# The providers whose kernels are for any shape.
_OPEN = ("cpu", "cuda")
# What NumPy calls otherwise than ONNX.
_KINDS = {"float": "float32", "double": "float64", "bool": "bool_"}
_ERRORS_ONLY = 3
_STOP_SPINNING = "session.force_spinning_stop"
# On a GPU one request computes while the next is being enqueued.
_GPU_REQUESTS = 2


class OnnxRuntimeExecutable(Executable):
    """A session with its inputs and outputs bound: 6.4 us a call of a tiny model where session.run takes 8.5.

    ``place`` is where inputs and outputs live, such as ``("cuda", 0)``. With ``requests``, as many calls may be in
    flight, each on a binding of its own and in a thread of its own, because a call is synchronous.
    """

    def __init__(
        self, session: Any, placement: Mapping[str, str | int], place: tuple[str, int], requests: int = 0
    ) -> None:
        self._session = session
        self._place = place
        self.enqueues = place[0] != "cpu"
        self._binding: Any = None
        self._bindings: list[Any] = []
        self._arrays: list[np.ndarray] = []
        self._inputs: list[Any] = []
        # What profiles the same session once more: see ``OnnxRuntimeCompiler.explain``.
        self.setup: _Setup | None = None
        self._requests = ThreadedRequests([partial(self._call, slot) for slot in range(requests)])
        self.in_flight = max(1, requests)
        self.placement = placement

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Bind the inputs, and leave each output's buffer to the runtime.

        On the CPU the first slot has the arrays themselves, without a copy. Every other slot has its own.
        """
        from onnxruntime import OrtValue

        # An exporter drops inputs that the graph does not use.
        used = [each.name for each in self._session.get_inputs()]
        self._arrays, self._bindings, self._inputs = [inputs[name] for name in used], [], []
        for slot in range(self.in_flight):
            binding = self._session.io_binding()
            for name, array in zip(used, self._arrays, strict=True):
                mine = array.copy() if slot else array
                self._inputs.append(OrtValue.ortvalue_from_numpy(mine, *self._place))
                binding.bind_ortvalue_input(name, self._inputs[-1])
            for each in self._session.get_outputs():
                binding.bind_output(each.name, *self._place)
            self._bindings.append(binding)
        self._binding = self._bindings[0]

    def run(self) -> None:
        """Run the session once on what is bound."""
        self._session.run_with_iobinding(self._binding)

    def synchronize(self) -> None:
        """Wait for the outputs where they are on a GPU."""
        if self._place[0] != "cpu":
            self._binding.synchronize_outputs()

    def outputs(self) -> Sequence[np.ndarray]:
        """Return the last call's outputs as arrays of their own."""
        return [array.copy() for array in self._binding.copy_outputs_to_cpu()]

    def device_times(self) -> Mapping[str, float] | None:
        """Return the seconds of copying to a GPU and back. How long it computes ONNX Runtime does not say."""
        from onnxruntime import OrtValue

        if self._place[0] == "cpu":
            return None
        return {
            "copy_in_seconds": median_seconds(
                lambda: [OrtValue.ortvalue_from_numpy(array, *self._place) for array in self._arrays]
            ),
            "copy_out_seconds": median_seconds(self._binding.copy_outputs_to_cpu),
        }

    def submit(self, slot: int) -> None:
        """Start a call in a slot's thread."""
        self._requests.submit(slot)

    def next_done(self) -> int:
        """Wait for the call that finishes next."""
        return self._requests.next_done()

    def close(self) -> None:
        """End the threads, then release the session and what is bound to it."""
        self._requests.close()
        self._session = self._binding = None
        self._arrays, self._bindings, self._inputs = [], [], []

    def _call(self, slot: int) -> None:
        binding = self._bindings[slot]
        self._session.run_with_iobinding(binding)
        if self._place[0] != "cpu":
            binding.synchronize_outputs()


class OnnxRuntimeCompiler(Compiler):
    """``onnxruntime[graph=all|layout|extended|basic|disabled]``: operators one after the other.

    Without ``cuda``, ``tensorrt`` or ``openvino`` the provider is the device's own: the CPU's, or CUDA's on a GPU.
    """

    name = "onnxruntime"
    requires = ("onnxruntime",)
    variables = ("ORT_",)
    extra = "onnxruntime"
    reads = "onnx"
    accelerators = ("cpu", "cuda")
    precisions = ("f32", "tf32", "f16", "bf16", "int8")
    scenarios = ("latency", "throughput")
    shapes = ("static", "dynamic")
    decodes = True
    verified: Mapping[str, str] = {"cpu": "x86-64 Linux", "cuda": "unverified on hardware"}
    options = (
        THREADS,
        Option("graph", "all", "How far the graph is optimised", choices=tuple(_LEVELS)),
        Option("cuda", "", "Run on the provider for CUDA, as on a GPU by default", kind="flag"),
        Option("tensorrt", "", "Run on the provider for TensorRT", kind="flag"),
        Option("openvino", "", "Run on the provider for OpenVINO, on the CPU", kind="flag"),
        Option("fallback", "off", "Leave what the provider does not take to others", choices=("on", "off")),
        REQUESTS,
    )

    def resolve(self, spec: CompilerSpec) -> dict[str, Any]:
        """Return the options in their types. Raise SpecError where more than one provider is named, too."""
        values = super().resolve(spec)
        named = [key for key in _NAMED if values[key]]
        if len(named) > 1:
            raise SpecError(f"compiler {str(spec)!r}: takes one provider, not {' and '.join(named)}")
        return values

    def found_beside(self, spec: CompilerSpec, device: Device, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Return the versions of NVIDIA's libraries that the provider for a GPU computes with, as far as pip has them.

        ONNX Runtime is built for a range of them, and takes what is installed.
        """
        named = dict(spec.options)
        return providers.libraries_of(_chosen({key: key in named for key in _NAMED}, device))

    def open(self, device: Device) -> None:
        """Find the GPU, so that no compile time contains that. Where it cannot be found, what asks for it says so."""
        if device.accelerator != "cpu":
            with suppress(SpecError):
                gpu.find(device.accelerator)

    def why_not(self, cell: Cell, device: Device) -> str | None:
        """Return the reason of the base class or of the provider, or that it is not installed."""
        key = _chosen(self.resolve(cell.compiler), device)
        if cell.workload.shapes != "static" and key not in _OPEN:
            return f"shapes {cell.workload.shapes} on the provider for {key}, which builds again for other shapes"
        if key in _NAMED[1:] and cell.workload.decode is not None:
            return f"decode={cell.workload.decode} on its provider for {key} (it decodes on the CPU's and on CUDA's)"
        return super().why_not(cell, device) or providers.why_not(key, cell.workload.base_precision, device)

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Open a session on the workload's ONNX file."""
        import onnxruntime

        key = _chosen(options, device)
        wanted, precision = providers.PROVIDERS[key], workload.spec.base_precision
        if wanted.name not in onnxruntime.get_available_providers():
            raise Unsupported(wanted.absent)
        providers.check_precision(precision, device)
        level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[options["graph"]], None)
        if level is None:
            raise Unsupported(f"onnxruntime {onnxruntime.__version__} has no graph={options['graph']}")
        on_gpu, threads, requests = wanted.accelerator != "cpu", threads_of(device, options), 0
        if workload.spec.scenario == "throughput":
            requests = options["requests"] or (_GPU_REQUESTS if on_gpu else threads)
        in_flight = max(1, requests)
        chain = {"tensorrt": ("tensorrt", "cuda", "cpu"), "cpu": ("cpu",)}.get(key, (key, "cpu"))
        setup = _Setup(
            workload,
            level,
            # The pool of a session serves all its calls, beside the thread of each call.
            max(1, threads - in_flight + 1),
            tuple(
                (providers.PROVIDERS[each].name, providers.settings_of(each, device, precision, threads, in_flight))
                for each in chain
            ),
            strict=options["fallback"] == "off" and key != "cpu",
        )
        # The session's own severity does not cover what is logged before there is a session.
        onnxruntime.set_default_logger_severity(_ERRORS_ONLY)
        providers.make_ready(key)
        keep = workload.kept if key == "tensorrt" else None
        session, loaded = (setup.open(), None) if keep is None else setup.open_kept(keep)
        nodes = setup.nodes_on(session, wanted.name)
        used = session.get_session_options()
        set_up = session.get_provider_options().get(wanted.name, {})
        placement: dict[str, str | int] = {
            "provider": session.get_providers()[0],
            "nodes": _written(nodes, wanted.name),
            # A provider runs the graph in the types it is written in, but for what it has no arithmetic for.
            **providers.computes(key, workload.graph_precision),
            **({"tf32": "on" if set_up.get("use_tf32") == "1" else "off"} if on_gpu else {}),
            "threads": used.intra_op_num_threads + in_flight - 1,
            **({"requests": requests} if requests else {}),
            **({"input_shapes": _shapes(session)} if workload.open_axes else {}),
            "graph": used.graph_optimization_level.name,
            "execution": used.execution_mode.name,
            **({"spinning": "stops after each call"} if _takes_turns(workload) else {}),
            "version": onnxruntime.__version__,
        }
        place = ("cuda", int(device.accelerator.partition(":")[2] or 0)) if on_gpu else ("cpu", 0)
        if workload.spec.decode is not None:
            step, of_step = replace(setup, is_step=True).opened(wanted.name)
            placement |= {"nodes_of_a_token": _written(of_step, wanted.name)}
            return OnnxRuntimeDecoder((session, step), placement, place)
        executable = OnnxRuntimeExecutable(session, placement, place, requests)
        executable.loaded, executable.setup = loaded, setup
        return executable

    def explain(
        self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], executable: Executable, calls: int
    ) -> Profile:
        """Profile a session of its own. Raise Unsupported on a GPU, whose nodes it sees enqueued only."""
        from pytest_ngraph.explain.runtimes.onnxruntime import profile

        setup = executable.setup if isinstance(executable, OnnxRuntimeExecutable) else None
        if setup is None or executable.enqueues:
            raise Unsupported("onnxruntime's profile says of a GPU's nodes how long they take to enqueue, not to run")

        def bound(session: Any) -> Executable:
            made = OnnxRuntimeExecutable(session, {}, ("cpu", 0))
            made.bind(workload.inputs)
            return made

        return profile(setup.open, bound, calls)


@dataclass(frozen=True)
class _Setup:
    """All that a session is opened with. ``chain`` is providers and their options, the wanted one first.

    With ``is_step`` it is of one token, where the workload decodes. A ``strict`` one has the wanted provider alone, and
    ONNX Runtime refuses to leave a node to the CPU.
    """

    workload: LoadedWorkload
    level: Any
    threads: int
    chain: tuple[tuple[str, Mapping[str, str]], ...]
    strict: bool
    is_step: bool = False

    def open(self, adjust: Callable[[Any], None] = lambda settings: None) -> Any:
        """Return a session that runs on the wanted provider. Raise Unsupported or CompileFailed where it does not."""
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as errors

        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = _ERRORS_ONLY
        settings.graph_optimization_level = self.level
        settings.intra_op_num_threads = self.threads
        settings.inter_op_num_threads = 1
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        if _takes_turns(self.workload):
            # Threads look for work for a while after a call, and take the CPUs from the session that is called next.
            settings.add_session_config_entry(_STOP_SPINNING, "1")
        settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        if self.strict:
            settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        adjust(settings)
        asked = list(self.chain[:1] if self.strict else self.chain)
        wanted, version = asked[0][0], f"onnxruntime {onnxruntime.__version__}"
        unstarted = (
            f"{version}: {wanted} cannot be started, its libraries are missing or of another version (see the log)"
        )
        try:
            # By itself it tries again on the CPU where a provider fails, and says so on the standard output.
            session = onnxruntime.InferenceSession(str(self._path), settings, providers=asked, enable_fallback=0)
        except errors.NotImplemented as error:
            raise Unsupported(f"{version}: {_first_line(error)}") from error
        except (errors.Fail, errors.InvalidArgument, errors.InvalidGraph, errors.InvalidProtobuf) as error:
            if self.strict and "fallback to CPU EP has been explicitly disabled" in str(error):
                raise Unsupported(f"{version}: {self._left_over()} (fallback=on leaves them to others)") from error
            raise CompileFailed(f"{version}: {_first_line(error)}") from error
        except RuntimeError as error:
            # TensorRT's provider raises where others leave it to the CPU's.
            if "Please install" in str(error):
                raise CompileFailed(unstarted) from error
            raise
        if session.get_providers()[0] != wanted:
            raise CompileFailed(unstarted)
        return session

    @property
    def _path(self) -> Path:
        """Return the ONNX file: TensorRT takes neither zero points nor offsets in integers."""
        of_tensorrt = self.chain[0][0] == providers.PROVIDERS["tensorrt"].name
        if self.is_step:
            return self.workload.step_onnx_path
        return self.workload.symmetric_onnx_path if of_tensorrt else self.workload.onnx_path

    def open_kept(self, keep: Kept) -> tuple[Any, bool]:
        """Return a session on TensorRT, and whether the engines that it had built before were all it needed."""
        import onnxruntime

        facts = {
            "versions": [onnxruntime.__version__, version_of("tensorrt")],
            "chain": [[name, dict(settings)] for name, settings in self.chain],
            "strict": self.strict,
            "graph": self.level.name,
        }
        timings = keep.records(OnnxRuntimeCompiler.name, facts)
        opened: list[Any] = []

        def build(engines: Path) -> Mapping[str, Any]:
            opened.append(self._keeping(engines, timings).open())
            return {}

        engines, _, _ = keep.built(OnnxRuntimeCompiler.name, {**facts, "file": self._path.name}, build)
        if opened:
            return opened[0], False
        before = set(engines.iterdir())
        return self._keeping(engines, timings).open(), set(engines.iterdir()) == before

    def opened(self, wanted: str) -> tuple[Any, providers.Nodes | None]:
        """Return a session, and its nodes as ``nodes_on`` does."""
        session = self.open()
        return session, self.nodes_on(session, wanted)

    def nodes_on(self, session: Any, wanted: str) -> providers.Nodes | None:
        """Return the same as ``nodes``. Raise Unsupported where the wanted provider took none of them."""
        import onnxruntime

        nodes = self.nodes(session)
        if nodes and not providers.tally(nodes, wanted)[wanted]:
            what = "a token: " if self.is_step else ""
            raise Unsupported(f"onnxruntime {onnxruntime.__version__}: {what}{providers.left_over(nodes, wanted)}")
        return nodes

    def nodes(self, session: Any) -> providers.Nodes | None:
        """Return which provider took how many nodes, or None where ONNX Runtime does not say and it can only be all."""
        if self.strict or len(self.chain) == 1:
            return providers.nodes_of(session)
        return self._counted(session)

    def _keeping(self, engines: Path, timings: Path) -> _Setup:
        (name, settings), *rest = self.chain
        return replace(self, chain=((name, providers.with_caches(settings, engines, timings)), *rest))

    def _counted(self, session: Any) -> providers.Nodes:
        return providers.nodes_of(session) or providers.profiled_nodes(self.open, self._inputs_of)

    def _inputs_of(self, session: Any) -> Mapping[str, np.ndarray]:
        """Return what a session can be called with once: the workload's inputs, or zeros for a token and its cache."""
        import numpy as np

        if not self.is_step:
            return {each.name: self.workload.inputs[each.name] for each in session.get_inputs()}
        return {each.name: np.zeros(each.shape, _numpy_kind(each)) for each in session.get_inputs()}

    def _left_over(self) -> str:
        """Return what the wanted provider does not take, which takes a look at a session that has others too."""
        loose = replace(self, strict=False)
        return providers.left_over(loose._counted(loose.open()), self.chain[0][0])


def _numpy_kind(given: Any) -> Any:
    """Return the kind of numbers that a session takes for an input. Raise Unsupported for one that NumPy lacks."""
    import numpy as np

    named = given.type.removeprefix("tensor(").removesuffix(")")
    kind = getattr(np, _KINDS.get(named, named), None)
    if kind is None:
        raise Unsupported(
            f"a token takes {given.name} as {given.type}, which NumPy has none of, and before ONNX Runtime 1.24 only a "
            "call says which provider takes which nodes: a newer one, or a cache of float16 or float32"
        )
    return kind


def _chosen(options: Mapping[str, Any], device: Device) -> str:
    """Return the key of the provider that is named, else of the device's own."""
    return next((key for key in _NAMED if options[key]), device.accelerator.partition(":")[0])


def _takes_turns(workload: LoadedWorkload) -> bool:
    """Return whether a cell calls this session and others in turn: those of other buckets, or prompt and token."""
    return workload.is_bucket or workload.spec.decode is not None


def _written(nodes: providers.Nodes | None, wanted: str) -> str:
    if nodes is None:
        return f"{wanted}:all"
    return ",".join(f"{name}:{count}" for name, count in providers.tally(nodes, wanted).items())


def _shapes(session: Any) -> str:
    """Return the shapes that a session takes, as it says so itself: open axes by their names."""
    return ", ".join(f"{each.name} [{','.join(map(str, each.shape))}]" for each in session.get_inputs())


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


COMPILER = OnnxRuntimeCompiler()
