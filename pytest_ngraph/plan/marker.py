"""The marker: its keywords, how markers merge, and which values each keyword takes."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Iterable, Iterator, Mapping, MappingView, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

from pytest_ngraph import axes
from pytest_ngraph.errors import SpecError, about
from pytest_ngraph.options.settings import Budget
from pytest_ngraph.places import load_place
from pytest_ngraph.spec.cells import CompilerSpec
from pytest_ngraph.spec.dims import refuse_name
from pytest_ngraph.workloads.naming import how_to_name

SINGULAR, PLURAL = axes.singular(), axes.plural()
TERMS = ("compilers", "devices", "baseline", "budget", "tolerance", "rebuild", "against")
# Another way to write what stands behind a model's reference: no axis of its own.
DIMS = "dims"
KEYWORDS = (*SINGULAR, *PLURAL, DIMS, *TERMS)
FIXTURES: Mapping[str | None, str] = {
    None: "ngraph_cell",
    **{row.plural: row.fixture for row in axes.AXES if row.plural},
}
# More is a slip, and would take all memory before anybody sees it.
_MOST_VALUES = 100_000


@dataclass(frozen=True, slots=True)
class Marker:
    """The merged marker of a test, checked: axis values, the swept axis, and the test's own terms.

    Each of ``dims`` has sizes of open dimensions, by name, for every model.
    """

    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    plural: str | None = None
    dims: tuple[Mapping[str, int], ...] = ()
    compilers: tuple[CompilerSpec, ...] | None = None
    devices: tuple[str, ...] | None = None
    baseline: CompilerSpec | None = None
    budget: Budget | None = None
    tolerance: float | None = None
    rebuild: bool | None = None
    against: str | None = None


def read_marker(marks: Iterable[tuple[Sequence[Any], Mapping[str, Any]]], search: Sequence[Path] = ()) -> Marker:
    """Merge the arguments of markers, the nearest first, and check them. Raise SpecError with keyword and value.

    ``search`` are the folders that paths of models are looked for in.
    """
    merged: dict[str, Any] = {}
    for arguments, keywords in reversed(list(marks)):
        if arguments:
            raise SpecError(
                f"positional argument {_shown(arguments[0])}: only keywords are taken ({', '.join(KEYWORDS)})"
            )
        for keyword, value in keywords.items():
            if keyword not in KEYWORDS:
                raise SpecError(f"unknown keyword {keyword!r} (allowed: {', '.join(KEYWORDS)})")
            # The nearest marker decides whether an axis makes items or is swept.
            merged.pop(PLURAL.get(keyword, ""), None)
            for plural, singular in PLURAL.items():
                if singular == keyword:
                    merged.pop(plural, None)
            merged[keyword] = value
        both = [plural for plural, singular in PLURAL.items() if plural in keywords and singular in keywords]
        if both:
            raise SpecError(f"{both[0]}= and {PLURAL[both[0]]}= together: the axis is either swept or makes items")
    swept = [plural for plural in PLURAL if plural in merged]
    if len(swept) > 1:
        raise SpecError(f"{'= and '.join(swept)}= together: one axis can be swept in an item, the others make items")
    given = {PLURAL.get(key, key): _values(key, merged[key], search) for key in (*SINGULAR, *PLURAL) if key in merged}
    return Marker(
        axes=given,
        plural=swept[0] if swept else None,
        dims=_dims(merged[DIMS]) if DIMS in merged else (),
        compilers=read_compilers(merged["compilers"]) if "compilers" in merged else None,
        devices=_names("devices", merged["devices"], "a device or a list of them") if "devices" in merged else None,
        baseline=read_compilers(merged["baseline"], "baseline")[0] if "baseline" in merged else None,
        budget=_budget(merged["budget"]) if "budget" in merged else None,
        tolerance=_tolerance(merged["tolerance"]) if "tolerance" in merged else None,
        rebuild=_rebuild(merged["rebuild"]) if "rebuild" in merged else None,
        against=_against(merged["against"]) if "against" in merged else None,
    )


def check_fixtures(fixtures: Sequence[str], marker: Marker) -> None:
    """Raise SpecError for a plural axis with the wrong fixture, and for a sweep's fixture without its axis.

    ``fixtures`` are those of a grid that the test asks for.
    """
    right = FIXTURES[marker.plural]
    accepted = (right, "ngraph_callable") if marker.plural is None else (right,)
    wrong = [name for name in fixtures if name not in accepted]
    if wrong and marker.plural is not None:
        raise SpecError(f"{marker.plural}= goes with the fixture {right}, not with {wrong[0]}")
    if wrong:
        needed = next(plural for plural, name in FIXTURES.items() if name == wrong[0])
        raise SpecError(f"the fixture {wrong[0]} needs {needed}= in the marker")
    if not fixtures and marker.axes:
        axis = marker.plural or next(iter(marker.axes))
        raise SpecError(f"{axis}= goes with the fixture {right}, which the test does not ask for")


class _Brief(reprlib.Repr):
    """Shows what was given in one line, however long it is and whatever its own ``__repr__`` does."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 20
        self.maxstring = self.maxother = 120

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write numbers of some thousand digits.
        return super().repr_int(x, level) if x.bit_length() < 10_000 else f"a number of {x.bit_length()} bits"

    def repr(self, x: Any) -> str:
        return " ".join(super().repr(x).split())


_shown = _Brief().repr


def _plain(value: Any) -> Any:
    """Return a scalar of NumPy, pandas or PyTorch as the Python value that it stands for, all else as it is."""
    if isinstance(value, str):
        return str(value)
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def is_several(value: Any, keyword: str = "") -> bool:
    """Return whether a keyword is given several values rather than one: a mapping may be one, such as a mix."""
    row = axes.row_of(keyword)
    if row is not None and row.takes_mapping and isinstance(value, Mapping):
        return False
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and getattr(value, "ndim", 1) != 0


def _listed(keyword: str, value: Any, expected: str) -> tuple[Any, ...]:
    """Return the values of a keyword: one value, or those of anything that has several in an order of its own.

    That is a list, tuple, range, NumPy array, pandas series or index, the keys of a mapping, and the like. Raises
    SpecError for what has no values, no order or rows, and for what can be read only once.
    """
    if not is_several(value):
        return (_plain(value),)
    given = f"{keyword}={_shown(value)}"
    if isinstance(value, Iterator):
        # A marker is read for every test that it is over.
        raise SpecError(
            f"{given}: a {type(value).__name__} can be read only once; write list(...) around it (expected {expected})"
        )
    if isinstance(value, Mapping):
        raise SpecError(f"{given}: a mapping is not allowed (expected {expected})")
    if isinstance(value, Set) and not isinstance(value, MappingView):
        # Its order differs between processes, and the workers of pytest-xdist have to collect the same.
        raise SpecError(
            f"{given}: a {type(value).__name__} has no order; write sorted(...) around it (expected {expected})"
        )
    dimensions = getattr(value, "ndim", 1)
    if dimensions != 1:
        raise SpecError(f"{given}: it has {dimensions} dimensions (expected {expected}, in one)")
    values = tuple(_plain(one) for one in itertools.islice(value, _MOST_VALUES + 1))
    if not values:
        raise SpecError(f"{given} is empty (expected {expected})")
    if len(values) > _MOST_VALUES:
        raise SpecError(f"{given}: it has more than {_MOST_VALUES} values (expected {expected})")
    return values


def _values(keyword: str, value: Any, search: Sequence[Path]) -> tuple[Any, ...]:
    row = axes.row_of(PLURAL.get(keyword, keyword))
    if row is None or row.values == axes.REFERENCES:
        return _models(keyword, value, search)
    if row.reader:
        return _texts(keyword, value, row, search)
    return _numbers(keyword, value) if row.is_number else _words(keyword, value, row.words)


def _numbers(keyword: str, value: Any) -> tuple[int, ...]:
    expected = axes.NUMBERS
    values = _listed(keyword, value, expected)
    for one in values:
        if not isinstance(one, int) or isinstance(one, bool) or one < 1:
            raise SpecError(f"{keyword}={_shown(value)}: {_shown(one)} is not allowed (expected {expected})")
        if one > axes.MOST:
            raise SpecError(f"{keyword}={_shown(value)}: {_shown(one)} is too large (allowed: up to {axes.MOST})")
    return tuple(dict.fromkeys(values))


def _words(keyword: str, value: Any, known: Sequence[str]) -> tuple[str, ...]:
    allowed = ", ".join(known)
    values = _listed(keyword, value, allowed)
    for one in values:
        if not isinstance(one, str) or one not in known:
            raise SpecError(f"{keyword}={_shown(value)}: {_shown(one)} is not allowed (allowed: {allowed})")
    return tuple(dict.fromkeys(values))


def _texts(keyword: str, value: Any, row: axes.Axis, search: Sequence[Path]) -> tuple[str, ...]:
    """Return texts in the normal form that the reader of their axis gives them: equal ones are one value."""
    read = load_place(f"axis {row.name!r}", "reader", row.reader, FunctionType)
    expected = ", ".join(row.words) or str(row.values)
    is_one = isinstance(value, Mapping) and not is_several(value, row.name)
    values = (value,) if is_one else _listed(keyword, value, expected)
    for one in values:
        # What takes mappings says itself what they are like.
        if not isinstance(one, str) and not row.takes_mapping:
            raise SpecError(f"{keyword}={_shown(value)}: {_shown(one)} is not allowed (allowed: {expected})")
    with about(f"{keyword}={_shown(value)}"):
        more = (search,) if row.takes_mapping else ()
        return tuple(dict.fromkeys(read(one, *more) for one in values))


def _names(keyword: str, value: Any, expected: str) -> tuple[str, ...]:
    values = _listed(keyword, value, expected)
    for one in values:
        if not isinstance(one, str) or not one.strip():
            raise SpecError(f"{keyword}={_shown(value)}: {_shown(one)} is not allowed (expected {expected})")
    return tuple(dict.fromkeys(values))


def _models(keyword: str, value: Any, search: Sequence[Path]) -> tuple[str, ...]:
    expected = "a reference such as timm:resnet18, or a list of them"
    for one in _listed(keyword, value, expected):
        if callable(one):
            # Models are built in other processes, which find them by what is written.
            raise SpecError(f"{keyword}={_shown(value)}: {_shown(one)} is not a text; {how_to_name(one, search)}")
    return _names(keyword, value, expected)


def read_compilers(value: Any, keyword: str = "compilers") -> tuple[CompilerSpec, ...]:
    """Return the compilers that a keyword names, one or several. Raise SpecError for what is none."""
    names = _names(keyword, value, "a compiler such as openvino or onnxruntime[graph=basic], or a list of them")
    with about(f"{keyword}={_shown(value)}"):
        specs = tuple(CompilerSpec.parse(name) for name in names)
        if keyword == "baseline" and len(specs) > 1:
            raise SpecError("expected one compiler")
    return specs


def _dims(value: Any) -> tuple[Mapping[str, int], ...]:
    """Return the sizes that ``dims=`` gives, one mapping or several, as mappings of names to whole numbers."""
    expected = 'a mapping of open dimensions to whole numbers >= 1, such as {"S": 128}, or a list of them'
    values = (value,) if isinstance(value, Mapping) else _listed(DIMS, value, expected)
    given = f"{DIMS}={_shown(value)}"
    read: list[Mapping[str, int]] = []
    for one in values:
        if not isinstance(one, Mapping) or not one:
            raise SpecError(f"{given}: {_shown(one)} is not allowed (expected {expected})")
        sizes = {name: _plain(size) for name, size in one.items()}
        for name, size in sizes.items():
            if refusal := refuse_name(name):
                raise SpecError(f"{given}: {_shown(name)} {refusal} (expected {expected})")
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise SpecError(f"{given}: {_shown(size)} is not allowed for {name} (expected {expected})")
        read += [] if sizes in read else [sizes]
    return tuple(read)


def _budget(value: Any) -> Budget:
    try:
        return Budget.parse(str(_plain(value)))
    except ValueError as error:
        raise SpecError(f"budget={_shown(value)} is not allowed (expected {error})") from None


def _tolerance(value: Any) -> float:
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise SpecError(f"tolerance={_shown(value)} is not allowed (expected a fraction between 0 and 1, such as 0.05)")
    return float(value)


def _against(value: Any) -> str:
    chosen = _plain(value)
    if not isinstance(chosen, str) or not chosen.strip():
        raise SpecError(
            f"against={_shown(value)} is not allowed (expected a text as of --ngraph-against, such as 'main')"
        )
    return chosen.strip()


def _rebuild(value: Any) -> bool:
    chosen = _plain(value)
    if not isinstance(chosen, bool):
        raise SpecError(f"rebuild={_shown(value)} is not allowed (allowed: True, False)")
    return chosen
