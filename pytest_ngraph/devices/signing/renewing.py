"""How one side of the lab renews its own certificate: a signer is asked, its answer tried, and only then put in place.

The old certificate and its key stay in use until then, and whatever goes wrong is a warning: nobody stops measuring.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.devices.doors import engine
from pytest_ngraph.devices.registry import SIGNER_PORT, HubEntry, address_of
from pytest_ngraph.devices.trust import certificates, csr, tls
from pytest_ngraph.errors import DeviceOffline, DeviceUnusable, NgraphError
from pytest_ngraph.machine import turns

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

# Between two looks at a certificate of a process that runs for long; more often towards its end.
DAY_SECONDS = 86400.0
# A signer that is away is not waited for again and again: neither by the next run, nor by the next device of this one.
RETRY_SECONDS = 600.0
# For the whole conversation with a signer.
_ANSWER_SECONDS = 10.0
_TURN_SECONDS = 30.0
MOST_BYTES = 1 << 16


class Renewal:
    """One side's certificate and its renewal. ``say`` gets what a user is to know."""

    def __init__(self, hub: HubEntry, say: Callable[[str], None]) -> None:
        self._hub, self._say = hub, say

    async def begin(self) -> asyncio.Task[None]:
        """Look now, and then about once a day until the task that is returned is cancelled."""
        await self._look_and_say()
        return asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        while True:
            left = 0.0
            # Another one may just be put in its place.
            with contextlib.suppress(DeviceUnusable):
                left = tls.identity_of(self._hub.certificate).days_left
            # Labs start all at once; their signer need not be asked all at once.
            await asyncio.sleep(pause_seconds(left) * random.uniform(0.75, 1.25))  # noqa: S311 - nobody's secret
            await self._look_and_say()

    async def _look_and_say(self) -> None:
        if warning := await asyncio.to_thread(self.look):
            self._say(f"WARNING: {warning}")

    def look(self) -> str | None:
        """Renew the certificate where it ends within 30 days. Return what to do if that fails."""
        try:
            mine = tls.identity_of(self._hub.certificate)
        except DeviceUnusable:
            # Said by whatever uses it.
            return None
        warning = mine.warning()
        if warning is None or mine.days_left <= 0:
            return warning
        try:
            signer = signer_of(self._hub)
            if signer is None:
                return warning
            with _turn(self._hub.certificate.parent):
                return self._renewed(replace(self._hub, name="signer", address=signer))
        except Exception as error:  # noqa: BLE001 - whatever it is, a certificate that still holds is used on
            kind = "" if isinstance(error, (NgraphError, OSError)) else f"{type(error).__name__}: "
            return f"{warning}; it did not renew itself: {kind}{error}"

    def _renewed(self, signer: HubEntry) -> str | None:
        """Renew the certificate, alone. Raises DeviceOffline, DeviceUnusable, SpecError."""
        mine = tls.identity_of(self._hub.certificate)
        if mine.warning() is None:
            # By another process, meanwhile.
            return None
        following = replace(self._hub, certificate=tls.next_of(self._hub.certificate), key=tls.next_of(self._hub.key))
        if _touched_lately(following.key):
            return f"{mine.warning()}; it could not renew itself within the last {RETRY_SECONDS / 60:.0f} minutes"
        key = self._next_key(following.key)
        try:
            new = self._checked(following.certificate.read_bytes(), key)
        except (OSError, DeviceUnusable):
            new = self._checked(self._asked(signer, key), key)
            tls.write_private(following.certificate, new)
        try:
            if mine.role == tls.HUB:
                ask(replace(signer, certificate=following.certificate, key=following.key), None)
            else:
                engine.probe(following, _ANSWER_SECONDS)
        except DeviceUnusable:
            following.certificate.unlink(missing_ok=True)
            raise
        tls.exchange(self._hub.certificate, self._hub.key)
        now = tls.identity_of(self._hub.certificate)
        self._say(
            f"the certificate of the {now.role} {now.name!r} has renewed itself: {self._hub.certificate} holds until "
            f"{now.expires:%Y-%m-%d}"
        )
        return None

    def _next_key(self, path: Path) -> EllipticCurvePrivateKey:
        """Return the key that the next certificate is for: that of the last attempt, whose answer may have been lost.

        The CA may have written down a certificate for it, so it is on disk before anything is asked.
        """
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        with contextlib.suppress(OSError, ValueError, TypeError, DeviceUnusable):
            tls.check_private(path)
            found = serialization.load_pem_private_key(path.read_bytes(), None)
            if isinstance(found, ec.EllipticCurvePrivateKey):
                os.utime(path)
                return found
        key = certificates.new_key()
        tls.write_private(path, certificates.pem(key))
        return key

    def _asked(self, signer: HubEntry, key: EllipticCurvePrivateKey) -> bytes:
        """Return what a signer answers. Raises DeviceUnusable where it refuses."""
        from cryptography import x509

        old = x509.load_pem_x509_certificate(self._hub.certificate.read_bytes())
        answer = ask(signer, {"csr": csr.written(old.subject, key).decode()})
        if "refused" in answer:
            # Whatever was wrong with this key, the next attempt has another.
            tls.write_private(tls.next_of(self._hub.key), certificates.pem(certificates.new_key()))
            raise _refusal(signer, answer)
        return str(answer.get("certificate")).encode()

    def _checked(self, data: bytes, key: EllipticCurvePrivateKey) -> bytes:
        """Return the one certificate in what was answered. Raises DeviceUnusable where it does not follow this one."""
        from cryptography import exceptions, x509

        try:
            new = x509.load_pem_x509_certificate(data)
            old = x509.load_pem_x509_certificate(self._hub.certificate.read_bytes())
            new.verify_directly_issued_by(x509.load_pem_x509_certificate(self._hub.ca.read_bytes()))
            hosts = new.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            signs = new.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
            mine = [x509.DNSName(tls.host_of(tls.identity(old).role))]
            fits = new.public_key() == key.public_key() and new.subject == old.subject and list(hosts) == mine
        except (
            ValueError,
            TypeError,
            IndexError,
            exceptions.InvalidSignature,
            exceptions.UnsupportedAlgorithm,
            x509.ExtensionNotFound,
            x509.DuplicateExtension,
            x509.UnsupportedGeneralNameType,
            x509.InvalidVersion,
        ):
            raise DeviceUnusable("what the signer answered is no certificate of this lab's CA") from None
        if not fits or signs:
            raise DeviceUnusable("what the signer answered is the certificate of somebody else, or of another key")
        if new.not_valid_after_utc <= old.not_valid_after_utc:
            raise DeviceUnusable(f"what the signer answered ends on {new.not_valid_after_utc:%Y-%m-%d}, no later")
        if new.not_valid_before_utc.timestamp() > time.time():
            raise DeviceUnusable(
                f"what the signer answered holds from {new.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on; is this "
                "machine's clock right?"
            )
        from cryptography.hazmat.primitives.serialization import Encoding

        return new.public_bytes(Encoding.PEM)


def pause_seconds(days_left: float) -> float:
    """Return after how many seconds a certificate is looked at again, which holds for so many days."""
    return min(DAY_SECONDS, max(RETRY_SECONDS, days_left * 86400 / 4))


def signer_of(hub: HubEntry) -> str | None:
    """Return the address of what renews this side's certificate, if it is known. Raises SpecError for none."""
    if hub.signer is not None:
        return hub.signer
    file = tls.signer_file(hub.ca)
    try:
        return address_of(str(file), file.read_text(encoding="utf-8").strip(), SIGNER_PORT)
    except FileNotFoundError:
        return None


def ask(signer: HubEntry, asked: Mapping[str, str] | None) -> dict[str, Any]:
    """Show this side's certificate to a signer, ask it for something, and return what it answers.

    Asked for nothing, it says whether it takes the certificate. Raises DeviceOffline where it does not answer in time,
    and DeviceUnusable where it refuses the certificate, or is no signer of this lab.
    """
    name, deadline = f"the signer at {signer.address}", time.monotonic() + _ANSWER_SECONDS
    with engine.reach(signer, name, tls.SIGNER, _ANSWER_SECONDS) as stream:
        try:
            answer = _line(stream, deadline)
            if "refused" in answer:
                raise _refusal(signer, answer)
            if asked is not None:
                stream.sendall(json.dumps(asked).encode() + b"\n")
                answer = _line(stream, deadline)
        except TimeoutError:
            raise DeviceOffline(f"{name} takes connections but does not answer") from None
        except OSError as error:
            raise engine.not_accepted(name, signer, getattr(error, "reason", None) or str(error)) from None
        except (ValueError, RecursionError):
            raise DeviceUnusable(f"{name} does not answer as a signer does") from None
        return answer


def _line(stream: ssl.SSLSocket, deadline: float) -> dict[str, Any]:
    """Read one line of JSON. Raises ValueError where it is none, or too long, and OSError where the connection ends."""
    data = b""
    while not data.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        stream.settimeout(left)
        part = stream.recv(4096)
        if not part:
            raise ConnectionError("it closed the connection")
        data += part
        if len(data) > MOST_BYTES:
            raise ValueError("too long")
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _refusal(signer: HubEntry, answer: Mapping[str, Any]) -> DeviceUnusable:
    return DeviceUnusable(f"the signer at {signer.address} refuses: {str(answer['refused'])[:500]}")


def _touched_lately(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return abs(time.time() - path.stat().st_mtime) < RETRY_SECONDS
    return False


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Wait until no other process renews what lies in a folder. Raises DeviceOffline where that takes too long."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _TURN_SECONDS

        def busy() -> None:
            if time.monotonic() > deadline:
                raise DeviceOffline(f"another process is busy with the certificates in {folder}")

        turns.take(fd, busy)
        try:
            yield
        finally:
            # Not only closed: a process forked meanwhile shares the lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)
