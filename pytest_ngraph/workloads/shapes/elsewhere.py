"""The sizes at which a build for open shapes is tried beside those that are measured, and the axes that are open."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.precisions import QUANTISED
from pytest_ngraph.spec.shapes.mixes import STATIC, is_bucketed, is_mix, parse
from pytest_ngraph.workloads.kinds.axes import LENGTH, axis_values

BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of an open axis: where a build for it is traced and where it is tried, neither of which is measured."""

    traced: int
    tried: int


def is_open(workload: Workload) -> bool:
    """Return whether one build is to serve a range of sizes."""
    return workload.shapes != STATIC and not is_bucketed(workload.shapes)


def open_sizes(workload: Workload) -> dict[str, Sizes]:
    """Return the axes that a build leaves open: those that are mixed, else the batch and any length.

    A batch is traced at two, where tracers take nothing for granted that holds of one only, or at the next that is not
    measured, and tried at a prime, which is no usual number of channels: what was fixed to another shows there. No two
    of these numbers are the same, so that an axis of an input is known by them.
    """
    if not is_open(workload):
        return {}
    length = axis_values(workload).get(LENGTH)
    if is_mix(workload.shapes):
        mix = parse(workload.shapes)
        measured = {BATCH: mix.batches, LENGTH: mix.lengths}
    else:
        measured = {BATCH: (workload.batch,), LENGTH: () if length is None else (length,)}
    found: dict[str, Sizes] = {}
    if measured[BATCH]:
        taken = {*measured[BATCH]}
        traced = next(number for number in count(2) if number not in taken and not _is_prime(number, beyond=3))
        found[BATCH] = Sizes(traced, next(each for each in _primes(max(5, traced + 1)) if each not in taken))
    if measured[LENGTH]:
        batches = {*measured[BATCH], *((found[BATCH].traced, found[BATCH].tried) if found else (workload.batch,))}
        found[LENGTH] = _lengths({*measured[LENGTH]}, batches)
    return found


def _lengths(measured: Collection[int], batches: Collection[int]) -> Sizes:
    """Return where a build for open lengths is traced and tried: near three quarters of the longest.

    What is compiled is chosen by the sizes that it is traced at, so these are no smaller than people's. A model may
    have no positions beyond the longest.
    """
    taken, near = {*measured, *batches}, max(3, 3 * max(measured) // 4)
    down = (number for number in range(near, 2, -1) if _is_prime(number))
    for tried in chain(down, _primes(near + 1)):
        traced = next((number for number in range(tried - 1, 1, -1) if number not in taken), None)
        if tried not in taken and traced is not None:
            return Sizes(traced, tried)
    raise AssertionError("there is always a larger prime")


def _primes(least: int) -> Iterator[int]:
    return (number for number in count(least) if _is_prime(number))


def _is_prime(number: int, beyond: int = 1) -> bool:
    """Return whether a number is prime, and greater than ``beyond``."""
    return number > beyond and all(number % each for each in range(2, int(number**0.5) + 1))


def elsewhere(workload: Workload) -> Workload | None:
    """Return the model at the sizes that a build for open shapes is tried at, None where shapes are not open.

    It is static, in f32 and called once: what it must give there is all that is asked.
    """
    sizes = open_sizes(workload)
    if not sizes:
        return None
    return _once(workload, {axis: each.tried for axis, each in sizes.items()})


def lengths(workload: Workload) -> dict[int, Workload]:
    """Return the model at the further lengths of a mix: its inputs, and what it must give there."""
    if not is_mix(workload.shapes):
        return {}
    others = (each for each in parse(workload.shapes).lengths if each != workload.sequence)
    return {length: _once(workload, {LENGTH: length}) for length in others}


def builds(workload: Workload) -> dict[int, Workload]:
    """Return the static workload of each bucket that calls fall into, by its length."""
    if not is_bucketed(workload.shapes):
        return {}
    return {length: replace(workload, sequence=length, shapes=STATIC) for length in parse(workload.shapes).used_buckets}


def _once(workload: Workload, sizes: Mapping[str, int]) -> Workload:
    return replace(workload, shapes=STATIC, precision="f32", scenario="latency", **sizes)  # type: ignore[arg-type]


def where(workload: Workload) -> str:
    """Name the place where a workload's build is tried."""
    return ", ".join(f"{axis} {each.tried}" for axis, each in open_sizes(workload).items())


def why_not(workload: Workload) -> str | None:
    """Return why a model is not built for several shapes, or None where it may be."""
    if workload.shapes != STATIC and workload.base_precision == QUANTISED:
        return f"shapes={workload.shapes} of {QUANTISED}: a quantised file is calibrated and written for one batch"
    if workload.shapes != STATIC and workload.decode is not None:
        return f"shapes={workload.shapes} of decode={workload.decode}: its steps are built for lengths of their own"
    return None


def open_axes(
    here: Mapping[str, Sequence[int]], there: Mapping[str, Sequence[int]], label: str
) -> dict[str, tuple[int, ...]]:
    """Return the axes of each input that differ between two sizes of a model, given its inputs' shapes by name.

    Raises SpecError where inputs differ in more than lengths, or in nothing.
    """
    if here.keys() != there.keys() or any(len(here[name]) != len(there[name]) for name in here):
        raise SpecError(f"{label}: its inputs have other names or ranks at another batch: {dict(here)}, {dict(there)}")
    axes = {
        name: tuple(axis for axis, (one, other) in enumerate(zip(shape, there[name], strict=True)) if one != other)
        for name, shape in here.items()
    }
    if not any(axes.values()):
        raise SpecError(f"{label}: its inputs have the same shapes at another batch: {dict(here)}; nothing is open")
    return axes


def named(
    axes: Mapping[str, Iterable[int]], traced: Mapping[str, Sequence[int]], sizes: Mapping[str, Sizes]
) -> dict[str, dict[int, str]]:
    """Return what each open axis of an input is called: as the axis whose size it has where it is traced, or apart."""
    names = {each.traced: axis for axis, each in sizes.items()}
    return {
        name: {axis: names.get(traced[name][axis], f"{name}_{axis}") for axis in open_ones}
        for name, open_ones in axes.items()
    }
