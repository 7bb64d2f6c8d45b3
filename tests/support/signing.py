"""A signer in a thread of this process, and stand-ins for one that answer as they are told: on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.devices.registry import HubEntry
from pytest_ngraph.devices.trust import certificates, csr, tls
from pytest_ngraph.devices.trust.authority import Authority


class Signing:
    """A signer that runs: its address, what it said, and the signer itself."""

    def __init__(self, address: str, said: list[str], signer: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.address, self.said, self.signer, self._loop = address, said, signer, loop

    def look_after(self) -> None:
        """Have it look at its CA now."""

        async def look() -> None:
            self.signer.look_after()

        asyncio.run_coroutine_threadsafe(look(), self._loop).result(60)


@contextlib.contextmanager
def signing(authority: Authority) -> Iterator[Signing]:
    """Run a signer."""
    from pytest_ngraph.devices.signing.signer import Signer

    loop, made, said = asyncio.new_event_loop(), list[Signing](), list[str]()

    async def begin() -> None:
        signer = Signer(authority, said.append)
        port = signer.open("127.0.0.1", 0)
        made.append(Signing(f"tls://127.0.0.1:{port}", said, signer, loop))

    async def end() -> None:
        made[0].signer.stop()

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(begin(), loop).result(60)
        yield made[0]
        asyncio.run_coroutine_threadsafe(end(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


@contextlib.contextmanager
def answering(ca: Path, pair: tuple[Path, Path], answer: Callable[[ssl.SSLSocket], None]) -> Iterator[str]:
    """Listen with a certificate, hand each connection that shows one to ``answer``, and yield the address."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*pair)
    ends = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def serve() -> None:
            while not ends.is_set():
                with contextlib.suppress(OSError):
                    plain, _ = server.accept()
                    plain.settimeout(5)
                    with context.wrap_socket(plain, server_side=True) as stream:
                        answer(stream)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"tls://127.0.0.1:{server.getsockname()[1]}"
        finally:
            ends.set()
            thread.join(60)


def line(told: object) -> bytes:
    """Return a line as a signer writes one."""
    return json.dumps(told).encode() + b"\n"


WELCOME = line({"welcome": True})


def enrolled(authority: Authority, role: str, name: str, folder: Path, days: float = 20) -> HubEntry:
    """Return files with a certificate that holds for so many days; they know no hub and no signer."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with holding(days):
        certificate, key = authority.issue(role, name)
    ca, own, private = (folder / file for file in ("ca.pem", "certificate.pem", "key.pem"))
    made = HubEntry("lab", "tls://127.0.0.1:9", ca, own, private)
    for path, data in ((made.ca, authority.ca.read_bytes()), (made.certificate, certificate), (made.key, key)):
        tls.write_private(path, data)
    return made


@contextlib.contextmanager
def holding(days: float) -> Iterator[None]:
    """Have certificates of this process's CAs hold for so many days."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pytest_ngraph.devices.trust.authority.DAYS", days)
        yield


def at(entry: HubEntry, address: str) -> HubEntry:
    """Return the same files, of somebody who goes to this address."""
    return replace(entry, name="signer", address=address)


def request_of(entry: HubEntry, key: Any = None) -> bytes:
    """Return an honest request for the name of a certificate."""
    from cryptography import x509

    subject = x509.load_pem_x509_certificate(entry.certificate.read_bytes()).subject
    return csr.written(subject, key or certificates.new_key())
