"""What the compilers that start from a PyTorch module share: threads, how a call is made, what really ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

from pytest_ngraph.compilers.base import Executable

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload

_SHORT = {"torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16", "torch.float64": "f64"}


class TorchExecutable(Executable):
    """A callable of PyTorch, called on tensors under inference mode."""

    def __init__(self, call: Callable[..., Any], workload: LoadedWorkload, placement: Mapping[str, str | int]) -> None:
        import torch

        self._call: Any = call
        self._workload = workload
        self._arguments: tuple[Any, ...] = ()
        self._keywords: Mapping[str, Any] = {}
        self._result: Any = None
        # One object for all calls: making it anew each time costs 1 us of the 11 us of a tiny convolution.
        self._mode = torch.inference_mode()
        self.placement = placement

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Turn the inputs into the positional and keyword tensors of the module's forward."""
        self._arguments, self._keywords = self._workload.arguments(dict(inputs))

    def run(self) -> None:
        """Call once under inference mode."""
        with self._mode:
            self._result = self._call(*self._arguments, **self._keywords)

    def outputs(self) -> Sequence[np.ndarray]:
        """Return the last call's outputs as arrays of their own."""
        return [tensor.detach().cpu().numpy().copy() for tensor in self._workload.flatten(self._result)]

    def close(self) -> None:
        """Let go of the compiled call, its inputs and its outputs."""
        self._call = self._result = None
        self._arguments, self._keywords = (), {}


def set_threads(threads: int) -> None:
    """Give one operator this many threads, and let no two operators run beside each other."""
    import torch

    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        # PyTorch refuses this call once it has run anything in parallel, hence only where it is needed.
        torch.set_num_interop_threads(1)


def load_module(workload: LoadedWorkload) -> Any:
    """Return the workload's module, with the reduced matmul precision undone that its file may have asked for."""
    import torch

    module = workload.module()
    torch.set_float32_matmul_precision("highest")
    return module


def describe(module: Any, workload: LoadedWorkload) -> dict[str, str | int]:
    """Return what the module's tensors and PyTorch itself say about where and how it runs."""
    import torch

    tensors = [tensor for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point()]
    kinds = {_SHORT.get(str(tensor.dtype), str(tensor.dtype)) for tensor in tensors}
    return {
        "provider": "+".join(sorted({f"torch-{tensor.device.type}" for tensor in tensors})) or "torch-cpu",
        "precision": "+".join(sorted(kinds)) or workload.spec.precision,
        "threads": torch.get_num_threads(),
        "matmul": torch.get_float32_matmul_precision(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "version": torch.__version__,
    }


@contextmanager
def without_script_deprecation() -> Iterator[None]:
    """Ignore the warning that TorchScript is deprecated: here it is measured, and inductor's own modules use it."""
    with catch_warnings():
        filterwarnings("ignore", r"`torch\.jit\.\w+` is (deprecated|not supported)", DeprecationWarning)
        yield
