"""``ngraph hub``: the lab's hub, which agents and clients meet at."""

from __future__ import annotations

import argparse

from pytest_ngraph.commands.base import Commands, add_command, add_folder, add_listening, folder_of, say
from pytest_ngraph.devices.agent import starting
from pytest_ngraph.devices.registry import PORT
from pytest_ngraph.devices.trust import tls


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "hub", _run, "Run the lab's hub, with what 'ngraph enroll --hub' made")
    add_listening(parser, PORT)
    add_folder(parser, "What was unpacked for the hub", "hub")


def _run(given: argparse.Namespace) -> None:
    from pytest_ngraph.devices.doors import engine

    engine.require()
    folder = folder_of(given, "hub")
    tls.HubFolder.of(folder)
    if given.install:
        words = ["hub", f"--host={given.host}", f"--port={given.port}", f"--folder={folder}"]
        print("\n".join(starting.install("ngraph-hub", words)))
        return
    engine.configure()
    from pytest_ngraph.devices.lab.hub import run_hub

    run_hub(folder, given.host, given.port, say)
