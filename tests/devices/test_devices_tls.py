"""Certificates: who they are for, who can read their keys, what they are refused for, and how they lose their worth."""

from __future__ import annotations

import contextlib
import errno
import io
import re
import socket
import ssl
import stat
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.devices.doors import engine, handshake
from pytest_ngraph.devices.doors.status import HubState, hub_lines
from pytest_ngraph.devices.registry import HubEntry
from pytest_ngraph.devices.trust import authority as authority_module
from pytest_ngraph.devices.trust import certificates, tls
from pytest_ngraph.devices.trust.authority import CA_DAYS, Authority
from pytest_ngraph.devices.trust.trust import Trust
from pytest_ngraph.errors import DeviceOffline, DeviceUnusable, NgraphError, SpecError
from tests.conftest import ROOT, Suite, skip_without

ADDRESS = "tls://127.0.0.1:8786"


@pytest.fixture(autouse=True)
def _installed() -> None:
    skip_without("cryptography")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.made(tmp_path / "authority")


def unpack(authority: Authority, role: str, name: str, folder: Path) -> HubEntry:
    """Return the hub as one who unpacked a bundle there sees it."""
    with tarfile.open(fileobj=io.BytesIO(authority.bundle(role, name, ADDRESS))) as tar:
        for member in tar.getmembers():
            place = folder / member.name
            if member.isdir():
                place.mkdir(mode=member.mode, parents=True, exist_ok=True)
            else:
                data = tar.extractfile(member)
                assert data is not None
                place.write_bytes(data.read())
                place.chmod(member.mode)
    if role == tls.HUB:
        here = folder / "hub"
        return HubEntry("lab", ADDRESS, here / "ca.pem", here / "hub.pem", here / "hub-key.pem")
    if role == tls.CLIENT:
        here = folder / "tls"
        return HubEntry("lab", ADDRESS, here / "ca.pem", here / "client.pem", here / "client-key.pem")
    here = tls.agent_folder(folder, name)
    return HubEntry("lab", ADDRESS, here / "ca.pem", here / "certificate.pem", here / "key.pem")


def hub_files(authority: Authority) -> tuple[Path, Path]:
    """Return certificate and key of the CA's hub, enrolled at the first call."""
    folder = authority.folder.with_name(f"{authority.folder.name}-of-the-hub")
    if not folder.exists():
        unpack(authority, tls.HUB, "hub", folder)
    return folder / "hub" / "hub.pem", folder / "hub" / "hub-key.pem"


@contextmanager
def serving(ca: Path, certificate: Path, key: Path, *, plain: bool = False) -> Iterator[str]:
    """Listen as a hub does, and speak first to whoever shows a certificate of the CA; yield the address."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def serve() -> None:
            try:
                taken, _ = server.accept()
            except OSError:
                return
            with taken:
                taken.settimeout(10)
                try:
                    if plain:
                        taken.sendall(b"220 hello\r\n")
                        taken.recv(1024)
                        return
                    with context.wrap_socket(taken, server_side=True) as stream:
                        stream.sendall(b"hello")
                        stream.recv(1)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"tls://127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join(60)


def at(entry: HubEntry, address: str) -> HubEntry:
    return HubEntry(entry.name, address, entry.ca, entry.certificate, entry.key)


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Let it be so many days later for this package."""

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(timezone.utc) + timedelta(days=days)

    monkeypatch.setattr(tls, "datetime", Later)
    monkeypatch.setattr(authority_module, "datetime", Later)


def test_keys_are_for_their_owner_only(authority: Authority, tmp_path: Path) -> None:
    client = unpack(authority, tls.CLIENT, "alice", tmp_path / "alice")

    for path in [*authority.folder.rglob("*"), client.key, client.certificate, client.ca.parent]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE(authority.folder.stat().st_mode) == 0o700


def test_a_ca_is_made_once(authority: Authority) -> None:
    before = {path: path.read_bytes() for path in authority.folder.rglob("*.pem")}

    Authority.made(authority.folder)

    assert {path: path.read_bytes() for path in authority.folder.rglob("*.pem")} == before


def test_a_certificate_names_its_role_and_its_owner(authority: Authority, tmp_path: Path) -> None:
    for role, name in ((tls.AGENT, "orin-07"), (tls.CLIENT, "alice")):
        found = tls.identity_of(unpack(authority, role, name, tmp_path / name).certificate)
        assert (found.role, found.name) == (role, name)
        assert tls.DAYS - 1 < found.days_left <= tls.DAYS
        assert found.warning() is None
    assert tls.identity_of(hub_files(authority)[0]).role == tls.HUB
    assert [identity.name for identity in authority.issued()] == ["orin-07", "alice"]


def test_serial_numbers_and_keys_are_fresh(authority: Authority) -> None:
    from cryptography import x509

    pairs = [authority.issue(tls.AGENT, "orin") for _ in range(3)]

    assert len({x509.load_pem_x509_certificate(certificate).serial_number for certificate, _ in pairs}) == 3
    assert len({key for _, key in pairs}) == 3


def test_a_ca_is_good_for_nothing_but_the_lab(authority: Authority) -> None:
    from cryptography import x509

    ca = x509.load_pem_x509_certificate(authority.ca.read_bytes())
    constraints = ca.extensions.get_extension_for_class(x509.NameConstraints)
    basic = ca.extensions.get_extension_for_class(x509.BasicConstraints)

    assert constraints.critical
    assert constraints.value.permitted_subtrees == [x509.DNSName("ngraph.internal")]
    assert (basic.value.ca, basic.value.path_length) == (True, 0)


def test_a_user_is_welcome_where_the_hub_is_of_the_same_ca(authority: Authority, tmp_path: Path) -> None:
    client = unpack(authority, tls.CLIENT, "alice", tmp_path / "alice")

    with serving(authority.ca, *hub_files(authority)) as address:
        assert engine.probe(at(client, address), 10) == "127.0.0.1"


def test_a_strangers_hub_is_refused(authority: Authority, tmp_path: Path) -> None:
    client = unpack(authority, tls.CLIENT, "alice", tmp_path / "alice")
    strange = Authority.made(tmp_path / "strange")

    with (
        serving(strange.ca, *hub_files(strange)) as address,
        pytest.raises(DeviceUnusable, match="is not valid as a hub's"),
    ):
        engine.probe(at(client, address), 10)


def test_a_strangers_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    stranger = unpack(Authority.made(tmp_path / "strange"), tls.CLIENT, "mallory", tmp_path / "mallory")
    posing = HubEntry("lab", ADDRESS, authority.ca, stranger.certificate, stranger.key)

    with (
        serving(authority.ca, *hub_files(authority)) as address,
        pytest.raises(DeviceUnusable, match=r"does not accept the certificate .*ngraph enroll"),
    ):
        engine.probe(at(posing, address), 10)


@pytest.mark.parametrize("role", [tls.AGENT, tls.CLIENT])
def test_nobody_else_of_the_lab_can_pose_as_the_hub(authority: Authority, tmp_path: Path, role: str) -> None:
    client = unpack(authority, tls.CLIENT, "alice", tmp_path / "alice")
    posing = unpack(authority, role, "mallory", tmp_path / "mallory")

    with (
        serving(authority.ca, posing.certificate, posing.key) as address,
        pytest.raises(DeviceUnusable, match="is not valid as a hub's"),
    ):
        engine.probe(at(client, address), 10)


@pytest.mark.parametrize(
    ("asks", "shown", "welcome"),
    [
        ("client", tls.HUB, True),
        ("client", tls.AGENT, False),
        ("worker", tls.HUB, True),
        ("worker", tls.AGENT, False),
        ("worker", tls.CLIENT, False),
        ("scheduler", tls.AGENT, True),
        ("scheduler", tls.CLIENT, False),
    ],
)
def test_every_connection_of_the_engine_insists_on_the_role_at_its_other_end(
    authority: Authority, tmp_path: Path, asks: str, shown: str, welcome: bool
) -> None:
    skip_without("distributed")
    own = unpack(authority, tls.AGENT, "own", tmp_path / "own")
    other = unpack(authority, shown, "other", tmp_path / "other")
    given = engine.security(own.ca, own.certificate, own.key).get_connection_args(asks)

    expected = contextlib.nullcontext() if welcome else pytest.raises(ssl.SSLCertVerificationError)
    with (
        serving(authority.ca, other.certificate, other.key) as address,
        socket.create_connection(engine.parts_of(address), timeout=10) as plain,
        expected,
        given["ssl_context"].wrap_socket(plain, server_hostname=given["server_hostname"]) as stream,
    ):
        assert stream.recv(1) == b"h"
    assert given["require_encryption"]


def test_something_else_on_the_port_is_no_hub(authority: Authority, tmp_path: Path) -> None:
    client = unpack(authority, tls.CLIENT, "alice", tmp_path / "alice")

    with (
        serving(authority.ca, *hub_files(authority), plain=True) as address,
        pytest.raises(DeviceUnusable, match="does not speak TLS as a hub does"),
    ):
        engine.probe(at(client, address), 10)


def test_a_port_that_drops_connections_is_a_hub_that_is_away(authority: Authority, tmp_path: Path) -> None:
    client = unpack(authority, tls.CLIENT, "alice", tmp_path / "alice")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drop() -> None:
            taken, _ = server.accept()
            taken.close()

        thread = threading.Thread(target=drop)
        thread.start()
        with pytest.raises(DeviceOffline, match="takes connections and drops them"):
            engine.probe(at(client, f"tls://127.0.0.1:{server.getsockname()[1]}"), 10)
        thread.join(60)


def test_where_nothing_listens_the_next_step_is_said_at_once(authority: Authority, tmp_path: Path) -> None:
    client = unpack(authority, tls.CLIENT, "alice", tmp_path / "alice")
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]

    with pytest.raises(DeviceOffline, match=r"does not answer \(Connection refused\); on its machine run 'ngraph hub'"):
        engine.probe(at(client, f"tls://127.0.0.1:{free}"), 10)


def test_a_new_ca_cuts_everybody_off(authority: Authority, tmp_path: Path) -> None:
    old = unpack(authority, tls.CLIENT, "alice", tmp_path / "old")
    unpack(authority, tls.AGENT, "orin", tmp_path / "old")
    key = (authority.folder / "ca-key.pem").read_bytes()

    cut_off = authority.renew_ca()

    assert [identity.words for identity in cut_off] == ["orin", "alice --client"]
    assert authority.issued() == []
    kept = [path for path in authority.folder.rglob("*") if path.is_file()]
    assert key not in [path.read_bytes() for path in kept], "the old key can still sign"
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    new = unpack(authority, tls.CLIENT, "alice", tmp_path / "new")
    # Neither the old one as it is nor with the new CA's certificate beside it.
    for entry, message in (
        (old, "is not valid as a "),
        (HubEntry("lab", ADDRESS, new.ca, old.certificate, old.key), "accept"),
    ):
        with (
            serving(authority.ca, *hub_files(authority)) as address,
            pytest.raises(DeviceUnusable, match=message),
        ):
            engine.probe(at(entry, address), 10)
    with serving(authority.ca, *hub_files(authority)) as address:
        engine.probe(at(new, address), 10)


@pytest.mark.parametrize("by_a_release_that_began_no_list", [False, True])
def test_a_new_ca_admits_whom_it_enrolls_though_somebody_had_been_revoked(
    authority: Authority, tmp_path: Path, by_a_release_that_began_no_list: bool
) -> None:
    authority.issue(tls.CLIENT, "mallory")
    authority.revoke(tls.CLIENT, "mallory")
    everybody = ((tls.HUB, "hub"), (tls.AGENT, "orin"), (tls.CLIENT, "alice"))
    for role, name in everybody:
        entry = unpack(authority, role, name, tmp_path / "home")
        assert len(tls.revoked_serials(entry.ca)) == 1
    running = Trust(entry.ca, entry.certificate, entry.key)
    assert len(running.revoked()) == 1

    authority.renew_ca()

    assert tls.revoked_serials(authority.ca) == frozenset()
    if by_a_release_that_began_no_list:
        tls.revoked_file(authority.ca).unlink()
    for role, name in everybody:
        # Over what they had.
        entry = unpack(authority, role, name, tmp_path / "home")
        assert Trust(entry.ca, entry.certificate, entry.key).revoked() == frozenset()
    # What still takes the old CA's certificates must not believe the new one's empty list.
    with pytest.raises(DeviceUnusable, match=r"ca\.pem was replaced: start this process again"):
        running.revoked()
    # The new one revokes as the old one did.
    assert authority.revoke(tls.CLIENT, "alice") == 1
    assert tls.adopt_revoked(entry.ca, tls.revoked_file(authority.ca).read_bytes())


@pytest.mark.parametrize("wrong", ["an empty ca.pem", "a ca.pem that cannot be read", "a key that is none"])
def test_what_is_wrong_with_ones_own_files_is_not_the_hubs_fault(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    client = unpack(authority, tls.CLIENT, "alice", tmp_path / "alice")
    # Nobody is asked before they can be used.
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("somebody was asked"))
    if wrong == "a key that is none":
        client.key.write_text("nothing")
        said = (
            rf"{client.certificate} with its key {client.key} cannot be used \(.+\); get a new bundle from 'ngraph enr"
        )
    elif wrong == "an empty ca.pem":
        client.ca.write_text("")
        said = rf"{client.ca} cannot be used \(.+\); get a new bundle from 'ngraph enroll' on the CA's machine"
    else:

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(ssl, "create_default_context", refuse)
        said = rf"{client.ca} cannot be used \(Permission denied\); get a new bundle"

    with pytest.raises(DeviceUnusable, match=said):
        engine.probe(client, 10)


def test_what_expires_is_said_30_days_before(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = unpack(authority, tls.CLIENT, "alice", tmp_path / "alice")
    assert engine.check_certificate(client, tls.CLIENT).warning() is None

    later(monkeypatch, tls.DAYS - tls.WARN_DAYS + 1)
    warning = engine.check_certificate(client, tls.CLIENT).warning()
    assert warning is not None
    assert "the certificate of the client 'alice' expires on 20" in warning
    assert "run 'ngraph enroll --renew alice --client' on the CA's machine" in warning

    later(monkeypatch, tls.DAYS + 1)
    with pytest.raises(DeviceUnusable, match=r"'alice' expired on 20.*ngraph enroll alice --client"):
        engine.check_certificate(client, tls.CLIENT)


def test_a_ca_that_ends_soon_signs_nothing_any_more(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    later(monkeypatch, CA_DAYS - tls.DAYS + 1)

    with pytest.raises(SpecError, match="ngraph enroll --renew-ca"):
        authority.issue(tls.AGENT, "orin")


def test_what_is_wrong_with_the_files_is_said_with_the_next_step(authority: Authority, tmp_path: Path) -> None:
    client = unpack(authority, tls.CLIENT, "alice", tmp_path / "alice")
    agent = unpack(authority, tls.AGENT, "orin", tmp_path / "orin")

    with pytest.raises(DeviceUnusable, match="is the certificate of the agent 'orin', not of a client"):
        engine.check_certificate(agent, tls.CLIENT)
    client.key.chmod(0o640)
    with pytest.raises(DeviceUnusable, match="others on this machine can read this key; run: chmod 600"):
        engine.check_certificate(client, tls.CLIENT)
    client.key.unlink()
    with pytest.raises(DeviceUnusable, match=r"no file .*client-key\.pem; on the CA's machine run 'ngraph enroll NAME"):
        engine.check_certificate(client, tls.CLIENT)
    agent.certificate.write_text("not one")
    with pytest.raises(DeviceUnusable, match="is not a certificate that 'ngraph enroll' made"):
        engine.check_certificate(agent, tls.AGENT)


# As commands


@pytest.fixture
def run(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run ngraph enroll in a folder of its own; return what it printed, or the error."""
    monkeypatch.chdir(authority.folder.parent)

    def enroll(*arguments: str) -> str:
        status = main(["enroll", *arguments, "--folder", str(authority.folder)])
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return enroll


def test_enroll_writes_a_bundle_and_says_where_it_goes(run: Callable[..., str], authority: Authority) -> None:
    assert "it is not known how the hub is reached: give --address" in run("orin")
    tls.write_private(authority.folder / "address", b"tls://hub.lab:8786\n")

    printed = run("orin")

    bundle = authority.folder.parent / "orin.tar"
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    with tarfile.open(bundle) as tar:
        names = {member.name: member.mode for member in tar.getmembers() if member.isfile()}
        address = tar.extractfile("agents/orin/address")
        assert address is not None
        assert address.read() == b"tls://hub.lab:8786\n"
    assert set(names) == {f"agents/orin/{file}" for file in ("ca.pem", "certificate.pem", "key.pem", "address")}
    assert set(names.values()) == {0o600}
    assert "this machine only" not in printed
    assert "leads to tls://127.0.0.1:8786, which is this machine only; for another" in run("orin", "--address", ADDRESS)
    for step in ("scp orin.tar", "tar -xf orin.tar -C ~/.config/ngraph", "ngraph agent orin", "Its key is in it"):
        assert step in printed


def test_enroll_of_a_user_says_what_belongs_in_the_project(run: Callable[..., str], authority: Authority) -> None:
    printed = run("alice", "--client", "--address", "tls://hub.lab")

    with tarfile.open(authority.folder.parent / "alice.tar") as tar:
        names = [member.name for member in tar.getmembers() if member.isfile()]
    assert sorted(names) == ["tls/ca.pem", "tls/client-key.pem", "tls/client.pem"]
    assert '[tool.ngraph.hub.lab]\n  address = "tls://hub.lab:8786"' in printed


def test_enroll_renews_the_ca_and_lists_who_has_to_be_enrolled_again(run: Callable[..., str]) -> None:
    run("orin", "--address", "tls://hub.lab")

    printed = run("--renew-ca")

    assert "the hub first, and restart what runs" in printed
    assert "\n  ngraph enroll --hub\n" in printed
    assert "\n  ngraph enroll orin\n" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either NAME"),
        (("orin", "--renew-ca"), "give either NAME"),
        (("orin", "--address", "http://hub"), "--address: 'http://hub' is not allowed (expected tls://HOST:PORT"),
    ],
)
def test_enroll_says_what_is_wrong(run: Callable[..., str], arguments: tuple[str, ...], message: str) -> None:
    assert message in run(*arguments)


def test_a_name_that_is_none_is_refused(run: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("../orin")
    assert "'../orin' is not allowed" in capsys.readouterr().err


def test_without_a_ca_the_hub_comes_first(tmp_path: Path) -> None:
    with pytest.raises(NgraphError, match=r"no CA in .*; run 'ngraph enroll --hub"):
        Authority.of(tmp_path)


def test_every_test_that_the_threat_model_names_is_there() -> None:
    named = re.findall(r"`(?:(test_\w+\.py)::)?(test_\w+)`", (ROOT / "docs/security.md").read_text())
    sources = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}

    assert len(named) > 10
    file = ""
    for given, test in named:
        # A name without a file is of the one before.
        file = given or file
        assert f"def {test}(" in sources[file]


@pytest.mark.parametrize(("days", "said"), [(20, True), (60, False)])
def test_the_hubs_own_end_is_said_30_days_before(days: int, said: bool) -> None:
    state = HubState(0.0, time.time() + days * 86400, handshake.mine(), ())
    lines = list(hub_lines(state, [], lambda facts: None))
    assert any("the certificate of the hub 'hub' expires on" in line for line in lines) == said


def test_a_suite_that_is_collected_in_this_process_leaves_the_classes_of_keys_as_they_are(suite: Suite) -> None:
    """What it imports is dropped after it, and the compiled part of cryptography keeps the classes of its first use."""
    key = "ec.generate_private_key(ec.SECP256R1())"
    suite.write(f"from cryptography.hazmat.primitives.asymmetric import ec\n{key}\ndef test_it(): pass\n")
    assert suite.ids() == ["test_it"]
    assert certificates.new_key().curve.name == "secp256r1"
