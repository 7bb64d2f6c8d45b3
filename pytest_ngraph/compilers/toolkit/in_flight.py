"""Several calls in flight at a runtime whose calls are synchronous: a thread for each slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread


class ThreadedRequests:
    """A slot for each of ``runs``: what ``submit`` starts is called in the slot's own thread, always the same one.

    A runtime gets real concurrency from it as far as its calls release the interpreter's lock. What it keeps per
    thread, such as PyTorch's inference mode, is for each of ``runs`` to set.
    """

    def __init__(self, runs: Sequence[Callable[[], None]]) -> None:
        self._done: SimpleQueue[tuple[int, BaseException | None]] = SimpleQueue()
        self._starts: list[SimpleQueue[bool]] = [SimpleQueue() for _ in runs]
        self._threads = [
            Thread(target=_serve, args=(slot, run, start, self._done), name=f"slot {slot}", daemon=True)
            for slot, (run, start) in enumerate(zip(runs, self._starts, strict=True))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, slot: int) -> None:
        """Start a call in a slot that is idle. Return at once."""
        self._starts[slot].put(True)

    def next_done(self) -> int:
        """Wait until a call has finished and return its slot, first come first served. Raise what the call raised."""
        slot, error = self._done.get()
        if error is not None:
            raise error
        return slot

    def close(self) -> None:
        """End the threads, each after the calls that were submitted to it."""
        for start in self._starts:
            start.put(False)
        for thread in self._threads:
            thread.join()


def _serve(
    slot: int,
    run: Callable[[], None],
    start: SimpleQueue[bool],
    done: SimpleQueue[tuple[int, BaseException | None]],
) -> None:
    """Call ``run`` whenever it is wanted, until it is not wanted any more. What it raises is the call's result."""
    while start.get():
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who waits for the call
            done.put((slot, error))
        else:
            done.put((slot, None))
