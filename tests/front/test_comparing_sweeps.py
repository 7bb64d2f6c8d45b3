"""Runs whose sweeps are held against a saved baseline: what is compared, missing, recorded and gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.report.baselines.file import FOLDER, read
from pytest_ngraph.spec.cells import digest
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite
from tests.support import compared

SUITE = """
@pytest.mark.ngraph(model="block:conv", batches=[1, 4])
def test_sweep(ngraph_batches):
    pass
"""
BSR = "Batch scaling resilience at batch {} of local:mine block:conv over null[fixed_us=2000]"


# What the saved baseline lacks is a warning.
COMPARED = ("--ngraph-compare=main", "-Wdefault")
# Of four cells two launches must count together, and nothing here depends on how long their calls are.
UNDELAYED = "tests.support.undelayed"


@pytest.fixture
def measured(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A suite whose sweep was measured once and saved as main."""
    return compared.saved(suite, SUITE, monkeypatch, plugins=UNDELAYED)


def run(suite: Suite, *arguments: str) -> pytest.RunResult:
    return compared.run(suite, *arguments, plugins=UNDELAYED)


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    fields = json.loads(path.read_text())
    change(fields)
    del fields["digest"]
    path.write_text(json.dumps({**fields, "digest": digest(fields)}))


def test_a_sweep_is_compared_once_and_what_is_missing_is_named_or_recorded(
    measured: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    path = measured.path / FOLDER / "main.json"
    assert {one.metric for one in read(path).sweeps or ()} == {"ase", "bsr"}

    # Two tests have the sweep, and another one has a cell of it.
    measured.write(SUITE + SUITE.replace("test_sweep", "test_again") + SUITE.replace("test_sweep", "test_one").replace(
        "batches=[1, 4]", "batch=4").replace("ngraph_batches", "ngraph_cell"))  # fmt: skip
    assert run(measured, *COMPARED).ret == 0
    with Store.open(measured.store, read_only=True) as store:
        rows = store.verdicts(store.runs()[-1].id)
    claims = [row.claim for row in rows if "batch 4" in row.claim]
    assert f"compare: {BSR.format(4)} as good as saved in main (tolerance 0.05)" in claims
    assert len(claims) == len(set(claims))
    assert {row.extra["reason"] for row in rows} == {"unchanged: the same code, versions and machine as saved"}

    # Another batch is another sweep: it is missing, and never compared with that of batch 4.
    measured.write(SUITE.replace("[1, 4]", "[1, 8]"))
    done = run(measured, *COMPARED)
    done.stdout.fnmatch_lines([f"*the baseline main has no local:mine block:conv batch8, *{BSR.format(8)[:40]}*"])
    with Store.open(measured.store, read_only=True) as store:
        assert not any("batch 8" in row.claim for row in store.verdicts(store.runs()[-1].id))
    edit(path, lambda fields: fields.update(sweeps=[]))
    measured.write(SUITE)
    assert run(measured, *COMPARED, "--ngraph-missing-baseline=fail").ret == 1
    assert run(measured, *COMPARED, "--ngraph-missing-baseline=record").ret == 0
    assert {one.metric for one in read(path).sweeps or ()} == {"ase", "bsr"}
    assert run(measured, *COMPARED, "--ngraph-missing-baseline=fail").ret == 0


def test_a_baseline_from_before_there_were_sweeps_says_so_and_fails_nothing(measured: Suite) -> None:
    def older(fields: dict[str, Any]) -> None:
        del fields["sweeps"]
        fields["schema"] = 1

    edit(measured.path / FOLDER / "main.json", older)
    done = run(measured, *COMPARED, "--ngraph-missing-baseline=fail")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*main was saved without sweeps, which are not compared: *(ngraph baseline save main *"])


def test_a_sweep_that_can_no_longer_be_made_is_named(measured: Suite) -> None:
    """Each cell is there as before, but in launches of its own."""
    measured.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_apart(ngraph_cell, ngraph):
    ngraph.measure(model="block:conv", batch=4).latency
""")
    text = (measured.path / "adapters.py").read_text()
    (measured.path / "adapters.py").write_text(text.replace('Option("us", "100"', 'Option("us", "110"'))
    done = run(measured, *COMPARED)
    gone = "*not compared with main, as fewer than two launches that count have all of its cells now: *"
    done.stdout.fnmatch_lines([f"{gone}{BSR.format(4)[:40]}*"])
