"""A user's connection to a hub: dask.distributed's client, of which little is used and nothing is unpickled.

It is part of the user's process. Imported when a remote device is first asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distributed import Client, Future

from pytest_ngraph.devices.doors.doors import client_address

if TYPE_CHECKING:
    from distributed.security import Security

    from pytest_ngraph.devices.registry import HubEntry

_PLAIN = ["msgpack"]


class LabClient(Client):  # type: ignore[misc]
    """Asks a hub for tasks by their names, and receives text. What a hub or a board sends can run nothing here."""

    def __init__(self, hub: HubEntry, name: str, security: Security, seconds: float) -> None:
        try:
            super().__init__(
                client_address(hub.address),
                name=name,
                timeout=seconds,
                security=security,
                set_as_default=False,
                direct_to_workers=False,
                serializers=_PLAIN,
                deserializers=_PLAIN,
                extensions={},
            )
        except BaseException:
            # Else its thread runs on until the garbage collector closes it, wherever the user's process then is.
            with suppress(OSError, asyncio.TimeoutError):
                self.close(timeout=seconds)
            # Closing does not end it where the connection was closed by a refusal.
            self._loop_runner.stop()
            raise

    def ask(self, task: str, text: str, key: str, resources: Mapping[str, float]) -> Future[str]:
        """Submit one of the tasks that agents know by name. The future has its result, which is text."""
        future: Future[str] = Future(key, self)
        self._send_to_scheduler(
            {
                "op": "ngraph-submit",
                "key": key,
                "task": task,
                "text": text,
                "resources": dict(resources),
                # A hub of 0.3.0 goes by it. Later ones go by who came first.
                "priority": -time.time(),
            }
        )
        return future

    async def _update_scheduler_info(self, n_workers: int = 0) -> None:
        """Ask nothing: a hub does not list the internals of its agents."""

    def _handle_key_in_memory(self, key: Any = None, type: Any = None, workers: Any = None) -> None:
        # The type would come pickled.
        super()._handle_key_in_memory(key, None, workers)

    def _handle_task_erred(self, key: Any = None, exception: Any = None, traceback: Any = None) -> None:
        super()._handle_task_erred(key, str(exception), None)

    async def _handle_event(self, topic: str, event: Any) -> None:
        # Warnings would come pickled.
        if topic not in ("warn", "print"):
            await super()._handle_event(topic, event)
