"""What a search has decided so far, in a file beside the store: it goes on from there."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_ngraph.bisecting.candidates import Line
from pytest_ngraph.bisecting.judging import Judged
from pytest_ngraph.bisecting.search import Answer
from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine import files
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.spec.cells import digest

_FORMAT = 1
_MOST_BYTES = 4 << 20
_SUITE = ("conftest.py", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "ngraph.toml")
_KEY_LETTERS = 12


@dataclass(frozen=True, slots=True)
class Step:
    """A candidate by its place, the error rate that it was judged at, and what came of it."""

    place: int
    rate: float
    judged: Judged


def key_of(line: Line, rest: Sequence[str], rate: float, budget: int) -> str:
    """Return what a search is known by: what is searched, with what, on which machine. What it decided depends on it.

    The suite is in it by its files, as far as they are named: the tests given, configuration and conftests of this
    folder and those above.
    """
    sides = [line.good.side, *(each.side for each in line.candidates)]
    here = {"machine": platform.node(), "plugin": version_of("pytest-ngraph"), "folder": str(Path.cwd())}
    return digest({"sides": sides, "rest": list(rest), "rate": rate, "budget": budget, **here, "suite": _suite(rest)})[
        :_KEY_LETTERS
    ]


def _suite(rest: Sequence[str]) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    folders = {Path.cwd(), *Path.cwd().parents}
    for word in rest:
        path = Path(word.partition("::")[0])
        if word.startswith("-") or not path.exists():
            continue
        folders |= {path.absolute().parent}
        for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
            found[str(file)] = files.file_digest(file)
    for file in (folder / name for folder in sorted(folders) for name in _SUITE):
        if file.is_file():
            found[str(file)] = files.file_digest(file)
    return sorted(found.items())


def write(path: Path, key: str, steps: Sequence[Step]) -> None:
    """Keep the steps of a search. Raise SpecError where that is not possible."""
    content = {"format": _FORMAT, "search": key, "steps": [_to_json(step) for step in steps]}
    try:
        files.write(path, json.dumps(content, indent=1) + "\n", durable=True)
    except OSError as error:
        raise SpecError(f"{path}: what was decided cannot be kept: {error.strerror or error}") from None


def read(path: Path, key: str, candidates: int) -> list[Step]:
    """Return the steps of a search that are kept, none where there is no file.

    Raises SpecError, with the file, for anything else than ``write`` writes.
    """
    found = steps_in(path, key, "search", _FORMAT, _MOST_BYTES)
    steps = [_from_json(path, number, each, candidates) for number, each in enumerate(found, 1)]
    if len({step.place for step in steps}) < len(steps):
        raise refused(path, "a candidate is in it twice")
    return steps


def steps_in(path: Path, key: str, what: str, format: int, most_bytes: int) -> list[Any]:
    """Return the steps that a file keeps of something that is known by a key, such as a search, as they stand there.

    None where there is no file. Raises SpecError, with the file, for one of another key or format, and for garbage.
    """
    try:
        if path.stat().st_size > most_bytes:
            raise refused(path, "it is far too large")
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise refused(path, error.strerror or str(error)) from None
    except (ValueError, RecursionError):
        raise refused(path, "it is no JSON") from None
    if not isinstance(data, dict) or set(data) != {"format", what, "steps"} or data["format"] != format:
        raise refused(path, f"it is no {what} of format {format}")
    if data[what] != key:
        raise refused(path, f"it is of another {what}")
    if not isinstance(data["steps"], list):
        raise refused(path, "it has no list of steps")
    return data["steps"]


def _to_json(step: Step) -> dict[str, Any]:
    return {"place": step.place, "rate": step.rate, **asdict(step.judged), "answer": step.judged.answer.value}


def _from_json(path: Path, number: int, data: object, candidates: int) -> Step:
    where = f"step {number}"
    if not isinstance(data, dict) or set(data) != _FIELDS:
        raise refused(path, f"{where} has other fields than a step has")
    is_place = _is_count(data["place"]) and 1 <= data["place"] <= candidates
    is_rate = _is_number(data["rate"]) and 0 < data["rate"] < 1
    is_answer = data["answer"] in [answer.value for answer in Answer]
    texts = all(isinstance(data[name], str) for name in ("reason", "subject"))
    counts = all(_is_count(data[name]) for name in ("launches", "gates", "run"))
    numbers = [data[name] for name in ("estimate", "low", "high")]
    has_numbers = all(number is None for number in numbers) or all(map(_is_number, numbers))
    claims = data["claims"]
    are_claims = isinstance(claims, list) and all(
        isinstance(claim, list) and len(claim) == 2 and all(isinstance(word, str) for word in claim) for claim in claims
    )
    if not (is_place and is_rate and is_answer and texts and counts and has_numbers and are_claims):
        raise refused(path, f"{where} has a value that no step has")
    if data["answer"] == Answer.BAD.value and not claims:
        raise refused(path, f"{where} is bad, and no claim of it failed")
    judged = Judged(
        **{
            **{name: data[name] for name in _FIELDS - {"place", "rate"}},
            "answer": Answer(data["answer"]),
            "claims": tuple((test, cell) for test, cell in claims),
        }
    )
    return Step(data["place"], float(data["rate"]), judged)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def refused(path: Path, why: str) -> SpecError:
    """Return the error of a file that is not used."""
    return SpecError(f"{path} is not used: {why}")


_FIELDS = frozenset(_to_json(Step(1, 0.1, Judged(Answer.OPEN, ""))))
