"""The measuring process of an agent: one request in, numbered lines out, and on the device a bench like any other.

Started as ``pytest_ngraph.devices.agent.measuring REQUEST_FD LINES_FD PARENT_PID FOLDER [installs]`` by the interpreter
that the device's compilers are installed for; with ``installs`` it may install packages for a run. Standard output and
error are free for whatever is printed. What it writes itself it writes below FOLDER, and it ends with its parent.
"""

from __future__ import annotations

import faulthandler
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.agent import permissions, sides
from pytest_ngraph.devices.agent.spool import clear_about_disks
from pytest_ngraph.devices.bench import Passed
from pytest_ngraph.devices.local import LocalBench
from pytest_ngraph.devices.wire import shipping, values, wire
from pytest_ngraph.devices.wire.sides import read_runtimes, sent_sides
from pytest_ngraph.errors import DeviceUnusable
from pytest_ngraph.launches.client import Job
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.machine import modes
from pytest_ngraph.options.masking import masked_variables
from pytest_ngraph.spec.cells import Cell, CompileRecord, Device, ModelRef, Protocol
from pytest_ngraph.texts.shown import ALL_OF_IT
from pytest_ngraph.worker.worker import die_with_parent
from pytest_ngraph.workloads.kinds.catalogue import BUILT_IN, kind_of

_CONTENT = re.compile(r"[0-9a-f]{32,64}\Z")
_GIBIBYTE = 1 << 30
# Cells in a message.
_MOST_NAMED = 3
_NAMES_LOG = re.compile(rf"^{ALL_OF_IT}.*(?<! on the device)\Z", re.MULTILINE)


class Errand:
    """A request on the device: the bench that it is for, and what it asks of it."""

    def __init__(self, request: wire.Request, folder: Path, *, may_install: bool = False) -> None:
        """Put what was shipped in its place and on the import path. Raise DeviceUnusable where that cannot be."""
        self._method, self._asked, self._folder = request.method, request.asked, folder
        self._may_install = may_install
        made_of = request.bench
        self._device = _confined(Device.from_json(made_of["device"]))
        self._project: Path | None = None
        if made_of["project"] is not None:
            zipped = folder / "blobs" / _content(made_of["project"])
            self._project = shipping.unpack(zipped, folder / "projects")
            sys.path[:0] = [str(self._project / entry) for entry in made_of["path"]]
            # A model that reads a file by a relative path finds it as it does where the suite is at home.
            os.chdir(self._project)
        self._files = {
            name: shipping.lay_out(folder / "blobs", _content(name), files, folder / "onnx")
            for name, files in made_of["files"].items()
        }
        self._catalogue = Catalogue()
        for name, place in made_of["places"].items():
            self._catalogue.add(name, place)
        other_sides = [
            sides.side_on_device(sent, self._project, self._files, folder, _print)
            for sent in sent_sides(made_of.get("sides", []))
        ]
        self._trees = {side.tree: side.label for side in other_sides if side.tree}
        job = Job(
            sys_path=tuple(sys.path),
            device=self._device,
            seed=int(made_of["seed"]),
            artifacts=folder / "artifacts",
            logs=folder / "logs",
            places={name: self._catalogue.place(name) for name in self._catalogue},
            timeout_seconds=float(made_of["timeout_seconds"]),
            own_outputs=values.flag(made_of.get("own_outputs", False)),
            # That in which the run began: what is measured in another one says so, and does not count.
            power_mode=values.texts(made_of["power_mode"]) if "power_mode" in made_of else modes.power_mode(),
            sides={side.label: side for side in other_sides},
        )
        self._bench = LocalBench(job, self._catalogue, Protocol(**made_of["protocol"]), job.seed)
        self._plan = None
        if self._method == "launch":
            self._plan = wire.plan_moved(wire.plan_from_json(self._asked["plan"]), self._located)
        self.cells = self._plan.cells if self._plan is not None else ()

    def reported(self, text: str) -> str:
        """Return a text for a person on another machine, with files of the project as they are named there."""
        text = _NAMES_LOG.sub(r"\g<0> on the device", text)
        for tree, label in self._trees.items():
            # One that is the same as here lies in the same folder.
            if tree != str(self._project):
                text = text.replace(f"{tree}{os.sep}", f"{label}{os.sep}")
        return text if self._project is None else text.replace(f"{self._project}{os.sep}", "")

    def run(self, lines: wire.Lines) -> Any:
        """Do what was asked, and return what the last line says."""
        action: Callable[[wire.Lines], Any] = getattr(self, f"_{self._method}")
        return action(lines)

    def close(self) -> None:
        """End what was asked of other sides."""
        self._bench.close()

    def _hello(self, lines: wire.Lines) -> dict[str, Any]:
        facts = environment.describe(self._device.accelerator)
        free = {"disk": shutil.disk_usage(self._folder).free, "memory": _available_memory()}
        return {
            "python": platform.python_version(),
            "pytest-ngraph": environment.version_of("pytest-ngraph"),
            "compilers": {name: self._bench.missing(name) for name in self._catalogue},
            "models": {name: kind_of(ModelRef("", name, "")).missing() for name in BUILT_IN},
            "facts": {**facts, "environment": masked_variables(os.environ)},
            "fingerprint": environment.fingerprint(self._device.accelerator),
            "free": free,
            "unmet": [*_unmet(self._asked["expect"], facts), *_too_little(self._asked["min_free"], free)],
        }

    def _missing(self, lines: wire.Lines) -> dict[str, str | None]:
        models = [ModelRef(**each) for each in self._asked.get("models", ())]
        of_models = {model.scheme: self._bench.missing_for(model) for model in models}
        return {**{name: self._bench.missing(name) for name in self._asked["compilers"]}, **of_models}

    def _sides(self, lines: wire.Lines) -> list[Mapping[str, Any]]:
        why_not = "" if self._may_install else permissions.WHY_NOT_INSTALL
        asked = [read_runtimes(text) for text in self._asked["runtimes"]]
        with self._bench.held(lines.note):
            found = [sides.runtimes_for(each, self._folder, lines.note, why_not) for each in asked]
        return [sides.known(each) for each in found]

    def _known(self, lines: wire.Lines) -> list[Any]:
        return self._about(self._cells("cells"))

    def _about(self, cells: Sequence[Cell]) -> list[Any]:
        """Return of each cell why it is refused, its evidence key, and whether it is what it is on the side asked for.

        That side is None in ``others`` where a cell is compared with none.
        """
        others = [None if each is None else values.text(each) for each in self._asked["others"]]
        refused = self._bench.refusals(cells)
        keys = self._bench.keys([cell for cell in cells if cell not in refused])
        compared = {cell: other for cell, other in zip(cells, others, strict=True) if keys.get(cell) is not None}
        same: set[Cell] = set()
        for label in sorted({other for other in compared.values() if other is not None}):
            same |= self._bench.same_content([cell for cell, other in compared.items() if other == label], label)
        return [[self._reported(refused.get(cell)), keys.get(cell), cell in same] for cell in cells]

    def _artifacts(self, lines: wire.Lines) -> list[str | None]:
        cells = self._cells("cells")
        found = self._bench.artifacts(cells)
        for remark in self._bench.remarks():
            sys.stderr.write(f"{remark}\n")
        return [self._reported(found[cell]) for cell in cells]

    def _build(self, lines: wire.Lines) -> list[Any]:
        wanted = self._cells("cells")
        with self._bench.held(lines.note):
            answers = [self._answer(each) for each in self._bench.build(wanted, lines.progress)]
        # What is known by now, without another process to say it.
        return [answers, self._about(self._cells("again"))]

    def _tune(self, lines: wire.Lines) -> Mapping[str, Any]:
        with self._bench.held(lines.note):
            return self._answer(self._bench.tune(self._cell(self._asked["cell"]), lines.progress))

    def _launch(self, lines: wire.Lines) -> None:
        assert self._plan is not None
        with self._held(self.cells, lines):
            self._bench.launch(self._plan, lines)

    @contextmanager
    def _held(self, cells: Sequence[Cell], lines: wire.Lines) -> Iterator[None]:
        """Hold the device to measure these cells, where they are still what their keys were told for."""
        with self._bench.held(lines.note):
            self._refuse_what_changed(cells)
            yield

    def _refuse_what_changed(self, cells: Sequence[Cell]) -> None:
        """Raise DeviceUnusable where cells are something else by now than when their keys were asked for.

        Those of other sides are not looked at: they have what was installed for them, and it takes a process to ask.
        """
        told = self._asked.get("evidence", [None] * len(cells))
        with wire.strictly("the request", str(told)):
            keys = [None if key is None else values.text(key) for key in told]
            before = {cell: key for cell, key in zip(cells, keys, strict=True) if key is not None and not cell.side}
        now = self._bench.keys(list(before))
        changed = [cell.label for cell, key in before.items() if now[cell] not in (None, key)]
        if changed:
            named = ", ".join(changed[:_MOST_NAMED])
            named += f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
            raise DeviceUnusable(
                f"packages or files on the device changed during this run, and {named} would be measured with others "
                "than its results are kept under; run again, and change nothing there meanwhile"
            )

    def _memory(self, lines: wire.Lines) -> list[Any]:
        cell, protocol = self._cell(self._asked["cell"]), Protocol(**self._asked["protocol"])
        with self._held([cell], lines):
            return self._passed(self._bench.memory(cell, protocol, int(self._asked["seed"])))

    def _evaluate(self, lines: wire.Lines) -> list[Any]:
        cell, protocol = self._cell(self._asked["cell"]), Protocol(**self._asked["protocol"])
        with self._held([cell], lines):
            return self._passed(self._bench.evaluate(cell, protocol, int(self._asked["seed"]), lines.progress))

    def _agree(self, lines: wire.Lines) -> list[Any]:
        cell, dense = self._cell(self._asked["cell"]), self._cell(self._asked["dense"])
        protocol, samples = Protocol(**self._asked["protocol"]), values.count(self._asked["samples"])
        seed = int(self._asked["seed"])
        with self._held([cell, dense], lines):
            return self._passed(self._bench.agree(cell, dense, samples, protocol, seed, lines.progress))

    def _power(self, lines: wire.Lines) -> list[Any]:
        cells, protocol = self._cells("cells"), Protocol(**self._asked["protocol"])
        with self._held(cells, lines):
            before, records, after = self._bench.power(cells, protocol, int(self._asked["seed"]), lines.progress)
        return [before, [self._record(record) for record in records], after]

    def _passed(self, passed: Passed) -> list[Any]:
        before, record, after = passed
        return [before, self._record(record), after]

    def _record(self, record: CompileRecord) -> dict[str, Any]:
        return {**record.to_json(), "reason": self.reported(record.reason)}

    def _answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.reported(value) if isinstance(value, str) else value for key, value in answer.items()}

    def _reported(self, text: str | None) -> str | None:
        return None if text is None else self.reported(text)

    def _cells(self, name: str) -> list[Cell]:
        return [self._cell(each) for each in self._asked[name]]

    def _cell(self, data: Mapping[str, Any]) -> Cell:
        return wire.moved(Cell.from_json(data), self._located)

    def _located(self, model: ModelRef) -> ModelRef:
        return shipping.located(model, self._project, self._files)


def _print(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _content(name: str) -> str:
    if not _CONTENT.match(name):
        raise DeviceUnusable(f"{name!r} is not the name of a content")
    return name


def _confined(device: Device) -> Device:
    """Return the device, with this process on its CPUs. Those of a device without any are all that there are."""
    if device.cpus and hasattr(os, "sched_setaffinity"):
        there = environment.available_cpus()
        try:
            os.sched_setaffinity(0, device.cpus)
            # Where only some are online the others are left out without a word.
            lacking = sorted(set(device.cpus) - os.sched_getaffinity(0))
        except OSError:
            lacking = list(device.cpus)
        if lacking:
            raise DeviceUnusable(
                f"cpus: {', '.join(map(str, lacking))} are not available (available: {', '.join(map(str, there))})"
            )
    return device if device.cpus else replace(device, cpus=environment.available_cpus())


def _available_memory() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def _unmet(expect: Mapping[str, str], facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is otherwise than expected, each time with both."""
    known: dict[str, Any] = {key: value for key, value in facts.items() if isinstance(value, (str, int, float))}
    known |= {**facts["versions"], "gpu": facts.get("gpu", {}).get("name"), "nvpmodel": None}
    if "nvpmodel" in expect:
        known["nvpmodel"] = _power_mode()
    for key, value in expect.items():
        if key not in known:
            names = ", ".join(sorted(known))
            yield f"it was expected that {key} is {value}, and nothing there says so (known: {names})"
        elif str(known[key]) != value:
            yield f"{key} is {known[key]}, expected {value}"


def _too_little(wanted: Mapping[str, int], free: Mapping[str, int]) -> Iterator[str]:
    for what, least in wanted.items():
        if free[what] < least:
            yield f"{free[what] / _GIBIBYTE:.2f} GiB of {what} are free, min_free asks for {least / _GIBIBYTE:.2f} GiB"


def _power_mode() -> str | None:
    """Return the power mode of a Jetson, None where there is none to ask for."""
    try:
        done = subprocess.run(["nvpmodel", "-q"], capture_output=True, text=True, timeout=10)  # noqa: S607
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"NV Power Mode:\s*(\S+)", done.stdout)
    return found[1] if found else None


def serve(text: str, folder: Path, write: Callable[[str], None], *, may_install: bool = False) -> None:
    """Answer a request in lines. An error, if any, is in the last of them."""
    lines = wire.Lines(write)
    try:
        with clear_about_disks(folder), wire.strictly("the request", text):
            errand = Errand(wire.Request.from_text(text), folder, may_install=may_install)
        lines.know(errand.cells, errand.reported)
        with clear_about_disks(folder):
            value = errand.run(lines)
            errand.close()
    except Exception as error:  # noqa: BLE001 - exceptions do not cross, what they say does
        lines.refuse(error)
    else:
        lines.answer(value)


def main(arguments: list[str]) -> None:
    """Serve the request that a descriptor holds, and end."""
    request_fd, lines_fd, parent = (int(text) for text in arguments[:3])
    die_with_parent(parent)
    faulthandler.enable()
    for fd in (request_fd, lines_fd):
        # What measures must not hold the pipe open.
        os.set_inheritable(fd, False)
    with os.fdopen(request_fd, encoding="utf-8") as request, os.fdopen(lines_fd, "w", encoding="utf-8") as out:

        def write(line: str) -> None:
            out.write(line + "\n")
            out.flush()

        serve(request.readline(), Path(arguments[3]), write, may_install=permissions.INSTALLS in arguments[4:])
