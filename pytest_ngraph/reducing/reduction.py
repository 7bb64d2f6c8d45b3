"""A reduction from the cell that fails to the folder that is shared, with a line for each step."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph import units
from pytest_ngraph.bisecting.search import rate_of
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.local import LocalBench
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.settings import LEAST_ERROR_RATE, Settings
from pytest_ngraph.reducing import kept, private, writing
from pytest_ngraph.reducing.failing import Failure, is_same, names_in
from pytest_ngraph.reducing.graph import Graph, NoPart, Part
from pytest_ngraph.reducing.judging import Judge, settings_for
from pytest_ngraph.reducing.search import Nodes, Search
from pytest_ngraph.reducing.trying import Trying, cell_of, sizes_of
from pytest_ngraph.reducing.values import Recorded
from pytest_ngraph.spec.cells import Outcome, digest
from pytest_ngraph.texts.shown import one_line
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.onnx_files import inputs as given_inputs
from pytest_ngraph.workloads.onnx_files.tensors import is_large

if TYPE_CHECKING:
    import onnx

# Judgements besides two for each halving: what a search drops one by one at its end.
_FURTHER_STEPS = 12
# Weights are drawn again so often until the part fails as before.
_DRAWS = 3
REDRAWN = (
    "Weights are drawn again: shapes, types and the mean and deviation of each tensor are as they were, whole numbers "
    "that are shapes or indices too."
)
KEPT = "Weights are as they were."
NONE = "It has no weights."


class Ended(Exception):
    """A reduction that ends without a folder. The text says why."""


class _Spent(Exception):
    """The time, or the error rate, of a search is spent. The text says which."""


@dataclass
class Terms:
    """What a reduction is to do, and where. ``until`` is the moment at which its search ends, by the monotonic clock.

    ``error_rate`` is that of a whole search, shared out to its judgements. ``force`` writes over what is there.
    """

    failure: Failure
    folder: Path
    keep_weights: bool
    error_rate: float
    until: float
    work: Path
    key: str
    say: Callable[[str], None] = field(default=print)
    force: bool = False


@dataclass(frozen=True, slots=True)
class _Tried:
    """What became of a file: whether it fails as it should, the words of a step, and what is said of it to others."""

    fails: bool
    words: str
    reason: str = ""
    numbers: tuple[str, ...] = ()
    placement: tuple[tuple[str, str], ...] = ()


class Reduction:
    """Cuts the graph of a failing cell down. ``own`` is the bench that its test ran on, ``bench`` that of its parts."""

    def __init__(self, terms: Terms, settings: Settings, catalogue: Catalogue, own: LocalBench, bench: LocalBench):
        self._terms, self._settings, self._catalogue = terms, settings, catalogue
        self._own, self._bench = own, bench
        self._trying = Trying(bench, settings.protocol, settings.seed)
        self._judge = Judge(settings, catalogue, bench, terms.failure, ("ngraph", "reduce"))
        self._steps: list[kept.Step] = []
        self._known: dict[Nodes, kept.Step] = {}
        self._shown: set[Nodes] = set()
        self._names: frozenset[str] = frozenset()

    def close(self) -> None:
        """End the processes of the reduction, and remove what it wrote but for its steps, launches and logs."""
        self._trying.close()
        for path in self._terms.work.glob("*"):
            if path.is_dir() and path.name != "ngraph-logs":
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith("values"):
                path.unlink(missing_ok=True)

    def go(self) -> list[str]:
        """Reduce, write the folder and return what it came to. Raise Ended where nothing is written."""
        terms = self._terms
        terms.work.mkdir(parents=True, exist_ok=True)
        self._graph, self._values = self._whole()
        self._resume()
        if not self._steps:
            self._confirm()
        everything = tuple(range(len(self._graph)))
        if not self._fails(everything):
            raise Ended(self._not_in_the_graph(everything))
        search, spent = Search(self._graph, self._fails), ""
        try:
            search.run()
        except _Spent as why:
            spent = str(why)
        lines = self._found(search, spent)
        lines += self._elsewhere(search.best, spent)
        return [*lines, *self._share(search.best)]

    # The whole

    def _whole(self) -> tuple[Graph, Recorded]:
        """Return the graph of the cell, and what its values are for the inputs that the cell was compared on."""
        import onnx

        own, workload = self._own, self._terms.failure.cell.workload
        trying = Trying(own, self._settings.protocol, self._settings.seed)
        try:
            answer = trying.build(self._terms.failure.cell, onnx=True)
        finally:
            trying.close()
        if not answer["ok"]:
            raise SpecError(f"{workload.label} has no ONNX graph to reduce: {one_line(str(answer['reason']), 300)}")
        job = own.job
        artifact = artifacts.find(workload, job.seed, job.artifacts, True, job.sys_path)
        if artifact is None or artifact.onnx is None:
            why = "" if artifact is None else str(artifact.meta.get("onnx_unsupported", ""))
            raise SpecError(f"{workload.label} has no ONNX graph to reduce{f': {one_line(why, 300)}' if why else ''}")
        expected = artifacts.reference(artifact)
        timed = artifacts.timed_inputs(job.artifacts, artifact.key)
        samples = [timed, *(expected.call(number).inputs for number in range(expected.calls))]
        samples = [{name: sample[name] for name in timed} for sample in samples]
        graph = Graph(onnx.load(artifact.onnx))
        if not len(graph):
            raise SpecError(f"{workload.label}: its ONNX graph has no nodes")
        operators = {node.op_type for node in graph.nodes}
        values = [*graph.makers, *graph.stored, *graph.inputs]
        self._names = names_in(values, [node.name for node in graph.nodes], operators)
        ordered = [dict(_by_order(graph, each)) for each in samples]
        return graph, Recorded(graph, ordered, self._terms.work)

    def _confirm(self) -> None:
        """Try the cell of the test once more: what fails once and then passes cannot be reduced."""
        failure = self._terms.failure
        if failure.is_slow:
            return
        reads_onnx = self._catalogue.get(failure.cell.compiler.name).reads == "onnx"
        trying = Trying(self._own, self._settings.protocol, self._settings.seed)
        try:
            record = trying.try_(failure.cell, onnx=reads_onnx)
        finally:
            trying.close()
        if not is_same(failure, record, self._names):
            raise Ended(
                f"it failed once and then not: {failure.words}; again: {record.outcome}"
                f"{f': {one_line(record.reason, 200)}' if record.reason else ''}. Nothing can be reduced by a failure "
                "that comes and goes"
            )

    def _not_in_the_graph(self, everything: Nodes) -> str:
        failure = self._terms.failure
        said = self._known[everything].words if everything in self._known else "it is no model by itself"
        if failure.is_slow:
            return (
                f"the whole graph, as an ONNX file against {failure.baseline}, is not shown to fail: {said} (claimed: "
                f"at least {failure.at_least:.4g}). The test failed once and this judgement did not; with --baseline, "
                "or a larger --ngraph-budget behind --, it may"
            )
        return (
            f"the whole graph, as an ONNX file of its own, does not fail so: {said}. What fails is not in the graph, "
            "but in how the cell is made"
        )

    # Steps

    def _resume(self) -> None:
        """Take what was tried before."""
        path = self._terms.work / "steps.json"
        try:
            self._steps = kept.read(path, self._terms.key, len(self._graph))
        except SpecError as error:
            self._terms.say(f"{error}; the reduction begins again")
        self._known = {step.nodes: step for step in self._steps}
        if self._steps:
            self._terms.say(f"{units.count(len(self._steps), 'step')} of before are kept")

    def _fails(self, nodes: Nodes) -> bool:
        """Return whether some nodes fail by themselves as the cell does."""
        if nodes not in self._known:
            if time.monotonic() >= self._terms.until and self._steps:
                raise _Spent("the time of --budget is spent")
            try:
                part = self._graph.part(nodes, self._values)
            except NoPart:
                return False
            tried = self._tried(self._part_file(part), part.batch, len(self._steps) + 1)
            step = kept.Step(nodes, tried.fails, tried.words)
            self._steps.append(step)
            self._known[nodes] = step
            kept.write(self._terms.work / "steps.json", self._terms.key, self._steps)
        self._show(nodes)
        return self._known[nodes].fails

    def _show(self, nodes: Nodes) -> None:
        if nodes in self._shown:
            return
        self._shown.add(nodes)
        step, number = self._known[nodes], len(self._shown)
        what = f"{len(nodes)} of {units.count(len(self._graph), 'node')}"
        said = f"fails: {step.words}" if step.fails else step.words
        self._terms.say(f"{number}. {what} ({self._graph.words(nodes, 3)}): {said}")

    def _part_file(self, part: Part) -> Path:
        """Write a part as a file with whole samples of its inputs. Return its path."""
        folder = self._terms.work / "part"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model = part.model
        _name_inputs(model, {given_inputs.SAMPLES: "part.npz", given_inputs.RANGES: _ranges(part, self._values, {})})
        given_inputs.write_samples(folder / "part.npz", *self._samples(part))
        return _saved(model, folder / "part.onnx")

    def _samples(self, part: Part) -> tuple[list[str], list[Mapping[str, Any]]]:
        """Return those inputs of a part that are the same in no two samples, with their samples."""
        names = [name for name in part.inputs if name not in self._graph.constant]
        return names, self._values.samples(names)

    def _tried(self, path: Path, batch: int, number: int) -> _Tried:
        failure, like = self._terms.failure, self._terms.failure.cell
        if failure.is_slow:
            judged = self._judge.judge(path, batch, self._rate(number), f"{self._terms.key}-{number}-{time.time_ns()}")
            return _Tried(judged.fails, judged.words, judged.words, judged.times, judged.placement)
        with self._bench.held(self._terms.say):
            record = self._trying.try_(cell_of(path, batch, like), onnx=self._reads_onnx)
        fails = is_same(failure, record, self._names)
        error = f" (max error {record.max_error:.3g})" if record.max_error is not None else ""
        said = "no model by itself" if record.outcome is Outcome.LOST else str(record.outcome)
        # Of what fails as the cell does the reason is known.
        words = f"{said}{error}" + (f": {one_line(record.reason, 120)}" if record.reason and not fails else "")
        return _Tried(fails, words, record.reason, (), record.placement)

    @property
    def _reads_onnx(self) -> bool:
        return self._catalogue.get(self._terms.failure.cell.compiler.name).reads == "onnx"

    def _rate(self, number: int) -> float:
        """Return the error rate of a judgement, so that all of a search err at its own rate at most."""
        expected = 2 * math.ceil(math.log2(max(2, len(self._graph)))) + _FURTHER_STEPS
        rate = rate_of(number, 2 ** (expected - 1), self._terms.error_rate)
        if rate < LEAST_ERROR_RATE:
            raise _Spent("the error rate of the search is spent")
        return rate

    # What it came to

    def _found(self, search: Search, spent: str) -> list[str]:
        best, count = search.best, len(self._graph)
        left = f"{units.count(len(best), 'node')} ({self._graph.words(best)})"
        lines = [f"removed: {count - len(best)} of {units.count(count, 'node')}", f"left:    {left}"]
        if search.is_minimal:
            lines += ["         no single one of them can be left out"] if len(best) > 1 else []
        else:
            lines += [f"         smaller parts were not tried: {spent}"]
        return [*lines, f"fails:   {self._known[best].words if best in self._known else self._terms.failure.words}"]

    def _elsewhere(self, best: Nodes, spent: str) -> list[str]:
        """Say where the rest fails as well: then the failure is in several places."""
        rest = tuple(number for number in range(len(self._graph)) if number not in set(best))
        if spent or not rest:
            if not rest and len(best) > 1:
                return ["         no part of the graph is shown to fail by itself: it cannot be localised"]
            return []
        try:
            fails = self._fails(rest)
        except _Spent:
            return []
        if not fails:
            return []
        return [
            f"but:     the other {units.count(len(rest), 'node')} fail without them as well, so that the failure is "
            "not in one place: this is the smallest part that still fails"
        ]

    def _share(self, best: Nodes) -> list[str]:
        """Write the folder, once it is seen that what is written still fails."""
        terms, part = self._terms, self._graph.part(best, self._values)
        said = ""
        for redrawn, recorded, seed in self._variants():
            scratch = terms.work / "shared"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            drawn = self._write_model(part, scratch, redrawn=redrawn, recorded=recorded, seed=seed)
            try:
                tried = self._tried(scratch / writing.MODEL, part.batch, len(self._steps) + 1)
            except _Spent as why:
                raise Ended(f"{why}: what would be written is not judged; a larger --error-rate allows it") from None
            if tried.fails:
                return self._written(part, scratch, tried, drawn, redrawn=redrawn, recorded=recorded)
            said = tried.words
        if terms.keep_weights:
            raise Ended(
                f"it failed before and does not now, with its own weights and inputs: {said}; nothing is written"
            )
        raise Ended(
            "it fails only with the original weights, or the values that the whole model gives them: with those "
            f"that were drawn again it gives {said}. Nothing is written; --keep-weights writes it with its own weights "
            "(what was tried is kept, so that this is quick)"
        )

    def _variants(self) -> list[tuple[bool, bool, int]]:
        """Return what is tried in turn: whether weights are drawn again, inputs are those recorded, and a seed."""
        if not self._terms.keep_weights:
            return [(True, False, self._settings.seed + number) for number in range(_DRAWS)]
        return [(False, False, 0), (False, True, 0)]

    def _write_model(self, part: Part, scratch: Path, *, redrawn: bool, recorded: bool, seed: int) -> private.Drawn:
        model, drawn = private.anonymous(part.model, {})
        metadata = {given_inputs.RANGES: _ranges(part, self._values, drawn.names)}
        if recorded:
            names, samples = self._samples(part)
            called = [drawn.names[name] for name in names]
            renamed = [{drawn.names[name]: array for name, array in sample.items()} for sample in samples]
            given_inputs.write_samples(scratch / writing.SAMPLES, called, renamed)
            metadata[given_inputs.SAMPLES] = writing.SAMPLES
        _name_inputs(model, metadata)
        if redrawn:
            private.redraw(model, seed, drawn)
        _saved(model, scratch / writing.MODEL)
        return drawn

    def _written(
        self, part: Part, scratch: Path, tried: _Tried, drawn: private.Drawn, *, redrawn: bool, recorded: bool
    ) -> list[str]:
        terms = self._terms
        cell = cell_of(scratch / writing.MODEL, part.batch, terms.failure.cell)
        how = "those that the whole model gives" if recorded else "drawn from the range of what the whole model gives"
        shared = writing.Shared(
            terms.failure,
            cell,
            writing.sayable(tried.reason, [scratch, terms.work, self._bench.job.artifacts]),
            (len(part.nodes), len(self._graph)),
            self._graph.words(part.nodes),
            (REDRAWN if redrawn else KEPT) if drawn.tensors or not redrawn else NONE,
            f"Its inputs are {how}.",
            tried.numbers,
            tried.placement,
            sizes_of(terms.failure.cell),
        )
        adapter = self._catalogue.get(cell.compiler.name)
        paths = writing.write(terms.folder, scratch, shared, adapter, force=terms.force)
        weights = f"{drawn.numbers} numbers of {units.count(drawn.tensors, 'tensor')} drawn again"
        weights += f", {drawn.kept} kept as shapes and indices" if drawn.kept else ""
        return [
            f"again:   {one_line(tried.reason, 300)}",
            f"weights: {weights if redrawn else 'as they were (--keep-weights)'}",
            f"inputs:  {how}",
            f"written: {', '.join(str(path) for path in paths)}",
        ]


def _by_order(graph: Graph, sample: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return a sample by the names of the graph's inputs: by name where they have the same, else in order."""
    if set(sample) == set(graph.inputs):
        return [(name, sample[name]) for name in graph.inputs]
    return list(zip(graph.inputs, sample.values(), strict=True))


def _ranges(part: Part, values: Recorded, names: Mapping[str, str]) -> str:
    import json

    fitted = {name: given_inputs.fitted([each[name] for each in values.samples([name])]) for name in part.inputs}
    return json.dumps({names.get(name, name): each for name, each in fitted.items()})


def _name_inputs(model: onnx.ModelProto, metadata: Mapping[str, str]) -> None:
    for key, value in metadata.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value


def _saved(model: onnx.ModelProto, path: Path) -> Path:
    import onnx

    if is_large(model):
        raise SpecError("what is left has weights of 2 GB and more, which one ONNX file cannot hold")
    onnx.save(model, path)
    return path


def key_of(failure: Failure, test: str, evidence: str | None, error_rate: float, settings: Settings) -> str:
    """Return what a reduction is known by: all that its steps depend on, and nothing that was found by the clock."""
    facts = {
        "test": test,
        "cell": failure.cell.to_json(),
        "key": evidence,
        "outcome": str(failure.outcome),
        "baseline": str(failure.baseline),
        "slow": failure.is_slow,
        "rate": error_rate,
    }
    if failure.is_slow:
        # With another bound, or more launches, a step that was undecided may be decided.
        facts |= {"claim": failure.claim, "tolerance": failure.tolerance, "launches": settings.budget.launches}
        facts["protocol"] = settings_for(settings, settings.store).protocol.name
    return digest(facts)[:12]
