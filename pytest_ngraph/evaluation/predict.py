"""``predict``: a compiled cell as a function of as many samples as an evaluation likes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.texts.shown import one_line

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.compilers.base import Executable

    Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a model as its cell takes it: in full batches."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class Seen:
    """What one output was like: its dtype, the shape of a row, and its smallest and largest finite number."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    low: float
    high: float


class Predict:
    """Calls a cell on any number of samples, in batches of the cell's. The last one is filled up and cut again.

    ``predict(x)`` takes what ``example_inputs`` gives - a tensor, a tuple or a dict of them, or NumPy arrays -, or the
    same as arguments. It gives what the module gives as a tensor, or a tuple of all tensors in it, of as many rows;
    arrays where it was given arrays. What it is given stays as it is, and what it gives is the caller's own.
    """

    def __init__(
        self,
        text: str,
        executable: Executable,
        inputs: Sequence[Input],
        batch: int,
        alive: Callable[[int], None] = lambda samples: None,
    ) -> None:
        """Take the model's reference, for messages, the cell and what it takes. ``alive`` gets the samples so far."""
        self._text, self._executable, self._alive = text, executable, alive
        self._inputs, self.batch = inputs, batch
        # Those that have a row for each sample; the others are the same for all.
        self._by_row = {each.name for each in inputs if each.shape[:1] == (batch,)}
        self._hashes = {each.name: hashlib.sha256() for each in inputs}
        self._lock = Lock()
        self.samples = self.calls = 0
        self.seen: list[Seen] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs for some samples. Raise SpecError for what the cell does not take."""
        given, are_tensors = self._read(args, kwargs)
        # An evaluation may have threads; a cell has none beside its own.
        with self._lock:
            outputs = self._answer(given, self._rows_of(given))
        if are_tensors:
            import torch

            return _alone([torch.from_numpy(array) for array in outputs])
        return _alone(outputs)

    @property
    def digest(self) -> str:
        """Return the sha256 of all samples that were given, however they were divided into calls."""
        each = [f"{name} {content.hexdigest()}" for name, content in self._hashes.items()]
        return hashlib.sha256("\n".join(each).encode()).hexdigest()

    def _answer(self, given: Arrays, rows: int) -> list[np.ndarray[Any, Any]]:
        import numpy as np

        for name, array in given.items():
            if name in self._by_row or not self.samples:
                self._hashes[name].update(np.ascontiguousarray(array).data)
        columns: list[list[np.ndarray[Any, Any]]] = []
        for first in range(0, rows, self.batch):
            outputs = self._call(given, first, min(self.batch, rows - first))
            columns = columns or [[] for _ in outputs]
            for column, output in zip(columns, outputs, strict=True):
                column.append(output)
            self.samples += min(self.batch, rows - first)
            self._alive(self.samples)
        return [np.concatenate(column) for column in columns]

    def _call(self, given: Arrays, first: int, rows: int) -> list[np.ndarray[Any, Any]]:
        """Call the cell on some rows, the last one again and again where they are fewer than a batch."""
        import numpy as np

        places = np.minimum(np.arange(first, first + self.batch), first + rows - 1)
        # Copies: a runtime may write where it reads.
        fed = {name: array[places] if name in self._by_row else array.copy() for name, array in given.items()}
        self._executable.bind(fed)
        self._executable.run()
        self._executable.synchronize()
        self.calls += 1
        outputs = self._executable.outputs()
        if not outputs:
            raise SpecError(f"model {self._text!r}: the compiled cell gives no outputs, so nothing can be evaluated")
        cut = []
        for place, output in enumerate(map(np.asarray, outputs)):
            if output.shape[:1] != (self.batch,):
                raise SpecError(
                    f"model {self._text!r}: output {place} has shape {output.shape} at batch {self.batch}: it has no "
                    "row for each sample, so predict cannot give one; evaluate needs outputs whose first dimension is "
                    "the batch"
                )
            # f16 and bf16 are widened, which changes neither a number nor an order.
            wide = output.astype(np.float32) if output.dtype.kind not in "iubc" and output.itemsize < 4 else output
            cut.append(np.array(wide[:rows]))
        self._note(cut)
        return cut

    def _note(self, outputs: Sequence[np.ndarray[Any, Any]]) -> None:
        import numpy as np

        for place, output in enumerate(outputs):
            finite = output[np.isfinite(output)] if output.dtype.kind == "f" else output
            low = float(finite.min()) if finite.size else 0.0
            high = float(finite.max()) if finite.size else 0.0
            if place == len(self.seen):
                self.seen.append(Seen(output.dtype, output.shape[1:], low, high))
            known = self.seen[place]
            known.low, known.high = min(known.low, low), max(known.high, high)

    # What it is given

    def _read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Arrays, bool]:
        """Return the inputs as arrays by name, and whether tensors were given."""
        names = [each.name for each in self._inputs]
        if kwargs and not args:
            given = dict(kwargs)
        elif len(args) == 1 and not kwargs and isinstance(args[0], Mapping):
            given = {str(name): value for name, value in args[0].items()}
        elif not kwargs:
            values = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
            if len(values) != len(names):
                raise self._wrong(f"{len(values)} inputs", f"the {len(names)} that the model takes: {', '.join(names)}")
            given = dict(zip(names, values, strict=True))
        else:
            raise self._wrong("some inputs by position and some by name", f"{', '.join(names)}, all in one way")
        if set(given) != set(names):
            raise self._wrong(f"inputs {', '.join(sorted(given))}", ", ".join(names))
        arrays = {each.name: self._array(each, given[each.name]) for each in self._inputs}
        return arrays, all(type(value).__module__.partition(".")[0] == "torch" for value in given.values())

    def _array(self, wanted: Input, value: Any) -> np.ndarray[Any, Any]:
        import numpy as np

        if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        if not isinstance(value, np.ndarray):
            raise self._wrong(f"{wanted.name!r} as {type(value).__name__}", "a tensor or a NumPy array")
        by_row = wanted.name in self._by_row
        if (value.ndim, value.shape[by_row:]) != (len(wanted.shape), wanted.shape[by_row:]):
            form = ", ".join(map(str, [*(["samples"] if by_row else []), *wanted.shape[by_row:]]))
            raise self._wrong(f"{wanted.name!r} of shape {value.shape}", f"shape ({form})")
        if str(value.dtype) != wanted.dtype:
            raise self._wrong(f"{wanted.name!r} of {value.dtype}", f"{wanted.dtype}, as example_inputs gives it")
        return value

    def _rows_of(self, given: Arrays) -> int:
        if not self._by_row:
            raise SpecError(
                f"model {self._text!r}: none of its inputs has the batch as its first dimension, so predict cannot put "
                "samples together; evaluate needs one that has"
            )
        rows = {name: len(given[name]) for name in self._by_row}
        if len(set(rows.values())) > 1 or not all(rows.values()):
            said = ", ".join(f"{count} of {name}" for name, count in rows.items())
            raise self._wrong(f"samples: {said}", "as many of each, one at least")
        return next(iter(rows.values()))

    def _wrong(self, given: str, expected: str) -> SpecError:
        return SpecError(f"model {self._text!r}: its evaluate gave predict {one_line(given)} (expected {expected})")


class Blind(Predict):
    """Gives random numbers where another ``predict`` called its cell, of what that gave in kind and in size.

    What is said of samples must change with it: an evaluation that says the same looks at nothing that the cell gave.
    """

    def __init__(self, real: Predict, seed: int) -> None:
        """Take what was seen of the real outputs."""
        import numpy as np

        super().__init__(real._text, real._executable, real._inputs, real.batch)
        self.seen = real.seen
        self._draw = np.random.default_rng(seed)

    def _answer(self, given: Arrays, rows: int) -> list[np.ndarray[Any, Any]]:
        return [self._drawn(each, rows) for each in self.seen]

    def _drawn(self, seen: Seen, rows: int) -> np.ndarray[Any, Any]:
        shape = (rows, *seen.shape)
        if seen.dtype.kind in "iub":
            # One more than there was: the same class for all is no excuse.
            whole = self._draw.integers(int(seen.low), max(int(seen.high), int(seen.low) + 1), shape, endpoint=True)
            return whole.astype(seen.dtype)
        low, high = (seen.low, seen.high) if seen.low < seen.high else (seen.low - 1, seen.high + 1)
        return self._draw.uniform(low, high, shape).astype(seen.dtype)


def inputs_of(described: Sequence[Mapping[str, Any]]) -> Iterator[Input]:
    """Yield the inputs that an artifact's meta data describes."""
    for each in described:
        yield Input(str(each["name"]), str(each["dtype"]), tuple(each["shape"]))


def _alone(outputs: Sequence[Any]) -> Any:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
