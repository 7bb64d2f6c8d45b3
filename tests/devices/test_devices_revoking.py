"""Certificates that lose their worth while everything runs, new ones that take their place, and where the CA is."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import stat
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.devices import logs
from pytest_ngraph.devices.doors import engine
from pytest_ngraph.devices.registry import HubEntry
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.devices.trust.authority import Authority
from pytest_ngraph.devices.trust.trust import Trust
from pytest_ngraph.errors import DeviceUnusable, SpecError
from tests.conftest import skip_without
from tests.support.lab import Lab, Process, eventually


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    skip_without("cryptography")
    return Authority.made(tmp_path / "ca")


def answers(client: Any) -> bool:
    key = f"nothing-{uuid.uuid4().hex}"
    return "nothing else" in json.loads(client.ask("nothing", "", key, {"device:one": 1}).result(60))["reason"]


def hand_on(lab: Lab) -> None:
    """Copy the list of revoked certificates to the hub, as ``ngraph enroll --revoke`` says."""
    tls.write_private(tls.revoked_file(lab.hub_folder / "ca.pem"), tls.revoked_file(lab.authority.ca).read_bytes())


def shown_by(lab: Lab, address: str, entry: HubEntry) -> int:
    """Return the serial number of the certificate that a side shows to new connections."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(entry.ca))
    context.check_hostname = False
    context.load_cert_chain(entry.certificate, entry.key)
    with (
        socket.create_connection(engine.parts_of(address), timeout=10) as plain,
        context.wrap_socket(plain) as stream,
    ):
        certificate: Any = stream.getpeercert()
        return int(certificate["serialNumber"], 16)


def test_a_revoked_certificate_ends_at_once_and_only_it(lab: Lab) -> None:
    with lab.client("alice") as alice, lab.client("mallory") as mallory:
        assert answers(alice)
        assert answers(mallory)

        lab.authority.revoke(tls.CLIENT, "mallory")
        hand_on(lab)

        # The connection that it has.
        eventually("mallory is cut off", lambda: mallory.status != "running")
        assert answers(alice)
        assert lab.hub is not None
        assert "the certificate of the client 'mallory' is revoked" in lab.hub.output
    # And another one.
    with pytest.raises(DeviceUnusable, match="does not accept the certificate"):
        engine.connect(lab.entry("mallory"), 30)
    # A new one under the same name is another one.
    (lab.folder / "tls-mallory").rename(lab.folder / "tls-of-before")
    with lab.client("mallory") as again:
        assert answers(again)


def test_a_revoked_agent_is_out(lab: Lab) -> None:
    two = lab.start_agent("two")
    lab.authority.revoke(tls.AGENT, "two")
    hand_on(lab)
    with lab.client() as client:
        lab.state(client, "two", lambda state: not state.online)
        assert answers(client)
    two.wait_for("trying again every")


def test_an_agent_and_a_hub_take_a_new_certificate_without_an_end(lab: Lab) -> None:
    assert lab.hub is not None
    with lab.client() as client:
        address = lab.state(client, "one", lambda state: state.online).address
        for role, name, shown, process in (
            (tls.AGENT, "one", address, lab.agents["one"]),
            (tls.HUB, "hub", lab.address, lab.hub),
        ):
            before, pid = shown_by(lab, shown, lab.entry()), process.popen.pid

            lab.unpack(lab.authority.renewal_bundle(role, name))

            deadline = time.monotonic() + 60
            while shown_by(lab, shown, lab.entry()) == before:
                assert time.monotonic() < deadline, f"the {role} does not show it"
                time.sleep(0.2)
            assert process.popen.pid == pid
            assert process.popen.poll() is None
            assert answers(client)


def test_a_list_that_is_damaged_lets_nobody_in_until_it_is_whole(lab: Lab) -> None:
    file = tls.revoked_file(lab.hub_folder / "ca.pem")
    before = file.read_bytes() if file.exists() else None
    file.write_text("-----BEGIN X509 CRL-----\nnothing\n-----END X509 CRL-----\n")
    try:
        with pytest.raises(DeviceUnusable, match="does not accept the certificate"):
            engine.connect(lab.entry(), 30)
        assert lab.hub is not None
        lab.hub.wait_for("is not a list that the lab's CA has signed")
    finally:
        if before is None:
            file.unlink()
        else:
            file.write_bytes(before)
    with lab.client() as client:
        lab.agents["one"].wait_for("has joined")
        lab.state(client, "one", lambda state: state.online)
        assert answers(client)


def test_a_hub_hands_the_list_on_to_agents_and_both_say_that_their_own_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("distributed", "cryptography")
    monkeypatch.setattr("pytest_ngraph.devices.trust.authority.DAYS", 20)
    with Lab(tmp_path) as lab:
        hub = lab.start_hub()
        assert "WARNING: the certificate of the hub 'hub' expires on 20" in hub.output
        assert "run 'ngraph enroll --renew --hub' on the CA's machine" in hub.output
        lab.enroll(tls.CLIENT, "mallory")
        lab.enroll(tls.AGENT, "one")
        lab.authority.revoke(tls.CLIENT, "mallory")
        hand_on(lab)

        agent = lab.start_agent("one")

        agent.wait_for("run 'ngraph enroll --renew one' on the CA's machine")
        theirs = tls.revoked_file(lab.agent_entry("one").ca)
        assert theirs.read_bytes() == tls.revoked_file(lab.authority.ca).read_bytes()


# The list, and renewals


def test_a_list_is_the_cas_own_and_grows(authority: Authority, tmp_path: Path) -> None:
    for name in ("one", "two"):
        authority.issue(tls.AGENT, name)
    authority.issue(tls.AGENT, "two")
    assert authority.revoke(tls.AGENT, "one") == 1
    first = tls.revoked_file(authority.ca).read_bytes()
    assert authority.revoke(tls.AGENT, "two") == 2
    assert len(tls.revoked_serials(authority.ca)) == 3
    assert authority.issued() == []
    with pytest.raises(SpecError, match="no certificate of the agent 'two' is there to revoke"):
        authority.revoke(tls.AGENT, "two")
    with pytest.raises(SpecError, match="no certificate of the client 'one' is there to revoke"):
        authority.revoke(tls.CLIENT, "one")

    # An older one does not take the place of a newer one, nor does a stranger's.
    newest = tls.revoked_file(authority.ca).read_bytes()
    assert not tls.adopt_revoked(authority.ca, first)
    stranger = Authority.made(tmp_path / "strange")
    stranger.issue(tls.AGENT, "one")
    stranger.revoke(tls.AGENT, "one")
    assert not tls.adopt_revoked(authority.ca, tls.revoked_file(stranger.ca).read_bytes())
    assert not tls.adopt_revoked(authority.ca, b"")
    assert tls.revoked_file(authority.ca).read_bytes() == newest
    tls.revoked_file(authority.ca).write_bytes(first)
    assert tls.adopt_revoked(authority.ca, newest)
    assert stat.S_IMODE(tls.revoked_file(authority.ca).stat().st_mode) == 0o600


@pytest.mark.parametrize("own", ["of a CA of before", "damaged"])
def test_a_list_here_that_the_ca_has_not_signed_is_none(authority: Authority, tmp_path: Path, own: str) -> None:
    for each in (authority, Authority.made(tmp_path / "before")):
        for _ in range(1 + (each is not authority)):
            # That of the other one has the higher number.
            each.issue(tls.AGENT, "one")
            each.revoke(tls.AGENT, "one")
    newest = tls.revoked_file(authority.ca).read_bytes()
    other = tls.revoked_file(tmp_path / "before" / "ca.pem").read_bytes()
    tls.revoked_file(authority.ca).write_bytes(other if own != "damaged" else b"nothing")

    # What the CA has not signed is not taken over in its place.
    assert not tls.adopt_revoked(authority.ca, other)
    assert tls.adopt_revoked(authority.ca, newest)

    assert tls.revoked_file(authority.ca).read_bytes() == newest
    assert not tls.adopt_revoked(authority.ca, newest)


def test_a_renewal_is_of_the_same_name_and_key_and_of_nothing_that_ended(authority: Authority, tmp_path: Path) -> None:
    from cryptography import x509

    certificate, key = authority.issue(tls.AGENT, "one")
    old = x509.load_pem_x509_certificate(certificate)

    new = x509.load_pem_x509_certificate(authority.renew(certificate))

    assert new.subject == old.subject
    assert new.public_key() == old.public_key()
    assert new.serial_number != old.serial_number
    assert key not in authority.renewal_bundle(tls.AGENT, "one")
    # Whoever is revoked is with all of them, and gets none.
    assert authority.revoke(tls.AGENT, "one") == 3
    with pytest.raises(SpecError, match="is revoked; for one with a new key: ngraph enroll one"):
        authority.renew(certificate)
    strange = Authority.made(tmp_path / "strange").issue(tls.AGENT, "one")[0]
    for other in (strange, authority.ca.read_bytes(), b"nothing"):
        with pytest.raises(SpecError, match="no certificate of this CA"):
            authority.renew(other)
    with pytest.raises(SpecError, match="nothing was issued to the agent 'two'"):
        authority.renewed(tls.AGENT, "two")


def test_one_that_has_expired_is_refused_also_in_a_connection_that_stands(authority: Authority) -> None:
    now = [time.time()]
    trust = Trust(authority.ca, authority.ca, authority.ca, now=lambda: now[0])
    shown = {
        "subject": ((("organizationalUnitName", "agent"),), (("commonName", "one"),)),
        "serialNumber": "1F",
        "notAfter": time.strftime("%b %d %H:%M:%S %Y GMT", time.gmtime(now[0] + 60)),
    }
    assert trust.refusal(shown) is None
    now[0] += 120
    assert trust.refusal(shown) == "the certificate of the agent 'one' has expired"
    assert trust.refusal({}) == "it shows no certificate of the lab"


def test_a_damaged_list_is_written_down_however_many_strangers_were_refused(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def warning(text: str, *arguments: object) -> None:
        record = logging.LogRecord("lab", logging.WARNING, "", 0, text, arguments, None)
        if few.filter(record):
            written.append(record.getMessage())

    few = logs.Seldom()
    monkeypatch.setattr(logs.seldom, "warning", warning)
    for _ in range(50):
        logs.seldom.warning("a connection is refused: %s", "it shows no certificate of the lab")
    tls.revoked_file(authority.ca).write_text("nothing")
    refusal = Trust(authority.ca, authority.ca, authority.ca).refusal({})

    assert refusal is not None
    assert "is not a list that the lab's CA has signed" in refusal
    assert [line for line in written if line.startswith("nobody is admitted: ")]


# The CA's key


@pytest.fixture
def enroll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    skip_without("distributed", "cryptography")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(*arguments: str) -> str:
        status = main([*arguments])
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return run


def test_the_hubs_bundle_holds_no_key_of_the_ca(enroll: Callable[..., str], tmp_path: Path) -> None:
    import tarfile

    printed = enroll("enroll", "--hub", "--address", "tls://hub.lab:8786", "--folder", str(tmp_path / "ca"))

    assert "as another user, or on another machine" in printed
    with tarfile.open(tmp_path / "hub.tar") as tar:
        files = {each.name: tar.extractfile(each) for each in tar.getmembers() if each.isfile()}
        held = [each.read() for each in files.values() if each is not None]
    assert set(files) == {"hub/ca.pem", "hub/hub.pem", "hub/hub-key.pem"}
    assert (tmp_path / "ca" / "ca-key.pem").read_bytes() not in held
    # Its address is known from now on.
    assert "orin.tar" in enroll("enroll", "orin", "--folder", str(tmp_path / "ca"))
    assert "its key stays where it is" in enroll("enroll", "--renew", "orin", "--folder", str(tmp_path / "ca"))
    assert "1 certificate of the client" not in enroll("enroll", "--revoke", "orin", "--folder", str(tmp_path / "ca"))


def test_a_hub_refuses_to_start_with_the_cas_key_in_its_folder(enroll: Callable[..., str], tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    Authority.made(folder)
    assert "the lab's CA must not lie where the hub can read it" in enroll("hub", "--folder", str(folder))
    assert "run 'ngraph enroll --hub" in enroll("hub", "--folder", str(tmp_path / "none"))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_hub_that_can_read_the_cas_key_serves_no_other_machine(tmp_path: Path, host: str) -> None:
    skip_without("distributed", "cryptography")
    with Lab(tmp_path) as lab:
        lab.enroll(tls.HUB, "hub")
        config = tmp_path / "config"
        Authority.made(config / "ngraph" / "ca")
        words = ["hub", "--port=0", f"--host={host}", f"--folder={lab.hub_folder}"]
        hub = Process(words, tmp_path / "log", {"XDG_CONFIG_HOME": str(config)}, sys.executable, "pytest_ngraph.cli")
        try:
            said = "the hub's user can read the key of the lab's CA"
            if host == "127.0.0.1":
                assert f"WARNING: {config}" in hub.wait_for("next, on the CA's machine")
                assert said in hub.output
            else:
                assert hub.popen.wait(60) == 2
                assert said in hub.output
                assert "Traceback" not in hub.output
        finally:
            hub.end()


def test_nothing_that_a_hub_serves_leads_to_the_cas_key(lab: Lab) -> None:
    held = [path.read_bytes() for path in lab.hub_folder.rglob("*") if path.is_file()]
    assert (lab.ca_folder / "ca-key.pem").read_bytes() not in held
