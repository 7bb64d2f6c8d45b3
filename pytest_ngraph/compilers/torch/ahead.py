"""Inductor ahead of time: an exported program as a package with one library in it, called without Python's guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.compilers.toolkit import torch_cuda
from pytest_ngraph.compilers.toolkit.kept import built
from pytest_ngraph.compilers.toolkit.torch_export import exported
from pytest_ngraph.compilers.torch.shared import Place, arguments_on, describe, executable_for, load_module
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.machine.facts import version_of

if TYPE_CHECKING:
    import torch

    from pytest_ngraph.workloads.loaded import LoadedWorkload

_PACKAGE = "model.pt2"


def compile_ahead(
    workload: LoadedWorkload,
    place: Place,
    settings: Mapping[str, Any],
    facts: Mapping[str, str | int],
) -> Executable:
    """Build the package, or take the one that an earlier launch built, and load it as a deployment would.

    ``settings`` are inductor's. ``facts`` are those of the placement that say how it is compiled. Raises Unsupported
    where torch.export cannot take the whole module.
    """

    module = load_module(workload, place)
    described = describe(module, workload, place)

    def build(folder: Path) -> Mapping[str, Any]:
        _package(module, workload, place, settings, folder / _PACKAGE)
        return {}

    written = {name: str(value) for name, value in settings.items()}
    where = {**described, **facts, "settings": written, **torch_cuda.triton_for(place.accelerator)}
    with built(workload.kept, "inductor", where, build) as (folder, _, loaded):
        size = (folder / _PACKAGE).stat().st_size
        call = _loaded(folder / _PACKAGE, place)
    executable = executable_for(call, workload, place, described)
    executable.loaded, executable.model_bytes = loaded, size
    executable.placement = {**described, **facts, "package": "loaded" if loaded else "built", "guards": "none"}
    return executable


def _package(
    module: torch.nn.Module, workload: LoadedWorkload, place: Place, settings: Mapping[str, Any], path: Path
) -> None:
    import torch
    from torch._dynamo.exc import TorchDynamoException

    program = exported(module, workload, *arguments_on(place, workload, workload.inputs))
    try:
        with torch.no_grad():
            torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=dict(settings))
    except TorchDynamoException as error:
        first = str(error).strip().partition("\n")[0]
        raise CompileFailed(f"AOTInductor: {first}") from error


def _loaded(path: Path, place: Place) -> Callable[..., Sequence[torch.Tensor]]:
    """Return the package as a call that goes straight to its runner: PyTorch's own reads its call's form each time."""
    from torch._inductor.package import load_package

    index = -1 if place.device.index is None else place.device.index
    asked = {"num_runners": place.in_flight, "device_index": index}
    known = signature(load_package).parameters
    # PyTorch 2.6 and 2.7 are not told both of them: what they load is one runner, or on the first GPU.
    for name, usual in (("num_runners", 1), ("device_index", 0)):
        if name not in known and asked[name] > usual:
            said = f"loads no package with {name}={asked[name]}, a newer one does"
            raise Unsupported(f"inductor[aot]: torch {version_of('torch')} {said}")
    given = {name: value for name, value in asked.items() if name in known}
    run = load_package(str(path), **given).loader.run

    def call(*positional: torch.Tensor, **keywords: torch.Tensor) -> Sequence[torch.Tensor]:
        found: Sequence[torch.Tensor] = run([*positional, *keywords.values()])
        return found

    return call
