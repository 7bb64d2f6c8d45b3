"""What hub, agent and signer share as processes that run until somebody ends them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from pytest_ngraph.devices.registry import is_loopback
from pytest_ngraph.errors import SpecError


def ended_by_signal() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set, from now on and as long as this loop runs."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    return ended


def keep_from(keys: Iterable[Path], problem: str, host: str, command: str, say: Callable[[str], None]) -> None:
    """Warn that this process can read a key that it should not. Raise SpecError where other machines reach it."""
    for key in keys:
        if os.access(key, os.R_OK):
            if not is_loopback(host):
                only = f"With --host 127.0.0.1, for this machine only, the {command} would start"
                raise SpecError(f"{key}: {problem} belongs to another user, or machine. {only}")
            say(f"WARNING: {key}: {problem} belongs to another user, or machine")
            return
