"""``ngraph signer``: what lets the lab's certificates renew themselves, beside the CA."""

from __future__ import annotations

import argparse

from pytest_ngraph.commands.base import Commands, add_command, add_folder, add_listening, folder_of, say
from pytest_ngraph.devices.agent import starting
from pytest_ngraph.devices.registry import SIGNER_PORT, address_of


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "signer", _run, "Renew certificates that hold and end soon, for those who have them (the lab's CA)"
    )
    add_listening(parser, SIGNER_PORT)
    parser.add_argument(
        "--address", metavar="tls://HOST:PORT", help="How others reach it (default: by this machine's name)"
    )
    add_folder(parser, "The CA", "ca")


def _run(given: argparse.Namespace) -> None:
    from pytest_ngraph.devices.doors import engine
    from pytest_ngraph.devices.trust.authority import Authority

    engine.require()
    folder = folder_of(given, "ca")
    address = None if given.address is None else address_of("--address", given.address, SIGNER_PORT)
    Authority.of(folder)
    if given.install:
        words = ["signer", f"--host={given.host}", f"--port={given.port}", f"--folder={folder}"]
        words += [f"--address={address}"] if address else []
        print("\n".join(starting.install("ngraph-signer", words)))
        return
    engine.configure()
    from pytest_ngraph.devices.signing.signer import run_signer

    run_signer(folder, given.host, given.port, address, say)
