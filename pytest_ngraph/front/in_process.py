"""A compiled cell inside the pytest process, for pytest-benchmark: convenient, and without a verdict."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pytest_ngraph.devices.local import LocalBench
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.launches.client import deciding_variables
from pytest_ngraph.load.neighbours import NONE
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.session.session import Session
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.spec.shapes.mixes import is_mix
from pytest_ngraph.workloads import artifacts


@contextlib.contextmanager
def compiled(session: Session, cell: Cell) -> Iterator[Callable[[], None]]:
    """Compile a cell here, check its outputs and give its call. The runtimes share this process and its threads.

    Raises CompileFailed where the model cannot be built or the outputs differ from the reference, Unsupported for a
    device that is not on this machine.
    """
    from pytest_ngraph.compilers.decoding import Decoding
    from pytest_ngraph.compilers.toolkit.equality import compare
    from pytest_ngraph.compilers.toolkit.kept import Kept
    from pytest_ngraph.workloads.loaded import LoadedWorkload

    if not isinstance(session.bench, LocalBench):
        raise Unsupported("ngraph_callable runs in this process; measure other devices with ngraph_cell")
    if (neighbour := cell.workload.neighbour) != NONE:
        raise Unsupported(
            f"ngraph_callable makes calls with nothing beside them; measure neighbour={neighbour} with ngraph_cell"
        )
    if rate_of(scenario := cell.workload.scenario) is not None:
        raise Unsupported(f"ngraph_callable makes calls when it is called; measure {scenario} with ngraph_cell")
    if is_mix(cell.workload.shapes):
        raise Unsupported(f"ngraph_callable makes calls of one batch; measure {cell.workload.shapes} with ngraph_cell")
    adapter, folder = session.catalogue.get(cell.compiler.name), session.bench.job.artifacts
    adapter.load()
    adapter.open(session.device)
    session.make_ready(cell)
    reads = adapter.reads
    artifact = None
    if reads != "nothing":
        artifact = artifacts.find(cell.workload, session.settings.seed, folder, reads == "onnx")
    # Those of now, in this process, and not those that workers get.
    variables = {**deciding_variables(), **adapter.found_beside(cell.compiler, session.device, os.environ)}
    kept = Kept.of(cell, artifact, folder, session.device, variables)
    workload = LoadedWorkload(cell.workload, session.settings.seed, artifact, kept)
    with contextlib.ExitStack() as ended:
        ended.callback(kept.close)
        ended.enter_context(_inductor_as_it_was())
        made = adapter.compile(workload, session.device, adapter.resolve(cell.compiler))
        executable = Decoding.of(made, cell.workload, adapter.name)
        ended.callback(executable.close)
        executable.bind(workload.copied_inputs)
        executable.run()
        executable.synchronize()
        outputs = executable.outputs()
        if outputs is not None and artifact is not None:
            reference = artifacts.reference(artifact)
            bounds = artifacts.bounds_of(folder, artifact.key, cell.workload.base_precision)
            agreement = compare(list(outputs), reference.timed, bounds, reference.means)
            if agreement.reason:
                raise CompileFailed(f"{cell.label}: {agreement.reason}")

        def call() -> None:
            executable.run()
            executable.synchronize()

        yield call


@contextlib.contextmanager
def _inductor_as_it_was() -> Iterator[None]:
    """Set back afterwards what inductor freezes: the suite may call torch.compile itself, in this process."""
    config: Any = sys.modules.get("torch._inductor.config")
    before = None if config is None else config.freezing
    try:
        yield
    finally:
        if config is not None:
            config.freezing = before
