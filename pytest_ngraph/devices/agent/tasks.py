"""What an agent does: three functions of JSON text, and nothing else is ever submitted to it.

Whatever happens they return JSON: exceptions, pickled on one side and unpickled on the other, would tie both to the
same versions of everything.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from pytest_ngraph.devices.agent import children, permissions, sides
from pytest_ngraph.devices.agent.measuring_process import Child
from pytest_ngraph.devices.agent.spool import Spool, clear_about_disks
from pytest_ngraph.devices.doors import handshake
from pytest_ngraph.devices.registry import DeviceEntry, cache_folder
from pytest_ngraph.devices.wire import shipping, wire
from pytest_ngraph.errors import DeviceUnusable
from pytest_ngraph.machine import files
from pytest_ngraph.spec.cells import PROTOCOLS, Device, Protocol

FOLDER_VARIABLE = "NGRAPH_AGENT_FOLDER"
MOST_BLOB_BYTES = 4 << 30
MOST_FOLDER_BYTES = 16 << 30
# What is built here again costs a run minutes, and a full disk all of them.
MOST_UNUSED_SECONDS = 30 * 24 * 3600.0
# A message of the hub stays below what it warns of.
PART_BYTES = 4 << 20
HELLO_SECONDS = 120.0
_SPARE_BYTES = 64 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")

_guard = threading.Lock()
_running: dict[str, _Turn] = {}


def agent_folder() -> Path:
    """Return where an agent keeps what it was sent and what it measured."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else cache_folder() / "agent"


def topic_of(agent: str) -> str:
    """Return the topic under which an agent sends the lines of its requests: each as ``[key of the task, line]``."""
    return f"ngraph:{agent}"


# The three


def hello(text: str) -> str:
    """Return what this agent and its measuring interpreter are, and whether they are as a request expects.

    The answer has ``agent`` (``handshake.mine()``) and, where ``ok``, ``value``: see ``child``.
    """
    said: dict[str, Any] = {"agent": handshake.mine()}
    try:
        request = wire.Request.from_text(text)
        answer = json.loads(_in_child(request, text, _task()[0], lambda line: None))[2]
    except Exception as error:  # noqa: BLE001 - exceptions do not cross
        answer = wire.refusal(error)
    return json.dumps({**said, **answer})


def put_blob(text: str) -> str:
    """Take a part of a file that is known by its sha256, and say from where on it is missing.

    The request has ``sha256``, ``size`` and, unless it only asks, ``offset`` and ``data`` (base64). The answer has
    ``have``, and ``offset``: what is here so far, in bytes.
    """
    try:
        with wire.strictly("the request", text):
            asked = json.loads(text)
            name, size = str(asked["sha256"]), int(asked["size"])
            data = base64.b64decode(asked["data"], validate=True) if "data" in asked else None
            offset = int(asked.get("offset", 0))
            if not _SHA256.match(name) or not 0 <= offset <= size <= MOST_BLOB_BYTES:
                raise ValueError(f"a sha256 and at most {MOST_BLOB_BYTES >> 30} GiB are allowed")
        folder = agent_folder()
        with clear_about_disks(folder):
            have = _add_part(folder, name, size, offset, data)
        return json.dumps({"ok": True, "have": have is None, "offset": size if have is None else have})
    except Exception as error:  # noqa: BLE001 - exceptions do not cross
        return json.dumps(wire.refusal(error))


def run_cell(text: str) -> str:
    """Run one request of a bench in a child. Return its lines (see ``wire``), the last of which is the answer.

    They are sent to the hub as they come. A launch that was measured before and not handed over is not measured again.
    """
    sent: list[str] = []
    try:
        return wire.result_of(_run(wire.Request.from_text(text), text, sent))
    except Exception as error:  # noqa: BLE001 - exceptions do not cross
        last = json.dumps([len(sent), "answer", wire.refusal(error)])
        return wire.result_of([*sent, last])


# What an agent runs, by the names that requests have for it.
TASKS = {function.__name__: function for function in (hello, put_blob, run_cell)}


def hello_request(entry: DeviceEntry) -> str:
    """Return what ``hello`` is asked for a device of the registry."""
    device = Device(entry.name, entry.cpus or (), entry.threads or 1, entry.accelerator)
    made_of = bench_of(entry, device, protocol=PROTOCOLS["gate"], seed=0, timeout_seconds=HELLO_SECONDS)
    asked = {"expect": dict(entry.expect), "min_free": dict(entry.min_free)}
    return wire.Request("hello", made_of, asked, {"quiet_seconds": HELLO_SECONDS}).to_text()


def bench_of(
    entry: DeviceEntry, device: Device, *, protocol: Protocol, seed: int, timeout_seconds: float, **shipped: Any
) -> dict[str, Any]:
    """Return what the bench of a request is made of.

    ``shipped`` are the places of adapters, the power mode of the run, and what was sent.
    """
    return {
        "device": device.to_json(),
        "protocol": protocol.to_json(),
        "seed": seed,
        "timeout_seconds": timeout_seconds,
        "python": entry.python,
        "env": dict(entry.env),
        **{"places": {}, "project": None, "path": [], "files": {}, **shipped},
    }


# Running


class _Turn:
    """A request that is under way, and the process that measures, once there is one."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.pid: int | None = None


def _run(request: wire.Request, text: str, sent: list[str]) -> list[str]:
    """Return the lines of a request. Those that were sent are in ``sent``, also where it fails."""
    key, send = _task()

    def on_line(line: str) -> None:
        sent.append(line)
        send(line)

    if request.method not in wire.KEPT:
        return [*sent, _in_child(request, text, key, on_line)]
    spool, digest = Spool(agent_folder() / "spool"), request.digest
    with _turn(digest, key) as turn:
        found = spool.find(digest)
        if found is not None:
            return found
        with spool.entry(digest) as entry:

            def keep(line: str) -> None:
                entry.write(line)
                on_line(line)

            last = _in_child(request, text, key, keep, turn)
            if wire.is_final(last):
                entry.write(last)
                entry.keep()
    return [*sent, last]


def _in_child(
    request: wire.Request, text: str, key: str, on_line: Callable[[str], None], turn: _Turn | None = None
) -> str:
    """Run a request in a child, which ends with the task of this key, and return its last line."""
    permissions.check(request)
    child = Child(request, text, agent_folder(), permissions.given().words())
    if turn is not None:
        turn.pid = child.pid
    with children.of(key, child.pid):
        return child.receive(on_line)


@contextmanager
def _turn(digest: str, key: str) -> Iterator[_Turn]:
    """Wait until no other thread runs this request, and hold the right to run it.

    It may have been begun for a client whose hub went away: who asks again takes it over, and ends it with its task.
    """
    mine = _Turn()
    while True:
        with _guard:
            holder = _running.setdefault(digest, mine)
        if holder is mine:
            break
        with children.of(key, holder.pid) if holder.pid is not None else nullcontext():
            holder.over.wait(1.0)
    try:
        yield mine
    finally:
        with _guard:
            del _running[digest]
        mine.over.set()


def _task() -> tuple[str, Callable[[str], None]]:
    """Return the key of the task that this thread runs, and how to send its client a line."""
    try:
        from distributed import get_worker

        worker = get_worker()
        key, topic = str(worker.get_current_task()), topic_of(str(worker.name))
    except (ImportError, ValueError, KeyError):
        return f"thread-{threading.get_ident()}", lambda line: None

    def send(line: str) -> None:
        # Without a hub nobody receives it; the result contains it again.
        with contextlib.suppress(Exception):
            worker.log_event(topic, [key, line])

    return key, send


# Blobs


def _add_part(folder: Path, name: str, size: int, offset: int, data: bytes | None) -> int | None:
    """Add a part of a blob and return how many bytes of it are here, or None once it is complete and sound."""
    blobs = folder / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    blob, part = blobs / name, blobs / f".part-{name}"
    if blob.is_file():
        os.utime(blob)
        return None
    have = part.stat().st_size if part.exists() else 0
    if shutil.disk_usage(blobs).free < size - have + _SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(blobs))
    if data is None or offset > have:
        return have
    with part.open("r+b" if have else "wb") as file:
        # Another client that sends the same writes the same.
        file.seek(offset)
        file.write(data)
        have = max(have, file.tell())
        if have < size:
            return have
        file.flush()
        os.fsync(file.fileno())
    if have != size or shipping.content_of(part) != name:
        part.unlink()
        raise DeviceUnusable(f"a file of {size} bytes arrived damaged ({name[:12]}); run again")
    files.put(part, blob)
    shipping.tidy([blobs, folder / "projects", folder / "onnx", folder / sides.FOLDER], MOST_FOLDER_BYTES)
    _drop_unused(folder)
    return None


def _drop_unused(folder: Path) -> None:
    """Remove what was built here, and what compilers keep by themselves, that was used last many days ago."""
    # An idle agent needs nothing of stores.
    from pytest_ngraph.upkeep import caches

    # What cannot be removed is no reason to refuse what has arrived.
    with contextlib.suppress(OSError):
        caches.drop_unused_in(folder, time.time() - MOST_UNUSED_SECONDS)
