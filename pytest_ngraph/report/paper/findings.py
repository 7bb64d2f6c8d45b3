"""What NGraphBench's prose finds, as combinations of its own published numbers: which of it do its tables support?

A finding is a sentence of the paper, in our words, with its section, and the checks that it implies: each a product of
published numbers that should lie on one side of a bound. A check is gated on other devices only where the tables say
``yes``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

from pytest_ngraph.metrics import METRICS
from pytest_ngraph.report.paper.published import FAMILIES, LARGE, SMALL, Figure, figure, figures

Answer = Literal["yes", "tie", "no"]
VENDOR = {"Xeon": "openvino", "GPU": "tensorrt", "Orin": "tensorrt"}
_CONVOLUTIONAL, _ATTENTION = ("ResNets", "EfficientNets"), ("DeiTs", "Swins")
# What a number that is printed without a deviation must be beyond its bound by, as a fraction: our gates' tolerance.
_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a sentence says of the tables: a combination of numbers on one side of a bound.

    ``terms`` are numbers with their powers. On a linear metric (CPU use, slope) they are factors of a sum.
    ``per_batch`` divides throughputs by their batch sizes. ``agree`` are checks that must say the same, as the other
    number of a row.
    """

    what: str
    terms: tuple[tuple[Figure, float], ...]
    at_least: bool = True
    bound: float = 1.0
    per_batch: bool = False
    agree: tuple[Check, ...] = ()

    @property
    def device(self) -> str:
        """Name the paper's device."""
        return self.terms[0][0].device

    @property
    def metric(self) -> str:
        """Name the metric of the numbers."""
        return self.terms[0][0].metric

    @property
    def is_linear(self) -> bool:
        """Return whether the numbers are added, not multiplied."""
        return METRICS[self.metric].scale == "linear"

    @property
    def value(self) -> float:
        """Return what the published numbers combine to."""
        return self._theta if self.is_linear else math.exp(self._theta)

    @property
    def says(self) -> Answer:
        """Return whether the tables support it: ``tie`` where their own deviations do not decide."""
        answers = {check.says for check in self.agree}
        line = self.bound if self.is_linear else math.log(self.bound)
        beyond = (self._theta - line) * (1 if self.at_least else -1)
        answers.add("yes" if beyond > self._margin else "no" if beyond < -self._margin else "tie")
        return "no" if "no" in answers else "tie" if "tie" in answers else "yes"

    @property
    def _theta(self) -> float:
        if self.is_linear:
            return math.fsum(power * figure.value for figure, power in self.terms)
        return math.fsum(power * (math.log(figure.value) - self._ln_batch(figure)) for figure, power in self.terms)

    def _ln_batch(self, figure: Figure) -> float:
        return mean_ln(figure.batches) if self.per_batch else 0.0

    @property
    def _margin(self) -> float:
        """Return the combined deviation on the working scale. For numbers without one, the tolerance of a gate."""
        deviations = [
            power * figure.deviation / (1.0 if self.is_linear else figure.value)
            for figure, power in self.terms
            if figure.deviation is not None
        ]
        if len(deviations) == len(self.terms):
            return math.hypot(*deviations)
        return 0.0 if self.is_linear else math.log1p(_TOLERANCE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of the paper in our words, its section, and what it implies for the tables."""

    key: str
    sentence: str
    place: str
    checks: tuple[Check, ...]

    def count(self, answer: Answer) -> int:
        """Count the checks of which the tables say this."""
        return sum(check.says == answer for check in self.checks)


def mean_ln(batches: Iterable[int]) -> float:
    """Return the mean of ln(batch), that of the geometric mean."""
    values = [math.log(batch) for batch in batches]
    return math.fsum(values) / len(values)


# The numbers of Table VI, as factors of a product.


def throughput(device: str, compiler: str, family: str, batches: tuple[int, ...]) -> Figure:
    """Return a throughput of Table VI."""
    return figure("vi", device, compiler, family, batches, "throughput")


def speedup(
    device: str, compiler: str, family: str, batches: tuple[int, ...], power: float = 1.0
) -> tuple[tuple[Figure, float], ...]:
    """Return a speed-up of Table VI, over the dynamic graph, to a power."""
    mine, other = (throughput(device, name, family, batches) for name in (compiler, "identity"))
    return (mine, power), (other, -power)


def _growth(device: str, compiler: str, family: str) -> tuple[tuple[Figure, float], ...]:
    small, large = (throughput(device, compiler, family, batches) for batches in (SMALL, LARGE))
    return (large, 1.0), (small, -1.0)


def _named(device: str, compiler: str, family: str, batches: tuple[int, ...] | None = None) -> str:
    return f"{compiler} on {device}, {family}" + (f", batches {batches[0]}-{batches[1]}" if batches else "")


def _speedups(
    targets: Iterable[tuple[str, str]],
    families: Iterable[str],
    ranges: Iterable[tuple[int, ...]],
    at_least: bool = True,
) -> tuple[Check, ...]:
    return tuple(
        Check(f"speed-up of {_named(device, compiler, family, batches)}",
              speedup(device, compiler, family, batches), at_least)
        for (device, compiler), family, batches in product(targets, families, ranges)
    )  # fmt: skip


def _all_targets() -> list[tuple[str, str]]:
    """Return the pairs of device and compiler of Table VI."""
    return list(dict.fromkeys((one.device, one.compiler) for one in figures("vi")))


@functools.cache
def findings() -> tuple[Finding, ...]:
    """Return what the paper's prose finds, in the order of the paper."""
    vendor, tvm = list(VENDOR.items()), [("Xeon", "tvm"), ("GPU", "tvm")]
    return (
        Finding("compile-fast", "Vendor compilers compile in seconds, the search of TVM takes hours", "section V-A2",
                tuple(_compile_times())),
        Finding("compile-batch", "Compile times rise with the batch for TVM only", "section V-A2",
                tuple(_compile_growth())),
        Finding("vendor-small", "Vendor compilers are faster than the dynamic graph at small batches", "section V-B",
                _speedups(vendor, FAMILIES, [SMALL])),
        Finding("vendor-large", "Vendor compilers are faster than the dynamic graph at batch 16, too",
                "section V-B", _speedups(vendor, FAMILIES, [LARGE])),
        Finding("vendor-only", "TVM is no faster than the dynamic graph at batch 16", "section V-B",
                _speedups(tvm, FAMILIES, [LARGE], at_least=False)),
        Finding("shrinking", "What compilers gain shrinks as the batch grows", "section V-B", tuple(_shrinking())),
        Finding("convolutional", "Convolutional networks gain from TVM, too, at small batches", "section V-B",
                _speedups(tvm, _CONVOLUTIONAL, [SMALL])),
        Finding("tvm-attention", "With attention, and for ConvNeXts, TVM is slower than the dynamic graph",
                "section V-B", _speedups(tvm, (*_ATTENTION, "ConvNeXts"), [SMALL, LARGE], at_least=False)),
        Finding("tvm-convnext", "TVM does worst on ConvNeXts", "section V-B", tuple(_tvm_on_convnext())),
        Finding("convnext", "ConvNeXts gain as transformers do, not as convolutional networks do", "section V-B",
                tuple(_convnext())),
        Finding("sequential", "On the Xeon the dynamic graph leaves most of the CPUs idle", "section V-B",
                tuple(_sequential())),
        Finding("order", "Compiling can reverse which family is the faster: EfficientNets and DeiTs",
                "abstract; the pair is our choice", tuple(_reversals("EfficientNets", "DeiTs"))),
        Finding("figure-1", "EfficientNets and Swins change places, on the Xeon the other way round than on the Orin",
                "Figure 1, of single models", tuple(_reversals("EfficientNets", "Swins"))),
        Finding("depth", "Vendor compilers amplify their gain on convolutional blocks with depth", "section V-C",
                tuple(_amplified())),
        Finding("depth-onnx", "ONNX Runtime gains less from the depth of convolutional blocks than vendor compilers",
                "section V-C",
                tuple(_weaker())),
        Finding("depth-cpu", "On the Xeon ONNX Runtime is indifferent to depth: a retention of 0.9 to 1.2",
                "Tables VII and VIII, not in the prose", tuple(_indifferent())),
        Finding("depth-mha", "Attention blocks retain less of the gain with depth than convolutional ones",
                "section V-C",
                tuple(_less_with_attention())),
        Finding("eightfold", "Six attention blocks gain four times what one gains (width 128, batch 8)", "section V-C",
                tuple(_eightfold())),
        Finding("efficiency", "Scaling efficiency, throughput over batch, falls as the batch grows",
                "section V-D, Figure 8",
                tuple(Check(f"efficiency of {_named(*target, family)}, 8-16 over 2-4", _growth(*target, family),
                            at_least=False, per_batch=True)
                      for target, family in product(_all_targets(), FAMILIES))),
        Finding("throughput", "Throughput rises as the batch grows", "section V-D, Figure 8",
                tuple(Check(f"throughput of {_named(*target, family)}, 8-16 over 2-4", _growth(*target, family))
                      for target, family in product(_all_targets(), FAMILIES))),
        Finding("resilience", "TensorRT scales with the batch as the dynamic graph does: a BSR of about 1, so over 0.9",
                "section V-D, Figure 9", tuple(_resilience())),
        Finding("cpu-xeon", "On the Xeon the use of the CPU rises where compiling gains much", "section V-F",
                tuple(_cpu_use("Xeon", "openvino", at_least=True))),
        Finding("cpu-gpu", "On the GPU server TensorRT lowers the use of the CPU, marginally", "section V-F",
                tuple(_cpu_use("GPU", "tensorrt", at_least=False))),
        Finding("cpu-orin", "On the Orin TensorRT lowers the use of the CPU significantly", "section V-F",
                tuple(_cpu_use("Orin", "tensorrt", at_least=False))),
    )  # fmt: skip


def _compile_times() -> Iterator[Check]:
    for one in figures("iii"):
        searched = one.compiler == "tvm"
        bound, words = (3600.0, "over an hour") if searched else (120.0, "under two minutes")
        yield Check(
            f"compile time of {one.compiler} on {one.device}, {one.row}: {words}", ((one, 1.0),), searched, bound
        )


def _compile_growth() -> Iterator[Check]:
    for small, large in _pairs("iii"):
        what = f"compile time of {large.compiler} on {large.device}, {large.row} over batch 1"
        yield Check(what, ((large, 1.0), (small, -1.0)), at_least=large.compiler == "tvm")


def _pairs(table: str) -> Iterator[tuple[Figure, Figure]]:
    for large in figures(table):
        if large.batches == (32,):
            yield figure(table, large.device, large.compiler, large.subject, (1,), large.metric), large


def _shrinking() -> Iterator[Check]:
    for (device, compiler), family in product(VENDOR.items(), FAMILIES):
        terms = (*speedup(device, compiler, family, LARGE), *speedup(device, compiler, family, SMALL, -1.0))
        yield Check(f"speed-up of {_named(device, compiler, family)}, 8-16 over 2-4", terms, at_least=False)


def _resilience() -> Iterator[Check]:
    for device, family in product(("GPU", "Orin"), FAMILIES):
        terms = (*speedup(device, "tensorrt", family, LARGE), *speedup(device, "tensorrt", family, SMALL, -1.0))
        yield Check(f"BSR of {_named(device, 'tensorrt', family)}, 8-16 over 2-4", terms, bound=0.9)


def _against(device: str, compiler: str, family: str, other: str, batches: tuple[int, ...], at_least: bool) -> Check:
    """Compare what a compiler gains on two families."""
    terms = (*speedup(device, compiler, family, batches), *speedup(device, compiler, other, batches, -1.0))
    what = f"speed-up of {_named(device, compiler, family)} over that of {other}, batches {batches[0]}-{batches[1]}"
    return Check(what, terms, at_least)


def _tvm_on_convnext() -> Iterator[Check]:
    for device, other, batches in product(("Xeon", "GPU"), _ATTENTION, (SMALL, LARGE)):
        yield _against(device, "tvm", "ConvNeXts", other, batches, False)


def _convnext() -> Iterator[Check]:
    for (device, compiler), other, batches in product(_all_targets(), _CONVOLUTIONAL, (SMALL, LARGE)):
        if compiler != "identity":
            # On the Orin transformers gain more than convolutional networks, on other devices less.
            yield _against(device, compiler, "ConvNeXts", other, batches, device == "Orin")


def _sequential() -> Iterator[Check]:
    for family, batches in product(FAMILIES, (SMALL, LARGE)):
        used = figure("vi", "Xeon", "identity", family, batches, "cpu_percent")
        what = f"CPU use of {_named('Xeon', 'identity', family, batches)}: half of them at most"
        yield Check(what, ((used, 1.0),), at_least=False, bound=50.0)


def _reversals(one: str, other: str) -> Iterator[Check]:
    """Compare two families before and after: ``one`` wins on the Orin before, on the Xeon after."""
    for device, batches in product(("Xeon", "Orin"), (SMALL, LARGE)):
        for compiler in ("identity", VENDOR[device]):
            wins = (device == "Orin") == (compiler == "identity")
            terms = (
                (throughput(device, compiler, one, batches), 1.0),
                (throughput(device, compiler, other, batches), -1.0),
            )
            what = f"throughput of {_named(device, compiler, one)} over {other}, batches {batches[0]}-{batches[1]}"
            yield Check(what, terms, at_least=wins)


def _rows(table: str, metric: str) -> Iterator[Figure]:
    return (one for one in figures(table) if one.metric == metric)


def beside(one: Figure, metric: str, compiler: str | None = None) -> Figure:
    """Return the number of the same row, or of another compiler's, in another column of Table VII or VIII."""
    wanted = (one.device, compiler or one.compiler, one.width, one.batches)
    return next(
        other for other in _rows(one.table, metric)
        if (other.device, other.compiler, other.width, other.batches) == wanted
    )  # fmt: skip


def _block(one: Figure) -> str:
    return f"{one.compiler} on {one.device}, {one.subject} width {one.width}, batch {one.batches[0]}"


def _amplified() -> Iterator[Check]:
    for one in _rows("vii", "retention"):
        if one.compiler == VENDOR[one.device]:
            slope = Check(f"slope of {_block(one)}", ((beside(one, "slope"), 1.0),), bound=0.0)
            yield Check(f"retention of {_block(one)}", ((one, 1.0),), agree=(slope,))


def _weaker() -> Iterator[Check]:
    for one in _rows("vii", "retention"):
        if one.compiler == "onnxruntime":
            vendor = VENDOR[one.device]
            slopes = ((beside(one, "slope"), 1.0), (beside(one, "slope", vendor), -1.0))
            less = Check(f"slope of {_block(one)} less that of {vendor}", slopes, at_least=False, bound=0.0)
            terms = (one, 1.0), (beside(one, "retention", vendor), -1.0)
            yield Check(f"retention of {_block(one)} over that of {vendor}", terms, at_least=False, agree=(less,))


def _indifferent() -> Iterator[Check]:
    for table, (at_least, bound) in product(("vii", "viii"), ((True, 0.9), (False, 1.2))):
        for one in _rows(table, "retention"):
            if (one.device, one.compiler) == ("Xeon", "onnxruntime"):
                yield Check(f"retention of {_block(one)}", ((one, 1.0),), at_least, bound)


def _less_with_attention() -> Iterator[Check]:
    """Compare geometric means over the widths and batches of a device and compiler."""
    for device, compiler in dict.fromkeys((one.device, one.compiler) for one in figures("vii")):
        terms = tuple(
            (one, sign / 4)
            for table, sign in (("viii", 1), ("vii", -1))
            for one in _rows(table, "retention")
            if (one.device, one.compiler) == (device, compiler)
        )
        yield Check(f"mean retention of {compiler} on {device}, attention over convolution", terms, at_least=False)


def _eightfold() -> Iterator[Check]:
    for one in _rows("viii", "retention"):
        if (one.device, one.compiler, one.width, one.batches) == ("GPU", "tensorrt", 128, (8,)):
            yield Check(f"retention of {_block(one)}", ((one, 1.0),), bound=4.0)


def _cpu_use(device: str, compiler: str, *, at_least: bool) -> Iterator[Check]:
    for family, batches in product(FAMILIES, (SMALL, LARGE)):
        mine, other = (
            figure("vi", device, name, family, batches, "cpu_percent") for name in (compiler, "identity")
        )  # fmt: skip
        what = f"CPU use of {_named(device, compiler, family, batches)}, less the dynamic graph's"
        yield Check(what, ((mine, 1.0), (other, -1.0)), at_least, bound=0.0)
