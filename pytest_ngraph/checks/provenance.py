"""Whether a worker of a side loaded what the side is made of, by what it reads back of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_ngraph.spec.cells import CompileRecord, Outcome
from pytest_ngraph.spec.sides import Side
from pytest_ngraph.texts.shown import one_line

# Of what was loaded so many packages are shown; all are checked.
_SHOWN = 8


def objection(side: Side, said: Mapping[str, Any]) -> str:
    """Return why what a worker loaded is not the side that was asked for, or nothing.

    A side that is measured from somewhere else would be this one, compared with itself in silence.
    """
    if said["strays"]:
        module, file = said["strays"][0]
        return one_line(
            f"{module} of the project was loaded from {file}, not from {side.label} in {side.tree}: what puts the "
            "working tree on the import path (an editable install, a .pth file, code that changes sys.path) hides the "
            "other side"
        )
    wanted = dict(side.versions)
    for name, version, file in said["packages"]:
        known = wanted.get(name)
        if known is not None and known != version:
            return one_line(f"{name} {known} is what {side.label} names, and {version} was loaded, from {file}")
        if reason := _wrong_place(side, name, version, file, said["own_path"]):
            return one_line(reason)
    return ""


def read_back(side: Side, said: Mapping[str, Any], record: CompileRecord) -> CompileRecord:
    """Return the record of a cell with what was loaded in its placement. One that is not of its side has failed."""
    facts = (*record.placement, *_facts(side, said))
    if reason := objection(side, said):
        return CompileRecord(Outcome.FAILED, reason, placement=facts)
    return replace(record, placement=facts)


def _facts(side: Side, said: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what was really loaded, as facts of where a cell ran."""
    facts = [("side", side.label)]
    if side.python:
        facts.append(("python", " ".join(map(str, said["python"]))))
    facts += [(f"loaded {name}", f"{version} from {file}") for name, version, file in said["packages"][:_SHOWN]]
    return tuple((name, one_line(str(fact))) for name, fact in facts)


def _wrong_place(side: Side, name: str, version: str, file: str, own_path: list[str]) -> str:
    if any(_is_below(file, folder) for folder in side.packages):
        return ""
    if not side.python:
        folders = ", ".join(side.packages) or "nowhere"
        is_named = name in dict(side.versions)
        return f"{name} {version} was loaded from {file}, not from {folders} of {side.label}" if is_named else ""
    if any(_is_below(file, folder) for folder in own_path):
        return ""
    return f"{name} {version} was loaded from {file}, which is not of {side.python} of {side.label}"


def _is_below(file: str, folder: str) -> bool:
    return Path(file).is_relative_to(folder) or Path(file).resolve().is_relative_to(Path(folder).resolve())
