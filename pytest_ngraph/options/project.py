"""Where pytest keeps a project's settings: its rootdir, its ini file, and the words of addopts."""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_ngraph.errors import SpecError


@dataclass(frozen=True, slots=True)
class Project:
    """What pytest would find: the rootdir, what the ini file says, and the words of addopts, the later ones stronger.

    Its own command line is not known here, but what ``addopts`` and ``PYTEST_ADDOPTS`` say is.
    """

    rootdir: Path
    ini: Mapping[str, Any]
    words: Sequence[str]

    def given(self, flag: str) -> list[str]:
        """Return the values of an option among the words, each as one word or as two."""
        found = []
        for word, following in zip(self.words, (*self.words[1:], ""), strict=False):
            if word == flag:
                found.append(following)
            elif word.startswith(f"{flag}="):
                found.append(word.partition("=")[2])
        return found


def read_project(folder: Path, advice: str, rootdir: Path | None = None) -> Project:
    """Return what pytest would find from a folder, or with this rootdir.

    Raises SpecError for an ini file that pytest refuses and for quotes that are not closed. ``advice`` says in it what
    to do without them.
    """
    # pytest offers this to nobody; it has taken and given the same, some words apart, from version 8 on.
    from _pytest.config import UsageError
    from _pytest.config.findpaths import determine_setup

    wanted: dict[str, Any] = {
        "inifile": None, "override_ini": None, "args": [], "rootdir_cmd_arg": rootdir and str(rootdir),
        "invocation_dir": folder,
    }  # fmt: skip
    taken = inspect.signature(determine_setup).parameters
    try:
        found, _, ini, *_ = determine_setup(**{name: value for name, value in wanted.items() if name in taken})
    except UsageError as error:
        raise SpecError(f"pytest's ini file: {error} ({advice})") from None
    said = {name: getattr(value, "value", value) for name, value in ini.items()}
    words = [
        *_words("addopts", said.get("addopts", ""), advice),
        *_words("PYTEST_ADDOPTS", os.environ.get("PYTEST_ADDOPTS", ""), advice),
    ]
    return Project(found, said, words)


def _words(name: str, text: object, advice: str) -> Sequence[str]:
    """Return the words of options, given as a text or a list."""
    if isinstance(text, list):
        return [str(word) for word in text]
    try:
        return shlex.split(text) if isinstance(text, str) else []
    except ValueError as error:
        raise SpecError(f"{name}: {text!r}: {error} ({advice})") from None
