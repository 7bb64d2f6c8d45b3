"""Do to a network what ``optimize`` asks for, and hold what was done to what an optimizer promises."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import NgraphError, SpecError
from pytest_ngraph.optimizers.catalogue import steps_of
from pytest_ngraph.optimizers.counting import macs, numbers, shapes
from pytest_ngraph.optimizers.layers import weights_of
from pytest_ngraph.spec.achieved import DENSE, LAYERS, TOUCHED
from pytest_ngraph.spec.cells import DENSE as UNTOUCHED
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.optimizing import Step
from pytest_ngraph.workloads import folders, keys
from pytest_ngraph.workloads.kinds.contract import Built
from pytest_ngraph.workloads.modules.fingerprint import fingerprint, is_same
from pytest_ngraph.workloads.modules.project_files import project_files
from pytest_ngraph.workloads.modules.seeding import seeded

if TYPE_CHECKING:
    import torch
    from torch import nn

    from pytest_ngraph.optimizers.contract import Optimizer

# The batch that an optimizer sees, whatever that of the workload: all batches have one network.
_BATCH = 1
# Of a column or a row in compressed sparse rows, in bytes.
_INDEX = 4
# Above this share of its compressed bytes nothing was taken out of a network.
_PACKED = 0.99
OTHER_WEIGHTS = (
    "it gives other weights each time, so processes would not measure one network; what draws at random must draw from "
    "torch's, NumPy's or Python's global generator, which are seeded, or from a generator of the seed that apply() gets"
)
# What was achieved with each network that this process has built, and its weights: batches differ in neither.
_KNOWN: dict[tuple[Workload, int], tuple[dict[str, int], list[list[float]]]] = {}
# What the steps of a workload have searched for and found, by their places.
Found = dict[str, dict[str, Any]]


def found_before(workload: Workload, seed: int, root: Path, files: Mapping[str, str] | None) -> Found:
    """Return what was found for a network before, as ``root`` keeps it. Nothing where its ``files`` are not known."""
    if workload.optimize == UNTOUCHED or files is None:
        return {}
    kept = folders.read(_place_of_found(workload, seed, root, files))
    return dict(kept["found"]) if kept else {}


def keep_found(workload: Workload, seed: int, root: Path, files: Mapping[str, str], found: Found) -> None:
    """Keep what was found for a network, in the place of what was kept and led to something else."""
    found = {place: each for place, each in found.items() if each}
    if not found or found_before(workload, seed, root, files) == found:
        return
    folder = _place_of_found(workload, seed, root, files)
    shutil.rmtree(folder, ignore_errors=True)
    folders.publish(folder, lambda _: {"found": found})


def _place_of_found(workload: Workload, seed: int, root: Path, files: Mapping[str, str]) -> Path:
    return root / f"found-{keys.network_key(workload, seed, files)[:32]}"


def optimized(
    workload: Workload, built: Built, seed: int, achieved: dict[str, Any] | None = None, found: Found | None = None
) -> Built:
    """Return what is left of a model after the steps of its workload, in eval mode.

    Where ``achieved`` is given, what was achieved is checked and put into it. ``found`` is what optimizers have found
    for this network before, and what they find is put into it. Raises SpecError where an optimizer breaks its
    promises, Unsupported where it refuses the network.
    """
    steps = [*steps_of(workload)]
    if not steps:
        return built
    with seeded(seed):
        example = built.example_inputs(_BATCH)
    places, files, module = dict(workload.optimizers), dict(built.files), built.module
    name = f"model {workload.model.text!r}"
    network = (replace(workload, batch=_BATCH, precision="f32", scenario="latency"), seed)
    known = _KNOWN.get(network) if achieved is not None else None
    dense = last = _Seen(module, example, name) if achieved is not None and known is None else None
    found = {} if found is None else found
    for number, (step, optimizer) in enumerate(steps):
        who = f"{name}: optimizer {str(step)!r}"
        with seeded(seed):
            module = _applied(who, step, optimizer, module, example, seed, found.setdefault(str(number), {}))
        if last is not None:
            before, last = last, _Seen(module, example, f"{who}: what it made")
            _check(who, step, before, last)
        if step.name in places:
            home = import_module(places[step.name].partition(":")[0])
            files |= project_files(home, module)
    if achieved is not None:
        sums = fingerprint(module)
        if known is None and dense is not None and last is not None:
            known = _KNOWN[network] = (_achieved(dense, last), sums)
        if known is not None:
            if not is_same(known[1], sums):
                raise SpecError(f"{name}: {workload.optimize}: {OTHER_WEIGHTS}")
            achieved |= known[0]
    return replace(built, module=module, files=files)


def _applied(
    who: str, step: Step, optimizer: Optimizer, module: nn.Module, example: Any, seed: int, found: dict[str, Any]
) -> nn.Module:
    from torch import nn

    if missing := optimizer.missing():
        raise SpecError(f"{who}: {missing}")
    options = optimizer.resolve(step)
    if optimizer.searches:
        options["found"] = found
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
    if found and _as_json(found) != found:
        raise SpecError(f"{who}: what its apply() put into found is not as JSON has it: {str(found)[:200]}")
    return made.eval()


def _as_json(found: dict[str, Any]) -> Any:
    try:
        return json.loads(json.dumps(found, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return None


class _Seen:
    """What is seen of a network at one time, which may be changed after that."""

    def __init__(self, module: nn.Module, example: Any, who: str) -> None:
        """Count. Raise SpecError that names whose module it is (``who``) where it does not run."""
        try:
            self.outputs = shapes(module, example)
        except Exception as error:
            raise SpecError(f"{who} does not run on the example inputs: {type(error).__name__}: {error}") from error
        weights = {name: getattr(layer, weight).detach() for name, (layer, weight) in weights_of(module).items()}
        self.layers = {name: (tuple(each.shape), int(each.count_nonzero())) for name, each in weights.items()}
        self.nonzero = sum(int(each.count_nonzero()) for each in module.parameters())
        held = [*module.parameters(), *module.buffers()]
        self.counts: Mapping[str, int] = {
            "parameters": numbers(module),
            "bytes": sum(map(_bytes, held)),
            "packed_bytes": packed_bytes(held),
            "sparse_bytes": sum(map(_bytes, held)) + sum(_sparse(each) - _bytes(each) for each in weights.values()),
            "weights": sum(each.numel() for each in weights.values()),
            "zeros": sum(each.numel() - int(each.count_nonzero()) for each in weights.values()),
            **_macs(module, example),
        }


def _check(who: str, step: Step, before: _Seen, after: _Seen) -> None:
    """Raise SpecError where a step did not what an optimizer promises."""
    if after.outputs != before.outputs:
        raise SpecError(
            f"{who}: outputs of {', '.join(before.outputs)} became {', '.join(after.outputs) or 'none'} "
            "(expected the same)"
        )
    was, now = before.counts, after.counts
    fewer = now["parameters"] < was["parameters"] or now["bytes"] < was["bytes"] or after.nonzero < before.nonzero
    # Weights that are shared or rounded are as many as before, and there is less in them.
    if not fewer and now["packed_bytes"] > _PACKED * was["packed_bytes"]:
        raise SpecError(
            f"{who}: nothing was removed: {now['parameters']:,} parameters, {after.nonzero:,} of them not zero, as "
            f"before (expected a ratio of {step.ratio:g} to take something away)"
        )


def _achieved(dense: _Seen, left: _Seen) -> dict[str, int]:
    """Return counts before and after, and how many weights of layers are smaller, emptier or gone."""
    touched = sum(1 for name, held in dense.layers.items() if left.layers.get(name) != held)
    before = {f"{DENSE}{name}": count for name, count in dense.counts.items()}
    return {**left.counts, **before, LAYERS: len(dense.layers), TOUCHED: touched}


def _macs(module: nn.Module, example: Any) -> dict[str, int]:
    """Count multiply-accumulates, where PyTorch can."""
    try:
        counted = macs(module, example)
    except Exception:  # noqa: BLE001 - the model runs; that it cannot be counted is no fault of it
        return {}
    return {"macs": counted} if counted else {}


def packed_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of tensors after quick compression by gzip's method, one after the other."""
    import torch

    packer, size = zlib.compressobj(1), 0
    for tensor in tensors:
        # Whatever its type is: bytes are bytes.
        flat = tensor.detach().contiguous().reshape(-1)
        if flat.numel() and not flat.is_sparse:
            size += len(packer.compress(flat.view(torch.uint8).numpy().data))
    return size + len(packer.flush())


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def _sparse(weight: torch.Tensor) -> int:
    """Return the bytes of a weight as compressed sparse rows: numbers, their columns and where rows begin."""
    count = int(weight.count_nonzero())
    return int(count * (weight.element_size() + _INDEX) + (weight.shape[0] + 1) * _INDEX)
