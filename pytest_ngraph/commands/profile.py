"""The profile of a launch: one is run, and its seconds are shown by phase and compiler."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.errors import CompileFailed, SpecError
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.options.settings import Settings, resolve
from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    TIMED,
    Cell,
    CompileRecord,
    CompilerSpec,
    ModelRef,
    Protocol,
    Reading,
    Visit,
    Workload,
)
from pytest_ngraph.spec.phases import PHASES, START, Spent
from pytest_ngraph.texts.fitting import folded
from pytest_ngraph.worker.answers import refusal
from pytest_ngraph.workloads.kinds import kind_of, parse_model

if TYPE_CHECKING:
    from pytest_ngraph.compilers.catalogue import Catalogue
    from pytest_ngraph.devices.local import LocalBench

_MODEL, _BATCHES = "block:conv", "1,8"
_WIDTH, _LEAST, _WIDEST = 80, 8, 16
# The field of the settings, the option of a run that is read into it, and the option here that is read like it.
_OPTIONS = (
    ("compilers", "--ngraph-compiler", "--profile-compilers"),
    ("batches", "--ngraph-batch", "--profile-batches"),
    ("image_sizes", "--ngraph-image-size", "--profile-image-size"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give the doctor the options of the profile."""
    parser.add_argument(
        "--profile",
        nargs="?",
        const="",
        metavar="MODEL or TEST",
        help=f"Run one launch of a model, or of what a test measures, and say where its seconds go, by phase and "
        f"compiler (default: {_MODEL}, or the tests behind --)",
    )
    parser.add_argument(
        "--profile-compilers",
        metavar="NAMES",
        help="Compilers of --profile, with commas (default: the model's baseline and those that a run would measure)",
    )
    parser.add_argument(
        "--profile-batches", metavar="NUMBERS", help=f"Batches of --profile, with commas (default: {_BATCHES})"
    )
    parser.add_argument(
        "--profile-image-size", metavar="PIXELS", help="Side of the images of --profile (default: the model's)"
    )


def tests_of(given: argparse.Namespace) -> list[str]:
    """Return the words for pytest where tests are to be profiled, none where a model is.

    A test has ``::`` in its name, which no model has. Raises SpecError for what goes together with no test.
    """
    named = [given.profile] if "::" in given.profile else []
    words = [*named, *given.rest]
    if not words:
        return []
    if given.profile and not named:
        raise SpecError(f"--profile {given.profile}: a model, with pytest's {given.rest[0]!r} behind -- (expected one)")
    for _, ours, name in _OPTIONS:
        if getattr(given, _attribute(name)) is not None:
            raise SpecError(f"{name}: tests say what they measure (expected it with a model, or {ours} behind --)")
    return words


def measure_profile(store: Path, given: argparse.Namespace, protocol: Protocol | None = None) -> None:
    """Run one launch of a model by the protocol ``gate`` and print where its seconds went.

    What it builds is kept beside the ``store``, its times are not. Raises SpecError for what is unknown, CompileFailed
    where nothing can be measured.
    """
    from pytest_ngraph.compilers.catalogue import Catalogue
    from pytest_ngraph.devices.local import LOCK, LocalBench, job, local_device
    from pytest_ngraph.devices.lock import device_lock

    here, protocol = Path.cwd(), protocol or PROTOCOLS["gate"]
    settings = replace(_settings(given, here), store=here / store)
    device, catalogue = local_device(settings), Catalogue()
    model = parse_model(given.profile or _MODEL, (here,))
    if missing := kind_of(model).missing():
        raise SpecError(f"model {model.text!r}: {missing}")
    (size, *_), batches = settings.image_sizes or (None,), settings.batches or (1,)
    workloads = [Workload(model, batch, image_size=size) for batch in sorted(batches)]
    bench = LocalBench(job(settings, catalogue, device, []), catalogue, protocol, settings.seed)
    cells = _cells(catalogue, bench, model, workloads, settings.compilers)
    with device_lock(LOCK, waiting=aside):
        print(f"profile     one launch of {model.text}, batch {', '.join(str(each.batch) for each in workloads)}")
        profile_launch(bench, catalogue, cells, protocol)


def profile_launch(
    bench: LocalBench, catalogue: Catalogue, cells: Sequence[Cell], protocol: Protocol, *, own_outputs: bool = False
) -> None:
    """Build what the cells read, run one launch of them and print where its seconds went.

    The device is held by the caller. Raises CompileFailed where nothing can be measured.
    """
    from pytest_ngraph.launches.launch import LaunchPlan, run_launch

    artifacts = _built(bench, catalogue, cells)
    sink = _Records()
    seed = random.SystemRandom().getrandbits(32)
    plan = LaunchPlan(tuple(cells), protocol, seed, artifacts=artifacts, own_outputs=own_outputs)
    spent = run_launch(bench.job, plan, sink, spare_memory=environment.spare_memory_share)
    for line in spent_lines(spent):
        print(line)
    for line in _remarks(sink.records):
        print(line)


def aside(text: str) -> None:
    """Print what is waited for, which is no part of what was asked for."""
    print(f"ngraph: {text}", file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print what is done before the table."""
    print(f"  {text}", flush=True)


def _attribute(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _settings(given: argparse.Namespace, here: Path) -> Settings:
    """Read the options as those of a run are read. Raise SpecError that names the option."""
    options = {field: [text] for field, _, name in _OPTIONS if (text := getattr(given, _attribute(name))) is not None}
    options.setdefault("batches", [_BATCHES])
    try:
        return resolve(options, {}, rootdir=here, invocation_dir=here, environ=os.environ)
    except SpecError as error:
        said = str(error)
        for _, ours, name in _OPTIONS:
            said = said.replace(f"{ours}:", f"{name}:")
        raise SpecError(said) from None


def _cells(
    catalogue: Catalogue,
    bench: LocalBench,
    model: ModelRef,
    workloads: Sequence[Workload],
    named: Sequence[CompilerSpec] | None,
) -> list[Cell]:
    """Return the cells of the baseline, its second process, and the compilers that are named or would run."""
    baseline = CompilerSpec.parse(kind_of(model).default_baseline)
    wanted = named or [CompilerSpec(name) for name in catalogue if not catalogue.get(name).named_only]
    cells = []
    for compiler in dict.fromkeys([baseline, *wanted]):
        catalogue.check(compiler)
        mine = [Cell("local", compiler, workload) for workload in workloads]
        missing = bench.missing(compiler.name)
        reason = missing or next(iter(bench.refusals(mine).values()), None)
        if reason is None:
            cells += mine
        elif named or compiler == baseline:
            raise SpecError(f"{compiler} on local: {reason}")
    return [*cells, replace(cells[0], replica=1)]


def _built(bench: LocalBench, catalogue: Catalogue, cells: Sequence[Cell]) -> dict[Cell, str]:
    """Build what the cells read and is not there yet. Return the keys of it."""
    lacking = [cell for cell, key in bench.artifacts(cells).items() if key is None]
    # One of those that read the same.
    wanted = {(cell.side, cell.workload, catalogue.get(cell.compiler.name).reads == "onnx"): cell for cell in lacking}
    for answer in bench.build(list(wanted.values()), lambda doing, done, total: show(doing)):
        if not answer["ok"]:
            raise CompileFailed(refusal(answer))
    return {cell: key for cell, key in bench.artifacts(cells).items() if key}


class _Records:
    """Keeps what preparing the cells gave."""

    def __init__(self) -> None:
        self.records: dict[Cell, CompileRecord] = {}

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        """Keep it."""
        self.records[cell] = record

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        """Take a visit. Its times are no result here."""

    def block_done(self, block: int, readings: tuple[Reading, Reading] | None) -> None:
        """Take the end of a block."""

    def progress(self, doing: str, done: int, total: int) -> None:
        """Take a sign of life."""


def _remarks(records: dict[Cell, CompileRecord]) -> Iterator[str]:
    """Yield what changes how the seconds are read: what failed, and what later launches will load."""
    for cell, record in records.items():
        if record.outcome not in TIMED:
            first, _, _ = record.reason.partition("\n")
            yield f"  {cell.label}: {record.outcome}: {first}"
    seconds = sum(record.compile_seconds or 0.0 for record in records.values() if not record.loaded)
    loading = sum(record.loaded for record in records.values())
    if loading:
        yield f"  compile: {loading} of {len(records)} cells were loaded from a cache"
    elif seconds > 1:
        yield "  compile: nothing was loaded; a later launch loads what its compiler keeps"


def spent_lines(spent: Spent, width: int = _WIDTH) -> Iterator[str]:
    """Yield a table of where the seconds of a launch went, in further tables where the compilers need more columns."""
    rows = [phase for phase in PHASES if spent.of(phase) >= 0.005 or _beside(spent, phase) >= 0.005]
    indent = {phase: "    " if phase not in {name for name, _ in spent.seconds} else "  " for phase in rows}
    first = max([len(indent[phase] + phase) for phase in rows] + [len("  phase")])
    heads = {name: folded(name, _WIDEST) for name in spent.compilers}
    sizes = {name: max(_LEAST, *map(len, head)) for name, head in heads.items()}
    fixed = [f"{'  phase':<{first}}  seconds   share"]
    for group in _in_width(spent.compilers, sizes, width - len(fixed[0])):
        for number in range(max((len(heads[name]) for name in group), default=1)):
            parts = ["".join(heads[name][number : number + 1]).rjust(sizes[name]) for name in group]
            yield "  ".join([fixed[0] if not number else " " * len(fixed[0]), *parts]).rstrip()
        for phase in rows:
            seconds = spent.of(phase)
            share = 100 * seconds / spent.total if spent.total else 0.0
            whole = f"{seconds:9.2f}  {share:4.0f} %" if seconds >= 0.005 else " " * 17
            own = [spent.of_compiler(phase, name) for name in group]
            texts = [f"{each:.2f}" if each >= 0.005 else "" for each in own]
            parts = [text.rjust(sizes[name]) for text, name in zip(texts, group, strict=True)]
            yield "  ".join([f"{indent[phase] + phase:<{first}}{whole}", *parts]).rstrip()
        yield f"{'  total':<{first}}{spent.total:9.2f}"
    yield f"  {START} and load: workers side by side, so their own seconds overlap"


def _beside(spent: Spent, phase: str) -> float:
    return sum(seconds for (name, _), seconds in spent.side_by_side.items() if name == phase)


def _in_width(names: Sequence[str], sizes: dict[str, int], width: int) -> Iterator[list[str]]:
    """Yield the names in groups whose columns fit, one at least."""
    group: list[str] = []
    for name in names:
        if group and sum(sizes[each] + 2 for each in [*group, name]) > width:
            yield group
            group = []
        group.append(name)
    yield group
