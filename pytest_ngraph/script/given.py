"""What a session is given: options as keyword arguments, resolved as those of a pytest run in the same project."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError, about, known
from pytest_ngraph.options.project import Project, read_project
from pytest_ngraph.options.settings import Settings, place, resolve, takes_several
from pytest_ngraph.options.table import ROWS, Row
from pytest_ngraph.plan.marker import is_several

if TYPE_CHECKING:
    from pytest_ngraph.places import Places

CALL = "measure.session"


def keyword_of(row: Row) -> str:
    """Return an option as a keyword: ``--ngraph-run-budget`` is ``run_budget``."""
    return row.flag.removeprefix("--ngraph-").replace("-", "_")


# What is made of a whole run of tests. An option is a keyword once a session keeps to it, and refused before.
_OF_TESTS = ("compare", "gate_changes", "missing_baseline", "summary")
KEYWORDS: Mapping[str, Row] = {keyword_of(row): row for row in ROWS if row.field not in _OF_TESTS}


@dataclass(frozen=True, slots=True)
class Given:
    """The settings of a session, its rootdir, and where each option stands, by field."""

    settings: Settings
    rootdir: Path
    places: Mapping[str, str]


def read_options(options: Mapping[str, Any], folder: Path, rootdir: Path | None) -> Given:
    """Resolve the options of a session: its keywords, then ``addopts`` and ini file of the project, then the default.

    The project is the one that pytest would find from a folder. ``CI`` does not count: nothing here is a gate of CI
    unless the caller says so. Raises SpecError that names the keyword, or the ini option.
    """
    with about(CALL):
        for name in options:
            if name in [keyword_of(row) for row in ROWS if row.field in _OF_TESTS]:
                raise SpecError(f"{name}= is for runs of pytest (known: {', '.join(KEYWORDS)})")
            if name not in KEYWORDS:
                raise SpecError(f"unknown option {name!r} ({known(name, KEYWORDS)})")
        keywords = {row.field: _texts(name, row, options.get(name)) for name, row in KEYWORDS.items()}
        project = read_project(folder, "give another rootdir=", rootdir)
        words = {row.field: _words_of(row, project) for row in KEYWORDS.values()}

        def named(row: Row, given: object) -> str:
            return keyword_of(row) if keywords.get(row.field) is not None else place(row, given)

        settings = resolve(
            {field: texts if texts is not None else words[field] for field, texts in keywords.items()},
            {row.ini: project.ini.get(row.ini, "") for row in KEYWORDS.values()},
            rootdir=project.rootdir,
            invocation_dir=Path.cwd(),
            environ={name: value for name, value in os.environ.items() if name != "CI"},
            named=named,
        )
        if settings.inconclusive == "skip":
            if keywords["inconclusive"] is not None:
                raise SpecError("inconclusive: 'skip' is for tests (expected fail, warn)")
            settings = replace(settings, inconclusive="warn")
        return Given(settings, project.rootdir, {row.field: named(row, words[row.field]) for row in KEYWORDS.values()})


def _words_of(row: Row, project: Project) -> list[str] | bool | None:
    if row.metavar is None:
        return row.flag in project.words
    return project.given(row.flag) or None


def _texts(name: str, row: Row, value: Any) -> list[str] | None:
    """Return a keyword's value as the texts of an option, or None where it is not given. Raise SpecError."""
    if value is None:
        return None
    if not is_several(value):
        return [_text(name, row, value)]
    if not takes_several(row.field):
        raise SpecError(f"{name}={value!r}: several values are not allowed (expected one)")
    values = list(value)
    if not values:
        raise SpecError(f"{name}={value!r} is empty; leave it out for the default")
    return [_text(name, row, one) for one in values]


def _text(name: str, row: Row, value: Any) -> str:
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        # A scalar of NumPy, pandas or PyTorch.
        value = value.item()
    if isinstance(value, bool):
        if row.metavar is not None:
            raise SpecError(f"{name}={value!r} is not allowed (it takes a value, see the help of {row.flag})")
        return "yes" if value else "no"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    raise SpecError(f"{name}={value!r}: a {type(value).__name__} is not allowed (expected a text, a number or a path)")


def added(keyword: str, places: Mapping[str, str] | None, catalogue: Places) -> None:
    """Add what is given by name and ``module:ATTRIBUTE`` to a catalogue. Raise SpecError where it cannot be."""
    if places is None:
        return
    if not isinstance(places, Mapping):
        raise SpecError(f'{CALL}: {keyword}={places!r} (expected a mapping such as {{"mine": "my_module:COMPILER"}})')
    for name, where in places.items():
        with about(f"{CALL}: {keyword}"):
            catalogue.add(name, where)
