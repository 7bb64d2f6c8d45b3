"""Calls of a mix of shapes, in a fixed order: each binds its inputs and runs, as a call of another shape has to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.errors import Unsupported
from pytest_ngraph.machine import clock
from pytest_ngraph.spec.shapes.mixes import Mix, Shape

if TYPE_CHECKING:
    import numpy as np

    Inputs = Mapping[str, np.ndarray[Any, Any]]


class MixedCalls(Executable):
    """A turn of calls of an executable that is for several shapes. ``run`` makes all of them.

    Binding is part of each call here, as a call with another shape has to, and of none where shapes stay.
    """

    def __init__(
        self, inner: Executable, mix: Mix, seed: int, inputs: Inputs, further: Mapping[int, Inputs] | None = None
    ) -> None:
        """Bind the inputs of the largest batch and length. ``further`` has those of that batch at other lengths.

        Raises Unsupported where smaller batches are not in them as rows.
        """
        self._inner, self._mix, self._further = inner, mix, dict(further or {})
        # What is called before a turn is.
        self._largest = Shape(*(sizes[-1] if sizes else None for sizes in (mix.batches, mix.lengths)))
        self._order = mix.order(seed)
        self.calls_in_a_run = len(self._order)
        self._inputs: dict[Shape, Inputs] = {}
        self._turn: list[Inputs] = []
        self.bind(inputs)

    def bind(self, inputs: Inputs) -> None:
        """Take the inputs of the largest call: of smaller batches they are its first rows, in arrays of their own."""
        whole = self._largest.batch
        self._inputs = {
            shape: first_rows(self._further.get(shape.sequence or 0, inputs), whole, shape.batch)
            for shape in self._mix.shapes
        }
        self._turn = [self._inputs[shape] for shape in self._order]

    @property
    def turn(self) -> Sequence[Inputs]:
        """Return the inputs of a turn's calls, in their order."""
        return self._turn

    def run(self) -> None:
        """Make the calls of a turn, each after the one before has finished."""
        bind, run, synchronize = self._inner.bind, self._inner.run, self._inner.synchronize
        for inputs in self._turn:
            bind(inputs)
            run()
            synchronize()

    def first_calls(self, largest_seconds: float) -> dict[Shape, float]:
        """Return the seconds of the first call of each shape, smallest first.

        The largest batch at the largest length was called before, and took ``largest_seconds``; where no call of the
        mix is that large this is none of its first calls. What is bound afterwards is the last of them.
        """
        seconds = {}
        for shape, inputs in self._inputs.items():
            if shape == self._largest:
                seconds[shape] = largest_seconds
                continue
            began = clock.seconds()
            self._inner.bind(inputs)
            self._inner.run()
            self._inner.synchronize()
            seconds[shape] = clock.seconds() - began
        return seconds

    def outputs(self) -> Sequence[np.ndarray] | None:
        """Return the outputs of the turn's last call."""
        return self._inner.outputs()


def first_rows(inputs: Inputs, whole: int | None, batch: int | None) -> dict[str, np.ndarray[Any, Any]]:
    """Return the first samples of inputs of a ``whole`` batch, all of them where calls have no batch of their own.

    Raises Unsupported where they are not rows.
    """
    for name, array in inputs.items():
        if batch is not None and array.shape[:1] != (whole,):
            raise Unsupported(
                f"input {name!r} of shape {array.shape} has no row for each of {whole} samples: no mix of it"
            )
    return {name: array[:batch].copy() if batch is not None else array.copy() for name, array in inputs.items()}
