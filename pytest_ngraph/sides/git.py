"""A repository of git that is only read: no index, reference, configuration or working tree of it is written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from pytest_ngraph.errors import SpecError
from pytest_ngraph.texts.shown import one_line

LINK, SUBMODULE, EXECUTABLE = "120000", "160000", "100755"
_SECONDS = 120.0
_CHUNK_BYTES = 1 << 20
# These would have git look at another repository than the one that the folder is in.
_ELSEWHERE = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE", "GIT_REPLACE_REF_BASE",
)  # fmt: skip
_READING = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    # What a partial clone lacks is not fetched; git before 2.45 knows the second way only.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    # A commit is what its hash says.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
_COMMAND = ("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, link or submodule of a commit: its mode as git writes it, its object and its path."""

    mode: str
    object: str
    path: str


class Repository:
    """The repository that a folder is in. Raises SpecError where there is none, or git refuses to read it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        top = self._said("rev-parse", "--show-toplevel")
        if top is None:
            said = one_line(self._run("rev-parse", "--show-toplevel").stderr.decode(errors="replace"))
            raise SpecError(f"{folder} is in no working tree of git whose revisions could be read ({said})")
        # As the folder is written: paths below it are compared with it letter by letter.
        self.root = next((above for above in (folder, *folder.parents) if _is_same(above, Path(top))), Path(top))

    def commit(self, revision: str) -> str | None:
        """Return the hash of the commit that a revision names, or None where there is none."""
        return self._said("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")

    def tree(self, commit: str) -> str:
        """Return the object that names all files of a commit."""
        found = self._said("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{tree}}")
        if found is None:
            raise self.lacking(commit)
        return found

    def parents(self, commit: str) -> list[str]:
        """Return the parents that a commit names, also those that a shallow clone lacks."""
        text = self._said("cat-file", "commit", commit) or ""
        header = text.partition("\n\n")[0].split("\n")
        return [line.removeprefix("parent ") for line in header if line.startswith("parent ")]

    def merge_base(self, one: str, other: str) -> str | None:
        """Return the best common ancestor of two commits, or None where none is here."""
        return self._said("merge-base", "--end-of-options", one, other)

    def is_ancestor(self, one: str, other: str) -> bool:
        """Return whether a commit is another one or lies before it, as far as the history is here."""
        return self._run("merge-base", "--is-ancestor", one, other).returncode == 0

    def first_parents(self, before: str, last: str) -> list[str]:
        """Return the commits of a line of first parents that are not in the history of one, the oldest first."""
        found = self._said("rev-list", "--first-parent", "--reverse", f"{before}..{last}")
        if found is None:
            raise self.lacking(last)
        return found.split()

    def facts(self, commit: str) -> tuple[str, str, str]:
        """Return the subject of a commit, its author and its date."""
        found = self._said(
            "log", "-1", "--no-show-signature", "--date=short", "--format=%s%x00%an%x00%ad", commit, "--"
        )
        if found is None:
            raise self.lacking(commit)
        subject, author, date = found.split("\0")
        return subject, author, date

    @property
    def is_shallow(self) -> bool:
        """Return whether commits are missing at the end of its history."""
        return self._said("rev-parse", "--is-shallow-repository") == "true"

    @cached_property
    def has_remote(self) -> bool:
        """Return whether there is anything to fetch from."""
        return bool(self._said("remote"))

    @cached_property
    def large_files(self) -> Path:
        """Return the folder in which git-lfs keeps the files that were fetched."""
        found = self._said("rev-parse", "--git-common-dir") or ".git"
        return (self._folder / found).resolve() / "lfs" / "objects"

    def entries(self, tree: str) -> list[Entry]:
        """Return all files, links and submodules of a tree."""
        done = self._run("ls-tree", "-r", "-z", "--full-tree", tree)
        if done.returncode != 0:
            raise self.lacking(tree)
        entries = []
        for line in filter(None, done.stdout.split(b"\0")):
            facts, _, path = line.partition(b"\t")
            mode, _, name = facts.decode("ascii").split(" ")
            entries.append(Entry(mode, name, os.fsdecode(path)))
        return entries

    @contextmanager
    def reading(self) -> Iterator[Blobs]:
        """Open the contents of files for reading, without any filter that a checkout has."""
        with subprocess.Popen(
            [*_COMMAND, "cat-file", "--batch"],
            cwd=self._folder,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                yield Blobs(process.stdin, process.stdout, self)
            except BaseException:
                process.kill()
                raise

    def lacking(self, name: str) -> SpecError:
        """Return the error about an object that cannot be read."""
        fetch = "git fetch --refetch --no-filter origin"
        return SpecError(
            f"object {name} of {self.root} is not here, as in a partial clone, or cannot be read; where there is a "
            f"remote, {fetch} brings what is missing"
        )

    def _said(self, *words: str) -> str | None:
        done = self._run(*words)
        return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n") if done.returncode == 0 else None

    def _run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                [*_COMMAND, *words],
                cwd=self._folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
            )
        except FileNotFoundError:
            raise SpecError("git is not installed, and a revision is read with it") from None
        except OSError as error:
            raise SpecError(f"git cannot be started in {self._folder}: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise SpecError(f"git {words[0]} did not end within {_SECONDS:.0f} s in {self._folder}") from None


class Blobs:
    """The contents of a repository's objects, one after the other, from one process of git."""

    def __init__(self, asks: IO[bytes], answers: IO[bytes], repository: Repository) -> None:
        self._asks, self._answers, self._repository = asks, answers, repository

    def read(self, name: str, most_bytes: int, file: IO[bytes] | None = None) -> bytes | None:
        """Return the content of an object if it has at most so many bytes. Else write it to a file and return None."""
        try:
            self._asks.write(f"{name}\n".encode())
            self._asks.flush()
        except BrokenPipeError:
            raise self._repository.lacking(name) from None
        facts = self._answers.readline().split()
        if len(facts) != 3 or facts[1] != b"blob":
            raise self._repository.lacking(name)
        left_bytes = int(facts[2])
        if left_bytes <= most_bytes:
            content = self._take(left_bytes, name)
            self._take(1, name)
            return content
        while left_bytes:
            chunk = self._take(min(left_bytes, _CHUNK_BYTES), name)
            left_bytes -= len(chunk)
            if file is not None:
                file.write(chunk)
        self._take(1, name)
        return None

    def _take(self, amount_bytes: int, name: str) -> bytes:
        content = self._answers.read(amount_bytes)
        if len(content) != amount_bytes:
            raise self._repository.lacking(name)
        return content


def fetching(revision: str) -> str:
    """Return the command that brings a revision into a shallow clone."""
    if set(revision) & set("~^@{"):
        return "git fetch --deepen=100 origin"
    if is_hash(revision):
        # Servers take whole hashes only.
        return f"git fetch --depth=1 origin {revision}" if len(revision) >= 40 else "git fetch --unshallow origin"
    name = revision.removeprefix("refs/remotes/").removeprefix("refs/heads/").removeprefix("origin/")
    return f"git fetch --depth=1 origin +refs/heads/{name}:refs/remotes/origin/{name}"


def is_hash(revision: str) -> bool:
    """Return whether a revision may be the beginning of a commit's hash."""
    return len(revision) >= 7 and set(revision.lower()) <= set("0123456789abcdef")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _environment() -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name not in _ELSEWHERE}, **_READING}
