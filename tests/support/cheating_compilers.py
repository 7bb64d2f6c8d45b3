"""Adapters that want a time they have not earned; each cheat is an option of ``cheat``.

Underneath all of them is eager PyTorch on the same module, made slow enough that skipping it pays: so ``do=nothing`` is
an honest adapter, which every check must leave alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import THREADS, Compiler, Executable, Option
from pytest_ngraph.compilers.torch.shared import TorchExecutable, describe, load_module, take_place
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload

_CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time_ns", "time", "time_ns")


def slowed(clock: Callable[[], Any], times: int = 10) -> Callable[[], Any]:
    """Return a clock that goes ten times slower from now on."""
    began = clock()
    return lambda: began + (clock() - began) // times


def change_clocks() -> None:
    """Put slow clocks in the place of those of ``time``."""
    for name in _CLOCKS:
        setattr(time, name, slowed(getattr(time, name)))


def change_our_clock() -> None:
    """Put a slow clock in the place of the one that the clock loop has taken."""
    from pytest_ngraph.worker import timing

    clock = slowed(time.perf_counter_ns)
    timing.visit.__kwdefaults__.update(clock=clock)  # type: ignore[union-attr]
    timing.warm_up.__defaults__ = (clock,)


def hasten_our_clock() -> None:
    """Put a clock there that goes twice as fast, so that a rival looks slow."""
    from pytest_ngraph.worker import timing

    clock, began = time.perf_counter_ns, time.perf_counter_ns()
    timing.visit.__kwdefaults__.update(clock=lambda: 2 * (clock() - began))  # type: ignore[union-attr]


def keep_busy() -> None:
    """Keep another CPU busy, in a process of its own."""
    import subprocess
    import sys

    subprocess.Popen([sys.executable, "-c", "while True: pass"])


class Honest(Executable):
    """Calls a module each time it is asked to."""

    def __init__(self, inner: TorchExecutable) -> None:
        self._inner = inner
        self.placement = inner.placement
        self._inputs: Mapping[str, np.ndarray] = {}
        self._calls = 0

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self._inputs = inputs
        self._inner.bind(inputs)

    def run(self) -> None:
        self._inner.run()

    def outputs(self) -> Sequence[np.ndarray]:
        return self._inner.outputs()

    def close(self) -> None:
        self._inner.close()


class ReturnsTheReference(Honest):
    """Has the outputs of the sample before anything is timed."""

    def __init__(self, inner: TorchExecutable, sample: Mapping[str, np.ndarray]) -> None:
        super().__init__(inner)
        inner.bind(sample)
        inner.run()
        self._known = inner.outputs()

    def run(self) -> None:
        pass

    def outputs(self) -> Sequence[np.ndarray]:
        return [each.copy() for each in self._known]


class WorksInOutputs(Honest):
    """Does nothing until it is asked what came of it."""

    def run(self) -> None:
        pass

    def outputs(self) -> Sequence[np.ndarray]:
        self._inner.run()
        return self._inner.outputs()


class ComputesTheFirstCall(Honest):
    """Computes once for what is bound, and gives that again."""

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        super().bind(inputs)
        self._calls = 0

    def run(self) -> None:
        self._calls += 1
        if self._calls == 1:
            self._inner.run()


class CachesByInput(Honest):
    """Keeps what it computed, by the bytes it was computed from."""

    def __init__(self, inner: TorchExecutable) -> None:
        super().__init__(inner)
        self._kept: dict[bytes, Sequence[np.ndarray]] = {}
        self._key = b""

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        super().bind(inputs)
        self._key = b"".join(array.tobytes() for array in inputs.values())

    def run(self) -> None:
        if self._key not in self._kept:
            self._inner.run()
            self._kept[self._key] = self._inner.outputs()

    def outputs(self) -> Sequence[np.ndarray]:
        return [each.copy() for each in self._kept[self._key]]


class IsRightOnce(Honest):
    """Computes its first call and never again."""

    def run(self) -> None:
        self._calls += 1
        if self._calls == 1:
            self._inner.run()


class Fragile(Honest):
    """Is honest, slow to give its outputs, and dies of inputs that are nearly those it had before."""

    def __init__(self, inner: TorchExecutable) -> None:
        super().__init__(inner)
        self._before: list[Mapping[str, np.ndarray]] = []

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        import numpy as np

        for before in self._before:
            for name, array in before.items():
                if not np.array_equal(array, inputs[name]) and np.allclose(array, inputs[name], rtol=0.1, atol=0):
                    os._exit(1)
        self._before.append({name: array.copy() for name, array in inputs.items()})
        super().bind({name: array.copy() for name, array in inputs.items()})

    def outputs(self) -> Sequence[np.ndarray]:
        time.sleep(0.1)
        return super().outputs()


class CheatingCompiler(Compiler):
    """``cheat[do=...]``: see the classes above."""

    name = "cheat"
    requires = ("torch",)
    extra = "torch"
    named_only = True
    options = (
        Option(
            "do",
            "nothing",
            "Which cheat",
            choices=(
                "nothing", "reference", "outputs", "first", "cached", "once", "clock", "our_clock", "fast_clock",
                "threads", "fragile",
            ),
        ),
        THREADS,
    )  # fmt: skip

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Load the module and cheat as the option says."""
        place = take_place(workload, device, options)
        module = load_module(workload, place)
        inner = TorchExecutable(module, workload, place, describe(module, workload, place))
        do = options["do"]
        if do == "reference":
            return ReturnsTheReference(inner, workload.inputs)
        changes = {
            "clock": change_clocks, "our_clock": change_our_clock, "fast_clock": hasten_our_clock, "threads": keep_busy
        }  # fmt: skip
        if do in changes:
            changes[do]()
        kinds = {
            "outputs": WorksInOutputs, "first": ComputesTheFirstCall, "cached": CachesByInput, "once": IsRightOnce,
            "fragile": Fragile,
        }  # fmt: skip
        return kinds.get(do, Honest)(inner)


COMPILER = CheatingCompiler()
