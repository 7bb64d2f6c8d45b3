"""The search for schedules with TVM's MetaSchedule, batch by batch: what a batch has found is kept before the next.

TVM's own driver starts with a batch of every task before it reports on any, and gives all tasks the same number of
trials. Here its parts (design space, evolutionary search, cost model, database) are driven one by one, so that every
batch is a sign of life, a search that was ended goes on where it was, and a budget in seconds ends it within a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from pytest_ngraph.compilers.base import Progress
from pytest_ngraph.compilers.tvm.candidates import Bench, Candidate
from pytest_ngraph.compilers.tvm.records import (
    FAILED_SECONDS,
    Batch,
    Limits,
    Records,
    Spent,
    Task,
    TaskRecords,
    follow,
    trials_in,
)
from pytest_ngraph.machine import clock
from pytest_ngraph.spec.cells import digest

# As many as TVM tries at a time.
_BATCH = 64


def kernels_of(module: Any, target: Any) -> dict[Task, Any]:
    """Return the kernels of a prepared model by task. Equal ones are one task."""
    from tvm.s_tir.meta_schedule.relax_integration import extract_tasks
    from tvm.s_tir.meta_schedule.utils import shash2hex

    kernels = [(each, each.dispatched[0]) for each in extract_tasks(module, target)]
    return {Task(shash2hex(kernel), str(each.task_name), int(each.weight)): kernel for each, kernel in kernels}


def search(
    kernels: Mapping[Task, Any],
    records: Records,
    limits: Limits,
    target: Any,
    bench: Bench,
    *,
    seed: int,
    cpus: int,
    progress: Progress,
) -> None:
    """Search for schedules until every task is finished or the seconds of all are spent."""
    number = {task: index for index, task in enumerate(kernels, start=1)}
    histories = {task: records.of(task).history for task in kernels}
    predictor = Predictor.available(cpus, seed)
    begun: dict[Task, Search] = {}
    spent, task = follow(histories, limits)
    while task is not None:

        def alive(finished: int, task: Task = task, spent: Mapping[Task, Spent] = spent) -> None:
            best = spent[task].best_seconds
            found = "nothing yet" if best is None else f"best {1e6 * best:.1f} us"
            progress(
                f"tuning task {number[task]} of {len(kernels)} {task.name}: {found}",
                sum(each.trials for each in spent.values()) + finished,
                sum(each.trials if each.is_finished(limits) else limits.trials for each in spent.values()),
            )

        alive(0)
        began = clock.seconds()
        if task not in begun:
            begun[task] = Search(task, kernels[task], records.of(task), limits, target, predictor, seed=seed, cpus=cpus)
        batch = Batch.of(begun[task].batch(bench, alive), clock.seconds() - began, predictor.name)
        records.of(task).add(batch)
        histories[task].append(batch)
        spent, following = follow(histories, limits)
        if spent[task].is_finished(limits):
            del begun[task]
        task = following


@dataclass(frozen=True, slots=True)
class Predictor:
    """What says which candidates are worth a trial, and the search that makes the most of it."""

    name: str
    cost_model: Any
    strategy: Mapping[str, Any]

    @classmethod
    def available(cls, cpus: int, seed: int) -> Predictor:
        """Return XGBoost with TVM's own search where it is installed, else chance alone."""
        from tvm.s_tir.meta_schedule.cost_model import RandomModel, XGBModel

        if find_spec("xgboost") is not None:
            return cls("xgboost", XGBModel(num_tuning_cores=cpus), {})
        # Chance picks as well from few as from thousands, which take most of the time that tuning takes; half of these
        # are descended from the best schedules so far.
        few = {"population_size": 2 * _BATCH, "init_measured_ratio": 0.5, "genetic_num_iters": 1}
        return cls("random", RandomModel(seed=seed), few)


class Search:
    """The search for one task."""

    def __init__(
        self,
        task: Task,
        kernel: Any,
        records: TaskRecords,
        limits: Limits,
        target: Any,
        predictor: Predictor,
        *,
        seed: int,
        cpus: int,
    ) -> None:
        from tvm.s_tir import meta_schedule

        records.heal()
        trials = trials_in(records.history)
        self._database = meta_schedule.database.JSONDatabase(work_dir=str(records.folder))
        self._workload = self._database.commit_workload(kernel)
        self._target, self._cost_model = target, predictor.cost_model
        # A search that goes on must not draw the numbers that it has begun with.
        draw = digest({"seed": seed, "task": task.structure, "trials": trials})
        self._context = meta_schedule.TuneContext(
            kernel,
            target=target,
            space_generator="post-order-apply",
            search_strategy=meta_schedule.search_strategy.EvolutionarySearch(**predictor.strategy),
            task_name=task.name,
            rand_state=1 + int(draw[:7], 16),
            num_threads=cpus,
        )
        self._context.pre_tuning(
            limits.trials - trials, min(_BATCH, limits.patience), database=self._database, cost_model=self._cost_model
        )

    def batch(self, bench: Bench, alive: Callable[[int], None]) -> list[float | str] | None:
        """Try a batch of candidates and keep it.

        Returns the seconds of each or why there is none, and None where there is no candidate left.
        """
        import tvm
        from tvm.s_tir.meta_schedule.database import TuningRecord
        from tvm.s_tir.meta_schedule.runner import RunnerResult

        found = self._context.generate_measure_candidates()
        if found is None:
            return None
        candidates = list(found)
        times = bench.measure(
            (
                Candidate(tvm.ir.save_json(each.sch.mod), [argument.as_json() for argument in each.args_info])
                for each in candidates
            ),
            alive,
        )
        results = [
            RunnerResult(None, taken) if isinstance(taken, str) else RunnerResult([taken], None) for taken in times
        ]
        for each, taken in zip(candidates, times, strict=True):
            seconds = FAILED_SECONDS if isinstance(taken, str) else taken
            self._database.commit_tuning_record(
                TuningRecord(each.sch.trace, self._workload, [seconds], self._target, each.args_info)
            )
        self._context.notify_runner_results(candidates, results)
        worked = [pair for pair in zip(candidates, results, strict=True) if pair[1].error_msg is None]
        if worked:
            self._cost_model.update(self._context, *map(list, zip(*worked, strict=True)))
        return times
