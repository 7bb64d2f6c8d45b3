"""The lab's CA: what it signs - certificates, their renewals, and the list of revoked ones - and keeps a record of.

It lies in a folder of its own that neither hub nor agents can read, and its key never leaves that folder.
"""

from __future__ import annotations

import contextlib
import io
import secrets
import shutil
import tarfile
import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.devices import tls
from pytest_ngraph.devices.tls import AGENT, CA_KEY, CLIENT, DAYS, HUB, Identity, host_of, write_private
from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

CA_DAYS = 5 * 365
_DOMAIN = "ngraph.internal"
_ORGANIZATION = "pytest-ngraph"
# Boards without a battery start with clocks that are somewhat late.
_EARLIER = timedelta(hours=1)
_LONGEST_NAME = 63


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
        from cryptography.hazmat.primitives.asymmetric import ec

        if len(name) > _LONGEST_NAME:
            raise SpecError(f"the name {name!r} is too long (at most {_LONGEST_NAME} characters)")
        key = ec.generate_private_key(ec.SECP256R1())
        return self._certify(role, name, key.public_key()), _pem(key)

    def renew(self, certificate: bytes) -> bytes:
        """Return another certificate of the same role, name and key, for as long as a new one holds.

        Whoever has not the key has no use for it. Raises SpecError for one that this CA did not make, that has expired
        or that is revoked.
        """
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            old = x509.load_pem_x509_certificate(certificate)
            old.verify_directly_issued_by(x509.load_pem_x509_certificate(self.ca.read_bytes()))
            identity, key = tls.identity(old), old.public_key()
        except (ValueError, TypeError, IndexError, InvalidSignature):
            raise SpecError("what is to be renewed is no certificate of this CA") from None
        who = f"the certificate of the {identity.role} {identity.name!r}"
        if old.serial_number in tls.revoked_serials(self.ca):
            raise SpecError(f"{who} is revoked; for one with a new key: ngraph enroll {identity.words}")
        if identity.days_left < 0:
            raise SpecError(f"{who} {identity.ending()}; for one with a new key: ngraph enroll {identity.words}")
        if not isinstance(key, ec.EllipticCurvePublicKey) or identity.role not in (HUB, AGENT, CLIENT):
            raise SpecError(f"{who} is not one that 'ngraph enroll' made")
        return self._certify(identity.role, identity.name, key)

    def renewed(self, role: str, name: str) -> bytes:
        """Return the latest certificate of somebody, renewed. Raises SpecError where there is none that holds."""
        for path in reversed(self._issued()):
            identity = tls.identity_of(path)
            if (identity.role, identity.name) == (role, name):
                return self.renew(path.read_bytes())
        raise SpecError(f"nothing was issued to the {role} {name!r}; first: ngraph enroll {tls.words_of(role, name)}")

    def _certify(self, role: str, name: str, public_key: EllipticCurvePublicKey) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        ca = x509.load_pem_x509_certificate(self.ca.read_bytes())
        ca_key = serialization.load_pem_private_key(self._ca_key.read_bytes(), None)
        if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
            raise SpecError(f"{self._ca_key}: is not a key that 'ngraph enroll' made")
        if ca.not_valid_after_utc < datetime.now(timezone.utc) + timedelta(days=DAYS):
            raise SpecError(
                f"the lab's CA ends on {ca.not_valid_after_utc:%Y-%m-%d}, before a certificate made now; run "
                "'ngraph enroll --renew-ca' and enroll everyone anew"
            )
        # A user's certificate serves nobody: with it, nobody can pose as the hub or as an agent.
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH] + [ExtendedKeyUsageOID.SERVER_AUTH] * (role != CLIENT)
        certificate = (
            _builder(_subject(role, name), ca.subject, public_key, DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host_of(role))]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )
        signed = _signed(certificate, ca_key)
        _record(self.folder, role, name, signed)
        return signed

    def _issued(self) -> list[Path]:
        """Return the certificates of this generation of the CA that hold or held, oldest first."""
        return sorted((self.folder / "issued").glob("*.pem"), key=lambda path: (path.stat().st_mtime_ns, path.name))

    def issued(self) -> list[Identity]:
        """Return what was issued by this generation of the CA, the latest of each role and name, hubs left out.

        Those whose certificates are all revoked are not among them.
        """
        revoked, found = tls.revoked_serials(self.ca), dict[tuple[str, str], Identity]()
        for path in self._issued():
            identity = tls.identity_of(path)
            if tls.serial_of(path) not in revoked and identity.role != HUB:
                found[identity.role, identity.name] = identity
        return [found[who] for who in sorted(found)]

    def revoke(self, role: str, name: str) -> int:
        """Put every certificate of somebody that still holds on the list of revoked ones; return how many.

        Raises SpecError where there is none, such as for a mistyped name.
        """
        serials = {
            tls.serial_of(path)
            for path in self._issued()
            for identity in (tls.identity_of(path),)
            if (identity.role, identity.name) == (role, name) and identity.days_left > 0
        } - tls.revoked_serials(self.ca)
        if not serials:
            known = ", ".join(f"{each.role} {each.name}" for each in self.issued()) or "nobody"
            raise SpecError(f"no certificate of the {role} {name!r} is there to revoke (there are: {known})")
        self._list(serials)
        return len(serials)

    def _list(self, serials: set[int]) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        file, now = tls.revoked_file(self.ca), datetime.now(timezone.utc)
        former = tls.revocations(self.ca, file.read_bytes()) if file.exists() else None
        number = 0 if former is None else tls.number_of(former)
        ca_key = serialization.load_pem_private_key(self._ca_key.read_bytes(), None)
        if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
            raise SpecError(f"{self._ca_key}: is not a key that 'ngraph enroll' made")
        ca = x509.load_pem_x509_certificate(self.ca.read_bytes())
        built = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(ca.subject)
            .last_update(now - _EARLIER)
            # It holds until there is a newer one.
            .next_update(now + timedelta(days=CA_DAYS))
            .add_extension(x509.CRLNumber(number + 1), critical=False)
        )
        for each in former or ():
            built = built.add_revoked_certificate(each)
        for serial in sorted(serials):
            one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            built = built.add_revoked_certificate(one.build())
        from cryptography.hazmat.primitives import hashes

        write_private(file, built.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def renew_ca(self) -> list[Identity]:
        """Put a new CA in place of this one; return whom it cuts off: everyone who was enrolled."""
        cut_off = self.issued()
        kept = self.folder / "retired" / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        with tls.clearly(self.folder):
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
        return cut_off

    def bundle(self, role: str, name: str, address: str) -> bytes:
        """Make a certificate for the hub, an agent or a user, as a tar to unpack in their ``~/.config/ngraph``."""
        certificate, key = self.issue(role, name)
        folder, files = tls.places(role, name)
        data = {"ca.pem": self.ca.read_bytes(), files[0]: certificate, files[1]: key}
        if role == AGENT:
            data["address"] = f"{address}\n".encode()
        if tls.revoked_file(self.ca).is_file():
            data[tls.revoked_file(self.ca).name] = tls.revoked_file(self.ca).read_bytes()
        return _tar(folder, data)

    def renewal_bundle(self, role: str, name: str) -> bytes:
        """Renew somebody's latest certificate, as a tar to unpack over the one that it replaces; no key is in it."""
        folder, files = tls.places(role, name)
        return _tar(folder, {files[0]: self.renewed(role, name)})


# Making them


def _generation(folder: Path) -> None:
    """Make a folder with a new CA; it appears whole, or not at all."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{_ORGANIZATION} lab CA {secrets.token_hex(4)}")])
    certificate = (
        _builder(name, name, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        # Whoever puts this CA into a browser by mistake trusts it for nothing.
        .add_extension(x509.NameConstraints([x509.DNSName(_DOMAIN)], None), critical=True)
    )
    fresh = folder.with_name(f".{folder.name.lstrip('.')}-{secrets.token_hex(4)}")
    fresh.mkdir(mode=0o700)
    try:
        tls.write(fresh / CA_KEY, _pem(key))
        tls.write(fresh / "ca.pem", _signed(certificate, key))
        if folder.is_dir():
            for file in (CA_KEY, "ca.pem"):
                (fresh / file).replace(folder / file)
            folder.chmod(0o700)
        else:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _subject(role: str, name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


# Keeping them


def _record(folder: Path, role: str, name: str, certificate: bytes) -> None:
    with tls.clearly(folder):
        (folder / "issued").mkdir(mode=0o700, exist_ok=True)
        tls.write(folder / "issued" / f"{role}-{name}-{secrets.token_hex(6)}.pem", certificate)


def _tar(folder: str, files: Mapping[str, bytes]) -> bytes:
    """Pack files of one folder, all of them readable by their owner only."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        parts = folder.split("/")
        for depth in range(1, len(parts) + 1):
            entry = tarfile.TarInfo("/".join(parts[:depth]))
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o700, int(time.time())
            tar.addfile(entry)
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
