"""Do to a network what ``optimize`` asks for, and hold what was done to what an optimizer promises."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import NgraphError, SpecError
from pytest_ngraph.optimizers.catalogue import steps_of
from pytest_ngraph.optimizers.counting import macs, numbers, shapes
from pytest_ngraph.optimizers.layers import weights_of
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.optimizing import Step
from pytest_ngraph.workloads.kinds.contract import Built
from pytest_ngraph.workloads.modules.project_files import project_files
from pytest_ngraph.workloads.modules.seeding import seeded

if TYPE_CHECKING:
    from torch import nn

    from pytest_ngraph.optimizers.contract import Optimizer

# The batch that an optimizer sees, whatever that of the workload: all batches have one network.
_BATCH = 1


def optimized(workload: Workload, built: Built, seed: int, achieved: dict[str, Any] | None = None) -> Built:
    """Return what is left of a model after the steps of its workload, in eval mode.

    Where ``achieved`` is given, what was achieved is checked and put into it. Raises SpecError where an optimizer
    breaks its promises, Unsupported where it refuses the network.
    """
    steps = [*steps_of(workload)]
    if not steps:
        return built
    with seeded(seed):
        example = built.example_inputs(_BATCH)
    places, files = dict(workload.optimizers), dict(built.files)
    module = built.module
    dense = None if achieved is None else _Seen(module, example)
    before = dense
    for step, optimizer in steps:
        with seeded(seed):
            module = _applied(workload, step, optimizer, module, example, seed)
        if before is not None:
            after = _Seen(module, example, workload, step)
            _check(workload, step, before, after)
            before = after
        if step.name in places:
            home = sys.modules[places[step.name].partition(":")[0]]
            files |= project_files(home, module)
    if achieved is not None and dense is not None and before is not None:
        achieved |= {"dense": dense.facts, "optimized": before.facts, **_layers(dense, before)}
    return replace(built, module=module, files=files)


def _applied(
    workload: Workload, step: Step, optimizer: Optimizer, module: nn.Module, example: Any, seed: int
) -> nn.Module:
    from torch import nn

    who = f"model {workload.model.text!r}: optimizer {str(step)!r}"
    if missing := optimizer.missing():
        raise SpecError(f"{who}: {missing}")
    options = optimizer.resolve(step)
    try:
        made = optimizer.apply(module, step.ratio, example, seed, **options)
    except NgraphError as error:
        raise type(error)(f"{who}: {error}") from error
    except MemoryError:
        # An outcome of its own, and no fault of the optimizer.
        raise
    except Exception as error:
        raise SpecError(f"{who}: its apply() raised {type(error).__name__}: {error}") from error
    if not isinstance(made, nn.Module):
        raise SpecError(f"{who}: its apply() gave {type(made).__name__} (expected a torch.nn.Module)")
    return made.eval()


class _Seen:
    """What is seen of a network at one time: what it gives, and what its weights are."""

    def __init__(self, module: nn.Module, example: Any, workload: Workload | None = None, step: Step | None = None):
        try:
            self.outputs = shapes(module, example)
        except Exception as error:
            if workload is None:
                raise SpecError(f"the model does not run on its own example inputs: {error}") from error
            raise SpecError(
                f"model {workload.model.text!r}: optimizer {str(step)!r}: what it made does not run: "
                f"{type(error).__name__}: {error}"
            ) from error
        self.layers = {name: _held(getattr(layer, weight)) for name, (layer, weight) in weights_of(module).items()}
        parameters = [*module.parameters()]
        held = [*parameters, *module.buffers()]
        self.facts: Mapping[str, int] = {
            "parameters": numbers(module),
            "nonzero": sum(int(each.count_nonzero()) for each in parameters),
            "macs": macs(module, example),
            "bytes": sum(each.numel() * each.element_size() for each in held),
        }


def _check(workload: Workload, step: Step, before: _Seen, after: _Seen) -> None:
    """Raise SpecError where a step did not what an optimizer promises."""
    who = f"model {workload.model.text!r}: optimizer {str(step)!r}"
    if after.outputs != before.outputs:
        raise SpecError(
            f"{who}: outputs of {', '.join(before.outputs)} became {', '.join(after.outputs) or 'none'} "
            "(expected the same)"
        )
    if all(after.facts[name] >= before.facts[name] for name in ("parameters", "nonzero", "bytes")):
        raise SpecError(
            f"{who}: nothing was removed: {after.facts['parameters']:,} parameters, {after.facts['nonzero']:,} of "
            f"them not zero, as before (expected a ratio of {step.ratio:g} to take something away)"
        )


def _held(weight: nn.Parameter) -> tuple[tuple[int, ...], int]:
    return tuple(weight.shape), int(weight.count_nonzero())


def _layers(dense: _Seen, left: _Seen) -> dict[str, int]:
    """Return how many weights of layers there were, and how many are smaller, emptier or gone."""
    touched = sum(1 for name, held in dense.layers.items() if left.layers.get(name) != held)
    return {"layers": len(dense.layers), "touched": touched}
