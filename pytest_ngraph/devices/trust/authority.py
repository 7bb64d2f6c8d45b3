"""The lab's CA: what it signs - certificates, their renewals, and the list of revoked ones - and keeps a record of.

It lies in a folder of its own that neither hub nor agents can read, and its key never leaves that folder. Several
processes of its user may use it at a time, such as ``ngraph signer`` and ``ngraph enroll``: what signs, revokes or
records waits for its turn, so that nothing is signed past a revocation.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.devices.trust import certificates, csr, tls
from pytest_ngraph.devices.trust.tls import AGENT, CA_KEY, CLIENT, DAYS, HUB, SIGNER, WARN_DAYS, Identity, write_private
from pytest_ngraph.devices.wire import bundles
from pytest_ngraph.errors import DeviceUnusable, SpecError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

CA_DAYS = 5 * 365
# Certificates of one name; somebody who has one could else fill the CA's disk.
MOST_A_DAY = 10
# Clocks of those who ask may go somewhat before the CA's.
_DUE_DAYS = WARN_DAYS + 1
_LONGEST_NAME = 63
_RETIRED = "retired"


class Authority:
    """The CA of a lab, in a folder of its own: its key signs, and never leaves this folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self._ca_key = folder / "ca.pem", folder / CA_KEY

    @classmethod
    def of(cls, folder: Path) -> Authority:
        """Return the CA in a folder. Raises SpecError where there is none, or others can get at its key."""
        authority = cls(folder)
        if not authority.ca.is_file() or not authority._ca_key.is_file():
            raise SpecError(
                f"no CA in {folder}; run 'ngraph enroll --hub --address tls://HOST:PORT' first, which makes it (or "
                "give --folder)"
            )
        tls.check_private(authority._ca_key)
        return authority

    @classmethod
    def made(cls, folder: Path) -> Authority:
        """Return the CA in a folder, made there where there is none."""
        if not (folder / "ca.pem").is_file():
            with tls.clearly(folder):
                folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _generation(folder)
        return cls.of(folder)

    def issue(self, role: str, name: str) -> tuple[bytes, bytes]:
        """Make a certificate and its key, both as PEM. Raises SpecError for a CA that ends before the certificate."""
        if len(name) > _LONGEST_NAME:
            raise SpecError(f"the name {name!r} is too long (at most {_LONGEST_NAME} characters)")
        key = certificates.new_key()
        with self._alone():
            return self._certify(role, name, key.public_key()), certificates.pem(key)

    def renew(self, certificate: bytes) -> bytes:
        """Return another certificate of the same role, name and key, for as long as a new one holds.

        Without the key it is of no use. Raises SpecError for one that this CA did not make, that has expired
        or that is revoked.
        """
        from cryptography import x509

        with self._alone():
            old, identity = self._holder(certificate, x509.load_pem_x509_certificate)
            return self._certify(identity.role, identity.name, old.public_key())  # type: ignore[arg-type]

    def rekey(self, certificate: bytes, request: bytes) -> bytes:
        """Return another certificate of the same role and name for the key of a CSR, for as long as a new one holds.

        ``certificate`` (DER) is what the other side of a connection has shown that it has the key of. The same CSR sent
        once more, such as after an answer that was lost, gets the certificate that it got. A key of before gets none.

        Raises SpecError, with what to do: as ``renew``, for a CSR that asks for anything else, and where there is more
        than a month left or too many were asked for.
        """
        from cryptography import x509

        with self._alone():
            old, identity = self._holder(certificate, x509.load_der_x509_certificate)
            key, who = csr.key_of(request, old.subject), f"the {identity.role} {identity.name!r}"
            if key == old.public_key():
                raise SpecError("a renewal is for a new key, not for the one that is to be replaced")
            since, now = datetime.now(timezone.utc) - timedelta(days=1) - certificates.EARLIER, time.time()
            revoked, of_today = tls.revoked_serials(self.ca), 0
            for path in self._issued_to(identity.role, identity.name):
                data = path.read_bytes()
                former = x509.load_pem_x509_certificate(data)
                of_today += former.not_valid_before_utc > since
                if former.public_key() != key:
                    continue
                holds = former.not_valid_after_utc.timestamp() > now and former.serial_number not in revoked
                if holds and former.not_valid_after_utc > old.not_valid_after_utc:
                    return data
                raise SpecError("a renewal is for a new key; this one had a certificate before")
            if identity.days_left > _DUE_DAYS:
                raise SpecError(
                    f"the certificate of {who} holds for {identity.days_left:.0f} days; it is renewed in its last "
                    f"{WARN_DAYS} (is the clock right, there and here?)"
                )
            if of_today >= MOST_A_DAY:
                raise SpecError(f"{who} got {of_today} certificates within a day; try again tomorrow")
            return self._certify(identity.role, identity.name, key)

    def _holder(
        self, certificate: bytes, load: Callable[[bytes], x509.Certificate]
    ) -> tuple[x509.Certificate, Identity]:
        """Return a certificate that may be renewed, and whose it is. Raises SpecError for another."""
        from cryptography import exceptions, x509
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            old = load(certificate)
            old.verify_directly_issued_by(x509.load_pem_x509_certificate(self.ca.read_bytes()))
            identity, key = tls.identity(old), old.public_key()
        except (ValueError, TypeError, IndexError, exceptions.InvalidSignature, x509.InvalidVersion):
            raise SpecError("what is to be renewed is no certificate of this CA") from None
        who = f"the certificate of the {identity.role} {identity.name!r}"
        if old.serial_number in tls.revoked_serials(self.ca):
            raise SpecError(f"{who} is revoked; for one with a new key: ngraph enroll {identity.words}")
        if identity.days_left < 0:
            raise SpecError(f"{who} {identity.ending()}; for one with a new key: ngraph enroll {identity.words}")
        if not isinstance(key, ec.EllipticCurvePublicKey) or identity.role not in (HUB, AGENT, CLIENT):
            raise SpecError(f"{who} is not one that 'ngraph enroll' made")
        return old, identity

    def renewed(self, role: str, name: str) -> bytes:
        """Return the latest certificate of somebody, renewed. Raises SpecError where no valid one exists."""
        for path in reversed(self._issued()):
            identity = tls.identity_of(path)
            if (identity.role, identity.name) == (role, name):
                return self.renew(path.read_bytes())
        raise SpecError(f"nothing was issued to the {role} {name!r}; first: ngraph enroll {tls.words_of(role, name)}")

    def of_signer(self) -> tuple[Path, Path]:
        """Return certificate and key of the lab's signer, made where there are none that hold for a while.

        It lies in the CA's own folder: a user who can read it has the CA's key, too.
        """
        certificate, key = self.folder / "signer.pem", self.folder / "signer-key.pem"
        if not self._holds_for_a_while(certificate, key):
            made, private = self.issue(SIGNER, "signer")
            write_private(key, private)
            write_private(certificate, made)
        return certificate, key

    def _holds_for_a_while(self, certificate: Path, key: Path) -> bool:
        from cryptography import exceptions, x509

        try:
            tls.check_pair(certificate, key)
            found = x509.load_pem_x509_certificate(certificate.read_bytes())
            found.verify_directly_issued_by(x509.load_pem_x509_certificate(self.ca.read_bytes()))
        except (DeviceUnusable, ValueError, TypeError, exceptions.InvalidSignature):
            return False
        return tls.identity(found).days_left > WARN_DAYS

    def _certify(self, role: str, name: str, public_key: EllipticCurvePublicKey) -> bytes:
        from cryptography import x509

        ca = x509.load_pem_x509_certificate(self.ca.read_bytes())
        if ca.not_valid_after_utc < datetime.now(timezone.utc) + timedelta(days=DAYS):
            raise SpecError(
                f"the lab's CA ends on {ca.not_valid_after_utc:%Y-%m-%d}, before a certificate made now; run "
                "'ngraph enroll --renew-ca' and enroll everyone again"
            )
        signed = certificates.for_somebody(role, name, public_key, ca, self._key(), DAYS)
        # Before anybody has it: what is not written down cannot be revoked.
        _record(self.folder, role, name, signed)
        return signed

    def _key(self) -> EllipticCurvePrivateKey:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = serialization.load_pem_private_key(self._ca_key.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise SpecError(f"{self._ca_key}: is not a key that 'ngraph enroll' made")
        return key

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait for the turn of this process, or of this thread. The kernel ends it with its process."""
        with tls.clearly(self.folder):
            fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _issued(self) -> list[Path]:
        """Return the certificates of this generation of the CA that hold or held, oldest first."""
        return sorted((self.folder / "issued").glob("*.pem"), key=lambda path: (path.stat().st_mtime_ns, path.name))

    def _issued_to(self, role: str, name: str) -> list[Path]:
        """Return the certificates of somebody, oldest first."""
        asked = (role, name)
        return [
            path
            for path in self._issued()
            if path.name.startswith(f"{role}-{name}-")
            for identity in (tls.identity_of(path),)
            if (identity.role, identity.name) == asked
        ]

    def issued(self) -> list[Identity]:
        """Return what was issued by this generation of the CA, the latest of each role and name, hubs left out.

        Those whose certificates are all revoked are not among them.
        """
        revoked, found = tls.revoked_serials(self.ca), dict[tuple[str, str], Identity]()
        for path in self._issued():
            identity = tls.identity_of(path)
            if tls.serial_of(path) not in revoked and identity.role in (AGENT, CLIENT):
                found[identity.role, identity.name] = identity
        return [found[who] for who in sorted(found)]

    def revoke(self, role: str, name: str) -> int:
        """Put every certificate of somebody that is still valid on the list of revoked ones. Return how many.

        Raises SpecError where there is none, such as for a mistyped name.
        """
        with self._alone():
            serials = self.holding(role, name)
            if not serials:
                known = ", ".join(f"{each.role} {each.name}" for each in self.issued()) or "nobody"
                raise SpecError(f"no certificate of the {role} {name!r} is there to revoke (there are: {known})")
            self._list(serials)
        return len(serials)

    def holding(self, role: str, name: str) -> frozenset[int]:
        """Return the serial numbers of somebody's certificates that are valid now."""
        held = {tls.serial_of(path) for path in self._issued_to(role, name) if tls.identity_of(path).days_left > 0}
        return frozenset(held - tls.revoked_serials(self.ca))

    def _list(self, serials: frozenset[int]) -> None:
        from cryptography import x509

        file = tls.revoked_file(self.ca)
        former = tls.revocations(self.ca, file.read_bytes()) if file.exists() else None
        ca = x509.load_pem_x509_certificate(self.ca.read_bytes())
        write_private(file, certificates.revocations(ca, self._key(), former, serials, CA_DAYS))

    def renew_ca(self) -> list[Identity]:
        """Replace this CA by a new one. Return whom that cuts off: everyone who was enrolled."""
        cut_off = self.issued()
        kept = self.folder / _RETIRED / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        with self._alone(), tls.clearly(self.folder):
            fresh = self.folder / f".new-{secrets.token_hex(4)}"
            _generation(fresh)
            kept.mkdir(parents=True, mode=0o700)
            for name in ("ca.pem", "issued", tls.revoked_file(self.ca).name):
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / name).rename(kept / name)
            # The old key is not kept: it must not sign again.
            (fresh / CA_KEY).replace(self._ca_key)
            (fresh / "ca.pem").replace(self.ca)
            shutil.rmtree(fresh)
            self._list(frozenset())
        return cut_off

    def bundle(self, role: str, name: str, address: str) -> bytes:
        """Make a certificate for the hub, an agent or a user, as a tar to unpack in their ``~/.config/ngraph``.

        That of a CA which replaced another has a list of revoked certificates in any case: beside this CA's certificate
        the other's list, which may lie where it is unpacked, would keep everybody out.
        """
        certificate, key = self.issue(role, name)
        folder, files = tls.places(role, name)
        data = {"ca.pem": self.ca.read_bytes(), files[0]: certificate, files[1]: key}
        if role == AGENT:
            data["address"] = f"{address}\n".encode()
        revoked = tls.revoked_file(self.ca)
        had_lists = any((self.folder / _RETIRED).glob(f"*/{revoked.name}"))
        if not revoked.is_file() and had_lists:
            # Replaced by a release that began no list.
            with self._alone():
                self._list(frozenset())
        if revoked.is_file():
            data[revoked.name] = revoked.read_bytes()
        return bundles.packed(folder, {**data, **self._signer_of_bundles()})

    def renewal_bundle(self, role: str, name: str) -> bytes:
        """Renew somebody's latest certificate, as a tar to unpack over the one that it replaces. No key is in it."""
        folder, files = tls.places(role, name)
        return bundles.packed(folder, {files[0]: self.renewed(role, name), **self._signer_of_bundles()})

    def keep_signer(self, address: str) -> None:
        """Make bundles say from now on where the lab's signer is."""
        write_private(tls.signer_file(self.ca), f"{address}\n".encode())

    def _signer_of_bundles(self) -> dict[str, bytes]:
        """Return the file that says where the signer is, if there is one, for the machine that unpacks a bundle."""
        file = tls.signer_file(self.ca)
        return {file.name: file.read_bytes()} if file.is_file() else {}


# Making them


def _generation(folder: Path) -> None:
    """Make a folder with a new CA. It appears whole, or not at all."""
    key = certificates.new_key()
    fresh = folder.with_name(f".{folder.name.lstrip('.')}-{secrets.token_hex(4)}")
    fresh.mkdir(mode=0o700)
    try:
        write_private(fresh / CA_KEY, certificates.pem(key))
        write_private(fresh / "ca.pem", certificates.for_ca(key, CA_DAYS))
        if folder.is_dir():
            for file in (CA_KEY, "ca.pem"):
                (fresh / file).replace(folder / file)
            folder.chmod(0o700)
        else:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


# Keeping them


def _record(folder: Path, role: str, name: str, certificate: bytes) -> None:
    with tls.clearly(folder):
        (folder / "issued").mkdir(mode=0o700, exist_ok=True)
        write_private(folder / "issued" / f"{role}-{name}-{secrets.token_hex(6)}.pem", certificate)
