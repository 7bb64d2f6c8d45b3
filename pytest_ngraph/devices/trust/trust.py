"""Which certificates hold now: those of the lab's CA that have not expired and are not on its list of revoked ones.

The list (``revoked.pem`` beside ``ca.pem``) is signed by the CA, so it may come from anywhere. It is read again when it
changes, and so are a process's own certificate and key, in all of its connections.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_ngraph.devices.logs import seldom
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.errors import DeviceUnusable


class Trust:
    """What one side of the lab knows: the CA, the list of revoked certificates, and its own certificate.

    ``replaced`` says what becomes of a side whose CA was replaced.
    """

    def __init__(
        self,
        ca: Path,
        certificate: Path,
        key: Path,
        now: Callable[[], float] = time.time,
        *,
        replaced: str = "start this process again",
    ) -> None:
        self._ca, self._own, self._now, self._replaced = ca, (certificate, key), now, replaced
        self._contexts: list[ssl.SSLContext] = []
        self._read: tuple[float, int] | None = None
        self._revoked: frozenset[int] = frozenset()
        self._own_read = self._own_stamps()
        # Whose certificates its connections take, for as long as it runs.
        self._ca_read, self._ca_bytes = _stamp(ca), _bytes(ca)

    def watch(self, context: ssl.SSLContext) -> None:
        """Give a context this side's new certificate as soon as there is one."""
        self._contexts.append(context)

    def refusal(self, certificate: Mapping[str, Any]) -> str | None:
        """Return why the certificate at the other end (``SSLSocket.getpeercert``) does not hold, or None."""
        subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
        who = f"the {subject.get('organizationalUnitName', '?')} {subject.get('commonName', '?')!r}"
        try:
            revoked = self.revoked()
        except DeviceUnusable as error:
            # Beside the refusal: a few strangers in a minute would keep that one from being written.
            seldom.warning("nobody is admitted: %s", error)
            return f"{error}; until then nobody is admitted"
        try:
            if int(certificate["serialNumber"], 16) in revoked:
                return f"the certificate of {who} is revoked"
            if ssl.cert_time_to_seconds(certificate["notAfter"]) < self._now():
                return f"the certificate of {who} has expired"
        except (KeyError, ValueError):
            return "it shows no certificate of the lab"
        return None

    def revoked(self) -> frozenset[int]:
        """Return the serial numbers on the list. Raises DeviceUnusable for one that is damaged or not the CA's."""
        if (ca := _stamp(self._ca)) != self._ca_read:
            if _bytes(self._ca) != self._ca_bytes:
                # The list beside it is not that of the CA whose certificates are taken here.
                raise DeviceUnusable(f"{self._ca} was replaced: {self._replaced}")
            self._ca_read = ca
        stamp = _stamp(tls.revoked_file(self._ca))
        if stamp != self._read:
            self._revoked = tls.revoked_serials(self._ca)
            self._read = stamp
        return self._revoked

    def refresh(self) -> None:
        """Take a new certificate of this side into use, for every connection from now on."""
        stamps = self._own_stamps()
        if stamps == self._own_read:
            return
        try:
            tls.check_pair(*self._own)
            for context in self._contexts:
                context.load_cert_chain(*self._own)
        except (OSError, ssl.SSLError, DeviceUnusable) as error:
            # The other half of it may still be on its way.
            seldom.warning("the new certificate %s cannot be used yet: %s", self._own[0], error)
            return
        self._own_read = stamps

    def _own_stamps(self) -> tuple[tuple[float, int] | None, ...]:
        return tuple(map(_stamp, self._own))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _stamp(path: Path) -> tuple[float, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_ino
