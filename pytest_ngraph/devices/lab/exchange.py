"""The exchange with one agent: meeting it, sending it files, and asking it, with the lines of its answers in order."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pytest_ngraph.devices.agent import tasks
from pytest_ngraph.devices.bench import Progress, Sink
from pytest_ngraph.devices.doors import handshake
from pytest_ngraph.devices.lab.link import Link
from pytest_ngraph.devices.wire import values, wire
from pytest_ngraph.devices.wire.course import Course
from pytest_ngraph.errors import DeviceUnusable
from pytest_ngraph.spec.cells import Cell

if TYPE_CHECKING:
    from pytest_ngraph.devices.registry import DeviceEntry, HubEntry

# A device that was lost comes back when its hub or its agent was started again.
REJOIN_SECONDS = 30.0
# What a child may do without a word beside what the limit of a cell allows it.
QUIET_SECONDS = 120.0


class Exchange:
    """Asks one agent of a lab, and meets it again where it was lost."""

    def __init__(self, entry: DeviceEntry, hub: HubEntry, wait_seconds: float, note: Callable[[str], None]) -> None:
        """Meet it. Raise DeviceOffline where it is not there in time, DeviceUnusable where it is not what it must be.

        What is waited for is said to ``note``, and from then on to what ``reporting`` is given.
        """
        self._entry, self._wait_seconds = entry, wait_seconds
        self._report = note
        self._link = Link(entry, hub, lambda text: self._report(text))
        self._sent: set[str] = set()
        self._refusal = ""
        self.greeting = self._greet(wait_seconds)
        self._report = _nothing

    @property
    def agent(self) -> str:
        """Return the name of the agent."""
        return self._link.agent

    @contextmanager
    def reporting(self, to: Callable[[str], None]) -> Iterator[None]:
        """Report what is waited for. Else nobody is told: threads other than the asking one may not write."""
        before, self._report = self._report, to
        try:
            yield
        finally:
            self._report = before

    def report(self, text: str) -> None:
        """Pass something on to what ``reporting`` was given."""
        self._report(text)

    def refuse_closed(self) -> None:
        """Raise DeviceLost where the device was released."""
        self._link.refuse_closed()

    def close(self) -> None:
        """Release the device. A request that is under way in another thread ends with DeviceLost."""
        self._link.close()

    # Asking

    def ask(
        self,
        method: str,
        made_of: Callable[[], Mapping[str, Any]],
        asked: Mapping[str, Any],
        *,
        quiet: float,
        cells: Sequence[Cell] = (),
        sink: Sink | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """Send a request, and return its answer.

        ``made_of`` sends what its bench is made of and returns how it is named. The device may be silent for ``quiet``
        seconds and some more. Lines that name cells do so by their places in ``cells``.
        """
        if not self._link.is_open:
            self._rejoin()
        request = wire.Request(method, made_of(), asked, {"quiet_seconds": quiet + QUIET_SECONDS})
        names = ("prepared", "visited", "block_done", "progress", "surroundings")
        handlers = {} if sink is None else {name: getattr(sink, name) for name in names}
        if progress is not None:
            handlers["progress"] = progress
        course = Course() if sink is not None else None
        ordered = InOrder(cells, SimpleNamespace(**handlers, note=self._report), course)
        for line in wire.lines_of(self._link.ask(tasks.run_cell, request.to_text(), ordered.receive)):
            ordered.receive(line)
        return wire.value_of(ordered.answer, self._entry.name)

    def send(self, content: str, size: int, part: Callable[[int, int], bytes]) -> None:
        """Send a file that is not on the device yet, in parts, from where an earlier try ended.

        It is known by its sha256. ``part`` reads so many bytes from an offset on.
        """
        if content in self._sent:
            return
        asked: dict[str, Any] = {"sha256": content, "size": size}
        offset = -1
        while True:
            text = self._link.ask(tasks.put_blob, json.dumps(asked), _nothing)
            with wire.strictly("the answer to a file", text):
                answer = json.loads(text)
                if answer["ok"]:
                    have, now = bool(answer["have"]), int(answer["offset"])
            if not answer["ok"]:
                wire.value_of(answer, self._entry.name)
            if have:
                break
            if now <= offset:
                raise DeviceUnusable(f"device {self._entry.name!r}: it does not take a file of {size} bytes")
            offset = now
            data = base64.b64encode(part(offset, tasks.PART_BYTES)).decode("ascii")
            asked = {"sha256": content, "size": size, "offset": offset, "data": data}
        self._sent.add(content)

    # Meeting

    def _greet(self, wait_seconds: float) -> Mapping[str, Any]:
        """Connect, and return what the device says of itself. Raise where it is not what it must be."""
        self._link.open(wait_seconds)
        try:
            return self._checked(self._link.ask(tasks.hello, tasks.hello_request(self._entry), _nothing))
        except BaseException:
            self._link.drop()
            raise

    def _checked(self, text: str) -> Mapping[str, Any]:
        name = f"device {self._entry.name!r}, agent {self._link.agent!r}"
        with wire.strictly(f"{name}: its greeting", text):
            answer = json.loads(text)
            difference = handshake.difference(answer["agent"])
        if difference is not None:
            raise DeviceUnusable(f"{name}: {difference}")
        with wire.strictly(f"{name}: its greeting", text):
            refused = None if values.flag(answer["ok"]) else values.said(answer["reason"])
        if refused is not None:
            raise DeviceUnusable(f"{name}: {refused}")
        with wire.strictly(f"{name}: its greeting", text):
            greeting = {**answer["value"], "facts": values.facts(answer["value"]["facts"])}
            theirs, mine = greeting["pytest-ngraph"], handshake.mine()["pytest-ngraph"]
            unmet = [str(each) for each in greeting["unmet"]]
            _ = greeting["fingerprint"], values.mapping(greeting["compilers"]), values.mapping(greeting["models"])
        if theirs != mine:
            python = self._entry.python or "its interpreter"
            raise DeviceUnusable(
                f"{name}: {python} has pytest-ngraph {theirs}, here it is {mine}; install the same release on both"
            )
        if unmet:
            raise DeviceUnusable(f"{name}: it is not as the registry expects: {'; '.join(unmet)}")
        return greeting

    def _rejoin(self) -> None:
        """Meet a device again that was lost. It must be the same machine with the same software.

        Once it was not, it is not asked again: what this run knows of its evidence is of the device that was lost.
        """
        if not self._refusal:
            self._sent.clear()
            self._refusal = self._another(self._greet(max(REJOIN_SECONDS, self._wait_seconds)))
        if self._refusal:
            self._link.drop()
            raise DeviceUnusable(
                f"device {self._entry.name!r}: it came back with {self._refusal}; launches of before and after do not "
                "belong together: run again"
            )

    def _another(self, greeting: Mapping[str, Any]) -> str:
        """Return what a device that came back has and had not, or nothing."""
        if greeting["fingerprint"] != self.greeting["fingerprint"]:
            return "the fingerprint of another machine or another Python"
        if greeting["compilers"] != self.greeting["compilers"]:
            return "other compilers"
        before, now = (each["facts"].get("versions", {}) for each in (self.greeting, greeting))
        changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        return ", ".join(f"{name} {now.get(name)} (it was {before.get(name)})" for name in changed)


class InOrder:
    """Plays lines to a sink in the order of their numbers, each once, however and how often they come."""

    def __init__(self, cells: Sequence[Cell], sink: SimpleNamespace, course: Course | None = None) -> None:
        self._cells, self._sink, self._course = cells, sink, course
        self._next = 0
        self._early: dict[int, wire.Event] = {}
        self._answer: Mapping[str, Any] | None = None

    def receive(self, line: str) -> None:
        """Take a line. Raise DeviceUnusable for one that cannot be, and whatever the sink raises."""
        event = wire.event_of(line, self._cells)
        if event.number >= self._next:
            self._early[event.number] = event
        while self._next in self._early:
            event = self._early.pop(self._next)
            self._next += 1
            if self._course is not None:
                self._course.follow(event)
            if event.kind == "answer":
                self._answer = event.values[0]
            elif hasattr(self._sink, event.kind):
                event.play(self._sink)
            else:
                raise DeviceUnusable(f"a line of the kind {event.kind!r} was not asked for: {line[:200]!r}")

    @property
    def answer(self) -> Mapping[str, Any]:
        """Return what the last line says. Raise DeviceUnusable where one before it is missing."""
        if self._answer is None:
            raise DeviceUnusable(f"line {self._next} of the device's answer is missing")
        return self._answer


def _nothing(line: str) -> None:
    """Ignore a line: neither a greeting nor a file comes in lines, and other threads do not write to a terminal."""
