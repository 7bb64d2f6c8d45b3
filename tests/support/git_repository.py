"""A repository of git in a folder of a test, with commits made of texts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.lab",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.lab",
    # Two commits of the same files and moment would be one.
    "GIT_AUTHOR_DATE": "2026-11-01T00:00:00Z",
}


def git(folder: Path, *words: str, given: bytes | None = None) -> str:
    """Run git as a person would, and return what it says."""
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env={**os.environ, **_ENVIRONMENT},
        input=given,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def make(folder: Path, files: Mapping[str, str | bytes] | None = None) -> Path:
    """Make a repository on the branch main with a first commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, files if files is not None else {"model.py": "DEPTH = 1\n"})
    return folder


def commit(folder: Path, files: Mapping[str, str | bytes], message: str = "change") -> str:
    """Write files, commit everything, and return the commit's hash."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def commit_of_objects(folder: Path, listing: str) -> str:
    """Commit a tree by its entries, as ``git mktree`` reads them: also such as no working tree has."""
    tree = git(folder, "mktree", "--missing", given=listing.encode())
    return git(folder, "commit-tree", tree, "-p", "HEAD", "-m", "by hand")


def blob(folder: Path, content: bytes) -> str:
    """Keep a content in the repository and return the name of its object."""
    return git(folder, "hash-object", "-w", "--stdin", given=content)
