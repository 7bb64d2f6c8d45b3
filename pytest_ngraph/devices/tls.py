"""The lab's certificates: a CA used for nothing else, and one certificate for the hub, each agent and each user.

EC P-256. Role and name stand in a certificate's subject, its role also as a host name that the other side insists on:
machines may move and change their names. What a certificate is worth is said in docs/security.md.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shutil
import stat
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.errors import DeviceUnusable, SpecError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

HUB, AGENT, CLIENT = "hub", "agent", "client"
CA_DAYS, DAYS, WARN_DAYS = 5 * 365, 365, 30
_DOMAIN = "ngraph.internal"
_ORGANIZATION = "pytest-ngraph"
# Boards without a battery start with clocks that are somewhat late.
_EARLIER = timedelta(hours=1)
_LONGEST_NAME = 63


def host_of(role: str) -> str:
    """Return the host name that stands in every certificate of a role."""
    return f"{role}.{_DOMAIN}"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose certificate it is, and until when it holds."""

    role: str
    name: str
    expires: datetime

    @property
    def days_left(self) -> float:
        """Return for how many days the certificate still holds; negative where it has expired."""
        return (self.expires - datetime.now(timezone.utc)).total_seconds() / 86400

    @property
    def renewal(self) -> str:
        """Return the command that renews the certificate."""
        return "ngraph hub" if self.role == HUB else f"ngraph enroll {self.name}{' --client' * (self.role == CLIENT)}"

    def warning(self) -> str | None:
        """Return what to do about a certificate that expires within 30 days, or None."""
        if self.days_left > WARN_DAYS:
            return None
        when = f"{self.expires:%Y-%m-%d}"
        ends = f"expired on {when}" if self.days_left < 0 else f"expires on {when}"
        return f"the certificate of the {self.role} {self.name!r} {ends}: run '{self.renewal}' on the hub's machine"


def identity_of(certificate: Path) -> Identity:
    """Read a certificate file. Raises DeviceUnusable for one that is not there or not one of a lab."""
    from cryptography import x509

    try:
        return _identity(x509.load_pem_x509_certificate(certificate.read_bytes()))
    except OSError as error:
        raise DeviceUnusable(f"{certificate}: cannot be read: {error.strerror}") from None
    except (ValueError, IndexError):
        raise DeviceUnusable(f"{certificate}: is not a certificate that 'ngraph enroll' made") from None


def _identity(certificate: x509.Certificate) -> Identity:
    from cryptography.x509.oid import NameOID

    def part(oid: x509.ObjectIdentifier) -> str:
        return str(certificate.subject.get_attributes_for_oid(oid)[0].value)

    return Identity(part(NameOID.ORGANIZATIONAL_UNIT_NAME), part(NameOID.COMMON_NAME), certificate.not_valid_after_utc)


def check_private(path: Path) -> None:
    """Raise DeviceUnusable where a key is not there, or others can read it."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise DeviceUnusable(f"{path}: cannot be read: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DeviceUnusable(f"{path}: others on this machine can read this key; run: chmod 600 {path}")


class Authority:
    """The CA of a lab, in the hub's folder: its key signs, and never leaves this folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self._ca_key = folder / "ca.pem", folder / "ca-key.pem"
        self.certificate, self.key = folder / "hub.pem", folder / "hub-key.pem"

    @classmethod
    def of(cls, folder: Path) -> Authority:
        """Return the CA in a folder. Raises SpecError where there is none, or others can get at its key."""
        authority = cls(folder)
        if not authority.ca.is_file():
            raise SpecError(f"no CA in {folder}; run 'ngraph hub' first, on the machine of the hub (or give --folder)")
        check_private(authority._ca_key)
        return authority

    @classmethod
    def made(cls, folder: Path) -> Authority:
        """Return the CA in a folder, made there where there is none."""
        if not (folder / "ca.pem").is_file():
            with _clear(folder):
                folder.parent.mkdir(parents=True, exist_ok=True)
                _generation(folder)
        return cls.of(folder)

    def renew_hub(self) -> None:
        """Give the hub a new certificate where it has none, or its own ends within 30 days."""
        if not self.certificate.is_file() or identity_of(self.certificate).days_left < WARN_DAYS:
            certificate, key = self.issue(HUB, "hub")
            with _clear(self.folder):
                _write(self.key, key)
                _write(self.certificate, certificate)

    def issue(self, role: str, name: str) -> tuple[bytes, bytes]:
        """Make a certificate and its key, both as PEM. Raises SpecError for a CA that ends before the certificate."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        if len(name) > _LONGEST_NAME:
            raise SpecError(f"the name {name!r} is too long (at most {_LONGEST_NAME} characters)")
        ca = x509.load_pem_x509_certificate(self.ca.read_bytes())
        ca_key = serialization.load_pem_private_key(self._ca_key.read_bytes(), None)
        if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
            raise SpecError(f"{self._ca_key}: is not a key that 'ngraph hub' made")
        if ca.not_valid_after_utc < datetime.now(timezone.utc) + timedelta(days=DAYS):
            raise SpecError(
                f"the lab's CA ends on {ca.not_valid_after_utc:%Y-%m-%d}, before a certificate made now; run "
                "'ngraph enroll --renew-ca' and enroll everyone anew"
            )
        # A user's certificate serves nobody: with it, nobody can pose as the hub or as an agent.
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH] + [ExtendedKeyUsageOID.SERVER_AUTH] * (role != CLIENT)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_subject(role, name), ca.subject, key, DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host_of(role))]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )
        signed = _signed(certificate, ca_key)
        _record(self.folder, role, name, signed)
        return signed, _pem(key)

    def issued(self) -> list[Identity]:
        """Return what was issued by this generation of the CA, the latest of each role and name, hubs left out."""
        found = [identity_of(path) for path in sorted((self.folder / "issued").glob("*.pem"))]
        return [identity for identity in found if identity.role != HUB]

    def renew_ca(self) -> list[Identity]:
        """Put a new CA in place of this one; return whom it cuts off: everyone who was enrolled.

        This is how a certificate is revoked: no list of revoked ones is ever asked for.
        """
        cut_off = self.issued()
        kept = self.folder / "retired" / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        with _clear(self.folder):
            fresh = self.folder / f".new-{secrets.token_hex(4)}"
            _generation(fresh)
            kept.mkdir(parents=True, mode=0o700)
            for name in ("ca.pem", "hub.pem", "hub-key.pem", "issued"):
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / name).rename(kept / name)
            # The old key is not kept: it must not sign again.
            (fresh / "ca-key.pem").replace(self._ca_key)
            (fresh / "ca.pem").replace(self.ca)
            shutil.rmtree(fresh)
        self.renew_hub()
        return cut_off

    def bundle(self, role: str, name: str, address: str) -> bytes:
        """Make a certificate for an agent or a user, as a tar to unpack in their ``~/.config/ngraph``."""
        certificate, key = self.issue(role, name)
        if role == AGENT:
            folder = agent_folder(Path(), name).as_posix()
            files = {"certificate.pem": certificate, "key.pem": key, "address": f"{address}\n".encode()}
        else:
            folder = "tls"
            files = {"client.pem": certificate, "client-key.pem": key}
        return _tar(folder, {"ca.pem": self.ca.read_bytes(), **files})


def agent_folder(config: Path, name: str) -> Path:
    """Return where an agent's certificate lies below the user's configuration."""
    return config / "agents" / name


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read; readers see the old or the whole new one. Raises SpecError."""
    with _clear(path):
        _write(path, data)


# Making them


def _generation(folder: Path) -> None:
    """Make a folder with a new CA; it appears whole, or not at all."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{_ORGANIZATION} lab CA {secrets.token_hex(4)}")])
    certificate = (
        _builder(name, name, key, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        # Whoever puts this CA into a browser by mistake trusts it for nothing.
        .add_extension(x509.NameConstraints([x509.DNSName(_DOMAIN)], None), critical=True)
    )
    fresh = folder.with_name(f".{folder.name.lstrip('.')}-{secrets.token_hex(4)}")
    fresh.mkdir(mode=0o700)
    try:
        _write(fresh / "ca-key.pem", _pem(key))
        _write(fresh / "ca.pem", _signed(certificate, key))
        if folder.is_dir():
            for file in ("ca-key.pem", "ca.pem"):
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


def _builder(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
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
    with _clear(folder):
        (folder / "issued").mkdir(mode=0o700, exist_ok=True)
        _write(folder / "issued" / f"{role}-{name}.pem", certificate)


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _clear(path: Path) -> Iterator[None]:
    """Say of what cannot be written where, and why."""
    try:
        yield
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror}") from None


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
