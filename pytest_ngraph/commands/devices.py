"""``ngraph devices``: the lab's devices, who uses them, and what is wrong with them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from pytest_ngraph.commands.base import Commands, add_command, add_config
from pytest_ngraph.devices.registry import Registry, read_registry
from pytest_ngraph.errors import DeviceOffline, DeviceUnusable

_SECONDS = 3.0


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "devices", _run, "Say which devices are online, and who has them measure since when")
    add_config(parser)


def _run(given: argparse.Namespace) -> None:
    registry = read_registry(given.config, Path.cwd(), Path.home(), option="--config")
    for line in device_lines(registry):
        print(line, flush=True)


def device_lines(registry: Registry) -> Iterator[str]:
    """Yield each hub's table; a hub that is down says so within seconds."""
    if not registry.hubs:
        yield "no hub in pyproject.toml, ngraph.toml or ~/.config/ngraph/ngraph.toml; this machine is 'local'"
        yield "to set up a lab, on the machine that is to be the hub: ngraph hub"
        return
    from pytest_ngraph.devices import engine, handshake, status, tls

    engine.require()
    for hub in registry.hubs.values():
        yield f"hub {hub.name}  {hub.address}"
        entries = [entry for entry in registry.devices.values() if entry.hub == hub.name]
        try:
            mine = engine.check_certificate(hub, tls.CLIENT)
            with engine.connect(hub, _SECONDS) as client:
                state = engine.hub_state(client)
        except (DeviceOffline, DeviceUnusable) as reason:
            yield f"  ! {reason}"
            yield from (f"  {entry.name:<16}unknown: its hub is not reached" for entry in entries)
            continue
        yield from status.hub_lines(state, entries, handshake.difference)
        if warning := mine.warning():
            yield f"  ! {warning}"
