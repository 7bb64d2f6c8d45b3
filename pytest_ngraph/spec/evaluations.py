"""What evaluating a compiled cell gave: scores over samples, and how well outputs agree with those of another cell."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# The kinds of launches, as the store knows them, in which nothing is timed: passes that say what outputs are worth.
EVALUATION, AGREEMENT = "evaluation", "agreement"
MOST_SCORES, MOST_LETTERS = 16, 40
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]*\Z")
_DIGEST = re.compile(r"[0-9a-f]{1,64}\Z")


def is_score_name(name: object) -> bool:
    """Return whether a score may be called so: it stands behind a colon in tables and on command lines."""
    return isinstance(name, str) and len(name) <= MOST_LETTERS and _NAME.match(name) is not None


@dataclass(frozen=True, slots=True)
class Score:
    """One name of an evaluation: how many of so many samples were right.

    ``right`` says it of each sample, as the hexadecimal digits of a row of bits, the first sample first. It is empty
    where only a share was given, of which ``hits`` need not be whole then.
    """

    name: str
    hits: float
    samples: int
    right: str = ""

    @property
    def share(self) -> float:
        """Return the share of samples that were right."""
        return self.hits / self.samples

    def flags(self) -> list[bool]:
        """Return of each sample whether it was right, nothing where that is not known."""
        bits = bytes.fromhex(self.right)
        return [bool(bits[place // 8] >> (7 - place % 8) & 1) for place in range(self.samples)] if bits else []

    @classmethod
    def of_flags(cls, name: str, flags: list[bool]) -> Score:
        """Return the score of samples of which it is known whether each was right."""
        bits = bytearray(-(-len(flags) // 8))
        for place, flag in enumerate(flags):
            bits[place // 8] |= flag << (7 - place % 8)
        return cls(name, sum(flags), len(flags), bits.hex())

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Score:
        """Read what ``asdict`` writes. Raise ValueError for what cannot be a score."""
        score = cls(**data)
        is_number = type(score.hits) in (int, float) and math.isfinite(score.hits)
        if not (is_score_name(score.name) and _is_count(score.samples) and is_number):
            raise ValueError(f"{data!r} is no score")
        if not 0 <= score.hits <= score.samples or (score.right and not score._is_told()):
            raise ValueError(f"{data!r} contradicts itself")
        return score

    def _is_told(self) -> bool:
        is_long_enough = len(self.right) == 2 * -(-self.samples // 8)
        return is_long_enough and bytes.fromhex(self.right).hex() == self.right and sum(self.flags()) == self.hits


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a model's own ``evaluate(predict)`` gave of a cell.

    ``samples`` is how many ``predict`` was given, in ``calls`` calls of the cell, and ``inputs`` the sha256 of them in
    their order: two cells of one digest were shown the same.
    """

    samples: int
    calls: int
    inputs: str
    scores: tuple[Score, ...]

    def score(self, name: str) -> Score | None:
        """Return a score by its name, or None."""
        return next((score for score in self.scores if score.name == name), None)

    @property
    def names(self) -> list[str]:
        """Return the names of its scores, as they were given."""
        return [score.name for score in self.scores]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """Read what ``asdict`` writes. Raise ValueError for what cannot be an evaluation."""
        scores = tuple(Score.from_json(each) for each in data["scores"])
        found = cls(**{**data, "scores": scores})
        if not (_is_count(found.samples) and _is_count(found.calls) and _is_digest(found.inputs) and scores):
            raise ValueError(f"{str(data)[:200]} is no evaluation")
        if len(set(found.names)) < len(scores) or len(scores) > MOST_SCORES:
            raise ValueError(f"{found.names[: MOST_SCORES + 1]} are no names of scores")
        return found


@dataclass(frozen=True, slots=True)
class Agreed:
    """How well the outputs of a cell agree with those of another one, ``against``, on ``samples`` seeded inputs.

    ``asked`` is how many were asked for: whole batches are called.
    Of ``scored`` samples ``matches`` have their largest class score at the same place, and ``by_chance`` have it where
    the other cell has it for the *next* sample: what shows nothing of the inputs agrees so well. Nothing is scored
    where the outputs are no class scores or have no row for each sample, or where there is one class for all.
    ``centred`` is the smallest cosine once the mean output is taken from both sides, ``centred_by_chance`` that to the
    outputs for the next sample.
    """

    against: str
    asked: int
    samples: int
    inputs: str
    cosine: float
    centred: float | None = None
    centred_by_chance: float | None = None
    matches: int = 0
    scored: int = 0
    by_chance: int = 0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Agreed:
        """Read what ``asdict`` writes. Raise ValueError for what cannot be one."""
        found = cls(**data)
        counts = (found.matches, found.scored, found.by_chance)
        cosines = (found.cosine, found.centred, found.centred_by_chance)
        are_counts = _is_count(found.samples) and _is_count(found.asked)
        if not (isinstance(found.against, str) and are_counts and _is_digest(found.inputs)):
            raise ValueError(f"{str(data)[:200]} is no agreement")
        if not all(type(each) is int and 0 <= each <= found.samples for each in counts):
            raise ValueError(f"{counts} are no counts of {found.samples} samples")
        if not all(each is None or (type(each) in (int, float) and abs(each) <= 1 + 1e-9) for each in cosines):
            raise ValueError(f"{cosines} are no cosines")
        return found


def to_json(found: Evaluation | Agreed) -> dict[str, Any]:
    """Return a JSON-able form that ``from_json`` reads back."""
    data = asdict(found)
    if "scores" in data:
        data["scores"] = list(data["scores"])
    return data


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.match(value) is not None
