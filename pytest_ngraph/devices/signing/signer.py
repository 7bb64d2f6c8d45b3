"""The lab's signer: a process of the CA's user that renews certificates, and signs nothing else.

A connection that shows a valid certificate gets another one of the same name and role, for a new key. A connection is
one question: the signer greets, once it has taken the certificate, one line of JSON with a CSR comes, and one goes
back. A process of its own: nothing that runs inside pytest imports it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tornado.iostream import SSLIOStream, StreamClosedError
from tornado.netutil import bind_sockets
from tornado.tcpserver import TCPServer

from pytest_ngraph.devices import logs, serving
from pytest_ngraph.devices.doors import doors, engine
from pytest_ngraph.devices.logs import seldom
from pytest_ngraph.devices.registry import config_folder, is_loopback
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.devices.trust.authority import Authority
from pytest_ngraph.devices.trust.trust import Trust
from pytest_ngraph.errors import NgraphError, SpecError

# A CSR for a key of our kind has some 500.
MOST_BYTES = 8192
_LOOK_SECONDS = 2.0
_REPLACED = "the signer takes it over within seconds"


class Signer(TCPServer):
    """Listens as hub and agents do: who has not asked within ten seconds is dropped, and few may be at it."""

    def __init__(self, authority: Authority, say: Callable[[str], None]) -> None:
        super().__init__(max_buffer_size=2 * MOST_BYTES)
        self._authority, self._say = authority, say
        self._waiting = doors.Waiting(doors.MOST_WAITING_OF_ADDRESS, doors.MOST_WAITING)
        self._shown = b""
        self.look_after()

    def open(self, host: str, port: int) -> int:
        """Begin to listen. Return the port. Raises OSError where that is not possible."""
        sockets = [doors.Door.of(each) for each in bind_sockets(port, address=host, backlog=1024)]
        self.add_sockets(sockets)
        return int(sockets[0].getsockname()[1])

    def look_after(self) -> None:
        """Trust the CA that is there now, and show a certificate of it that holds. To be called every few seconds."""
        ca, (certificate, key) = self._authority.ca.read_bytes(), self._authority.of_signer()
        shown = ca + certificate.read_bytes()
        if shown != self._shown:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self._authority.ca))
            context.minimum_version, context.verify_mode = ssl.TLSVersion.TLSv1_2, ssl.CERT_REQUIRED
            context.load_cert_chain(certificate, key)
            self.ssl_options, self._shown = context, shown
            # Of this CA: the one of before takes no certificates of another, nor that one's list.
            self._trust = Trust(
                self._authority.ca, certificate, key, replaced="the signer takes it over within seconds"
            )

    async def handle_stream(self, stream: Any, address: Any) -> None:
        """Answer one question. The connection ends with it in any case."""
        self._waiting.add(stream, str(address[0]))
        try:
            await stream.wait_for_handshake()
            await self._answer(stream)
        except (OSError, StreamClosedError) as error:
            why = getattr(error, "real_error", None) or error
            seldom.warning("a connection comes to nothing: %s (such as one of %s)", why, address[0])
        finally:
            self._waiting.done(stream)
            stream.close()

    async def _answer(self, stream: SSLIOStream) -> None:
        peer: Any = stream.socket
        refusal = self._trust.refusal(peer.getpeercert() or {})
        if refusal:
            seldom.warning("a connection is refused: %s", refusal)
            await stream.write(_line({"refused": refusal}))
            return
        await stream.write(_line({"welcome": True}))
        try:
            asked = await stream.read_until(b"\n", max_bytes=MOST_BYTES)
        except StreamClosedError as error:
            if error.real_error is None:
                # It only wanted to know whether its certificate is taken.
                return
            raise
        # In a thread: the CA may be at work for somebody else.
        await stream.write(_line(await asyncio.to_thread(self._signed, peer.getpeercert(binary_form=True), asked)))

    def _signed(self, shown: bytes, asked: bytes) -> dict[str, str]:
        identity = _identity(shown)
        try:
            certificate = self._authority.rekey(shown, _csr(asked))
        except NgraphError as refusal:
            seldom.warning("the %s gets no certificate: %s", f"{identity.role} {identity.name!r}", refusal)
            return {"refused": str(refusal)}
        until = _identity(ssl.PEM_cert_to_DER_cert(certificate.decode())).expires
        who, many = f"the {identity.role} {identity.name!r}", len(self._authority.holding(identity.role, identity.name))
        self._say(f"renewed {who} until {until:%Y-%m-%d}; {many} certificates of that name hold now")
        return {"certificate": certificate.decode()}


def _line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _csr(asked: bytes) -> bytes:
    """Return the CSR of a question. Raises SpecError where it is none."""
    try:
        found = json.loads(asked)
        return str(found["csr"]).encode("ascii")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SpecError("a question is a line of JSON with a csr") from None


def _identity(certificate: bytes) -> tls.Identity:
    from cryptography import x509

    return tls.identity(x509.load_der_x509_certificate(certificate))


def run_signer(folder: Path, host: str, port: int, address: str | None, say: Callable[[str], None]) -> None:
    """Run a signer until SIGINT or SIGTERM, with the CA of a folder. ``address`` is how others reach it.

    Raises SpecError where there is no CA, where it cannot listen there, and where it would serve other machines while
    it can read the key of a hub or an agent.
    """
    authority = Authority.of(folder)
    keys = (
        key
        for config in dict.fromkeys((folder.parent, config_folder()))
        for key in (folder / "hub-key.pem", config / "hub" / "hub-key.pem", *sorted(config.glob("agents/*/key.pem")))
    )
    serving.keep_from(keys, "the signer's user runs a hub or an agent, too; the CA", host, "signer", say)
    doors.raise_file_limit()
    logs.log_seldom()
    asyncio.run(_serve(authority, host, port, address, say))


async def _serve(authority: Authority, host: str, port: int, address: str | None, say: Callable[[str], None]) -> None:
    ended = serving.ended_by_signal()
    signer = Signer(authority, say)
    try:
        own = engine.reached_at(host, signer.open(host, port))
    except OSError as error:
        raise engine.cannot_listen("signer", host, port, error) from None
    address = address or own
    authority.keep_signer(address)
    say(f"signer of {authority.folder} listens on {own}; bundles of 'ngraph enroll' from now on lead to {address}")
    if is_loopback(host):
        say("only this machine can reach it; for a lab: ngraph signer --host ADDRESS (0.0.0.0: all of this machine's)")
    while not ended.is_set():
        try:
            await asyncio.wait_for(ended.wait(), _LOOK_SECONDS)
        except asyncio.TimeoutError:
            try:
                signer.look_after()
            except (OSError, NgraphError) as error:
                # Such as in the moment in which 'ngraph enroll --renew-ca' puts another one in its place.
                seldom.warning("the CA cannot be read now: %s", error)
    signer.stop()
    say("signer ends; until it is back, nothing renews itself")
