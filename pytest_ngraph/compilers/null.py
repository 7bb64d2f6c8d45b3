"""A compiler without a runtime: its call busy-waits a known time, so that every metric has a known true value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Compiler, Executable, Option
from pytest_ngraph.spec import Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload


class NullExecutable(Executable):
    """A busy-wait of a fixed number of nanoseconds."""

    def __init__(self, wait_ns: int) -> None:
        self._wait_ns = wait_ns
        self.placement = {"provider": "null", "precision": "none", "threads": 1}

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Nothing to bind."""

    def run(self) -> None:
        """Wait the cell's time without giving up the core."""
        end = perf_counter_ns() + self._wait_ns
        while perf_counter_ns() < end:
            pass

    def outputs(self) -> Sequence[np.ndarray] | None:
        """Return None: there is nothing to compare."""
        return None


class NullCompiler(Compiler):
    """``null[fixed_us=50,sample_us=10,layer_us=0]``: fixed_us + sample_us * batch + layer_us * depth microseconds."""

    name = "null"
    reads = "nothing"
    named_only = True
    options = (
        Option("fixed_us", "50", "Microseconds of every call", kind="number", minimum=0),
        Option("sample_us", "10", "Microseconds for each sample of the batch", kind="number", minimum=0),
        Option("layer_us", "0", "Microseconds for each layer of the depth", kind="number", minimum=0),
    )

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Work out the wait of this cell; the model itself is never loaded."""
        spec = workload.spec
        wait_us = options["fixed_us"] + options["sample_us"] * spec.batch + options["layer_us"] * (spec.depth or 1)
        return NullExecutable(round(wait_us * 1000))


COMPILER = NullCompiler()
