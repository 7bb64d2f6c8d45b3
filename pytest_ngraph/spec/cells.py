"""The frozen words of the project: what a compiler, a model, a workload, a cell and a protocol are."""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from pytest_ngraph.axes import AXES, Value, row_of
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec import evaluations
from pytest_ngraph.spec.evaluations import Agreed, Evaluation
from pytest_ngraph.spec.precisions import base_of
from pytest_ngraph.spec.resources.power import Power
from pytest_ngraph.spec.shapes.mixes import is_mix
from pytest_ngraph.spec.shapes.mixes import parse as parse_mix

DENSE = "dense"
# Of a CPU during a visit that counts. The kernel counts what a host takes in hundredths of a second.
_MOST_STOLEN, _MOST_SHARED, _TICK_NS = 0.05, 0.01, 10_000_000
# As the ``replica`` of a cell: it runs beside others and is not measured itself.
NEIGHBOUR = 2
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_VALUE = re.compile(r"[A-Za-z0-9_.:/+-]+\Z")
# Of a launch that is not whole, as others or another state took the rest: fewer do not say how far they scatter.
LEAST_BLOCKS = 3
# Others must have left the machine alone in so many glances at a launch that they disturbed.
LEFT_ALONE = 0.25


class Outcome(str, enum.Enum):
    """What became of a cell."""

    OK = "ok"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    MISMATCH = "mismatch"
    OOM = "oom"
    CRASH = "crash"
    TIMEOUT = "timeout"
    LOST = "lost"
    UNSTABLE = "unstable"

    def __str__(self) -> str:
        return self.value


# Those of a cell that was timed.
TIMED = (Outcome.OK, Outcome.UNSTABLE)


def split_commas(text: str) -> list[str]:
    """Split at commas that stand outside square brackets. Empty parts are dropped."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def target_parts(target: str) -> tuple[str, str]:
    """Return device and compiler of a target such as ``cuda:1:tensorrt``. Without a device that is empty."""
    name, bracket, options = target.partition("[")
    device, _, compiler = name.rpartition(":")
    return device, compiler + bracket + options


def digest(value: Any) -> str:
    """Return the sha256 of a JSON-able value in canonical form, as 64 hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class CompilerSpec:
    """A compiler with its options, such as ``onnxruntime[graph=basic,threads=1]``. Options are sorted by name.

    An option without a value, such as ``tvm[tuned]``, has the empty string as its value.
    """

    name: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> CompilerSpec:
        """Read ``NAME`` or ``NAME[option=value,flag]``. Raise SpecError with the accepted form otherwise."""
        stripped = text.strip()
        name, bracket, rest = stripped.partition("[")
        form = f"compiler {text!r}: expected NAME or NAME[option=value,...], such as onnxruntime[graph=basic,threads=1]"
        if not _NAME.match(name) or (bracket and not rest.endswith("]")):
            raise SpecError(form)
        options: dict[str, str] = {}
        for part in rest[:-1].split(",") if bracket else []:
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not _NAME.match(key) or (equals and not _VALUE.match(value)):
                raise SpecError(form)
            if key in options:
                raise SpecError(f"compiler {text!r}: option {key!r} is given twice")
            options[key] = value
        return cls(name, tuple(sorted(options.items())))

    def __str__(self) -> str:
        inner = ",".join(f"{key}={value}" if value else key for key, value in self.options)
        return f"{self.name}[{inner}]" if inner else self.name


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A reference to a model, as its kind has read it (see ``workloads.kinds``).

    ``text`` is what the suite wrote and what ids show. ``scheme`` is the name of its kind. ``locator`` finds the model
    without knowing where the reference stood (paths are absolute). ``kind`` is where a kind stands that is not built
    in, as ``module:ATTRIBUTE``: workers and remote devices follow it.
    """

    text: str
    scheme: str
    locator: str
    kind: str = ""

    def to_json(self) -> dict[str, str]:
        """Return a JSON-able form. Stores of before there were other kinds know the built-in ones by it."""
        of_kind = {"kind": self.kind} if self.kind else {}
        return {"text": self.text, "scheme": self.scheme, "locator": self.locator, **of_kind}

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Workload:
    """What is run: a model at one batch, depth, width, image size (pixels, square) and precision, and how it is called.

    ``sequence`` are the tokens of a sample, and ``decode`` those that are generated after them, one by one.
    ``optimize`` is what is done to the network before (see ``spec.optimizing``). ``shapes`` says whether what is built
    is for these sizes, for a range of them or for a mix, whose largest are ``batch`` and ``sequence``. ``scenario`` is
    ``latency``, one call after the other, or ``throughput``, several in flight, and ``neighbour`` a second model that
    runs beside it, which ``beside`` finds (see ``load.neighbours``). ``further`` has the axes that have no field here,
    by name: those of other versions, whose cells a store keeps as they are. ``optimizers`` are the places of those
    optimizers that are not built in, by name, as ``module:ATTRIBUTE``: workers and remote devices follow them.
    """

    model: ModelRef
    batch: int = 1
    sequence: int | None = None
    decode: int | None = None
    depth: int | None = None
    width: int | None = None
    image_size: int | None = None
    optimize: str = DENSE
    precision: str = "f32"
    shapes: str = "static"
    scenario: str = "latency"
    neighbour: str = "none"
    further: tuple[tuple[str, Value], ...] = ()
    optimizers: tuple[tuple[str, str], ...] = ()
    beside: ModelRef | None = None

    @classmethod
    def of(cls, model: ModelRef, values: Mapping[str, Value], optimizers: tuple[tuple[str, str], ...] = ()) -> Workload:
        """Return a workload with the given values of axes."""
        if values.keys() <= _OWN_NAMES:
            return cls(model=model, optimizers=optimizers, **values)  # type: ignore[arg-type]
        own = {name: value for name, value in values.items() if name in _OWN}
        rest = tuple(sorted((name, value) for name, value in values.items() if name not in _OWN and value is not None))
        return cls(model=model, further=rest, optimizers=optimizers, **own)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        # A grid has a hundred thousand, each of which is hashed for its cells; what nests is slow to hash.
        sizes = (self.batch, self.sequence, self.decode, self.depth, self.width, self.image_size)
        names = (self.optimize, self.precision, self.shapes, self.scenario, self.neighbour)
        return hash((self.model.text, self.model.locator, *sizes, *names, self.further))

    def value(self, name: str) -> Value:
        """Return the value of an axis. Its default where it has no field here and none was given."""
        if name in _OWN:
            found: Value = getattr(self, name)
            return found
        row = row_of(name)
        return dict(self.further).get(name, row.default if row is not None else None)

    @property
    def base_precision(self) -> str:
        """Return the precision without how it is quantised: ``int8`` of ``int8[by=nncf]``."""
        return base_of(self.precision)

    @property
    def samples_per_call(self) -> float:
        """Return the samples of a call: its batch, or the mean of those of a mix."""
        return parse_mix(self.shapes).samples_per_call(self.batch) if is_mix(self.shapes) else self.batch

    @property
    def label(self) -> str:
        """Name the workload in a line: the model, then each axis that is set."""
        return " ".join([self.model.text, *self.axis_labels()])

    def axis_labels(self, *without: str) -> list[str]:
        """Name each axis that is set, such as ``batch8`` or ``depth4``, but those of these names."""
        given = {name: value for name, value in self.further if name not in without}
        if is_mix(self.shapes):
            # It says which batches and lengths there are.
            mix = parse_mix(self.shapes)
            without = (*without, *(["batch"] if mix.batches else []), *(["sequence"] if mix.lengths else []))
        labels = []
        for row in AXES:
            name = row.name
            if name in _OWN_NAMES:
                value = getattr(self, name)
            elif name in given:
                value = given[name]
            else:
                continue
            # Most are at their default, and a report asks for labels some hundred thousand times.
            if row.is_shown(value) and name not in without:
                labels.append(row.label(value))
        if given:
            # An axis of another version: its cells must not go by the name of others.
            labels += [f"{name}{value}" for name, value in given.items() if row_of(name) is None]
        return labels

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form that ``from_json`` reads back."""
        # Not asdict, which copies every value: a store of many cells writes this for each of them, several times.
        # Of axes that were added later nothing is said at their default: such cells are those of before.
        own = {name: getattr(self, name) for name in _OWN}
        for name, default in _ADDED.items():
            if own[name] == default:
                del own[name]
        places = {"optimizers": dict(self.optimizers)} if self.optimizers else {}
        beside = {} if self.beside is None else {"beside": self.beside.to_json()}
        return {"model": self.model.to_json(), **own, **dict(self.further), **places, **beside}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Workload:
        """Read the form that ``to_json`` writes. Raise SpecError for what can be no value of an axis."""
        values = {name: value for name, value in data.items() if name not in _NO_AXES}
        for name, value in values.items():
            if name not in _OWN and not (name.isidentifier() and (value is None or type(value) in (int, str))):
                raise SpecError(f"workload: {name}={value!r} is no axis (expected a name, then a number or a text)")
        found = cls.of(ModelRef(**data["model"]), values, _places(data.get("optimizers", {})))
        return replace(found, beside=ModelRef(**data["beside"])) if "beside" in data else found


def _places(given: Any) -> tuple[tuple[str, str], ...]:
    """Return the places of optimizers by name, in one order. Raise SpecError for what can be none."""
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for pair in given.items() for each in pair):
        raise SpecError(f"workload: optimizers={given!r} (expected names with module:ATTRIBUTE)")
    return tuple(sorted(given.items()))


# The axes that are fields of a workload.
_NO_AXES = ("model", "optimizers", "beside")
_OWN = tuple(each.name for each in fields(Workload) if each.name not in (*_NO_AXES, "further"))
_OWN_NAMES = frozenset(_OWN)
_ADDED = {
    each.name: each.default
    for each in fields(Workload)
    if each.name in ("optimize", "sequence", "decode", "shapes", "neighbour")
}


@dataclass(frozen=True, slots=True)
class Cell:
    """Target x workload: the unit that is measured and stored.

    ``replica`` is 0, except for the second process of a compiler that is also the baseline (an A/A comparison), and
    ``NEIGHBOUR`` for what runs beside others.
    ``rebuild`` says that every launch builds it again and reuses nothing that was built before. ``side`` is the label
    of the side that its code and runtimes come from (see ``spec.sides``), empty for what is here.
    """

    device: str
    compiler: CompilerSpec
    workload: Workload
    replica: int = 0
    rebuild: bool = False
    side: str = ""
    # Cells are the keys of nearly everything, and nested values are slow to hash and to name: each is done once.
    _hash: int = field(init=False, repr=False, compare=False)
    _label: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiler = self.compiler
        facts = (self.device, compiler.name, compiler.options, self.workload, self.replica, self.rebuild, self.side)
        object.__setattr__(self, "_hash", hash(facts))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Texts have other hashes in another process.
        return type(self), (self.device, self.compiler, self.workload, self.replica, self.rebuild, self.side)

    @property
    def target(self) -> str:
        """Name the compiler-device pair, such as ``local:openvino``."""
        return f"{self.device}:{self.compiler}"

    @property
    def label(self) -> str:
        """Name the cell in a line."""
        if not self._label:
            object.__setattr__(self, "_label", self._named())
        return self._label

    def _named(self) -> str:
        notes = [
            *([f"of {self.side}"] if self.side else []),
            *(["as a neighbour" if self.replica == NEIGHBOUR else "second process"] if self.replica else []),
            *(["rebuilt"] if self.rebuild else []),
        ]
        return f"{self.target} {self.workload.label}" + (f" ({', '.join(notes)})" if notes else "")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form that ``from_json`` reads back."""
        return {
            "device": self.device,
            "compiler": str(self.compiler),
            "workload": self.workload.to_json(),
            "replica": self.replica,
            # Stores of before there was such a thing know their cells by this text.
            **({"rebuild": True} if self.rebuild else {}),
            **({"side": self.side} if self.side else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cell:
        """Read the form that ``to_json`` writes."""
        return cls(
            data["device"],
            CompilerSpec.parse(data["compiler"]),
            Workload.from_json(data["workload"]),
            int(data["replica"]),
            bool(data.get("rebuild", False)),
            str(data.get("side", "")),
        )


@dataclass(frozen=True, slots=True)
class Device:
    """A place to measure: the CPUs it may use, the threads each compiler gets, and its accelerator (``cpu``)."""

    name: str = "local"
    cpus: tuple[int, ...] = ()
    threads: int = 1
    accelerator: str = "cpu"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form that ``from_json`` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Device:
        """Read the form that ``to_json`` writes."""
        return cls(**{**data, "cpus": tuple(data["cpus"])})


@dataclass(frozen=True, slots=True)
class Protocol:
    """How cells are measured. The defaults are the protocol ``gate`` on a CPU.

    See docs/measuring.md, "The protocol, step by step". Times are seconds. ``order`` is ``mirrored`` (a random
    permutation, then its reverse) or ``fixed`` (cell by cell in the given order). Where a block takes longer than
    ``long_block_seconds`` a launch has ``long_blocks`` at most. ``allocator`` is ``steady`` (glibc keeps what it has)
    or ``default``. ``reference`` runs the reference kernel around every block and visit, ``control`` a second process
    of the baseline in every launch.
    """

    name: str = "gate"
    blocks: int = 8
    visit_seconds: float = 0.06
    visit_calls: int = 6
    long_call_seconds: float = 0.05
    long_visit_calls: int = 3
    long_block_seconds: float = 2.0
    long_blocks: int = 4
    batch_seconds: float = 0.0015
    discard_seconds: float = 0.005
    warmup_seconds: float = 0.3
    warmup_calls: int = 10
    long_warmup_seconds: float = 0.5
    warmup_limit_seconds: float = 20.0
    parked: bool = True
    order: str = "mirrored"
    allocator: str = "steady"
    clean: bool = True
    reference: bool = True
    control: bool = True
    error_control: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form. It is part of what evidence is keyed by."""
        return asdict(self)


PROTOCOLS: Mapping[str, Protocol] = {
    "gate": Protocol(),
    "quick": Protocol(
        name="quick",
        blocks=4,
        visit_seconds=0.05,
        visit_calls=4,
        warmup_seconds=0.1,
        reference=False,
        control=False,
        error_control=False,
    ),
    "paper": Protocol(
        name="paper",
        blocks=1,
        visit_seconds=0.0,
        visit_calls=100,
        long_visit_calls=100,
        batch_seconds=0.0,
        discard_seconds=0.0,
        order="fixed",
        parked=False,
        allocator="default",
        clean=False,
        reference=False,
        control=False,
        error_control=False,
    ),
}


def protocol_of(name: str) -> Protocol:
    """Return the protocol that stored launches name. Of one that is not known here nobody knows what they show.

    Such launches, of another version of this package, are read as those of ``gate``, and no error is controlled.
    """
    return PROTOCOLS.get(name) or replace(PROTOCOLS["gate"], name=name, error_control=False)


@dataclass(frozen=True, slots=True)
class CompileRecord:
    """What preparing a cell in a worker gave: its outcome, times in seconds, sizes in bytes, and what really ran.

    ``None`` means not measured or not readable, never zero. ``loaded`` is true where a saved artefact or a warm
    compiler cache was used, so that ``compile_seconds`` is a load, not a compilation. ``built_seconds`` is then how
    long compiling it had taken when it was built, reused. ``max_error`` is max |y - reference| / max |reference| over
    all outputs, or None where nothing was compared. ``cosine`` and ``centred_cosine`` are the smallest (see
    ``compilers.equality``), and ``top1_matches`` of ``top1_samples`` samples have the class of the reference.
    ``outputs_told_apart`` says whether the outputs of other inputs would have been refused, or None where that was not
    found out. ``implausible`` says that calls were faster than the machine can be, where they were. ``others_cpus`` is
    how many CPUs of the set other processes kept busy during the visits to the cell, on average, and ``stolen_share``
    for which part of their time the host had one of its CPUs, those among them that were made again. ``tuning_seconds``
    and ``tuning_trials`` are what the search has cost in all, in whatever runs, where there was one.
    ``slow_start_seconds`` is the part of the warm-up in which calls were not yet as fast as they stayed.
    ``device_call_seconds`` is a call as the accelerator itself times it, ``copy_in_seconds`` and ``copy_out_seconds``
    are what copying inputs and outputs takes. Calls are timed without. ``evaluation`` and ``agreed`` are of passes of
    their own, in which nothing is timed.
    ``achieved`` is what was done to the network before, in numbers (see ``spec.achieved``), empty of a dense one.
    ``new_shape_seconds`` is the first call at other sizes of what was built for open shapes, with binding its inputs.
    ``peaks`` are those of memory by phase (``spec.resources.peaks``) and ``power`` is what was drawn; ``unread`` says
    of a metric why it could not be read. ``held_to`` is the precision in whose bounds the outputs were compared, where
    that is another one than the cell was asked for in: that of a file which is written so.
    """

    outcome: Outcome
    reason: str = ""
    export_seconds: float | None = None
    compile_seconds: float | None = None
    loaded: bool = False
    first_call_seconds: float | None = None
    call_seconds: float | None = None
    warmup_seconds: tuple[float, ...] = ()
    slow_start_seconds: float | None = None
    model_bytes: int | None = None
    peak_memory_bytes: int | None = None
    max_error: float | None = None
    placement: tuple[tuple[str, str], ...] = ()
    tuning_seconds: float | None = None
    tuning_trials: int | None = None
    peak_gpu_memory_bytes: int | None = None
    device_call_seconds: float | None = None
    copy_in_seconds: float | None = None
    copy_out_seconds: float | None = None
    built_seconds: float | None = None
    cosine: float | None = None
    centred_cosine: float | None = None
    top1_matches: int = 0
    top1_samples: int = 0
    outputs_told_apart: bool | None = None
    implausible: str = ""
    others_cpus: float | None = None
    stolen_share: float | None = None
    evaluation: Evaluation | None = None
    agreed: Agreed | None = None
    achieved: tuple[tuple[str, int], ...] = ()
    new_shape_seconds: float | None = None
    peaks: tuple[tuple[str, int], ...] = ()
    unread: tuple[tuple[str, str], ...] = ()
    power: Power | None = None
    held_to: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form that ``from_json`` reads back."""
        data = {**asdict(self), "outcome": self.outcome.value}
        data.pop("power")
        data.update({} if self.power is None else {"power": self.power.to_json()})
        for name in ("evaluation", "agreed"):
            # Nearly all records have neither.
            found = getattr(self, name)
            data.pop(name)
            data.update({} if found is None else {name: evaluations.to_json(found)})
        for name in ("achieved", "peaks", "unread", "held_to"):
            # Of a dense network nothing is said, as before there was anything else; peaks are of passes of their own.
            if not data[name]:
                del data[name]
        if self.new_shape_seconds is None:
            # Nor of static shapes.
            del data["new_shape_seconds"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CompileRecord:
        """Read the form that ``to_json`` writes."""
        fields = dict(data)
        fields["outcome"] = Outcome(fields["outcome"])
        fields["warmup_seconds"] = tuple(fields["warmup_seconds"])
        fields["placement"] = tuple((str(key), str(value)) for key, value in fields["placement"])
        for name, kind in (("evaluation", Evaluation), ("agreed", Agreed)):
            if fields.get(name) is not None:
                fields[name] = kind.from_json(fields[name])
        for name in ("achieved", "peaks"):
            fields[name] = tuple((str(key), int(value)) for key, value in fields.get(name, ()))
        fields["unread"] = tuple((str(key), str(value)) for key, value in fields.get("unread", ()))
        if fields.get("power") is not None:
            fields["power"] = Power.from_json(fields["power"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the reference kernel said of the machine at one moment, in nanoseconds.

    ``arithmetic_ns`` is a fixed loop on one CPU, ``crossing_ns`` a word's way from the first CPU of the set to another
    and back, for some others, empty with one CPU.
    """

    arithmetic_ns: int
    crossing_ns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Visit:
    """One stay at one cell: the raw batches, as the worker timed them.

    Each array has one entry per batch of ``calls`` back-to-back calls: ``wall_ns`` and ``cpu_ns`` (whole process),
    ``run_delay_ns`` (time ready to run but not running, summed over threads), ``faults`` (minor page faults).
    Where a covariate cannot be read its array is empty.

    With several calls in flight ``request_ns`` has each call of the batches, from its submission to its completion, in
    the order in which they finished. A batch then lasts from the completion before its first to that of its last, and
    there is no run-delay: such calls wait for one another, whatever else runs.

    Where a call generates tokens one by one ``request_ns`` has for each call of the batches the time to its first token
    and then those of its steps: two or more numbers a call.

    ``around`` is what glances at the machine gave just before and just after it, in each try, the last of which is this
    one. It is empty where none were taken, and once its launch has ended and it is known which visits count.
    ``stolen_ns`` is how long the host had one of its CPUs meanwhile, the one that it had for longest, in the ticks that
    the kernel counts in.
    """

    calls: int
    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...] = ()
    run_delay_ns: tuple[int, ...] = ()
    faults: tuple[int, ...] = ()
    request_ns: tuple[int, ...] = ()
    around: tuple[tuple[Reading, Reading], ...] = field(default=(), compare=False, kw_only=True)
    stolen_ns: int = field(default=0, compare=False, kw_only=True)

    def is_stolen(self, *, shared: bool = False) -> bool:
        """Return whether the host took too much of it: 5 % of a CPU and more than one tick, which may have been before.

        In a launch that is ``shared`` 1 % is too much, and of a short visit any tick (docs/measuring.md, step 6).
        """
        if not self.stolen_ns:
            return False
        lasted = sum(self.wall_ns)
        return self.stolen_ns > (_MOST_SHARED * lasted if shared else max(_MOST_STOLEN * lasted, 1.5 * _TICK_NS))

    @property
    def tokens(self) -> int:
        """Return how many tokens each call generated one by one, 0 where calls generate none."""
        each, left = divmod(len(self.request_ns), max(1, self.calls * len(self.wall_ns)))
        return each if each > 1 and not left else 0

    @property
    def in_flight_ns(self) -> tuple[int, ...]:
        """Return the time of each call from its submission to its completion, where several were in flight."""
        return () if self.tokens else self.request_ns


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One launch as it is kept: what each cell's preparation gave and its visits, keyed by (cell, block).

    ``invalid`` is empty, or the reason why the launch must not count. ``seconds`` is how long it took. ``home`` is the
    state of the machine that it was measured in. Visits of blocks in another state are left out of ``visits``. It
    should have been measured in ``usual``, by what was known of the machine when it began. ``shared`` is empty, or how
    others used the machine so much that only what did not have to wait counts. ``run`` is the number of the run that
    measured it, 0 where it is not of a store. ``unsteady`` are the visits, by cell and block, around which the machine
    was not as usual. It is ``torn`` where most of its blocks were in another state. ``alone`` is the share of the
    glances at it that found the machine as it is by itself, None where that is not known. It is ``slower`` where some
    of the readings around its blocks are of a faster state.
    """

    number: int
    seed: int
    protocol: str
    prepared: Mapping[Cell, CompileRecord] = field(default_factory=dict)
    visits: Mapping[tuple[Cell, int], Visit] = field(default_factory=dict)
    invalid: str = ""
    seconds: float = field(default=0.0, compare=False)
    home: Reading | None = None
    usual: Reading | None = None
    shared: str = ""
    run: int = field(default=0, compare=False)
    unsteady: Set[tuple[Cell, int]] = field(default=frozenset(), compare=False)
    torn: bool = field(default=False, compare=False)
    alone: float | None = field(default=None, compare=False)
    slower: bool = field(default=False, compare=False)
    # What was derived from the visits of a cell, so that a report derives it once.
    derived: dict[Cell | tuple[Cell, str], Any] = field(default_factory=dict, compare=False, repr=False)
    # The visits of each cell by block, found once: a launch may hold hundreds of cells.
    _by_cell: dict[Cell, dict[int, Visit]] | None = field(init=False, default=None, compare=False, repr=False)

    def holds(self, cells: Iterable[Cell]) -> bool:
        """Return whether the launch measured all these cells: each was prepared well and visited at least once."""
        visited = self._index()
        timed = (Outcome.OK, Outcome.UNSTABLE)
        return all(cell in visited and self.prepared[cell].outcome in timed for cell in cells)

    def unsettled(self, cells: Iterable[Cell]) -> Cell | None:
        """Return the first of these cells of which the launch says nothing under error control, or None if of none.

        Such a cell never settled, or has no time.
        """
        return next((cell for cell in cells if self.prepared[cell].outcome is not Outcome.OK), None)

    def counts_for(self, cells: Sequence[Cell]) -> bool:
        """Return whether the launch counts and measured all these cells, each of which settled."""
        return not self.invalid and self.holds(cells) and self.unsettled(cells) is None

    @property
    def identity(self) -> tuple[int, int]:
        """Return what tells it from others of its group."""
        return self.number, self.seed

    @property
    def visited(self) -> Iterable[Cell]:
        """Return the cells that were visited."""
        return self._index()

    @property
    def is_disturbed(self) -> bool:
        """Return whether others left their mark on it, so that not all of its visits count alike."""
        return bool(self.unsteady or self.shared or self.torn)

    @property
    def least_blocks(self) -> int:
        """Return how many blocks are worth a launch that others disturbed in the other ones."""
        blocks: set[int] = set()
        for _, block in self.visits:
            blocks.add(block)
            if len(blocks) == LEAST_BLOCKS:
                break
        return len(blocks)

    @property
    def was_left_alone(self) -> bool:
        """Return whether others left the machine alone for enough of it that this shows in the times of calls."""
        return self.alone is not None and self.alone >= LEFT_ALONE

    def blocks_for(
        self, cells: Sequence[Cell], usable: Iterable[int], *, disturbed: bool = False, half: bool = False
    ) -> list[int]:
        """Return which of these blocks, in which all these cells have usable visits, count for what they say together.

        Those for which the machine was steady around all of these visits, as long as it was left alone for enough of
        the launch: else steady is what it was like beside others. They must be three, and ``half`` of the blocks where
        a few may be so by chance and there is something better than these. Where they are too few all of them count if
        ``disturbed`` ones may, as they would if nobody had looked. Of a launch that is torn, or that others shared, or
        of whose visits the host took some, too few are none (docs/measuring.md, step 6).
        """
        blocks = sorted(usable)
        each = (visit for cell in cells for visit in self.visits_of(cell).values())
        is_short = bool(self.shared) or any(visit.is_stolen() for visit in each)
        if not self.is_disturbed and not is_short:
            return blocks
        least = self.least_blocks
        steady = [block for block in blocks if not any((cell, block) in self.unsteady for cell in cells)]
        if len(steady) >= least and (disturbed or steady == blocks):
            return steady
        if disturbed:
            return blocks if not self.torn and (not is_short or len(blocks) >= least) else []
        if self.alone is None:
            # Of an earlier version, or with too few glances: nobody knows for how long it was left alone.
            return steady if len(steady) >= least else []
        enough = max(least, -(-len(blocks) // 2)) if half else least
        return steady if len(steady) >= enough and self.was_left_alone else []

    def visits_of(self, cell: Cell) -> dict[int, Visit]:
        """Return the visits to a cell by block."""
        return self._index().get(cell, {})

    def visits_for(self, cell: Cell) -> dict[int, Visit]:
        """Return those that count for what is said of the cell by itself (``blocks_for``)."""
        visits, shared = self.visits_of(cell), bool(self.shared)
        # Where no verdict rests on it a disturbed number is of more use than none.
        if protocol_of(self.protocol).error_control:
            visits = {block: visit for block, visit in visits.items() if not visit.is_stolen(shared=shared)}
        return {block: visits[block] for block in self.blocks_for([cell], visits)}

    def _index(self) -> dict[Cell, dict[int, Visit]]:
        if self._by_cell is None:
            index: dict[Cell, dict[int, Visit]] = {}
            for (cell, block), visit in self.visits.items():
                index.setdefault(cell, {})[block] = visit
            # Whole at once: devices have threads of their own.
            object.__setattr__(self, "_by_cell", index)
            return index
        return self._by_cell
