"""From what a user asks for to a side: each of its parts fetched and kept, and all of them named and digested."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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


@dataclass(frozen=True, slots=True)
class Code:
    """The files of a revision: what it is called, the repository's folder, and the folder that they are kept in."""

    label: str
    root: str
    tree: str


@dataclass(frozen=True, slots=True)
class Runtimes:
    """Packages and an interpreter: what each is called, and the fields of a ``Side`` that they are."""

    labels: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    python: str = ""
    content: str = ""


def code(asked: Asked, *, rootdir: Path, cache: Path, progress: Callable[[str], None]) -> Code | None:
    """Read the revision that was asked for, keep its files in ``cache``, and return it, or None where none was.

    ``progress`` is given a line for all that takes time, and for what is not as one might expect. Raises SpecError,
    with what helps, where something is not to be had or cannot be kept.
    """
    if not asked.revision:
        return None
    with _keeping(asked, cache):
        repository = Repository(rootdir)
        label, commit = _commit(repository, asked.revision, progress)
        kept = trees.keep(repository, commit, cache, progress)
        trees.check(kept, sys.path, repository.root, progress)
        return Code(label, str(repository.root), str(kept))


def runtimes(
    asked: Asked, *, rootdir: Path, cache: Path, progress: Callable[[str], None], why_not: str = ""
) -> Runtimes:
    """Install the packages that were asked for, for the interpreter that was, and return what they are.

    Everything is as with ``code``. ``why_not`` says why no package may be installed, where that is so.
    """
    with _keeping(asked, cache):
        python = None
        if asked.python:
            python = pythons.ask(pythons.find(asked.python, rootdir), f"python:{asked.python}")
        keep = partial(packages.keep, python=python, cache=cache, progress=progress, rootdir=rootdir, why_not=why_not)
        installed = [keep(package) for package in asked.packages]
        labels = [each.label for each in installed]
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
        return Runtimes(
            tuple(labels),
            tuple(str(each.folder) for each in installed),
            tuple(sorted(versions.items())),
            python.path if python else "",
            digest(contents) if len(contents) > 1 else "".join(contents),
        )


def resolve(asked: Asked, *, rootdir: Path, cache: Path, progress: Callable[[str], None]) -> Side:
    """Fetch what was asked for, keep it in ``cache``, the folder ``sides`` beside the store, and return the side.

    ``progress`` and errors are as with ``code`` and ``runtimes``.
    """
    of_git = code(asked, rootdir=rootdir, cache=cache, progress=progress)
    return side_of(of_git, runtimes(asked, rootdir=rootdir, cache=cache, progress=progress))


def side_of(of_git: Code | None, others: Runtimes) -> Side:
    """Return the side that is made of these parts."""
    return Side(
        label_of(of_git, others.labels),
        root=of_git.root if of_git else "",
        tree=of_git.tree if of_git else "",
        packages=others.packages,
        versions=others.versions,
        python=others.python,
        content=others.content,
    )


def label_of(of_git: Code | None, labels: Sequence[str]) -> str:
    """Return what a side is called by what it is made of."""
    label = "+".join([*([of_git.label] if of_git else []), *labels])
    if len(label) <= MOST_LABEL:
        return label
    # Labels tell cells apart, so that two long ones must not become one.
    end = f"...{digest(label)[:_HASH_LETTERS]}"
    return label[: MOST_LABEL - len(end)] + end


@contextmanager
def _keeping(asked: Asked, cache: Path) -> Iterator[None]:
    """Make the folder of what is kept, and say of what it cannot hold what was asked for."""
    try:
        _make(cache)
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(f"against {asked.text!r}: it cannot be kept in {cache}: {reason}") from None


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


def _make(cache: Path) -> None:
    """Make the folder of what is kept, out of git. So is the store's, where it is not there yet."""
    made = not cache.parent.exists()
    cache.mkdir(parents=True, exist_ok=True)
    for folder in (cache, *([cache.parent] if made else [])):
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="ascii")
