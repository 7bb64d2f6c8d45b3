"""The axes of a workload as data, one row each: marker, options, ids, labels, keys, tables and help read it.

Adding an axis is a row here and what applies it: what builds, exports or calls a model by it. Nothing to import: every
pytest run pays for it.
"""

from __future__ import annotations

from collections.abc import Mapping

NUMBERS, REFERENCES = "whole numbers >= 1", "references of models"
# More has no tensor, and is a slip.
MOST = 2**31 - 1
STEPS = "dense, or steps such as channel_prune=0.5+weight_prune=0.8"
PRECISIONS = ("f32", "tf32", "f16", "bf16", "int8")
# One call after the other, or several in flight: the scenarios that a compiler knows of. Under load it is one of them.
SCENARIOS = ("latency", "throughput")
UNDER_LOAD = "server[rate=N]"
# A build for the shapes of one workload, or for a range of them.
SHAPES = ("static", "dynamic")
BESIDE = "none, or a model such as timm:resnet50@onnxruntime"
Value = int | str | None


class Axis:
    """One axis: what may be asked for, how it is written, and what it belongs to.

    ``name`` is its keyword in the marker, and its name in a workload. ``values`` is ``NUMBERS``, ``REFERENCES``,
    ``STEPS`` or the words that are allowed. ``of`` says who applies it: the ``model`` (its factory is called with it),
    the ``module`` that was built, the ``input`` that it is fed, the ``graph`` that compilers get, or the ``call``. The
    references themselves belong to nobody.
    ``default`` is its value where a suite says nothing, and None where it is then not set.

    ``plural`` is the keyword by which it is swept inside one item, ``fixture`` what gives that sweep, and ``first`` the
    reference point that a sweep always has. ``option`` narrows it, as ``help`` says, into ``field`` of the settings.
    ``stem`` stands before its value in ids and labels. ``is_always_named`` puts it there at its default, too. ``unit``
    stands in the head of its column in exports. ``reader`` is where a function stands, as ``module:NAME``, that reads a
    text that is more than a word of ``values`` into its normal form, and raises SpecError with what is allowed. With
    ``takes_mapping`` it also gets mappings, and the folders that files are looked for in.
    """

    def __init__(
        self,
        name: str,
        what: str,
        *,
        of: str = "",
        values: str | tuple[str, ...] = NUMBERS,
        default: Value = None,
        plural: str = "",
        fixture: str = "",
        first: int | None = None,
        option: str = "",
        field: str = "",
        help: str = "",
        metavar: str = "NUMBERS",
        stem: str = "",
        is_always_named: bool = False,
        unit: str = "",
        reader: str = "",
        takes_mapping: bool = False,
    ) -> None:
        self.name, self.what, self.of, self.values, self.default = name, what, of, values, default
        self.plural, self.fixture, self.first = plural, fixture, first
        self.option, self.field, self.help, self.metavar = option, field, help, metavar
        self.stem, self.is_always_named, self.unit, self.reader = stem, is_always_named, unit, reader
        self.takes_mapping = takes_mapping

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that are allowed, or None for an axis of other values."""
        return self.values if isinstance(self.values, tuple) else ()

    @property
    def is_number(self) -> bool:
        """Return whether its values are whole numbers."""
        return self.values == NUMBERS

    @property
    def is_named(self) -> bool:
        """Return whether its values are names of their own: neither numbers nor models."""
        return self.values not in (NUMBERS, REFERENCES)

    @property
    def column(self) -> str:
        """Return the head of its column in exports."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def label(self, value: object) -> str:
        """Return how one of its values is written in ids and labels."""
        return f"{self.stem}{value}"

    def is_shown(self, value: object) -> bool:
        """Return whether a value is shown in labels: always, or where it is not the default."""
        return self.is_always_named or value != self.default


# In the order of a workload's fields and of columns.
AXES: tuple[Axis, ...] = (
    Axis(
        "model",
        "what is run",
        values=REFERENCES,
        plural="models",
        fixture="ngraph_models",
        option="--ngraph-model",
        field="models",
        help="Models; narrows the grids, and serves tests without model=",
        metavar="REFS",
    ),
    Axis(
        "batch",
        "samples in a call",
        of="input",
        default=1,
        plural="batches",
        fixture="ngraph_batches",
        first=1,
        option="--ngraph-batch",
        field="batches",
        help="Batch sizes to keep",
        stem="batch",
        is_always_named=True,
    ),
    Axis(
        "sequence",
        "tokens of a sample",
        of="input",
        plural="sequences",
        fixture="ngraph_sequences",
        option="--ngraph-sequence",
        field="sequences",
        help="Lengths of sequences to keep",
        stem="seq",
    ),
    Axis(
        "decode",
        "tokens that are generated one after the other",
        of="call",
        option="--ngraph-decode",
        field="decodes",
        help="Numbers of generated tokens to keep",
        stem="decode",
    ),
    Axis(
        "depth",
        "layers of a block stack, or of a factory that takes depth",
        of="model",
        plural="depths",
        fixture="ngraph_depths",
        first=1,
        option="--ngraph-depth",
        field="depths",
        help="Depths to keep",
        stem="depth",
    ),
    Axis(
        "width",
        "channels of a block, or of a factory that takes width",
        of="model",
        option="--ngraph-width",
        field="widths",
        help="Widths to keep",
        stem="width",
    ),
    Axis(
        "image_size",
        "pixels of a side",
        of="model",
        option="--ngraph-image-size",
        field="image_sizes",
        help="Image sizes (pixels) to keep",
        stem="size",
        unit="px",
    ),
    Axis(
        "optimize",
        "what is done to the network",
        of="module",
        values=STEPS,
        default="dense",
        option="--ngraph-optimize",
        field="optimizations",
        help="What is done to the networks to keep, such as dense,channel_prune=0.5",
        metavar="STEPS",
        reader="pytest_ngraph.spec.optimizing:normal",
    ),
    Axis(
        "precision",
        "of the graph",
        of="graph",
        values=PRECISIONS,
        default="f32",
        reader="pytest_ngraph.spec.precisions:normal",
    ),
    Axis(
        "shapes",
        "that one build is for",
        of="graph",
        values=SHAPES,
        default="static",
        reader="pytest_ngraph.spec.shapes.mixes:normal",
        takes_mapping=True,
    ),
    Axis(
        "scenario",
        "how it is called",
        of="call",
        values=(*SCENARIOS, UNDER_LOAD),
        default="latency",
        reader="pytest_ngraph.load.scenarios:normal",
    ),
    Axis(
        "neighbour",
        "a second model that runs beside it",
        of="call",
        values=BESIDE,
        default="none",
        stem="beside:",
        reader="pytest_ngraph.load.neighbours:normal",
    ),
)


def row_of(name: str) -> Axis | None:
    """Return the row of an axis, or None where there is none of this name."""
    return next((row for row in AXES if row.name == name), None)


def names(of: str) -> tuple[str, ...]:
    """Return the names of the axes that somebody applies: such as the ``model`` or the ``graph``."""
    return tuple(row.name for row in AXES if row.of == of)


def singular() -> tuple[str, ...]:
    """Return the keywords that make items, in the order of ids: what is swept most often varies fastest."""
    swept = [row.name for row in AXES if row.first is not None]
    return (*(row.name for row in AXES if row.first is None), *reversed(swept))


def plural() -> Mapping[str, str]:
    """Map each keyword that is swept inside an item to its axis."""
    return {row.plural: row.name for row in AXES if row.plural}
