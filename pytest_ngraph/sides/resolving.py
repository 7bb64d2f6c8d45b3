"""From what a user asks for to a side: each of its parts fetched and kept, and all of them named and digested."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pytest_ngraph.errors import SpecError
from pytest_ngraph.sides import merge_base, packages, pythons, trees
from pytest_ngraph.sides.asked import MERGE_BASE, Asked
from pytest_ngraph.sides.git import Repository, fetching, is_hash
from pytest_ngraph.spec.cells import digest
from pytest_ngraph.spec.sides import Side

MOST_LABEL = 60
_HASH_LETTERS = 7
_REMOTE = "origin/"


def resolve(asked: Asked, *, rootdir: Path, cache: Path, progress: Callable[[str], None]) -> Side:
    """Fetch what was asked for, keep it in ``cache``, the folder ``sides`` beside the store, and return the side.

    ``progress`` is given a line for all that takes time, and for what is not as one might expect. Raises SpecError,
    with what helps, where something is not to be had or cannot be kept.
    """
    try:
        _make(cache)
        return _resolved(asked, rootdir, cache, progress)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(f"against {asked.text!r}: it cannot be kept in {cache}: {reason}") from None


def _resolved(asked: Asked, rootdir: Path, cache: Path, progress: Callable[[str], None]) -> Side:
    labels: list[str] = []
    root = tree = ""
    if asked.revision:
        repository = Repository(rootdir)
        label, commit = _commit(repository, asked.revision, progress)
        kept = trees.keep(repository, commit, cache, progress)
        trees.check(kept, sys.path, repository.root, progress)
        labels.append(label)
        root, tree = str(repository.root), str(kept)
    python = None
    if asked.python:
        python = pythons.ask(pythons.find(asked.python, rootdir), f"python:{asked.python}")
    installed = [packages.keep(package, python, cache, progress) for package in asked.packages]
    labels += map(str, asked.packages)
    contents = [each.content for each in installed]
    versions = dict(python.versions) if python else {}
    for each in reversed(installed):
        versions |= dict(each.versions)
    if installed:
        available = versions if python else _versions_here() | versions
        for package, each in zip(asked.packages, installed, strict=True):
            for line in packages.unmet(each.folder, package, python, available):
                progress(line)
    if python:
        contents.append(python.content)
        labels.append(f"{_name_of(python.path)}@{python.content[:_HASH_LETTERS]}")
    return Side(
        _label(labels),
        root=root,
        tree=tree,
        packages=tuple(str(each.folder) for each in installed),
        versions=tuple(sorted(versions.items())),
        python=python.path if python else "",
        content=digest(contents) if len(contents) > 1 else "".join(contents),
    )


def _commit(repository: Repository, revision: str, progress: Callable[[str], None]) -> tuple[str, str]:
    """Return what a revision is called and the commit that it is."""
    if revision == MERGE_BASE:
        commit, how = merge_base.find(repository, os.environ)
        progress(f"{MERGE_BASE} is {commit[:_HASH_LETTERS]}: {how}")
        return f"{revision}@{commit[:_HASH_LETTERS]}", commit
    found = repository.commit(revision)
    if found is None and not is_hash(revision):
        # A job checks out one branch, and has the others as those of the remote at most.
        found = repository.commit(f"{_REMOTE}{revision}")
        if found is not None:
            progress(f"{revision} is {_REMOTE}{revision}: there is no branch of that name here")
    if found is None:
        raise _unknown(repository, revision)
    short = found[:_HASH_LETTERS]
    return (short if is_hash(revision) and found.startswith(revision.lower()) else f"{revision}@{short}"), found


def _unknown(repository: Repository, revision: str) -> SpecError:
    said = f"revision {revision!r}: {repository.root} has no such commit"
    if repository.is_shallow:
        said += f", and it is a shallow clone: {fetching(revision)} brings it"
    elif repository.has_remote:
        said += "; git fetch origin may bring it"
    return SpecError(f"{said} (a package is named as NAME==VERSION, an environment as python:PATH)")


def _versions_here() -> dict[str, str]:
    import importlib.metadata

    from packaging.utils import canonicalize_name

    found: dict[str, str] = {}
    for each in importlib.metadata.distributions():
        if name := each.metadata["Name"]:
            found.setdefault(canonicalize_name(name), each.version)
    return found


def _name_of(path: str) -> str:
    """Name an interpreter by the folder of its environment, or by itself where that is the system's."""
    program = Path(path)
    environment = program.parent.parent
    is_environment = program.parent.name == "bin" and environment.name not in ("", "usr", "local")
    return f"python:{environment.name if is_environment else program.name}"


def _label(parts: list[str]) -> str:
    label = "+".join(parts)
    if len(label) <= MOST_LABEL:
        return label
    # Labels tell cells apart, so that two long ones must not become one.
    end = f"...{digest(label)[:_HASH_LETTERS]}"
    return label[: MOST_LABEL - len(end)] + end


def _make(cache: Path) -> None:
    """Make the folder of what is kept, out of git. So is the store's, where it is not there yet."""
    made = not cache.parent.exists()
    cache.mkdir(parents=True, exist_ok=True)
    for folder in (cache, *([cache.parent] if made else [])):
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="ascii")
