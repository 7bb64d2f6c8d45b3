"""Workers load side by side before anything is timed, and the seconds of a launch are counted by phase."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.launches.launch import LaunchPlan, run_launch
from pytest_ngraph.launches.reference import Reference
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Outcome, Reading, Workload
from pytest_ngraph.spec.phases import END, IMPORTS, INTERPRETER, KERNEL, LOAD, OUTPUTS, START, VISITS, WAITING, WARM_UP
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.support.measuring import SMALL, TIMED, WATCHED, Memory, build, cell, job, launch

# Building one says when it began and ended. Where there is a file ``kill`` the first that finds it is killed, where
# there is a file ``fail`` none can be built, and with a file ``together`` each waits until two are being built.
NET = """
import os, signal, time
from pathlib import Path
import torch

HERE = Path(__file__).parent

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        began = time.monotonic()
        try:
            (HERE / "kill").unlink()
        except FileNotFoundError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
        if (HERE / "fail").exists():
            raise KeyError("mine")
        if (HERE / "together").exists():
            with open(HERE / "begun", "a") as begun:
                begun.write(".")
            while len((HERE / "begun").read_text()) < 2:
                time.sleep(0.05)
        self.layer = torch.nn.Linear(4, 4)
        with open(HERE / "log", "a") as log:
            log.write(f"{os.getpid()} {began} {time.monotonic()}\\n")

    def forward(self, x):
        return self.layer(x)

    def example_inputs(self, batch):
        return torch.randn(batch, 4)
"""


def net_cells(folder: Path, *batches: int) -> list[Cell]:
    """Return the cells of eager PyTorch and of its second process."""
    (folder / "net.py").write_text(NET)
    model = parse_model("net.py:Net", (folder,))
    eager = CompilerSpec("identity")
    cells = [Cell("local", eager, Workload(model, batch)) for batch in batches]
    return [*cells, replace(cells[0], replica=1)]


@pytest.mark.real
def test_models_are_built_side_by_side_and_nothing_is_prepared_before_all_are(tmp_path: Path) -> None:
    skip_without("torch")
    cells = net_cells(tmp_path, 1)
    build(job(tmp_path), *cells)
    (tmp_path / "log").write_text("")
    (tmp_path / "together").touch()
    at: dict[str, float] = {}

    def watch(doing: str) -> None:
        at.setdefault(doing.split()[0], time.monotonic())

    found = launch(job(tmp_path), *cells, watch=watch)

    assert all(record.outcome in TIMED for record in found.records.values())
    built = [[float(number) for number in line.split()] for line in (tmp_path / "log").read_text().splitlines()]
    assert len({pid for pid, _, _ in built}) == len(built) == 2
    assert max(began for _, began, _ in built) < min(ended for _, _, ended in built)
    assert max(ended for _, _, ended in built) < at["compiling"] < at["measuring"]


@pytest.mark.real
def test_a_worker_that_dies_while_it_loads_costs_its_first_cell_only(tmp_path: Path) -> None:
    skip_without("torch")
    cells = net_cells(tmp_path, 1, 2)
    build(job(tmp_path), *cells)
    (tmp_path / "kill").touch()

    found = launch(job(tmp_path), *cells)

    lost = [one for one in cells if found.records[one].outcome is Outcome.CRASH]
    assert len(lost) == 1
    assert lost[0].workload.batch == 1
    assert found.records[lost[0]].reason.startswith("the worker was ended by SIGKILL during 'load'")
    assert all(found.records[one].outcome in TIMED and found.blocks_of(one) for one in cells if one not in lost)


@pytest.mark.real
def test_what_cannot_be_loaded_is_the_outcome_of_its_cell_as_ever(tmp_path: Path) -> None:
    skip_without("torch")
    cells = net_cells(tmp_path, 1, 2)
    build(job(tmp_path), *cells)
    (tmp_path / "fail").touch()

    found = launch(job(tmp_path), *cells, cell("null"))

    for one in cells:
        assert found.records[one].outcome is Outcome.FAILED
        assert "its factory raised KeyError: 'mine'" in found.records[one].reason
    assert found.records[cell("null")].outcome in TIMED


@pytest.mark.real
def test_the_seconds_of_a_launch_are_all_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = (cell("null[fixed_us=2000]"), cell("null[fixed_us=500]"), cell("null[fixed_us=2000]", replica=1))
    began = time.monotonic()

    # Without patience, and steady: the host may change its speed here, too, and that is waited for.
    monkeypatch.setattr(Reference, "read", lambda self: Reading(150_000, (300,)))
    monkeypatch.setattr(Reference, "glance", lambda self: Reading(150_000, (300,)))
    plan = LaunchPlan(cells, WATCHED, 1, patience_seconds=0)
    spent = run_launch(job(tmp_path), plan, Memory(), spare_memory=lambda: 1.0)

    took = time.monotonic() - began
    assert spent.total == pytest.approx(took, abs=0.5)
    assert set(spent.compilers) == {"null[fixed_us=2000]", "null[fixed_us=500]", "null[fixed_us=2000] 2nd"}
    for phase in (START, LOAD, OUTPUTS, WARM_UP, VISITS, KERNEL, END):
        assert spent.of(phase) > 0, phase
    assert spent.of(WAITING) == 0
    for name in spent.compilers:
        assert 0 < spent.of_compiler(INTERPRETER, name) + spent.of_compiler(IMPORTS, name) < took
        # Each was warmed up for the time that the protocol says, and visited in both blocks.
        assert spent.of_compiler(WARM_UP, name) >= SMALL.warmup_seconds / 3
        assert spent.of_compiler(VISITS, name) >= 2 * SMALL.visit_seconds


@pytest.mark.real
def test_waiting_for_a_state_is_counted_as_that(tmp_path: Path) -> None:
    never = Reading(1, ())
    plan = LaunchPlan((cell("null"),), WATCHED, 1, states=(never,), patience_seconds=0.5)

    spent = run_launch(job(tmp_path), plan, Memory(), spare_memory=lambda: 1.0)

    assert spent.of(WAITING) >= 0.5
