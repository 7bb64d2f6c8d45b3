"""Access to a session's device: waiting for it, trying again, and recording its cells as lost where it goes away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from pytest_ngraph.devices.bench import Bench
from pytest_ngraph.errors import DeviceLost, DeviceOffline
from pytest_ngraph.session.ledger import Ledger, Listener
from pytest_ngraph.spec.cells import Cell, CompileRecord, Outcome

_T = TypeVar("_T")


class Access:
    """How a session reaches its device."""

    def __init__(self, bench: Bench, listener: Listener, ledger: Ledger) -> None:
        self._bench, self._listener, self._ledger = bench, listener, ledger
        self._has_waited = False

    def held(self) -> AbstractContextManager[None]:
        """Hold the device exclusively, and report who holds it where that is somebody else."""
        return self._bench.held(self._wait_for_it)

    def _wait_for_it(self, text: str) -> None:
        """Report who holds the device: once in a line that stays, then as transient progress."""
        if self._has_waited:
            self._listener.progress(self._bench.device.name, 1, 1, text, 0, 1)
        else:
            self._has_waited = True
            self._listener.note(text)

    def attempts(self, name: str) -> Iterator[AbstractContextManager[None]]:
        """Yield contexts for an attempt on the device: a second one where it went away and came back.

        ``for attempt in access.attempts(name): with attempt: ...``. What the last attempt raises is raised.
        """
        failed = False

        @contextmanager
        def attempt(*, is_last: bool) -> Iterator[None]:
            nonlocal failed
            try:
                yield
            except DeviceLost as lost:
                if is_last:
                    raise
                failed = True
                self._listener.note(f"{name}: {lost}; trying once more")

        yield attempt(is_last=False)
        if failed:
            yield attempt(is_last=True)

    def twice(self, name: str, do: Callable[[], _T]) -> _T:
        """Do something on the device, once more where the device went away and came back. Return what it gave."""
        for attempt in self.attempts(name):
            with attempt:
                answer = do()
        return answer

    @contextmanager
    def or_lost(self, cells: Iterable[Cell]) -> Iterator[None]:
        """Record cells as lost where their device goes away."""
        try:
            yield
        except (DeviceLost, DeviceOffline) as gone:
            record = CompileRecord(Outcome.LOST, str(gone))
            self._ledger.failures.update(dict.fromkeys(self._ledger.alive(cells), record))
