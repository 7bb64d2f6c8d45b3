"""Where pytest keeps its results: the store of the rootdir that it would find from this folder, or of its settings."""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.table import ROWS

_STORE = next(row for row in ROWS if row.field == "store")


def store_path(given: Path | None) -> Path:
    """Return the store that a command was given, else the one that pytest uses when it is run in this folder.

    Rootdir and ini file are found as pytest finds them. Its own command line is not known here, but what
    ``addopts`` and ``PYTEST_ADDOPTS`` say of the store is. Raises SpecError for an ini file that pytest refuses.
    """
    if given is not None:
        return given
    rootdir, ini = _setup(Path.cwd())
    words = [
        *_words("addopts", ini.get("addopts", "")),
        *_words("PYTEST_ADDOPTS", os.environ.get("PYTEST_ADDOPTS", "")),
    ]
    option = _last(words, _STORE.flag)
    text = option or str(ini.get(_STORE.ini) or _STORE.default)
    path = (Path.cwd() if option else rootdir) / Path(text).expanduser()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _setup(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """Return pytest's rootdir and what its ini file says."""
    # pytest offers this to nobody; it has taken and given the same, some words apart, from version 8 on.
    from _pytest.config.findpaths import determine_setup

    wanted: dict[str, Any] = {
        "inifile": None, "override_ini": None, "args": [], "rootdir_cmd_arg": None, "invocation_dir": folder,
    }  # fmt: skip
    taken = inspect.signature(determine_setup).parameters
    try:
        rootdir, _, ini, *_ = determine_setup(**{name: value for name, value in wanted.items() if name in taken})
    except pytest.UsageError as error:
        raise SpecError(f"pytest's ini file: {error} (name the store with --store)") from None
    return rootdir, {name: getattr(value, "value", value) for name, value in ini.items()}


def _words(name: str, text: object) -> Sequence[str]:
    """Return the words of options, given as a text or a list. Raise SpecError for quotes that are not closed."""
    if isinstance(text, list):
        return [str(word) for word in text]
    try:
        return shlex.split(text) if isinstance(text, str) else []
    except ValueError as error:
        raise SpecError(f"{name}: {text!r}: {error} (name the store with --store)") from None


def _last(words: Sequence[str], flag: str) -> str:
    """Return the last value of an option among words, as one word or as two."""
    found = ""
    for word, following in zip(words, (*words[1:], ""), strict=False):
        if word == flag:
            found = following
        elif word.startswith(f"{flag}="):
            found = word.partition("=")[2]
    return found
