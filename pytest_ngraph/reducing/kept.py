"""What a reduction has tried so far, in a file beside the store: it goes on from there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pytest_ngraph.bisecting.kept import refused, steps_in
from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine import files

_FORMAT = 1
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Step:
    """Some nodes by their numbers, whether they fail by themselves as the whole does, and what was said of them."""

    nodes: tuple[int, ...]
    fails: bool
    words: str


def write(path: Path, key: str, steps: Sequence[Step]) -> None:
    """Keep the steps of a reduction. Raise SpecError where that is not possible."""
    content = {"format": _FORMAT, "reduction": key, "steps": [asdict(step) for step in steps]}
    try:
        files.write(path, json.dumps(content) + "\n", durable=True)
    except OSError as error:
        raise SpecError(f"{path}: what was tried cannot be kept: {error.strerror or error}") from None


def read(path: Path, key: str, nodes: int) -> list[Step]:
    """Return the steps of a reduction that are kept, none where there is no file.

    Raises SpecError, with the file, for anything else than ``write`` writes.
    """
    found = steps_in(path, key, "reduction", _FORMAT, _MOST_BYTES)
    return [_step(path, number, each, nodes) for number, each in enumerate(found, 1)]


def _step(path: Path, number: int, data: object, nodes: int) -> Step:
    if not isinstance(data, dict) or set(data) != {"nodes", "fails", "words"}:
        raise refused(path, f"step {number} has other fields than a step has")
    listed = data["nodes"]
    are_nodes = isinstance(listed, list) and listed and all(type(each) is int and 0 <= each < nodes for each in listed)
    if not (are_nodes and isinstance(data["fails"], bool) and isinstance(data["words"], str)):
        raise refused(path, f"step {number} has a value that no step has")
    return Step(tuple(listed), data["fails"], data["words"])
