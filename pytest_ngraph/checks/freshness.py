"""Whether calls do their work when they are timed: on inputs never seen before, in run() and not in outputs().

As MLPerf's TEST04 does, calls on new inputs are compared with those that were timed. What a worker measures here is
judged by the process that launched it, against the visits. All of it comes after them, outside of what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_ngraph import units
from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.machine import clock

if TYPE_CHECKING:
    import numpy as np

    Inputs = Mapping[str, np.ndarray[Any, Any]]

# One round is enough to clear a cell, for the fastest call of each kind is judged; twelve are needed to accuse one: a
# busy machine holds calls up for seconds.
_ACCUSING, _ROUNDS, _SECONDS = 12, 20, 30.0
# From here on outputs() takes long enough to be where the work is done.
_WORKS = 0.5
# A call on new inputs may take this many times what the timed calls take, and so much longer: its data is in no cache
# and the runtime's threads have gone to sleep. Of four adapters beside heavy load it took 1.24 times in the median, and
# some calls were held up for longer than any bound would allow (benchmarks/freshness.py): hence the rounds.
_SLOWER, _SLOWER_NS = 3.0, 200_000
# outputs() copies: it may take this many times what copying the same arrays takes, and so much longer.
_COPIES, _COPYING_NS = 20.0, 300_000
# Outputs that follow inputs which were overwritten after the call differ by more than this of their largest number.
_DIFFERENT = 1e-3
_COMPARED = 1 << 16


@dataclass(frozen=True)
class Timings:
    """What a worker measured, in nanoseconds, each several times.

    ``first``: the first call after new inputs were bound; ``second``: another on the same; ``again``: the first call
    after the sample, which was timed before, was bound again; ``outputs``: outputs() after a first call; ``copies``:
    copying such outputs. ``first_cpu`` and ``second_cpu`` are the CPU time of the process in these calls, to which
    waiting adds nothing. ``late`` says that outputs() followed what its inputs were overwritten with after the call.
    """

    first: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    first_cpu: list[int] = field(default_factory=list)
    second_cpu: list[int] = field(default_factory=list)
    late: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form that ``Timings(**...)`` reads back."""
        return asdict(self)


def call_once(executable: Executable, scenario: str, now: Callable[[], int] = clock.nanoseconds) -> int:
    """Make one call on what is bound and wait for it. Return nanoseconds."""
    began = now()
    if scenario == "latency":
        executable.run()
        executable.synchronize()
    else:
        executable.submit(0)
        executable.next_done()
    return now() - began


def probe(
    executable: Executable,
    inputs: Inputs,
    sample: Inputs,
    call_ns: float,
    scenario: str = "latency",
    *,
    now: Callable[[], int] = clock.nanoseconds,
    cpu: Callable[[], int] = clock.cpu_nanoseconds,
) -> Timings:
    """Call on variations of ``inputs``, each for the first time, and in turn on the ``sample`` that was timed.

    Whole numbers are not varied, for they may be positions or lengths: where there is nothing else ``first`` stays
    empty. One round is enough where it looks right beside ``call_ns``, a timed call. Otherwise there are twenty, or as
    many as half a minute holds. Where outputs() takes half a call, it is also found out whether it works late.
    """
    timings, until = Timings(), now() + round(_SECONDS * 1e9)
    for number in range(_ROUNDS):
        varied = vary(inputs, number + 1)
        is_new = any(array.dtype.kind in "fc" and array.size for array in varied.values())
        executable.bind(varied)
        used = cpu()
        first = call_once(executable, scenario, now)
        first_cpu = cpu() - used
        if is_new:
            timings.first.append(first)
            timings.first_cpu.append(first_cpu)
        began = now()
        outputs = executable.outputs()
        asked = now()
        timings.outputs.append(asked - began)
        # Where there are no outputs there is nothing to copy.
        _ = [each.copy() for each in outputs or ()]
        timings.copies.append(now() - asked)
        used = cpu()
        timings.second.append(call_once(executable, scenario, now))
        timings.second_cpu.append(cpu() - used)
        executable.bind({name: array.copy() for name, array in sample.items()})
        timings.again.append(call_once(executable, scenario, now))
        if now() > until or not _objection_to_times(timings, call_ns):
            break
    late = min(timings.outputs) > _WORKS * call_ns and works_late(executable, inputs, scenario)
    return Timings(**{**timings.to_json(), "late": late})


def vary(inputs: Inputs, number: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return a copy of inputs with other bytes: every float smaller by a small share, another one for each number.

    Never larger: somewhere a number may be an index.
    """
    return {
        name: (array * (1 - number / 1024)).astype(array.dtype) if array.dtype.kind in "fc" else array.copy()
        for name, array in inputs.items()
    }


def works_late(executable: Executable, inputs: Inputs, scenario: str = "latency") -> bool:
    """Return whether outputs() computes from the inputs as they are when it is asked, not as they were at the call.

    The arrays that were bound are overwritten with zeros between the call and outputs(). Outputs that *are* numbers of
    the inputs, as where a model returns its input or a view of it, change with them rightly.
    """
    import numpy as np

    def call(overwrite: bool) -> list[np.ndarray[Any, Any]]:
        bound = vary(inputs, _ROUNDS + 1)
        executable.bind(bound)
        call_once(executable, scenario)
        if overwrite:
            for array in bound.values():
                array[...] = 0
        return [np.asarray(each) for each in executable.outputs() or ()]

    before, late, after = call(False), call(True), call(False)
    for first, second, third in zip(before, late, after, strict=False):
        if not first.size or first.shape != second.shape or first.shape != third.shape or _distance(first, third):
            # Outputs of different calls differ anyway: nothing follows from it.
            return False
    return any(
        _distance(first, second) > _DIFFERENT and np.count_nonzero(second)
        for first, second in zip(before, late, strict=False)
    )


def _distance(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """Return the largest difference as a share of the largest number, or 0 where that is small."""
    import numpy as np

    # Outputs may be gigabytes.
    one, other = (np.ravel(each)[:_COMPARED].astype(np.complex128) for each in (left, right))
    distance = float(np.abs(one - other).max() / (np.abs(one).max() or 1.0))
    return distance if distance > _DIFFERENT else 0.0


def joined(several: Sequence[Timings]) -> Timings:
    """Return all that was measured in several places."""
    return Timings(
        first=[each for timings in several for each in timings.first],
        outputs=[each for timings in several for each in timings.outputs],
        first_cpu=[each for timings in several for each in timings.first_cpu],
    )


def is_suspicious(timings: Timings, call_ns: float, *, on_accelerator: bool = False) -> bool:
    """Return whether single calls are not enough to clear a cell. ``call_ns`` is a timed call.

    A call that was slow for lack of a CPU has used none. On an accelerator calls use none anyway.
    """
    slow = bool(timings.first) and _is_slower(min(timings.first), call_ns)
    worked = on_accelerator or (bool(timings.first_cpu) and _is_slower(min(timings.first_cpu), call_ns))
    return (slow and worked) or (bool(timings.outputs) and min(timings.outputs) > _WORKS * call_ns)


def objection(timings: Timings, call_ns: float, *, on_accelerator: bool = False) -> str:
    """Return in what a cell's calls are not what their times say, or nothing. ``call_ns`` is a timed call.

    On an accelerator the first call on what is bound may rightly be slow, as where a graph is captured again for other
    addresses: there calls on new inputs are held against first calls on the sample only.
    """
    if timings.late:
        return (
            "it works in outputs(), not in the calls that are timed: its outputs follow inputs that came after the call"
        )
    if len(timings.second) < _ACCUSING:
        return ""
    return _objection_to_times(timings, call_ns, on_accelerator=on_accelerator)


def _objection_to_times(timings: Timings, call_ns: float, *, on_accelerator: bool = False) -> str:
    control = timings.again if on_accelerator else timings.second
    # Where other calls are not as fast as they were either, it is the machine that is busy.
    if timings.first and not _is_slower(median(control), call_ns):
        first = min(timings.first)
        works_more = on_accelerator or _is_slower(min(timings.first_cpu), min(timings.second_cpu))
        if works_more and _is_slower(first, call_ns):
            return (
                f"its calls are faster on inputs it has seen ({_us(call_ns)} a call, {_us(first)} on new inputs): "
                "results are cached"
            )
    if timings.outputs and call_ns:
        asked = min(timings.outputs)
        if asked > _SLOWER * call_ns and asked > _COPIES * min(timings.copies) + _COPYING_NS:
            return (
                f"its outputs() takes {_us(asked)} where a call takes {_us(call_ns)} and copying its outputs "
                f"{_us(min(timings.copies))}: it works in outputs(), not in the calls that are timed"
            )
    return ""


def _is_slower(nanoseconds: float, than: float) -> bool:
    return nanoseconds > _SLOWER * than + _SLOWER_NS


def _us(nanoseconds: float) -> str:
    return units.seconds(nanoseconds * 1e-9)
