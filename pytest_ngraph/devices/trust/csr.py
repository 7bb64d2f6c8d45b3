"""A request for a certificate with a new key (a CSR, PKCS #10): how one side writes it, and how strictly a CA reads it.

Of what is in it only the key ever gets into a certificate. That its name is right, and that it asks for nothing else,
is checked all the same: a request for more is refused with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey


def written(subject: x509.Name, key: EllipticCurvePrivateKey) -> bytes:
    """Return a request for a certificate of this subject and key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def key_of(request: bytes, subject: x509.Name) -> EllipticCurvePublicKey:
    """Return the key that a request is for.

    Raises SpecError where it is none, names somebody else than ``subject``, asks for extensions, is for a key of
    another kind, or was not signed with that key.
    """
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        asked = x509.load_pem_x509_csr(request)
        key, named = asked.public_key(), asked.subject
        more = len(list(asked.extensions)) + len(list(asked.attributes))
        genuine = asked.is_signature_valid
    except (
        ValueError,
        TypeError,
        exceptions.UnsupportedAlgorithm,
        x509.InvalidVersion,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ):
        raise SpecError("what was asked is no certificate signing request") from None
    if named != subject:
        raise SpecError(f"the request is for {named.rfc4514_string()!r:.120}; only one's own name is renewed")
    if more:
        raise SpecError("the request asks for more than a certificate for a key")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise SpecError("the request is for a key of another kind than EC P-256")
    if not genuine:
        raise SpecError("the request is not signed with its key")
    return key
