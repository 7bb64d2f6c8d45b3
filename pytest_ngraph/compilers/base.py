"""The compiler contract: what an adapter declares, what it compiles to, and how its options are checked.

An adapter is one module with a subclass of ``Compiler`` and an instance of it (``COMPILER``). Importing the module
must be cheap: it happens in the pytest process. Everything heavy is imported inside ``compile``, which runs in a
worker process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.spec.bracket import Option, resolved
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device
from pytest_ngraph.spec.shapes.mixes import DYNAMIC, is_mix

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.explain.profile import Profile
    from pytest_ngraph.workloads.loaded import LoadedWorkload

__all__ = ["REQUESTS", "THREADS", "Compiler", "Decoder", "Executable", "Option", "Progress", "threads_of"]

# What is being done now, the step, and of how many.
Progress = Callable[[str, int, int], None]


class Executable:
    """A compiled cell, alive in a worker process.

    Subclasses set ``placement`` (where it really ran, read back from the runtime: provider, precision, threads, ...)
    and implement ``bind``, ``run`` and ``outputs``. Those of a compiler that keeps what it compiles for later launches
    set ``loaded``: whether it was loaded from an earlier launch or compiled now. ``tuning_seconds`` and
    ``tuning_trials`` are what tuning has cost in all, where there was any. ``recompiles`` is how often the runtime has
    compiled again since ``compile`` returned, None where that is not counted. ``enqueues`` says that ``run`` may come
    back before the call has finished, as on a GPU: each timed call is then followed by ``synchronize``.

    In the scenario ``throughput`` ``in_flight`` calls may run beside each other, each in a slot of its own: those
    executables also implement ``submit`` and ``next_done``. What decodes is a ``Decoder``.
    """

    placement: Mapping[str, str | int] = {}
    model_bytes: int | None = None
    loaded: bool | None = None
    tuning_seconds: float | None = None
    tuning_trials: int | None = None
    recompiles: int | None = None
    enqueues: bool = False
    in_flight: int = 1
    # Tokens that a call generates one by one, each by a step that is timed by itself (see ``compilers.decoding``).
    steps: int = 0
    # What ``run`` of a whole turn of calls makes; those of adapters make one.
    calls_in_a_run: int = 1

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Put the inputs (name to array, in the model's order) where calls read them while they are timed."""
        raise NotImplementedError

    def run(self) -> None:
        """Do one call on the bound inputs and nothing else. Keep what it returns for ``outputs``."""
        raise NotImplementedError

    def outputs(self) -> Sequence[np.ndarray] | None:
        """Return the last call's outputs as NumPy arrays, flat and in the model's order. None if it has none."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until the last call has finished. Does nothing where calls are synchronous."""

    def device_times(self) -> Mapping[str, float] | None:
        """Return the times that an accelerator itself reports, in seconds, or None. Called once, outside of all timing.

        The names are ``device_call_seconds``, ``copy_in_seconds`` and ``copy_out_seconds``.
        """
        return None

    def prefill(self) -> None:
        """Read the prompt, of a call with ``steps``."""
        raise NotImplementedError

    def step(self, index: int) -> None:
        """Take the next token, of a call with ``steps``."""
        raise NotImplementedError

    def submit(self, slot: int) -> None:
        """Start a call on the bound inputs in a slot (0 to ``in_flight`` - 1) that is idle, and do not wait for it."""
        raise NotImplementedError

    def next_done(self) -> int:
        """Wait until one of the submitted calls has finished and return its slot, which is idle again.

        Raises what the call raised.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release what the executable holds."""


class Decoder(Executable):
    """What a cell with ``decode=N`` is compiled to: it reads a prompt, then takes one token after the other.

    Subclasses implement ``bind``, which gets the inputs of the prompt, ``first`` and ``next`` in place of ``run`` and
    ``outputs``. The cache of keys and values is theirs: ``first`` begins it, each ``next`` adds to it. They never see a
    token before the step that takes it, and what they return is there: the caller chooses the next token by it.
    """

    def first(self) -> np.ndarray:
        """Run the prompt that is bound, with an empty cache.

        Returns the logits of the token that follows, an f32 array of its own, of (batch, vocabulary).
        """
        raise NotImplementedError

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        """Take one token for each row, int64 of (batch, 1), at a position counted from 0. Return the next logits."""
        raise NotImplementedError


class Compiler:
    """An adapter: subclasses set the attributes and implement ``compile``.

    ``requires`` are import names, probed without importing. ``extra`` is the pip extra of this package that brings
    them (or ``install``, a whole pip requirement, for an adapter of another package). ``variables`` are how the names
    of environment variables begin by which the runtime decides how it works: they are part of the evidence. ``reads``
    says what ``compile`` needs of a workload: ``module`` (a PyTorch module), ``onnx`` (the shared static ONNX file:
    open it by its path, its weights lie beside it) or ``nothing``. ``named_only`` compilers run only when they are
    named. ``accelerators`` are the kinds of device it runs on (``cpu``, ``cuda``), ``scenarios`` how it can be called,
    ``shapes`` what one build of it may be for (``dynamic``: a range of sizes, whose axes ``workload.open_axes`` names),
    ``decodes`` whether it compiles a workload with ``decode=N`` to a ``Decoder``, and ``verified`` says for each kind
    of device where the conformance suite has passed. ``since`` is the version of this package from which on it builds
    and calls as it does now, where only this one has changed since the version that all are of.
    """

    name: str
    requires: tuple[str, ...] = ()
    extra: str = ""
    install: str = ""
    variables: tuple[str, ...] = ()
    reads: str = "module"
    options: tuple[Option, ...] = ()
    named_only: bool = False
    accelerators: tuple[str, ...] = ("cpu",)
    precisions: tuple[str, ...] = ("f32",)
    scenarios: tuple[str, ...] = ("latency",)
    shapes: tuple[str, ...] = ("static",)
    decodes: bool = False
    verified: Mapping[str, str] = {}
    since: str = ""
    # Seconds that compiling a small network takes for the first time, and in a later launch; for estimates only.
    rough_seconds: tuple[float, float] = (0.5, 0.2)

    def found_beside(self, spec: CompilerSpec, device: Device, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Return what else a cell is compiled or run by that ``requires`` does not name, by name, with its version.

        It is part of the evidence of these cells. ``variables`` are those of the environment. Nothing is imported.
        """
        return {}

    def missing(self) -> str | None:
        """Return how to install what is missing, or None. Nothing is imported to find out."""
        absent = [name for name in self.requires if find_spec(name) is None]
        if not absent:
            return None
        requirement = self.install or f"pytest-ngraph[{self.extra}]"
        return f'not installed (pip install "{requirement}")'

    def load(self) -> None:
        """Import the runtime, in the worker and before anything is timed: no compile time contains an import."""
        for name in self.requires:
            import_module(name)

    def open(self, device: Device) -> None:
        """Open the device, after ``load``, so that no compile time contains that either."""

    def why_not(self, cell: Cell, device: Device) -> str | None:
        """Return the reason why this cell cannot run on this device, or None where it may be tried."""
        workload, kind = cell.workload, device.accelerator.partition(":")[0]
        for what, asked, able in (
            ("device", kind, self.accelerators),
            ("precision", workload.base_precision, self.precisions),
            ("scenario", workload.scenario, self.scenarios),
            ("shapes", DYNAMIC if is_mix(workload.shapes) else workload.shapes, self.shapes),
        ):
            if asked not in able:
                return f"{what} {asked} (it runs {', '.join(able)})"
        if workload.decode is not None and not self.decodes:
            return f"decode={workload.decode} (it compiles no prompt and steps with a cache of keys and values)"
        if workload.scenario != "latency" and is_mix(workload.shapes):
            return f"scenario {workload.scenario} of a mix of shapes, whose calls come one after the other"
        if workload.scenario == "latency" and dict(cell.compiler.options).get(REQUESTS.name, "0") != "0":
            return f'option {REQUESTS.name}: it is of scenario="throughput", this cell makes one call after the other'
        return None

    def resolve(self, spec: CompilerSpec) -> dict[str, Any]:
        """Return every option with its value in its type. Raise SpecError for an unknown option or value."""
        return resolved(self.options, spec.options, f"compiler {str(spec)!r}", spec.name)

    def tunes(self, options: Mapping[str, Any]) -> bool:
        """Return whether ``tune`` has to be called before a cell with these options is compiled."""
        return False

    def tuning_plan(self, options: Mapping[str, Any]) -> str:
        """Return a line that says what tuning may cost, before it starts."""
        return ""

    def tune(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], progress: Progress) -> None:
        """Search for the best way to compile the workload, and keep what was found in ``workload.kept``.

        Returns at once where nothing is left to search. It may be killed at any time, and continues from there when it
        is called again. ``progress`` reports a sign of life: what is being done, the step, and the number of steps.
        """
        raise NotImplementedError

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Compile the workload for the device and return it ready to bind.

        Raises Unsupported with the reason where the compiler cannot do it in principle, CompileFailed where it
        should have worked. Never falls back to anything else silently.
        """
        raise NotImplementedError

    def explain(
        self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], executable: Executable, calls: int
    ) -> Profile:
        """Return what ran inside a call, node by node, by the runtime's own profile of some calls (ngraph explain).

        ``executable`` is what ``compile`` returned for the same workload, bound and warm, in a worker in which nothing
        is measured; it may be profiled, or another one compiled for that. Raises Unsupported with the reason where the
        runtime does not say.
        """
        raise Unsupported(f"{self.name}: its adapter has no explain(), so nothing says what ran inside a call")


REQUESTS = Option(
    "requests", "0", "Calls in flight in the scenario throughput; 0 leaves it to the compiler", kind="int", minimum=0
)
THREADS = Option("threads", "0", "Threads of this compiler; 0 takes --ngraph-threads", kind="int", minimum=0)


def threads_of(device: Device, options: Mapping[str, Any]) -> int:
    """Return the threads a compiler gets: its own ``threads`` option where given, else the device's."""
    return int(options.get("threads") or device.threads)
