"""Launches outlive a release that does not change what is timed, and none that does."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices import evidence
from pytest_ngraph.devices.evidence import Evidence
from pytest_ngraph.launches.client import Job
from pytest_ngraph.spec import PROTOCOLS, Cell, CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.golden import timed_code


def test_whoever_changes_what_is_timed_says_whether_older_launches_count() -> None:
    before, now = json.loads(timed_code.GOLDEN.read_text()), timed_code.today()
    changed = [name for name in {**before["code"], **now["code"]} if before["code"].get(name) != now["code"].get(name)]  # type: ignore[dict-item,attr-defined]
    assert before == now, (
        f"{sorted(changed)} changed: where a call may take another time or something else is compiled, raise SINCE in "
        "pytest_ngraph/devices/evidence.py to the coming version; then run python -m tests.golden.timed_code"
    )


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

    ours, real = key(), importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9" if name == "pytest-ngraph" else real(name))
    assert key() == ours is not None
    monkeypatch.setattr(evidence, "SINCE", "9.9")
    assert key() != ours


def test_since_is_no_version_to_come() -> None:
    since, installed = evidence.SINCE.split("."), importlib.metadata.version("pytest-ngraph").split(".")
    assert [*map(int, since)] <= [*map(int, installed)]
