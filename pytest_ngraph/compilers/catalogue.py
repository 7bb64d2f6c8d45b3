"""The catalogue of compilers: names and the places of their adapters, as strings, so that nothing is imported early."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ngraph.errors import CompileFailed, SpecError
from pytest_ngraph.load.scenarios import as_compiled, rate_of
from pytest_ngraph.places import Places, load_place
from pytest_ngraph.spec.shapes.mixes import STATIC, is_bucketed, is_mix
from pytest_ngraph.texts.shown import kept, one_line

if TYPE_CHECKING:
    from pytest_ngraph.compilers.base import Compiler
    from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device

BUILT_IN: Mapping[str, str] = {
    "identity": "pytest_ngraph.compilers.torch.identity:COMPILER",
    "torchscript": "pytest_ngraph.compilers.torch.torchscript:COMPILER",
    "inductor": "pytest_ngraph.compilers.torch.inductor:COMPILER",
    "onnxruntime": "pytest_ngraph.compilers.onnxruntime.adapter:COMPILER",
    "openvino": "pytest_ngraph.compilers.openvino:COMPILER",
    "tvm": "pytest_ngraph.compilers.tvm.adapter:COMPILER",
    "executorch": "pytest_ngraph.compilers.executorch:COMPILER",
    "iree": "pytest_ngraph.compilers.iree:COMPILER",
    "tensorrt": "pytest_ngraph.compilers.tensorrt:COMPILER",
    "null": "pytest_ngraph.compilers.null:COMPILER",
}


class Catalogue(Places):
    """Names of compilers and the places of their adapters. Adapters are imported when first asked for."""

    what, part = "compiler", "adapter"
    name, allowed = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z"), "a name of letters, digits, '_', '-' or '.'"

    def __init__(self) -> None:
        super().__init__(BUILT_IN)
        self._loaded: dict[str, Compiler] = {}

    def place(self, name: str) -> str:
        """Return ``module:ATTRIBUTE`` of a compiler's adapter."""
        self._check(name)
        return self._places[name]

    def get(self, name: str) -> Compiler:
        """Return the adapter of that name. Raise SpecError where it is unknown or its module is broken."""
        if name not in self._loaded:
            self._check(name)
            self._loaded[name] = load(name, self._places[name])
        return self._loaded[name]

    def why_not(self, cell: Cell, device: Device) -> str | None:
        """Return why a compiler cannot run a cell in principle, or None. Raise CompileFailed where that is not said."""
        name = cell.compiler.name
        adapter, workload = self.get(name), cell.workload
        padded = is_bucketed(workload.shapes)
        in_turn = workload.scenario == "latency" if padded else rate_of(workload.scenario) is None
        if is_mix(workload.shapes) and not in_turn:
            # An adapter is not told what arrives: a whole turn of calls would be taken for one that does.
            return f"scenario {workload.scenario} of a mix of shapes, whose calls come one after the other"
        compiled = as_compiled(cell)
        if padded:
            if adapter.reads == "nothing":
                return "buckets (it reads nothing of the model, so it knows no lengths)"
            if adapter.tunes(adapter.resolve(cell.compiler)):
                return "buckets (it tunes one build of a cell, and each bucket is one)"
            # It is asked for several builds of static shapes.
            compiled = replace(compiled, workload=replace(compiled.workload, shapes=STATIC))
        try:
            reason = adapter.why_not(compiled, device)
        except Exception as error:  # noqa: BLE001 - an adapter may be anybody's, and this is pytest's own process
            said = one_line(f"{type(error).__name__}: {error}")
            raise CompileFailed(f"{name}: its why_not() failed: {said}") from None
        if reason is not None and not isinstance(reason, str):
            raise CompileFailed(f"{name}: its why_not() gave {one_line(repr(reason))} (expected a reason, or None)")
        return None if reason is None else kept(reason)

    def check(self, spec: CompilerSpec) -> CompilerSpec:
        """Return the spec if its name and options are known. Raise SpecError otherwise."""
        self.get(spec.name).resolve(spec)
        return spec

    def _check(self, name: str) -> None:
        if name not in self._places:
            raise SpecError(f"unknown compiler {name!r} (known: {', '.join(sorted(self._places))})")


def load(name: str, place: str) -> Compiler:
    """Import the adapter that ``place`` (``module:ATTRIBUTE``) names. Also used inside the worker."""
    from pytest_ngraph.compilers.base import Compiler

    return load_place(f"compiler {name!r}", "adapter", place, Compiler)
