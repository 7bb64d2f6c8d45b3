"""Compilers with a known effect: one call is so many calls of another compiler, such as 103 where the base makes 100.

All calls of a compiler are that much longer, so the effect is exact for the median as well as for the mean. One call
in 33 that is made twice would have the same mean and a median that shows nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Compiler, Executable, Option
from pytest_ngraph.compilers.null import COMPILER as _NULL
from pytest_ngraph.compilers.onnxruntime.adapter import COMPILER as _ONNXRUNTIME
from pytest_ngraph.compilers.torch.identity import COMPILER as _IDENTITY
from pytest_ngraph.spec.cells import CompilerSpec, Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload

BASE_CALLS = 100
_PREFIX = "repeated-"


class RepeatedExecutable(Executable):
    """Another executable whose ``run`` is run ``calls`` times."""

    def __init__(self, inner: Executable, calls: int) -> None:
        self._inner, self._calls = inner, calls
        self.placement = {**inner.placement, "calls": calls}
        self.model_bytes, self.loaded = inner.model_bytes, inner.loaded

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Bind the inputs once for all calls."""
        self._inner.bind(inputs)

    def run(self) -> None:
        """Make the calls, and nothing else that costs time."""
        run = self._inner.run
        for _ in range(self._calls):
            run()

    def outputs(self) -> Sequence[np.ndarray] | None:
        """Return the outputs of the last call."""
        return self._inner.outputs()

    def synchronize(self) -> None:
        """Wait for the last call."""
        self._inner.synchronize()

    def close(self) -> None:
        """Release the other executable."""
        self._inner.close()


class Repeated(Compiler):
    """``repeated-NAME[calls=103]``; ``twin`` only makes another name, so that identical code is another compiler."""

    named_only = True

    def __init__(self, inner: Compiler) -> None:
        self._inner = inner
        self.name = f"{_PREFIX}{inner.name}"
        self.requires, self.extra, self.reads = inner.requires, inner.extra, inner.reads
        self.options = (
            *inner.options,
            Option("calls", str(BASE_CALLS), "Calls of the other compiler that make one call", kind="int"),
            Option("twin", "0", "Any number; means nothing", kind="int", minimum=0),
        )

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Compile with the other compiler."""
        rest = {key: value for key, value in options.items() if key not in ("calls", "twin")}
        return RepeatedExecutable(self._inner.compile(workload, device, rest), options["calls"])


IDENTITY, ONNXRUNTIME, NULL = Repeated(_IDENTITY), Repeated(_ONNXRUNTIME), Repeated(_NULL)
PLACES = {
    each.name: f"benchmarks.wrappers:{each.name.removeprefix(_PREFIX).upper()}"
    for each in (IDENTITY, ONNXRUNTIME, NULL)
}


def spec_of(adapter: str, extra_calls: int, *, twin: bool = False) -> str:
    """Name the wrapper of a compiler that makes so many calls more than 100, as the command line takes it."""
    return f"{_PREFIX}{adapter}[calls={BASE_CALLS + extra_calls}{',twin=1' if twin else ''}]"


def extra_calls_of(compiler: str) -> int:
    """Return how many calls in 100 a compiler makes beyond its base; 0 for one that is not wrapped."""
    calls = dict(CompilerSpec.parse(compiler).options).get("calls")
    return int(calls) - BASE_CALLS if calls is not None else 0
