"""One process of the suite: it builds a case's artefacts, or examines one compiler on them; JSON in, JSON out.

Started as ``python -m pytest_ngraph.conformance.process ANSWER_FILE`` with the job on standard input; standard output
is free, so that whatever a compiler prints there can be seen.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.spec import CompilerSpec, Device, Workload


def build(job: Mapping[str, Any]) -> dict[str, Any]:
    """Build the artefacts of the job's workloads."""
    from pytest_ngraph.workloads import artifacts

    for workload in map(Workload.from_json, job["workloads"]):
        artifacts.build(workload, job["seed"], Path(job["artifacts"]), job["want_onnx"])
    return {}


def examine(job: Mapping[str, Any]) -> dict[str, Any]:
    """Hold the job's compiler to the contract on its workloads; keep the outputs of the first in ``job["keep"]``."""
    from pytest_ngraph.compilers.catalogue import load
    from pytest_ngraph.conformance import checks
    from pytest_ngraph.workloads import artifacts
    from pytest_ngraph.workloads.loaded import LoadedWorkload

    spec = CompilerSpec.parse(job["compiler"])
    adapter = load(spec.name, job["place"])
    adapter.load()
    loaded = []
    for workload in map(Workload.from_json, job["workloads"]):
        artifact = None
        if adapter.reads != "nothing":
            artifact = artifacts.find(workload, job["seed"], Path(job["artifacts"]), adapter.reads == "onnx")
        loaded.append(LoadedWorkload(workload, job["seed"], artifact))
    examined = checks.examine(adapter, adapter.resolve(spec), loaded, Device.from_json(job["device"]))
    if examined.outputs:
        import numpy as np

        np.savez(job["keep"], *examined.outputs)
    return {"found": examined.found, "placement": examined.placement, "loaded": examined.loaded}


def main() -> None:
    """Do the job and write its answer; whatever else an adapter raises ends the process with its traceback."""
    job = json.load(sys.stdin)
    try:
        answer = {"build": build, "examine": examine}[job["do"]](job)
    except Unsupported as error:
        answer = {"unsupported": str(error)}
    except CompileFailed as error:
        answer = {"failed": str(error)}
    Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
