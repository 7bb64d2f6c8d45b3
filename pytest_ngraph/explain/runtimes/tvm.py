"""TVM's profile: the instrument of its virtual machine, called before and after each kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytest_ngraph.explain.profile import NOTHING, Profile, ProfiledNode, call_times, undisturbed
from pytest_ngraph.machine import clock

_WARM_UPS = 2
# What the machine does between kernels: allocations, checks of shapes.
_BUILTIN = "vm.builtin."
_AGAIN = 0  # the instrument's answer: run the kernel as always


def profile(machine: Any, run: Callable[[], None], calls: int) -> Profile:
    """Return the profile of calls of a virtual machine. It has no instrument afterwards."""
    taken: list[tuple[str, int]] = []
    begun: list[int] = []

    def instrument(_function: Any, symbol: str, before: bool, _result: Any, *_arguments: Any) -> int:
        if before:
            begun.append(clock.nanoseconds())
        else:
            taken.append((str(symbol), clock.nanoseconds() - begun.pop()))
        return _AGAIN

    for _ in range(_WARM_UPS):
        run()
    machine.set_instrument(instrument)
    of_calls: list[Sequence[tuple[str, int]]] = []
    whole: list[float] = []
    try:
        for _ in range(calls):
            taken.clear()
            whole += call_times(run, 1)
            of_calls.append(list(taken))
    finally:
        machine.set_instrument(_nothing)
    nodes, seconds = nodes_of(of_calls, whole)
    return Profile(
        nodes,
        seconds,
        calls,
        "the instrument of TVM's virtual machine",
        NOTHING,
        ("TVM names kernels by the operators in them, and not by ONNX nodes",),
    )


def _nothing(*_: Any) -> int:
    return _AGAIN


def nodes_of(of_calls: Sequence[Sequence[tuple[str, int]]], taken: Sequence[float]) -> tuple[list[ProfiledNode], float]:
    """Return kernels in their order, what the machine does between them as one node, and the seconds of a call."""
    kernels = [[each for each in call if not each[0].startswith(_BUILTIN)] for call in of_calls]
    between = [sum(ns for name, ns in call if name.startswith(_BUILTIN)) for call in of_calls]
    rows = [[*(ns * 1e-9 for _, ns in call), rest * 1e-9] for call, rest in zip(kernels, between, strict=True)]
    seconds, whole = undisturbed(taken, rows)
    usual = next((call for call in kernels if len(call) == len(seconds) - 1), [])
    nodes = [
        ProfiledNode(name, _operator(name), each, "llvm", name) for (name, _), each in zip(usual, seconds, strict=False)
    ]
    return [
        *nodes,
        ProfiledNode("vm.builtin", "allocations and checks", seconds[-1] if seconds else None, "tvm"),
    ], whole


def _operator(name: str) -> str:
    """Return the first operator of a kernel's name, such as ``conv2d`` of ``fused_conv2d1_add1_relu1``."""
    words = [word.rstrip("0123456789") or word for word in name.removeprefix("fused_").split("_")]
    found = [f"{words[0]}2d" if words[0] in ("conv",) and "2d" in name else words[0]]
    if words[0] in ("max", "avg", "adaptive", "layer", "batch") and len(words) > 1:
        found = ["_".join(words[: 2 if words[0] != "adaptive" else 3])]
    return found[0]
