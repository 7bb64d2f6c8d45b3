"""PyTorch's profiler: operators by the layers that called them or that they were traced in, or inductor's kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.explain.graph import unwrapped
from pytest_ngraph.explain.profile import MODULE, NOTHING, Profile, ProfiledNode, call_times, undisturbed

_WARM_UPS = 3
_CALL, _LAYER = "ngraph call", "ngraph layer "
_HOW = "torch.profiler"
_NUMBERED = re.compile(r"_\d+\Z")
# Of the names of operators in the name of a kernel.
_INSIDE = (
    ("_native_batch_norm_legit_no_training", "batch_norm"),
    ("native_batch_norm_legit_no_training", "batch_norm"),
    ("_with_indices", ""),
)
# What inductor's kernels and those of its libraries are called by.
_KERNELS = ("cpp_fused", "triton_", "mkldnn::", "mkl::", "aten::", "onednn::", "quantized::")


def refuse_gpu(accelerator: str) -> None:
    """Raise Unsupported on a GPU, where operators are only enqueued while the profiler looks at them."""
    if accelerator != "cpu":
        raise Unsupported("PyTorch's operators are only enqueued on a GPU; their times there are not read yet")


def profile_eager(module: Any, run: Callable[[], None], calls: int) -> Profile:
    """Return the profile of a module that runs as it is: operators by the layers that call them."""
    leaves = {name for name, layer in module.named_modules() if not any(True for _ in layer.children())}
    with _marked(module):
        events, taken = _events(run, calls)
    of_calls = [list(_eager_nodes(call, leaves)) for call in events]
    return _profile(of_calls, taken, MODULE, ["layers are marked while they are profiled"])


def profile_traced(graph: Any, run: Callable[[], None], calls: int, *, is_wrapped: bool) -> Profile:
    """Return the profile of a TorchScript graph: operators in its order, by the scopes that they were traced in.

    ``is_wrapped`` says that what was traced is not the model itself, but a module that calls it.
    """
    nodes = graph.graph.nodes() if graph is not None else ()
    scopes = [(node.kind(), node.scopeName()) for node in nodes if node.kind().partition("::")[0] == "aten"]
    events, taken = _events(run, calls)
    of_calls = [[_node(event, "") for event in _operators(call)] for call in events]
    kinds = [node.operator for node in of_calls[0]] if of_calls else []
    if kinds != [_short(kind) for kind, _ in scopes]:
        notes = ["the executor runs other operators than the graph has, so that their layers are not known"]
        return _profile(of_calls, taken, NOTHING, notes)
    paths = [unwrapped(_path_of(scope)) if is_wrapped else _path_of(scope) for _, scope in scopes]
    leaves = {path for path in paths if not any(other.startswith(f"{path}.") for other in paths)}
    named = [
        [_in_layer(node, path, is_leaf=path in leaves) for node, path in zip(call, paths, strict=True)]
        for call in of_calls
        if len(call) == len(scopes)
    ]
    return _profile(named, taken, MODULE, [])


def profile_compiled(run: Callable[[], None], calls: int) -> Profile:
    """Return the profile of what inductor compiled with its kernels marked (``cpp.enable_kernel_profile``)."""
    events, taken = _events(run, calls)
    of_calls = [[_kernel(event) for event in _kernels(call)] for call in events]
    notes = [
        "profiled in another compiled module, with its kernels marked (cpp.enable_kernel_profile)",
        "inductor names kernels by the operators in them, and not by layers",
    ]
    return _profile(of_calls, taken, NOTHING, notes)


def _profile(
    of_calls: Sequence[Sequence[ProfiledNode]], taken: Sequence[float], names: str, notes: Sequence[str]
) -> Profile:
    seconds, whole = undisturbed(taken, [[node.seconds or 0.0 for node in call] for call in of_calls])
    usual = next((call for call in of_calls if len(call) == len(seconds)), [])
    nodes = [replace(node, seconds=each) for node, each in zip(usual, seconds, strict=True)]
    return Profile(nodes, whole, len(taken), _HOW, names, notes)


def _events(run: Callable[[], None], calls: int) -> tuple[list[Any], list[float]]:
    """Return the events of each of so many calls, and their seconds while they are profiled."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    def call() -> None:
        with record_function(_CALL):
            run()

    with torch.inference_mode():
        # What it sets up when it is first used is no part of any call.
        with profile(activities=[ProfilerActivity.CPU]):
            for _ in range(_WARM_UPS):
                call()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            taken = call_times(call, calls)
    return [event for event in profiler.events() if event.name == _CALL and event.cpu_parent is None], taken


@contextmanager
def _marked(module: Any) -> Iterator[None]:
    """Mark the calls of every layer of a module by its path."""
    from torch.profiler import record_function

    begun: list[Any] = []

    def begin(path: str) -> Callable[..., None]:
        def mark(*_: Any) -> None:
            begun.append(record_function(_LAYER + path))
            begun[-1].__enter__()

        return mark

    def end(*_: Any) -> None:
        begun.pop().__exit__(None, None, None)

    with ExitStack() as hooks:
        for path, layer in module.named_modules():
            hooks.callback(layer.register_forward_pre_hook(begin(path)).remove)
            hooks.callback(layer.register_forward_hook(end, always_call=True).remove)
        yield


def _children(event: Any) -> list[Any]:
    return sorted(event.cpu_children, key=lambda each: each.time_range.start)


def _eager_nodes(event: Any, leaves: set[str], path: str = "") -> Iterator[ProfiledNode]:
    for child in _children(event):
        if child.name.startswith(_LAYER):
            yield from _eager_nodes(child, leaves, child.name.removeprefix(_LAYER))
        else:
            node = _node(child, "")
            yield _in_layer(node, path, is_leaf=path in leaves)


def _operators(event: Any) -> Iterator[Any]:
    """Yield the outermost operators of a call, behind what only calls them."""
    for child in _children(event):
        if "::" in child.name:
            yield child
        else:
            yield from _operators(child)


def _kernels(event: Any) -> Iterator[Any]:
    """Yield the outermost kernels of a call of what inductor compiled, behind its own wrappers."""
    for child in _children(event):
        if any(word in child.name for word in _KERNELS):
            yield child
        else:
            yield from _kernels(child)


def _short(name: str) -> str:
    return str(name).rpartition("::")[2].strip("_")


def _node(event: Any, precision: str) -> ProfiledNode:
    """Return an operator with its time and the kernel below it that took most of it."""
    operator = _short(event.name)
    kernel = max(_below(event), key=lambda each: each.self_cpu_time_total)
    return ProfiledNode(
        operator, operator, event.cpu_time_total * 1e-6, "torch-cpu", str(kernel.name).removeprefix("aten::"), precision
    )


def _kernel(event: Any) -> ProfiledNode:
    """Return a kernel of inductor's, by the operators that its name says are in it."""
    node = _node(event, "")
    if "fused" not in node.operator:
        return node
    inside = _NUMBERED.sub("", node.operator.partition("fused")[2]).strip("_")
    for long, short in _INSIDE:
        inside = inside.replace(long, short)
    return replace(node, operator=f"fused {inside}".strip())


def _below(event: Any) -> Iterator[Any]:
    yield event
    for child in event.cpu_children:
        yield from _below(child)


def _in_layer(node: ProfiledNode, path: str, *, is_leaf: bool) -> ProfiledNode:
    part = path if path and is_leaf else f"{path}:{node.operator}"
    return replace(node, name=f"{path}:{node.operator}" if path else node.operator, contains=(part,))


def _path_of(scope: str) -> str:
    """Return the layer that a scope of a traced graph is of, such as ``__module.layer1/__module.layer1.0``."""
    return scope.rpartition("/")[2].removeprefix("__module").removeprefix(".")
