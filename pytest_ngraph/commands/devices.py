"""``ngraph devices``: the lab's devices, who uses them, and what is wrong with them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_ngraph.commands.base import Commands, add_command, add_config
from pytest_ngraph.devices.registry import Registry, read_registry
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.errors import DeviceOffline, DeviceUnusable

_SECONDS = 3.0


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "devices", _run, "Say which devices are online, and who has them measure since when")
    add_config(parser)


def _run(given: argparse.Namespace) -> int:
    registry = read_registry(given.config, Path.cwd(), option="--config")
    unreached: list[str] = []
    for line in device_lines(registry, unreached.append):
        print(line, flush=True)
    # What asks for a lab in a script must not take a hub that is down for one without devices.
    return 1 if unreached else 0


def device_lines(registry: Registry, unreached: Callable[[str], None]) -> Iterator[str]:
    """Yield each hub's table. A hub that is down says so within seconds, and ``unreached`` gets its name."""
    if not registry.hubs:
        yield "no hub in pyproject.toml, ngraph.toml or ~/.config/ngraph/ngraph.toml; this machine is 'local'"
        yield "to set up a lab, on the machine of its CA: ngraph enroll --hub --address tls://HOST:PORT"
        return
    from pytest_ngraph.devices.doors import engine, handshake, status
    from pytest_ngraph.devices.signing.renewing import Renewal

    engine.require()
    for hub in registry.hubs.values():
        yield f"hub {hub.name}  {hub.address}"
        entries = [entry for entry in registry.devices.values() if entry.hub == hub.name]
        notes: list[str] = []
        warning = Renewal(hub, notes.append).look()
        try:
            engine.check_certificate(hub, tls.CLIENT)
            with engine.connect(hub, _SECONDS) as client:
                state = engine.hub_state(client)
        except (DeviceOffline, DeviceUnusable) as reason:
            unreached(hub.name)
            yield f"  ! {reason}"
            yield from (f"  {entry.name:<16}unknown: its hub is not reached" for entry in entries)
            continue
        yield from status.hub_lines(state, entries, handshake.difference)
        yield from (f"  {note}" for note in notes)
        if warning:
            yield f"  ! {warning}"
