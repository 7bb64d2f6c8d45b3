"""What an adapter says of the inside of its calls: the nodes that ran, and what each took."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_ngraph.machine import clock

# Where nodes of a profile have their names from: the ONNX file, the module's own paths, or from neither.
ONNX, MODULE, NOTHING = "onnx", "module", ""


@dataclass(frozen=True, slots=True)
class ProfiledNode:
    """A node of what was compiled, as its runtime ran it.

    ``name`` is the runtime's own. ``seconds`` are those of a call, or None where the runtime does not say. ``operator``
    is the kind of node, ``kernel`` the kernel or the algorithm that computed it. ``contains`` names what is in it:
    nodes or tensors of the ONNX file, or paths of the module's layers, as ``Profile.names`` says. It is empty for what
    the compiler has added. An operator of a module that is no layer is named ``PATH:OPERATOR``.
    """

    name: str
    operator: str = ""
    seconds: float | None = None
    provider: str = ""
    kernel: str = ""
    precision: str = ""
    contains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """A runtime's profile of calls: its nodes in the order in which they ran, and the wall seconds of a profiled call.

    ``how`` names the profiler, ``calls`` says how many calls it is of. ``names`` is ``onnx`` where ``contains`` names
    nodes of the ONNX file, ``module`` where layers of the module, empty where neither is known. ``notes`` are what
    else a reader must know, such as that another model was compiled to be profiled.
    """

    nodes: Sequence[ProfiledNode]
    call_seconds: float
    calls: int
    how: str
    names: str = ONNX
    notes: Sequence[str] = ()


def call_times(call: Callable[[], object], calls: int) -> list[float]:
    """Return the wall seconds of each of so many calls, one after the other."""
    taken = []
    for _ in range(calls):
        began = clock.nanoseconds()
        call()
        taken.append((clock.nanoseconds() - began) * 1e-9)
    return taken


def undisturbed(calls: Sequence[float], of_calls: Sequence[Sequence[float]]) -> tuple[list[float], float]:
    """Return the seconds of each node, and those of a call, as they are where nobody else uses the machine.

    ``calls`` has the seconds of each call, ``of_calls`` those of all of its nodes in their order. Others make now this
    node longer and now that one, so a node's is its median, and a call's is all of these and the median of what no node
    accounts for. Of calls in which another number of nodes ran than in most nothing is taken.
    """
    if not of_calls:
        return [], statistics.median(calls)
    usual = statistics.mode(len(row) for row in of_calls)
    rows = [(call, row) for call, row in zip(calls, of_calls, strict=False) if len(row) == usual]
    nodes = [statistics.median(each) for each in zip(*(row for _, row in rows), strict=True)]
    between = statistics.median(call - math.fsum(row) for call, row in rows)
    return nodes, math.fsum(nodes) + max(0.0, between)
