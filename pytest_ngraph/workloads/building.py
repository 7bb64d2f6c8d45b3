"""Build the PyTorch module of a workload from its seed, identical in every process."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.files import file_digest
from pytest_ngraph.machine.imports import require
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads.decoding.generation import generating
from pytest_ngraph.workloads.kinds.axes import LENGTH, axis_values, built_by
from pytest_ngraph.workloads.kinds.catalogue import kind_of
from pytest_ngraph.workloads.kinds.contract import Built, Kind, guarded
from pytest_ngraph.workloads.modules.project_files import project_files
from pytest_ngraph.workloads.modules.seeding import seeded
from pytest_ngraph.workloads.optimizing import Found, optimized

if TYPE_CHECKING:
    from torch import nn


def build(workload: Workload, seed: int, achieved: dict[str, Any] | None = None, found: Found | None = None) -> Built:
    """Build the module of a workload that is not an ONNX file, in eval mode, and do to it what ``optimize`` asks for.

    Its ``example_inputs(batch)`` gives inputs of the workload's length, or of another by ``sequence=``.
    What that has achieved is checked and put into ``achieved``, where one is given, and what it has searched for into
    ``found``, which saves the search where it has that already. Raises SpecError where the reference, its axes or the
    code of a user cannot be used, Unsupported where an optimizer refuses the network.
    """
    values = axis_values(workload)
    axes, length = built_by(values), values.get(LENGTH)
    model = workload.model
    kind = kind_of(model)
    require(model.text, "torch", "torch")
    if kind.is_onnx:
        raise SpecError(f"model {model.text!r}: no PyTorch module is built of an ONNX file")
    with seeded(seed):
        built = _from_outside(kind, model, axes, seed) if model.kind else kind.build(model, axes, seed)
    built.module.eval()
    if kind.has_files:
        _refuse_calibration(model, built)
        _refuse_lazy(model, built.module)
    built = _told(model, kind, built, length)
    built = optimized(workload, built, seed, achieved, found)
    if workload.decode is None:
        return built
    with seeded(seed):
        return generating(model.text, built, workload.batch, workload.decode)


def _told(model: ModelRef, kind: Kind, built: Built, length: int | None) -> Built:
    """Return a model whose inputs, and whatever else of it takes ``sequence``, are told the length, where there is one.

    Raises SpecError where there is one and ``example_inputs`` does not take it.
    """
    offered = built.example_inputs

    def inputs(batch: int, sequence: int | None = length) -> Any:
        more = {} if sequence is None else {LENGTH: sequence}
        if not kind.has_files:
            return offered(batch, **more)
        said = "".join(f", {name}={value}" for name, value in more.items())
        return guarded(model.text, f"example_inputs({batch}{said})", lambda: offered(batch, **more))

    if length is None:
        return replace(built, example_inputs=inputs)
    if not _takes_length(offered):
        raise SpecError(
            f"model {model.text!r}: it does not take sequence ({length} is given): its example_inputs has no argument "
            "of that name; write it as example_inputs(batch, sequence=128)"
        )
    others: dict[str, Callable[..., Any] | None] = {
        "evaluate": built.evaluate,
        "calibration_inputs": built.calibration_inputs,
    }
    given = {
        name: partial(each, sequence=length)
        for name, each in others.items()
        if each is not None and _takes_length(each)
    }
    return replace(built, example_inputs=inputs, **given)  # type: ignore[arg-type]


def _takes_length(call: Callable[..., Any]) -> bool:
    """Return whether a function takes ``sequence`` as a keyword. What has no signature is called to find out."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(
        each.kind is each.VAR_KEYWORD or (each.name == LENGTH and each.kind is not each.POSITIONAL_ONLY)
        for each in parameters
    )


def _refuse_calibration(model: ModelRef, built: Built) -> None:
    """Raise SpecError for samples to calibrate on that are no function."""
    if built.calibration_inputs is not None and not callable(built.calibration_inputs):
        raise SpecError(
            f"model {model.text!r}: its calibration_inputs is {type(built.calibration_inputs).__name__} (expected a "
            "function without arguments that gives several of what example_inputs(batch) gives)"
        )


def _refuse_lazy(model: ModelRef, module: nn.Module) -> None:
    """Raise SpecError for a parameter or buffer that gets its shape in the first call: nobody knows its weights yet."""
    from torch.nn.parameter import is_lazy

    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise SpecError(
                f"model {model.text!r}: its {name!r} has no shape before the first call (a lazy module); call the "
                "module once in its factory, before it is returned"
            )


def _from_outside(kind: Kind, model: ModelRef, axes: Mapping[str, int], seed: int) -> Built:
    """Build a model of a kind that is somebody's own code. Raise SpecError that names it where it breaks the contract.

    The files of the kind's module and those that it says a model is made of are part of what was built.
    """
    from torch import nn

    name = model.scheme
    guarded(model.text, f"names() of its kind {name!r}", lambda: kind.check_name(model))
    built = guarded(model.text, f"build() of its kind {name!r}", lambda: kind.build(model, axes, seed))
    given = f"model {model.text!r}: build() of its kind {name!r} gave"
    if not isinstance(built, Built):
        raise SpecError(f"{given} {type(built).__name__} (expected Built(module, example_inputs))")
    if not isinstance(built.module, nn.Module):
        raise SpecError(f"{given} a module that is {type(built.module).__name__} (expected a torch.nn.Module)")
    if not callable(built.example_inputs):
        raise SpecError(
            f"{given} no inputs: example_inputs is {type(built.example_inputs).__name__} (expected a function of the "
            "batch that gives a tensor, a tuple of tensors, or a dict of keyword arguments)"
        )
    home = sys.modules[model.kind.partition(":")[0]]
    of_kind = project_files(home, built.module)
    of_model = {str(path.resolve()): file_digest(path) for path in kind.files(model)}
    return replace(built, files={**of_kind, **of_model, **built.files})
