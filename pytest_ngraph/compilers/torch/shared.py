"""What the compilers that start from a PyTorch module share: where they run, how a call is made, what really ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar
from warnings import catch_warnings, filterwarnings

from pytest_ngraph.compilers.base import REQUESTS, THREADS, Compiler, Executable, Option, threads_of
from pytest_ngraph.compilers.toolkit import torch_cuda
from pytest_ngraph.compilers.toolkit.in_flight import ThreadedRequests
from pytest_ngraph.compilers.torch.onednn import algorithms_of
from pytest_ngraph.machine import clock
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.spec.cells import Cell, Device

if TYPE_CHECKING:
    import numpy as np
    import torch

    from pytest_ngraph.workloads.loaded import LoadedWorkload

_SHORT = {"torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16", "torch.float64": "f64"}
# Calls in flight on a GPU by default: more of them wait for the one thread that enqueues them all.
_STREAMS = 4
_COPIES = 7


class TorchCompiler(Compiler):
    """What every compiler of PyTorch modules can do, and where."""

    requires = ("torch",)
    extra = "torch"
    variables = ("ATEN_", "PYTORCH_", "TORCH", "TRITON_")
    options: tuple[Option, ...] = (THREADS, REQUESTS)
    accelerators = ("cpu", "cuda")
    precisions = ("f32", "tf32", "f16", "bf16")
    scenarios = ("latency", "throughput")
    shapes = ("static", "dynamic")
    verified: Mapping[str, str] = {"cpu": "x86-64 Linux", "cuda": "unverified on hardware"}

    def why_not(self, cell: Cell, device: Device) -> str | None:
        """Return the reason of the base class, TF32 on a CPU, or a GPU with a PyTorch that was built without CUDA."""
        if reason := super().why_not(cell, device):
            return reason
        if device.accelerator == "cpu":
            return "precision tf32 (only NVIDIA GPUs have it)" if cell.workload.precision == "tf32" else None
        version = version_of("torch") or ""
        if version.endswith("+cpu"):
            return f"torch {version} is built without CUDA (pytorch.org/get-started says how to install one with it)"
        return None

    def open(self, device: Device) -> None:
        """Open the device, so that no compile time contains it. Raise Unsupported where PyTorch cannot use it."""
        if device.accelerator != "cpu":
            torch_cuda.open_device(device.accelerator)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where and how the calls of a cell run: ``threads`` are those of one call, ``in_flight`` the calls side by side.

    Threads and TF32 are settings of the whole process, which cells share: ``current`` is whose settings it has.
    """

    accelerator: str
    device: torch.device
    threads: int
    in_flight: int
    tf32: bool
    current: ClassVar[Place | None] = None

    def settle(self) -> None:
        """Make this place's settings those of the process, for calls from this thread."""
        import torch

        set_threads(self.threads)
        if self.accelerator == "cpu":
            torch.set_float32_matmul_precision("highest")
        else:
            torch_cuda.settle(self.tf32)
        Place.current = self


def take_place(workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Place:
    """Open the device and settle where the calls of a cell will run.

    Calls in flight share the threads of a CPU. On a GPU each has a stream of its own and one thread enqueues them all.
    Raises Unsupported where PyTorch or the GPU cannot do it.
    """
    import torch

    threads, in_flight, precision = threads_of(device, options), 1, workload.spec.base_precision
    on_cpu = device.accelerator == "cpu"
    if workload.spec.scenario == "throughput":
        in_flight = options["requests"] or (threads if on_cpu else _STREAMS)
        threads = max(1, threads // in_flight) if on_cpu else threads
    if on_cpu:
        opened = torch.device("cpu")
    else:
        opened = torch_cuda.open_device(device.accelerator)
        torch_cuda.check_precision(opened, precision)
    place = Place(device.accelerator, opened, threads, in_flight, tf32=precision == "tf32")
    place.settle()
    return place


def set_threads(threads: int) -> None:
    """Give one operator this many threads, and run no two operators beside each other."""
    import torch

    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        # PyTorch refuses this call once it has run anything in parallel, hence only where it is needed.
        torch.set_num_interop_threads(1)


def load_module(workload: LoadedWorkload, place: Place) -> Any:
    """Return the workload's module on the device, with the settings undone that its file may have made."""
    module = workload.module().to(place.device)
    place.settle()
    return module


def arguments_on(
    place: Place, workload: LoadedWorkload, inputs: Mapping[str, np.ndarray]
) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """Return the positional and keyword arguments of a call, on the device. On a CPU they are the inputs' memory."""
    positional, keywords = workload.arguments(dict(inputs))
    there = {name: tensor.to(place.device) for name, tensor in keywords.items()}
    return tuple(tensor.to(place.device) for tensor in positional), there


class Tally:
    """How many graphs a cell has compiled, how many of them while it was built, and how many weights are inputs of one.

    Weights that are inputs are no constants: nothing can be computed of them beforehand.
    """

    def __init__(self) -> None:
        self.graphs = self._built = self.weights = 0

    def done(self) -> None:
        """Note that the cell is built: from now on it compiles again."""
        self._built = self.graphs

    @property
    def again(self) -> int:
        """Return how many graphs were compiled since."""
        return self.graphs - self._built


class Tallied(Executable):
    """What says of itself how often it has compiled again, where ``tally`` counts it."""

    compiled: Any = None
    tally: Tally | None = None

    @property
    def recompiles(self) -> int | None:  # type: ignore[override]
        """Return how often it has compiled since it was built."""
        return None if self.tally is None else self.tally.again


class TorchExecutable(Tallied):
    """A callable of PyTorch, called on tensors under inference mode.

    ``compiled`` is what it was made of, where its profile is read by that.
    """

    def __init__(
        self, call: Callable[..., Any], workload: LoadedWorkload, place: Place, placement: Mapping[str, str | int]
    ) -> None:
        import torch

        self._call: Any = call
        self._workload = workload
        self._place = place
        self._arguments: tuple[Any, ...] = ()
        self._keywords: Mapping[str, Any] = {}
        self._result: Any = None
        # One object for all calls: making it each time costs 1 us of the 11 us of a tiny convolution.
        self._mode = torch.inference_mode()
        self.placement = placement

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Turn the inputs into the positional and keyword tensors of the module's forward, where they live."""
        self._arguments, self._keywords = arguments_on(self._place, self._workload, inputs)

    def leave_open(self, axes: Mapping[str, Sequence[int]]) -> None:
        """Tell torch.compile which axes of the inputs that are bound it must not fix."""
        tensors = {**dict(zip(self._workload.inputs, self._arguments, strict=False)), **self._keywords}
        for name, open_ones in axes.items():
            for axis in open_ones:
                import torch._dynamo

                torch._dynamo.mark_dynamic(tensors[name], axis)

    def run(self) -> None:
        """Call once under inference mode. On a GPU it is enqueued only."""
        if Place.current is not self._place:
            self._place.settle()
        with self._mode:
            self._result = self._call(*self._arguments, **self._keywords)

    def outputs(self) -> Sequence[np.ndarray]:
        """Return the last call's outputs as arrays of their own."""
        tensors = (tensor.detach().resolve_conj().resolve_neg() for tensor in self._workload.flatten(self._result))
        return [tensor.cpu().numpy().copy() for tensor in tensors]

    def close(self) -> None:
        """Release the compiled call, its inputs and its outputs."""
        self._call = self._result = None
        self._arguments, self._keywords = (), {}


class CpuExecutable(TorchExecutable):
    """The same on a CPU, where oneDNN says by which algorithms it computes."""

    _facts: Mapping[str, str | int]
    _algorithms: str | None

    @property
    def placement(self) -> Mapping[str, str | int]:
        """Return the facts of the compilation and, once a call can be made, what oneDNN computes of one."""
        if self._algorithms is None and (self._arguments or self._keywords):
            self._algorithms = algorithms_of(self._call_once) or ""
        return {**self._facts, **({"algorithms": self._algorithms} if self._algorithms else {})}

    @placement.setter
    def placement(self, facts: Mapping[str, str | int]) -> None:
        self._facts, self._algorithms = dict(facts), None

    def _call_once(self) -> None:
        """Call and leave the last call's outputs and the inputs as they are: a model may write into its inputs."""
        before = self._result, self._arguments, self._keywords
        self._arguments = tuple(tensor.clone() for tensor in self._arguments)
        self._keywords = {name: tensor.clone() for name, tensor in self._keywords.items()}
        self.run()
        self._result, self._arguments, self._keywords = before


class CudaExecutable(TorchExecutable):
    """The same on a GPU: inputs and outputs stay there, and calls are waited for only on request."""

    enqueues = True

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Copy the inputs to the GPU and wait until they are there, for whichever stream."""
        super().bind(inputs)
        self.synchronize()

    def synchronize(self) -> None:
        """Wait until the GPU has done all that was enqueued."""
        import torch

        torch.cuda.synchronize(self._place.device)

    def device_times(self) -> Mapping[str, float]:
        """Return the seconds of a call by the GPU's own clock, and those of copying inputs in and outputs out.

        Copies are from and to pageable memory, by the host's clock. All are medians of some.
        """
        return {
            "device_call_seconds": torch_cuda.device_seconds(self.run),
            "copy_in_seconds": self._seconds(lambda: self.bind(self._workload.inputs)),
            "copy_out_seconds": self._seconds(
                lambda: [tensor.cpu() for tensor in self._workload.flatten(self._result)]
            ),
        }

    def _seconds(self, copy: Callable[[], Any]) -> float:
        def once() -> float:
            began = clock.seconds()
            copy()
            self.synchronize()
            return clock.seconds() - began

        self.synchronize()
        return median(once() for _ in range(_COPIES))


class ConcurrentExecutable(Tallied):
    """Calls in flight side by side: in each slot an executable with inputs and outputs of its own."""

    def __init__(self, slots: Sequence[TorchExecutable], place: Place, placement: Mapping[str, str | int]) -> None:
        self.in_flight = len(slots)
        self.enqueues = place.accelerator != "cpu"
        self.placement = placement
        self._slots, self._place = slots, place

    @cached_property
    def _requests(self) -> ThreadedRequests | torch_cuda.StreamedRequests:
        """Return what starts the calls. Its threads are made when the first call is submitted."""
        if self._place.accelerator == "cpu":
            return ThreadedRequests([_in_own_thread(slot.run, self._place.threads) for slot in self._slots])
        return torch_cuda.StreamedRequests([slot.run for slot in self._slots], self._place.device)

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Give each slot inputs of its own."""
        for slot in self._slots:
            slot.bind({name: array.copy() for name, array in inputs.items()})

    def leave_open(self, axes: Mapping[str, Sequence[int]]) -> None:
        """Tell torch.compile which axes of the first slot's inputs it must not fix."""
        self._slots[0].leave_open(axes)

    def run(self) -> None:
        """Call once, in the first slot and from this thread."""
        self._slots[0].run()

    def outputs(self) -> Sequence[np.ndarray]:
        """Return the outputs of the first slot's last call."""
        return self._slots[0].outputs()

    def synchronize(self) -> None:
        """Wait until the last call of ``run`` has finished."""
        self._slots[0].synchronize()

    def submit(self, slot: int) -> None:
        """Start a call in a slot that is idle."""
        if Place.current is not self._place:
            self._place.settle()
        self._requests.submit(slot)

    def next_done(self) -> int:
        """Wait until a call has finished and return its slot."""
        return self._requests.next_done()

    def device_times(self) -> Mapping[str, float] | None:
        """Return the times of one call alone."""
        return self._slots[0].device_times()

    def close(self) -> None:
        """End the slots' threads and release what the slots hold."""
        if (requests := vars(self).pop("_requests", None)) is not None:
            requests.close()
        for slot in self._slots:
            slot.close()


def _in_own_thread(run: Callable[[], None], threads: int) -> Callable[[], None]:
    """Return a call for one thread: OpenMP counts the threads for each thread that starts some."""
    import torch

    is_set = False

    def call() -> None:
        nonlocal is_set
        if not is_set:
            torch.set_num_threads(threads)
            is_set = True
        run()

    return call


def executable_for(
    call: Callable[..., Any], workload: LoadedWorkload, place: Place, placement: Mapping[str, str | int]
) -> TorchExecutable | ConcurrentExecutable:
    """Return what makes calls of the workload's scenario at this place."""
    kind = CpuExecutable if place.accelerator == "cpu" else CudaExecutable
    if workload.spec.scenario == "latency":
        return kind(call, workload, place, placement)
    slots = [kind(call, workload, place, placement) for _ in range(place.in_flight)]
    return ConcurrentExecutable(slots, place, placement)


def describe(module: Any, workload: LoadedWorkload, place: Place) -> dict[str, str | int]:
    """Return what the module's tensors and PyTorch itself say about where and how it runs."""
    import torch

    tensors = [tensor for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point()]
    kinds = {_SHORT.get(str(tensor.dtype), str(tensor.dtype)) for tensor in tensors}
    precision = "+".join(sorted(kinds)) or workload.spec.base_precision
    if place.accelerator == "cpu":
        facts: dict[str, str | int] = {"instructions": torch.backends.cpu.get_cpu_capability()}
    else:
        facts = torch_cuda.facts(place.device)
    return {
        "provider": "+".join(sorted({f"torch-{tensor.device.type}" for tensor in tensors}))
        or f"torch-{place.device.type}",
        "precision": "tf32" if (precision, facts.get("tf32")) == ("f32", "on") else precision,
        "threads": torch.get_num_threads(),
        "matmul": torch.get_float32_matmul_precision(),
        **({"made_contiguous": made} if (made := _made_contiguous(workload)) else {}),
        **facts,
        "version": torch.__version__,
    }


def _made_contiguous(workload: LoadedWorkload) -> str:
    """Return which inputs the model gives in another order in memory than they are called in, and in which."""
    given = workload.artifact.meta.get("inputs_given", {}) if workload.artifact is not None else {}
    return ", ".join(f"{name} ({order})" for name, order in given.items())


@contextmanager
def without_script_deprecation() -> Iterator[None]:
    """Ignore the warning that TorchScript is deprecated: here it is measured, and inductor's own modules use it."""
    with catch_warnings():
        filterwarnings("ignore", r"`torch\.jit\.\w+` is (deprecated|not supported)", DeprecationWarning)
        yield
