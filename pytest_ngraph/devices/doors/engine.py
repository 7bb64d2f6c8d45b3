"""The engine beyond one machine, dask.distributed: how it is configured, secured and reached.

Nothing here is imported from it before it is used. Hub and agents are processes of their own and start from its
defaults and ``settings_in_code``, never from a user's YAML or environment. A client is part of the user's process, and
leaves the configuration that it finds there alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import getpass
import platform
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pytest_ngraph.devices.doors import handshake
from pytest_ngraph.devices.doors.status import AgentState, HubState
from pytest_ngraph.devices.registry import DeviceEntry, HubEntry
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.devices.trust.trust import Trust
from pytest_ngraph.errors import DeviceOffline, DeviceUnusable, SpecError

if TYPE_CHECKING:
    from distributed.security import Security

    from pytest_ngraph.devices.doors.client import LabClient

HEARTBEAT_SECONDS = 5.0
# Beyond this a hub has lost an agent whose link was cut, or an agent its hub.
LINK_SECONDS = 30
# What OpenSSL says where the other side holds this one's certificate for expired, or for that of another CA.
_FOR_GOOD = ("CERTIFICATE_EXPIRED", "UNKNOWN_CA")


class NotTaken(DeviceUnusable):
    """This side is not taken, and waiting would not help: it has to get another certificate, or another release."""


def require() -> None:
    """Raise SpecError where what remote devices need is not installed."""
    missing = [name for name in ("distributed", "cryptography") if find_spec(name) is None]
    if missing:
        raise SpecError(f'remote devices need {" and ".join(missing)}: pip install "pytest-ngraph[remote]"')


def settings_in_code() -> dict[str, Any]:
    """Return what differs from the defaults of dask.distributed in the processes of hub and agent."""
    return {
        # One measurement at a time on the device that it is for: never moved, never begun a second time.
        "distributed.scheduler.work-stealing": False,
        "distributed.scheduler.allowed-failures": 0,
        "distributed.scheduler.worker-ttl": f"{LINK_SECONDS}s",
        "distributed.scheduler.active-memory-manager.start": False,
        "distributed.comm.timeouts.tcp": f"{LINK_SECONDS}s",
        "distributed.comm.require-encryption": True,
        # Quiet: an agent shares the machine with what it measures.
        "distributed.worker.profile.enabled": False,
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        "distributed.admin.tick.interval": "5s",
        "distributed.admin.tick.cycle": "10s",
        "distributed.admin.tick.limit": "15s",
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.admin.system-monitor.disk": False,
        "distributed.admin.system-monitor.gil.enabled": False,
        # A hub keeps so many of the lines that agents send, each with samples in it.
        "distributed.admin.low-level-log-length": 100,
        # It would poll the GPU under test.
        "distributed.diagnostics.nvml": False,
        # What goes wrong; see also logs.py.
        "distributed.logging": {"distributed": "error"},
        # No web pages: they would be served without TLS.
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }


def configure() -> None:
    """Configure this process as a hub's or an agent's, before distributed is imported, as it reads some of it then."""
    import dask.config

    dask.config.refresh(paths=[], env={})
    dask.config.set(settings_in_code())


# Security


@functools.cache
def _pinned() -> type[Security]:
    from distributed.security import Security

    class Pinned(Security):
        """Mutual TLS that also insists on the role of its peer. dask.distributed asks only for the same CA."""

        # What no certificate shows by itself: which are revoked, and when this side's own was renewed.
        trust: Trust

        def get_listen_args(self, role: str) -> dict[str, Any]:
            given: dict[str, Any] = super().get_listen_args(role)
            self.trust.watch(given["ssl_context"])
            return {**given, "trust": self.trust}

        def get_connection_args(self, role: str) -> dict[str, Any]:
            given: dict[str, Any] = super().get_connection_args(role)
            self.trust.watch(given["ssl_context"])
            given["trust"] = self.trust
            # Hubs connect to agents; everybody else to the hub.
            given["server_hostname"] = tls.host_of(tls.AGENT if role == "scheduler" else tls.HUB)
            given["ssl_context"].check_hostname = True
            return given

    return Pinned


def security(ca: Path, certificate: Path, key: Path) -> Security:
    """Return mutual TLS with these files, for any role. Nothing of it comes from dask's configuration."""
    files = {}
    for role in ("scheduler", "worker", "client"):
        files[f"tls_{role}_cert"], files[f"tls_{role}_key"] = str(certificate), str(key)
    made: Any = _pinned()(
        require_encryption=True,
        tls_ca_file=str(ca),
        tls_ciphers=None,
        tls_min_version=ssl.TLSVersion.TLSv1_2,
        tls_max_version=None,
        **files,
    )
    made.trust = Trust(ca, certificate, key)
    return cast("Security", made)


def check_certificate(hub: HubEntry, role: str) -> tls.Identity:
    """Return whose certificate it is that this side shows to a hub.

    Raises DeviceUnusable, with what to do, for files that are missing, readable by others, expired or of another role.
    """
    enrol = "NAME --client" if role == tls.CLIENT else "NAME"
    for path in (hub.ca, hub.certificate, hub.key):
        if not path.is_file():
            raise DeviceUnusable(
                f"hub {hub.name!r}: no file {path}; on the CA's machine run 'ngraph enroll {enrol}' and unpack what "
                "it writes here, as it says"
            )
    tls.check_private(hub.key)
    mine = tls.identity_of(hub.certificate)
    if mine.role != role:
        raise DeviceUnusable(f"{hub.certificate}: is the certificate of the {mine.role} {mine.name!r}, not of a {role}")
    if mine.days_left < 0:
        raise DeviceUnusable(f"{hub.certificate}: {mine.warning()}")
    tls.check_pair(hub.certificate, hub.key)
    return mine


def context(hub: HubEntry) -> ssl.SSLContext:
    """Return how this side connects: with its certificate, and to the lab's only.

    Raises DeviceUnusable where one of its files cannot be read, or is not what it must be.
    """
    with _usable(str(hub.ca)):
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(hub.ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with _usable(f"{hub.certificate} with its key {hub.key}"):
        context.load_cert_chain(hub.certificate, hub.key)
    return context


@contextlib.contextmanager
def _usable(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "reason", None) or error.strerror or str(error)
        raise DeviceUnusable(
            f"{what} cannot be used ({why}); get a new bundle from 'ngraph enroll' on the CA's machine"
        ) from None


# Reaching a hub


def parts_of(address: str) -> tuple[str, int]:
    """Return host and port of ``tls://host:port``."""
    host, _, port = address.removeprefix("tls://").rpartition(":")
    return host.strip("[]"), int(port)


def reached_at(host: str, port: int) -> str:
    """Return the address by which others reach what listens on this machine."""
    name = socket.getfqdn() if host in ("0.0.0.0", "::") else host.strip("[]")  # noqa: S104 - compared, not bound
    return f"tls://[{name}]:{port}" if ":" in name else f"tls://{name}:{port}"


def cannot_listen(what: str, host: str, port: int, error: OSError) -> SpecError:
    """Return what to say where a hub or a signer (``what``) cannot listen."""
    taken = error.errno == errno.EADDRINUSE
    hint = f"another {what}? or give --port" if taken else "give --host an address of this machine"
    return SpecError(f"cannot listen on {host}:{port}: {error.strerror or error} ({hint})")


def probe(hub: HubEntry, seconds: float) -> str:
    """See whether a hub is there and takes this side's certificate. Return this machine's address as the hub sees it.

    distributed itself says no more than that a stream was closed. Raises DeviceOffline where nothing answers, and
    DeviceUnusable where the two sides do not accept each other.
    """
    name = f"hub {hub.name!r} at {hub.address}"
    with reach(hub, name, tls.HUB, seconds) as stream:
        try:
            # A hub speaks first, once it has accepted a certificate.
            refused = "" if stream.recv(1) else "it closed the connection"
        except TimeoutError:
            raise DeviceOffline(f"{name} takes connections but does not answer") from None
        except OSError as error:
            refused = getattr(error, "reason", None) or str(error)
        if refused:
            raise not_accepted(name, hub, refused)
        return str(stream.getsockname()[0])


def reach(entry: HubEntry, name: str, role: str, seconds: float) -> ssl.SSLSocket:
    """Return a connection to a hub or a signer, by its role. ``name`` is what messages call it.

    The other side has not yet said whether it takes this one's certificate. Raises DeviceOffline where nothing answers,
    and DeviceUnusable where it is not somebody of this role and this lab, or where this side's own files are of no use.
    """
    # Before anybody is asked: what is wrong with the files here is no fault of the other side.
    own = context(entry)
    try:
        plain = socket.create_connection(parts_of(entry.address), timeout=seconds)
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise DeviceOffline(f"{name} does not answer ({why}); on its machine run 'ngraph {role}'") from None
    # Where a handshake fails, it closes the connection.
    try:
        return own.wrap_socket(plain, server_hostname=tls.host_of(role))
    except ssl.SSLCertVerificationError as error:
        raise DeviceUnusable(
            f"{name} shows a certificate that is not valid as a {role}'s under {entry.ca}: {error.verify_message}; get "
            "a new bundle from 'ngraph enroll' there"
        ) from None
    except (ssl.SSLEOFError, ConnectionError) as error:
        # One that ends or begins, or a tunnel to one that is not there.
        raise DeviceOffline(f"{name} takes connections and drops them ({error})") from None
    except ssl.SSLError as error:
        raise DeviceUnusable(f"{name}: what listens there does not speak TLS as a {role} does ({error})") from None
    except OSError:
        raise DeviceOffline(f"{name} takes connections but does not answer") from None


def not_accepted(name: str, entry: HubEntry, why: str) -> DeviceUnusable:
    """Return what to say where the other side does not take this one's certificate: NotTaken where that is for good.

    It is not where a connection is only cut: the hub may just end, or cannot read its list of revoked certificates.
    """
    said = why.upper().replace(" ", "_")
    kind = NotTaken if any(each in said for each in _FOR_GOOD) else DeviceUnusable
    return kind(
        f"{name} does not accept the certificate {entry.certificate} ({why}); get a new one from 'ngraph enroll' on "
        "the CA's machine"
    )


def connect(hub: HubEntry, seconds: float = 10.0) -> LabClient:
    """Connect to a hub as a client. The caller closes the client.

    Raises DeviceOffline where no hub answers within that time, DeviceUnusable where the two sides do not accept each
    other or run different releases.
    """
    require()
    check_certificate(hub, tls.CLIENT)
    probe(hub, seconds)
    from pytest_ngraph.devices.doors.client import LabClient

    try:
        client = LabClient(hub, myself(), security(hub.ca, hub.certificate, hub.key), seconds)
    except ImportError as refused:
        raise DeviceUnusable(f"hub {hub.name!r} at {hub.address}: {refused}") from None
    except (OSError, asyncio.TimeoutError) as error:
        raise DeviceOffline(f"hub {hub.name!r} at {hub.address} does not answer ({error})") from None
    try:
        unlike = handshake.difference(hub_state(client).facts)
        if unlike is not None:
            raise DeviceUnusable(f"hub {hub.name!r} at {hub.address}: {unlike}")
    except BaseException:
        client.close(timeout=seconds)
        raise
    return client


def myself() -> str:
    """Return ``user@machine``, for those who wait for a device that this run holds."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return re.sub(r"[^A-Za-z0-9_.@-]", "_", f"{user}@{platform.node()}")[:80]


def resources(entry: DeviceEntry) -> Mapping[str, float]:
    """Return what a task must ask for: all of one agent, or of any agent of a pool."""
    return {f"pool:{entry.pool}": 1} if entry.pool is not None else {f"device:{entry.resource}": 1}


def agents(client: LabClient) -> dict[str, AgentState]:
    """Return the hub's book: every agent it has seen since it was set up, also those that are offline, by name."""
    return {agent.name: agent for agent in hub_state(client).agents}


def hub_state(client: LabClient) -> HubState:
    """Return what a hub says of itself and its agents. Raises DeviceOffline where it went away."""
    try:
        answer = client.sync(client.scheduler.ngraph_devices)
    except (OSError, asyncio.TimeoutError) as error:
        raise DeviceOffline(f"the hub at {client.scheduler.address} went away ({error})") from None
    return HubState.from_json(answer)
