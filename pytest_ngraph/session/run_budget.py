"""The time that a run may take (``--ngraph-run-budget``), and which group may still spend of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from pytest_ngraph import units
from pytest_ngraph.plan.groups import Group

# Gates that hold with some room are decided in three to six launches: a first look, and as much again.
_LOOKS_TO_COME = 2


class RunBudget:
    """Keeps the time of a run for the groups to come, and gives what is left to the gates that are undecided.

    A group to come keeps what two of its first looks take, one that has had its first look keeps one more. Beyond that
    an undecided gate takes what it needs, as long as there is any. ``seconds`` is wall time from here on, whatever it
    is spent on, or None for a run without a limit. ``is_over`` says whether no test waits for a group any more.
    """

    def __init__(
        self,
        seconds: float | None,
        is_over: Callable[[Group], bool],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.seconds = seconds
        self._is_over, self._clock = is_over, clock or time.monotonic
        self._began = self._clock()
        self._groups: list[tuple[Group, float]] = []
        self._reached: dict[int, float] = {}

    def expect(self, group: Group, first_look_seconds: float) -> None:
        """Keep time for a group whose tests are to come."""
        self._groups.append((group, first_look_seconds))

    @property
    def is_spent(self) -> bool:
        """Return whether the run has taken as long as it may."""
        return self.seconds is not None and self._clock() - self._began >= self.seconds

    def reach(self, group: Group) -> None:
        """Note that the tests of a group begin."""
        self._reached.setdefault(id(group), self._clock())

    def allows(self, group: Group) -> bool:
        """Return whether a group may have a launch more than its first look."""
        if self.seconds is None:
            return True
        now = self._clock()
        left = self.seconds - (now - self._began)
        if left <= 0:
            return False
        its_own = _LOOKS_TO_COME * sum(seconds for one, seconds in self._groups if one is group)
        kept = sum(self._kept(other, seconds) for other, seconds in self._groups if other is not group)
        return left > kept or now - self._reached.get(id(group), now) < its_own

    def why(self, group: Group) -> str:
        """Return why a group gets no further launch, or nothing where it may have one."""
        if self.seconds is None or self.allows(group):
            return ""
        what = f"the run's budget of {units.seconds(self.seconds)} is spent"
        if not self.is_spent:
            what = f"what is left of the run's budget of {units.seconds(self.seconds)} is kept for tests to come"
        return f"{what} (--ngraph-run-budget)"

    def _kept(self, group: Group, first_look_seconds: float) -> float:
        """Return the seconds that are kept for a group."""
        if self._is_over(group):
            return 0.0
        return (_LOOKS_TO_COME - (id(group) in self._reached)) * first_look_seconds
