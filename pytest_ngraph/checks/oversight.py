"""What a worker says of its times, held against the clock of the process that launched it and the kernel's account."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from pytest_ngraph import units
from pytest_ngraph.load.beside import Window
from pytest_ngraph.machine import facts
from pytest_ngraph.spec.cells import Cell, CompileRecord, Device, Visit
from pytest_ngraph.spec.states import USABLE_SHARE
from pytest_ngraph.stats.visits import clean_batches, token_seconds

_LOOK_SECONDS = 1.0
# Both clocks are one: this covers their rounding, and a clock that is being set right meanwhile.
_CLOCK_SHARE, _CLOCK_NS = 0.01, 1_000_000
# A visit may last this many times what it says, and so much longer, before the worker's clock is doubted.
_LONGER, _LONGER_NS = 2.0, 250_000_000
_MORE_THREADS, _PART_OF_A_THREAD = 1.1, 0.25
# So many threads may wait for a CPU that nobody else has.
_OWN_WAIT = 0.05


@dataclass(frozen=True, slots=True)
class Seen:
    """One visit as the launching process saw it, in nanoseconds, beside what the worker said.

    ``wall_ns`` passed from the request to its answer, ``timed_ns`` from the worker's word that its inputs are bound.
    ``cpu_ns`` is what the worker and its children used meanwhile, and ``others_seconds`` what the CPUs of the set did
    for other processes, None where the kernel does not say. ``delay_ns`` of ``timed_ns`` its main thread was ready to
    run and did not, by the kernel's account and not by the worker's word.

    Of a cell with a neighbour ``others_seconds`` is without that, which ``beside`` is about.
    """

    visit: Visit
    wall_ns: int
    timed_ns: int
    cpu_ns: int | None
    others_seconds: float | None = None
    delay_ns: int = 0
    beside: Window | None = None

    @property
    def held_up_ns(self) -> float:
        """What the worker had to wait for others: as long as it did, and no longer than others worked meanwhile.

        Otherwise a worker could hold up itself, and hide what its own threads do.
        """
        beside_ns = self.beside.cpu_ns or 0 if self.beside is not None else 0
        return min(self.delay_ns, 1e9 * (self.others_seconds or 0.0) + beside_ns)


@dataclass
class CpuAccount:
    """The CPU time of a process and of its children, as the kernel counts it."""

    pid: int
    _children: list[int] = field(default_factory=list)
    _looked: float = float("-inf")

    def read(self) -> dict[int, int]:
        """Return the CPU nanoseconds of each of the processes so far, empty where the kernel does not say.

        Which children there are is looked up once a second: it takes a file for each thread.
        """
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked, self._children = now, children_of(self.pid)
        used = {pid: _cpu_ns(pid) for pid in (self.pid, *self._children)}
        return {pid: spent for pid, spent in used.items() if spent is not None}

    def since(self, before: dict[int, int]) -> int | None:
        """Return the CPU nanoseconds that were used since a reading. A child that is new counts from now on."""
        now = self.read()
        if self.pid not in before or self.pid not in now:
            return None
        return sum(spent - before[pid] for pid, spent in now.items() if pid in before)


class Watch:
    """Sees one visit on some CPUs: made before it is asked for, with the account of a neighbour if there is one."""

    def __init__(self, cpu: CpuAccount, cpus: Sequence[int] = (), beside: CpuAccount | None = None) -> None:
        self._cpu, self._cpus, self._beside = cpu, cpus, beside
        self._used_beside = beside.read() if beside is not None else {}
        self._delay_beside = 0
        self._busy, self._stolen = facts.used_seconds(cpus)
        self._own, self._used = time.process_time(), cpu.read()
        self._began = self._bound = time.monotonic_ns()
        self._delay = _run_delay_ns(cpu.pid)

    def bound(self, doing: str, done: int, total: int) -> None:
        """Note that the inputs are bound."""
        if self._beside is not None:
            self._delay_beside = _run_delay_ns(self._beside.pid)
        self._bound, self._delay = time.monotonic_ns(), _run_delay_ns(self._cpu.pid)

    def answered(self, visit: Visit) -> Seen:
        """Return the visit as it was seen, now that it is over, with what the host took of its time."""
        now, used = time.monotonic_ns(), self._cpu.since(self._used)
        delay = max(0, _run_delay_ns(self._cpu.pid) - self._delay)
        wall = now - self._began
        busy, stolen = facts.used_seconds(self._cpus)
        taken = max((now - then for then, now in zip(self._stolen, stolen, strict=False)), default=0.0)
        visit = replace(visit, stolen_ns=max(0, round(taken * 1e9)))
        if self._beside is None:
            return Seen(visit, wall, now - self._bound, used, self._others(busy, used), delay)
        theirs = self._beside.since(self._used_beside)
        others = None if used is None or theirs is None else self._others(busy, used + theirs)
        waited = max(0, _run_delay_ns(self._beside.pid) - self._delay_beside)
        others_ns = None if others is None else 1e9 * others
        window = Window(self._bound, now, wall, theirs, others_ns, waited)
        return Seen(visit, wall, now - self._bound, used, others, delay, window)

    def _others(self, busy: float | None, used_ns: int | None) -> float | None:
        """Return the seconds of these CPUs that were neither this process's nor of those that used so many in all."""
        if busy is None or self._busy is None or used_ns is None:
            return None
        # Ticks of two accounts: of one visit it may be less than nothing, but not of many.
        return busy - self._busy - used_ns * 1e-9 - (time.process_time() - self._own)


def _cpu_ns(pid: int) -> int | None:
    try:
        # What clock_getcpuclockid(3) gives: the pid's complement, and 2 for the scheduler's own account.
        return time.clock_gettime_ns((~pid << 3) | 2)
    except (OSError, AttributeError):
        # It has ended, or this is not Linux.
        return None


def _run_delay_ns(pid: int) -> int:
    """Return how long the main thread of a process was ready to run and did not, 0 where the kernel does not say."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        # It has ended, or the kernel keeps no schedstat.
        return 0


def children_of(pid: int) -> list[int]:
    """Return the processes below one, all generations, empty where the kernel does not list them."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, children.read_text(encoding="ascii").split())
        except OSError:
            # The thread has ended since it was listed, or the kernel has no such file.
            continue
    return found + [below for child in found for below in children_of(child)]


def beyond_wall(seen: Seen) -> str:
    """Return an objection to a visit that claims more time than passed, or nothing."""
    said = sum(seen.visit.wall_ns)
    if seen.visit.tokens and sum(seen.visit.request_ns) > said * (1 + _CLOCK_SHARE) + _CLOCK_NS:
        return f"its tokens claim {_ms(sum(seen.visit.request_ns))} of calls that took {_ms(said)}"
    if said <= seen.wall_ns * (1 + _CLOCK_SHARE) + _CLOCK_NS:
        return ""
    return (
        f"its calls claim {_ms(said)} of a visit that lasted {_ms(seen.wall_ns)} by the clock of the launching "
        "process: the clock in its process does not show the time"
    )


def objection(visits: Sequence[Seen], threads: int | None, discard_seconds: float) -> str:
    """Return an objection to the visits of a launch to a cell that cannot be true, or nothing.

    ``threads`` are those the cell may keep busy, None where that is not known. What one visit shows may be chance - a
    parent that reads late - so the median visit is judged: its time may be no more than twice what it says, and a
    quarter of a second. That much goes to discarded calls and reading covariates. Waiting for a CPU *within* a batch is
    part of what the visit says; between batches it is not, so what the worker waited for others is no objection.
    """
    if not visits:
        return ""
    longer = median(
        seen.timed_ns - seen.held_up_ns - _LONGER * _accounted_ns(seen.visit, discard_seconds) for seen in visits
    )
    if longer > _LONGER_NS:
        said, lasted = (
            median(each) for each in zip(*((sum(s.visit.wall_ns), s.timed_ns) for s in visits), strict=True)
        )
        return (
            f"its calls claim {_ms(said)} of visits that lasted {_ms(lasted)} by the clock of the launching process: "
            "the clock in its process is slowed, or it works between the timed calls"
        )
    shares = [seen.cpu_ns / seen.wall_ns for seen in visits if seen.cpu_ns is not None and seen.wall_ns]
    if threads is not None and shares and median(shares) > threads * _MORE_THREADS + _PART_OF_A_THREAD:
        return (
            f"it kept {median(shares):.1f} CPUs busy where it was given {units.count(threads, 'thread')}: "
            "its times are not those of what was asked for (another number of threads is another cell, such as "
            "NAME[threads=2])"
        )
    return ""


def waits_for_itself(visits: Sequence[Seen]) -> str:
    """Return that most visits of a cell cannot be used and that it was its own threads they waited for, or nothing.

    A process that keeps a CPU busy makes one thread wait at most, where there are no more threads than CPUs. What
    waited beyond twice that waited for threads of its own, or for those of its neighbour: beside one nobody can tell.
    """
    # Behind a CPU that the host has taken threads wait as well.
    timed = [seen for seen in visits if seen.visit.run_delay_ns and seen.beside is None and not seen.visit.is_stolen()]
    others = others_cpus(timed)
    if others is None or sum(bool(clean_batches(seen.visit)) for seen in timed) >= USABLE_SHARE * len(timed):
        return ""
    # By the clock here: that of a worker may be wrong.
    waited = sum(sum(seen.visit.run_delay_ns) for seen in timed) / sum(seen.timed_ns for seen in timed)
    if waited < _OWN_WAIT + 2 * others:
        return ""
    return (
        f"{waited:.2g} of its threads waited for a CPU on average, while other processes kept {others:.2g} CPUs busy: "
        "it waits for itself, as where more of its threads run than there are CPUs"
    )


def others_cpus(visits: Sequence[Seen]) -> float | None:
    """Return how many CPUs others kept busy during these visits, on average, None where the kernel does not say."""
    known = [(seen.others_seconds, seen.wall_ns) for seen in visits if seen.others_seconds is not None]
    wall_ns = sum(each for _, each in known)
    return max(0.0, sum(seconds for seconds, _ in known) / (wall_ns * 1e-9)) if wall_ns else None


def stolen_share(visits: Sequence[Seen]) -> float:
    """Return for which part of these visits the host had one of the CPUs, the one of each that it had for longest."""
    wall_ns = sum(seen.wall_ns for seen in visits)
    return min(1.0, sum(seen.visit.stolen_ns for seen in visits) / wall_ns) if wall_ns else 0.0


def call_nanoseconds(visits: Sequence[Seen], part: str = "", *, queued: bool = False) -> float:
    """Return what a call took by what the visits say. Of several in flight, from its submission to its completion.

    Where calls were ``queued`` it is the quickest of each visit, which waited least. Where a call generates tokens it
    may be asked of its ``part``: the first token, or all steps together.
    """
    # Unless nothing else is left: what the host took is no work of theirs.
    each = [seen.visit for seen in visits if not seen.visit.is_stolen()] or [seen.visit for seen in visits]
    if queued:
        return median(min(visit.request_ns) for visit in each)
    if part and (tokens := each[0].tokens):
        times = [token_seconds(visit)[part != "first"] for visit in each]
        return 1e9 * median(median(one) for one in times) * (1 if part == "first" else tokens - 1)
    if each[0].in_flight_ns:
        return median(median(visit.in_flight_ns) for visit in each)
    return median(median(visit.wall_ns) / visit.calls for visit in each)


def threads_allowed(cell: Cell, device: Device, record: CompileRecord) -> int | None:
    """Return how many threads a cell may keep busy: the device's, or more where the cell says so itself.

    None on an accelerator, whose driver has threads of its own.
    """
    if device.accelerator != "cpu":
        return None
    placement, asked = dict(record.placement), dict(cell.compiler.options).get("threads", "")
    most = max([device.threads, *(int(text) for text in (asked, placement.get("threads", "")) if text.isdigit())])
    # Calls in flight may have as many each, and one more thread submits them, or waits for those that arrive.
    return most if cell.workload.scenario == "latency" else most * int(placement.get("in_flight", 1)) + 1


def _accounted_ns(visit: Visit, discard_seconds: float) -> float:
    """Return what a visit says of itself, with the calls that were discarded before and waited for after it."""
    return sum(visit.wall_ns) + discard_seconds * 1e9 + 2 * max(visit.wall_ns)


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds * 1e-6:.0f} ms"
