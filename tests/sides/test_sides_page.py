"""What the page about sides shows: its suite runs against a side, its workflow checks out what a merge base needs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph import sides
from pytest_ngraph.sides import asked
from tests.conftest import Suite
from tests.support import git_repository as repositories
from tests.support import pages
from tests.support.git_repository import git

PAGE = pages.ROOT / "docs" / "sides.md"


def code(info: str) -> str:
    (block,) = (block.code for block in pages.blocks(PAGE) if block.info == info)
    return block


def test_every_side_of_the_page_can_be_asked_for() -> None:
    given = [line.split("#")[0].split("--ngraph-against=")[1].strip() for line in code("").splitlines()]
    assert len(given) == 7
    read = [sides.read(text) for text in given]
    assert [each.revision for each in read] == ["main", asked.MERGE_BASE, "", "", "", "main", "main"]
    assert [each.always for each in read] == [False] * 6 + [True]


def test_the_suite_of_the_page_is_held_against_a_side(suite: Suite) -> None:
    (suite.path / ".gitignore").write_text("__pycache__/\n")
    suite.pytester.makepyfile(code("python"))
    repositories.make(suite.path, {})
    options = ("--ngraph-compiler=null", "--ngraph-baseline=null", "--ngraph-protocol=quick")

    suite.bare(*options, "--ngraph-against=main").assert_outcomes(passed=2)
    suite.bare(*options).assert_outcomes(skipped=2)


def test_the_workflow_of_the_page_checks_out_what_a_merge_base_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As GitHub does: the merge of the pull request, with as many commits as the workflow says."""
    yaml: Any = pytest.importorskip("yaml")
    (checkout, run) = yaml.safe_load(code("yaml"))["jobs"]["slower"]["steps"]
    assert run["run"] == "pytest --ngraph-against=merge-base --ngraph-gate-changes"
    origin = repositories.make(tmp_path / "origin")
    git(origin, "switch", "-q", "-c", "feature")
    head = repositories.commit(origin, {"model.py": "DEPTH = 2\n"})
    git(origin, "switch", "-q", "main")
    base = repositories.commit(origin, {"other.py": ""})
    git(origin, "switch", "-q", "-c", "merged")
    git(origin, "merge", "-q", "--no-ff", "-m", "merge", "feature")
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"base": {"sha": base}, "head": {"sha": head}}}))
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    monkeypatch.setenv("GITHUB_EVENT_PATH", os.fspath(event))
    depth = f"--depth={checkout['with']['fetch-depth']}"
    git(tmp_path, "clone", "-q", depth, "--branch=merged", origin.as_uri(), "clone")

    side = sides.resolve(
        sides.read("merge-base"), rootdir=tmp_path / "clone", cache=tmp_path / "sides", progress=lambda line: None
    )

    assert side.label == f"merge-base@{base[:7]}"
