"""The reference kernel: the same small work around blocks and visits, so that a change of the machine itself is seen.

Two things are timed: a fixed loop of arithmetic on one CPU, and how long a word takes from one CPU to another and
back. The first shows a clock that changed. The second shows what no counter of a virtual machine does: its host moves
virtual CPUs between neighbouring and distant cores for seconds or minutes, and whatever synchronises threads often is
slower by a third meanwhile. Around each visit both are timed more briefly, a *glance*, with the arithmetic on two CPUs
at once: a host that gives another guest the other thread of one of these cores does so for some visits only.

Started as ``pytest_ngraph.launches.reference PARENT_PID CPU...``: it answers each line with a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence

from pytest_ngraph import interpreter
from pytest_ngraph.launches.process import python_path
from pytest_ngraph.spec.cells import Reading
from pytest_ngraph.worker.worker import die_with_parent

_STEPS, _REPEATS = 3000, 6
_ROUNDS = 400
_GLANCED_REPEATS, _GLANCED_ROUNDS = 3, 200
_READ, _GLANCE = "read", "glance"
_MOST_PAIRS = 4
_PATIENCE_SECONDS = 5.0
# Not even SIGKILL ends what hangs in the kernel.
_END_SECONDS = 30.0
# Longer by more than this than it once was, the arithmetic is tried again so often, for as long as bursts last.
_LONGER, _TRIES, _PAUSE_SECONDS = 1.1, 8, 0.012
# Where the two processes' words lie in the memory that they share, on cache lines of their own.
_WORD, _BEGIN = 0, 128


class Reference:
    """The process that runs the kernel. Between readings it waits and uses no CPU."""

    def __init__(self, cpus: Sequence[int]) -> None:
        words = interpreter.command("pytest_ngraph.launches.reference", str(os.getpid()), *map(str, cpus))
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": python_path()},
        )
        self._end = weakref.finalize(self, _end, self._process, os.getpid())

    def read(self) -> Reading | None:
        """Run the kernel once, in some milliseconds, or None where it gives no answer, now and from then on."""
        return self._ask(_READ)

    def glance(self) -> Reading | None:
        """Run it for a millisecond a pair of CPUs, the arithmetic on both at once and once only: bursts of others show.

        Its arithmetic is that of the slower one of a pair, the mean over pairs: not the one that ``read`` gives. Where
        no process can be kept on a CPU there is none, for CPUs may differ.
        """
        return self._ask(_GLANCE) if hasattr(os, "sched_setaffinity") else None

    def _ask(self, word: str) -> Reading | None:
        if not self._end.alive or self._process.stdin is None or self._process.stdout is None:
            return None
        try:
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()
            # Not select(): it knows no descriptor above 1023, and who measures may have as many files open.
            answers = select.poll()
            answers.register(self._process.stdout, select.POLLIN)
            if answers.poll(_PATIENCE_SECONDS * 1000):
                arithmetic, crossings = json.loads(self._process.stdout.readline())
                return Reading(arithmetic, tuple(crossings))
        except (OSError, ValueError):
            pass
        self.close()
        return None

    def close(self) -> None:
        """End the process and its partner."""
        self._end()


def _end(process: subprocess.Popen[bytes], parent: int) -> None:
    # A forked process has a copy of this object, not of the kernel's process.
    if os.getpid() != parent:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def arithmetic_ns(repeats: int = _REPEATS) -> int:
    """Return the shortest of a few runs of the same arithmetic: a neighbour's time slices do not show in it."""
    shortest = 1 << 62
    for _ in range(repeats):
        began = time.perf_counter_ns()
        value = 1
        for step in range(_STEPS):
            value = (value * 31 + step) & 0xFFFF
        shortest = min(shortest, time.perf_counter_ns() - began)
    return shortest


class Arithmetic:
    """Reads the arithmetic again and again, and looks past others that come and go.

    Two CPUs of a virtual machine may be threads of one core: what runs on the other one slows this one by half, for
    as long as a burst lasts. A state of the machine lasts for longer than the tries do.
    """

    def __init__(self) -> None:
        self._shortest_ns: int | None = None

    def read(self) -> int:
        """Return the shortest of a few runs, which are repeated where they took longer than any did before."""
        found = arithmetic_ns()
        for _ in range(_TRIES):
            if self._shortest_ns is not None and found <= _LONGER * self._shortest_ns:
                break
            time.sleep(_PAUSE_SECONDS)
            found = min(found, arithmetic_ns())
        self._shortest_ns = min(found, self._shortest_ns or found)
        return found


class _Partner:
    """A second process on another CPU, which answers each word written into shared memory by the next one."""

    def __init__(self) -> None:
        self._words = mmap.mmap(-1, mmap.PAGESIZE)
        theirs, self._wake = os.pipe()
        self._woken, answers = os.pipe()
        parent = os.getpid()
        if os.fork() == 0:
            os.close(self._wake)
            die_with_parent(parent)
            _answer_forever(self._words, theirs, answers)
        os.close(theirs)
        os.close(answers)

    def crossing_ns(self, cpu: int) -> int:
        """Return the median nanoseconds of a word's way to this CPU and back."""
        self._call(cpu, at_once=False)
        return self._trips(_ROUNDS)

    def glance(self, cpu: int) -> tuple[int, int]:
        """Return the arithmetic of here and of this CPU at once, the longer one, and a word's way there and back."""
        self._call(cpu, at_once=True)
        self._words[_BEGIN] = 1
        mine = arithmetic_ns(_GLANCED_REPEATS)
        theirs = int.from_bytes(os.read(self._woken, 8), "little")
        return max(mine, theirs), self._trips(_GLANCED_ROUNDS)

    def _call(self, cpu: int, *, at_once: bool) -> None:
        """Wake the other process on its CPU."""
        self._words[_WORD] = self._words[_BEGIN] = 0
        os.write(self._wake, bytes([at_once]) + cpu.to_bytes(4, "little"))
        os.read(self._woken, 1)

    def _trips(self, rounds: int) -> int:
        words, trips = self._words, []
        for number in range(rounds):
            sent, expected = (2 * number + 1) & 0xFF, (2 * number + 2) & 0xFF
            began = time.perf_counter_ns()
            words[_WORD] = sent
            while words[_WORD] != expected:
                pass
            trips.append(time.perf_counter_ns() - began)
        return sorted(trips)[rounds // 2]


def _answer_forever(words: mmap.mmap, wake: int, answers: int) -> None:
    while True:
        order = os.read(wake, 5)
        if not order:
            os._exit(0)
        at_once, cpu = order[0], int.from_bytes(order[1:], "little")
        os.sched_setaffinity(0, {cpu})
        os.write(answers, b"\n")
        if at_once:
            while not words[_BEGIN]:
                pass
            os.write(answers, arithmetic_ns(_GLANCED_REPEATS).to_bytes(8, "little"))
        for number in range(_GLANCED_ROUNDS if at_once else _ROUNDS):
            expected, answer = (2 * number + 1) & 0xFF, (2 * number + 2) & 0xFF
            while words[_WORD] != expected:
                pass
            words[_WORD] = answer


def others_of(cpus: Sequence[int]) -> list[int]:
    """Return the CPUs that the first one exchanges words with: all of a few, else some spread evenly."""
    others = list(cpus[1:])
    if len(others) <= _MOST_PAIRS:
        return others
    return [others[(number + 1) * len(others) // _MOST_PAIRS - 1] for number in range(_MOST_PAIRS)]


def main(arguments: list[str]) -> None:
    """Answer every line of standard input by a reading, until it closes."""
    parent, *cpus = (int(text) for text in arguments)
    die_with_parent(parent)
    others = others_of(cpus) if hasattr(os, "sched_setaffinity") else []
    partner = _Partner() if others else None
    if partner is not None:
        os.sched_setaffinity(0, {cpus[0]})
    arithmetic = Arithmetic()
    while word := sys.stdin.readline().strip():
        if word == _GLANCE:
            found = _glance(partner, others)
        else:
            crossings = [partner.crossing_ns(cpu) for cpu in others] if partner is not None else []
            found = arithmetic.read(), crossings
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def _glance(partner: _Partner | None, others: Sequence[int]) -> tuple[int, list[int]]:
    if partner is None:
        return arithmetic_ns(_GLANCED_REPEATS), []
    found = [partner.glance(cpu) for cpu in others]
    # A pair of threads of one core always takes longer: the longest of all would hide what slows the others.
    return sum(arithmetic for arithmetic, _ in found) // len(found), [crossing for _, crossing in found]
