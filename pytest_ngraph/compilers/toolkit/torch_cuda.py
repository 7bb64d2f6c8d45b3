"""CUDA as PyTorch drives it: opening a GPU, what TF32 means, times by events, and a stream for each call in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.machine import gpu
from pytest_ngraph.machine.facts import version_of

if TYPE_CHECKING:
    import torch

_WARM_UPS, _TIMED = 3, 9
# What compiles inductor's kernels for a GPU, by the names of its packages.
_TRITON = ("triton", "pytorch-triton")


def open_device(accelerator: str) -> torch.device:
    """Make a GPU (``cuda:N``) this process's current one and open its context, which takes a second the first time.

    Raises Unsupported with the reason where PyTorch cannot use it.
    """
    import torch

    device = torch.device(accelerator)
    if not torch.cuda.is_available():
        why = "it is built without CUDA" if torch.version.cuda is None else "it finds no GPU that it can use"
        raise Unsupported(f"torch {torch.__version__}: {why}")
    if (device.index or 0) >= torch.cuda.device_count():
        raise Unsupported(f"torch {torch.__version__} sees {torch.cuda.device_count()} GPUs and no {accelerator}")
    torch.cuda.set_device(device)
    torch.cuda.synchronize(device)
    return device


def triton_for(accelerator: str) -> dict[str, str]:
    """Return the versions of Triton that are installed, by package, and none for a CPU. Nothing is imported."""
    found = {name: version_of(name) for name in _TRITON} if accelerator != "cpu" else {}
    return {name: version for name, version in found.items() if version is not None}


def check_precision(device: torch.device, precision: str) -> None:
    """Raise Unsupported for a precision that the GPU has no arithmetic for. PyTorch would compute something else."""
    import torch

    reason = gpu.lacks(precision, torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))
    if reason is not None:
        raise Unsupported(reason)


def settle(tf32: bool) -> None:
    """Set whether f32 products of this process may round their factors to TF32, and keep cuDNN from trying algorithms.

    PyTorch 2.9 brought other names for these settings. Reading one of the old ones, as torch.compile does, then raises
    unless old and new agree, and only setting the old ones sets both.
    """
    import torch

    with catch_warnings():
        filterwarnings("ignore", "Please use the new API settings to control TF32", UserWarning)
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
    if hasattr(torch.backends.cudnn, "fp32_precision"):
        # It has no old name; inductor's convolutions ask for it.
        torch.backends.cudnn.fp32_precision = "tf32" if tf32 else "ieee"
    torch.backends.cudnn.benchmark = False


def facts(device: torch.device) -> dict[str, str | int]:
    """Return what PyTorch says of the GPU and of the settings that decide how it computes."""
    import torch

    with catch_warnings():
        filterwarnings("ignore", "Please use the new API settings to control TF32", UserWarning)
        tf32 = {torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32}
    return {
        "gpu": torch.cuda.get_device_name(device),
        "capability": ".".join(map(str, torch.cuda.get_device_capability(device))),
        "tf32": "mixed" if len(tf32) > 1 else "on" if tf32.pop() else "off",
        "cuda": torch.version.cuda or "unknown",
        "cudnn": torch.backends.cudnn.version() or "none",
        "cudnn_benchmark": "on" if torch.backends.cudnn.benchmark else "off",
    }


def device_seconds(call: Callable[[], None]) -> float:
    """Return the median seconds from when the GPU begins a call until it has done it, by events on its stream.

    It contains the gaps in which the GPU waits for the host.
    """
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def once() -> float:
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    return median([once() for _ in range(_WARM_UPS + _TIMED)][_WARM_UPS:])


class StreamedRequests:
    """A stream for each of ``runs``: what ``submit`` enqueues there has finished when the event behind it says so."""

    def __init__(self, runs: Sequence[Callable[[], None]], device: torch.device) -> None:
        import torch

        self._runs = runs
        self._streams = [torch.cuda.stream(torch.cuda.Stream(device)) for _ in runs]
        self._events = [torch.cuda.Event() for _ in runs]
        self._pending: list[int] = []

    def submit(self, slot: int) -> None:
        """Enqueue a call in a slot that is idle. Return as soon as it is enqueued."""
        with self._streams[slot]:
            self._runs[slot]()
            self._events[slot].record()
        self._pending.append(slot)

    def next_done(self) -> int:
        """Wait until a call has finished and return its slot, of several the one that was submitted first."""
        while self._pending:
            for slot in self._pending:
                if self._events[slot].query():
                    self._pending.remove(slot)
                    return slot
        raise RuntimeError("no call is in flight")

    def close(self) -> None:
        """Wait for what is still in flight."""
        for slot in self._pending:
            self._events[slot].synchronize()
        self._pending = []
