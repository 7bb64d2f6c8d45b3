"""TVM: its options, when a search stops, what is kept of it, who builds candidates, and the adapter on the runtime."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_ngraph.compilers.tvm import candidates as tvm_candidates
from pytest_ngraph.compilers.tvm.adapter import COMPILER
from pytest_ngraph.compilers.tvm.candidates import Helper, JobFailed
from pytest_ngraph.compilers.tvm.importing import remembering_modules
from pytest_ngraph.compilers.tvm.records import (
    RECORDS,
    WORKLOADS,
    Batch,
    Limits,
    Records,
    Spent,
    Task,
    TaskRecords,
    follow,
    is_complete,
    next_task,
)
from pytest_ngraph.errors import CompileFailed, SpecError
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.support import workers

# Options


def resolve(text: str) -> dict[str, Any]:
    return COMPILER.resolve(CompilerSpec.parse(text))


@pytest.mark.parametrize("text", ["tvm", "tvm[untuned]"])
def test_nothing_is_tuned_unless_that_was_asked_for(text: str) -> None:
    options = resolve(text)

    assert (options["untuned"], options["tuned"]) == (True, False)
    assert not COMPILER.tunes(options)


def test_tuned_means_the_trials_and_the_patience_of_the_paper() -> None:
    options = resolve("tvm[tuned]")

    assert {name: options[name] for name in ("tuned", "untuned", "trials", "patience", "seconds")} == {
        "tuned": True,
        "untuned": False,
        "trials": 1500,
        "patience": 150,
        "seconds": 0.0,
    }
    assert COMPILER.tunes(options)


@pytest.mark.parametrize("text", ["tvm[trials=64]", "tvm[patience=8]", "tvm[seconds=60]", "tvm[tuned,trials=64]"])
def test_a_limit_of_the_search_asks_for_it(text: str) -> None:
    assert COMPILER.tunes(resolve(text))


def test_untuned_with_a_limit_of_the_search_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(SpecError) as caught:
        resolve("tvm[untuned,trials=64,tuned]")

    assert str(caught.value) == (
        "compiler 'tvm[trials=64,tuned,untuned]': untuned and tuned, trials exclude each other (allowed: tvm[untuned], "
        "tvm[tuned] or tvm[trials=N,patience=P,seconds=S])"
    )


@pytest.mark.parametrize("text", ["tvm[tuned=yes]", "tvm[trials=0]", "tvm[patience=0]", "tvm[seconds=-1]"])
def test_a_value_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="is not allowed"):
        resolve(text)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("tvm[tuned]", "at most 1500 trials per task, stops a task after 150 without gain"),
        (
            "tvm[trials=64,patience=16,seconds=600]",
            "at most 64 trials per task, stops a task after 16 without gain, at most 600 s for all tasks of a cell",
        ),
    ],
)
def test_what_tuning_may_cost_is_said(text: str, plan: str) -> None:
    assert COMPILER.tuning_plan(resolve(text)) == plan


def why_not() -> str | None:
    cell = Cell("local", CompilerSpec("tvm"), Workload(parse_model("block:conv")))
    return COMPILER.why_not(cell, Device())


def test_a_missing_linker_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_not() == (
        "needs a compiler to link with: none of g++, gcc, clang++, clang, c++, cc on PATH and no $CXX or $CC"
    )
    monkeypatch.setenv("CC", "icx")
    assert why_not() == "needs a compiler to link with, and $CC=icx is not one on PATH"
    (tmp_path / "icx").touch(mode=0o755)
    assert why_not() is None


# When a search stops


def spent(*batches: Sequence[float | str]) -> Spent:
    total = Spent()
    for batch in batches:
        total = total.after(Batch.of(batch, 1.0, "random"))
    return total


def test_a_search_stops_after_so_many_trials_without_gain() -> None:
    limits = Limits(trials=100, patience=3)

    assert not spent([5.0, 4.0, 4.0, 6.0]).is_finished(limits)
    assert spent([5.0, 4.0, 4.0, 6.0], [4.5]).is_finished(limits)
    assert not spent([5.0, 4.0, 4.0, 6.0], [3.9]).is_finished(limits)


def test_a_search_stops_after_so_many_trials_although_it_still_gains() -> None:
    falling = [float(number) for number in range(10, 0, -1)]

    assert not spent(falling).is_finished(Limits(trials=11, patience=3))
    assert spent(falling).is_finished(Limits(trials=10, patience=3))


def test_trials_that_fail_count_and_are_no_gain() -> None:
    total = spent(["no such operator", "took over 30 s to time"])

    assert (total.trials, total.idle_trials, total.best_seconds) == (2, 2, None)
    assert total.error == "took over 30 s to time"
    assert total.is_finished(Limits(trials=100, patience=2))
    found = total.after(Batch.of([1.0, "too slow"], 1.0, "random"))
    assert (found.trials, found.idle_trials, found.best_seconds, found.error) == (4, 1, 1.0, "")


def test_what_a_task_has_cost_adds_up_over_batches() -> None:
    total = spent([2.0], [1.0, 3.0])
    for times in ([], [4.0]):
        total = total.after(Batch.of(times, 0.5, "xgboost"))

    assert (total.trials, total.seconds, total.best_seconds, total.idle_trials) == (4, 3.0, 1.0, 2)
    assert total.cost_models == ("random", "xgboost")


def test_a_search_without_candidates_is_finished_for_good() -> None:
    total = Spent().after(Batch.of(None, 1.0, "random"))

    assert (total.trials, total.cost_models) == (0, ())
    assert total.is_finished(Limits(trials=100, patience=100))


def test_the_seconds_of_all_tasks_end_a_search() -> None:
    both = [spent([1.0], [2.0]), spent([1.0])]

    assert not is_complete(both, Limits(100, 100))
    assert not is_complete(both, Limits(100, 100, seconds=3.5))
    assert is_complete(both, Limits(100, 100, seconds=3.0))
    assert is_complete([], Limits(100, 100))


def test_the_task_that_the_model_spends_most_time_in_is_next_once_all_have_begun() -> None:
    often, slow, new, done = (Task(name, name, weight) for name, weight in zip("abcd", (10, 1, 1, 9), strict=True))
    limits = Limits(trials=2, patience=9)
    known = {often: spent([1.0]), slow: spent([5.0]), done: spent([9.0, 9.0])}

    assert next_task({**known, new: Spent()}, limits) == new
    assert next_task(known, limits) == often
    assert next_task({**known, often: spent([0.1])}, limits) == slow


def histories(**batches: Sequence[Sequence[float | str]]) -> dict[Task, list[Batch]]:
    """Return what was tried for tasks of equal weight, each batch in ten seconds."""
    return {Task(name, name, 1): [Batch.of(each, 10.0, "random") for each in tried] for name, tried in batches.items()}


def test_a_search_means_the_same_trials_however_much_further_others_search() -> None:
    limits = Limits(trials=4, patience=100)
    own = histories(a=[[5.0, 4.0], [6.0, 7.0]])
    further = histories(a=[[5.0, 4.0], [6.0, 7.0], [1.0] * 4])

    assert follow(own, limits) == follow(further, limits)
    spent, left = follow(further, limits)
    (total,) = spent.values()
    assert (total.trials, total.best_seconds, total.seconds, left) == (4, 4.0, 20.0, None)


def test_of_a_batch_as_many_trials_count_as_the_limit_leaves() -> None:
    spent, left = follow(histories(a=[[5.0, 4.0, 1.0, 2.0]]), Limits(trials=2, patience=9))
    (total,) = spent.values()

    assert (total.trials, total.best_seconds, total.seconds, left) == (2, 4.0, 5.0, None)


def test_a_search_that_ran_out_of_patience_stays_where_it_was() -> None:
    # Somebody more patient found a gain later, which does not begin the search anew.
    known = histories(a=[[5.0], [6.0, 6.0], [1.0]])
    spent, left = follow(known, Limits(trials=100, patience=2))

    assert (left, [each.trials for each in spent.values()]) == (None, [3])


def test_a_search_of_so_many_seconds_follows_the_order_in_which_it_would_have_tried() -> None:
    # Each begins, and then the slower one goes on.
    known = histories(a=[[1.0], [0.5], [0.2]], b=[[3.0], [2.0], [1.5]])
    spent, left = follow(known, Limits(trials=100, patience=100, seconds=35))

    assert left is None
    assert {task.name: each.trials for task, each in spent.items()} == {"a": 1, "b": 3}


def test_what_nobody_has_tried_is_next() -> None:
    known = histories(a=[[1.0]], b=[])
    spent, left = follow(known, Limits(trials=2, patience=9))

    assert left == Task("b", "b", 1)
    assert [each.trials for each in spent.values()] == [1, 0]


# What is kept


KERNEL = '["123", "a kernel"]'


def record(seconds: float, *, instructions: str = '["GetSBlock", [], ["pad"], ["b0"]]') -> str:
    return f'[0,[[[{instructions}], []], [{seconds!r}], {{"kind": "llvm"}}, [["TENSOR", "float32", [1]]]]]'


@pytest.fixture
def task(tmp_path: Path) -> TaskRecords:
    records = TaskRecords(tmp_path / "task")
    records.heal()
    return records


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize("cut", [1, 5, len(record(2.0)) // 2, len(record(2.0)) - 1, len(record(2.0))])
def test_a_batch_that_a_kill_has_cut_is_dropped_and_the_next_begins_a_line(task: TaskRecords, cut: int) -> None:
    (task.folder / WORKLOADS).write_text(KERNEL + "\n")
    (task.folder / RECORDS).write_text(record(1.0) + "\n")
    task.add(Batch.of([1.0], 1.0, "random"))
    with (task.folder / RECORDS).open("a") as file:
        file.write(record(2.0)[:cut])

    task.heal()

    with (task.folder / RECORDS).open("a") as file:
        file.write(record(3.0) + "\n")
    assert lines(task.folder / RECORDS) == [record(1.0), record(3.0)]


def test_records_whose_kernel_was_cut_go_with_it(task: TaskRecords) -> None:
    (task.folder / WORKLOADS).write_text(KERNEL[:-3])
    (task.folder / RECORDS).write_text(record(1.0) + "\n")

    task.heal()

    assert lines(task.folder / WORKLOADS) == []
    assert lines(task.folder / RECORDS) == []


def test_whole_files_are_left_as_they_are(task: TaskRecords) -> None:
    for name, line in ((WORKLOADS, KERNEL), (RECORDS, record(1.0))):
        (task.folder / name).write_text(line + "\n")
    task.add(Batch.of([1.0], 1.0, "random"))
    before = [(task.folder / name).stat().st_ino for name in (WORKLOADS, RECORDS)]

    task.heal()

    # A file that is written anew is another one.
    assert [(task.folder / name).stat().st_ino for name in (WORKLOADS, RECORDS)] == before


def keep(task: TaskRecords, *times: float | str, written: Sequence[str] = ()) -> None:
    """Keep a batch as a search does: first TVM's records, then what it has cost."""
    (task.folder / WORKLOADS).write_text(KERNEL + "\n")
    records = written or [record(1e10 if isinstance(each, str) else each) for each in times]
    with (task.folder / RECORDS).open("a") as file:
        file.write("".join(f"{line}\n" for line in records))
    task.add(Batch.of(times, 1.0, "random"))


def test_each_batch_comes_back_and_the_fastest_schedule_of_the_first_trials(task: TaskRecords) -> None:
    assert (task.history, task.best(9)) == ([], None)
    # TVM passes over a schedule that changes nothing.
    untouched = record(0.5, instructions='["EnterPostproc", [], [], []]')

    keep(task, 2.0, 1.0, 0.5, "failed", written=[record(2.0), record(1.0), untouched, record(1e10)])
    keep(task, 3.0, 0.7)

    assert [batch.times for batch in task.history] == [(2.0, 1.0, 0.5, None), (3.0, 0.7)]
    assert [task.best(trials) for trials in range(7)] == [
        None, (KERNEL, record(2.0)), *[(KERNEL, record(1.0))] * 4, (KERNEL, record(0.7))
    ]  # fmt: skip


def test_gains_of_a_batch_that_was_not_kept_are_not_those_of_the_next(task: TaskRecords) -> None:
    keep(task, 2.0)
    kept = (task.folder / "history.json").read_bytes()
    keep(task, 0.1)
    # As if the process had been killed just before the batch counted.
    (task.folder / "history.json").write_bytes(kept)
    task.heal()

    keep(task, 1.5)

    assert task.best(9) == (KERNEL, record(1.5))
    assert lines(task.folder / RECORDS) == [record(2.0), record(1.5)]


def test_the_best_schedules_of_a_model_are_one_database(tmp_path: Path) -> None:
    records = Records(tmp_path)
    tasks = [Task(name, name, 1) for name in ("0x1", "0x2", "0x3")]
    for number, each in enumerate(tasks):
        records.of(each).heal()
        (records.of(each).folder / WORKLOADS).write_text(f'["{number}", "kernel"]\n')
        # Nothing has worked for the second.
        (records.of(each).folder / RECORDS).write_text(record(1e10 if number == 1 else 1.0 + number) + "\n")
        records.of(each).add(Batch.of(["failed" if number == 1 else 1.0 + number], 1.0, "random"))

    records.write_best(records.within(tasks, Limits(1, 1))[0], tmp_path)

    assert lines(tmp_path / WORKLOADS) == ['["0", "kernel"]', '["2", "kernel"]']
    assert [json.loads(line) for line in lines(tmp_path / RECORDS)] == [
        [0, json.loads(record(1.0))[1]],
        [1, json.loads(record(3.0))[1]],
    ]


def test_the_tasks_of_a_model_are_remembered(tmp_path: Path) -> None:
    tasks = [Task("0x1", "fused_conv2d_relu", 3)]
    assert Records(tmp_path).tasks_of("onnx-1") is None

    Records(tmp_path).remember("onnx-1", tasks)

    assert Records(tmp_path).tasks_of("onnx-1") == tasks
    assert Records(tmp_path).within(tasks, Limits(1, 1))[1] == tasks[0]
    Records(tmp_path).of(tasks[0]).heal()
    keep(Records(tmp_path).of(tasks[0]), 1.0)
    assert Records(tmp_path).within(tasks, Limits(1, 1))[1] is None


WRITER = """
import sys, time
from pathlib import Path
from pytest_ngraph.compilers.tvm.records import Records
with Records(Path(sys.argv[1])).writing(lambda: None):
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.real
def test_one_process_writes_and_its_end_frees_the_lock(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    waited = []

    def waiting() -> None:
        waited.append(writer.poll())
        writer.kill()
        writer.wait()

    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        with Records(tmp_path).writing(waiting) as scratch:
            assert list(scratch.iterdir()) == []
            # That of the writer that was killed is gone.
            assert [each.name for each in scratch.parent.iterdir()] == [scratch.name]
    finally:
        writer.kill()
        writer.communicate()

    assert waited == [None]
    assert not scratch.exists()


# The cure of the slow import


def test_the_module_of_a_frame_is_looked_for_once_for_each_file(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def getmodule(object: Any, _filename: str | None = None) -> None:
        asked.append(object)

    monkeypatch.setattr(inspect, "getmodule", getmodule)
    frame = inspect.currentframe()
    with remembering_modules():
        found = [inspect.getmodule(frame), inspect.getmodule(frame, "name"), inspect.getmodule(Path)]

    assert found == [None, None, None]
    assert asked == [frame, Path]
    assert inspect.getmodule is getmodule


def test_inspect_is_as_before_where_the_import_fails() -> None:
    before = inspect.getmodule

    with pytest.raises(ImportError), remembering_modules():
        raise ImportError

    assert inspect.getmodule is before


# Who builds and times candidates


SERVE = """
import os, signal, sys, time
from pytest_ngraph.compilers.tvm.candidates import serve

def fail():
    raise ValueError("no such loop\\nand more")

jobs = {
    "double": lambda number: 2 * number,
    "pid": os.getpid,
    "fail": fail,
    "crash": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda: time.sleep(60),
}
serve(jobs, sys.stdin, sys.stdout)
"""


def helper(code: str) -> Helper:
    return Helper([sys.executable, "-c", code], os.environ)


def test_a_helper_does_one_job_after_the_other_in_one_process() -> None:
    one = helper(SERVE)
    try:
        assert [one.ask("double", number=number) for number in (1, 2)] == [2, 4]
        assert one.ask("pid") == one.ask("pid")
    finally:
        one.close()


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ("fail", "ValueError: no such loop"),
        ("crash", "process ended with -9 (crash)"),
        ("hang", "took over 1 s to hang"),
    ],
)
def test_a_job_that_fails_says_why_and_the_next_one_is_done(job: str, reason: str) -> None:
    one = helper(SERVE)
    try:
        with pytest.raises(JobFailed) as caught:
            one.ask(job, seconds=1)
        assert str(caught.value) == reason
        assert one.ask("double", number=3) == 6
    finally:
        one.close()


def test_a_helper_is_started_anew_after_so_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_candidates, "_JOBS", 2)
    one = helper(SERVE)
    try:
        pids = [one.ask("pid") for _ in range(5)]
    finally:
        one.close()

    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    assert not any(map(psutil.pid_exists, pids))


def test_a_helper_that_cannot_start_fails_with_what_it_said() -> None:
    one = helper("raise SystemExit('no libtvm here')")
    try:
        with pytest.raises(CompileFailed, match="ended with 1 before its first job: no libtvm here"):
            one.ask("double", number=1)
    finally:
        one.close()


# On the runtime, each in a process of its own

NET = """
import sys
from pathlib import Path
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

folder, last, side = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
draw = np.random.default_rng(0)
weights = draw.normal(size=(8, 3, 3, 3)).astype("float32")
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["images", "weights"], ["features"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["positive"]),
        helper.make_node(last, ["positive"], ["result"]),
    ],
    "net",
    [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 16, int(side) if side.isdigit() else side])],
    [helper.make_tensor_value_info("result", TensorProto.FLOAT, [1, 8, 16, int(side) if side.isdigit() else side])],
    [numpy_helper.from_array(weights, "weights")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
folder.mkdir()
onnx.save(model, str(folder / "model.onnx"))
images = draw.normal(size=(1, 3, 16, 16)).astype("float32")
if last == "Neg":
    np.savez(folder / "sample.npz", images=images, result=ReferenceEvaluator(model).run(None, {"images": images})[0])
"""
OPEN = """
import json, os, sys
from pathlib import Path
from types import SimpleNamespace
from pytest_ngraph.compilers.toolkit.kept import Kept
from pytest_ngraph.compilers.tvm.adapter import COMPILER
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.spec.cells import CompilerSpec, Device, ModelRef, Workload
from pytest_ngraph.workloads.kinds import parse_model

from tests.support import workers

workers.fork_helpers()
text, folder, root = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
options = COMPILER.resolve(CompilerSpec.parse(text))
COMPILER.load()
import numpy as np

said = []
device = Device(threads=1)
workload = SimpleNamespace(
    spec=Workload(parse_model("block:conv")), seed=0, graph_precision="f32", onnx_path=folder / "model.onnx",
    kept=Kept(root, "net"),
)

def progress(*sign):
    said.append(sign)

def compiled():
    executable = COMPILER.compile(workload, device, options)
    sample = np.load(folder / "sample.npz")
    executable.bind({"images": sample["images"]})
    executable.run()
    (result,) = executable.outputs()
    return {
        "loaded": executable.loaded,
        "bytes": executable.model_bytes,
        "placement": dict(executable.placement),
        "error": float(abs(result - sample["result"]).max()),
        "tuning": [executable.tuning_trials, executable.tuning_seconds],
    }
"""


def start(code: str, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, "TVM_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: str, *arguments: object, **variables: str) -> Any:
    """Run code in a process of its own; return what it printed, read as JSON."""
    given = {"TVM_NUM_THREADS": "1", workers.ADDRESS: workers.FORK_SERVER.start(), **variables}
    done = workers.run_code("tvm", code, *map(str, arguments), variables=given)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout) if done.stdout else None


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small networks: one that works and others that TVM must refuse."""
    skip_without("tvm", "onnx")
    folder = tmp_path_factory.mktemp("nets")
    for name, last, side in (("net", "Neg", "16"), ("unknown", "Det", "16"), ("dynamic", "Neg", "side")):
        run(NET, folder / name, last, side)
    (folder / "broken").mkdir()
    (folder / "broken" / "model.onnx").write_bytes(b"this is not a protobuf")
    return folder


@pytest.mark.real
def test_a_kept_library_is_loaded_by_the_next_launch(nets: Path, tmp_path: Path) -> None:
    code = OPEN + "\nprint(json.dumps({**compiled(), 'torch': 'torch' in sys.modules}))"
    first, second = (run(code, "tvm", nets / "net", tmp_path, PYTHONWARNINGS="error") for _ in range(2))

    assert (first["loaded"], second["loaded"]) == (False, True)
    (library,) = tmp_path.glob("**/model.so")
    assert first["bytes"] == second["bytes"] == library.stat().st_size
    assert first["placement"] == second["placement"]
    assert first["placement"]["provider"] == "llvm"
    assert first["placement"]["threads"] == 1
    assert first["placement"]["schedules"] == "untuned"
    assert first["placement"]["kernels"] == 1
    assert first["tuning"] == [None, None]
    assert max(first["error"], second["error"]) < 1e-4
    assert first["torch"] is False


@pytest.mark.real
def test_a_process_that_keeps_nothing_compiles_but_cannot_have_tuned(nets: Path, tmp_path: Path) -> None:
    keeping_nothing = OPEN + "\nworkload.kept = None\n"
    assert run(keeping_nothing + "print(json.dumps(compiled()))", "tvm", nets / "net", tmp_path)["error"] < 1e-4
    said = run(
        keeping_nothing + "try: compiled()\nexcept NgraphError as error: print(json.dumps(str(error)))",
        "tvm[tuned]",
        nets / "net",
        tmp_path,
    )
    assert "this process keeps nothing" in said


@pytest.mark.real
@pytest.mark.parametrize(
    ("net", "kind", "reason"),
    [
        ("unknown", "Unsupported", "operators are not supported for frontend ONNX: Det"),
        ("dynamic", "Unsupported", "the ONNX file has dynamic shapes, which are another measurement"),
        ("broken", "CompileFailed", "DecodeError"),
    ],
)
def test_a_network_that_tvm_cannot_read_is_refused_with_the_reason(
    nets: Path, tmp_path: Path, net: str, kind: str, reason: str
) -> None:
    code = "\ntry: compiled()\nexcept NgraphError as error: print(json.dumps([type(error).__name__, str(error)]))"
    said = run(OPEN + code, "tvm", nets / net, tmp_path)

    assert said[0] == kind
    assert reason in said[1]


TUNED = """
COMPILER.tune(workload, device, options, progress)
helpers = "pytest_ngraph.compilers.tvm.candidates" in sys.modules
print(json.dumps({**compiled(), "said": said, "helpers": helpers}))
"""


@pytest.fixture(scope="module")
def tuned(nets: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """What is kept of a search in an empty folder, for tests that copy it, and what the process that searched says."""
    folder = tmp_path_factory.mktemp("tuned")
    return folder, run(OPEN + TUNED, "tvm[trials=12,patience=8]", nets / "net", folder)


@pytest.mark.real
def test_a_network_is_tuned_once_and_then_known(nets: Path, tuned: tuple[Path, Any], tmp_path: Path) -> None:
    folder, first = tuned
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    second = run(OPEN + TUNED, "tvm[trials=12,patience=8]", nets / "net", tmp_path)

    assert 8 <= first["tuning"][0] <= 12
    assert first["tuning"][1] > 0
    assert first["placement"]["schedules"] == "tuned"
    assert first["placement"]["tuned_kernels"] == 1
    assert first["error"] < 1e-4
    doing, done, total = first["said"][-1]
    assert doing.startswith("tuning task 1 of 1 ")
    assert "best" in doing
    assert done <= total == 12
    assert (second["said"], second["helpers"], second["loaded"]) == ([], False, True)
    assert (second["tuning"], second["placement"]) == (first["tuning"], first["placement"])
    # A smaller budget is another cell, and what the larger one has found is none of its.
    smaller = run(OPEN + TUNED, "tvm[trials=4,patience=8]", nets / "net", tmp_path)
    assert (smaller["said"], smaller["helpers"], smaller["tuning"][0]) == ([], False, 4)
    assert smaller["tuning"][1] < first["tuning"][1]
    (folder,) = tmp_path.glob("tvm-records-*")
    assert sorted(each.name for each in folder.iterdir()) == ["lock", "models", "tasks"]
    with Records(folder).writing(lambda: None):
        # More trials than there have been.
        third = start(TUNE, "tvm[trials=13]", nets / "net", tmp_path)
        assert third.stdout is not None
        sign = json.loads(third.stdout.readline())
    third.kill()
    third.communicate()
    assert sign == ["waiting for another run that tunes for the same target", 0, 1]


TUNE = OPEN + "\nCOMPILER.tune(workload, device, options, lambda *sign: print(json.dumps(sign), flush=True))"


@pytest.mark.real
def test_an_algorithm_has_a_library_and_a_search_of_its_own(
    nets: Path, tuned: tuple[Path, Any], tmp_path: Path
) -> None:
    code = """
if COMPILER.tunes(options): COMPILER.tune(workload, device, options, progress)
print(json.dumps(compiled()))
"""
    # The network without an algorithm has been searched for.
    shutil.copytree(tuned[0], tmp_path, dirs_exist_ok=True)
    texts = ("tvm", "tvm[algorithm=winograd]", "tvm[trials=4]", "tvm[algorithm=winograd,trials=4,patience=4]")
    plain, winograd, known, both = (run(OPEN + code, text, nets / "net", tmp_path) for text in texts)
    again = run(OPEN + code, texts[1], nets / "net", tmp_path)

    said = {"algorithm": "winograd for 1 of 1 convolution, 100 % of MACs"}
    assert [each["loaded"] for each in (plain, winograd, known, both, again)] == [False] * 4 + [True]
    assert all(each["error"] < 1e-4 for each in (plain, winograd, known, both))
    assert "algorithm" not in plain["placement"]
    assert winograd["placement"] == {**plain["placement"], **said} == again["placement"]
    assert both["placement"] == {**known["placement"], **said}
    assert (both["placement"]["schedules"], both["placement"]["tuned_kernels"]) == ("tuned", 1)
    # Neither has the other's task.
    (records,) = tmp_path.glob("tvm-records-*")
    assert len([*(records / "tasks").iterdir()]) == 2


@pytest.mark.real
def test_tuning_that_was_killed_goes_on_with_what_it_had(nets: Path, tmp_path: Path) -> None:
    process = start(TUNE, "tvm[trials=1000,patience=8]", nets / "net", tmp_path)
    assert process.stdout is not None
    # Eight trials make a batch here; the ninth is told of after the first batch was kept.
    signs = iter(process.stdout.readline, "")
    assert any(json.loads(sign)[1] > 8 for sign in signs)
    helpers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (folder,) = tmp_path.glob("tvm-records-*/tasks/*")
    task = TaskRecords(folder)
    kept = task.history
    with (folder / RECORDS).open("a") as file:
        file.write('[0,[[[["GetSBlo')

    tried = sum(len(batch.times or ()) for batch in kept)
    assert tried >= 8
    assert psutil.wait_procs(helpers, timeout=60)[1] == []
    limit = tried + 4
    run(TUNE.replace("print(json.dumps(sign), flush=True)", "None"), f"tvm[trials={limit}]", nets / "net", tmp_path)
    assert task.history[: len(kept)] == kept
    assert sum(len(batch.times or ()) for batch in task.history) == limit
    assert len(lines(folder / RECORDS)) == limit
    assert all(json.loads(line) for line in lines(folder / RECORDS))
    assert run(OPEN + "\nprint(json.dumps(compiled()))", f"tvm[trials={limit}]", nets / "net", tmp_path)["error"] < 1e-4


@pytest.mark.real
def test_a_search_that_has_found_nothing_fails_with_what_went_wrong(nets: Path, tmp_path: Path) -> None:
    code = """
COMPILER.tune(workload, device, options, progress)
try: compiled()
except NgraphError as error: print(json.dumps(str(error)))
"""
    said = run(OPEN + code, "tvm[trials=2]", nets / "net", tmp_path, CXX="false")

    assert "tuning has found no schedule for any of 1 tasks: RuntimeError: Compilation error" in said


@pytest.mark.real
def test_a_cell_that_was_not_tuned_fails_instead_of_running_untuned(nets: Path, tmp_path: Path) -> None:
    code = "\ntry: compiled()\nexcept NgraphError as error: print(json.dumps(str(error)))"
    assert run(OPEN + code, "tvm[tuned]", nets / "net", tmp_path).endswith("has not been tuned for this target")


@pytest.mark.real
def test_the_intrinsics_are_imported_without_going_through_all_modules_each_time() -> None:
    skip_without("tvm")
    code = """
import inspect, json, sys
from pytest_ngraph.compilers.tvm.importing import import_intrinsics
look_for, asked = inspect.getmodule, []

def counting(object, _filename=None):
    asked.append(inspect.isframe(object))
    return look_for(object, _filename)

inspect.getmodule = counting
import_intrinsics()
print(json.dumps({
    "frames": sum(asked), "torch": "torch" in sys.modules, "there": "tvm.s_tir.tensor_intrin.x86" in sys.modules,
}))
"""
    answer = run(code)

    assert answer["there"]
    # Without the cure these are tens of thousands.
    assert answer["frames"] < 500
    assert answer["torch"] is False


@pytest.mark.real
def test_kernels_for_a_gpu_are_bound_to_its_threads(nets: Path, tmp_path: Path) -> None:
    code = """
import tvm
from pytest_ngraph.compilers.tvm.adapter import bind_threads, prepare, read
target = tvm.target.Target({
    "kind": "cuda", "arch": "sm_87", "max_threads_per_block": 1024, "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32, "host": {"kind": "llvm"},
})
prepared = prepare(read(workload.onnx_path)[0], target)
before = prepared.script()
print(json.dumps(["threadIdx" in before, "threadIdx" in bind_threads(prepared, target).script()]))
"""
    assert run(OPEN + code, "tvm", nets / "net", tmp_path) == [False, True]


@pytest.mark.real
def test_a_gpu_that_is_not_there_is_named(nets: Path, tmp_path: Path) -> None:
    code = """
device = Device(threads=1, accelerator="cuda:7")
try: compiled()
except NgraphError as error: print(json.dumps([type(error).__name__, str(error)]))
"""
    kind, said = run(OPEN + code, "tvm", nets / "net", tmp_path)
    assert kind == "Unsupported"
    assert said.endswith("finds no device cuda:7")
