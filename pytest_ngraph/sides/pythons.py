"""An interpreter of another environment: found, asked once what it has, and refused where no worker runs in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import digest
from pytest_ngraph.texts.shown import one_line

OLDEST = (3, 10)
# What every worker imports.
_NEEDED = ("numpy",)
_SECONDS = 120.0
# Of ours: another interpreter would take its standard library from it, or find modules of this environment.
_OURS = ("PYTHONHOME", "PYTHONPATH", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__")
# It runs in versions of Python that are refused, too. No file of the folder it starts in is imported.
_QUESTION = """
import sys
sys.path[:] = [each for each in sys.path if each]
import json
facts = {"version": list(sys.version_info[:3]), "implementation": sys.implementation.name, "prefix": sys.prefix}
if sys.version_info >= (3, 8):
    import hashlib, importlib.metadata, importlib.util, os, sysconfig
    found = {}
    for each in importlib.metadata.distributions():
        record = (each.read_text("RECORD") or "") + (each.read_text("direct_url.json") or "")
        name = each.metadata["Name"]
        if name:
            found.setdefault(name, [each.version, hashlib.sha256(record.encode("utf-8", "replace")).hexdigest()])
    facts["distributions"] = found
    facts["tag"] = str(sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag)
    facts["platform"] = sysconfig.get_platform()
    facts["executable"] = os.path.realpath(sys.executable)
    facts["absent"] = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
    facts["pip"] = importlib.util.find_spec("pip") is not None
sys.stdout.write("\\n" + json.dumps(facts) + "\\n")
"""


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter: its path as it is started, its binary tag and platform, and the distributions that it has.

    ``versions`` are by normalised name, in order. ``content`` is a digest of the interpreter's place, its version and
    its distributions with their records. ``has_pip`` says that it can install.
    """

    path: str
    version: tuple[int, ...]
    tag: str
    platform: str
    versions: tuple[tuple[str, str], ...]
    content: str
    has_pip: bool


def find(text: str, rootdir: Path) -> Path:
    """Return the interpreter that a path names: a program, or the folder of an environment. Raise SpecError if none.

    Relative to the rootdir; a name without a folder is looked for on PATH, too. Links stay: an environment is known by
    the one that is started.
    """
    given = Path(os.path.normpath(rootdir / Path(text).expanduser()))
    program = given / "bin" / "python" if given.is_dir() else given
    if program.is_file():
        return program
    if given.is_dir():
        raise SpecError(f"python:{text}: {given} is not the folder of an environment: it has no bin/python")
    if "/" not in text and (found := shutil.which(text)):
        return Path(found)
    raise SpecError(f"python:{text}: there is no {given} (expected an interpreter or the folder of an environment)")


def environment(program: str) -> dict[str, str]:
    """Return the variables that an interpreter is started with: of another one without what is for this one only."""
    return {name: value for name, value in os.environ.items() if program == sys.executable or name not in _OURS}


def ask(program: Path, what: str) -> Python:
    """Ask an interpreter what it is. Raise SpecError, about ``what``, where it is none that a worker runs in."""
    command = [str(program), "-c", _QUESTION, *_NEEDED]
    try:
        done = subprocess.run(
            command, env=environment(str(program)), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS
        )
    except OSError as error:
        raise SpecError(f"{what}: {program} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise SpecError(f"{what}: {program} did not say what it is within {_SECONDS:.0f} s") from None
    try:
        facts = json.loads(done.stdout.decode(errors="replace").splitlines()[-1])
        version = tuple(int(part) for part in facts["version"])
    except (ValueError, LookupError, TypeError):
        said = one_line((done.stderr or done.stdout).decode(errors="replace")) or f"it ended with {done.returncode}"
        raise SpecError(f"{what}: {program} is no Python interpreter that works: {said}") from None
    shown = ".".join(map(str, version))
    if facts["implementation"] != "cpython" or version < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise SpecError(
            f"{what}: {program} is {facts['implementation']} {shown}, and a worker needs CPython {least} or newer"
        )
    if facts["absent"]:
        absent = ", ".join(facts["absent"])
        raise SpecError(f"{what}: {program} has no {absent}, and a worker needs it ({program} -m pip install {absent})")
    return _read(program, facts, version)


def _read(program: Path, facts: Mapping[str, Any], version: tuple[int, ...]) -> Python:
    from packaging.utils import canonicalize_name

    held = facts["distributions"]
    found = {str(canonicalize_name(name)): (str(number), record) for name, (number, record) in held.items()}
    known = [facts["executable"], facts["prefix"], version, facts["tag"], facts["platform"], sorted(found.items())]
    return Python(
        str(program),
        version,
        str(facts["tag"]),
        str(facts["platform"]),
        tuple(sorted((name, number) for name, (number, _) in found.items())),
        digest(known),
        bool(facts["pip"]),
    )
