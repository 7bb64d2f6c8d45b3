"""Build models in a process of its own, and say what was built: run by ``test_kinds``.

Started with the file for the answer. A JSON object with ``sys_path``, ``seed`` and ``workloads`` is read from standard
input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def facts(workload: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return what a workload's model is made of, or ``failed`` with the reason where it cannot be built."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from pytest_ngraph.errors import NgraphError
    from pytest_ngraph.spec.cells import Workload
    from pytest_ngraph.workloads.building import build
    from pytest_ngraph.workloads.modules.calls import arguments, read_call
    from pytest_ngraph.workloads.modules.fingerprint import fingerprint
    from pytest_ngraph.workloads.modules.seeding import seeded

    wanted = Workload.from_json(workload)
    try:
        built = build(wanted, seed)
        with seeded(seed):
            call = read_call(wanted.model.text, built.module, built.example_inputs(wanted.batch), wanted.batch)
    except NgraphError as error:
        return {"failed": str(error)}
    args, kwargs = arguments(call.kind, call.tensors)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        built.module(*args, **kwargs)
    return {
        "weights": fingerprint(built.module),
        "parameters": [list(parameter.shape) for parameter in built.module.parameters()],
        "inputs": {name: list(tensor.shape) for name, tensor in call.tensors.items()},
        "numbers": {name: float(tensor.double().sum()) for name, tensor in call.tensors.items()},
        "flops": counter.get_total_flops(),
    }


def main(arguments: list[str]) -> None:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.read())
    sys.path[:] = request["sys_path"]
    answer = [facts(workload, request["seed"]) for workload in request["workloads"]]
    Path(arguments[0]).write_text(json.dumps(answer), encoding="utf-8")
