"""TorchScript: the module is traced once and frozen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

from pytest_ngraph.compilers.base import Executable, Option
from pytest_ngraph.compilers.toolkit.torch_export import by_position
from pytest_ngraph.compilers.torch.shared import (
    Place,
    TorchCompiler,
    arguments_on,
    describe,
    executable_for,
    load_module,
    take_place,
    without_script_deprecation,
)
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
            traced, is_flat = _traced(module, workload, place)
            frozen = torch.jit.freeze(traced)
            if options["optimize"] == "inference":
                frozen = torch.jit.optimize_for_inference(frozen)
        placement = describe(module, workload, place) | {"optimize": options["optimize"]}
        executable = executable_for(_by_position(frozen) if is_flat else frozen, workload, place, placement)
        executable.bind(workload.copied_inputs)
        for _ in range(_WARM_UPS):
            executable.run()
        executable.synchronize()
        executable.compiled = frozen, is_flat
        return executable

    def explain(
        self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], executable: Executable, calls: int
    ) -> Profile:
        """Profile the frozen graph, whose operators know in which layers they were traced."""
        from pytest_ngraph.explain.runtimes.torch import profile_traced, refuse_gpu

        refuse_gpu(device.accelerator)
        graph, is_wrapped = getattr(executable, "compiled", None) or (None, False)
        return profile_traced(graph, executable.run, calls, is_wrapped=is_wrapped)


def _traced(module: Any, workload: LoadedWorkload, place: Place) -> tuple[Any, bool]:
    """Return the traced module, and whether it takes all tensors by position.

    It is traced as it is where tracing can do that: with ``strict=False`` it may return dictionaries of tensors. The
    tracer knows neither keywords that are not named in ``forward`` or are keyword-only, nor dataclasses, nor None among
    outputs: a wrapper takes these, which gives the tensors alone.
    """
    import torch

    def arguments() -> tuple[tuple[Any, ...], dict[str, Any]]:
        # New ones for each: a model may write into what it is traced with.
        return arguments_on(place, workload, workload.inputs_built_with)

    how: dict[str, Any] = {"check_trace": False, "strict": False}
    positional, keywords = arguments()
    parameters = signature(module.forward).parameters.items()
    named = {name for name, each in parameters if each.kind is Parameter.POSITIONAL_OR_KEYWORD}
    if named.issuperset(keywords):
        # trace() takes positional or keyword examples, never both; so does a workload.
        examples = {"example_kwarg_inputs": keywords} if keywords else {"example_inputs": positional}
        try:
            return torch.jit.trace(module, **examples, **how), False
        except RuntimeError:
            # What is no matter of its outputs fails in the wrapper, too, and is told as that.
            positional, keywords = arguments()
    flat = by_position(module, workload, len(positional), [*keywords])
    return torch.jit.trace(flat, (*positional, *keywords.values()), **how), True


def _by_position(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*positional: Any, **keywords: Any) -> Any:
        return call(*positional, *keywords.values())

    return called


COMPILER = TorchScriptCompiler()
