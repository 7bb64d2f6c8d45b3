"""PyTorch's dynamic graph as it is: the baseline that every compiler is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.compilers.torch.decoding import TorchDecoder
from pytest_ngraph.compilers.torch.shared import TorchCompiler, describe, executable_for, load_module, take_place
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    from pytest_ngraph.explain.profile import Profile
    from pytest_ngraph.workloads.loaded import LoadedWorkload


class IdentityCompiler(TorchCompiler):
    """Eager PyTorch: evaluation mode, inference mode, threads set, nothing compiled."""

    name = "identity"
    rough_seconds = (0.0, 0.0)
    decodes = True

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Return the module itself, ready to be called."""
        place = take_place(workload, device, options)
        module = load_module(workload, place)
        placement = describe(module, workload, place)
        if workload.spec.decode is not None:
            return TorchDecoder(module.parts(), module.arguments, place, placement)
        return executable_for(module, workload, place, placement)

    def explain(
        self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], executable: Executable, calls: int
    ) -> Profile:
        """Profile the module by its layers."""
        from pytest_ngraph.explain.runtimes.torch import profile_eager, refuse_gpu

        refuse_gpu(device.accelerator)
        return profile_eager(workload.module(), executable.run, calls)


COMPILER = IdentityCompiler()
