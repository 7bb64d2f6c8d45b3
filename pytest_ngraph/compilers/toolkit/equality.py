"""Whether a compiler's outputs are the reference's: how far off they are and where that becomes too far."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    import numpy as np

# Bounds on max |y - reference| / max |reference|; each stands well above what right results were measured to have
# (f32 4.5e-6, f16 2.8e-3, bf16 2.1e-2) and well below what the next lower precision gives.
MAX_ERROR: Mapping[str, float] = {"f32": 1e-4, "tf32": 2e-3, "f16": 1e-2, "bf16": 5e-2}
# What eight bits cost depends on the model: a deep one is off by a tenth of its largest number and still points where
# the reference does. So of int8 only the direction is held, to what a wrong scale, a wrong channel or a lost layer is
# not met to have; whether it is good enough for its users, the top-1 agreement says.
MIN_COSINE: Mapping[str, float] = {"bf16": 0.999, "int8": 0.98}
# Deep networks answer nearly the same whatever they are shown: outputs of other inputs have a cosine of up to 0.9997.
# What is left once that common answer, the mean reference over a set of inputs, is taken away belongs to the input
# alone. On the fifteen networks of the paper and four more (``benchmarks.int8_outputs``) right int8 outputs keep a
# centred cosine of 0.445 or more over eight inputs, outputs of other inputs 0.04 or less. Where the common answer is
# nearly all there is, as in an EfficientNet with random weights, the rounding of eight bits is as large as the rest,
# and a centred cosine far below one is right; the cosine itself is then 0.99 or more, or what was left must be right.
MIN_CENTRED_COSINE: Mapping[str, float] = {"int8": 0.3}
NEAR_COSINE: Mapping[str, float] = {"int8": 0.99}
MIN_CENTRED_COSINE_ELSE: Mapping[str, float] = {"int8": 0.9}
# Below this share of the reference what is left is its rounding, which says nothing of the input.
_NOTHING_LEFT = 1e-6
# Numbers in f64 that a processor keeps at hand while they are compared.
_PART = 1 << 17
# Integers are decisions, such as the largest score; made from rounded numbers, those between neighbours may go the
# other way. This share of them may; in f32 none.
MAX_DIFFERENT: Mapping[str, float] = {"tf32": 0.1, "f16": 0.1, "bf16": 0.1, "int8": 0.2}
# No order of f32 additions is that far off; tf32, f16 and bf16 are.
LOWERING = 1e-3


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well outputs agree: the worst of all of them, and why they do not, if so.

    ``max_error`` is the largest error, ``cosine`` the smallest, ``centred_cosine`` the smallest once the mean reference
    is taken from both sides (None where there is no mean, or nothing but the mean). Of ``top1_samples`` samples
    ``top1_matches`` have their largest class score where the reference has it, in the output that agrees least. None
    are counted where there are no class scores, or where the reference gives one class to all samples.
    """

    max_error: float
    cosine: float
    reason: str
    centred_cosine: float | None = None
    top1_matches: int = 0
    top1_samples: int = 0


def compare(
    outputs: Sequence[np.ndarray],
    reference: Sequence[np.ndarray],
    precision: str,
    means: Sequence[np.ndarray | None] = (),
) -> Agreement:
    """Compare the outputs of one call with the f32 reference in the bounds of a precision. See ``Comparison``."""
    comparison = Comparison(precision, means)
    comparison.add(outputs, reference)
    return comparison.agreement()


class Comparison:
    """Compares the outputs of some calls with the f32 reference in the bounds of a precision, all calls together.

    The error of an output is max |y - reference| / max |reference|, or max |y - reference| where the reference is
    all zero. Where the reference is infinite, so must the output be. ``means`` are the mean references over a set of
    inputs, to be taken away for the centred cosine. Raises SpecError for a precision without bounds.
    """

    def __init__(self, precision: str, means: Sequence[np.ndarray | None] = ()) -> None:
        known = {**MAX_ERROR, **MIN_COSINE}
        if precision not in known:
            raise SpecError(f"precision {precision!r} has no bounds (known: {', '.join(known)})")
        self._precision, self._means = precision, means
        self._outputs: list[_Output] = []
        self._objection = ""

    def add(self, outputs: Sequence[np.ndarray], reference: Sequence[np.ndarray], samples: int | None = None) -> None:
        """Add a call. The first ``samples`` rows are samples of their own, by default all of them."""
        if self._objection:
            return
        if len(outputs) != len(reference):
            self._objection = f"{len(outputs)} outputs where the reference has {len(reference)}"
            return
        for index, (output, expected) in enumerate(zip(outputs, reference, strict=True)):
            if objection := _incomparable(output, expected):
                self._objection = f"output {index} {objection}"
                return
            if index == len(self._outputs):
                self._outputs.append(_Output(f"output {index}", _held_to(self._precision, expected)))
            mean = self._means[index] if index < len(self._means) else None
            self._outputs[index].add(output, expected, mean, samples)

    def agreement(self) -> Agreement:
        """Return how well everything that was added agrees. ``reason`` is empty where it does."""
        if self._objection:
            return Agreement(float("inf"), 0.0, self._objection)
        outputs = self._outputs
        scored = [(each.matches, len(each.classes)) for each in outputs if len(set(each.classes)) > 1]
        matches, samples = min(scored, key=lambda score: score[0] / score[1], default=(0, 0))
        centred = [each.centred_cosine for each in outputs if each.centred_cosine is not None]
        return Agreement(
            max((each.error for each in outputs), default=0.0),
            min((each.cosine for each in outputs), default=1.0),
            next(filter(None, (each.objection for each in outputs)), ""),
            min(centred, default=None),
            matches,
            samples,
        )


class _Angle:
    """The sums that the cosine of the angle between two arrays is made of."""

    def __init__(self) -> None:
        self._product = self._left = self.right = 0.0

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        import numpy as np

        left, right = left.reshape(-1), right.reshape(-1)
        # No matrix product: the threads of its library would still spin when the next cell is called.
        self._product += float(np.einsum("i,i->", left, right))
        self._left += float(np.einsum("i,i->", left, left))
        self.right += float(np.einsum("i,i->", right, right))

    @property
    def cosine(self) -> float:
        """Return 1 where both are zero or empty, 0 where one is."""
        if not (self._left and self.right):
            return float(self._left == self.right)
        return self._product / math.sqrt(self._left * self.right)


class _Output:
    """One output over all calls: how far off it is, and whether that is too far."""

    def __init__(self, name: str, precision: str) -> None:
        self._name, self._precision = name, precision
        self._exact = False
        self._different = self._size = 0
        self._off = self._largest = 0.0
        self._angle, self._centred = _Angle(), _Angle()
        self.matches = 0
        self.classes: list[int] = []

    def add(self, output: np.ndarray, expected: np.ndarray, mean: np.ndarray | None, samples: int | None) -> None:
        import numpy as np

        self._exact = _is_exact(expected)
        self._size += expected.size
        if self._exact:
            self._different += int((output != expected).sum())
            mean = None
        else:
            self._score(output, expected, samples)
        in_pairs = "c" in (output.dtype.kind, expected.dtype.kind)
        # In f64 there is only a part of it at a time: outputs may be gigabytes.
        for part in _parts(expected):
            # A number alone is an array of one.
            left, right = (_in_f64(np.atleast_1d(_finite(each[part])), in_pairs) for each in (output, expected))
            apart = left - right
            self._off = max(self._off, float(np.abs(apart, out=apart).max(initial=0.0)))
            self._largest = max(self._largest, float(right.max(initial=0.0)), -float(right.min(initial=0.0)))
            self._angle.add(left, right)
            if mean is not None:
                common = mean if mean.shape[:1] == (1,) else mean[part]
                common = _in_f64(np.atleast_1d(common), in_pairs) if in_pairs else common
                left -= common
                right -= common
                self._centred.add(left, right)

    def _score(self, output: np.ndarray, expected: np.ndarray, samples: int | None) -> None:
        """Count the rows whose largest number is at the same place, where they are class scores."""
        if expected.ndim == 2 and expected.size and expected.shape[1] > 1 and expected.dtype.kind != "c":
            classes = expected[:samples].argmax(axis=1)
            self.matches += int((output[:samples].argmax(axis=1) == classes).sum())
            self.classes += classes.tolist()

    @property
    def _agrees_exactly(self) -> bool:
        return self._exact and self._different <= self._may_differ

    @property
    def _may_differ(self) -> int:
        return int(MAX_DIFFERENT.get(self._precision, 0.0) * self._size)

    @property
    def error(self) -> float:
        return 0.0 if self._agrees_exactly else self._off / (self._largest or 1.0)

    @property
    def cosine(self) -> float:
        return 1.0 if self._agrees_exactly else self._angle.cosine

    @property
    def centred_cosine(self) -> float | None:
        """Return None where there is no mean, or where nothing is left of the reference without it."""
        if self._centred.right <= _NOTHING_LEFT**2 * self._angle.right:
            return None
        return self._centred.cosine

    @property
    def objection(self) -> str:
        """Return what is too far off, or nothing."""
        if self._exact:
            allowed = self._may_differ
            bound = f"of which {allowed} may in {self._precision}" if allowed else "which must be equal"
            differs = f"{self._name} differs in {self._different} of {self._size} integers, {bound}"
            return "" if self._agrees_exactly else differs
        return _off(self._name, self.error, self.cosine, self._precision) or _off_centre(
            self._name, self.cosine, self.centred_cosine, self._precision
        )


def _parts(array: np.ndarray) -> Iterator[Any]:
    """Split an array along its first dimension into parts of bounded size."""
    if not array.ndim:
        yield ...
        return
    rows = max(1, _PART * len(array) // max(1, array.size))
    for first in range(0, len(array), rows):
        yield slice(first, first + rows)


def _incomparable(output: np.ndarray, expected: np.ndarray) -> str:
    """Return why no error can be worked out: NaN and infinity that are not the reference's, then shapes and kinds."""
    import numpy as np

    # NaN is equal to nothing, also not to NaN.
    same = output == expected if output.shape == expected.shape else np.zeros(output.shape, bool)
    if output.dtype.kind in "fc" and (count := np.count_nonzero(~np.isfinite(output) & ~same)):
        return f"has {count} NaN or infinite of {output.size} numbers"
    if expected.dtype.kind in "fc" and (count := np.count_nonzero(np.isnan(expected))):
        return f"of the reference has {count} NaN or infinite of {expected.size} numbers"
    if output.shape != expected.shape:
        return f"has shape {output.shape} where the reference has {expected.shape}"
    if _is_exact(output) != _is_exact(expected):
        return f"is {output.dtype} where the reference is {expected.dtype}"
    if expected.dtype.kind in "fc" and (count := np.count_nonzero(~np.isfinite(expected) & ~same)):
        return f"is finite in {count} of {output.size} numbers where the reference is infinite"
    return ""


def _finite(array: np.ndarray) -> np.ndarray:
    """Return an array with zeros where it is infinite."""
    import numpy as np

    return array if np.isfinite(array).all() else np.where(np.isfinite(array), array, 0)


def _in_f64(array: np.ndarray, in_pairs: bool) -> np.ndarray:
    """Return a copy in f64, ``in_pairs`` of the real and the imaginary part of each number, side by side."""
    import numpy as np

    if not in_pairs:
        return array.astype(np.float64)
    return array.astype(np.complex128, order="C").view(np.float64)


def _is_exact(array: np.ndarray) -> bool:
    return array.dtype.kind in "iub"


def _held_to(precision: str, expected: np.ndarray) -> str:
    """Return the precision whose bounds count: an ONNX file of f16 is measured, and its reference made, in f16."""
    return "f16" if expected.dtype == "float16" and precision in ("f32", "tf32") else precision


def _off(name: str, error: float, cosine: float, precision: str) -> str:
    bound, least = MAX_ERROR.get(precision, float("inf")), MIN_COSINE.get(precision)
    if error > bound:
        lowered = precision == "f32" and error > LOWERING
        suspicion = ": that far off suggests a hidden lowering to tf32, f16 or bf16, or a wrong result"
        return f"{name} is off by {error:.2g}, the bound of {precision} is {bound:g}{suspicion if lowered else ''}"
    if least is not None and cosine < least:
        return f"{name} has cosine {cosine:.5f} to the reference, the bound of {precision} is {least:g}"
    return ""


def _off_centre(name: str, cosine: float, centred: float | None, precision: str) -> str:
    if centred is None or precision not in MIN_CENTRED_COSINE:
        return ""
    near = NEAR_COSINE[precision]
    least = (MIN_CENTRED_COSINE if cosine >= near else MIN_CENTRED_COSINE_ELSE)[precision]
    if centred >= least:
        return ""
    where = f"{'at least' if cosine >= near else 'below'} {near:g} (it is {cosine:.4f})"
    return (
        f"{name} has centred cosine {centred:.3f} to the reference, the bound of {precision} is {least:g} where the "
        f"cosine is {where}: it does not follow its inputs as the model does"
    )
