"""``ngraph enroll``: what the lab's CA does - certificates for hub, boards and users, their renewal, and their end.

It runs where the CA's key is, as a user that runs neither hub nor agent.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.commands.base import Commands, add_command, add_folder, folder_of, lab_name, path
from pytest_ngraph.devices.registry import address_of, is_loopback
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    from pytest_ngraph.devices.trust.authority import Authority

_UNPACK = "mkdir -p -m 700 ~/.config/ngraph && tar -xf {file} -C ~/.config/ngraph && rm {file}"
_REGISTRY = """\
  [tool.ngraph.hub.lab]
  address = "{address}"
  ca = "~/.config/ngraph/tls/ca.pem"
"""


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "enroll", _run, "Make, renew or revoke the certificate of the hub, a board or a user (the lab's CA)"
    )
    parser.add_argument("name", nargs="?", type=lab_name, metavar="NAME", help="Name of the agent or the user")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--client", action="store_true", help="For a user, not for an agent")
    who.add_argument("--hub", action="store_true", help="For the hub; makes the lab's CA at the first time")
    parser.add_argument(
        "--address", metavar="tls://HOST:PORT", help="How they reach the hub (default: what --hub was given last)"
    )
    parser.add_argument("--output", type=path, metavar="FILE", help="Bundle to write (default: NAME.tar, here)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--renew", action="store_true", help="Renew the certificate that they have; their key stays")
    what.add_argument("--revoke", action="store_true", help="Put their certificates on the list of those refused")
    what.add_argument(
        "--renew-ca", action="store_true", help="Make a new CA: every certificate of the old one loses its worth"
    )
    add_folder(parser, "The CA", "ca")


def _run(given: argparse.Namespace) -> None:
    from pytest_ngraph.devices.doors import engine
    from pytest_ngraph.devices.trust.authority import Authority

    if (bool(given.name) + given.hub) != (not given.renew_ca):
        raise SpecError("give either NAME, of a board or with --client of a user, or --hub, or --renew-ca")
    engine.require()
    folder = folder_of(given, "ca")
    first = given.hub and not (given.renew or given.revoke)
    authority = Authority.made(folder) if first else Authority.of(folder)
    role = tls.HUB if given.hub else tls.CLIENT if given.client else tls.AGENT
    name = given.name or "hub"
    if given.renew_ca:
        _renew_ca(authority)
    elif given.revoke:
        _revoke(authority, role, name)
    elif given.renew:
        _renew(authority, role, name, given.output)
    else:
        _enroll(authority, role, name, given)


def _enroll(authority: Authority, role: str, name: str, given: argparse.Namespace) -> None:
    address = _address(given.address, authority.folder)
    if role == tls.HUB:
        tls.write_private(authority.folder / "address", f"{address}\n".encode())
    file = given.output or Path(f"{name}.tar")
    tls.write_private(file, authority.bundle(role, name, address))
    print(f"{file}: a certificate for the {role} {name!r}, good for {tls.DAYS} days, by the CA in {authority.folder}")
    if is_loopback(address):
        print(f"It leads to {address}, which is this machine only; for another one give --address tls://HOST:PORT.")
    print("Its key is in it: copy it by ssh, and keep no other copy.")
    _say_how(file)
    if role == tls.HUB:
        print("  ngraph hub --host 0.0.0.0")
        print("The hub's user must not be able to read the CA's folder: run it as another user, or on another machine.")
    elif role == tls.CLIENT:
        print("next, in the project's pyproject.toml, with a table for each device:")
        print(_REGISTRY.format(address=address), end="")
        print('  [tool.ngraph.devices.NAME]\n  hub = "lab"\nthen: ngraph devices')
    else:
        print(f"  ngraph agent {name}")


def _say_how(file: Path) -> None:
    print(f"next, from here:\n  scp {file} MACHINE:\n  rm {file}")
    print(f"next, on that machine, as the user that it is for:\n  {_UNPACK.format(file=file.name)}")


def _address(given: str | None, folder: Path) -> str:
    if given is not None:
        return address_of("--address", given)
    try:
        return (folder / "address").read_text(encoding="utf-8").strip()
    except OSError:
        raise SpecError("it is not known how the hub is reached: give --address tls://HOST:PORT") from None


def _renew(authority: Authority, role: str, name: str, output: Path | None) -> None:
    file = output or Path(f"{name}.tar")
    tls.write_private(file, authority.renewal_bundle(role, name))
    print(f"{file}: the certificate of the {role} {name!r}, renewed for {tls.DAYS} days; its key stays where it is")
    _say_how(file)
    if role != tls.CLIENT:
        print("What runs there takes it into use within seconds; nothing is to be restarted.")


def _revoke(authority: Authority, role: str, name: str) -> None:
    count, file = authority.revoke(role, name), tls.revoked_file(authority.ca)
    print(f"{file}: {count} certificate{'s' * (count > 1)} of the {role} {name!r} revoked")
    print(
        f"next, from here, to the hub, which hands it on to agents as they join:\n  scp {file} HUB:.config/ngraph/hub/"
    )
    print("Running connections of theirs end within seconds; nothing is to be restarted.")
    if role == tls.HUB:
        print("The hub itself is among them: copy the list into ~/.config/ngraph/agents/NAME/ of every board, too.")


def _renew_ca(authority: Authority) -> None:
    cut_off = authority.renew_ca()
    print(f"{authority.folder}: a new CA; what the old one signed is worth nothing where its ca.pem was replaced")
    print("next, here: enroll everyone who is to stay, the hub first, and restart what runs with the old ones:")
    print("  ngraph enroll --hub")
    for identity in cut_off:
        print(f"  ngraph enroll {identity.words}")
