"""Our figures beside NGraphBench's where the devices are of a class, and its findings as gates on our launches.

Only what the paper's own tables support is gated (``findings``), and each gate is judged as a test run with
``--ngraph-offline`` and the default budget judges its claims, by the same ``decide``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from pytest_ngraph import units
from pytest_ngraph.claims.decide import decide
from pytest_ngraph.claims.judged_state import state_of_claim
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.metrics import throughput as throughput_of
from pytest_ngraph.quantities.quantity import CellFailed, Estimate, NotStored, Quantity, Source, of_times
from pytest_ngraph.quantities.sweeps import DepthSweep, Measurement
from pytest_ngraph.report.export.layout import with_interval
from pytest_ngraph.report.paper.families import Place, cpu_pairs, family_rows, range_of, single
from pytest_ngraph.report.paper.findings import Check, Finding, beside, findings, speedup, throughput
from pytest_ngraph.report.paper.pairs import Pair
from pytest_ngraph.report.paper.published import FAMILIES, LARGE, SMALL, Figure, figures
from pytest_ngraph.report.results.cells import cpus_of
from pytest_ngraph.report.results.stored import Judged, Stored
from pytest_ngraph.spec.cells import DENSE, Cell, protocol_of
from pytest_ngraph.spec.shapes.mixes import STATIC
from pytest_ngraph.stats.verdict import Bound
from pytest_ngraph.store.rows import RunRow
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds.axes import axis_values

if TYPE_CHECKING:
    from pytest_ngraph.store.related import Related

TOLERANCE, BUDGET = 0.05, 16
_MODELS = {model: (family, size) for family, models in FAMILIES.items() for size, model in enumerate(models)}
_COMPILERS = ("identity", "openvino", "tensorrt", "tvm", "onnxruntime")
_BLOCKS = ("block:conv", "block:mha")
_NETWORK_IMAGES, _BLOCK_IMAGES, _BLOCK_TOKENS = 224, 244, 10
_DEEPEST = 6
# A cell by what the paper varies: compiler, model, batch, depth and width.
_Key = tuple[str, str, int, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Gate:
    """A check of the paper's on our launches. ``says`` is its verdict, or ``-`` where there is nothing to judge."""

    finding: str
    device: str
    check: Check
    what: str
    estimate: Estimate | None
    says: str
    reason: str = ""


@dataclass(slots=True)
class Comparison:
    """A run beside the paper: what each of its devices is compared with, the rows of three tables, and the gates.

    ``left_out`` counts the cells that nothing of the paper is like, by the reason.
    """

    run: RunRow
    devices: dict[str, tuple[str | None, str]]
    throughputs: list[tuple[str, ...]] = field(default_factory=list)
    compile_times: list[tuple[str, ...]] = field(default_factory=list)
    depths: list[tuple[str, ...]] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    # Every number of the paper that there is one of ours for, as its pictures have them.
    pairs: list[Pair] = field(default_factory=list)
    # By device: samples per second and CPU usage of each cell, and the rows and numbers of single networks with the
    # mean that they are of.
    rates: dict[str, dict[tuple[str, str, int], Estimate]] = field(default_factory=dict)
    cpu: dict[str, dict[tuple[str, str, int], Estimate]] = field(default_factory=dict)
    single: list[tuple[str, Place, tuple[str, ...], list[Pair]]] = field(default_factory=list)

    def on(self, device: str) -> str:
        """Name a device where there are several."""
        return f" on {device}" if len(self.devices) > 1 else ""

    def add_throughputs(self) -> None:
        """Add the rows beside Table VI: a mean where a family was measured whole, else networks by themselves."""
        whole = set()
        for device, rates in self.rates.items():
            theirs = self.devices[device][0]
            for place, row, pairs in family_rows(device, theirs, rates, self.on(device)) if theirs else ():
                whole.add((device, place))
                self.throughputs.append(row)
                self.pairs += pairs
        for device, place, row, pairs in self.single:
            if (device, place) not in whole:
                self.throughputs.append(row)
                self.pairs += pairs
        for device, used in self.cpu.items():
            theirs = self.devices[device][0]
            self.pairs += cpu_pairs(device, theirs, used) if theirs else ()


def compare(store: Store, run: RunRow) -> Comparison:
    """Put a run of the store beside the paper's tables and judge the paper's findings by it."""
    cells, baselines = dict(store.cells(run.id)), store.baselines(run.id)
    devices = dict.fromkeys(cell.device for cell in cells)
    comparison = Comparison(run, {device: paper_device(run.on(device).environment) for device in devices})
    protocol, cpus = protocol_of(run.protocol), cpus_of(run)
    for related in store.related(cells):
        device = related.cells[0].device
        theirs = comparison.devices[device][0]
        if theirs is not None:
            shown = Stored(related.timed, related.memory, protocol, cpus(device))
            claimed = Judged(related, protocol, cpus(device), BUDGET)
            _Group(related, shown, claimed, baselines, theirs, comparison).add()
    comparison.add_throughputs()
    return comparison


def paper_device(facts: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return which of the paper's devices a machine is of a class with, if any, and what machine it is.

    ``facts`` are those of ``environment.describe``. Ratios are compared within a class. Times of two machines never
    say which compiler is the better.
    """
    if "gpu" in facts:
        name = str(facts["gpu"].get("name"))
        return ("Orin" if "orin" in name.lower() else "GPU"), name
    machine = str(facts.get("machine", "")).lower()
    if not machine:
        return None, "the store does not say what machine it is"
    name = f"{facts.get('cpu', machine)}, {len(facts.get('affinity', [0]))} CPUs"
    if machine in ("x86_64", "amd64"):
        return "Xeon", name
    return None, f"{name}: the paper compiles for no {machine} CPU"


def why_apart(cell: Cell, baseline: Cell | None) -> str:
    """Return why nothing of the paper is like a cell, or nothing."""
    workload, compiler = cell.workload, cell.compiler
    text = workload.model.text
    if text not in _MODELS and text not in _BLOCKS:
        return "models that are not among its fifteen"
    pixels = _BLOCK_IMAGES if text in _BLOCKS else _NETWORK_IMAGES
    if axis_values(workload).get("image_size", pixels) != pixels:
        return "images of another size than its 224 pixels for networks and 244 for blocks"
    if axis_values(workload).get("sequence", _BLOCK_TOKENS) != _BLOCK_TOKENS:
        return "sequences of another length than the 10 of its attention blocks"
    if workload.shapes != STATIC:
        return "one build for several shapes, where the paper's is for each"
    if workload.optimize != DENSE:
        return "networks that were pruned, which the paper's are not"
    if workload.precision != "f32" or workload.scenario != "latency":
        return "another precision than f32, or several calls in flight"
    if compiler.name not in _COMPILERS:
        return "compilers that none of its tables has"
    options = dict(compiler.options)
    if options.keys() - {"tuned", "cuda"} or (compiler.name == "tvm") != ("tuned" in options):
        return "compilers with options; its TVM has searched"
    if baseline is not None and baseline.compiler.name != "identity":
        return "ratios to another baseline than the dynamic graph"
    return ""


class _Group:
    """The cells of one device that share launches, beside the paper's figures: as they are shown, and as judged."""

    def __init__(
        self,
        related: Related,
        shown: Source,
        claimed: Source,
        baselines: Mapping[Cell, Cell],
        theirs: str,
        into: Comparison,
    ) -> None:
        self._source, self._claimed = shown, claimed
        self._baselines, self._theirs, self._into = baselines, theirs, into
        self._device = related.cells[0].device
        self._cells: dict[_Key, Cell] = {}
        # Compile times are those of cells that every launch builds again, where there are such.
        self._built: dict[_Key, Cell] = {}
        for cell in sorted(related.cells, key=lambda cell: cell.rebuild):
            if cell.replica or cell.side:
                continue
            reason = why_apart(cell, baselines.get(cell))
            if reason:
                into.left_out[reason] = into.left_out.get(reason, 0) + 1
                continue
            workload, axes = cell.workload, axis_values(cell.workload)
            key = (cell.compiler.name, workload.model.text, workload.batch, axes.get("depth"), axes.get("width"))
            self._built[key] = cell
            if not cell.rebuild:
                self._cells[key] = cell

    def add(self) -> None:
        """Add what this group has to the comparison."""
        if not self._built:
            return
        self._add_rates()
        self._into.single += ((self._device, *row) for row in self._throughputs())
        self._into.compile_times += self._compile_times()
        self._into.depths += self._depths()
        self._into.gates += self._gates()

    # Side by side

    def _add_rates(self) -> None:
        """Keep the throughput of each network's cells: a family's are of several groups."""
        into = {"throughput": self._into.rates, "cpu_percent": self._into.cpu}
        found = {metric: rates.setdefault(self._device, {}) for metric, rates in into.items()}
        for (compiler, model, batch, _, _), cell in self._cells.items():
            for metric, rates in found.items() if model in _MODELS else ():
                estimate = _estimate(Measurement(self._source, cell, cell).quantity(metric))
                if estimate is not None:
                    rates[compiler, model, batch] = estimate

    def _throughputs(self) -> Iterator[tuple[Place, tuple[str, ...], list[Pair]]]:
        """Yield rows of Table VI: the paper's family and our model, then throughput and speed-up of both."""
        compilers = dict.fromkeys(one.compiler for one in figures("vi") if one.device == self._theirs)
        for (model, (family, size)), batches, compiler in product(_MODELS.items(), (SMALL, LARGE), compilers):
            theirs = throughput(self._theirs, compiler, family, batches)
            mine = _estimate(self._product(Check("", ((theirs, 1.0),)), size))
            if mine is None:
                continue
            gain = Check("", speedup(self._theirs, compiler, family, batches)) if compiler != "identity" else None
            ratio = _estimate(self._product(gain, size)) if gain else None
            at, here = range_of(batches), single(model, self._batches(theirs, size))
            row = (
                f"{family} at {at}; here {here}{self._on()}",
                compiler,
                f"{theirs.value:.2f} ± {theirs.deviation:.2f}",
                units.factor(gain.value) if gain else "",
                _shown(mine),
                _shown(ratio),
            )
            pairs = [Pair(self._device, "throughput", family, at, compiler, theirs.value, theirs.deviation, mine, here)]
            if gain and ratio:
                pairs.append(Pair(self._device, "speedup", family, at, compiler, gain.value, None, ratio, here))
            yield (family, batches, compiler), row, pairs

    def _compile_times(self) -> Iterator[tuple[str, ...]]:
        for one in figures("iii"):
            cell = self._built.get((one.compiler, one.subject, one.batches[0], None, None))
            if one.device != self._theirs or cell is None:
                continue
            measurement = Measurement(self._source, cell, cell)
            mine = _estimate(measurement.quantity("compile_seconds"))
            if mine is None:
                continue
            # The paper's number contains the search.
            search = _shown(_estimate(measurement.quantity("tuning_seconds"))) if one.compiler == "tvm" else ""
            if one.compiler != "tvm":
                model, batch = one.row.split(", ")
                pair = Pair(self._device, one.metric, model, batch, one.compiler, one.value, None, mine)
                self._into.pairs.append(pair)
            yield (
                one.row,
                one.compiler,
                units.seconds(one.value),
                _shown(mine) + (f" and {search} of search" if search else ""),
            )

    def _depths(self) -> Iterator[tuple[str, ...]]:
        for one in (*figures("vii"), *figures("viii")):
            stack = self._stack(one) if (one.device, one.metric) == (self._theirs, "slope") else None
            if stack is None:
                continue
            retention = beside(one, "retention")
            where = f"{one.subject} width {one.width} at batch {one.batches[0]}, depths 1 to {max(stack)}{self._on()}"
            mine = [_estimate(stack.quantity(metric)) for metric in ("slope", "retention")]
            at, here = f"width {one.width}, batch {one.batches[0]}", f"depths 1 to {max(stack)}"
            self._into.pairs += [
                Pair(self._device, theirs.metric, one.subject, at, one.compiler, theirs.value, None, each,
                     "" if max(stack) == _DEEPEST else here)
                for theirs, each in zip((one, retention), mine, strict=True)
                if each is not None
            ]  # fmt: skip
            yield where, one.compiler, f"{one.value:.4g}", _shown(mine[0]), f"{retention.value:.4g}", _shown(mine[1])

    # Gates

    def _gates(self) -> Iterator[Gate]:
        for finding, check in _supported(self._theirs):
            sizes: Sequence[int] = range(3) if check.metric == "throughput" else (0,)
            for size in sizes:
                quantity = self._quantity(check, size)
                if quantity is not None:
                    quantity = quantity.of_source(self._claimed)
                    yield judged(finding, check, self._device, self._named(check, size), quantity)

    def _quantity(self, check: Check, size: int) -> Quantity | None:
        """Return a check as a quantity of our launches, or None where cells are missing."""
        if check.metric == "throughput":
            return self._product(check, size)
        one = check.terms[0][0]
        if len(check.terms) > 1:
            return None
        if check.metric == "retention":
            stack = self._stack(one)
            return None if stack is None else stack.quantity("retention")
        cell = self._built.get((one.compiler, one.subject, one.batches[0], None, None))
        if check.metric != "compile_seconds" or cell is None or one.compiler == "tvm":
            return None
        return Measurement(self._source, cell, cell).quantity("compile_seconds")

    def _batches(self, figure: Figure, size: int) -> list[int]:
        model = FAMILIES[figure.subject][size]
        return [batch for batch in figure.batches if (figure.compiler, model, batch, None, None) in self._cells]

    def _product(self, check: Check, size: int) -> Quantity | None:
        """Return a product of throughputs: the model of that size for each family, geometric means over batches.

        Of each range of batches those count in which all compilers of the check were measured.
        """
        there: dict[tuple[str, tuple[int, ...]], set[int]] = {}
        for figure, _ in check.terms:
            mine = set(self._batches(figure, size))
            key = (figure.subject, figure.batches)
            there[key] = there.get(key, mine) & mine
        if not all(there.values()):
            return None
        # Of each factor the cell, the samples of a call that count, and its power.
        factors: list[tuple[Cell, int, float]] = []
        for figure, power in check.terms:
            batches = there[figure.subject, figure.batches]
            model = FAMILIES[figure.subject][size]
            factors += [
                (
                    self._cells[figure.compiler, model, batch, None, None],
                    1 if check.per_batch else batch,
                    power / len(batches),
                )
                for batch in sorted(batches)
            ]
        cells, samples, powers = zip(*factors, strict=True)

        def product_of(seconds: Sequence[float]) -> float:
            return math.prod(map(pow, map(throughput_of, seconds, samples), powers))

        metric = "throughput" if len(check.terms) == 1 else "throughput_ratio"
        return of_times(self._source, metric, check.what, cells, product_of, subject=cells[0])

    def _stack(self, one: Figure) -> DepthSweep | None:
        """Return our stack of blocks for a row of Table VII or VIII, or None where there is not one."""
        wanted = (one.compiler, one.subject, one.batches[0], one.width)
        found = {
            depth: Measurement(self._source, cell, self._baselines[cell])
            for (compiler, model, batch, depth, width), cell in self._cells.items()
            if (compiler, model, batch, width) == wanted and depth is not None and cell in self._baselines
        }
        if len(found) < 2 or 1 not in found:
            return None
        return DepthSweep(self._source, dict(sorted(found.items())), tuple(sorted(found)))

    def _named(self, check: Check, size: int) -> str:
        """Name what of this run a check is about."""
        if check.metric != "throughput":
            return check.what.replace(f" on {self._theirs}", "") + self._on()
        models = dict.fromkeys(FAMILIES[figure.subject][size].partition(":")[2] for figure, _ in check.terms)
        batches = sorted({batch for figure, _ in check.terms for batch in self._batches(figure, size)})
        compilers = dict.fromkeys(figure.compiler for figure, _ in check.terms if figure.compiler != "identity")
        return f"{', '.join(compilers) or 'identity'}, {' over '.join(models)} at {_listed(batches)}{self._on()}"

    def _on(self) -> str:
        return self._into.on(self._device)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _estimate(quantity: Quantity | None) -> Estimate | None:
    """Return what is stored of a quantity, or None where nothing is."""
    with suppress(NotStored):
        return None if quantity is None else quantity.estimate()
    return None


def _shown(estimate: Estimate | None) -> str:
    """Write an estimate with its interval, or nothing where there is none."""
    return "" if estimate is None else with_interval(estimate, METRICS[estimate.metric].format)


@functools.cache
def _supported(device: str) -> tuple[tuple[Finding, Check], ...]:
    """Return the checks of a device of the paper that its own tables support."""
    return tuple(
        (finding, check)
        for finding in findings()
        for check in finding.checks
        if check.device == device and check.says == "yes"
    )


def judged(finding: Finding, check: Check, device: str, what: str, quantity: Quantity) -> Gate:
    """Judge a check by what is stored."""
    try:
        decision = decide(quantity, Bound(check.bound, check.at_least, TOLERANCE, "log"), TOLERANCE)
    except (NotStored, CellFailed) as reason:
        why = str(reason) if isinstance(reason, CellFailed) else "no launch has usable visits to all of its cells"
        return Gate(finding.key, device, check, what, None, "-", why)
    estimate = decision.estimate if decision.estimate.launches else None
    reasons = [decision.reason, state_of_claim(quantity, decision).note]
    return Gate(finding.key, device, check, what, estimate, str(decision.verdict), "; ".join(filter(None, reasons)))
