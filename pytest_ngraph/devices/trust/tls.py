"""The lab's certificates: a CA used for nothing else, and one certificate for the hub, each agent and each user.

EC P-256. Role and name stand in a certificate's subject, its role also as a host name that the other side insists on:
machines may move and change their names. What a certificate is worth is said in docs/security.md.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.errors import DeviceUnusable, SpecError
from pytest_ngraph.machine import files

if TYPE_CHECKING:
    from cryptography import x509

HUB, AGENT, CLIENT, SIGNER = "hub", "agent", "client", "signer"
CA_KEY = "ca-key.pem"
DAYS, WARN_DAYS = 90, 30
_DOMAIN = "ngraph.internal"


def host_of(role: str) -> str:
    """Return the host name in every certificate of a role."""
    return f"{role}.{_DOMAIN}"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose certificate it is, and until when it holds."""

    role: str
    name: str
    expires: datetime

    @property
    def days_left(self) -> float:
        """Return for how many days the certificate still holds, negative where it has expired."""
        return (self.expires - datetime.now(timezone.utc)).total_seconds() / 86400

    @property
    def renewal(self) -> str:
        """Return the command that renews the certificate."""
        return f"ngraph enroll {'--renew ' * (self.days_left > 0)}{self.words}"

    @property
    def words(self) -> str:
        """Return the arguments of ``ngraph enroll`` that it was made by."""
        return words_of(self.role, self.name)

    def ending(self) -> str:
        """Return when it expires or expired, as words."""
        return f"{'expired' if self.days_left < 0 else 'expires'} on {self.expires:%Y-%m-%d}"

    def warning(self) -> str | None:
        """Return what to do about a certificate that expires within 30 days, or None."""
        if self.days_left > WARN_DAYS:
            return None
        who = f"the certificate of the {self.role} {self.name!r}"
        return f"{who} {self.ending()}: run '{self.renewal}' on the CA's machine"


def words_of(role: str, name: str) -> str:
    """Return the arguments of ``ngraph enroll`` for somebody."""
    return "--hub" if role == HUB else f"{name}{' --client' * (role == CLIENT)}"


def identity_of(certificate: Path) -> Identity:
    """Read a certificate file. Raises DeviceUnusable for one that is not there or not one of a lab."""
    from cryptography import x509

    try:
        return identity(x509.load_pem_x509_certificate(certificate.read_bytes()))
    except OSError as error:
        raise DeviceUnusable(f"{certificate}: cannot be read: {error.strerror}") from None
    except (ValueError, IndexError):
        raise DeviceUnusable(f"{certificate}: is not a certificate that 'ngraph enroll' made") from None


def identity(certificate: x509.Certificate) -> Identity:
    """Return whose certificate it is. Raises IndexError for one that is not a lab's."""
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


class HubFolder:
    """What a hub has of the lab's certificates: the CA's, its own, and the list of revoked ones. Never the CA's key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.certificate, self.key = folder / "ca.pem", folder / "hub.pem", folder / "hub-key.pem"

    @classmethod
    def of(cls, folder: Path) -> HubFolder:
        """Return a hub's folder. Raises SpecError where something is missing, or is what a hub must not have."""
        found = cls(folder)
        if (folder / CA_KEY).exists():
            raise SpecError(
                f"{folder / CA_KEY}: the lab's CA must not lie where the hub can read it; move it to another user or "
                f"machine, to ~/.config/ngraph/ca there: {CA_KEY}, issued/ and a copy of ca.pem"
            )
        for path in (found.ca, found.certificate, found.key):
            if not path.is_file():
                raise SpecError(
                    f"no file {path}; on the CA's machine, as a user of its own, run 'ngraph enroll --hub --address "
                    "tls://HOST:PORT' and unpack what it writes here, as it says"
                )
        check_private(found.key)
        mine = identity_of(found.certificate)
        if mine.role != HUB:
            raise SpecError(f"{found.certificate}: is the certificate of the {mine.role} {mine.name!r}, not of a hub")
        if mine.days_left < 0:
            raise SpecError(f"{found.certificate}: {mine.warning()}")
        check_pair(found.certificate, found.key)
        return found


def places(role: str, name: str) -> tuple[str, tuple[str, str]]:
    """Return the folder of somebody's files below ``~/.config/ngraph``, and the names of certificate and key."""
    if role == HUB:
        return "hub", ("hub.pem", "hub-key.pem")
    if role == AGENT:
        return agent_folder(Path(), name).as_posix(), ("certificate.pem", "key.pem")
    return "tls", ("client.pem", "client-key.pem")


# The list of revoked certificates


def revoked_file(ca: Path) -> Path:
    """Return the path of the list of revoked certificates: beside the CA's certificate, on every side."""
    return ca.with_name("revoked.pem")


def signer_file(ca: Path) -> Path:
    """Return the path of the file with the signer's address, if there is a signer: beside the CA's certificate."""
    return ca.with_name("signer")


def revoked_serials(ca: Path) -> frozenset[int]:
    """Return the serial numbers on the list. None where there is no list.

    Raises DeviceUnusable for a list that is damaged or that this CA has not signed.
    """
    file = revoked_file(ca)
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise DeviceUnusable(f"{file}: cannot be read: {error.strerror}") from None
    return frozenset(one.serial_number for one in revocations(ca, data))


def adopt_revoked(ca: Path, data: bytes) -> bool:
    """Take over a list that somebody sent, if the CA signed it and it is newer than the one here. Return whether.

    One here that the CA has not signed, such as that of a CA of before, is no list. Raises SpecError where it cannot be
    written.
    """
    file = revoked_file(ca)
    try:
        new = revocations(ca, data)
    except DeviceUnusable:
        return False
    with contextlib.suppress(DeviceUnusable, FileNotFoundError):
        if number_of(revocations(ca, file.read_bytes())) >= number_of(new):
            return False
    write_private(file, data)
    return True


def revocations(ca: Path, data: bytes) -> x509.CertificateRevocationList:
    """Read a list of revoked certificates. Raises DeviceUnusable for one that this CA has not signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        found = x509.load_pem_x509_crl(data)
        key = x509.load_pem_x509_certificate(ca.read_bytes()).public_key()
        genuine = isinstance(key, ec.EllipticCurvePublicKey) and found.is_signature_valid(key)
    except (ValueError, TypeError):
        genuine = False
    if not genuine:
        raise DeviceUnusable(f"{revoked_file(ca)}: is not a list that the lab's CA has signed; get it again from there")
    return found


def number_of(revocations: x509.CertificateRevocationList) -> int:
    """Return the number of a list. Each later one has a higher number."""
    from cryptography import x509

    return revocations.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def serial_of(certificate: Path) -> int:
    """Return the serial number of a certificate file."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number


# Certificate and key, and those that take their place


def check_pair(certificate: Path, key: Path) -> None:
    """Raise DeviceUnusable where a certificate is not that of the key beside it.

    An exchange of both that was cut short is finished first.
    """
    if not _is_pair(certificate, key) and not _finished(certificate, key):
        raise DeviceUnusable(f"{certificate}: is not the certificate of the key {key}")


def next_of(path: Path) -> Path:
    """Return the path of the certificate or key that is to replace this one."""
    return path.with_name(f"{path.stem}-next{path.suffix}")


def exchange(certificate: Path, key: Path) -> None:
    """Put the next certificate and key in the place of these two. Raises SpecError.

    Where it is cut short between the two, ``check_pair`` finishes it: at every moment one of the certificates there is
    that of one of the keys.
    """
    with clearly(certificate):
        files.put(next_of(certificate), certificate)
        # Another process that looked in between has finished it.
        with contextlib.suppress(FileNotFoundError):
            files.put(next_of(key), key)


def _finished(certificate: Path, key: Path) -> bool:
    """Finish an exchange, whichever of its two steps is on disk. Return whether there was one."""
    for pair, late in (((certificate, next_of(key)), key), ((next_of(certificate), key), certificate)):
        with contextlib.suppress(DeviceUnusable, FileNotFoundError):
            if _is_pair(*pair):
                next_of(late).replace(late)
                return True
    # Another process may just have done it.
    return _is_pair(certificate, key)


def _is_pair(certificate: Path, key: Path) -> bool:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        public = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except OSError as error:
        raise DeviceUnusable(f"{error.filename}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise DeviceUnusable(f"{certificate} or {key}: is not what 'ngraph enroll' made") from None
    return public == private.public_key()


def agent_folder(config: Path, name: str) -> Path:
    """Return the folder of an agent's certificate below the user's configuration."""
    return config / "agents" / name


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read. Readers see the old or the whole new one. Raises SpecError."""
    with clearly(path):
        files.write(path, data, mode=0o600, durable=True)


@contextlib.contextmanager
def clearly(path: Path) -> Iterator[None]:
    """Raise SpecError for what cannot be written, with where and why."""
    try:
        yield
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror}") from None
