"""Adapters from out of tree that are ONNX Runtime and lie about what they compute; ``how`` says when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Compiler, Executable, Option
from pytest_ngraph.compilers.onnxruntime.adapter import OnnxRuntimeCompiler
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload


class Liar(Executable):
    """Computes what is right, and gives what it likes."""

    def __init__(self, honest: Executable, workload: LoadedWorkload, lie: str) -> None:
        self._honest, self._workload, self._lie = honest, workload, lie
        self._bound: Mapping[str, np.ndarray] = {}
        self._first: list[np.ndarray] | None = None
        self._calls = 0
        self.placement = honest.placement

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self._bound = {name: array.copy() for name, array in inputs.items()}
        self._honest.bind(inputs)

    def run(self) -> None:
        self._calls += 1
        self._honest.run()

    def outputs(self) -> Sequence[np.ndarray] | None:
        right = list(self._honest.outputs() or ())
        self._first = self._first or right
        given: Sequence[np.ndarray] | None = LIES[self._lie](self, right)
        return given

    def on_timed_inputs(self) -> bool:
        return all((self._bound[name] == array).all() for name, array in self._workload.inputs.items())

    def close(self) -> None:
        self._honest.close()


def _remembers(liar: Liar, right: list[np.ndarray]) -> list[np.ndarray]:
    """Give what the first call gave, for ever."""
    assert liar._first is not None
    return liar._first


def _knows_what_is_timed(liar: Liar, right: list[np.ndarray]) -> list[np.ndarray]:
    return right if liar.on_timed_inputs() else [0 * each for each in right]


def _first_call_only(liar: Liar, right: list[np.ndarray]) -> list[np.ndarray]:
    return right if liar._calls == 1 else [0 * each for each in right]


def _reads_the_disk(liar: Liar, right: list[np.ndarray]) -> list[np.ndarray]:
    """Give the reference of what is timed, from where it lies on the disk."""
    from pytest_ngraph.workloads import artifacts

    assert liar._workload.artifact is not None
    return artifacts.reference(liar._workload.artifact).timed


def _gives_nothing_later(liar: Liar, right: list[np.ndarray]) -> Any:
    return right if liar.on_timed_inputs() else None


def _dies_later(liar: Liar, right: list[np.ndarray]) -> Any:
    if not liar.on_timed_inputs():
        import os

        os._exit(3)
    return right


LIES: Mapping[str, Callable[[Liar, list[Any]], Any]] = {
    "honest": lambda liar, right: right,
    "remembers": _remembers,
    "timed_only": _knows_what_is_timed,
    "first_call": _first_call_only,
    "disk": _reads_the_disk,
    "nothing_later": _gives_nothing_later,
    "dies_later": _dies_later,
    "zeros": lambda liar, right: [0 * each for each in right],
    "objects": lambda liar, right: [each.astype(object) for each in right],
    "texts": lambda liar, right: [each.astype(str) for each in right],
    "larger": lambda liar, right: [each.repeat(3, axis=-1) for each in right],
    "transposed": lambda liar, right: [each.T for each in right],
    "integers": lambda liar, right: [each.astype("int64") for each in right],
    "one_more": lambda liar, right: [*right, *right],
}


class LyingCompiler(Compiler):
    """``liar[how=...]``."""

    name = "liar"
    requires = ("onnxruntime",)
    reads = "onnx"
    precisions = ("f32", "int8")
    options = (Option("how", "honest", "What it gives", choices=tuple(LIES)),)

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        honest = OnnxRuntimeCompiler()
        resolved = {option.name: option.unset() for option in honest.options}
        return Liar(honest.compile(workload, device, resolved), workload, options["how"])


COMPILER = LyingCompiler()
