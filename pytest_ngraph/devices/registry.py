"""The registry of a lab's hubs and devices: TOML in the project, the user's own over it, every key checked.

The tables are ``[tool.ngraph.hub.NAME]`` and ``[tool.ngraph.devices.NAME]`` in pyproject.toml, and the same without
``tool.ngraph.`` in ngraph.toml and in the user's file. Nothing in them is secret: keys are files, and stay where they
are.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.launches.client import why_not_given
from pytest_ngraph.options.masking import looks_secret
from pytest_ngraph.options.settings import duration

PORT, SIGNER_PORT = 8786, 8787
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*\Z")
_TAKEN = ("local", "cuda")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Never an option of ssh, and nothing that a shell would take apart.
_SSH = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.@:\[\]%-]*\Z")
_ADDRESS = re.compile(r"tls://(\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?\Z")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(B|[KMGT]i?B)\Z")
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_MOST_CPUS = 4096


@dataclass(frozen=True, slots=True)
class HubEntry:
    """A hub as clients know it: ``tls://host:port``, the lab's CA, and this user's certificate and key.

    ``signer`` is the address of what renews them, where it was not said by a file beside the CA's certificate.
    """

    name: str
    address: str
    ca: Path
    certificate: Path
    key: Path
    signer: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """A remote device. Either ``resource``, one agent's name, or ``pool``, any free agent of it, is None."""

    name: str
    hub: str
    resource: str | None = None
    pool: str | None = None
    python: str | None = None
    ssh: str | None = None
    accelerator: str = "cpu"
    timeout_seconds: float | None = None
    min_free: Mapping[str, int] = field(default_factory=dict)
    expect: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    cpus: tuple[int, ...] | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Registry:
    """Hubs and devices by name."""

    hubs: Mapping[str, HubEntry]
    devices: Mapping[str, DeviceEntry]

    def names(self) -> tuple[str, ...]:
        """Return the devices' names, sorted."""
        return tuple(sorted(self.devices))

    def hub_of(self, device: str) -> HubEntry:
        """Return the hub that a device of the registry is reached through."""
        return self.hubs[self.devices[device].hub]


def config_folder() -> Path:
    """Return the folder of the user's own configuration: ``$XDG_CONFIG_HOME/ngraph``, else ``~/.config/ngraph``."""
    # By these names on every system: bundles are unpacked, and messages read, on others than they were made on.
    return _base("XDG_CONFIG_HOME", ".config") / "ngraph"


def cache_folder() -> Path:
    """Return the folder for what can be made again: ``$XDG_CACHE_HOME/ngraph``, else ``~/.cache/ngraph``."""
    return _base("XDG_CACHE_HOME", ".cache") / "ngraph"


def _base(variable: str, usual: str) -> Path:
    # By hand: platformdirs has a plugin of its own, which every pytest run where it is installed would import.
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home() / usual


def is_name(text: str) -> bool:
    """Return whether a hub, a device, a pool or a user may have this name."""
    return _NAME.match(text) is not None


def address_of(place: str, text: str, port: int = PORT) -> str:
    """Read ``tls://host:port``. Raise SpecError that names the place it was given at."""
    try:
        return _address(text, port)
    except ValueError as error:
        raise SpecError(f"{place}: {text!r} is not allowed (expected {error})") from None


def is_loopback(address: str) -> bool:
    """Return whether ``tls://host:port``, or a host, is of no use to any other machine."""
    host = address.removeprefix("tls://")
    return re.match(r"(127\.[0-9.]+|localhost|\[?::1\]?)(:[0-9]+)?\Z", host) is not None


def read_registry(config: Path | None, rootdir: Path, *, option: str = "--ngraph-config") -> Registry:
    """Read ``config``, else pyproject.toml and ngraph.toml of ``rootdir``, and over them the user's ngraph.toml.

    A later file overrides an earlier one key by key. ``option`` is how ``config`` was given. Raises SpecError with
    file, line, key, what was given and what is allowed.
    """
    if config is not None and not config.is_file():
        raise SpecError(f"{option}: no file {config} (a TOML file with hubs and devices; see docs/devices.md)")
    project = [config] if config is not None else [rootdir / "pyproject.toml", rootdir / "ngraph.toml"]
    hubs: dict[str, dict[str, _Given]] = {}
    devices: dict[str, dict[str, _Given]] = {}
    for path in (*project, config_folder() / "ngraph.toml"):
        if path.is_file():
            _merge(_File.read(path), hubs, devices)
    made = {name: _hub(name, keys) for name, keys in hubs.items()}
    return Registry(made, {name: _device(name, keys, made) for name, keys in devices.items()})


# What was given, and where


class _File:
    """A TOML file, and the lines of its keys."""

    def __init__(self, path: Path, text: str, table: Mapping[str, Any], prefix: tuple[str, ...]) -> None:
        self.path, self.text, self.table, self.prefix = path, text, table, prefix

    @classmethod
    def read(cls, path: Path) -> _File:
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        try:
            text = path.read_text(encoding="utf-8")
            table: Any = tomllib.loads(text)
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
        except tomllib.TOMLDecodeError as error:
            raise SpecError(f"{path}: is not TOML: {error}") from None
        except RecursionError:
            raise SpecError(f"{path}: tables or lists in it are nested too deeply to be read") from None
        prefix = ("tool", "ngraph") if path.name == "pyproject.toml" else ()
        for depth, part in enumerate(prefix, 1):
            table = table.get(part, {})
            if not isinstance(table, dict):
                here = _Given(table, cls(path, text, {}, ()), prefix[:depth])
                raise here.refused("a table")
        return cls(path, text, table, prefix)

    def line_of(self, keys: tuple[str, ...]) -> int:
        """Return the line, from 1, of the longest part of a key's path that this file spells out."""
        table: tuple[str, ...] = ()
        best, found = 0, 1
        for number, line in enumerate(self.text.splitlines(), 1):
            head = re.match(r"\s*\[\[?(.*?)\]\]?\s*(#.*)?$", line)
            if head:
                spelt = table = _dotted(head[1])
            elif "=" in line and not line.lstrip().startswith("#"):
                spelt = table + _dotted(line.partition("=")[0])
            else:
                continue
            shared = sum(
                1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(spelt, keys, strict=False))
            )
            if shared > best:
                best, found = shared, number
        return found


def _dotted(text: str) -> tuple[str, ...]:
    """Read a key such as ``tool.ngraph."devices".orin``."""
    parts = re.findall(r'"([^"]*)"|\'([^\']*)\'|([\w-]+)', text)
    return tuple(double or single or bare for double, single, bare in parts)


@dataclass(frozen=True, slots=True)
class _Given:
    """A value of a file, with the path of its key."""

    value: Any
    file: _File
    keys: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.file.path}:{self.file.line_of(self.keys)}: {'.'.join(self.keys)}"

    def refused(self, allowed: str) -> SpecError:
        return SpecError(f"{self.place}: {self.value!r} is not allowed (expected {allowed})")

    def items(self) -> Iterator[tuple[str, _Given]]:
        """Yield what is in a table. Raise SpecError where this is none."""
        if not isinstance(self.value, dict):
            raise self.refused("a table")
        for name, value in self.value.items():
            yield name, _Given(value, self.file, (*self.keys, name))


def _merge(file: _File, hubs: dict[str, dict[str, _Given]], devices: dict[str, dict[str, _Given]]) -> None:
    """Put a file's tables over what earlier files gave, key by key."""
    for kind, table in _Given(file.table, file, file.prefix).items():
        known = {"hub": (hubs, _HUB_KEYS), "devices": (devices, _DEVICE_KEYS)}
        if kind not in known:
            raise _unknown(table, kind, known)
        entries, keys = known[kind]
        for name, entry in table.items():
            if not _NAME.match(name):
                raise SpecError(f"{entry.place}: the name {name!r} is not allowed (expected [a-z0-9][a-z0-9_.-]*)")
            if kind == "devices" and name in _TAKEN:
                raise SpecError(f"{entry.place}: {name!r} is a device of every machine; give this one another name")
            for key, given in entry.items():
                if key not in keys:
                    raise _unknown(given, key, keys)
                old = entries.setdefault(name, {}).get(key)
                if key in _TABLES:
                    parts = dict(old.value) if old is not None else {}
                    given = _Given({**parts, **dict(given.items())}, given.file, given.keys)
                entries.setdefault(name, {})[key] = given
            # An empty table is an entry, too: what it lacks is said.
            entries.setdefault(name, {})


def _unknown(given: _Given, key: str, known: Iterable[str]) -> SpecError:
    return SpecError(f"{given.place}: unknown key {key!r}{_hint(key, known)} (known: {', '.join(known)})")


def _hint(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


# What is allowed


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("a line of text")
    return value


def _address(value: Any, port: int = PORT) -> str:
    match = _ADDRESS.match(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[2] or port) < 65536:
        raise ValueError(f"tls://HOST:PORT, such as tls://hub.lab:{port}; nothing goes over the network without TLS")
    return f"tls://{match[1]}:{match[2] or port}"


def _signer(value: Any) -> str:
    return _address(value, SIGNER_PORT)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.match(value):
        raise ValueError("a name of the form [a-z0-9][a-z0-9_.-]*")
    return value


def _python(value: Any) -> str:
    if not _text(value).startswith("/"):
        raise ValueError("the absolute path of an interpreter on the device, such as /opt/ngraph/bin/python")
    return str(value)


def _ssh(value: Any) -> str:
    if not isinstance(value, str) or not _SSH.match(value):
        raise ValueError("HOST or USER@HOST as ssh takes it, without options")
    return value


def _accelerator(value: Any) -> str:
    match = re.match(r"(?:cpu|cuda(?::(0|[1-9][0-9]*))?)\Z", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("cpu, cuda or cuda:N")
    return "cpu" if value == "cpu" else f"cuda:{match[1] or 0}"


def _timeout(value: Any) -> float:
    try:
        return duration(_text(value))
    except ValueError:
        raise ValueError('a time, such as "90s", "20min" or "1h"') from None


def _size(value: Any) -> int:
    match = _SIZE.match(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError('a size with its unit, such as "500MB" or "2GiB"')
    base = 1024.0 if "i" in match[2] else 1000.0
    return round(float(match[1]) * base ** _POWERS.get(match[2][0], 0))


def _cpus(value: Any) -> tuple[int, ...]:
    numbers: set[int] = set()
    for part in value.split(",") if isinstance(value, str) else [""]:
        match = re.match(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*\Z", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < _MOST_CPUS:
            raise ValueError('CPU numbers and ranges, such as "0-5,8"')
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def _threads(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number >= 1")
    return value


def _variable(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError('a string, such as "6"')
    return value


_HUB_KEYS: Mapping[str, Callable[[Any], Any]] = {
    "address": _address,
    "ca": _text,
    "certificate": _text,
    "key": _text,
    "signer": _signer,
}
_DEVICE_KEYS: Mapping[str, Callable[[Any], Any]] = {
    "hub": _name,
    "resource": _name,
    "pool": _name,
    "python": _python,
    "ssh": _ssh,
    "accelerator": _accelerator,
    "timeout": _timeout,
    "min_free": _size,
    "expect": _text,
    "env": _variable,
    "cpus": _cpus,
    "threads": _threads,
}
# Keys whose values are tables; their parser reads each value of the table.
_TABLES = ("min_free", "expect", "env")


def _read(given: _Given, parse: Callable[[Any], Any]) -> Any:
    try:
        return parse(given.value)
    except ValueError as error:
        raise given.refused(str(error)) from None


def _required(kind: str, name: str, keys: Mapping[str, _Given], wanted: str, example: str) -> None:
    if wanted not in keys:
        where = next((f"{given.file.path}: " for given in keys.values()), "")
        raise SpecError(f"{where}{kind} {name!r} has no {wanted}; add {wanted} = {example}")


def _hub(name: str, keys: Mapping[str, _Given]) -> HubEntry:
    _required("hub", name, keys, "address", f'"tls://HOST:{PORT}"')
    _required("hub", name, keys, "ca", '"~/.config/ngraph/tls/ca.pem"')

    def path(key: str) -> Path:
        given = keys[key]
        text = str(_read(given, _HUB_KEYS[key]))
        return given.file.path.parent / (Path.home() / text[2:] if text.startswith("~/") else text)

    ca = path("ca")
    return HubEntry(
        name=name,
        address=_read(keys["address"], _address),
        ca=ca,
        certificate=path("certificate") if "certificate" in keys else ca.with_name("client.pem"),
        key=path("key") if "key" in keys else ca.with_name("client-key.pem"),
        signer=_read(keys["signer"], _signer) if "signer" in keys else None,
    )


def _device(name: str, keys: Mapping[str, _Given], hubs: Mapping[str, HubEntry]) -> DeviceEntry:
    _required("device", name, keys, "hub", '"NAME OF A HUB"')
    values: dict[str, Any] = {}
    for key, given in keys.items():
        if key in _TABLES:
            values[key] = {part: _part(key, part, value) for part, value in given.value.items()}
        else:
            values[key] = _read(given, _DEVICE_KEYS[key])
    if values["hub"] not in hubs:
        known = ", ".join(sorted(hubs)) or "none"
        raise SpecError(f"{keys['hub'].place}: no hub {values['hub']!r}{_hint(values['hub'], hubs)} (known: {known})")
    if "resource" in values and "pool" in values:
        raise SpecError(f"{keys['pool'].place}: a device has either a resource, one agent, or a pool of them")
    if "pool" not in values:
        values.setdefault("resource", name)
    values["timeout_seconds"] = values.pop("timeout", None)
    return DeviceEntry(name=name, **values)


def _part(key: str, part: str, given: _Given) -> Any:
    """Read one entry of a table of a device."""
    if key == "min_free" and part not in ("disk", "memory"):
        raise _unknown(given, part, ("disk", "memory"))
    if key != "min_free" and not _VARIABLE.match(part):
        raise SpecError(f"{given.place}: the name {part!r} is not allowed (expected [A-Za-z_][A-Za-z0-9_]*)")
    if key == "env" and looks_secret(part, given.value):
        # The value is not repeated: messages end in logs.
        raise SpecError(
            f"{given.place}: {part} looks like a secret; log in on the device instead, as the agent's user (what lies "
            "below its HOME is found), as none of the agent's variables is passed on"
        )
    if key == "env" and (reason := why_not_given(part)) is not None:
        raise SpecError(f"{given.place}: {part} is not given to what measures there; {reason}")
    return _read(given, _DEVICE_KEYS[key])
