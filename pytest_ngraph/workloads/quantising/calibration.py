"""What an int8 copy is calibrated on: samples that the model brings, or inputs drawn from seeds - and which, in words.

Samples are put together to calls of the workload's batch, each of them as often as every other. So the numbers that an
activation takes are the same at every batch, and so are its scales.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import NgraphError, SpecError

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]

# Of what a model brings where a precision does not say how many.
MOST_BROUGHT = 512
# The share of numbers, in percent, that ``percentile`` keeps, half of the others cut off at either end.
PERCENTILE_KEPT = 99.99
_BATCHES = 5  # of inputs, where a precision does not say how many samples


@dataclass(frozen=True, slots=True)
class Calibration:
    """Calls to calibrate on: a function that gives them, the same each time, how many there are, and what they are."""

    calls: Callable[[], Iterator[Arrays]]
    count: int
    said: str


def drawn(
    inputs: Callable[[int, int], Arrays], seed: int, batch: int, samples: int | None, stacked: bool
) -> Calibration:
    """Return inputs drawn from seeds. ``inputs(seed, batch)`` draws them, samples make a batch if they are ``stacked``.

    Without a number of samples they are five batches, as they were before there was one: then every batch has other
    samples. None of them is one that outputs are compared on: it is easy to be right where one has looked.
    """
    if samples is None or not stacked:
        count = samples or _BATCHES

        def calls() -> Iterator[Arrays]:
            return (inputs(seed + 1 + further, batch) for further in range(count))

        what = "batches" if stacked else "calls"
        return Calibration(calls, count, f"{count} {what if count > 1 else what[:-1]} drawn from a seed")
    pieces = [inputs(seed + 1 + further, 1) for further in range(samples)]
    return together(pieces, batch, f"{samples} sample{'s' if samples > 1 else ''} drawn from a seed")


def brought(
    items: Callable[[], Iterable[Arrays]], timed: Arrays, text: str, batch: int, samples: int | None
) -> Calibration:
    """Return what a model brings. ``items`` gives it, read by name; ``timed`` are inputs as they have to be.

    Where all inputs have the batch as their first dimension an item may have any number of samples, else it has to be
    a whole call. Raises SpecError that says which item is not, and how, and for fewer than ``samples``.
    """
    stacked = is_stacked(timed, batch)
    most = samples or MOST_BROUGHT
    found: list[Arrays] = []
    is_more = False
    for number, item in enumerate(items()):
        pieces = _checked(item, timed, stacked, f"model {text!r}: calibration_inputs() gave, as number {number},")
        is_more = len(found) + len(pieces) > most
        found += pieces[: most - len(found)]
        if is_more or (samples is not None and len(found) == most):
            break
    what = "sample" if stacked else "call"
    if not found:
        raise SpecError(f"model {text!r}: calibration_inputs() gave nothing (expected one {what} or more)")
    if samples is not None and len(found) < samples:
        raise SpecError(
            f"model {text!r}: calibration_inputs() gave {len(found)} {what}s where the precision asks for "
            f"samples={samples} (allowed: at most {len(found)}, or leave it out for all of them)"
        )
    said = f"{len(found)} {what}{'s' if len(found) > 1 else ''} of the model"
    said = f"the first {said}, which brings more" if is_more and samples is None else said
    if not stacked:
        return Calibration(lambda: iter(found), len(found), said)
    return together(found, batch, said)


def together(pieces: Sequence[Arrays], batch: int, said: str) -> Calibration:
    """Put samples together to calls of a batch, again from the first until each was in as many calls as every other."""
    count = math.lcm(len(pieces), batch) // batch

    def calls() -> Iterator[Arrays]:
        import numpy as np

        rows = itertools.cycle(pieces)
        for _ in range(count):
            call = list(itertools.islice(rows, batch))
            yield {name: np.concatenate([row[name] for row in call]) for name in call[0]}

    return Calibration(calls, count, said)


def is_stacked(timed: Arrays, batch: int) -> bool:
    """Return whether every input has the batch as its first dimension."""
    return all(array.shape[:1] == (batch,) for array in timed.values())


def draws_one(inputs: Callable[[int, int], Arrays], timed: Arrays, seed: int, batch: int) -> bool:
    """Return whether samples can be drawn one by one and put together to what is timed."""
    if not is_stacked(timed, batch):
        return False
    try:
        one = inputs(seed, 1)
    except NgraphError:
        return False  # a user's model may know one batch only
    return {name: array.shape for name, array in one.items()} == {
        name: (1, *array.shape[1:]) for name, array in timed.items()
    }


def _checked(item: Arrays, timed: Arrays, stacked: bool, given: str) -> list[Arrays]:
    """Return the samples of an item. Raise SpecError, beginning with what was ``given``, for what cannot be fed."""
    import numpy as np

    if item.keys() != timed.keys():
        raise SpecError(
            f"{given} the inputs {', '.join(item) or 'none'} (expected {', '.join(timed)}, as example_inputs() does; "
            "leave labels out)"
        )
    for name, array in item.items():
        wanted = timed[name]
        if array.dtype != wanted.dtype:
            raise SpecError(f"{given} {name!r} in {array.dtype} (expected {wanted.dtype}, as example_inputs() does)")
        inner, expected = (array.shape[1:], wanted.shape[1:]) if stacked else (array.shape, wanted.shape)
        if inner != expected or len(array.shape) != len(wanted.shape):
            form = f"(N, {', '.join(map(str, expected))})".replace(", )", ",)") if stacked else str(tuple(expected))
            raise SpecError(f"{given} {name!r} of shape {tuple(array.shape)} (expected {form})")
        if array.dtype.kind == "f" and (bad := int((~np.isfinite(array)).sum())):
            raise SpecError(f"{given} {name!r} with {bad} of {array.size} numbers NaN or infinite: no scale holds them")
    if not stacked:
        return [item]
    sizes = {name: array.shape[0] for name, array in item.items()}
    if len(set(sizes.values())) > 1:
        raise SpecError(f"{given} inputs of different batches: {sizes}")
    rows = next(iter(sizes.values()))
    if not rows:
        raise SpecError(f"{given} a batch of 0 samples")
    return [{name: array[row : row + 1] for name, array in item.items()} for row in range(rows)]
