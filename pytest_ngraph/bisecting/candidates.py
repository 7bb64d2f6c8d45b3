"""What is searched: commits on a line of first parents, or releases of a package, from a good one to a bad one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ngraph.errors import SpecError
from pytest_ngraph.sides.git import Repository, fetching
from pytest_ngraph.sides.packages import releases
from pytest_ngraph.texts.shown import one_line

_RELEASES = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*==\s*([^\s,;=]+?)\s*\.\.\s*([^\s,;=]+)\s*\Z")
_EXPECTED = "expected NAME==FIRST..LAST, such as onnxruntime==1.24.0..1.31.1"
_HASH_LETTERS = 7


@dataclass(frozen=True, slots=True)
class Candidate:
    """A commit or a release: the side that it is, what it is called, and more words about it, if there are any.

    What has the same ``content`` is the same in every file. It is empty where that is not known.
    """

    side: str
    name: str
    words: str = ""
    content: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.words})" if self.words else self.name


@dataclass(frozen=True, slots=True)
class Line:
    """What is searched: ``good``, and the candidates after it up to the last, which is taken to be bad.

    ``note`` says what is not as one might expect.
    """

    good: Candidate
    candidates: tuple[Candidate, ...]
    note: str = ""


def is_range(text: str) -> bool:
    """Return whether a text is written as releases of a package are: ``NAME==FIRST..LAST``."""
    return "==" in text


def releases_between(text: str, known: Sequence[str] | None = None) -> Line:
    """Return the releases that ``NAME==FIRST..LAST`` names: those that the index has, without pre-releases.

    ``known`` stands in for the index. Raises SpecError for a text or an index that does not give at least two.
    """
    from packaging.version import InvalidVersion, Version

    match = _RELEASES.match(text)
    if match is None:
        raise SpecError(f"{one_line(text)!r} is not allowed ({_EXPECTED})")
    name = match[1]
    try:
        first, last = Version(match[2]), Version(match[3])
    except InvalidVersion as error:
        raise SpecError(f"{one_line(text)!r}: {error} ({_EXPECTED})") from None
    if not first < last:
        raise SpecError(f"{one_line(text)!r}: {first} does not come before {last}")
    if known is None:
        known = releases(name)
    between = [version for version in sorted(map(Version, known)) if first <= version <= last]
    if len(between) < 2:
        there = ", ".join(map(str, between)) or "none"
        raise SpecError(
            f"{name}: the index has not two releases from {first} to {last} for this Python (there: {there})"
        )
    absent = " and ".join(str(end) for end in (first, last) if end not in between)
    note = (
        f"the index has no {name} {absent} for this Python: {between[0]} to {between[-1]} are searched"
        if absent
        else ""
    )
    good, *candidates = [Candidate(f"{name}=={version}", f"{name}=={version}") for version in between]
    return Line(good, tuple(candidates), note)


def commits_between(good: str, bad: str, folder: Path) -> Line:
    """Return the commits after one revision up to another, along the first parents of the latter. Git is only read.

    Raises SpecError where a revision is not there, or the first is no ancestor of the second.
    """
    repository = Repository(folder)
    first, last = (_commit(repository, revision) for revision in (good, bad))
    one, other = (f"{one_line(text)} ({_short(commit)})" for text, commit in ((good, first), (bad, last)))
    if first == last:
        raise SpecError(f"GOOD {one} and BAD {other} are the same commit")
    if not repository.is_ancestor(first, last):
        said = f"GOOD {one} is no ancestor of BAD {other}"
        if repository.is_ancestor(last, first):
            raise SpecError(f"{said}: it is the other way round")
        if repository.is_shallow:
            raise SpecError(f"{said} as far as is known: it is a shallow clone, and {fetching('HEAD~1')} brings more")
        base = repository.merge_base(first, last)
        instead = f", such as {_short(base)}, where the two part" if base else ""
        raise SpecError(f"{said}: name a commit before BAD that was still fast{instead}")
    commits = repository.first_parents(first, last)
    # Those before GOOD was merged into the line do not have it.
    low, high = 0, len(commits) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if repository.is_ancestor(first, commits[middle]) else (middle + 1, high)
    merge = f"{_short(first)} came into this line by {_short(commits[low])}, before which nothing is searched"
    note = merge if low else ""
    known = [_candidate(repository, commit) for commit in (first, *commits[low:])]
    return Line(known[0], tuple(known[1:]), note)


def _short(commit: str) -> str:
    return commit[:_HASH_LETTERS]


def _commit(repository: Repository, revision: str) -> str:
    found = repository.commit(revision)
    if found is None:
        said = f"revision {one_line(revision)!r}: {repository.root} has no such commit"
        if repository.is_shallow:
            said += f", and it is a shallow clone: {fetching(revision)} brings it"
        raise SpecError(f"{said} (releases of a package are searched as NAME==FIRST..LAST)")
    return found


def _candidate(repository: Repository, commit: str) -> Candidate:
    subject, author, date = repository.facts(commit)
    return Candidate(commit, _short(commit), one_line(f"{subject}; {author}, {date}"), repository.tree(commit))
