"""TorchScript: the module is traced once and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

from pytest_ngraph.compilers.base import Executable, Option
from pytest_ngraph.compilers.torch.shared import (
    TorchCompiler,
    arguments_on,
    describe,
    executable_for,
    load_module,
    take_place,
    without_script_deprecation,
)
from pytest_ngraph.errors import Unsupported
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    from pytest_ngraph.explain.profile import Profile
    from pytest_ngraph.workloads.loaded import LoadedWorkload

# The profiling executor looks at the first two calls, optimises, and only then runs what it made.
_WARM_UPS = 3


class TorchScriptCompiler(TorchCompiler):
    """``torchscript[optimize=freeze|inference]``: trace, freeze, and optionally optimize_for_inference."""

    name = "torchscript"
    rough_seconds = (1.0, 1.0)
    options = (
        *TorchCompiler.options,
        Option(
            "optimize",
            "freeze",
            "inference also applies torch.jit.optimize_for_inference",
            choices=("freeze", "inference"),
        ),
    )

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Trace and freeze the module on its own inputs and call it until the executor has settled."""
        import torch

        place = take_place(workload, device, options)
        module = load_module(workload, place)
        with without_script_deprecation(), catch_warnings(), torch.inference_mode():
            # Shapes are static and the outputs are compared, so Python values that become constants are no news.
            filterwarnings("ignore", category=torch.jit.TracerWarning)
            frozen = torch.jit.freeze(_trace(module, *arguments_on(place, workload, workload.inputs_built_with)))
            if options["optimize"] == "inference":
                frozen = torch.jit.optimize_for_inference(frozen)
        placement = describe(module, workload, place) | {"optimize": options["optimize"]}
        executable = executable_for(frozen, workload, place, placement)
        executable.bind(workload.copied_inputs)
        for _ in range(_WARM_UPS):
            executable.run()
        executable.synchronize()
        executable.compiled = frozen
        return executable

    def explain(
        self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], executable: Executable, calls: int
    ) -> Profile:
        """Profile the frozen graph, whose operators know in which layers they were traced."""
        from pytest_ngraph.explain.runtimes.torch import profile_traced, refuse_gpu

        refuse_gpu(device.accelerator)
        return profile_traced(getattr(executable, "compiled", None), executable.run, calls)


def _trace(module: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Trace a module. ``strict=False`` lets it return dictionaries."""
    import torch

    named_only = [
        name for name, each in signature(module.forward).parameters.items() if each.kind is Parameter.KEYWORD_ONLY
    ]
    if set(named_only) & set(keywords):
        raise Unsupported(f"torch.jit.trace cannot pass keyword-only arguments ({', '.join(named_only)})")
    # trace() takes positional or keyword examples, never both; so does a workload.
    examples = {"example_kwarg_inputs": dict(keywords)} if keywords else {"example_inputs": arguments}
    return torch.jit.trace(module, **examples, check_trace=False, strict=False)


COMPILER = TorchScriptCompiler()
