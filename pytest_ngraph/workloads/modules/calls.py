"""How a module is called: its inputs by name, and its outputs as a flat list."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError, Unsupported

if TYPE_CHECKING:
    import torch

POSITIONAL, KEYWORD = "positional", "keyword"


@dataclass(frozen=True, slots=True)
class Call:
    """The example inputs of a module by name, and whether they are positional or keyword arguments."""

    kind: str
    tensors: Mapping[str, torch.Tensor]


def read_call(text: str, module: torch.nn.Module, example: Any, batch: int) -> Call:
    """Read what ``example_inputs(batch)`` gave: a tensor, a tuple of tensors or a dict of tensors.

    Raises SpecError that names the model (``text``) for anything else, and where no tensor has the batch in its
    shape.
    """
    call = read(text, module, example, f"example_inputs({batch})")
    if not any(batch in value.shape for value in call.tensors.values()):
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in call.tensors.items())
        raise SpecError(f"model {text!r}: example_inputs({batch}) gave no input of batch {batch}: {shapes}")
    return call


def read(text: str, module: torch.nn.Module, example: Any, what: str) -> Call:
    """Read a tensor, a tuple of tensors or a dict of tensors that ``what`` of a model gave. Raise SpecError else."""
    import torch

    if isinstance(example, Mapping):
        call = Call(KEYWORD, {str(name): value for name, value in example.items()})
    else:
        values = tuple(example) if isinstance(example, (tuple, list)) else (example,)
        call = Call(POSITIONAL, dict(zip(_names(module, len(values)), values, strict=True)))
    if not call.tensors or not all(isinstance(value, torch.Tensor) for value in call.tensors.values()):
        raise SpecError(
            f"model {text!r}: {what} gave {type(example).__name__} "
            "(allowed: a tensor, a tuple of tensors, a dict of tensors)"
        )
    return call


def arguments(kind: str, tensors: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments for named inputs."""
    return ((), dict(tensors)) if kind == KEYWORD else (tuple(tensors.values()), {})


def flatten(outputs: Any) -> list[torch.Tensor]:
    """Return the tensors in outputs, in order: of tuples, lists, mappings (as inserted) and dataclasses (as declared).

    None is left out, as an exporter leaves it out. Raises Unsupported for anything else.
    """
    import torch

    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if outputs is None:
        return []
    if isinstance(outputs, Mapping):
        parts = list(outputs.values())
    elif isinstance(outputs, (tuple, list)):
        parts = list(outputs)
    elif dataclasses.is_dataclass(outputs) and not isinstance(outputs, type):
        parts = [getattr(outputs, field.name) for field in dataclasses.fields(outputs)]
    else:
        raise Unsupported(
            f"the model returns {type(outputs).__name__}, not tensors or tuples, lists, dicts or dataclasses of them"
        )
    return [tensor for part in parts for tensor in flatten(part)]


def output_names(count: int) -> list[str]:
    """Name the outputs: ``output`` where there is one, else ``output_0`` and so on."""
    return ["output"] if count == 1 else [f"output_{index}" for index in range(count)]


def _names(module: torch.nn.Module, count: int) -> list[str]:
    if count == 1:
        return ["input"]
    forward: Callable[..., Any] = module.forward
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [name for name, each in inspect.signature(forward).parameters.items() if each.kind in kinds][:count]
    return named + [f"input_{index}" for index in range(len(named), count)]
