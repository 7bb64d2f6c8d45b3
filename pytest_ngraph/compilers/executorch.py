"""ExecuTorch on the CPU: the exported program with XNNPACK for what that takes and portable kernels for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from pytest_ngraph.compilers.base import THREADS, Compiler, Executable, threads_of
from pytest_ngraph.compilers.toolkit.kept import built
from pytest_ngraph.compilers.toolkit.torch_export import exported
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    import numpy as np
    import torch

    from pytest_ngraph.workloads.loaded import LoadedWorkload

_BACKEND = "XnnpackBackend"
_PROGRAM = "model.pte"
# They move values between calls and compute nothing.
_NO_NODES = ("getitem", "executorch_call_delegate")
# Kernels that are named in the placement, the most frequent ones.
_NAMED = 4


class ExecuTorchExecutable(Executable):
    """A method of a loaded program, which copies its inputs into its own memory at each call."""

    def __init__(self, method: Any, workload: LoadedWorkload, placement: Mapping[str, str | int]) -> None:
        self._method, self._workload = method, workload
        self._arguments: list[torch.Tensor] = []
        self._result: Sequence[torch.Tensor] = ()
        self.placement = placement

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Keep the inputs as tensors on the same memory, in the order of the program."""
        positional, keywords = self._workload.arguments(inputs)
        self._arguments = [*positional, *keywords.values()]

    def run(self) -> None:
        """Call once. What it gives lies in the program's memory until the next call."""
        self._result = self._method.call(self._arguments, False)

    def outputs(self) -> Sequence[np.ndarray]:
        """Return the last call's outputs as arrays of their own."""
        return [tensor.numpy().copy() for tensor in self._result]

    def close(self) -> None:
        """Release the program, its inputs and its outputs."""
        self._method, self._arguments, self._result = None, [], ()


class ExecuTorchCompiler(Compiler):
    """``executorch[threads=N]``: torch.export, the edge dialect, XNNPACK's partitioner, and the Python runtime."""

    name = "executorch"
    requires = ("torch", "executorch")
    variables = ("EXECUTORCH_", "ET_", "XNN_", "XNNPACK_")
    extra = "executorch"
    verified: Mapping[str, str] = {"cpu": "x86-64 Linux, ExecuTorch 1.5.1 with PyTorch 2.13.0"}
    options = (THREADS,)
    rough_seconds = (4.0, 0.2)

    def load(self) -> None:
        """Import the runtime and what lowers programs, which takes seconds. Its programs come from the shelf or here.

        Raises CompileFailed where one of its modules is missing, which it reports as if its own library was.
        """
        with catch_warnings():
            # Its Python API calls itself experimental, and torchao tells of its own old ways.
            simplefilter("ignore")
            try:
                import executorch.backends.xnnpack.partition.xnnpack_partitioner
                import executorch.exir
                import executorch.extension.pybindings.portable_lib  # noqa: F401
            except ImportError as error:
                raise CompileFailed(f"{_named()} cannot be imported: {_cause(error)}") from error

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Lower the program, or take what an earlier launch lowered, and load it as a deployment would."""
        from executorch.extension.pybindings import portable_lib

        if not portable_lib._is_available(_BACKEND):
            raise Unsupported(f"{_named()} was built without {_BACKEND}")
        threads = _settle(portable_lib, threads_of(device, options))
        facts = {"versions": [version_of("executorch"), version_of("torch")], "backend": _BACKEND}
        with built(workload.kept, self.name, facts, partial(_lower, workload)) as (folder, meta, loaded):
            path = folder / _PROGRAM
            try:
                program = portable_lib._load_program(str(path))
                method = program.load_method("forward")
            except RuntimeError as error:
                raise CompileFailed(f"{_named()} cannot load its own program: {_cause(error)}") from error
            size = path.stat().st_size
        placement = {
            "provider": meta["provider"],
            # A program is in the types that it was exported in, and XNNPACK is not asked for smaller ones.
            "precision": workload.spec.base_precision,
            "threads": threads,
            "delegated": meta["delegated"],
            "kernels": meta["kernels"],
            "program": "loaded" if loaded else "built",
            "version": version_of("executorch") or "unknown",
        }
        executable = ExecuTorchExecutable(method, workload, placement)
        executable.loaded, executable.model_bytes = loaded, size
        return executable


def _settle(library: Any, threads: int) -> int:
    """Give the process's pool this many threads, before any method is loaded that keeps it. Return how many it has."""
    if library._threadpool_get_thread_count() != threads:
        library._unsafe_reset_threadpool(threads)
    found = int(library._threadpool_get_thread_count())
    if found != threads:
        raise CompileFailed(f"{_named()}: asked for {threads} threads, its pool has {found}")
    return found


def _lower(workload: LoadedWorkload, folder: Path) -> Mapping[str, str]:
    """Write the program of a workload into a folder. Return what of it is XNNPACK's."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from torch._export.verifier import SpecViolationError

    program = exported(workload.module(), workload, *workload.arguments(workload.inputs))
    with catch_warnings(), torch.no_grad():
        simplefilter("ignore")
        try:
            edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
        except SpecViolationError as error:
            raise Unsupported(f"{_named()} cannot lower it: {_cause(error)}") from error
        taken, left = _nodes(edge.exported_program().graph_module)
        try:
            done = edge.to_executorch()
        except RuntimeError as error:
            if "out variant" in str(error):
                raise Unsupported(f"{_named()} has no kernel for a part of it: {_cause(error)}") from error
            raise
    (folder / _PROGRAM).write_bytes(done.buffer)
    delegates, kernels = _read_back(done.buffer)
    return {
        "provider": "+".join([*([_BACKEND] if delegates else []), *(["portable kernels"] if kernels else [])]),
        "delegated": _said(taken, left, delegates),
        "kernels": ", ".join(f"{name} {count}" for name, count in kernels.most_common(_NAMED)) or "none",
    }


def _said(taken: int, left: int, parts: int) -> str:
    """Return the share of the nodes that was delegated, in words. A program without a part of it has none."""
    if not parts:
        return f"none of {taken + left} nodes"
    return f"{taken} of {taken + left} nodes, in {parts} part{'s' if parts > 1 else ''}"


def _nodes(graph_module: Any) -> tuple[int, int]:
    """Return how many nodes of a lowered graph are in parts that were delegated, and how many are not."""
    parts = [part.original_module.graph_module for _, part in graph_module.named_children() if _is_delegated(part)]
    return sum(_computing(part.graph.nodes) for part in parts), _computing(graph_module.graph.nodes)


def _is_delegated(part: Any) -> bool:
    return getattr(part, "backend_id", None) == _BACKEND


def _computing(nodes: Iterable[Any]) -> int:
    called = (node.target for node in nodes if node.op == "call_function")
    return sum(getattr(target, "__name__", str(target)) not in _NO_NODES for target in called)


def _read_back(program: bytes) -> tuple[int, Counter[str]]:
    """Return how many calls of the finished program go to XNNPACK, and how many to which kernels."""
    from executorch.exir._serialize._program import deserialize_pte_binary
    from executorch.exir.schema import DelegateCall, KernelCall

    [plan] = deserialize_pte_binary(program).program.execution_plan
    calls = [each.instr_args for chain in plan.chains for each in chain.instructions]
    delegates = sum(
        plan.delegates[call.delegate_index].id == _BACKEND for call in calls if isinstance(call, DelegateCall)
    )
    kernels = Counter(plan.operators[call.op_index].name for call in calls if isinstance(call, KernelCall))
    return delegates, kernels


def _named() -> str:
    return f"executorch {version_of('executorch')}"


def _cause(error: BaseException) -> str:
    """Return the first line of the error that another one was raised from, where it was."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {(str(error).strip() or 'without a word').splitlines()[0]}"


COMPILER = ExecuTorchCompiler()
