"""A compiler without a runtime: its call busy-waits a known time, so that every metric has a known true value."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import REQUESTS, Compiler, Decoder, Executable, Option
from pytest_ngraph.errors import Unsupported
from pytest_ngraph.machine import clock
from pytest_ngraph.spec.cells import Device, Workload
from pytest_ngraph.workloads.kinds.axes import LENGTH, axis_values

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload

_IN_FLIGHT = 4


class NullExecutable(Executable):
    """A busy-wait of a fixed number of nanoseconds. Calls in flight wait side by side."""

    def __init__(self, wait_ns: int, in_flight: int = 1) -> None:
        self._wait_ns = wait_ns
        self.in_flight = in_flight
        # When the call in a slot will be done, in the order of submission, which is that of completion.
        self._due_ns: deque[tuple[int, int]] = deque()
        self.placement = {"provider": "null", "precision": "none", "threads": 1}

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Nothing to bind."""

    def run(self) -> None:
        """Wait the cell's time without giving up the core."""
        end = clock.nanoseconds() + self._wait_ns
        while clock.nanoseconds() < end:
            pass

    def submit(self, slot: int) -> None:
        """Start a call that is done in the cell's time from now."""
        self._due_ns.append((clock.nanoseconds() + self._wait_ns, slot))

    def next_done(self) -> int:
        """Wait for the call that is due first without giving up the core."""
        end, slot = self._due_ns.popleft()
        while clock.nanoseconds() < end:
            pass
        return slot

    def outputs(self) -> Sequence[np.ndarray] | None:
        """Return None: there is nothing to compare."""
        return None


class NullDecoder(Decoder):
    """A busy-wait of so many nanoseconds for the prompt, and of others for each token."""

    def __init__(self, first: NullExecutable, token: NullExecutable) -> None:
        self._first, self._token = first, token
        self.placement = first.placement

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Nothing to bind."""

    def first(self) -> Any:
        """Wait the prompt's time. There are no logits."""
        self._first.run()

    def next(self, token: np.ndarray, position: int) -> Any:
        """Wait a token's time."""
        self._token.run()


class NullCompiler(Compiler):
    """``null[fixed_us=50,sample_us=10,layer_us=0]``: fixed_us + sample_us * batch + layer_us * depth microseconds.

    ``token_us`` adds so many for each token of the length, which is that of the model where a suite gives none.
    In the scenario ``throughput`` ``requests`` calls, 4 by itself, are in flight, each of which takes that time. With
    ``decode=N`` that is the time of the prompt, and each token after the first takes ``step_us``.
    """

    name = "null"
    rough_seconds = (0.0, 0.0)
    reads = "nothing"
    named_only = True
    verified: Mapping[str, str] = {"cpu": "x86-64 Linux"}
    scenarios = ("latency", "throughput")
    decodes = True
    options = (
        Option("fixed_us", "50", "Microseconds of every call", kind="number", minimum=0),
        Option("sample_us", "10", "Microseconds for each sample of the batch", kind="number", minimum=0),
        Option("layer_us", "0", "Microseconds for each layer of the depth", kind="number", minimum=0),
        Option("token_us", "0", "Microseconds for each token of the length", kind="number", minimum=0),
        Option("step_us", "20", "Microseconds for each token after the first, with decode=", kind="number", minimum=0),
        REQUESTS,
    )

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Work out the wait of this cell. The model itself is never loaded."""
        spec = workload.spec
        wait_us = options["fixed_us"] + options["sample_us"] * spec.batch + options["layer_us"] * (spec.depth or 1)
        if options["token_us"]:
            wait_us += options["token_us"] * _tokens(spec)
        in_flight = (options["requests"] or _IN_FLIGHT) if spec.scenario == "throughput" else 1
        executable = NullExecutable(round(wait_us * 1000), in_flight)
        if spec.decode is None:
            return executable
        return NullDecoder(executable, NullExecutable(round(options["step_us"] * 1000)))


def _tokens(spec: Workload) -> int:
    """Return how many tokens a sample has. Raise Unsupported where only building the model would tell."""
    length = axis_values(spec).get(LENGTH)
    if length is None:
        raise Unsupported(
            f"null[token_us=]: {spec.model.text} says no length, so nothing says how many tokens it is fed; give "
            "sequence= where it takes that, or leave token_us out"
        )
    return length


COMPILER = NullCompiler()
