"""What a model must give: the outputs for the inputs that are timed, and for a set of inputs that never are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import NgraphError, SpecError
from pytest_ngraph.workloads import folders
from pytest_ngraph.workloads.modules import arrays

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]

SAMPLES = 8
# Far from those of the timed inputs and of those that int8 is calibrated on.
_FIRST_SEED = 1_000_000
_MOST_BYTES = 256 << 20
# Rows that come from one sample differ by the order of f32 additions at most, or the model mixes its samples.
_SAME = 1e-5


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the set: inputs by name, what the model gives for them, and the rows that are samples of their own.

    Where a batch is longer than the samples of a call they are repeated: ``rows`` are those of the first round. It is
    None where outputs do not have the batch as their first dimension: then the call as a whole is one sample.
    """

    inputs: Arrays
    outputs: list[np.ndarray[Any, Any]]
    rows: int | None


class References:
    """The reference of one artifact, f32 and the same for all precisions. Read when it is asked for.

    It lies beside the artifacts, in a folder that no process is given that runs what a compiler made.
    """

    def __init__(self, folder: Path, meta: Mapping[str, Any]) -> None:
        """Keep its folder and what is known of it. ``find`` looks for both."""
        self._folder, self._meta = folder, meta

    @cached_property
    def timed(self) -> list[np.ndarray[Any, Any]]:
        """Return the outputs for the inputs that are timed, flat and in the model's order."""
        return list(arrays.load(self._folder / "timed.npz", self._names).values())

    @property
    def has_rows(self) -> bool:
        """Return whether every output has the batch as its first dimension, so that its rows are samples."""
        return bool(self._meta["rows"])

    @property
    def calls(self) -> int:
        """Return how many calls the set has: two or more."""
        return len(self._meta["calls"])

    def call(self, number: int) -> Call:
        """Return a call of the set."""
        pieces = self._meta["calls"][number]
        inputs = {name: self._assembled(array, pieces) for name, array in self._inputs.items()}
        if not self.has_rows:
            return Call(inputs, self.samples[number], None)
        columns = zip(*(self.samples[piece] for piece in pieces), strict=True)
        outputs = [_rows(column, range(len(pieces)), self._meta["batch"]) for column in columns]
        return Call(inputs, outputs, len(pieces))

    def foreign(self, number: int) -> list[np.ndarray[Any, Any]]:
        """Return what the model gives for other samples than those of a call: a check that takes them checks nothing.

        Each sample has the outputs of the next.
        """
        if not self.has_rows:
            return self.samples[(number + 1) % self.calls]
        pieces = [(piece + 1) % len(self.samples) for piece in self._meta["calls"][number]]
        columns = zip(*(self.samples[piece] for piece in pieces), strict=True)
        return [_rows(column, range(len(pieces)), self._meta["batch"]) for column in columns]

    @cached_property
    def samples(self) -> list[list[np.ndarray[Any, Any]]]:
        """Return the outputs for each sample of the set. With rows each of them has one."""
        stored = arrays.load(self._folder / "set.npz", [str(index) for index in range(self._meta["arrays"])])
        flat, count = list(stored.values()), len(self._names)
        return [flat[first : first + count] for first in range(0, len(flat), count)]

    @cached_property
    def means(self) -> list[np.ndarray[Any, Any] | None]:
        """Return the mean of each output over the samples, in f64: what the outputs for all inputs have in common.

        None for an output whose shape depends on what it is computed from.
        """
        import numpy as np

        found: list[np.ndarray[Any, Any] | None] = []
        for column in zip(*self.samples, strict=True):
            total = np.zeros(column[0].shape, np.result_type(column[0].dtype, np.float64))
            if any(each.shape != total.shape for each in column):
                found.append(None)
                continue
            for each in column:
                total += np.where(np.isfinite(each), each, 0)
            found.append(total / len(column))
        return found

    @property
    def _names(self) -> list[str]:
        return [each["name"] for each in self._meta["outputs"]]

    @cached_property
    def _inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        shared = self._folder.with_name(self._meta["inputs_folder"])
        return arrays.load(shared / "inputs.npz", self._meta["inputs"])

    def _assembled(self, array: np.ndarray[Any, Any], pieces: Sequence[int]) -> np.ndarray[Any, Any]:
        if not self._meta["stacked"]:
            [piece] = pieces
            whole: np.ndarray[Any, Any] = array[piece, ...]
            return whole
        return _rows(array, pieces, self._meta["batch"])


def folder_of(artifacts: Path, key: str) -> Path:
    """Return the folder of the reference of an artifact. It is beside ``artifacts``, the cache of artifacts."""
    return artifacts.with_name(f"{artifacts.name}-references") / f"reference-{key[:32]}"


def folders_of(artifacts: Path, key: str) -> list[Path]:
    """Return the folder of a model's reference, and that of the inputs that it refers to."""
    folder = folder_of(artifacts, key)
    meta = folders.read(folder)
    return [folder, *([folder.with_name(str(meta["inputs_folder"]))] if meta else [])]


def find(artifacts: Path, key: str) -> References | None:
    """Return the reference of an artifact by its key, or None where it is absent or damaged."""
    folder = folder_of(artifacts, key)
    meta = folders.read(folder)
    if meta is None or folders.read(folder.with_name(str(meta["inputs_folder"]))) is None:
        return None
    return References(folder, meta)


def write(
    folder: Path,
    inputs: Callable[[int, int], Arrays],
    run: Callable[[Arrays], Arrays],
    batch: int,
    seed: int,
    label: str,
) -> dict[str, Any]:
    """Write the reference of a model into a folder that is about to be published. Return its meta data.

    ``inputs(seed, batch)`` draws inputs, ``run`` calls the model. The samples of the set are drawn one by one and put
    together to calls of the batch, so that all batches are compared on the same. Where inputs cannot be put together so
    they are drawn for whole calls. Raises SpecError, before any compiler runs, where the model gives no numbers or no
    two calls of it give the same.
    """
    timed_inputs = inputs(seed, batch)
    timed = run(timed_inputs)
    _refuse_nan(timed, label)
    _refuse_random(timed, run(timed_inputs), label)
    drawn, stacked = _draw(inputs, timed_inputs, timed, batch, seed, label)
    calls = _calls(len(drawn), batch) if stacked else [[number] for number in range(len(drawn))]
    pieces = {name: _stack([each[name] for each in drawn]) for name in timed_inputs}
    given = []
    for call in calls:
        # ``...``, as one of several numbers is a number, and only an array can be fed.
        fed = {name: _rows(array, call, batch) if stacked else array[call[0], ...] for name, array in pieces.items()}
        given.append(run(fed))
        _refuse_nan(given[-1], label)
    rows = stacked and all(_has_rows(outputs, call, batch) for outputs, call in zip(given, calls, strict=True))
    name = _publish_inputs(folder.parent, pieces)
    arrays.save(folder / "timed.npz", timed)
    kept = [
        [array[row : row + 1] if rows else array for array in outputs.values()]
        for outputs, call in zip(given, calls, strict=True)
        for row in range(len(call) if rows else 1)
    ]
    flat = [array for sample in kept for array in sample]
    arrays.save(folder / "set.npz", {str(index): array for index, array in enumerate(flat)})
    return {
        "batch": batch,
        "stacked": stacked,
        "rows": rows,
        "calls": calls,
        "inputs": list(timed_inputs),
        "inputs_folder": name,
        "outputs": arrays.describe(timed),
        "arrays": len(flat),
    }


def _draw(
    inputs: Callable[[int, int], Arrays], timed: Arrays, outputs: Arrays, batch: int, seed: int, label: str
) -> tuple[list[Arrays], bool]:
    """Draw the samples of the set, or whole calls. Say which."""
    seeds = range(seed + _FIRST_SEED, seed + _FIRST_SEED + SAMPLES)
    size = sum(array.nbytes for array in (*timed.values(), *outputs.values()))
    try:
        one = inputs(seeds[0], 1)
    except NgraphError:
        one = {}  # a user's model may know one batch only
    if {name: (batch, *array.shape[1:]) for name, array in one.items() if array.shape[:1] == (1,)} == {
        name: array.shape for name, array in timed.items()
    }:
        count = max(2, min(SAMPLES, _MOST_BYTES // max(1, size // batch)))
        return [one, *(inputs(each, 1) for each in seeds[1:count])], True
    count = max(2, min(-(-SAMPLES // batch), _MOST_BYTES // max(1, size)))
    drawn = [inputs(each, batch) for each in seeds[:count]]
    for each in drawn:
        if {name: array.shape for name, array in each.items()} != {name: array.shape for name, array in timed.items()}:
            raise SpecError(
                f"{label}: its example_inputs({batch}) gives other names or shapes each time; every draw must have "
                "those of the first, since what is compiled for them is compared on further ones"
            )
    return drawn, False


def _calls(samples: int, batch: int) -> list[list[int]]:
    """Return which samples each call of a batch is made of: half of them at most, so that there are two calls."""
    size = min(batch, max(1, samples // 2))
    return [list(range(first, min(first + size, samples))) for first in range(0, samples, size)]


def _rows(
    samples: Sequence[np.ndarray[Any, Any]] | np.ndarray[Any, Any], pieces: Sequence[int], batch: int
) -> np.ndarray[Any, Any]:
    """Put samples together to a batch, again and again from the first where it is longer than they are."""
    import numpy as np

    rows: np.ndarray[Any, Any] = np.concatenate([samples[pieces[row % len(pieces)]] for row in range(batch)])
    return rows


def _stack(pieces: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.stack([np.asarray(piece) for piece in pieces])


def _has_rows(outputs: Arrays, call: Sequence[int], batch: int) -> bool:
    """Return whether every output has a row for each sample, and the same one each time that the sample is repeated."""
    import numpy as np

    for array in outputs.values():
        if array.shape[:1] != (batch,):
            return False
        first = array[[row % len(call) for row in range(batch)]]
        if array.dtype.kind in "iub":
            if not np.array_equal(array, first):
                return False
        elif not np.allclose(array, first, rtol=0, atol=_SAME * _largest(array)):
            return False
    return True


def _publish_inputs(root: Path, pieces: Arrays) -> str:
    """Keep the inputs of a set under their content: most batches and precisions of a model share them."""
    import numpy as np

    content = hashlib.sha256()
    for name, array in pieces.items():
        content.update(f"{name} {array.dtype} {array.shape}\n".encode())
        content.update(np.ascontiguousarray(array).data)
    folder = root / f"inputs-{content.hexdigest()[:32]}"

    def put(scratch: Path) -> Mapping[str, Any]:
        arrays.save(scratch / "inputs.npz", pieces)
        return {"inputs": arrays.describe(pieces)}

    if folders.read(folder) is None:
        folders.publish(folder, put)
    return folder.name


def _largest(array: np.ndarray[Any, Any]) -> float:
    import numpy as np

    finite = np.abs(arrays.in_doubles(array[np.isfinite(array)]))
    return float(finite.max(initial=0.0))


def _refuse_nan(outputs: Arrays, label: str) -> None:
    import numpy as np

    for name, array in outputs.items():
        if array.dtype.kind in "fc" and (bad := int(np.isnan(array).sum())):
            raise SpecError(
                f"{label}: the model itself gives NaN, in {bad} of {array.size} numbers of {name!r}, before any "
                "compiler has seen it; no compiler's outputs can be compared with that (a division by zero, a "
                "logarithm of what is not positive, weights that overflow?)"
            )


def _refuse_random(first: Arrays, second: Arrays, label: str) -> None:
    """Refuse a model that differs from itself: every compiler would be blamed for it."""
    import numpy as np

    for name, array in first.items():
        other = second[name]
        if other.shape == array.shape:
            with np.errstate(invalid="ignore"):
                off = np.abs(arrays.in_doubles(other) - arrays.in_doubles(array))
            off = np.where(other == array, 0.0, off)
            largest = float(off.max(initial=0.0))
            if array.dtype.kind not in "iub" and largest <= _SAME * _largest(array):
                continue
            if not largest:
                continue
            said = f"{name!r} is off by {largest:.2g}"
        else:
            said = f"{name!r} has shape {array.shape}, then {other.shape}"
        raise SpecError(
            f"{label}: the model itself gives other outputs when it is called again on the same inputs ({said}), so "
            "there is nothing to compare a compiler with; is dropout on (functional.dropout takes training=True "
            "by default), does forward() draw random numbers, call train(), or keep something from call to "
            "call?"
        )
