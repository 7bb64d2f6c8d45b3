"""Certificates that renew themselves: what an agent, a hub and a user do with a signer, whatever it answers."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import ssl
import stat
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.devices.doors import engine
from pytest_ngraph.devices.lab.link import Link
from pytest_ngraph.devices.registry import HubEntry, read_registry
from pytest_ngraph.devices.signing import renewing
from pytest_ngraph.devices.signing.renewing import Renewal
from pytest_ngraph.devices.trust import certificates, csr, tls
from pytest_ngraph.devices.trust.authority import Authority
from pytest_ngraph.devices.trust.trust import Trust
from pytest_ngraph.errors import DeviceUnusable
from tests.conftest import skip_without
from tests.support.lab import Lab, eventually
from tests.support.signing import WELCOME, Signing, answering, enrolled, holding, line, signing


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    skip_without("distributed", "cryptography")
    return Authority.made(tmp_path / "ca")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewing, "RETRY_SECONDS", 0.0)


@pytest.fixture
def signer(authority: Authority) -> Iterator[Signing]:
    with signing(authority) as runs:
        yield runs


@pytest.fixture
def hub(authority: Authority, tmp_path: Path) -> Iterator[str]:
    """What takes certificates of the CA as a hub does, and says so."""
    files = enrolled(authority, tls.HUB, "hub", tmp_path / "hub", days=tls.DAYS)
    with answering(authority.ca, (files.certificate, files.key), lambda stream: stream.sendall(b"hello")) as address:
        yield address


@pytest.fixture
def entry(authority: Authority, tmp_path: Path, hub: str, signer: Signing) -> HubEntry:
    """The agent one, of which 20 days are left."""
    made = enrolled(authority, tls.AGENT, "one", tmp_path / "one")
    return replace(made, address=hub, signer=signer.address)


def files(entry: HubEntry) -> tuple[bytes, bytes]:
    return entry.certificate.read_bytes(), entry.key.read_bytes()


def look(entry: HubEntry) -> tuple[str | None, list[str]]:
    """Look at a certificate once; return the warning, and what else was said."""
    said: list[str] = []
    return Renewal(entry, said.append).look(), said


def days_left(entry: HubEntry) -> float:
    tls.check_pair(entry.certificate, entry.key)
    return tls.identity_of(entry.certificate).days_left


def test_what_ends_within_30_days_renews_itself_with_a_new_key(entry: HubEntry) -> None:
    before, tried = files(entry), set(entry.certificate.parent.iterdir())

    warning, said = look(entry)

    assert warning is None
    until = f"{tls.identity_of(entry.certificate).expires:%Y-%m-%d}"
    assert said == [f"the certificate of the agent 'one' has renewed itself: {entry.certificate} holds until {until}"]
    assert days_left(entry) > tls.DAYS - 1
    assert entry.key.read_bytes() != before[1]
    assert stat.S_IMODE(entry.key.stat().st_mode) == stat.S_IMODE(entry.certificate.stat().st_mode) == 0o600
    # Nothing is left of it, and nothing is to be done for a long time.
    assert set(entry.certificate.parent.iterdir()) == tried
    after = files(entry)
    assert look(entry) == (None, [])
    assert files(entry) == after


def test_the_hub_and_users_renew_theirs_as_well(
    authority: Authority, tmp_path: Path, hub: str, signer: Signing
) -> None:
    for role in (tls.HUB, tls.CLIENT):
        # A hub has no other hub that could say whether its certificate is taken.
        made = enrolled(authority, role, "some", tmp_path / role)
        made = replace(made, address=hub if role == tls.CLIENT else made.address, signer=signer.address)
        assert look(made)[0] is None
        assert days_left(made) > tls.DAYS - 1


def test_without_a_signer_it_is_as_before(entry: HubEntry) -> None:
    before = files(entry)
    warning, said = look(replace(entry, signer=None))
    assert warning == tls.identity_of(entry.certificate).warning()
    assert warning is not None
    assert warning.endswith("run 'ngraph enroll --renew one' on the CA's machine")
    assert (said, files(entry)) == ([], before)


def test_the_signer_is_known_by_a_file_or_by_the_registry(entry: HubEntry, tmp_path: Path) -> None:
    file = tls.signer_file(entry.ca)
    unknown = replace(entry, signer=None)
    assert renewing.signer_of(unknown) is None
    file.write_text("tls://ca.lab\n")
    assert renewing.signer_of(unknown) == "tls://ca.lab:8787"
    file.write_text("ca.lab\n")
    warning, _ = look(unknown)
    assert warning is not None
    assert f"{file}: 'ca.lab' is not allowed (expected tls://HOST:PORT, such as tls://hub.lab:8787" in warning
    (tmp_path / "ngraph.toml").write_text(
        f'[hub.lab]\naddress = "tls://hub.lab"\nca = "{entry.ca}"\nsigner = "tls://ca.lab"\n'
    )
    found = read_registry(None, tmp_path).hubs["lab"]
    assert (found.address, found.signer) == ("tls://hub.lab:8786", "tls://ca.lab:8787")


# A signer that is not as it should be


def signed(ca: Authority, role: str, name: str, key: Any, days: int = 90) -> bytes:
    """Return a certificate that this CA gives to nobody like this, and keeps no record of."""
    from cryptography import x509

    own = x509.load_pem_x509_certificate(ca.ca.read_bytes())
    return certificates.for_somebody(role, name, key, own, ca._key(), days)


def key_in(asked: bytes) -> Any:
    from cryptography import x509

    return x509.load_pem_x509_csr(json.loads(asked)["csr"].encode()).public_key()


Answer = Callable[[Authority, Any], bytes]
WRONG: dict[str, tuple[Answer, str]] = {
    "another name": (lambda ca, key: signed(ca, tls.AGENT, "two", key), "of somebody else, or of another key"),
    "another role": (lambda ca, key: signed(ca, tls.HUB, "one", key), "of somebody else, or of another key"),
    "another key": (
        lambda ca, key: signed(ca, tls.AGENT, "one", certificates.new_key().public_key()),
        "of somebody else, or of another key",
    ),
    "another CA": (
        lambda ca, key: signed(Authority.made(ca.folder.with_name("strange")), tls.AGENT, "one", key),
        "is no certificate of this lab's CA",
    ),
    "the CA itself": (lambda ca, key: ca.ca.read_bytes(), "is no certificate of this lab's CA"),
    "an expired one": (lambda ca, key: signed(ca, tls.AGENT, "one", key, days=0), "no later"),
    "one that ends sooner": (lambda ca, key: signed(ca, tls.AGENT, "one", key, days=19), "no later"),
    "no certificate": (lambda ca, key: b"nothing", "is no certificate of this lab's CA"),
}


def replying(authority: Authority, reply: Callable[[Any], bytes]) -> Callable[[ssl.SSLSocket], None]:
    """Answer as a signer does, but for the certificate."""

    def answer(stream: ssl.SSLSocket) -> None:
        stream.sendall(WELCOME)
        asked = b""
        while not asked.endswith(b"\n"):
            part = stream.recv(4096)
            if not part:
                return
            asked += part
        stream.sendall(line({"certificate": reply(key_in(asked)).decode()}))

    return answer


@pytest.mark.parametrize("what", WRONG)
def test_a_certificate_that_does_not_follow_is_not_used(authority: Authority, entry: HubEntry, what: str) -> None:
    reply, reason = WRONG[what]
    before = files(entry)
    with answering(
        authority.ca, authority.of_signer(), replying(authority, lambda key: reply(authority, key))
    ) as wrong:
        warning, said = look(replace(entry, signer=wrong))

    assert warning is not None
    assert reason in warning
    assert "run 'ngraph enroll --renew one' on the CA's machine; it did not renew itself: " in warning
    assert (said, files(entry)) == ([], before)
    # The next attempt is as good as the first.
    assert look(entry)[0] is None
    assert days_left(entry) > tls.DAYS - 1


@pytest.mark.parametrize("what", ["of a CA", "of another host"])
def test_a_certificate_of_a_ca_or_of_another_host_is_not_used(
    authority: Authority, entry: HubEntry, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    from cryptography import x509

    key, constraints, hub = certificates.new_key(), x509.BasicConstraints, tls.host_of(tls.HUB)
    with monkeypatch.context() as patched:
        if what == "of a CA":
            patched.setattr(x509, "BasicConstraints", lambda **_: constraints(ca=True, path_length=None))
        else:
            patched.setattr(certificates, "host_of", lambda role: hub)
        wrong = signed(authority, tls.AGENT, "one", key.public_key())

    with pytest.raises(DeviceUnusable, match="of somebody else, or of another key"):
        Renewal(entry, print)._checked(wrong, key)
    right = signed(authority, tls.AGENT, "one", key.public_key())
    assert Renewal(entry, print)._checked(right, key) == right


def silent(stream: ssl.SSLSocket) -> None:
    stream.settimeout(60)
    with contextlib.suppress(OSError):
        while stream.recv(4096):
            pass


def dripping(stream: ssl.SSLSocket) -> None:
    with contextlib.suppress(OSError):
        while True:
            stream.sendall(b" ")
            time.sleep(0.05)


def numbered(stream: ssl.SSLSocket) -> None:
    stream.sendall(WELCOME)
    assert stream.recv(9999)
    stream.sendall(line({"certificate": 7}))


SAID: dict[str, tuple[Callable[[ssl.SSLSocket], None], str]] = {
    "nothing": (silent, "takes connections but does not answer"),
    "a byte now and then": (dripping, "does not answer"),
    "garbage": (lambda stream: stream.sendall(b"\xff\x00garbage\n"), "does not answer as a signer does"),
    "too much": (lambda stream: stream.sendall(b"x" * (1 << 20)), "does not answer as a signer does"),
    "a list": (lambda stream: stream.sendall(b"[]\n"), "does not answer as a signer does"),
    "depth": (lambda stream: stream.sendall(b"[" * 50_000 + b"\n"), "does not answer as a signer does"),
    "two lines at once": (lambda stream: stream.sendall(WELCOME + b"{}\n"), "does not answer as a signer does"),
    "the end": (lambda stream: None, "it closed the connection"),
    "no": (lambda stream: stream.sendall(line({"refused": "not \x1b[31mtoday"})), "refuses: not "),
    "a number": (numbered, "is no certificate of this lab's CA"),
}


@pytest.mark.parametrize("said", SAID)
def test_whatever_a_signer_says_is_a_warning(
    authority: Authority, entry: HubEntry, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, reason = SAID[said]
    before, began = files(entry), time.monotonic()
    with monkeypatch.context() as patched, answering(authority.ca, authority.of_signer(), answer) as address:
        if answer in (silent, dripping):
            patched.setattr(renewing, "_ANSWER_SECONDS", 4.0)
        warning, _ = look(replace(entry, signer=address))
        assert time.monotonic() - began < 60
    assert warning is not None
    assert reason in warning
    assert "\x1b" not in warning
    assert files(entry) == before
    assert look(entry)[0] is None


def test_a_signer_that_is_away_or_somebody_else_is_a_warning(authority: Authority, entry: HubEntry) -> None:
    before = files(entry)
    warning, _ = look(replace(entry, signer="tls://127.0.0.1:9"))
    assert warning is not None
    assert (
        "the signer at tls://127.0.0.1:9 does not answer (Connection refused); on its machine run 'ngraph signer'"
        in warning
    )
    # An agent's certificate, or a stranger's, does not make a signer.
    strange = Authority.made(authority.folder.with_name("strange"))
    for ca, pair in ((authority, (entry.certificate, entry.key)), (strange, strange.of_signer())):
        with answering(ca.ca, pair, silent) as address:
            warning, _ = look(replace(entry, signer=address))
        assert warning is not None
        assert "is not valid as a signer's" in warning
    assert files(entry) == before


def test_a_clock_that_is_wrong_is_said(authority: Authority, entry: HubEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(entry)
    # This machine's clock is late: what the signer made does not hold yet.
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 2 * 3600)
    warning, _ = look(entry)
    monkeypatch.undo()
    assert warning is not None
    assert "UTC on; is this machine's clock right?" in warning
    assert files(entry) == before
    monkeypatch.setattr(renewing, "RETRY_SECONDS", 0.0)
    # Once it is right, the certificate that was made then is taken.
    made = len(list((authority.folder / "issued").glob("agent-one-*")))
    assert look(entry)[0] is None
    assert len(list((authority.folder / "issued").glob("agent-one-*"))) == made


def test_a_key_that_is_refused_is_given_up(
    authority: Authority, entry: HubEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cryptography import x509

    # Such as after a restored backup: the CA knows it, of a certificate that is revoked.
    key = Renewal(entry, print)._next_key(tls.next_of(entry.key))
    subject = x509.load_pem_x509_certificate(entry.certificate.read_bytes()).subject
    der = ssl.PEM_cert_to_DER_cert(entry.certificate.read_text())
    with holding(10):
        authority.rekey(der, csr.written(subject, key))
    assert "refuses: a renewal is for a new key; this one had a certificate before" in str(look(entry)[0])
    assert look(entry)[0] is None


def test_whoever_is_revoked_is_told_what_to_do(authority: Authority, entry: HubEntry) -> None:
    authority.revoke(tls.AGENT, "one")
    before = files(entry)
    warning, _ = look(entry)
    assert warning is not None
    assert "refuses: the certificate of the agent 'one' is revoked" in warning
    assert files(entry) == before


# The exchange


def test_an_answer_that_is_lost_is_asked_for_again(
    authority: Authority, entry: HubEntry, signer: Signing, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = type(signer.signer)._signed

    def lost(self: Any, shown: bytes, asked: bytes) -> dict[str, str]:
        made(self, shown, asked)
        raise ConnectionAbortedError

    monkeypatch.setattr(type(signer.signer), "_signed", lost)
    assert "closed the connection" in str(look(entry)[0])
    monkeypatch.undo()
    monkeypatch.setattr(renewing, "RETRY_SECONDS", 0.0)
    records = set((authority.folder / "issued").glob("agent-one-*"))

    assert look(entry)[0] is None

    assert set((authority.folder / "issued").glob("agent-one-*")) == records
    assert entry.certificate.read_bytes() in {each.read_bytes() for each in records}


def test_a_renewal_by_hand_fits_also_after_an_answer_that_was_lost(
    authority: Authority, entry: HubEntry, signer: Signing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewing.Renewal, "_checked", lambda *_: (_ for _ in ()).throw(DeviceUnusable("lost")))
    look(entry)
    monkeypatch.undo()

    # It is for the latest key that the CA knows of, which is not yet in its place here.
    with tarfile.open(fileobj=io.BytesIO(authority.renewal_bundle(tls.AGENT, "one"))) as tar:
        packed = tar.extractfile("agents/one/certificate.pem")
        assert packed is not None
        tls.write_private(entry.certificate, packed.read())

    assert engine.check_certificate(entry, tls.AGENT).days_left > tls.DAYS - 1
    assert days_left(entry) > tls.DAYS - 1


# Files that get their names, and what waits for the disk.
STEPS = 8


class Killed(BaseException):
    """The end of a process, anywhere."""


@pytest.mark.parametrize("step", range(STEPS + 1))
def test_a_renewal_that_is_cut_short_anywhere_leaves_a_pair_that_works(
    entry: HubEntry, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    count, before = [0], files(entry)
    replaced, synced = Path.replace, os.fsync

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            count[0] += 1
            if threading.current_thread() is threading.main_thread() and count[0] > step:
                raise Killed
            return real(*arguments)

        return call

    mine = threading.get_ident()

    def only_here(real: Callable[..., Any], died: Callable[..., Any]) -> Callable[..., Any]:
        # The signer of these tests is a thread of this process.
        return lambda *arguments: (died if threading.get_ident() == mine else real)(*arguments)

    monkeypatch.setattr(Path, "replace", only_here(replaced, dying(replaced)))
    monkeypatch.setattr(os, "fsync", only_here(synced, dying(synced)))
    with contextlib.suppress(Killed):
        look(entry)
    died = count[0] > step
    monkeypatch.undo()
    monkeypatch.setattr(renewing, "RETRY_SECONDS", 0.0)

    # As hub, agent and clients read them at their start.
    assert engine.check_certificate(entry, tls.AGENT).name == "one"
    assert engine.probe(entry, 10) == "127.0.0.1"
    assert files(entry) == before or days_left(entry) > tls.DAYS - 1
    assert died == (step < STEPS), "the steps of a renewal are others than this test knows"
    # And it goes on from there.
    assert look(entry)[0] is None
    assert days_left(entry) > tls.DAYS - 1


def test_what_runs_takes_a_new_pair_into_use_also_where_it_was_cut_short(
    authority: Authority, entry: HubEntry, signer: Signing
) -> None:
    shown = engine.security(entry.ca, entry.certificate, entry.key)
    context = shown.get_connection_args("worker")["ssl_context"]
    key = certificates.new_key()
    from cryptography import x509

    old = x509.load_pem_x509_certificate(entry.certificate.read_bytes())
    new = renewing.ask(replace(entry, address=signer.address), {"csr": csr.written(old.subject, key).decode()})
    tls.write_private(tls.next_of(entry.key), certificates.pem(key))
    tls.write_private(entry.certificate, new["certificate"].encode())

    trust: Trust = shown.trust
    trust.refresh()

    serials: list[str] = []

    def see(stream: ssl.SSLSocket) -> None:
        certificate: Any = stream.getpeercert()
        serials.append(certificate["serialNumber"])
        stream.sendall(b"hello")

    with answering(authority.ca, authority.of_signer(), see) as address:
        plain = socket.create_connection(engine.parts_of(address), timeout=10)
        with plain, context.wrap_socket(plain, server_hostname=tls.host_of(tls.SIGNER)) as stream:
            assert stream.recv(5)
    assert int(serials[0], 16) == tls.serial_of(entry.certificate)


def test_a_new_certificate_is_tried_before_the_old_one_goes(
    authority: Authority, entry: HubEntry, signer: Signing, hub: str
) -> None:
    before = files(entry)
    # The hub is away.
    warning, _ = look(replace(entry, address="tls://127.0.0.1:9"))
    assert warning is not None
    assert "hub 'lab' at tls://127.0.0.1:9 does not answer" in warning
    assert files(entry) == before
    # The hub refuses, such as one whose clock is late.
    own = enrolled(authority, tls.HUB, "hub", authority.folder.with_name("late"), days=tls.DAYS)
    with answering(authority.ca, (own.certificate, own.key), lambda stream: None) as address:
        warning, _ = look(replace(entry, address=address))
    assert warning is not None
    assert "does not accept the certificate" in warning
    assert files(entry) == before
    # Once it works, what the signer made is still good, and made once.
    assert look(entry)[0] is None
    assert days_left(entry) > tls.DAYS - 1
    assert len(authority.holding(tls.AGENT, "one")) == 2


def test_many_processes_at_once_ask_once(authority: Authority, entry: HubEntry) -> None:
    warnings: list[str | None] = []
    threads = [threading.Thread(target=lambda: warnings.append(look(entry)[0])) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert warnings == [None] * 8
    assert len(authority.holding(tls.AGENT, "one")) == 2


def test_a_failure_is_not_tried_again_at_once(
    authority: Authority, entry: HubEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewing, "RETRY_SECONDS", 600.0)
    away = replace(entry, signer="tls://127.0.0.1:9")
    assert "Connection refused" in str(look(away)[0])
    assert "it could not renew itself within the last 10 minutes" in str(look(entry)[0])
    following = tls.next_of(entry.key)
    past = time.time() - 700
    os.utime(following, (past, past))
    assert look(entry)[0] is None


def test_how_often_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert renewing.pause_seconds(90) == renewing.pause_seconds(30) == 86400
    assert renewing.pause_seconds(1) == 6 * 3600
    monkeypatch.setattr(renewing, "RETRY_SECONDS", 600.0)
    assert renewing.pause_seconds(0.01) == renewing.pause_seconds(-3) == 600


def test_files_that_cannot_be_written_are_a_warning(
    entry: HubEntry, signer: Signing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pytest_ngraph.machine.files.write", full)
    warning, _ = look(entry)
    assert warning is not None
    assert "key-next.pem: cannot be written: No space left on device" in warning
    # Nobody was asked for what could not have been kept.
    assert signer.said == []


# A lab that runs


def ends_of(entry: HubEntry, role: str, address: str) -> float:
    """Return until when the certificate holds that somebody shows to new connections."""
    with engine.reach(replace(entry, address=address), "it", role, 10) as stream:
        certificate: Any = stream.getpeercert()
        return ssl.cert_time_to_seconds(certificate["notAfter"])


def answers(client: Any) -> bool:
    key = f"nothing-{time.monotonic_ns()}"
    told = client.ask("nothing", "", key, {"device:one": 1}).result(60)
    return "nothing else" in json.loads(told)["reason"]


def test_a_lab_renews_itself_while_it_runs_and_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without("distributed", "cryptography")
    with Lab(tmp_path, "tests.support.hasty", "tests.support.hasty") as lab:
        signer = lab.start_signer()
        # Everybody knows the signer, and it is away.
        signer.end()
        with holding(20):
            hub = lab.start_hub()
            agent = lab.start_agent("one")
            user = lab.entry()
        hub.wait_for("WARNING: the certificate of the hub 'hub' expires on")
        agent.wait_for("does not answer (Connection refused); on its machine run 'ngraph signer'")
        pids = hub.popen.pid, agent.popen.pid
        soon = time.time() + 30 * 86400
        with lab.client() as client:
            before = lab.state(client, "one", lambda state: state.online)
            assert answers(client)

            signer = lab.start_signer()

            agent.wait_for("the certificate of the agent 'one' has renewed itself")
            hub.wait_for("the certificate of the hub 'hub' has renewed itself")
            signer.wait_for("renewed the hub 'hub' until")
            # The agent has joined with it, and is where it was; the user has noticed nothing.
            lab.state(client, "one", lambda state: state.online and (state.expires or 0.0) > soon)
            eventually("it joined again", lambda: agent.output.count("has joined the hub") == 2)
            assert lab.state(client, "one", lambda state: state.online).address == before.address
            assert answers(client)
            # And both show theirs to new connections.
            for role, address in ((tls.HUB, lab.address), (tls.AGENT, before.address)):
                eventually(f"the {role} shows it", lambda: ends_of(user, role, address) > soon)  # noqa: B023
        assert (hub.popen.pid, agent.popen.pid) == pids
        assert hub.popen.poll() is None
        assert agent.popen.poll() is None

        # A user, by the command that shows the lab.
        from pytest_ngraph.commands.devices import device_lines

        registry = read_registry(lab.registry("one"), tmp_path)
        lines = "\n".join(device_lines(registry, lambda name: None))
        assert "the certificate of the client 'alice' has renewed itself" in lines
        assert "WARNING" not in lines
        assert " ! " not in lines
        assert tls.identity_of(user.certificate).days_left > tls.DAYS - 1

        # Another one, by a run of pytest; and one whose renewal fails, which measures all the same.
        with holding(20):
            bob, carol = lab.entry("bob"), lab.entry("carol")
        for mine, text in ((bob, "the certificate of the client 'bob' has renewed itself"), (carol, "WARNING: ")):
            if mine is carol:
                signer.end()
            notes: list[str] = []
            link = Link(registry.devices["one"], mine, notes.append)
            try:
                link.open(0.0)
                assert link.is_open
            finally:
                link.close()
            assert [note.startswith(text) for note in notes] == [True], notes
        assert "'carol' expires on" in notes[0]
        assert "on its machine run 'ngraph signer'" in notes[0]
        signer = lab.start_signer()

        # And whoever is revoked meanwhile does not come back.
        lab.authority.revoke(tls.AGENT, "one")
        refused = replace(lab.agent_entry("one"), signer=tls.signer_file(lab.authority.ca).read_text().strip())
        with pytest.raises(DeviceUnusable, match="the certificate of the agent 'one' is revoked"):
            renewing.ask(replace(refused, address=str(refused.signer)), None)
