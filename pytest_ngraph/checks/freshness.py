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
from pytest_ngraph.workloads.decoding.generation import TOKENS

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
# The number of a variation that no round of a probe has.
_APART = 1 + _ROUNDS
# The parts of a call that generates tokens: until the first of them, and the others.
FIRST, STEPS = "first", "steps"


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


def spent(executable: Executable, scenario: str, part: str, *clocks: Callable[[], int]) -> list[int]:
    """Make one call on what is bound, wait for it, and return what each clock says of it, or of one of its parts."""
    if part:
        return _spent_in_parts(executable, *clocks)[part]
    began = [clock() for clock in clocks]
    call_once(executable, scenario, lambda: 0)
    return [clock() - before for clock, before in zip(clocks, began, strict=True)]


def _spent_in_parts(executable: Executable, *clocks: Callable[[], int]) -> dict[str, list[int]]:
    """Make one call that generates tokens, and return what each clock says of its parts."""

    def read() -> list[int]:
        return [clock() for clock in clocks]

    began = read()
    executable.prefill()
    executable.synchronize()
    between = read()
    for index in range(executable.steps):
        executable.step(index)
        executable.synchronize()
    ended = read()
    return {
        part: [after - before for before, after in zip(*ends, strict=True)]
        for part, ends in ((FIRST, (began, between)), (STEPS, (between, ended)))
    }


def parts_of(executable: Executable, given: Inputs) -> dict[str, Timings]:
    """Return what the parts of a call take on tokens that are not those that the model would choose itself.

    Nothing of a call that is one. Who guesses the tokens in one part, and looks them up in another, guesses wrong here.
    """
    if not executable.steps:
        return {}
    executable.bind(vary(given, _APART, with_tokens=True))
    found = _spent_in_parts(executable, clock.nanoseconds, clock.cpu_nanoseconds)
    return {part: Timings([first], first_cpu=[first_cpu]) for part, (first, first_cpu) in found.items()}


def probe(
    executable: Executable,
    inputs: Inputs,
    sample: Inputs,
    call_ns: float,
    scenario: str = "latency",
    *,
    part: str = "",
    now: Callable[[], int] = clock.nanoseconds,
    cpu: Callable[[], int] = clock.cpu_nanoseconds,
) -> Timings:
    """Call on variations of ``inputs``, each for the first time, and in turn on the ``sample`` that was timed.

    Whole numbers are not varied, for they may be positions or lengths: where there is nothing else ``first`` stays
    empty. With a ``part`` of a call that generates tokens these are, and that part alone is timed. One round is enough
    where it looks right beside ``call_ns``, a timed call. Otherwise there are twenty, or as many as half a minute
    holds. Where outputs() takes half a call, it is also found out whether it works late.
    """
    timings, until = Timings(), now() + round(_SECONDS * 1e9)
    for number in range(_ROUNDS):
        varied = vary(inputs, number + 1, with_tokens=bool(part))
        is_new = any(_is_varied(array, inputs[name]) for name, array in varied.items())
        executable.bind(varied)
        first, first_cpu = spent(executable, scenario, part, now, cpu)
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
        second, second_cpu = spent(executable, scenario, part, now, cpu)
        timings.second.append(second)
        timings.second_cpu.append(second_cpu)
        executable.bind({name: array.copy() for name, array in sample.items()})
        timings.again.extend(spent(executable, scenario, part, now))
        if now() > until or not _objection_to_times(timings, call_ns, of_part=bool(part)):
            break
    late = min(timings.outputs) > _WORKS * call_ns and works_late(executable, inputs, scenario)
    return Timings(**{**timings.to_json(), "late": late})


def vary(inputs: Inputs, number: int, *, with_tokens: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """Return a copy of inputs with other bytes: every float smaller by a small share, another one for each number.

    Never larger: somewhere a number may be an index. Where inputs are known to be tokens these change places in their
    row, in another way for each number, and those that the steps take become some of the prompt: none is there that
    was not, and the model would have chosen others.
    """
    import numpy as np

    draw, prompt = np.random.default_rng(number), next(iter(inputs.values()), None)

    def varied(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        made: np.ndarray[Any, Any] = array.copy()
        if array.dtype.kind in "fc":
            # What is worked out of a number alone is no array by itself.
            made = np.asarray(array * (1 - number / 1024), array.dtype)
        elif with_tokens and name == TOKENS and prompt is not None:
            made = draw.choice(prompt.ravel(), array.shape)
        elif with_tokens and array.ndim > 1:
            made = draw.permuted(array, axis=1)
        return made

    return {name: varied(name, array) for name, array in inputs.items()}


def _is_varied(varied: np.ndarray[Any, Any], given: np.ndarray[Any, Any]) -> bool:
    """Return whether an array has other bytes than before, so that nobody can have kept what follows from it."""
    return bool(varied.size) and (varied.dtype.kind in "fc" or varied.tobytes() != given.tobytes())


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


def objection(timings: Timings, call_ns: float, *, on_accelerator: bool = False, of_part: bool = False) -> str:
    """Return in what a cell's calls are not what their times say, or nothing. ``call_ns`` is a timed call.

    On an accelerator the first call on what is bound may rightly be slow, as where a graph is captured again for other
    addresses: there calls on new inputs are held against first calls on the sample only. So are those ``of_part``, as
    who guesses tokens guesses these wrong each time.
    """
    if timings.late:
        return (
            "it works in outputs(), not in the calls that are timed: its outputs follow inputs that came after the call"
        )
    if len(timings.second) < _ACCUSING:
        return ""
    return _objection_to_times(timings, call_ns, on_accelerator=on_accelerator, of_part=of_part)


def _objection_to_times(
    timings: Timings, call_ns: float, *, on_accelerator: bool = False, of_part: bool = False
) -> str:
    control = timings.again if on_accelerator or of_part else timings.second
    # Where other calls are not as fast as they were either, it is the machine that is busy.
    usual = min if of_part else median
    if timings.first and not _is_slower(usual(control), call_ns):
        first = min(timings.first)
        worked = call_ns if of_part else min(timings.second_cpu)
        works_more = on_accelerator or _is_slower(min(timings.first_cpu), worked)
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
