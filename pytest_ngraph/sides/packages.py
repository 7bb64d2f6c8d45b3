"""One version of a package in a folder of its own, installed there once and kept: the environment is never touched."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.files import file_digest
from pytest_ngraph.sides import pythons
from pytest_ngraph.sides.asked import Package
from pytest_ngraph.sides.pythons import Python
from pytest_ngraph.spec.cells import digest
from pytest_ngraph.texts.shown import excerpt
from pytest_ngraph.workloads import folders

# Hidden, so that pytest finds no tests in what is kept below a rootdir.
_KEPT = ".package-"
# By this name of its folder a module is known as an installed one, and no file of the project.
_FILES = "site-packages"
_SECONDS = 3600.0
# For a list of releases, with pip's own attempts.
_LISTING_SECONDS = 300.0
_MOST_LINES, _MOST_VERSIONS = 8, 8
_HASH_LETTERS = 7
# No file of the folder that it starts in is imported; -P, which does the same, came with Python 3.11.
_PIP = (
    "-c",
    "import sys; sys.path[:] = filter(None, sys.path); from runpy import run_module; "
    "run_module('pip', run_name='__main__', alter_sys=True)",
)
# What of a user's settings says where packages come from. Everything else could lead them to another place, or hold
# the version that is installed here.
_WHERE_FROM = frozenset({
    "index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert", "client-cert", "proxy",
    "timeout", "default-timeout", "retries", "keyring-provider", "cache-dir", "no-cache-dir", "prefer-binary",
    "only-binary", "no-binary", "no-build-isolation", "build-constraint", "use-feature", "use-deprecated",
})  # fmt: skip
_NOT_OURS = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_REQUIRE_HASHES", "UV_TARGET")
_FROM_VERSIONS = re.compile(r"\(from versions: ([^)]*)\)")
_AVAILABLE = "Available versions:"
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")
# Written by what installs, with what differs from one installation to the next.
_LOCK = Path(".lock")
_BY_INSTALLERS = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"})


@dataclass(frozen=True, slots=True)
class Installed:
    """A folder for the front of an import path, the distributions in it, the digest of its files, and its name.

    What was installed from a wheel has the first letters of the wheel's digest in its ``label``.
    """

    folder: Path
    versions: tuple[tuple[str, str], ...]
    content: str
    label: str


def keep(
    package: Package,
    python: Python | None,
    cache: Path,
    progress: Callable[[str], None],
    *,
    rootdir: Path,
    why_not: str = "",
) -> Installed:
    """Return the folder that has a package, without what it requires, installed where it is not kept whole already.

    ``python`` is the interpreter that it is for, None for this one. A wheel lies below ``rootdir`` where its path is a
    relative one, and is known by its content. ``why_not`` says why nothing may be installed,
    where that is so. Raises SpecError where it cannot be installed, and where it would have to be and may not.
    """
    source, built = _source(package, rootdir)
    label = f"{package.name}=={package.version}@{built[:_HASH_LETTERS]}" if built else str(package)
    tag = python.tag if python else str(sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag)
    platform = python.platform if python else sysconfig.get_platform()
    key = digest([label, tag, platform, *([built] if built else [])])[:16]
    folder = cache / f"{_KEPT}{package.name}-{package.version}-{key}"
    if said := folders.drop_damaged(folder):
        progress(said)
    meta = folders.read(folder)
    if meta is None and why_not:
        raise SpecError(f"{package} is not there: {why_not}")
    if meta is None:
        progress(f"installing {label} into a folder of its own")
        folders.publish(folder, lambda scratch: _install(package, source, python, scratch / _FILES), deep=True)
        meta = folders.read(folder)
    if meta is None:
        raise OSError(f"{folder}: what was just written there cannot be read back")
    versions = tuple((str(name), str(version)) for name, version in meta["versions"])
    return Installed(folder / _FILES, versions, str(meta["content"]), label)


def releases(name: str) -> tuple[str, ...]:
    """Return the releases of a package that the index has for this interpreter, in order, without pre-releases.

    Raises SpecError where pip is not here, the index has none, or does not answer.
    """
    if not _has_pip():
        raise SpecError(f"{name}: releases are asked for with pip, which is not here ({sys.executable} -m ensurepip)")
    words = [sys.executable, *_PIP, "index", "versions", "--no-input", "--disable-pip-version-check", "--", name]
    own = _settings_of_pip(sys.executable)
    try:
        done = subprocess.run(words, env=own, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LISTING_SECONDS)
    except subprocess.TimeoutExpired:
        raise SpecError(
            f"{name}: the index did not say within {_LISTING_SECONDS:g} s which releases it has; see whether pip "
            f"reaches it ({sys.executable} -m pip index versions {name})"
        ) from None
    found = read_releases(done.stdout.decode(errors="replace"))
    if done.returncode or not found:
        said = _CREDENTIALS.sub("****@", done.stderr.decode(errors="replace"))
        raise SpecError(f"{name}: the index has no release of it for {sys.executable}\n{excerpt(said)}".rstrip())
    return found


def read_releases(output: str) -> tuple[str, ...]:
    """Read what ``pip index versions`` prints: the stable ones, each once, in order. What is no version is left out."""
    from packaging.version import InvalidVersion, Version

    found = set()
    for line in output.splitlines():
        if line.startswith(_AVAILABLE):
            for text in line.removeprefix(_AVAILABLE).split(","):
                try:
                    version = Version(text.strip())
                except InvalidVersion:
                    continue
                if not version.is_prerelease:
                    found.add(version)
    return tuple(map(str, sorted(found)))


def unmet(folder: Path, package: Package, python: Python | None, available: Mapping[str, str]) -> Iterator[str]:
    """Yield what a package in its folder asks for and does not get, by the versions that its interpreter has."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion

    there_is = {} if python is None else {"python_version": ".".join(map(str, python.version[:2]))}
    extras = [{**there_is, "extra": extra} for extra in ("", *package.extras)]
    for each in importlib.metadata.distributions(path=[str(folder)]):
        for text in each.requires or ():
            try:
                asked = Requirement(text)
                if asked.marker is not None and not any(map(asked.marker.evaluate, extras)):
                    continue
                version = available.get(canonicalize_name(asked.name))
                met = version is not None and asked.specifier.contains(version, prereleases=True)
            except (InvalidRequirement, InvalidVersion):  # of before there was a standard
                continue
            if not met:
                there = f"which is {version} here" if version else "which is not here"
                yield f"{each.metadata['Name']} {each.version} asks for {asked.name}{asked.specifier}, {there}"


def _source(package: Package, rootdir: Path) -> tuple[str, str]:
    """Return what is installed as an installer is told it, and the digest of the wheel that it is, if it is one."""
    if not package.wheel:
        return str(package), ""
    path = Path(os.path.normpath(rootdir / Path(package.wheel).expanduser()))
    try:
        return str(path), file_digest(path)
    except OSError as error:
        raise SpecError(f"{package}: {path} cannot be read: {error.strerror} (a wheel of this machine)") from None


def _install(package: Package, source: str, python: Python | None, target: Path) -> dict[str, Any]:
    target.mkdir()
    program = python.path if python else sys.executable
    command, environment = _installer(program, python.has_pip if python else _has_pip())
    words = [*command, "--no-deps", *(["--no-index"] if package.wheel else []), "--target", str(target), source]
    try:
        done = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS)
    except OSError as error:
        raise SpecError(f"{package}: {words[0]} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise SpecError(f"{package}: installing it did not end within {_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise _failed(package, program, (done.stderr + done.stdout).decode(errors="replace"))
    versions = _versions(target)
    if dict(versions).get(package.name) is None or not is_version(versions[package.name], package.version):
        got = ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) or "nothing"
        raise SpecError(f"{package}: what was installed is {got}")
    return {"versions": sorted(versions.items()), "content": digest(sorted(_contents(target)))}


def _has_pip() -> bool:
    # Along the path only: asked for pip, the finder of setuptools drops distutils where it is loaded, with a warning.
    return PathFinder.find_spec("pip") is not None


def _installer(program: str, has_pip: bool) -> tuple[list[str], dict[str, str]]:
    """Return the command that installs for an interpreter, and its environment."""
    common = ["install", "--no-input", "--disable-pip-version-check", "--no-compile", "--no-warn-conflicts"]
    if has_pip:
        return [program, *_PIP, *common], _settings_of_pip(program)
    if uv := shutil.which("uv"):
        environment = {name: value for name, value in pythons.environment(program).items() if name not in _NOT_OURS}
        return [uv, "pip", "install", "--no-progress", "--python", program], environment
    if _has_pip():
        return [sys.executable, *_PIP, "--python", program, *common], _settings_of_pip(sys.executable)
    raise SpecError(
        f"neither pip nor uv is here to install packages ({program} -m ensurepip brings pip); python:PATH names an "
        "environment that has them"
    )


def _settings_of_pip(program: str) -> dict[str, str]:
    """Return an environment in which pip goes by those settings of the user's that say where packages come from."""
    asked, environment = [program, *_PIP, "config", "list"], pythons.environment(program)
    done = subprocess.run(asked, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS)
    settings: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in done.stdout.decode(errors="replace").splitlines():
        key, _, written = line.partition("=")
        section, _, name = key.partition(".")
        if section in settings and name in _WHERE_FROM:
            settings[section][name] = _text(written)
    # The later ones win.
    chosen = {**settings["global"], **settings["install"], **settings[":env:"]}
    kept = {name: value for name, value in environment.items() if not name.startswith("PIP_")}
    return {
        **kept,
        **{f"PIP_{name.upper().replace('-', '_')}": value for name, value in chosen.items()},
        # Else its files would be read once more.
        "PIP_CONFIG_FILE": os.devnull,
        "LC_ALL": "C.UTF-8",
    }


def _text(written: str) -> str:
    try:
        return str(ast.literal_eval(written))
    except (SyntaxError, ValueError):
        return written


def _failed(package: Package, program: str, output: str) -> SpecError:
    """Return the error about an installation, by what pip or uv said."""
    shown = _CREDENTIALS.sub("****@", output)
    if found := _FROM_VERSIONS.search(shown):
        known = [] if found[1] == "none" else found[1].split(", ")
        if not known:
            return SpecError(f"{package}: the index has no {package.name} that fits {program}")
        last = ", ".join(known[-_MOST_VERSIONS:])
        more = f"{len(known) - _MOST_VERSIONS} older and " if len(known) > _MOST_VERSIONS else ""
        return SpecError(f"{package}: no such version that fits {program} (known: {more}{last})")
    lines = [line for line in shown.splitlines() if line.strip() and not line.startswith("[notice]")]
    said = excerpt("\n".join(lines[-_MOST_LINES:]))
    return SpecError(f"{package} cannot be installed:\n{said}" if said else f"{package} cannot be installed")


def _versions(folder: Path) -> dict[str, str]:
    from packaging.utils import canonicalize_name

    found = importlib.metadata.distributions(path=[str(folder)])
    return {canonicalize_name(each.metadata["Name"]): each.version for each in found}


def is_version(installed: str, asked: str) -> bool:
    """Return whether a version that is installed is the one that was asked for."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(f"=={asked}").contains(installed, prereleases=True)
    except InvalidVersion:
        return False


def _contents(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the paths of what is installed and their digests, but for what is not of the package itself."""
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        of_info = inside.parts[0].endswith(".dist-info") and path.name in _BY_INSTALLERS
        is_of_installer = of_info or inside == _LOCK
        # Scripts name the interpreter.
        if path.is_file() and not is_of_installer and inside.parts[0] != "bin" and "__pycache__" not in inside.parts:
            yield inside.as_posix(), file_digest(path)
