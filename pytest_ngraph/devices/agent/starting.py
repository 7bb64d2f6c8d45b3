"""How hub and agents are started for good, by systemd, and agents from another machine, by ssh."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from pytest_ngraph import interpreter
from pytest_ngraph.devices.registry import DeviceEntry, config_folder
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.errors import SpecError

_UNIT = """\
[Unit]
Description=ngraph {words}

[Service]
ExecStart={command}
Restart=always
RestartSec=15
Environment=PYTHONUNBUFFERED=1
UMask=0077

[Install]
WantedBy=default.target
"""


def command(python: str, words: Sequence[str]) -> list[str]:
    """Return the command of ``ngraph WORDS`` by an interpreter."""
    return interpreter.command("pytest_ngraph.cli", *words, python=python)


def unit(words: Sequence[str]) -> str:
    """Return a systemd user unit that keeps ``ngraph WORDS`` of this interpreter running."""
    return _UNIT.format(words=" ".join(words[:2]), command=" ".join(map(_quoted, command(sys.executable, words))))


def _quoted(word: str) -> str:
    """Quote a word of a command line as systemd.syntax(7) and systemd.service(5) want it."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if plain != word or any(letter.isspace() or letter in "';" for letter in word) else word


def install(service: str, words: Sequence[str]) -> list[str]:
    """Write the unit of ``ngraph WORDS``. Return what a user is shown: its file, its text, and the commands to run."""
    units = config_folder().parent / "systemd" / "user"
    file, text = units / f"{service}.service", unit(words)
    try:
        units.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{units}: cannot be made: {error.strerror}") from None
    tls.write_private(file, text.encode("utf-8"))
    return [
        f"{file}:",
        "",
        *(f"  {line}".rstrip() for line in text.splitlines()),
        "",
        "next:",
        "  systemctl --user daemon-reload",
        f"  systemctl --user enable --now {service}",
        "  loginctl enable-linger     # so that it also runs while nobody is logged in",
        f"  journalctl --user -u {service} -f",
    ]


def ssh_command(entry: DeviceEntry, words: Sequence[str] = ()) -> list[str]:
    """Return the command that starts a device's agent over ssh. It ends with the connection.

    A list of arguments, so that no shell takes it apart here. The far side's shell gets quoted words, further
    ``words`` of the command among them. Raises SpecError for a device without ``ssh``, and for a pool.
    """
    if entry.resource is None:
        raise SpecError(f"device {entry.name!r} is a pool: name one of its agents, on its machine: ngraph agent NAME")
    if entry.ssh is None:
        raise SpecError(
            f'device {entry.name!r} has no ssh; add ssh = "USER@HOST" in [tool.ngraph.devices.{entry.name}]'
        )
    there = command(entry.python or "python3", ["agent", entry.resource, *words])
    options = ["-tt", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
    return ["ssh", *options, "--", entry.ssh, shlex.join(there)]
