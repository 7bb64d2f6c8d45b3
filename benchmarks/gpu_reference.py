"""A call on the GPU by other people's clocks, in a process of its own: CUDA events, and torch.utils.benchmark.

Started by ``benchmarks.gpu`` with the folder of the artefacts and the models; it prints a line of JSON for each. It
measures what a latency is here: calls one after the other, each waited for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

_SECONDS = 1.5
_ROUNDS = 7


def by_events(call: Callable[[], None], calls: int, events: tuple[Any, Any], wait: Callable[[], None]) -> float:
    """Return the seconds of a call by the GPU's clock, between an event before and one behind so many calls."""
    begin, end = events
    begin.record()
    for _ in range(calls):
        call()
        wait()
    end.record()
    wait()
    return float(begin.elapsed_time(end)) * 1e-3 / calls


def compare(model: str, root: Path, accelerator: str) -> dict[str, Any]:
    """Return the seconds of a call of a model's eager module, as workers build it, by both clocks."""
    import torch
    from torch.utils.benchmark import Timer

    from pytest_ngraph.compilers.toolkit import torch_cuda
    from pytest_ngraph.machine import gpu
    from pytest_ngraph.spec.cells import Workload
    from pytest_ngraph.workloads import artifacts
    from pytest_ngraph.workloads.kinds import parse_model
    from pytest_ngraph.workloads.loaded import LoadedWorkload

    device = torch_cuda.open_device(accelerator)
    workload = Workload(parse_model(model))
    loaded = LoadedWorkload(workload, 0, artifacts.build(workload, 0, root, False), None)
    module = loaded.module().to(device)
    torch_cuda.settle(tf32=False)
    positional, named = loaded.arguments(dict(loaded.inputs))
    positional = tuple(each.to(device) for each in positional)
    named = {name: each.to(device) for name, each in named.items()}

    def call() -> None:
        module(*positional, **named)

    def wait() -> None:
        torch.cuda.synchronize(device)

    with torch.inference_mode():
        for _ in range(20):
            call()
            wait()
        timer = Timer("call(); wait()", globals={"call": call, "wait": wait})
        first = timer.blocked_autorange(min_run_time=_SECONDS)
        events = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        calls = max(5, round(_SECONDS / _ROUNDS / first.median))
        spans = [by_events(call, calls, events, wait) for _ in range(_ROUNDS)]
    try:
        held: Any = gpu.find(accelerator).held_bytes(os.getpid())
    except gpu.Unreadable as reason:
        held = str(reason)
    return {
        "model": model,
        "events_seconds": median(spans),
        "timer_seconds": first.median,
        "torch_reserved_bytes": torch.cuda.max_memory_reserved(device),
        "nvml_held_bytes": held,
    }


def main(arguments: list[str]) -> None:
    accelerator, root, *models = arguments
    for model in models:
        print(json.dumps(compare(model, Path(root), accelerator)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
