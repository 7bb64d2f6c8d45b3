"""``ngraph simulate``: what a lab of many devices asks of its hub, tried on this machine without any of them."""

from __future__ import annotations

import argparse

from pytest_ngraph.commands.base import Commands, add_command, say
from pytest_ngraph.errors import NgraphError


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "simulate", _run, "Try a lab of many simulated devices: placement, fairness, load")
    parser.add_argument("--agents", type=_number, default=300, metavar="N", help="Devices (default: 300)")
    parser.add_argument("--clients", type=_number, default=4, metavar="N", help="Users who ask for all (default: 4)")
    parser.add_argument(
        "--seconds", type=_seconds, default=60.0, metavar="S", help="How long they ask (default: 60), start-up apart"
    )
    parser.add_argument(
        "--request-seconds", type=_seconds, default=4.0, metavar="S", help="How long a measurement takes (default: 4)"
    )


def _number(text: str) -> int:
    from pytest_ngraph.devices.lab.simulation import MOST_AGENTS

    if not text.isdecimal() or not 1 <= int(text) <= MOST_AGENTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed (expected a number from 1 to {MOST_AGENTS})")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed (expected seconds from 0.1 to 3600)")
    return seconds


def _run(given: argparse.Namespace) -> None:
    from pytest_ngraph.devices.lab.simulation import Scale, simulate

    findings = simulate(Scale(given.agents, given.clients, given.seconds, given.request_seconds), say)
    for line in findings.lines():
        print(line)
    if findings.misplaced or findings.overlaps:
        raise NgraphError("requests were not where they should be, or not alone there; this is a bug: report it")
