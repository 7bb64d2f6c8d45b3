"""What compilers keep between launches: built once, read back, rebuilt where asked, never half there."""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.compilers.catalogue import BUILT_IN
from pytest_ngraph.compilers.toolkit.kept import Kept
from pytest_ngraph.launches.client import Job
from pytest_ngraph.machine.facts import fingerprint
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Workload, digest
from pytest_ngraph.worker.worker import Worker
from pytest_ngraph.workloads.folders import SCRATCH
from pytest_ngraph.workloads.kinds import parse_model

FACTS = {"threads": 2, "version": "1.0"}
CELL = Cell("local", CompilerSpec("mine"), Workload(parse_model("block:conv"), batch=4))


class Builder:
    """Writes an engine and counts how often."""

    def __init__(self, content: str = "engine") -> None:
        self.content, self.times = content, 0

    def __call__(self, folder: Path) -> Mapping[str, int]:
        assert list(folder.iterdir()) == []
        self.times += 1
        (folder / "engine").write_text(self.content)
        return {"layers": 3}


def test_what_was_built_is_read_back_by_another_process_of_the_same_cell(tmp_path: Path) -> None:
    build = Builder()
    folder, meta, found = Kept(tmp_path, "w").built("mine", FACTS, build)
    assert (meta, found, (folder / "engine").read_text()) == ({"layers": 3}, False, "engine")
    again = Kept(tmp_path, "w").built("mine", FACTS, build)
    assert again == (folder, {"layers": 3}, True)
    assert build.times == 1


@pytest.mark.parametrize(
    ("compiler", "workload", "facts"),
    [("other", "w", FACTS), ("mine", "v", FACTS), ("mine", "w", {**FACTS, "threads": 1}), ("mine", "w", {})],
)
def test_anything_that_matters_makes_another(
    tmp_path: Path, compiler: str, workload: str, facts: Mapping[str, object]
) -> None:
    Kept(tmp_path, "w").built("mine", FACTS, Builder())
    build = Builder()
    assert not Kept(tmp_path, workload).built(compiler, facts, build)[2]
    assert build.times == 1


def test_rebuilding_reuses_nothing_keeps_nothing_and_disturbs_nobody(tmp_path: Path) -> None:
    first = Kept(tmp_path, "w").built("mine", FACTS, Builder("kept"))[0]
    kept = Kept(tmp_path, "w", rebuild=True)
    build = Builder("anew")
    folders = [kept.built("mine", FACTS, build)[0] for _ in range(2)]
    assert build.times == 2
    assert [(folder / "engine").read_text() for folder in folders] == ["anew", "anew"]
    kept.close()
    assert not any(folder.exists() for folder in folders)
    assert not list(tmp_path.glob(f"{SCRATCH}*"))
    assert (first / "engine").read_text() == "kept"


def test_a_build_that_fails_keeps_nothing(tmp_path: Path) -> None:
    def fails(folder: Path) -> Mapping[str, int]:
        (folder / "engine").write_text("half")
        raise ValueError("no such operator")

    with pytest.raises(ValueError, match="no such operator"):
        Kept(tmp_path, "w").built("mine", FACTS, fails)
    assert not Kept(tmp_path, "w").built("mine", FACTS, Builder())[2]
    assert not list(tmp_path.glob(f"{SCRATCH}*"))


def test_a_damaged_engine_is_built_again(tmp_path: Path) -> None:
    folder = Kept(tmp_path, "w").built("mine", FACTS, Builder())[0]
    (folder / "engine").write_text("cut")
    again, _, found = Kept(tmp_path, "w").built("mine", FACTS, Builder())
    assert (again, found) == (folder, False)
    assert (folder / "engine").read_text() == "engine"


def test_records_are_shared_by_workloads_and_by_those_that_rebuild(tmp_path: Path) -> None:
    folder = Kept(tmp_path, "w").records("mine", {"target": "avx2"})
    (folder / "records.json").write_text("[]")
    assert Kept(tmp_path, "v", rebuild=True).records("mine", {"target": "avx2"}) == folder
    assert Kept(tmp_path, "w").records("mine", {"target": "avx512"}) != folder
    assert Kept(tmp_path, "w").records("other", {"target": "avx2"}) != folder


def test_what_compilers_decide_by_makes_another_and_without_it_keys_are_those_of_before(tmp_path: Path) -> None:
    def folders(**variables: str) -> tuple[Path, Path]:
        kept = Kept(tmp_path, "w", variables=variables)
        return kept.built("mine", FACTS, Builder())[0], kept.records("mine", FACTS)

    plain, tuned = folders(), folders(TORCHINDUCTOR_MAX_AUTOTUNE="1")
    assert len({*plain, *tuned, *folders(TORCHINDUCTOR_MAX_AUTOTUNE="0")}) == 6
    assert folders(TORCHINDUCTOR_MAX_AUTOTUNE="1") == tuned
    key = {"recipe": 1, "compiler": "mine", "machine": fingerprint("cpu"), "facts": FACTS}
    assert plain[0].name == f"mine-{digest({**key, 'workload': 'w'})[:32]}"


MINE = """
from pytest_ngraph import Compiler

class Mine(Compiler):
    name = "mine"
    reads = "nothing"
    variables = ("MINE_",)

COMPILER = Mine()
"""


def test_a_worker_takes_nothing_that_was_built_under_other_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_kept.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))

    def shelf(compiler: str, **variables: str) -> Path:
        places = {**BUILT_IN, "mine": "mine_kept:COMPILER"}
        folders = tmp_path / "artifacts", tmp_path / "logs"
        job = Job(tuple(sys.path), Device(), 0, *folders, places, 60.0, variables)
        worker = Worker(json.loads(json.dumps(job.to_json())), lambda line: None)
        assert worker.answer({"do": "hello", "compiler": compiler, "models": []})["ok"]
        kept = worker._load(replace(CELL, compiler=CompilerSpec(compiler)), worker._greeted, None).kept
        assert kept is not None
        return kept.built("mine", FACTS, Builder())[0]

    assert shelf("null", OMP_WAIT_POLICY="active") != shelf("null") == shelf("null")
    # Of those of an adapter from elsewhere no job says anything.
    own = [shelf("mine"), shelf("null")]
    monkeypatch.setenv("MINE_PASSES", "2")
    assert [shelf("mine") == own[0], shelf("null") == own[1]] == [False, True]


def _build_slowly(root: str, pipe: object) -> None:
    from time import sleep

    def build(folder: Path) -> Mapping[str, int]:
        sleep(0.2)
        return Builder()(folder)

    pipe.send(str(Kept(Path(root), "w").built("mine", FACTS, build)[0]))  # type: ignore[attr-defined]


def test_two_processes_that_build_at_once_agree(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    workers = [context.Process(target=_build_slowly, args=(str(tmp_path), theirs)) for _ in range(2)]
    for worker in workers:
        worker.start()
    folders = {mine.recv() for _ in workers}
    for worker in workers:
        worker.join()
    assert len(folders) == 1
    assert (Path(folders.pop()) / "engine").read_text() == "engine"


def test_cells_share_a_shelf_where_they_compile_the_same(tmp_path: Path) -> None:
    def place(cell: Cell) -> Path:
        return Kept.of(cell, None, tmp_path / "artifacts", Device()).built("mine", FACTS, Builder())[0]

    first = place(CELL)
    assert first.parent == tmp_path / "compiled"
    # A second process of the same compiler runs the same engine.
    assert place(replace(CELL, replica=1)) == first
    for changed in ({"batch": 8}, {"precision": "f16"}, {"scenario": "throughput"}, {"depth": 2}):
        assert place(replace(CELL, workload=replace(CELL.workload, **changed))) != first
    assert place(replace(CELL, rebuild=True)) != first


def test_a_rebuilt_cell_is_another_cell_and_old_texts_are_read() -> None:
    rebuilt = replace(CELL, rebuild=True)
    assert "rebuild" not in CELL.to_json()
    assert Cell.from_json(json.loads(json.dumps(rebuilt.to_json()))) == rebuilt != CELL
    assert "rebuilt" in rebuilt.label


def test_what_is_damaged_is_built_again_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = Builder()
    folder = Kept(tmp_path, "w").built("mine", FACTS, build)[0]
    (folder / "engine").write_text("enginf")
    kept = Kept(tmp_path, "w")
    again, _, found = kept.built("mine", FACTS, build)
    assert (found, build.times, (again / "engine").read_text()) == (False, 2, "engine")
    assert kept.remarks == [f"{folder}/engine is damaged: removed, and made again"]
    assert kept.remarks[0] in capsys.readouterr().err
    assert kept.checking_seconds > 0


def test_the_time_that_a_build_took_is_not_taken_from_a_damaged_file(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "w")
    kept.build_seconds("mine", FACTS, 12.5)
    assert kept.build_seconds("mine", FACTS, None) == 12.5
    (file,) = tmp_path.glob("*.seconds")
    file.write_text(file.read_text().replace("12.5", "13.5"))
    assert kept.build_seconds("mine", FACTS, None) is None
