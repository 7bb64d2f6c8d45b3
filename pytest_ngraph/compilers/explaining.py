"""A cell explained in a worker of its own: a plain call by the clock, then the runtime's profile of some calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Compiler, Executable
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.explain.explanation import Explanation, explanation_of
from pytest_ngraph.explain.graph import Graph, read_graph
from pytest_ngraph.explain.profile import Profile, call_times
from pytest_ngraph.machine import clock
from pytest_ngraph.spec.cells import Device
from pytest_ngraph.spec.shapes.mixes import is_bucketed, is_mix
from pytest_ngraph.texts.shown import one_line

if TYPE_CHECKING:
    from pytest_ngraph.workloads.loaded import LoadedWorkload

# For so long a cell is called before it is looked at, and so long its calls are profiled; at least and at most so many.
_WARM_SECONDS, _SECONDS = 0.5, 0.5
_FEWEST, _MOST = 3, 50


def explained(
    adapter: Compiler, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], label: str
) -> Explanation:
    """Compile a cell, time plain calls, and return the runtime's profile of further ones, joined with its ONNX file.

    What arrives, and what runs beside the cell where it is measured, is not here: ``quantities.explained`` notes it.
    Raises Unsupported with the reason where the adapter or the runtime does not say what ran.
    """
    if workload.spec.decode is not None:
        raise Unsupported(f"decode={workload.spec.decode}: a call is a prompt and steps, and a profile is of one graph")
    if is_bucketed(workload.spec.shapes):
        raise Unsupported(
            f"{workload.spec.shapes}: a call goes to one of several builds; explain one of them, with "
            "static shapes and sequence= of its bucket"
        )
    executable = adapter.compile(workload, device, options)
    try:
        executable.bind(workload.copied_inputs)
        plain, calls = _plain(executable)
        profile = _profiled(adapter, workload, device, options, executable, calls)
        placement = [(one_line(str(name)), one_line(str(fact))) for name, fact in executable.placement.items()]
    finally:
        executable.close()
    try:
        found = explanation_of(label, profile, _graph(workload), plain, placement)
    except CompileFailed as error:
        raise CompileFailed(f"{adapter.name}: {error}") from None
    if is_mix(workload.spec.shapes):
        spec = workload.spec
        sizes = {"batch": spec.batch, "length": spec.sequence}
        largest = " and ".join(f"{name} {size}" for name, size in sizes.items() if size is not None)
        note = f"of calls at {largest}, the largest of its {spec.shapes}"
        return replace(found, notes=(note, *found.notes))
    if workload.spec.scenario == "latency":
        return found
    note = f"of one call alone, where the cell keeps several in flight (scenario {workload.spec.scenario})"
    return replace(found, notes=(note, *found.notes))


def _plain(executable: Executable) -> tuple[float, int]:
    """Return the seconds of the quickest call that nothing looks at, and how many are to be profiled."""

    def call() -> None:
        executable.run()
        executable.synchronize()

    began, taken = clock.seconds(), min(call_times(call, _FEWEST))
    while clock.seconds() - began < _WARM_SECONDS:
        taken = min(taken, *call_times(call, _FEWEST))
    calls = min(_MOST, max(_FEWEST, math.ceil(_SECONDS / max(taken, 1e-6))))
    return min(taken, *call_times(call, calls)), calls


def _profiled(
    adapter: Compiler,
    workload: LoadedWorkload,
    device: Device,
    options: Mapping[str, Any],
    executable: Executable,
    calls: int,
) -> Profile:
    """Ask an adapter, which may be anybody's and made before there was anything to ask."""
    ask = getattr(adapter, "explain", None)
    if ask is None:
        raise Unsupported(f"{adapter.name}: its adapter has no explain(), so nothing says what ran inside a call")
    found: Profile = ask(workload, device, options, executable, calls)
    return found


def _graph(workload: LoadedWorkload) -> Graph | None:
    """Return the nodes of the ONNX file that was compiled, or None where there is none or nothing that reads it."""
    path = workload.artifact.onnx if workload.artifact is not None else None
    if path is None:
        return None
    try:
        return read_graph(path)
    except ImportError:
        return None
