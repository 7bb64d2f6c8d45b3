"""What hub and agents can be asked, by whom: a short list each. What is not on it is refused, no matter who asks.

dask.distributed serves some seventy requests and thirty more on its streams, several of which run what they are sent.
Imported by the processes of hub and agents.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from distributed.comm.core import Comm, CommClosedError

from pytest_ngraph.devices.logs import seldom

Handler = Callable[..., Any]


def whose(comm: Comm) -> tuple[str, str]:
    """Return role and name of the certificate at the other end."""
    certificate = comm.extra_info.get("peercert") or {}
    subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
    return subject.get("organizationalUnitName", "nobody"), subject.get("commonName", "?")


def asked_by(role: str, op: str, handler: Handler) -> Handler:
    """Return a handler that answers connections with certificates of a role only, and is given the connection.

    Raises PermissionError to others.
    """

    async def checked(comm: Comm, **asked: Any) -> Any:
        found, name = whose(comm)
        if found != role:
            raise PermissionError(f"the {found} {name!r} may not ask for {op!r}")
        answer = handler(comm, **asked)
        return await answer if inspect.isawaitable(answer) else answer

    checked.__name__ = op
    return checked


async def read_stream(
    comm: Comm, handlers: Mapping[str, Handler], extra: Mapping[str, Any], alive: Callable[[], bool] = lambda: True
) -> None:
    """Hand each message of a connection to the handler of its ``op``, until the connection ends.

    ``extra`` says whose it is, whatever a message claims. The first message that is none, or has another ``op``, ends
    the connection.
    """
    try:
        while alive():
            try:
                messages = await comm.read()
            except CommClosedError:
                return
            for message in messages if isinstance(messages, (tuple, list)) else (messages,):
                if message == "OK":
                    continue
                op = str(message.pop("op", "")) if isinstance(message, dict) else ""
                if op == "close-stream":
                    return
                if op not in handlers:
                    role, name = whose(comm)
                    seldom.warning("the %s %r asked for %.40r, which is not served", role, name, op)
                    return
                answer = handlers[op](**{**message, **extra})
                if inspect.isawaitable(answer):
                    await answer
            await asyncio.sleep(0)
    finally:
        await comm.close()
