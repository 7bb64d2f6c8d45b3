"""How the lab's certificates are made: the CA's own, one for somebody's key, and the list of those revoked."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from pytest_ngraph.devices.trust.tls import CLIENT, SIGNER, host_of, number_of

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

# Boards without a battery start with clocks that are somewhat late.
EARLIER = timedelta(hours=1)
_DOMAIN = "ngraph.internal"
_ORGANIZATION = "pytest-ngraph"


def new_key() -> EllipticCurvePrivateKey:
    """Make a key: EC P-256."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def pem(key: EllipticCurvePrivateKey) -> bytes:
    """Return a key as PEM, not encrypted."""
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def for_ca(key: EllipticCurvePrivateKey, days: int) -> bytes:
    """Return the certificate of a new CA, as PEM."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{_ORGANIZATION} lab CA {secrets.token_hex(4)}")])
    certificate = (
        _begun(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        # Whoever puts this CA into a browser by mistake trusts it for nothing.
        .add_extension(x509.NameConstraints([x509.DNSName(_DOMAIN)], None), critical=True)
    )
    return _signed(certificate, key)


def for_somebody(
    role: str,
    name: str,
    key: EllipticCurvePublicKey,
    ca: x509.Certificate,
    ca_key: EllipticCurvePrivateKey,
    days: int,
) -> bytes:
    """Return the certificate of one role and name for a key, by a CA, as PEM."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    # A user's certificate serves nobody: with it, nobody can pose as the hub or as an agent. The signer's asks nobody.
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH] * (role != SIGNER) + [ExtendedKeyUsageOID.SERVER_AUTH] * (role != CLIENT)
    certificate = (
        _begun(subject, ca.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host_of(role))]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    return _signed(certificate, ca_key)


def revocations(
    ca: x509.Certificate,
    ca_key: EllipticCurvePrivateKey,
    former: x509.CertificateRevocationList | None,
    serials: Iterable[int],
    days: int,
) -> bytes:
    """Return a list of revoked certificates, those of the former one and further ones, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    now = datetime.now(timezone.utc)
    built = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.subject)
        .last_update(now - EARLIER)
        # It holds until there is a newer one.
        .next_update(now + timedelta(days=days))
        .add_extension(x509.CRLNumber(1 + (0 if former is None else number_of(former))), critical=False)
    )
    for each in former or ():
        built = built.add_revoked_certificate(each)
    for serial in sorted(serials):
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        built = built.add_revoked_certificate(one.build())
    return built.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _begun(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
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
