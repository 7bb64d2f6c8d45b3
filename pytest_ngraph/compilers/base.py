"""The compiler contract: what an adapter declares, what it compiles to, and how its options are checked.

An adapter is one module with a subclass of ``Compiler`` and an instance of it (``COMPILER``). Importing the module
must be cheap: it happens in the pytest process. Everything heavy is imported inside ``compile``, which runs in a
worker process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec import Cell, CompilerSpec, Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload


@dataclass(frozen=True, slots=True)
class Option:
    """One bracket option of a compiler: its name, its default, and either its choices or what kind of number it is.

    ``kind`` is ``choice`` (one of ``choices``), ``int`` (a whole number of at least ``minimum``), ``number`` or
    ``text``.
    """

    name: str
    default: str
    help: str
    kind: str = "choice"
    choices: tuple[str, ...] = ()
    minimum: int = 1

    @property
    def allowed(self) -> str:
        """Say in words which values the option takes."""
        if self.kind == "choice":
            return ", ".join(self.choices)
        return {"int": f"a whole number >= {self.minimum}", "number": f"a number >= {self.minimum}"}.get(
            self.kind, "text"
        )

    def read(self, value: str) -> Any:
        """Return the value in its type; raise ValueError where it is not allowed."""
        if self.kind == "choice":
            if value not in self.choices:
                raise ValueError(value)
            return value
        if self.kind == "text":
            return value
        number = int(value) if self.kind == "int" else float(value)
        # NaN fails this comparison too, which is what is wanted.
        if not number >= self.minimum:
            raise ValueError(value)
        return number


class Executable:
    """A compiled cell, alive in a worker process.

    Subclasses set ``placement`` (where it really ran, read back from the runtime: provider, precision, threads, ...)
    and implement ``bind``, ``run`` and ``outputs``.
    """

    placement: Mapping[str, str | int] = {}
    model_bytes: int | None = None
    loaded: bool = False

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Put the inputs (name to array, in the model's order) where they live while calls are timed."""
        raise NotImplementedError

    def run(self) -> None:
        """Do one call on the bound inputs and nothing else; keep what it returns for ``outputs``."""
        raise NotImplementedError

    def outputs(self) -> Sequence[np.ndarray] | None:
        """Return the last call's outputs as NumPy arrays, flat and in the model's order; None where there are none."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until the last call has finished; nothing to do where calls are synchronous."""

    def close(self) -> None:
        """Release what the executable holds."""


class Compiler:
    """An adapter: subclasses set the attributes and implement ``compile``.

    ``requires`` are import names, probed without importing; ``extra`` is the pip extra of this package that brings
    them (or ``install``, a whole pip requirement, for an adapter from elsewhere). ``reads`` says what ``compile``
    needs of a workload: ``module`` (a PyTorch module), ``onnx`` (the shared static ONNX file) or ``nothing``.
    ``named_only`` compilers run only when they are named.
    """

    name: str
    requires: tuple[str, ...] = ()
    extra: str = ""
    install: str = ""
    reads: str = "module"
    options: tuple[Option, ...] = ()
    named_only: bool = False
    precisions: tuple[str, ...] = ("f32",)

    def missing(self) -> str | None:
        """Return how to install what is missing, or None; nothing is imported to find out."""
        absent = [name for name in self.requires if find_spec(name) is None]
        if not absent:
            return None
        requirement = self.install or f"pytest-ngraph[{self.extra}]"
        return f'not installed (pip install "{requirement}")'

    def load(self) -> None:
        """Import the runtime, in the worker and before anything is timed: no compile time contains an import."""
        for name in self.requires:
            import_module(name)

    def why_not(self, cell: Cell, device: Device) -> str | None:
        """Return the reason why this cell cannot run on this device, or None where it may be tried."""
        if cell.workload.precision not in self.precisions:
            return f"precision {cell.workload.precision} (it runs {', '.join(self.precisions)})"
        return None

    def resolve(self, spec: CompilerSpec) -> dict[str, Any]:
        """Return every option with its value in its type; raise SpecError for an unknown option or value."""
        known = {option.name: option for option in self.options}
        values: dict[str, Any] = {option.name: option.read(option.default) for option in self.options}
        for key, text in spec.options:
            if key not in known:
                allowed = ", ".join(known) or "none"
                raise SpecError(f"compiler {str(spec)!r}: unknown option {key!r} (options of {spec.name}: {allowed})")
            try:
                values[key] = known[key].read(text)
            except ValueError:
                raise SpecError(
                    f"compiler {str(spec)!r}: option {key}={text!r} is not allowed (allowed: {known[key].allowed})"
                ) from None
        return values

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Compile the workload for the device and return it ready to bind.

        Raises Unsupported with the reason where the compiler cannot do it in principle, CompileFailed where it
        should have; never falls back to anything else silently.
        """
        raise NotImplementedError


THREADS = Option("threads", "0", "Threads of this compiler; 0 takes --ngraph-threads", kind="int", minimum=0)


def threads_of(device: Device, options: Mapping[str, Any]) -> int:
    """Return the threads a compiler gets: its own ``threads`` option where given, else the device's."""
    return int(options.get("threads") or device.threads)
