"""Launches outlive a release that does not change what is timed, and none that does."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from pytest_ngraph.checks.mixed import MixedCalls
from pytest_ngraph.compilers.bucketed import Bucketed
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices import evidence
from pytest_ngraph.devices.evidence import Evidence
from pytest_ngraph.launches.client import Job
from pytest_ngraph.machine import facts
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.spec import PROTOCOLS, Cell, CompilerSpec, Device, Workload
from pytest_ngraph.workloads.building import build
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.kinds.blocks import KIND
from pytest_ngraph.workloads.kinds.images import images
from pytest_ngraph.workloads.loaded import LoadedWorkload
from pytest_ngraph.workloads.modules.casting import cast
from pytest_ngraph.workloads.modules.constants import settle_statistics
from pytest_ngraph.workloads.modules.seeding import seeded
from pytest_ngraph.workloads.shapes.padding import Padding
from tests.golden import timed_code


def test_whoever_changes_what_is_timed_says_whether_older_launches_count() -> None:
    before, now = json.loads(timed_code.GOLDEN.read_text()), timed_code.today()
    changed = [name for name in {**before["code"], **now["code"]} if before["code"].get(name) != now["code"].get(name)]  # type: ignore[dict-item,attr-defined]
    assert before == now, (
        f"{sorted(changed)} changed: where a call may take another time or something else is compiled, raise SINCE in "
        "pytest_ngraph/devices/evidence.py to the coming version; then run python -m tests.golden.timed_code"
    )


def test_what_builds_draws_and_calls_models_is_watched_wherever_it_is_moved() -> None:
    assert all([*timed_code.HOUSE.glob(pattern)] for pattern in timed_code.TIMED)
    drawing: tuple[object, ...] = (build, images, seeded, settle_statistics, cast, LoadedWorkload, KIND.build)
    # A call of a mix binds its inputs, and pads them where there are buckets.
    calling = (MixedCalls, Bucketed, Padding)
    modules = {str(getattr(each, "__module__", "")) for each in (*drawing, *calling)}
    files = {f"{module.removeprefix('pytest_ngraph.').replace('.', '/')}.py" for module in modules}
    assert files <= set(timed_code.today()["code"])  # type: ignore[call-overload]


def test_words_and_empty_lines_are_no_change_and_a_number_is() -> None:
    code = 'def f(x):\n    """Do it."""\n    # once\n    return x + 1\n'
    assert timed_code.digest(code) == timed_code.digest('def f(x):\n    """Do that."""\n\n    return x + 1\n')
    assert timed_code.digest(code) != timed_code.digest(code.replace("+ 1", "+ 2"))


def test_a_release_keeps_the_launches_of_before_unless_it_changed_what_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key() -> str | None:
        job = Job((), Device("local", (0,), 1), 0, tmp_path / "artifacts", tmp_path / "logs", {}, 60.0)
        cell = Cell("local", CompilerSpec("null"), Workload(parse_model("block:mha")))
        return Evidence(Catalogue(), job, PROTOCOLS["gate"], 0).key(cell)

    ours = key()
    monkeypatch.setattr(facts, "version_of", lambda name: "9.9" if name == "pytest-ngraph" else version_of(name))
    assert key() == ours is not None
    monkeypatch.setattr(evidence, "SINCE", "9.9")
    assert key() != ours


def test_since_is_no_version_to_come() -> None:
    since, installed = evidence.SINCE.split("."), importlib.metadata.version("pytest-ngraph").split(".")
    assert [*map(int, since)] <= [*map(int, installed)]
