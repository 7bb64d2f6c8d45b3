"""``ngraph agent``: a device's side of the lab, run on the device, kept running there, or started over ssh."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from pytest_ngraph.commands.base import Commands, add_command, add_config, lab_name, path, port, say
from pytest_ngraph.devices.agent import starting
from pytest_ngraph.devices.agent.permissions import Permissions, allowed_python, options_of
from pytest_ngraph.devices.registry import HubEntry, address_of, cache_folder, config_folder, read_registry
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.errors import DeviceOffline, DeviceUnusable, SpecError


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "agent", _run, "Offer this machine to the lab as the device NAME")
    parser.add_argument("name", type=lab_name, metavar="NAME", help="Name that it was enrolled with")
    parser.add_argument(
        "--pool", action="append", default=[], type=lab_name, metavar="POOL", help="Pool that it belongs to; repeatable"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--install", action="store_true", help="Write a systemd user unit that keeps it running")
    how.add_argument("--ssh", action="store_true", help="Start it on the machine of the registry's device NAME")
    parser.add_argument(
        "--folder", type=path, metavar="FOLDER", help="Its certificate (default: ~/.config/ngraph/agents/NAME)"
    )
    parser.add_argument(
        "--port",
        type=port,
        default=0,
        metavar="NUMBER",
        help="Port that the hub fetches results at (default: any free one)",
    )
    parser.add_argument(
        "--allow-packages",
        action="store_true",
        help="Install packages that runs compare with (--ngraph-against=NAME==VERSION), into folders of their own",
    )
    parser.add_argument(
        "--allow-python",
        action="append",
        default=[],
        type=_python,
        metavar="PATH",
        help="Interpreter, or folder of an environment, that runs may compare with; repeatable",
    )
    add_config(parser)


def _run(given: argparse.Namespace) -> None:
    if given.ssh:
        _over_ssh(given)
        return
    from pytest_ngraph.devices.agent import privacy
    from pytest_ngraph.devices.doors import engine

    engine.require()
    folder = given.folder.absolute() if given.folder else tls.agent_folder(config_folder(), given.name)
    hub = _hub(folder, given.name)
    engine.check_certificate(hub, tls.AGENT)
    if given.install:
        print("\n".join(starting.install(f"ngraph-agent-{given.name}", ["agent", given.name, *_options(given)])))
        return
    privacy.leave_environment()
    engine.configure()
    from pytest_ngraph.devices.agent.agent import run_agent

    scratch = cache_folder() / "agents" / given.name
    run_agent(hub, given.name, given.pool, given.port, scratch, say, _permissions(given))


def _permissions(given: argparse.Namespace) -> Permissions:
    return Permissions(given.allow_packages, tuple(given.allow_python))


def _python(text: str) -> str:
    try:
        return allowed_python(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed (expected {error})") from None


def _options(given: argparse.Namespace) -> list[str]:
    """Return what was given beside the name, as words for another start of the same agent."""
    words = [f"--pool={pool}" for pool in given.pool]
    words += [f"--folder={given.folder.absolute()}"] if given.folder else []
    words += [f"--port={given.port}"] if given.port else []
    return [*words, *options_of(_permissions(given))]


def _hub(folder: Path, name: str) -> HubEntry:
    """Return the hub of an agent's bundle."""
    file = folder / "address"
    try:
        address = file.read_text(encoding="utf-8").strip()
    except OSError:
        raise DeviceUnusable(
            f"no certificate of {name!r} in {folder}; on the CA's machine run 'ngraph enroll {name}' and unpack what "
            "it writes here, as it says"
        ) from None
    return HubEntry(
        "lab", address_of(str(file), address), folder / "ca.pem", folder / "certificate.pem", folder / "key.pem"
    )


def _over_ssh(given: argparse.Namespace) -> None:
    registry = read_registry(given.config, Path.cwd(), option="--config")
    if given.name not in registry.devices:
        raise SpecError(f"no device {given.name!r} in the registry (known: {', '.join(registry.names()) or 'none'})")
    if given.folder:
        raise SpecError("--folder is of this machine; the agent's folder on the other one is found by its name")
    command = starting.ssh_command(registry.devices[given.name], _options(given))
    say(f"{' '.join(command[-2:])}  (it ends with this command; to keep it: --install, on that machine)")
    try:
        status = subprocess.run(command).returncode
    except OSError as error:
        raise SpecError(f"ssh cannot be started: {error.strerror}") from None
    if status == 255:
        raise DeviceOffline(f"ssh cannot reach {registry.devices[given.name].ssh} without a question; try it by hand")
    if status:
        raise DeviceUnusable(f"the agent ended with status {status}")
