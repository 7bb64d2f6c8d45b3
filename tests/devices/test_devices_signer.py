"""The signer: it renews what holds, for the same name and a new key, and nothing else can be had from it."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.devices.doors import doors, engine
from pytest_ngraph.devices.registry import HubEntry
from pytest_ngraph.devices.signing import renewing
from pytest_ngraph.devices.trust import authority as authority_module
from pytest_ngraph.devices.trust import certificates, tls
from pytest_ngraph.devices.trust.authority import Authority
from pytest_ngraph.errors import DeviceOffline, DeviceUnusable, SpecError
from tests.conftest import skip_without
from tests.support.lab import Process, eventually
from tests.support.signing import at, enrolled, holding, line, request_of, signing

# As TLS says it, before or after this side's part of the handshake is over.
NOT_TAKEN = r"does not accept the certificate|drops them"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    skip_without("distributed", "cryptography")
    return Authority.made(tmp_path / "ca")


def asked(entry: HubEntry, address: str, request: bytes) -> dict[str, Any]:
    """Return what a signer answers to a request."""
    return renewing.ask(at(entry, address), {"csr": request.decode("latin-1")})


def records(authority: Authority) -> int:
    """Return how many certificates the CA made."""
    return len(list((authority.folder / "issued").glob("*.pem")))


@contextlib.contextmanager
def connected(entry: HubEntry, address: str) -> Any:
    """Connect with a certificate, and wait until it is taken."""
    with engine.reach(at(entry, address), "the signer", tls.SIGNER, 10) as stream:
        assert json.loads(stream.recv(4096)) == {"welcome": True}
        yield stream


@pytest.mark.parametrize("role", [tls.HUB, tls.AGENT, tls.CLIENT])
def test_who_shows_a_certificate_gets_its_like_for_a_new_key(authority: Authority, tmp_path: Path, role: str) -> None:
    from cryptography import x509

    entry, key = enrolled(authority, role, "one", tmp_path / "one"), certificates.new_key()

    with signing(authority) as signer:
        answer = asked(entry, signer.address, request_of(entry, key))
        assert signer.said == [
            f"renewed the {role} 'one' until {expiry(answer):%Y-%m-%d}; 2 certificates of that name hold now"
        ]

    new = x509.load_pem_x509_certificate(answer["certificate"].encode())
    fresh = x509.load_pem_x509_certificate(authority.issue(role, "one")[0])
    assert new.public_key() == key.public_key()
    assert (new.subject, new.issuer) == (fresh.subject, fresh.issuer)
    assert new.not_valid_after_utc - new.not_valid_before_utc == fresh.not_valid_after_utc - fresh.not_valid_before_utc
    # Of all that it may be used for, only what depends on the key is another.
    own = x509.SubjectKeyIdentifier.oid
    assert [each for each in new.extensions if each.oid != own] == [
        each for each in fresh.extensions if each.oid != own
    ]


def expiry(answer: dict[str, Any]) -> Any:
    from cryptography import x509

    return x509.load_pem_x509_certificate(answer["certificate"].encode()).not_valid_after_utc


def wrongly(kind: str, entry: HubEntry) -> bytes:
    """Return a request that asks for what nobody may have."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.x509.oid import AttributeOID, NameOID

    subject = x509.load_pem_x509_certificate(entry.certificate.read_bytes()).subject
    parts = {each.oid: each.value for each in subject}
    key: Any = certificates.new_key()
    builder = x509.CertificateSigningRequestBuilder()
    if kind == "another name":
        parts[NameOID.COMMON_NAME] = "two"
    elif kind == "another role":
        parts[NameOID.ORGANIZATIONAL_UNIT_NAME] = tls.HUB
    elif kind == "a longer name":
        parts[NameOID.LOCALITY_NAME] = "here"
    elif kind == "no name":
        parts = {}
    elif kind == "another host":
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(tls.host_of(tls.HUB))]), False)
    elif kind == "a CA":
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    elif kind == "an attribute":
        builder = builder.add_attribute(AttributeOID.CHALLENGE_PASSWORD, b"please")
    elif kind == "RSA":
        key = rsa.generate_private_key(65537, 2048)
    elif kind == "another curve":
        key = ec.generate_private_key(ec.SECP384R1())
    elif kind == "the old key":
        key = serialization.load_pem_private_key(entry.key.read_bytes(), None)
    made = builder.subject_name(x509.Name([x509.NameAttribute(*each) for each in parts.items()]))
    signed = made.sign(key, hashes.SHA256())
    if kind == "not signed":
        data = bytearray(signed.public_bytes(serialization.Encoding.DER))
        data[-1] ^= 1
        return x509.load_der_x509_csr(bytes(data)).public_bytes(serialization.Encoding.PEM)
    return signed.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        ("another name", "only one's own name is renewed"),
        ("another role", "only one's own name is renewed"),
        ("a longer name", "only one's own name is renewed"),
        ("no name", "only one's own name is renewed"),
        ("another host", "asks for more than a certificate for a key"),
        ("a CA", "asks for more than a certificate for a key"),
        ("an attribute", "asks for more than a certificate for a key"),
        ("RSA", "another kind than EC P-256"),
        ("another curve", "another kind than EC P-256"),
        ("the old key", "a renewal is for a new key, not for the one that is to be replaced"),
        ("not signed", "is not signed with its key"),
    ],
)
def test_nothing_else_can_be_had(authority: Authority, tmp_path: Path, kind: str, refusal: str) -> None:
    entry = enrolled(authority, tls.AGENT, "one", tmp_path / "one")
    with signing(authority) as signer:
        before = records(authority)
        answer = asked(entry, signer.address, wrongly(kind, entry))
        assert set(answer) == {"refused"}
        assert refusal in answer["refused"]
        assert records(authority) == before
        # And what is right is had afterwards.
        assert "certificate" in asked(entry, signer.address, request_of(entry))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1",
        b"[]",
        b"{}",
        b"null",
        b'{"csr": null}',
        b'{"csr": "\\u00e4"}',
        b'{"csr": ["a"]}',
        b'{"csr": "-----BEGIN CERTIFICATE REQUEST-----\\nAAAA\\n-----END CERTIFICATE REQUEST-----"}',
        b"[" * 8000,
        b"\xff\x00\xfe",
    ],
    ids=lambda said: said[:24].decode("latin-1"),
)
def test_garbage_is_refused(authority: Authority, tmp_path: Path, said: bytes) -> None:
    entry = enrolled(authority, tls.AGENT, "one", tmp_path / "one")
    with signing(authority) as signer:
        before = records(authority)
        with connected(entry, signer.address) as stream:
            stream.sendall(said + b"\n")
            answer = json.loads(stream.recv(4096))
        assert set(answer) == {"refused"}
        assert records(authority) == before
        assert "certificate" in asked(entry, signer.address, request_of(entry))


def test_what_is_too_long_or_never_ends_is_cut_off(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "HANDSHAKE_SECONDS", 5.0)
    entry = enrolled(authority, tls.AGENT, "one", tmp_path / "one")
    with signing(authority) as signer:
        # Whether it ends or not.
        for said in (b"x" * (1 << 20), b"x" * 12_000 + b"\n"):
            with connected(entry, signer.address) as stream, contextlib.suppress(OSError):
                stream.sendall(said)
                assert stream.recv(1) == b""
        for parts in ((), (b'{"csr"',) * 60):
            with connected(entry, signer.address) as stream, contextlib.suppress(OSError):
                began = time.monotonic()
                for part in parts:
                    stream.sendall(part)
                    time.sleep(0.1)
                assert stream.recv(1) == b""
            assert time.monotonic() - began < 60
        # Nor is a handshake waited for.
        silent = socket.create_connection(engine.parts_of(signer.address), timeout=60)
        with silent, contextlib.suppress(ConnectionError):
            assert silent.recv(1) == b""
        monkeypatch.undo()
        assert "certificate" in asked(entry, signer.address, request_of(entry))


def test_hundreds_that_say_nothing_keep_nobody_waiting(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None of them is dropped for its silence meanwhile.
    monkeypatch.setattr(doors, "HANDSHAKE_SECONDS", 600.0)
    entry = enrolled(authority, tls.AGENT, "one", tmp_path / "one")
    with signing(authority) as signer, contextlib.ExitStack() as stack:
        for _ in range(doors.MOST_WAITING_OF_ADDRESS + 40):
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_connection(engine.parts_of(signer.address), timeout=5))
        assert "certificate" in asked(entry, signer.address, request_of(entry))


# Who may ask


def test_a_request_that_is_sent_again_gets_what_it_got_and_a_key_of_before_gets_nothing(
    authority: Authority, tmp_path: Path
) -> None:
    entry, key = enrolled(authority, tls.AGENT, "one", tmp_path / "one"), certificates.new_key()
    with signing(authority) as signer:
        request = request_of(entry, key)
        first = asked(entry, signer.address, request)
        before = records(authority)
        # Such as after an answer that was lost.
        assert asked(entry, signer.address, request) == first
        assert records(authority) == before

        # With the new certificate its own key is no new one, nor is the first one's.
        new = HubEntry("lab", "", entry.ca, tmp_path / "new.pem", tmp_path / "new-key.pem")
        tls.write_private(new.certificate, first["certificate"].encode())
        tls.write_private(new.key, certificates.pem(key))
        from cryptography.hazmat.primitives import serialization

        oldest: Any = serialization.load_pem_private_key(entry.key.read_bytes(), None)
        for used, refusal in ((key, "not for the one that is to be replaced"), (oldest, "had a certificate before")):
            assert refusal in asked(new, signer.address, request_of(new, used))["refused"]
        assert records(authority) == before


def test_what_does_not_end_soon_is_not_renewed(authority: Authority, tmp_path: Path) -> None:
    entry = enrolled(authority, tls.CLIENT, "alice", tmp_path / "alice", days=tls.DAYS)
    with signing(authority) as signer:
        before = records(authority)
        refused = asked(entry, signer.address, request_of(entry))["refused"]
        assert "the client 'alice' holds for 90 days; it is renewed in its last 30 (is the clock right" in refused
        assert records(authority) == before


def test_a_name_gets_a_few_a_day(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority_module, "MOST_A_DAY", 3)
    one = enrolled(authority, tls.AGENT, "one", tmp_path / "one")
    # Another name, which begins as the first one's does.
    other = enrolled(authority, tls.AGENT, "one-more", tmp_path / "other")
    with signing(authority) as signer:
        answers = [asked(one, signer.address, request_of(one)) for _ in range(4)]
        assert [set(answer) for answer in answers] == [{"certificate"}] * 2 + [{"refused"}] * 2
        assert "the agent 'one' got 3 certificates within a day; try again tomorrow" in answers[-1]["refused"]
        assert "certificate" in asked(other, signer.address, request_of(other))


def test_whoever_is_revoked_gets_nothing_at_once_also_in_a_connection_that_stands(
    authority: Authority, tmp_path: Path
) -> None:
    stolen = [enrolled(authority, tls.CLIENT, "mallory", tmp_path / "0")]
    with holding(20), signing(authority) as signer:
        # It can renew itself for ever, from each to the next.
        for turn in range(1, 4):
            key, folder = certificates.new_key(), tmp_path / str(turn)
            answer = asked(stolen[-1], signer.address, request_of(stolen[-1], key))
            folder.mkdir()
            stolen.append(HubEntry("lab", "", stolen[0].ca, folder / "certificate.pem", folder / "key.pem"))
            tls.write_private(stolen[-1].certificate, answer["certificate"].encode())
            tls.write_private(stolen[-1].key, certificates.pem(key))

        with connected(stolen[-1], signer.address) as stream:
            assert authority.revoke(tls.CLIENT, "mallory") == 4
            before = records(authority)
            stream.sendall(line({"csr": request_of(stolen[-1]).decode()}))
            assert "the client 'mallory' is revoked" in json.loads(stream.recv(4096))["refused"]
        for each in stolen:
            with pytest.raises(DeviceUnusable, match="the certificate of the client 'mallory' is revoked"):
                asked(each, signer.address, request_of(each))
        assert records(authority) == before
        assert authority.holding(tls.CLIENT, "mallory") == frozenset()
        # A new one of the same name is another one.
        again = enrolled(authority, tls.CLIENT, "mallory", tmp_path / "again")
        assert "certificate" in asked(again, signer.address, request_of(again))


def test_nothing_is_signed_past_a_revocation(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = enrolled(authority, tls.AGENT, "one", tmp_path / "one")
    made, may_go_on = certificates.for_somebody, threading.Event()
    signs = threading.Event()

    def slowly(*arguments: Any) -> bytes:
        # The certificate was looked at and found good, and nothing is written down yet.
        signs.set()
        assert may_go_on.wait(60)
        return made(*arguments)

    with signing(authority) as signer:
        monkeypatch.setattr(certificates, "for_somebody", slowly)
        answers: list[Any] = []
        asks = threading.Thread(target=lambda: answers.append(asked(entry, signer.address, request_of(entry))))
        revokes = threading.Thread(target=lambda: answers.append(authority.revoke(tls.AGENT, "one")))
        asks.start()
        try:
            assert signs.wait(60)
            revokes.start()
            revokes.join(0.5)
            assert revokes.is_alive(), "it does not wait for its turn"
        finally:
            may_go_on.set()
            asks.join(60)
        revokes.join(60)

    # Both of them, also the one that was made meanwhile.
    assert 2 in answers
    assert authority.holding(tls.AGENT, "one") == frozenset()


def test_a_strangers_and_an_expired_certificate_do_not_even_ask(authority: Authority, tmp_path: Path) -> None:
    own = enrolled(authority, tls.AGENT, "one", tmp_path / "one")
    strange = enrolled(Authority.made(tmp_path / "strange"), tls.AGENT, "one", tmp_path / "stranger")
    posing = HubEntry("lab", "", own.ca, strange.certificate, strange.key)
    expired = enrolled(authority, tls.AGENT, "one", tmp_path / "expired", days=1.5 / 86400)
    time.sleep(2.5)
    with signing(authority) as signer:
        before = records(authority)
        for entry in (posing, expired):
            with pytest.raises((DeviceUnusable, DeviceOffline), match=NOT_TAKEN):
                asked(entry, signer.address, request_of(entry))
        with pytest.raises(SpecError, match="expired on"):
            authority.rekey(ssl.PEM_cert_to_DER_cert(expired.certificate.read_text()), request_of(expired))
        with pytest.raises(SpecError, match="no certificate of this CA"):
            authority.rekey(ssl.PEM_cert_to_DER_cert(strange.certificate.read_text()), request_of(strange))
        assert records(authority) == before


def test_the_signers_own_certificate_is_good_for_nothing_else(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.of_signer()
    own = HubEntry("lab", "", authority.ca, certificate, key)
    assert authority.of_signer() == (certificate, key)
    with signing(authority) as signer, pytest.raises((DeviceUnusable, DeviceOffline), match=NOT_TAKEN):
        asked(own, signer.address, request_of(own))
    with pytest.raises(SpecError, match="the signer 'signer' is not one that 'ngraph enroll' made"):
        authority.rekey(ssl.PEM_cert_to_DER_cert(certificate.read_text()), request_of(own))
    assert authority.issued() == []


def test_a_new_ca_is_taken_over_while_it_runs(authority: Authority, tmp_path: Path) -> None:
    old = enrolled(authority, tls.AGENT, "one", tmp_path / "old")
    with signing(authority) as signer:
        authority.renew_ca()
        # Even before it looks.
        with pytest.raises(SpecError, match="no certificate of this CA"):
            authority.rekey(ssl.PEM_cert_to_DER_cert(old.certificate.read_text()), request_of(old))
        with pytest.raises(DeviceUnusable, match=r"ca\.pem was replaced: the signer takes it over within seconds"):
            asked(old, signer.address, request_of(old))
        signer.look_after()
        new = enrolled(authority, tls.AGENT, "one", tmp_path / "new")
        with pytest.raises(DeviceUnusable, match="is not valid as a signer's"):
            asked(old, signer.address, request_of(old))
        assert "certificate" in asked(new, signer.address, request_of(new))


def test_a_signer_renews_its_own_certificate(authority: Authority, tmp_path: Path) -> None:
    with holding(20):
        before = authority.of_signer()[0].read_bytes()
    entry = enrolled(authority, tls.AGENT, "one", tmp_path / "one")
    with signing(authority) as signer:
        assert authority.of_signer()[0].read_bytes() != before
        assert "certificate" in asked(entry, signer.address, request_of(entry))


# Its process


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("key", ["hub/hub-key.pem", "agents/one/key.pem"])
def test_a_signer_that_could_be_a_hub_or_an_agent_serves_no_other_machine(
    authority: Authority, tmp_path: Path, host: str, key: str
) -> None:
    config = tmp_path / "config"
    place = config / "ngraph" / key
    place.parent.mkdir(parents=True)
    place.write_text("a key")
    words = ["signer", "--port=0", f"--host={host}", f"--folder={authority.folder}"]
    signer = Process(words, tmp_path / "log", {"XDG_CONFIG_HOME": str(config)}, sys.executable, "pytest_ngraph.cli")
    said = "the signer's user runs a hub or an agent, too; the CA belongs to another user, or machine"
    try:
        if host == "127.0.0.1":
            assert f"WARNING: {place}: {said}" in signer.wait_for("only this machine can reach it")
            assert tls.signer_file(authority.ca).read_text().startswith("tls://127.0.0.1:")
            assert signer.end() == 0
            assert "signer ends; until it is back, nothing renews itself" in signer.output
        else:
            assert signer.popen.wait(60) == 2
            assert f"{said}. With --host 127.0.0.1" in signer.output
            assert "Traceback" not in signer.output
    finally:
        signer.end()


def test_what_a_signer_needs_is_said(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*words: str) -> str:
        status = main(["signer", *words])
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    assert "no CA in" in run("--folder", str(tmp_path / "none"))
    here = ("--folder", str(authority.folder))
    assert "--address: 'ca.lab' is not allowed (expected tls://HOST:PORT" in run(*here, "--address", "ca.lab")
    unit = run(*here, "--install", "--host=0.0.0.0", "--address", "tls://ca.lab")
    assert "systemctl --user enable --now ngraph-signer" in unit
    assert "--address=tls://ca.lab:8787" in unit
    (authority.folder / tls.CA_KEY).chmod(0o644)
    assert "others on this machine can read this key; run: chmod 600" in run(*here)
    (authority.folder / tls.CA_KEY).chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["signer", f"--port={port}", *here]
        process = Process(
            words, tmp_path / "log", {"XDG_CONFIG_HOME": str(tmp_path)}, sys.executable, "pytest_ngraph.cli"
        )
        assert process.popen.wait(60) == 2
        assert f"cannot listen on 127.0.0.1:{port}" in process.output
        assert "(another signer? or give --port)" in process.output


def test_bundles_lead_to_the_signer_once_there_is_one(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import tarfile

    def names(packed: bytes) -> set[str]:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            return {each.name.rpartition("/")[2] for each in tar if each.isfile()}

    bundles: list[Callable[[], bytes]] = [
        lambda: authority.bundle(tls.AGENT, "one", "tls://hub.lab:8786"),
        lambda: authority.bundle(tls.CLIENT, "alice", "tls://hub.lab:8786"),
        lambda: authority.bundle(tls.HUB, "hub", "tls://hub.lab:8786"),
        # So those who were enrolled before get it with their next renewal by hand.
        lambda: authority.renewal_bundle(tls.AGENT, "one"),
    ]
    assert all("signer" not in names(bundle()) for bundle in bundles)
    authority.keep_signer("tls://ca.lab:8787")
    assert all("signer" in names(bundle()) for bundle in bundles)


def test_two_commands_of_the_ca_take_turns(authority: Authority) -> None:
    ends = [threading.Thread(target=lambda: authority.issue(tls.AGENT, "one")) for _ in range(8)]
    for each in ends:
        each.start()
    for each in ends:
        each.join(60)
    eventually("all of them", lambda: len(authority.holding(tls.AGENT, "one")) == 8)
