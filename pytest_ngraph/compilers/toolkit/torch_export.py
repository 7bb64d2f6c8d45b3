"""A workload's module as a program of torch.export, for compilers that work ahead of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

from pytest_ngraph.errors import Unsupported

if TYPE_CHECKING:
    import torch

    from pytest_ngraph.workloads.loaded import LoadedWorkload


def by_position(
    module: torch.nn.Module, workload: LoadedWorkload, positional: int, keywords: Sequence[str]
) -> torch.nn.Module:
    """Return a module that takes all tensors by position, so many and then those of the keywords, and calls this one.

    It gives a flat tuple of tensors in the order of the workload's outputs.
    """
    import torch

    class Flat(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            named = dict(zip(keywords, given[positional:], strict=True))
            return tuple(workload.flatten(self.module(*given[:positional], **named)))

    return Flat().eval()


def exported(
    module: torch.nn.Module,
    workload: LoadedWorkload,
    positional: tuple[torch.Tensor, ...],
    keywords: Mapping[str, torch.Tensor],
) -> torch.export.ExportedProgram:
    """Return the whole module as a program with static shapes, which takes all tensors by position, keywords last.

    It gives a flat tuple of tensors in the order of the workload's outputs. Raises Unsupported with the reason where
    torch.export cannot take all of it.
    """
    import torch
    from torch._dynamo.exc import TorchDynamoException, UserError
    from torch._dynamo.exc import Unsupported as GraphBreak
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    flat = by_position(module, workload, len(positional), [*keywords])
    try:
        with catch_warnings(), torch.no_grad():
            # torch 2.13 copies its own tree specs in a way that it deprecates itself.
            filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            return torch.export.export(flat, (*positional, *keywords.values()), strict=False)
    except (GraphBreak, UserError, GuardOnDataDependentSymNode, TorchDynamoException) as error:
        first = str(error).strip().partition("\n")[0]
        raise Unsupported(f"torch.export cannot take the whole graph: {first}") from error
