"""How the tests are shared out under pytest-xdist: what is held to the clock runs last, with nothing beside it.

A unit of work is what a test file has of one group. The groups are ``measures`` (tests that hold times to the clock),
``real`` (real runtimes: they want the cores for themselves), ``lab`` (hubs and agents, which wait most of the time, and
for the machine's device lock where two of them measure) and the rest. The first process begins with what is real, of
three or more the last with the labs, and all others with the rest: as long as there is all of it, no two real runtimes
compete, nor two labs. What takes long is begun first. When everything else is done and the others have ended, the first
process runs what measures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.unmarked import LEFT_OUT

_GROUPS = "ngraph_groups"
_FOLDER = pytest.StashKey[TemporaryDirectory[str]]()
MEASURES, REAL, LAB, REST = "measures", "real", "lab", "rest"
# What the first process runs as long as there is any, then what is next; so the last of three or more, and the others.
_OF_FIRST, _OF_LAST, _OF_OTHERS = (REAL, LAB, REST), (LAB, REST, REAL), (REST, REAL, LAB)
# Begun before the others of their group, so that at the end no process waits long for another.
LONG = (
    "tests/checks/test_cheating.py",
    "tests/compilers/test_compilers_ahead.py",
    "tests/compilers/test_compilers_cuda.py",
    "tests/compilers/test_compilers_real.py",
    "tests/compilers/test_compilers_tvm.py",
    "tests/devices/test_devices_failures.py",
    "tests/devices/test_devices_remote.py",
    "tests/front/test_against.py",
    "tests/front/test_ci.py",
    "tests/launches/test_measure_oversight.py",
    "tests/report/test_report_html.py",
    "tests/session/test_reruns.py",
    "tests/session/test_session.py",
    "tests/test_docs.py",
    "tests/test_examples.py",
    "tests/workloads/test_kinds.py",
    "tests/workloads/test_workloads_weights.py",
)


# Hooks of the conftest


def pytest_configure(config: pytest.Config) -> None:
    """Give the suites of each process a device lock of their own, so that they need not wait for one another."""
    if hasattr(config, "workerinput"):
        os.environ["NGRAPH_TESTS_LOCKS"] = str(config.option.basetemp)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark what starts hubs and runs of pytest, and try what stands on real launches a second time where it fails.

    A verdict on a shared machine has an error rate, and here are thousands: a fail is confirmed, as a gate confirms its
    own. What is really wrong fails both times. The summary lists what was tried again; the Makefile limits how many may
    be, and what computes only is not.
    """
    for item in items:
        lab = getattr(getattr(item, "module", None), "Lab", None)
        if getattr(lab, "__module__", None) == "tests.support.lab":
            item.add_marker("lab")
        if "pytester" in getattr(item, "fixturenames", ()):
            item.add_marker("suites")
        if any(map(item.get_closest_marker, LEFT_OUT)) and item.config.pluginmanager.has_plugin("rerunfailures"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """In a process of pytest-xdist, write down the groups: to the controller it sends no more than names."""
    given = getattr(session.config, "workerinput", {}).get(_GROUPS)
    if given is not None:
        groups = {item.nodeid: group_of(mark.name for mark in item.iter_markers()) for item in session.items}
        written = Path(f"{given}.{session.config.workerinput['workerid']}")  # type: ignore[attr-defined]
        written.write_text(json.dumps(groups))
        written.replace(given)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a process where to write the groups."""
    node.workerinput[_GROUPS] = _groups_file(node.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share out by groups, under ``--dist=loadgroup``."""
    return Sharing(config, log) if config.getoption("dist") == "loadgroup" else None


def _groups_file(config: pytest.Config) -> str:
    """Return the file of the groups, which goes with the controller."""
    folder = config.stash.get(_FOLDER, None)
    if folder is None:
        folder = config.stash[_FOLDER] = TemporaryDirectory()
        config.add_cleanup(folder.cleanup)
    return f"{folder.name}/groups.json"


# Groups


def group_of(markers: Iterable[str]) -> str:
    """Return the group of a test with these markers."""
    markers = set(markers)
    return next((group for group in (MEASURES, LAB, REAL) if group in markers), REST)


class Sharing(LoadScopeScheduling):  # type: ignore[misc]
    """Shares out the units; the groups of the tests are known when all processes have collected them."""

    @cached_property
    def _groups(self) -> Mapping[str, str]:
        groups: dict[str, str] = json.loads(Path(_groups_file(self.config)).read_text())
        return groups

    def _split_scope(self, nodeid: str) -> str:
        """Return the name of a test's unit: its file and its group."""
        return f"{nodeid.partition('::')[0]}@{self._groups[nodeid]}"

    @property
    def _first(self) -> WorkerController | None:
        return next((node for node in self.nodes if not node.shutting_down), None)

    def _unit_for(self, node: WorkerController) -> str | None:
        """Return the unit that a process runs next; None where there is none for it, or not yet."""
        units: list[str] = list(self.workqueue)
        is_first = node is self._first
        beside = [unit for unit in units if not unit.endswith(f"@{MEASURES}")]
        if beside:
            is_last = len(self.nodes) > 2 and node is self.nodes[-1]
            groups = _OF_FIRST if is_first else _OF_LAST if is_last else _OF_OTHERS

            def rank(unit: str) -> tuple[int, bool]:
                file, _, group = unit.rpartition("@")
                return groups.index(group), file not in LONG

            # Among equals that with the most tests, as pytest-xdist sorts them.
            return min(beside, key=rank)
        return units[0] if units and is_first and self.nodes == [node] else None

    def _assign_work_unit(self, node: WorkerController) -> None:
        if (unit := self._unit_for(node)) is not None:
            self.workqueue.move_to_end(unit, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self.workqueue and self._unit_for(node) is None and node is not self._first:
            # What is left is to run alone.
            node.shutdown()
        else:
            super()._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Put back what a process has not run, but for the test that it crashed in, which is returned."""
        given: dict[str, dict[str, bool]] = self.assigned_work.pop(node)
        left = {unit: tests for unit, tests in given.items() if not all(tests.values())}
        crashed = next((test for tests in left.values() for test, is_done in tests.items() if not is_done), None)
        for unit, tests in left.items():
            tests.update({test: True for test in tests if test == crashed})
            if not all(tests.values()):
                # A unit without a test left would never end.
                self.workqueue[unit] = tests
        for other in self.nodes:
            self._reschedule(other)
        return crashed
