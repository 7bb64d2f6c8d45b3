"""Every export names the launches it was made from, and can be held against the store that it came from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.report.export.benchmark import write_benchmark_json
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.upkeep import care
from tests.store.test_store_damage import LAB
from tests.support.report_stores import FAILED, GATE, VERDICTS, evidence_of, groups_of, record_of, visit_of, write_store

FILES = ("e.csv", "e.json", "e.md", "e.tex", "e.parquet", "e.html", "bench.json", "iii.tex", "iii.md")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "results.sqlite"
    write_store(path, LAB, VERDICTS, FAILED)
    return path


def written(store: Path, name: str) -> Path:
    file = store.with_name(name)
    if name == "bench.json":
        with Store.open(store, read_only=True) as opened:
            run = opened.runs()[-1]
            verdicts = opened.verdicts(run.id)
        write_benchmark_json(file, store, run, verdicts)
    elif name == "e.html":
        pytest.importorskip("altair")
        assert main(["report", str(file), f"--store={store}"]) == 0
    else:
        if name == "e.parquet":
            pytest.importorskip("pyarrow")
        assert main(["export", str(file), f"--store={store}", *table(name)]) == 0
    return file


def table(name: str) -> list[str]:
    return ["--table=iii"] if name.startswith("iii") else []


def verified(store: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    status = main(["export", str(file), f"--store={store}", "--verify", *table(file.name)])
    said = capsys.readouterr()
    return status, said.out + said.err


@pytest.mark.parametrize("name", FILES)
def test_an_export_is_known_again_until_other_launches_count(
    store: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(store, name)
    assert verified(store, file, capsys)[0] == 0
    # Free pages, and then none.
    with Store.open(store) as opened:
        run_id = opened.start_run("more", command=[], seed=0, protocol=GATE, environment={}, fresh=False, resumed=False)
        opened.finish_run(run_id, "finished")
    care.compact(store)
    assert verified(store, file, capsys)[0] == 0

    cells = groups_of(LAB)[0]
    evidence = evidence_of(cells)
    with Store.open(store) as opened:
        launch = opened.start_launch(run_id, group="0", number=9, seed=9, protocol=GATE, order=[], environment={})
        for cell in cells:
            opened.add_prepared(launch, cell, evidence[cell], record_of(cell, 9))
            opened.add_visit(launch, cell, 0, 0, visit_of(cell, 9, 0, LAB))
        opened.finish_launch(launch, environment={})
    status, said = verified(store, file, capsys)
    assert status == 1
    assert "made from other launches than run 1 has now (" in said


@pytest.mark.parametrize("name", ["e.csv", "e.json", "e.md", "e.tex", "iii.md"])
def test_a_number_that_was_changed_by_hand_is_found(store: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(store, name)
    text = file.read_text()
    place = next(
        place for place in range(len(text) // 3, len(text)) if text[place] in "123456" and text[place - 1] == "."
    )
    file.write_text(f"{text[:place]}{int(text[place]) + 1}{text[place + 1 :]}")
    status, said = verified(store, file, capsys)
    assert status == 1
    assert "names the launches of run 1 and differs from what they give" in said


def test_without_pyarrow_a_table_cannot_be_held_against_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = tmp_path / "e.parquet"
    file.write_bytes(b"PAR1")

    status, said = verified(tmp_path / "results.sqlite", file, capsys)

    # 1 would say that it differs.
    assert status == 2
    assert said == (
        f'ngraph export: {file}: needs pyarrow, which is not installed: pip install "pytest-ngraph[parquet]"\n'
    )


def test_what_names_no_run_is_refused(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("a.csv", "a,b\n1,2\n"), ("b.json", "[]"), ("c.parquet", "no parquet")):
        store.with_name(name).write_text(text)
        status, said = verified(store, store.with_name(name), capsys)
        assert (status, "ngraph export: " in said) == (2, True)
    assert "No such file" in verified(store, store.with_name("none.csv"), capsys)[1]
