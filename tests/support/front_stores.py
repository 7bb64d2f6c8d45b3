"""Stores of configurations with known latencies, memory and sizes: what fronts and choices are tested with."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ngraph.choosing.front import Front, Place
from pytest_ngraph.report.fronts.stored import Asked, fronts_of
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, CompilerSpec, Outcome, Visit, Workload, digest
from pytest_ngraph.spec.evaluations import EVALUATION, Evaluation, Score
from pytest_ngraph.store.sqlite import Store
from tests.support.report_stores import environment, ref

MODEL = "timm:resnet18"


@dataclass(frozen=True)
class Config:
    """What one configuration does: seconds of a call, bytes of its process and file, and how often it was measured.

    ``scatter`` is the standard deviation of ln over launches. ``outcome`` is that of the latest launch.
    """

    ms: float = 10.0
    memory: int | None = 100 << 20
    size: int | None = 10 << 20
    batch: int = 1
    precision: str = "f32"
    launches: int = 6
    passes: int = 6
    scatter: float = 0.002
    outcome: Outcome = Outcome.OK
    compiler: str = ""
    device: str = "xeon"
    model: str = MODEL
    group: str = "one"
    # How many of 1000 samples are wrong, and from which one on.
    wrong: int | None = None
    wrong_from: int = 0
    data: str = "a"
    score: str = "top1"
    image_size: int | None = None
    side: str = ""
    replica: int = 0

    def cell(self, name: str) -> Cell:
        """Return the cell of a configuration of this name."""
        compiler = CompilerSpec.parse(self.compiler or name)
        workload = Workload(ref(self.model), self.batch, image_size=self.image_size, precision=self.precision)
        return Cell(self.device, compiler, workload, self.replica, side=self.side)

    def record(self, outcome: Outcome, number: int) -> CompileRecord:
        """Return what preparing it gives."""
        reason = "" if outcome is Outcome.OK else "outputs differ by 7"
        return CompileRecord(outcome, reason, call_seconds=1e-3 * self.ms, model_bytes=self.size)


def write(path: Path, configs: Mapping[str, Config], *, protocol: str = "gate", seed: int = 1, runs: int = 1) -> int:
    """Write runs of these configurations, those of a group in the same launches. Return the number of the last run."""
    kind, number = PROTOCOLS[protocol], 0
    cells = {name: config.cell(name) for name, config in configs.items()}
    with Store.open(path) as store:
        for run in range(runs):
            number = store.start_run(
                f"run {seed} {run}", command=["pytest"], seed=7, protocol=kind, environment=environment("xeon"),
                fresh=False, resumed=False, device="xeon",
            )  # fmt: skip
            evidence = {cell: digest(cell.to_json()) for cell in cells.values()}
            store.use_cells(number, evidence)
            for group in dict.fromkeys(config.group for config in configs.values()):
                mine = {name: config for name, config in configs.items() if config.group == group}
                _launches(store, number, mine, cells, evidence, group, protocol, seed)
            store.finish_run(number, "finished")
    return number


def _launches(
    store: Store,
    run: int,
    configs: Mapping[str, Config],
    cells: Mapping[str, Cell],
    evidence: Mapping[Cell, str],
    group: str,
    protocol: str,
    seed: int,
) -> None:
    kind = PROTOCOLS[protocol]
    for launch in range(max((config.launches for config in configs.values()), default=0)):
        here = {name: config for name, config in configs.items() if launch < config.launches}
        place = store.start_launch(
            run, group=group, number=launch, seed=launch, protocol=kind, order=[], environment={}
        )
        for name, config in here.items():
            last = launch == config.launches - 1
            record = config.record(config.outcome if last else Outcome.OK, launch)
            store.add_prepared(place, cells[name], evidence[cells[name]], record)
        for block in range(4):
            for position, (name, config) in enumerate(here.items()):
                if config.outcome is Outcome.OK or launch < config.launches - 1:
                    store.add_visit(place, cells[name], block, position, _visit(name, config, launch, block, seed))
        store.finish_launch(place, environment={})
    for name, config in configs.items():
        if config.wrong is not None:
            place = store.start_launch(
                run, group=name, number=0, seed=0, protocol=kind, kind=EVALUATION, order=[], environment={}
            )
            bad = range(config.wrong_from, config.wrong_from + config.wrong)
            score = Score.of_flags(config.score, [sample not in bad for sample in range(1000)])
            record = CompileRecord(Outcome.OK, evaluation=Evaluation(1000, 10, 64 * config.data, (score,)))
            store.add_prepared(place, cells[name], evidence[cells[name]], record)
            store.finish_launch(place, environment={})
        for number in range(config.passes if config.memory is not None else 0):
            place = store.start_launch(
                run, group=name, number=number, seed=number, protocol=kind, kind="memory", order=[], environment={}
            )
            draw = random.Random(f"memory {name} {number} {seed}")
            used = round((config.memory or 0) * math.exp(config.scatter * draw.gauss(0, 1)))
            record = CompileRecord(Outcome.OK, peak_memory_bytes=used)
            store.add_prepared(place, cells[name], evidence[cells[name]], record)
            store.finish_launch(place, environment={})


def _visit(name: str, config: Config, launch: int, block: int, seed: int) -> Visit:
    own = random.Random(f"{name} {launch} {seed}").gauss(0, config.scatter)
    wall = round(1e6 * config.ms * math.exp(own + random.Random(f"{name} {launch} {block} {seed}").gauss(0, 1e-4)))
    return Visit(1, (wall,) * 5, (wall,) * 5, (0,) * 5, (0,) * 5)


def fronts(path: Path, over: Sequence[str] | None = ("latency", "memory"), **asked: object) -> list[Front]:
    """Return the fronts of the last run of a store."""
    with Store.open(path, read_only=True) as store:
        return fronts_of(store, store.runs()[-1], Asked(over, **asked))  # type: ignore[arg-type]


def places(front: Front) -> dict[str, Place]:
    """Return the place of each configuration by its name."""
    return {one.candidate.name: one.place for one in front.standings}
