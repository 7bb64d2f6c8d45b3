"""The two ONNX files of a workload that decodes: one reads the prompt, the other takes a token."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.workloads.decoding.generation import POSITION, TOKEN, TOKENS
from pytest_ngraph.workloads.modules import calls
from pytest_ngraph.workloads.modules.export import export

if TYPE_CHECKING:
    import torch

LOGITS, CACHE, NEXT = "logits", "cache_{}", "next_cache_{}"


def step_file(prompt: Path) -> Path:
    """Return the file of a token, which lies beside that of the prompt and shares its weights."""
    return prompt.with_name(f"{prompt.stem}.step{prompt.suffix}")


def export_both(module: Any, inputs: Mapping[str, torch.Tensor], path: Path, precision: str) -> dict[str, Any]:
    """Write both files of a module, as ``generating`` made it. Return what to know of them, as ``export`` does.

    The prompt gives ``logits`` and ``cache_0``, ``cache_1`` and so on. A step takes ``token``, ``position`` and these,
    and gives ``logits`` and ``next_cache_0`` and so on, in the same order and shapes.
    """
    import torch

    first, step = module.parts()
    prompt = {name: tensor for name, tensor in inputs.items() if name != TOKENS}
    args, kwargs = module.arguments(prompt)
    with torch.no_grad():
        cache = first(*args, **kwargs)[1:]
    names = [CACHE.format(index) for index in range(len(cache))]
    kind = calls.KEYWORD if kwargs else calls.POSITIONAL
    made = export(first, calls.Call(kind, prompt), [LOGITS, *names], path, precision)
    if "onnx_unsupported" in made:
        return made
    token = {
        TOKEN: inputs[TOKENS][:, :1].contiguous(),
        POSITION: torch.tensor([next(iter(prompt.values())).shape[1]]),
        **{name: tensor.clone() for name, tensor in zip(names, cache, strict=True)},
    }
    further = [NEXT.format(index) for index in range(len(cache))]
    call = calls.Call(calls.POSITIONAL, token)
    other = export(step, call, [LOGITS, *further], step_file(path), precision)
    if "onnx_unsupported" in other:
        return other
    # The second count is of all that lies there, the weights that both share once.
    return {"export_seconds": made["export_seconds"] + other["export_seconds"], "onnx_bytes": other["onnx_bytes"]}
