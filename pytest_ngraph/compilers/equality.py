"""Whether a compiler's outputs are the reference's: how far off they are and where that becomes too far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
# Integers are decisions, such as the largest score; made from rounded numbers, those between neighbours may go the
# other way. This share of them may; in f32 none.
MAX_DIFFERENT: Mapping[str, float] = {"tf32": 0.1, "f16": 0.1, "bf16": 0.1, "int8": 0.2}
# No order of f32 additions is that far off; tf32, f16 and bf16 are.
LOWERING = 1e-3


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well outputs agree: the largest error and the smallest cosine of all of them, and why they do not, if so.

    ``top1`` is the share of samples whose largest class score is that of the reference, the smallest of all outputs
    that are class scores (a row of numbers for each sample); None where none is.
    """

    max_error: float
    cosine: float
    reason: str
    top1: float | None = None


def compare(outputs: Sequence[np.ndarray], reference: Sequence[np.ndarray], precision: str) -> Agreement:
    """Compare outputs with the f32 reference in the bounds of a precision; ``reason`` is empty where they agree.

    The error of an output is max |y - reference| / max |reference|, or max |y - reference| where the reference is
    all zero. Raises SpecError for a precision without bounds.
    """
    known = {**MAX_ERROR, **MIN_COSINE}
    if precision not in known:
        raise SpecError(f"precision {precision!r} has no bounds (known: {', '.join(known)})")
    if len(outputs) != len(reference):
        return _refuse(f"{len(outputs)} outputs where the reference has {len(reference)}")
    worst, cosine, reason = 0.0, 1.0, ""
    scores: list[float] = []
    for index, (output, expected) in enumerate(zip(outputs, reference, strict=True)):
        name = f"output {index}"
        if objection := _incomparable(output, expected):
            return _refuse(f"{name} {objection}")
        error, angle = _error(output, expected), _cosine(output, expected)
        if not _is_exact(expected):
            objection = _off(name, error, angle, _held_to(precision, expected))
            scores += _top1(output, expected)
        elif not (objection := _differs(name, output, expected, precision)):
            error, angle = 0.0, 1.0
        worst, cosine, reason = max(worst, error), min(cosine, angle), reason or objection
    return Agreement(worst, cosine, reason, min(scores, default=None))


def _refuse(reason: str) -> Agreement:
    return Agreement(float("inf"), 0.0, reason)


def _incomparable(output: np.ndarray, expected: np.ndarray) -> str:
    """Say why no error can be worked out: NaN and infinity, then shapes and kinds of numbers."""
    import numpy as np

    for what, array in (("", output), ("of the reference ", expected)):
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            return f"{what}has {np.count_nonzero(~np.isfinite(array))} NaN or infinite of {array.size} numbers"
    if output.shape != expected.shape:
        return f"has shape {output.shape} where the reference has {expected.shape}"
    if _is_exact(output) != _is_exact(expected):
        return f"is {output.dtype} where the reference is {expected.dtype}"
    return ""


def _is_exact(array: np.ndarray) -> bool:
    return array.dtype.kind in "iub"


def _differs(name: str, output: np.ndarray, expected: np.ndarray, precision: str) -> str:
    """Say that too many integers differ, or nothing."""
    different = int((output != expected).sum())
    allowed = int(MAX_DIFFERENT.get(precision, 0.0) * expected.size)
    if different <= allowed:
        return ""
    bound = f"of which {allowed} may in {precision}" if allowed else "which must be equal"
    return f"{name} differs in {different} of {expected.size} integers, {bound}"


def _held_to(precision: str, expected: np.ndarray) -> str:
    """Return the precision whose bounds count: an ONNX file of f16 is measured, and its reference made, in f16."""
    return "f16" if expected.dtype == "float16" and precision in ("f32", "tf32") else precision


def _top1(output: np.ndarray, expected: np.ndarray) -> list[float]:
    """Return the share of rows whose largest number is at the same place; nothing where these are no class scores."""
    if expected.ndim != 2 or not expected.size or expected.shape[1] == 1:
        return []
    return [float((output.argmax(axis=1) == expected.argmax(axis=1)).mean())]


def _off(name: str, error: float, cosine: float, precision: str) -> str:
    bound, least = MAX_ERROR.get(precision, float("inf")), MIN_COSINE.get(precision)
    if error > bound:
        lowered = precision == "f32" and error > LOWERING
        suspicion = ": that far off suggests a hidden lowering to tf32, f16 or bf16, or a wrong result"
        return f"{name} is off by {error:.2g}, the bound of {precision} is {bound:g}{suspicion if lowered else ''}"
    if least is not None and cosine < least:
        return f"{name} has cosine {cosine:.5f} to the reference, the bound of {precision} is {least:g}"
    return ""


def _error(output: np.ndarray, expected: np.ndarray) -> float:
    import numpy as np

    if not expected.size:
        return 0.0
    exact = expected.astype(np.float64)
    return float(np.abs(output.astype(np.float64) - exact).max() / (np.abs(exact).max() or 1.0))


def _cosine(output: np.ndarray, expected: np.ndarray) -> float:
    """Return the cosine of the angle between two arrays; 1 where both are zero or empty, 0 where one is."""
    import numpy as np

    left, right = output.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    lengths = float(np.linalg.norm(left)), float(np.linalg.norm(right))
    if not all(lengths):
        return float(lengths[0] == lengths[1])
    return float(left @ right / (lengths[0] * lengths[1]))
