"""Saved baselines as files: what they hold, who may read them, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.machine.kinship import Kinship, Machine
from pytest_ngraph.report.baselines.file import FOLDER, read
from pytest_ngraph.report.baselines.saved import Saved
from pytest_ngraph.spec.cells import digest
from pytest_ngraph.store.sqlite import Store
from tests.support.sessions import BASE, FACTS, FAST, MS, Day, add_day, evidence, on_path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rootdir with one run in its store."""
    folder = tmp_path / "project"
    (folder / ".ngraph").mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    add_day(folder / ".ngraph" / "results.sqlite", Day(), 1)
    monkeypatch.chdir(folder)
    return folder


def ngraph(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["baseline", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def saved(project: Path, name: str = "main") -> Saved:
    return read(project / FOLDER / f"{name}.json")


def test_a_run_is_saved_listed_shown_and_dropped(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = ngraph(capsys, "save", "main")
    assert status == 0
    assert "saved 2 cells of run 1 as main: .ngraph-baselines/main.json" in out
    assert "pytest --ngraph-compare=main" in out
    status, out, _ = ngraph(capsys, "list")
    assert "0123abcd       2  main, bench-1" in out
    status, out, _ = ngraph(capsys, "show", "main")
    assert "of run 1" in out
    assert "commit 0123abcd" in out
    assert "device local: bench-1, A processor" in out
    assert f"  {FAST.label}" in out
    assert "    Latency: 4." in out or "    Latency: 3.9" in out
    assert "    Speed-up: " in out
    assert all(len(line) <= 110 for line in out.splitlines())
    assert ngraph(capsys, "show", f"{FOLDER}/main.json")[1] == out
    assert ngraph(capsys, "drop", "main")[0] == 0
    assert not (project / FOLDER / "main.json").exists()
    status, out, _ = ngraph(capsys, "list")
    assert "no baseline" in out
    assert ngraph(capsys, "drop", "main")[0] == 2


def test_a_baseline_holds_means_sessions_and_what_the_machine_is(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ngraph(capsys, "save", "main")
    found = saved(project)
    (mine,) = [cell for cell in found.cells if cell.label == FAST.label]
    latency = mine.metrics["latency"]
    assert latency.value == pytest.approx(MS / 1e3, rel=0.01)
    assert math.exp(latency.mean.theta) == pytest.approx(latency.value)
    assert latency.low < latency.value < latency.high
    assert latency.mean.sessions == (3,)
    assert 0 < latency.mean.variance < 1e-4
    assert mine.metrics["speedup"].value == pytest.approx(2.0, rel=0.01)
    assert mine.metrics["compile_seconds"].value == pytest.approx(2.0, rel=0.1)
    assert (mine.evidence, mine.baseline) == (evidence(Day())[FAST], evidence(Day())[BASE])
    assert mine.threads == "8"
    assert found.machines["local"] == Machine.of(FACTS)
    assert found.machines["local"].hardware["cores"] == "8"
    assert "pytest" not in found.machines["local"].software
    assert (found.protocol, found.seed, found.origin["run"]) == ("gate", "0", "1")
    assert len(found.origin["launches"]) == 32


def test_launches_of_several_runs_of_the_same_code_are_sessions(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_day(project / ".ngraph" / "results.sqlite", Day(launches=4), 2)
    ngraph(capsys, "save", "main")
    assert saved(project).cells[0].metrics["latency"].mean.sessions == (3, 4)


def test_a_baseline_is_not_replaced_unless_that_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ngraph(capsys, "save", "main")
    before = (project / FOLDER / "main.json").read_text()
    add_day(project / ".ngraph" / "results.sqlite", Day(ms=5.0, code="other"), 2)
    status, _, error = ngraph(capsys, "save", "main")
    assert status == 2
    assert "--replace" in error
    assert (project / FOLDER / "main.json").read_text() == before
    assert ngraph(capsys, "save", "main", "--replace")[0] == 0
    (mine,) = [cell for cell in saved(project).cells if cell.label == FAST.label]
    assert mine.metrics["latency"].value == pytest.approx(0.005, rel=0.01)
    assert ngraph(capsys, "save", "main", "--replace", "--run", "1")[0] == 0
    assert ngraph(capsys, "save", "x", "--run", "9")[0] == 2


@pytest.mark.parametrize("name", ["../main", "a/b", "", ".hidden", "-x", "a b", "main.json", "x" * 101, "a\nb", "ä"])
def test_a_name_leads_nowhere_else(name: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("save", "drop"):
        status, _, error = ngraph(capsys, what, "--", name)
        assert status == 2
        assert "is not allowed (expected a name of letters" in error
    assert list(project.rglob("*.json")) == []
    assert list(project.parent.glob("*.json")) == []


def test_runs_without_error_rates_and_without_launches_are_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = project / ".ngraph" / "results.sqlite"
    add_day(store, Day(protocol="quick"), 2)
    assert "no error rate" in ngraph(capsys, "save", "main")[2]
    add_day(store, Day(launches=1, code="once"), 3)
    assert "no cell with two launches" in ngraph(capsys, "save", "main")[2]
    assert not (project / FOLDER).exists()


def test_a_cell_is_found_again_in_another_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / ".ngraph").mkdir(parents=True)
        add_day(folder / ".ngraph" / "results.sqlite", on_path(Day(), folder / "nets" / "net.py"), 1)
        (folder / "pytest.ini").write_text("[pytest]\n")
        monkeypatch.chdir(folder)
        assert main(["baseline", "save", "main"]) == 0
        assert str(tmp_path) not in (folder / FOLDER / "main.json").read_text()
        keys.append({cell.key for cell in saved(folder).cells})
    assert keys[0] == keys[1]
    other = tmp_path / "two" / "other"
    add_day(tmp_path / "two" / ".ngraph" / "results.sqlite", on_path(Day(code="x"), other / "net.py"), 2)
    assert main(["baseline", "save", "other"]) == 0
    # A file of the same name in another folder is another model.
    assert {cell.key for cell in saved(tmp_path / "two", "other").cells}.isdisjoint(keys[0])


# What is not a baseline


def change(path: Path, edit: Callable[[dict[str, Any]], object], *, seal: bool = True) -> None:
    fields = json.loads(path.read_text())
    edit(fields)
    if seal:
        fields.pop("digest", None)
        fields["digest"] = digest(fields)
    path.write_text(json.dumps(fields))


def latency(fields: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = fields["cells"][0]["metrics"]["latency"]
    return found


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda f: f.update(schema=3), "schema is 3 (expected 1 or 2; it was made by a newer pytest-ngraph)"),
        (lambda f: f.update(schema="1"), 'schema is "1" (expected a whole number)'),
        (lambda f: f.update(format="x"), 'format is "x"'),
        (lambda f: f.pop("protocol"), "protocol is missing (expected a text)"),
        (lambda f: f.update(seed=0), "seed is 0 (expected a text)"),
        (lambda f: f.update(extra=1), "extra is not known"),
        (lambda f: f.update(saved_at="yesterday"), 'saved_at is "yesterday" (expected a time'),
        (lambda f: f.update(cells={}), "cells is {} (expected a list)"),
        (lambda f: f.update(cells=[1]), "cells[0] is 1 (expected an object)"),
        (lambda f: f.update(machines={}), "cells[0].device is"),
        (lambda f: f["machines"]["local"].pop("name"), "machines.local.name is missing"),
        (lambda f: f["machines"]["local"]["hardware"].update(cpus=8), "machines.local.hardware is"),
        (lambda f: f["cells"][0].update(state="fast"), '"fast" (expected such as 75us/360ns)'),
        (lambda f: f["cells"].append(f["cells"][0]), "is there twice"),
        (lambda f: f["cells"][0]["metrics"].update(speed=latency(f)), "metric 'speed' is not known"),
        (lambda f: latency(f).update(mean=True), "metrics.latency.mean is true (expected a number)"),
        (lambda f: latency(f).update(variance=-1), "metrics.latency.variance is -1 (expected a number not below 0)"),
        (lambda f: latency(f).update(launches=[]), "expected a list of whole numbers from 1 on"),
        (lambda f: latency(f).update(launches=[3.0]), "expected a list of whole numbers from 1 on"),
        (lambda f: latency(f).update(launches=[True]), "expected a list of whole numbers from 1 on"),
        (lambda f: latency(f).update(value=10**400), "metrics.latency.value is 1000"),
        (lambda f: latency(f).update(value=1e9), "is not within its interval"),
        (lambda f: latency(f).pop("low"), "metrics.latency.low is missing (expected a number)"),
        (lambda f: latency(f).update(unit="s"), "metrics.latency.unit is not known"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(
    edit: Callable[[dict[str, Any]], object], complaint: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ngraph(capsys, "save", "main")
    path = project / FOLDER / "main.json"
    change(path, edit)
    status, out, error = ngraph(capsys, "show", "main")
    assert (status, out) == (2, "")
    assert "main.json: " in error
    assert complaint in error
    # One that cannot be read does not hide the others.
    ngraph(capsys, "save", "good")
    listed = ngraph(capsys, "list")[1]
    assert "main: cannot be read" in listed
    assert "good, bench-1" in listed


def test_an_edited_file_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ngraph(capsys, "save", "main")
    change(project / FOLDER / "main.json", lambda fields: latency(fields).update(mean=-5.0), seal=False)
    assert "digest does not fit the file: it is damaged or was edited" in ngraph(capsys, "show", "main")[2]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no JSON that can be read"),
        ("{", "no JSON that can be read"),
        ("[]", "the file is [] (expected an object)"),
        ('{"format": NaN}', "NaN is no number of JSON"),
        ('{"format": 1, "format": 2}', "'format' stands twice"),
        ("[" * 100_000, "no JSON that can be read"),
    ],
)
def test_what_is_no_baseline_at_all_is_refused(
    text: str, complaint: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "x.json").write_text(text)
    assert complaint in ngraph(capsys, "show", "x.json")[2]
    assert "no such file" in ngraph(capsys, "show", "none")[2]


def test_a_cut_file_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ngraph(capsys, "save", "main")
    path = project / FOLDER / "main.json"
    path.write_bytes(path.read_bytes()[:-200])
    assert ngraph(capsys, "show", "main")[0] == 2


# Machines


def test_machines_are_the_same_of_a_class_or_others() -> None:
    mine = Machine.of(FACTS)
    assert mine.kinship(Machine.of(FACTS)) is Kinship.SAME
    # What is installed may be the very change that is looked for.
    newer = Machine.of({**FACTS, "kernel": "6.2", "versions": {**FACTS["versions"], "onnxruntime": "1.32"}})
    assert mine.kinship(newer) is Kinship.SAME
    assert mine.differing(newer) == [("kernel", "6.1", "6.2"), ("onnxruntime", "1.31.1", "1.32")]
    assert mine.kinship(Machine.of({**FACTS, "node": "bench-2"})) is Kinship.CLASS
    assert mine.kinship(Machine.of({**FACTS, "node": "bench-2", "kernel": "6.2"})) is Kinship.OTHER
    for change in (
        {"cpu": "Another"}, {"cpu_flags": "ff"}, {"affinity": [0, 1]}, {"cpu_quota": 1.5}, {"governor": "powersave"},
        {"boost": None}, {"cpus": 4}, {"gpu": {"name": "H100", "driver": "570"}},
    ):  # fmt: skip
        assert mine.kinship(Machine.of({**FACTS, **change})) is Kinship.OTHER, change


def test_a_store_says_which_run_measured_a_launch(project: Path) -> None:
    add_day(project / ".ngraph" / "results.sqlite", Day(launches=2), 2)
    with Store.open(project / ".ngraph" / "results.sqlite", read_only=True) as store:
        assert [record.run for record in store.launches(evidence(Day()))] == [1, 1, 1, 2, 2]
        (related,) = store.related(evidence(Day()))
        assert [record.run for record in related.finished] == [1, 1, 1, 2, 2]
