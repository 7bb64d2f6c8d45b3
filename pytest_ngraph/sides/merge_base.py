"""The commit that a branch or a pull request left its target at, by what a CI job or the repository says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.sides.git import Repository, fetching, is_hash

# Tried in this order where no job says what it merges into.
TARGETS = ("origin/HEAD", "origin/main", "origin/master", "main", "master")


def find(repository: Repository, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the commit that what is checked out is held against, and how it was found.

    In a job of a pull request of GitHub, or a merge request of GitLab, it is what the change is merged into; else where
    HEAD left the main branch, and on that branch its first parent. Raises SpecError with what was looked for.
    """
    head = repository.commit("HEAD")
    if head is None:
        raise SpecError(f"merge-base: {repository.root} has no commit yet")
    found = _of_github(repository, head, environment) or _of_gitlab(repository, head, environment)
    if found is not None:
        if found[0] == head:
            # Such as a job of pull_request_target, which checks out the branch that the change is for.
            raise SpecError(f"merge-base: HEAD is the {found[1]} itself: nothing of the change is checked out")
        return found
    for target in TARGETS:
        if repository.commit(target) is not None:
            base = _between(repository, head, target, f"merge base with {target}")
            return _before(repository, head, target) if base[0] == head else base
    raise SpecError(
        f"merge-base: {repository.root} has none of {', '.join(TARGETS)}, and no job names the branch that it merges "
        f"into; name a revision"
    )


def _before(repository: Repository, head: str, target: str) -> tuple[str, str]:
    """Return the first parent of a commit that is on the main branch itself."""
    parents = repository.parents(head)
    if not parents:
        raise SpecError(f"merge-base: HEAD is the first commit of {target}; there is nothing before it")
    return _here(repository, parents[0], f"first parent of HEAD, which is on {target} itself")


def _of_github(repository: Repository, head: str, environment: Mapping[str, str]) -> tuple[str, str] | None:
    branch = environment.get("GITHUB_BASE_REF", "")
    event = _event(environment.get("GITHUB_EVENT_PATH", ""))
    request, queue = event.get("pull_request"), event.get("merge_group")
    if queued := _hash(queue, "base_sha"):
        return _of_job(repository, head, "merge queue", "", queued)
    base, ours = (_hash(request.get(end), "sha") if isinstance(request, dict) else "" for end in ("base", "head"))
    if not branch and not base:
        return None
    parents = repository.parents(head)
    # What GitHub has a job check out: the change merged into the branch as it then was.
    if len(parents) == 2 and ours and parents[1] == ours:
        return _here(repository, parents[0], "what the pull request is merged into")
    return _of_job(repository, head, "pull request", branch, base)


def _of_gitlab(repository: Repository, head: str, environment: Mapping[str, str]) -> tuple[str, str] | None:
    merged_into = environment.get("CI_MERGE_REQUEST_TARGET_BRANCH_SHA", "")
    base = environment.get("CI_MERGE_REQUEST_DIFF_BASE_SHA", "")
    branch = environment.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "")
    # Only where the job checked out the merged result.
    if merged_into and merged_into in repository.parents(head):
        return _here(repository, merged_into, "what the merge request is merged into")
    if base:
        return _here(repository, base, "base of the merge request")
    return _of_job(repository, head, "merge request", branch, "") if branch else None


def _of_job(repository: Repository, head: str, what: str, branch: str, base: str) -> tuple[str, str]:
    """Return the merge base with the branch that a job names or, where that is not here, with the commit it names."""
    for target in filter(None, (branch and f"origin/{branch}", base)):
        if repository.commit(target) is not None:
            return _between(repository, head, target, f"merge base with {target} of the {what}")
    missing = f"origin/{branch}" if branch else base
    raise SpecError(
        f"merge-base: the {what} is into {branch or base}, and {repository.root} does not have it: "
        f"{fetching(missing)} brings it"
    )


def _between(repository: Repository, head: str, target: str, how: str) -> tuple[str, str]:
    base = repository.merge_base(head, target)
    if base is None:
        more = "; the clone is shallow: git fetch --unshallow origin brings the rest" if repository.is_shallow else ""
        raise SpecError(f"merge-base: HEAD and {target} of {repository.root} have no commit in common{more}")
    return base, how


def _here(repository: Repository, commit: str, how: str) -> tuple[str, str]:
    if repository.commit(commit) is None:
        raise SpecError(
            f"merge-base: {commit} ({how}) is not in {repository.root}: {fetching(commit)} brings it, and so does a "
            "checkout with two commits (fetch-depth: 2)"
        )
    return commit, how


def _event(path: str) -> Mapping[str, Any]:
    """Return what started a job. Nothing where that cannot be read."""
    try:
        event = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return {}
    return event if isinstance(event, dict) else {}


def _hash(facts: Any, name: str) -> str:
    """Return a commit of an event, or nothing where it is none: it is given to git."""
    found = facts.get(name) if isinstance(facts, dict) else None
    return found if isinstance(found, str) and is_hash(found) else ""
