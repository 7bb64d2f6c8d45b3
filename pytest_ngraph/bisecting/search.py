"""The search itself: what is judged next, at which error rate, and what is known when it ends."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# Of the error rate of a search, for judgements beyond those that it needs where each of them decides.
_RESERVE = 0.1


class Answer(str, enum.Enum):
    """What a judgement says of a candidate. ``open`` is what could not be decided: it says nothing."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of candidates 1 to n: all up to ``good`` are good and all from ``bad`` on are bad.

    That is where one change made all later ones slower. Of those between the two each is open.
    """

    good: int
    bad: int

    @property
    def is_decided(self) -> bool:
        """Return whether candidate ``bad`` is the first bad one."""
        return self.bad - self.good == 1


def judgements(candidates: int) -> int:
    """Return how many judgements a search takes where each decides: the last candidate, then halves of what is left."""
    return 1 + math.ceil(math.log2(candidates)) if candidates else 0


def rate_of(number: int, candidates: int, total: float) -> float:
    """Return the error rate of judgement ``number``, from 1 on, so that all of them err at ``total`` at most.

    Those that a search needs where each decides share nine tenths of it evenly. Further ones, after open ones, share
    the rest: a half of it, a sixth, a twelfth, ..., which add up to it however many there are.
    """
    needed = judgements(candidates)
    if number <= needed:
        return total * (1 - _RESERVE) / needed
    further = number - needed
    return total * _RESERVE / (further * (further + 1))


def found(candidates: int, answers: Mapping[int, Answer]) -> Found:
    """Return what answers say of candidates 1 to n. Candidate 0 is good by definition."""
    bad = min((place for place, answer in answers.items() if answer is Answer.BAD), default=candidates + 1)
    good = max((place for place, answer in answers.items() if answer is Answer.GOOD and place < bad), default=0)
    return Found(good, bad)


def following(candidates: int, answers: Mapping[int, Answer]) -> int | None:
    """Return the candidate to judge next, or None where no judgement would say more.

    The last one comes first, and where it is not bad there is nothing to search. Then the middle of the longest stretch
    that nothing is known of: where what is in the middle could not be decided its neighbours mostly cannot either.
    """
    if candidates not in answers:
        return candidates or None
    if answers[candidates] is not Answer.BAD:
        return None
    known = found(candidates, answers)
    longest = max(_stretches(known, answers), key=len, default=())
    return longest[(len(longest) - 1) // 2] if longest else None


def _stretches(known: Found, answers: Mapping[int, Answer]) -> list[Sequence[int]]:
    """Return the candidates between good and bad that are not judged, split where one is open."""
    stops = [known.good, *sorted(place for place in answers if known.good < place < known.bad), known.bad]
    return [range(low + 1, high) for low, high in pairwise(stops) if high - low > 1]
