"""The options of a session: the same values and the same errors as pytest's, under the keyword's name."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_ngraph import measure
from pytest_ngraph.axes import AXES
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.table import ROWS
from pytest_ngraph.script.given import KEYWORDS, read_options
from pytest_ngraph.script.progress import StreamProgress

REFUSED = {"compare", "gate_changes", "missing_baseline", "summary"}
KEPT = {
    "devices", "compilers", "baseline", *(axis.field for axis in AXES if axis.option), "protocol", "tolerance",
    "budget", "run_seconds", "timeout_seconds", "threads", "seed", "state", "inconclusive", "quick_gates", "strict",
    "store", "resume", "fresh", "offline", "config", "wait_seconds", "report", "export", "benchmark_json", "bounds",
    "against", "against_outputs", "side", "error_rate", "noise_history",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nngraph_seed = 7\nngraph_tolerance = 0.1\naddopts = -q --ngraph-threads 2 --ngraph-tolerance=0.2\n"
    )
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("CI", "1")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path


def read(folder: Path, **options: Any) -> Any:
    return read_options(options, folder / "below", None).settings


def test_every_option_is_a_keyword() -> None:
    assert {row.field for row in ROWS} - {row.field for row in KEYWORDS.values()} == REFUSED
    # One that is not in either of these was not thought of: a session must keep to it, or refuse it.
    assert {row.field for row in KEYWORDS.values()} == KEPT
    assert {"device", "compiler", "protocol", "store", "budget", "tolerance", "seed", "run_budget"} <= set(KEYWORDS)


def test_what_is_not_given_is_what_the_project_says(folder: Path) -> None:
    found = read(folder)

    assert (found.seed, found.threads, found.tolerance) == (7, 2, 0.2)
    assert found.store == folder / ".ngraph" / "results.sqlite"
    assert read(folder, seed=0, tolerance=0.3).tolerance == 0.3
    assert read(folder, seed=0).seed == 0


def test_values_may_be_what_python_has(folder: Path) -> None:
    found = read(
        folder, batch=[1, 8], compiler=["null", "tvm[trials=32,patience=8]"], model="block:conv,block:mha",
        store=Path("my.sqlite"), budget=np.int64(4), fresh=True, resume=False, export=[Path("a, b.csv"), "c.md"],
        run_budget="20min", timeout=90, tolerance=np.float64(0.25), depth=np.array([1, 2]),
    )  # fmt: skip

    assert found.batches == (1, 8)
    assert list(map(str, found.compilers)) == ["null", "tvm[patience=8,trials=32]"]
    assert found.models == ("block:conv", "block:mha")
    assert found.store == folder / "below" / "my.sqlite"
    assert (found.budget.launches, found.fresh, found.resume, found.run_seconds) == (4, True, False, 1200.0)
    assert found.export == (folder / "below" / "a, b.csv", folder / "below" / "c.md")
    assert (found.timeout_seconds, found.tolerance, found.depths) == (90.0, 0.25, (1, 2))


def test_a_flag_of_the_project_can_be_taken_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--ngraph-fresh")

    assert read(folder).fresh
    assert not read(folder, fresh=False).fresh


def test_an_undecided_gate_warns_also_where_ci_is_set(folder: Path) -> None:
    assert read(folder).inconclusive == "warn"
    assert read(folder, inconclusive="fail").inconclusive == "fail"
    # That of the project's tests is for tests.
    (folder / "pytest.ini").write_text("[pytest]\nngraph_inconclusive = skip\n")
    assert read(folder).inconclusive == "warn"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tolerence": 0.1}, "unknown option 'tolerence' (known: device, compiler, "),
        ({"tolerence": 0.1}, "did you mean 'tolerance'?"),
        ({"tolerance": 2}, "tolerance: '2' is not allowed (expected a fraction between 0 and 1, such as 0.05)"),
        ({"budget": 2}, "budget: '2' is not allowed (expected a number of launches >= 3"),
        ({"budget": True}, "budget=True is not allowed (it takes a value, see the help of --ngraph-budget)"),
        ({"budget": [8, 9]}, "budget=[8, 9]: several values are not allowed (expected one)"),
        ({"batch": []}, "batch=[] is empty; leave it out for the default"),
        ({"batch": [0]}, "batch: '0' is not allowed (expected whole numbers >= 1"),
        ({"batch": 1.5}, "batch: '1.5' is not allowed"),
        ({"protocol": "fast"}, "protocol: 'fast' is not allowed (expected gate, quick, paper)"),
        ({"fresh": "perhaps"}, "fresh: 'perhaps' is not allowed (expected true or false)"),
        ({"fresh": True, "resume": True}, "resume and fresh contradict each other"),
        ({"seed": object}, "a type is not allowed (expected a text, a number or a path)"),
        ({"gate_changes": True}, "gate_changes= is for runs of pytest (known: device, "),
        ({"summary": "x.md"}, "summary= is for runs of pytest (known: device, "),
        ({"inconclusive": "skip"}, "inconclusive: 'skip' is for tests (expected fail, warn)"),
        ({"export": "x.pdf"}, "export: 'x.pdf' is not allowed (expected a file name that ends in .csv"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_keyword(folder: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as refused:
        read(folder, **options)

    assert str(refused.value).startswith("measure.session: ")
    assert said in str(refused.value)


def test_a_wrong_value_of_the_project_is_refused_by_its_own_name(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nngraph_seed = x\n")
    with pytest.raises(SpecError, match=r"measure\.session: ini option ngraph_seed: 'x' is not allowed"):
        read(folder)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --ngraph-seed=y\n")
    with pytest.raises(SpecError, match=r"measure\.session: --ngraph-seed: 'y' is not allowed"):
        read(folder)
    (folder / "pytest.ini").write_text('[pytest]\naddopts = -k "open\n')
    with pytest.raises(SpecError, match="give another rootdir="):
        read(folder)


@pytest.mark.parametrize(
    ("options", "call", "said"),
    [
        ({}, {"model": "block:conv", "bach": 8}, "unknown keyword 'bach' (allowed: model, "),
        ({}, {"model": "block:conv", "batch": 0}, "batch=0: 0 is not allowed (expected whole numbers >= 1)"),
        ({}, {"model": "block:conv", "against": "main"}, "unknown keyword 'against' (allowed: model, "),
        ({}, {"batch": 8}, "no model: give model="),
        ({}, {"model": "block:conv", "compilers": "tensort"}, "compilers='tensort': unknown compiler 'tensort'"),
        ({}, {"model": "block:conv", "compiler": "tensort"}, "unknown compiler 'tensort'"),
        ({}, {"model": "block:conv", "compiler": "null", "compilers": "null"}, "compiler= and compilers= together"),
        ({}, {"model": "block:conv", "devices": "orin"}, "devices='orin': unknown device 'orin'"),
        ({"compiler": "tensort"}, {"model": "block:conv"}, "compiler: unknown compiler 'tensort' (known: "),
        ({"device": "orin"}, {"model": "block:conv"}, "device: unknown device 'orin' (known: local, "),
        ({"baseline": "idenity"}, {"model": "block:conv"}, "baseline: unknown compiler 'idenity'"),
    ],
)
def test_a_wrong_call_says_what_is_allowed(
    folder: Path, options: dict[str, Any], call: dict[str, Any], said: str
) -> None:
    with measure.session(rootdir=folder, **options) as session, pytest.raises(SpecError) as refused:
        session.measure(**call)

    assert str(refused.value).startswith("measure: ")
    assert said in str(refused.value)
    assert not (folder / ".ngraph").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"add_compilers": ["mine"]}, "add_compilers=['mine'] (expected a mapping such as"),
        ({"add_compilers": {"identity": "a:B"}}, "add_compilers: compiler 'identity': already taken"),
        ({"add_models": {"timm": "a"}}, "add_models: kind of model 'timm'"),
    ],
)
def test_what_is_added_is_checked(folder: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as refused:
        measure.session(rootdir=folder, **given)

    assert said in str(refused.value)


# Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_rewrites_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    progress = StreamProgress(quiet=False)

    progress.group_started("local timm:resnet18", 4, 3, 12.0)
    progress.progress("local timm:resnet18", 1, 3, "timing a cell with a long name", 0, 9)
    progress.note("launch 1 does not count")
    progress.idle()

    shown = stream.getvalue().split("\r")
    assert shown[0] == "ngraph: measuring local timm:resnet18: 4 cells, up to launch 3, about 12 s each\n"
    assert shown[1].startswith("ngraph: launch 1 of 3: timing a cell with a long name (1 of 9), about ")
    assert shown[2].strip() == ""
    assert shown[3:] == ["ngraph: launch 1 does not count\n"]


def test_elsewhere_it_is_lines_and_where_it_shall_be_quiet_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for quiet in (False, True):
        progress = StreamProgress(quiet=quiet)
        progress.progress("a", 1, 3, "timing", 0, 9)
        progress.note("said")
        progress.idle()
        assert capsys.readouterr().err == ("" if quiet else "ngraph: said\n")
    monkeypatch.setattr(sys, "stderr", None)
    StreamProgress(quiet=False).note("nobody is there")


def test_a_stream_that_is_closed_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    progress = StreamProgress(quiet=False)
    stream.close()
    progress.note("lost")
    progress.note("lost again")
