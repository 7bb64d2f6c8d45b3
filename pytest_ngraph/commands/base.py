"""What commands share: their place in the parser, and arguments that mean the same in all of them."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from pytest_ngraph.devices.registry import config_folder, is_name
from pytest_ngraph.options.settings import LONGEST_NAME_BYTES, fits

# Before the text of a line: what it is indented by, and a number, or what it is about.
_BEGIN = re.compile(r" *(?:\d+\. |[a-z ]{1,8}: +)?")
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def path(text: str) -> Path:
    """Read a path that was given. A shell leaves ``~`` as it is after ``--store=``."""
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    if not fits(path):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not allowed (expected names of at most {LONGEST_NAME_BYTES} bytes)"
        )
    return path


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int | None], help: str
) -> argparse.ArgumentParser:
    """Add a command. ``run`` gets what was given, prints what it has to say and raises NgraphError.

    It may return an exit status other than 0.
    """
    parser = commands.add_parser(name, help=help, description=help)
    parser.set_defaults(run=run)
    return parser


def takes_rest(parser: argparse.ArgumentParser) -> None:
    """Give a command what stands behind ``--``, which is for another program, as ``rest``."""
    parser.set_defaults(rest=[])
    parser.epilog = "Arguments behind -- are for pytest."


def add_store(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Give a command the option that says where the store is."""
    parser.add_argument(
        "--store", type=path, default=None, metavar="FILE", help=f"{purpose} (default: that of pytest's rootdir)"
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """Give a command the option that says where hubs and devices are registered."""
    parser.add_argument(
        "--config", type=path, metavar="FILE", help="Registry (default: pyproject.toml and ngraph.toml of this folder)"
    )


def add_folder(parser: argparse.ArgumentParser, what: str, default: str) -> None:
    """Give a command the option that says where the files of the hub, or of the CA, are."""
    parser.add_argument("--folder", type=path, metavar="FOLDER", help=f"{what} (default: ~/.config/ngraph/{default})")


def add_listening(parser: argparse.ArgumentParser, usual: int) -> None:
    """Give a command the options that say where it listens, and that systemd is to keep it running."""
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="Address of this machine to listen on, with TLS only (default: 127.0.0.1, this machine only)",
    )
    parser.add_argument(
        "--port", type=port, default=usual, metavar="NUMBER", help=f"Port to listen on (default: {usual})"
    )
    parser.add_argument("--install", action="store_true", help="Write a systemd user unit that keeps it running")


def folder_of(given: argparse.Namespace, default: str) -> Path:
    """Return the folder that was given, else the default one in the user's configuration."""
    return given.folder.absolute() if given.folder else config_folder() / default


def lab_name(text: str) -> str:
    """Read the name of a device, a pool or a user."""
    if not is_name(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed (expected [a-z0-9][a-z0-9_.-]*)")
    return text


def port(text: str) -> int:
    """Read a port to listen on."""
    if not text.isdecimal() or not 0 <= int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed (expected a number from 0, any free port, to 65535)")
    return int(text)


def say(text: str) -> None:
    """Print a line for the user at once."""
    print(text, flush=True)


def say_folded(text: str) -> None:
    """Print a line no wider than the terminal, where no word is; what continues stands below where its text began."""
    width = max(40, shutil.get_terminal_size().columns)
    for line in text.splitlines() or [""]:
        begin = _BEGIN.match(line)
        indent = " " * min(len(begin[0]) if begin is not None else 0, 12)
        say(
            "\n".join(
                textwrap.wrap(
                    line, width, subsequent_indent=indent or "  ", break_on_hyphens=False, break_long_words=False,
                    drop_whitespace=True,
                )
            )
        )  # fmt: skip
