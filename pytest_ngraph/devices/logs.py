"""The log of hub and agents: what anybody on the network can cause is said seldom, with how often it happened."""

from __future__ import annotations

import logging
import time

FEW, EVERY_SECONDS = 3, 60.0
# What asyncio and tornado log is a text of its own each time; its beginning says what it is.
_SAME_LETTERS = 40

seldom = logging.getLogger("pytest_ngraph.devices")


class Seldom(logging.Filter):
    """Passes a few records of a kind in each minute. The next minute's first one says how many were held back."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, str], list[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be written."""
        kind, now = (record.name, str(record.msg)[:_SAME_LETTERS]), time.monotonic()
        began, count = self._kinds.get(kind, (now, 0))
        if now - began >= EVERY_SECONDS:
            held_back = max(0, count - FEW)
            if held_back:
                record.msg = f"{record.msg} [{held_back:g} more like it in {now - began:.0f} s]"
            began, count = now, 0
        if len(self._kinds) > 1000:
            self._kinds.clear()
        self._kinds[kind] = [began, count + 1]
        return count < FEW


def log_seldom() -> None:
    """Write the warnings of this process to standard error, few of each kind. The libraries' own handlers go."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    handler.addFilter(Seldom())
    for name, level in (
        ("pytest_ngraph.devices", logging.WARNING),
        ("distributed", logging.ERROR),
        ("distributed.comm", logging.ERROR),
        ("distributed.core", logging.ERROR),
        ("tornado", logging.WARNING),
        ("asyncio", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
