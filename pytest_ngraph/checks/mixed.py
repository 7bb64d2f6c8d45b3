"""Calls of a mix of shapes, in a fixed order: each binds its inputs and runs, as a call of another shape has to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.errors import Unsupported
from pytest_ngraph.machine import clock
from pytest_ngraph.spec.shapes.mixes import Mix

if TYPE_CHECKING:
    import numpy as np

    Inputs = Mapping[str, np.ndarray[Any, Any]]


class MixedCalls(Executable):
    """A turn of calls of an executable that is for open shapes. ``run`` makes all of them.

    Binding is part of each call here, as a call with another shape has to, and of none where shapes stay.
    """

    def __init__(self, inner: Executable, mix: Mix, seed: int, inputs: Inputs) -> None:
        """Bind the inputs of the largest batch. Raises Unsupported where smaller ones are not in them as rows."""
        self._inner, self._mix = inner, mix
        self._order = mix.order(seed)
        self.calls_in_a_run = len(self._order)
        self._turn: list[Inputs] = []
        self.bind(inputs)

    def bind(self, inputs: Inputs) -> None:
        """Take the inputs of the largest batch: those of the others are its first rows, in arrays of their own."""
        each = {batch: first_rows(inputs, self._mix.batches[-1], batch) for batch in self._mix.batches}
        self._turn = [each[batch] for batch in self._order]

    def run(self) -> None:
        """Make the calls of a turn, each after the one before has finished."""
        bind, run, synchronize = self._inner.bind, self._inner.run, self._inner.synchronize
        for inputs in self._turn:
            bind(inputs)
            run()
            synchronize()

    def first_calls(self) -> dict[int, float]:
        """Return the seconds of a call at each batch, smallest first: of the first there, where it is asked first."""
        seconds = {}
        for batch in self._mix.batches:
            inputs = self._turn[self._order.index(batch)]
            began = clock.seconds()
            self._inner.bind(inputs)
            self._inner.run()
            self._inner.synchronize()
            seconds[batch] = clock.seconds() - began
        return seconds

    def outputs(self) -> Sequence[np.ndarray] | None:
        """Return the outputs of the turn's last call."""
        return self._inner.outputs()


def first_rows(inputs: Inputs, whole: int, batch: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return the first samples of inputs of a ``whole`` batch. Raise Unsupported where they are not rows."""
    for name, array in inputs.items():
        if array.shape[:1] != (whole,):
            raise Unsupported(
                f"input {name!r} of shape {array.shape} has no row for each of {whole} samples: no mix of it"
            )
    return {name: array[:batch].copy() for name, array in inputs.items()}
