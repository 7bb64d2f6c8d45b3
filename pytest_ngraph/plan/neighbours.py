"""The neighbours of a test's cells: their models found and checked before anything is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_ngraph.axes import row_of
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.errors import SpecError, about
from pytest_ngraph.load.neighbours import NONE, parse, with_neighbour
from pytest_ngraph.spec.cells import CompilerSpec, ModelRef, Workload
from pytest_ngraph.spec.shapes.mixes import is_mix
from pytest_ngraph.workloads.kinds import Models
from pytest_ngraph.workloads.kinds.axes import TAKEN, axes_taken, check_values, refuse_unless_taken

NEIGHBOUR = "neighbour"
# Nobody measures these beside a neighbour: why their value has to be the default.
_ALONE = {
    "decode": "tokens are timed with nothing beside them",
    "scenario": "calls that arrive, or are in flight, wait for one another already",
}


def models_of(
    texts: Iterable[str], models: Models, catalogue: Catalogue, search: Sequence[Path]
) -> dict[str, ModelRef]:
    """Return the models of neighbours by how these are written. Raise SpecError for what cannot run beside a cell."""
    found = {}
    for text in texts:
        if text != NONE:
            with about(f"{NEIGHBOUR}={text!r}"):
                neighbour = parse(text)
                found[text] = model = models.parse(neighbour.model, search)
                taken, sizes = axes_taken(model), dict(neighbour.sizes)
                for name in (name for name in TAKEN if name in sizes):
                    refuse_unless_taken(model, name, taken)
                    check_values(model, {name: sizes[name]})
                if neighbour.compiler is not None:
                    _refuse_tuned(catalogue.check(neighbour.compiler), catalogue)
    return found


def beside(
    workload: Workload, compiler: CompilerSpec, models: Mapping[str, ModelRef], catalogue: Catalogue
) -> Workload:
    """Return a workload with its neighbour, which is compiled as the cell is where nothing else is named.

    What compiles it is part of its name from then on: the baseline of the cell has the same neighbour. Raises SpecError
    beside an axis that does not go with it.
    """
    text = workload.neighbour
    if text == NONE:
        return workload
    said = f"{NEIGHBOUR}={text!r}"
    for name, why in _ALONE.items():
        row, value = row_of(name), workload.value(name)
        if row is not None and value != row.default:
            allowed = f" (allowed: {row.default})" if row.default is not None else ""
            raise SpecError(f"{said} beside {name}={value!r}: {why}{allowed}; measure them in tests of their own")
    if is_mix(workload.shapes):
        raise SpecError(f"{said} beside a mix of shapes: its calls differ already; measure them in tests of their own")
    neighbour = parse(text)
    if neighbour.compiler is None:
        with about(said):
            _refuse_tuned(compiler, catalogue)
        neighbour = replace(neighbour, compiler=compiler)
    return with_neighbour(workload, neighbour, models[text])


def _refuse_tuned(spec: CompilerSpec, catalogue: Catalogue) -> None:
    adapter = catalogue.get(spec.name)
    if adapter.tunes(adapter.resolve(spec)):
        raise SpecError(
            f"{spec} searches for the best way to compile, which is not done for a neighbour (name another)"
        )
