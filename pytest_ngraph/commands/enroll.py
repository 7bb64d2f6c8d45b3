"""``ngraph enroll``: certificates for boards and users, and a new CA where one of them must lose its worth."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.commands.base import Commands, add_command, add_hub_folder, hub_folder, lab_name, path
from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    from pytest_ngraph.devices.tls import Authority

_UNPACK = "mkdir -p -m 700 ~/.config/ngraph && tar -xf {file} -C ~/.config/ngraph && rm {file}"
_REGISTRY = """\
  [tool.ngraph.hub.lab]
  address = "{address}"
  ca = "~/.config/ngraph/tls/ca.pem"
"""


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "enroll", _run, "Make a certificate for an agent or a user (on the hub's machine)")
    parser.add_argument("name", nargs="?", type=lab_name, metavar="NAME", help="Name of the agent or the user")
    parser.add_argument("--client", action="store_true", help="For a user, not for an agent")
    parser.add_argument(
        "--address", metavar="tls://HOST:PORT", help="How they reach the hub (default: what it last listened on)"
    )
    parser.add_argument("--output", type=path, metavar="FILE", help="Bundle to write (default: NAME.tar, here)")
    parser.add_argument(
        "--renew-ca", action="store_true", help="Make a new CA: every certificate of the old one loses its worth"
    )
    add_hub_folder(parser)


def _run(given: argparse.Namespace) -> None:
    from pytest_ngraph.devices import engine, tls
    from pytest_ngraph.devices.registry import is_loopback

    if bool(given.name) == given.renew_ca:
        raise SpecError("give either NAME, of a board or with --client of a user, or --renew-ca")
    engine.require()
    authority = tls.Authority.of(hub_folder(given))
    if given.renew_ca:
        _renew(authority)
        return
    address = _address(given.address, authority.folder)
    role = tls.CLIENT if given.client else tls.AGENT
    file = given.output or Path(f"{given.name}.tar")
    tls.write_private(file, authority.bundle(role, given.name, address))
    print(f"{file}: a certificate for the {role} {given.name!r}, good for {tls.DAYS} days")
    if is_loopback(address):
        print(f"It leads to {address}, which is this machine only; for another one give --address tls://HOST:PORT.")
    print("It is worth a shell on every board of the lab: copy it by ssh, and keep no other copy.")
    print(f"next, from here:\n  scp {file} MACHINE:\n  rm {file}")
    print(f"next, on that machine:\n  {_UNPACK.format(file=file.name)}")
    if given.client:
        print("next, in the project's pyproject.toml, with a table for each device:")
        print(_REGISTRY.format(address=address), end="")
        print('  [tool.ngraph.devices.NAME]\n  hub = "lab"\nthen: ngraph devices')
    else:
        print(f"  ngraph agent {given.name}")


def _address(given: str | None, folder: Path) -> str:
    from pytest_ngraph.devices.registry import address_of

    if given is not None:
        return address_of("--address", given)
    try:
        return (folder / "address").read_text(encoding="utf-8").strip()
    except OSError:
        raise SpecError("the hub has not run yet: give --address, or start 'ngraph hub' first") from None


def _renew(authority: Authority) -> None:
    cut_off = authority.renew_ca()
    print(f"{authority.folder}: a new CA; what the old one signed is worth nothing once the hub has been restarted")
    print("next, here: restart 'ngraph hub', then enroll everyone who is to stay:")
    for identity in cut_off:
        print(f"  {identity.renewal}")
