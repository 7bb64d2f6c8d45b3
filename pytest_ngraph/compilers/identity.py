"""PyTorch's dynamic graph as it is: the baseline that every compiler is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import THREADS, Compiler, Executable, threads_of
from pytest_ngraph.compilers.pytorch import TorchExecutable, describe, load_module, set_threads
from pytest_ngraph.spec import Device

if TYPE_CHECKING:
    from pytest_ngraph.workloads.loaded import LoadedWorkload


class IdentityCompiler(Compiler):
    """Eager PyTorch: evaluation mode, inference mode, threads set, nothing compiled."""

    name = "identity"
    requires = ("torch",)
    extra = "torch"
    options = (THREADS,)

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Return the module itself, ready to be called."""
        set_threads(threads_of(device, options))
        module = load_module(workload)
        return TorchExecutable(module, workload, describe(module, workload))


COMPILER = IdentityCompiler()
