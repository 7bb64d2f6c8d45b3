"""The merge base as jobs of GitHub and GitLab, and a checkout of a developer's, have it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_ngraph import sides
from pytest_ngraph.errors import SpecError
from pytest_ngraph.sides import merge_base
from pytest_ngraph.sides.git import Repository
from tests.support import git_repository as repositories
from tests.support.git_repository import git

CI = ("GITHUB_BASE_REF", "GITHUB_EVENT_PATH", "CI_MERGE_REQUEST_DIFF_BASE_SHA", "CI_MERGE_REQUEST_TARGET_BRANCH_SHA")


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository whose branch ``feature`` left ``main`` one commit ago, and main has gone on."""
    origin = repositories.make(tmp_path / "origin")
    git(origin, "tag", "base")
    git(origin, "switch", "-q", "-c", "feature")
    repositories.commit(origin, {"model.py": "DEPTH = 2\n"})
    git(origin, "switch", "-q", "main")
    repositories.commit(origin, {"other.py": ""})
    return origin


def hash_of(repository: Path, revision: str) -> str:
    return git(repository, "rev-parse", f"{revision}^{{commit}}")


def clone(origin: Path, branch: str, *words: str) -> Path:
    target = origin.parent / "clone"
    git(origin.parent, "clone", "-q", "--branch", branch, *words, origin.as_uri(), str(target))
    return target


def pull_request(origin: Path, tmp_path: Path) -> dict[str, str]:
    """Make what GitHub makes of a pull request, and return the environment of its job."""
    git(origin, "switch", "-q", "--detach", "main")
    git(origin, "merge", "-q", "--no-ff", "-m", "merge", "feature")
    git(origin, "branch", "pull/7/merge")
    git(origin, "switch", "-q", "main")
    ends = {"base": {"sha": hash_of(origin, "base")}, "head": {"sha": hash_of(origin, "feature")}}
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": ends}))
    return {"GITHUB_BASE_REF": "main", "GITHUB_EVENT_PATH": str(event)}


def test_a_developers_branch_left_the_main_one(origin: Path) -> None:
    here = clone(origin, "feature")
    assert merge_base.find(Repository(here), {}) == (hash_of(origin, "base"), "merge base with origin/HEAD")
    git(here, "remote", "set-head", "origin", "--delete")
    assert merge_base.find(Repository(here), {})[1] == "merge base with origin/main"
    git(here, "branch", "-q", "main", "origin/main")
    git(here, "remote", "remove", "origin")
    assert merge_base.find(Repository(here), {}) == (hash_of(origin, "base"), "merge base with main")


def test_on_the_main_branch_it_is_the_first_parent(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CI:
        monkeypatch.delenv(name, raising=False)
    git(origin, "merge", "-q", "--no-ff", "-m", "merge", "feature")
    before = hash_of(origin, "HEAD^1")
    said: list[str] = []

    side = sides.resolve(sides.read("merge-base"), rootdir=origin, cache=origin.parent / "sides", progress=said.append)

    assert side.label == f"merge-base@{before[:7]}"
    assert f"merge-base is {before[:7]}: first parent of HEAD, which is on main itself" in said


def test_without_a_main_branch_or_a_parent_it_says_what_it_looked_for(tmp_path: Path) -> None:
    alone = repositories.make(tmp_path / "alone")
    with pytest.raises(SpecError, match="HEAD is the first commit of main; there is nothing before it"):
        merge_base.find(Repository(alone), {})
    git(alone, "branch", "-m", "trunk")
    with pytest.raises(SpecError, match="none of origin/HEAD, origin/main, origin/master, main, master, and no job"):
        merge_base.find(Repository(alone), {})
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    with pytest.raises(SpecError, match="has no commit yet"):
        merge_base.find(Repository(empty), {})


def test_in_a_pull_request_it_is_what_the_change_is_merged_into(origin: Path, tmp_path: Path) -> None:
    job = pull_request(origin, tmp_path)
    main = hash_of(origin, "main")
    repositories.commit(origin, {"later.py": ""})  # the branch goes on while the job waits

    here = clone(origin, "pull/7/merge", "--depth=2")

    assert merge_base.find(Repository(here), job) == (main, "what the pull request is merged into")


def test_a_pull_request_whose_job_has_one_commit_says_what_brings_the_other(origin: Path, tmp_path: Path) -> None:
    job = pull_request(origin, tmp_path)
    main = hash_of(origin, "main")
    here = clone(origin, "pull/7/merge", "--depth=1")
    with pytest.raises(SpecError, match=rf"git fetch --depth=1 origin {main} brings it.*fetch-depth: 2"):
        merge_base.find(Repository(here), job)

    git(here, "fetch", "-q", "--depth=1", "origin", main)

    assert merge_base.find(Repository(here), job)[0] == main


def test_a_job_that_checks_out_the_branch_itself_uses_the_merge_base(origin: Path, tmp_path: Path) -> None:
    job = pull_request(origin, tmp_path)
    here = clone(origin, "feature")
    base = hash_of(origin, "base")
    assert merge_base.find(Repository(here), job) == (base, "merge base with origin/main of the pull request")
    git(here, "remote", "remove", "origin")
    assert merge_base.find(Repository(here), job) == (base, f"merge base with {base} of the pull request")


def test_a_shallow_job_of_the_branch_itself_says_what_brings_the_rest(origin: Path, tmp_path: Path) -> None:
    job = pull_request(origin, tmp_path)
    git(origin, "branch", "-q", "-D", "pull/7/merge")
    here = clone(origin, "feature", "--depth=1")
    with pytest.raises(SpecError, match=r"the pull request is into main, and .* does not have it: git fetch") as error:
        merge_base.find(Repository(here), job)
    command = str(error.value).partition("not have it: ")[2].partition(" brings")[0]
    git(here, *command.split()[1:])
    with pytest.raises(SpecError, match="no commit in common; the clone is shallow: git fetch --unshallow origin"):
        merge_base.find(Repository(here), job)
    git(here, "fetch", "-q", "--unshallow", "origin")
    assert merge_base.find(Repository(here), job)[0] == hash_of(origin, "base")


@pytest.mark.parametrize(
    "event", ["", "{", "[]", "{}", '{"pull_request": 1}', '{"pull_request": {"head": [], "base": {"sha": "--all"}}}']
)
def test_an_event_that_says_nothing_of_use_is_no_pull_request(origin: Path, tmp_path: Path, event: str) -> None:
    (tmp_path / "event.json").write_text(event)
    job = {"GITHUB_BASE_REF": "main", "GITHUB_EVENT_PATH": str(tmp_path / "event.json")}
    here = clone(origin, "feature")
    assert merge_base.find(Repository(here), job)[1] == "merge base with origin/main of the pull request"
    # Of a push: the branch that it is into is empty.
    if "base" not in event:
        job["GITHUB_BASE_REF"] = ""
        assert merge_base.find(Repository(here), job)[1] == "merge base with origin/HEAD"


def test_a_job_without_the_change_is_not_compared_with_itself(origin: Path, tmp_path: Path) -> None:
    """As one of pull_request_target is, which checks out the branch that the change is for."""
    job = pull_request(origin, tmp_path)
    here = clone(origin, "main")
    with pytest.raises(SpecError, match=r"HEAD is the merge base .* itself: nothing of the change is checked out"):
        merge_base.find(Repository(here), job)


def test_a_merge_queue_names_what_it_merges_into(origin: Path, tmp_path: Path) -> None:
    main = hash_of(origin, "main")
    pull_request(origin, tmp_path)
    (tmp_path / "event.json").write_text(json.dumps({"merge_group": {"base_sha": main}}))
    here = clone(origin, "pull/7/merge")
    found = merge_base.find(Repository(here), {"GITHUB_EVENT_PATH": str(tmp_path / "event.json")})
    assert found == (main, f"merge base with {main} of the merge queue")


def test_merge_requests_of_gitlab(origin: Path, tmp_path: Path) -> None:
    base, main = hash_of(origin, "base"), hash_of(origin, "main")
    here = clone(origin, "feature")
    assert merge_base.find(Repository(here), {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base}) == (
        base,
        "base of the merge request",
    )
    branch = {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
    assert merge_base.find(Repository(here), branch)[0] == base
    with pytest.raises(SpecError, match=rf"{'1' * 40} \(base of the merge request\) is not in .* git fetch --depth=1"):
        merge_base.find(Repository(here), {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "1" * 40})
    # The merged result has what the branch has got since.
    git(here, "switch", "-q", "--detach", "origin/main")
    git(here, "-c", "user.name=a", "-c", "user.email=a@b.lab", "merge", "-q", "--no-ff", "-m", "m", "origin/feature")
    merged = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base, "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": main}
    assert merge_base.find(Repository(here), merged) == (main, "what the merge request is merged into")
