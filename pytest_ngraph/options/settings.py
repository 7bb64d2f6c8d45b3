"""Options as frozen values: each row of the table parsed once, from the command line, the ini file or the default."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_ngraph.axes import AXES, MOST, NUMBERS, REFERENCES, STEPS
from pytest_ngraph.errors import SpecError, about
from pytest_ngraph.options.bounds import Bounds, read_bounds
from pytest_ngraph.options.table import ROWS, Row
from pytest_ngraph.spec import optimizing
from pytest_ngraph.spec.cells import PROTOCOLS, CompilerSpec, Protocol, Reading, split_commas
from pytest_ngraph.spec.states import state_named
from pytest_ngraph.texts.shown import one_line

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|min|h)\Z")
_DURATION_SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}
# What is built for a side with packages or an interpreter of its own, in a folder by its content, as beside a store.
OF_SIDES = "of-sides"
# What lies beside a store, in folders of these names.
BESIDE_STORE = ("artifacts", "artifacts-references", "compiled", "ngraph-logs", "sides", OF_SIDES)
# With less, a t-interval over few launches has no end to speak of; with more, nothing is controlled.
LEAST_ERROR_RATE, MOST_ERROR_RATE = 1e-6, 0.1
# PyTorch takes no larger one.
_MOST_SEED = 2**64 - 1
# File systems take 255.
LONGEST_NAME_BYTES = 220
EXPORT_FORMATS = (
    ".csv", ".json", ".parquet", ".md", ".tex",
    # Those of other tools, named as the tools name them.
    ".bencher.json", ".customSmallerIsBetter.json", ".customBiggerIsBetter.json", ".openmetrics.txt",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Budget:
    """What a gate may cost: a number of launches, or wall seconds per launch group."""

    launches: int | None = 8
    seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read ``8`` (launches, at least 3) or ``90s``, ``10min``, ``1h`` (of launches of a group)."""
        match = _DURATION.match(text.strip())
        if match:
            value = float(match[1]) * _DURATION_SECONDS[match[2]]
            if value > 0:
                return cls(None, value)
        elif re.fullmatch(r"\d+", text.strip()) and int(text) >= 3:
            return cls(int(text))
        raise ValueError("a number of launches >= 3 such as 8, or a time per group such as 90s or 10min")

    def __str__(self) -> str:
        return f"{self.launches} launches" if self.launches is not None else f"{self.seconds:g} s per group"


@dataclass(frozen=True, slots=True)
class Settings:
    """Every option, resolved. ``compilers``, ``devices`` and the axis tuples are None where nothing was given."""

    devices: tuple[str, ...]
    compilers: tuple[CompilerSpec, ...] | None
    baseline: CompilerSpec | None
    models: tuple[str, ...] | None
    batches: tuple[int, ...] | None
    sequences: tuple[int, ...] | None
    decodes: tuple[int, ...] | None
    depths: tuple[int, ...] | None
    widths: tuple[int, ...] | None
    image_sizes: tuple[int, ...] | None
    optimizations: tuple[str, ...] | None
    protocol: Protocol
    tolerance: float
    error_rate: float
    noise_history: bool
    budget: Budget
    run_seconds: float | None
    timeout_seconds: float
    threads: int | None
    seed: int
    state: Reading | None
    inconclusive: str
    quick_gates: str
    against: str | None
    side: str | None
    against_outputs: str
    gate_changes: bool
    strict: bool
    store: Path
    resume: bool
    fresh: bool
    offline: bool
    config: Path | None
    wait_seconds: float
    compare: str | None
    missing_baseline: str
    report: Path | None
    export: tuple[Path, ...]
    summary: Path | None
    benchmark_json: Path | None
    # Those of claims that give none, by test.
    bounds: Bounds | None = field(default=None, hash=False)
    # What is left of the axes without a field here, by the field of their rows.
    further: Mapping[str, tuple[Any, ...] | None] = field(default_factory=dict, hash=False)

    @property
    def narrowing(self) -> Mapping[str, tuple[Any, ...] | None]:
        """Return, for each axis of the marker, the values the options leave. None leaves all."""
        further = self.further
        return {
            row.name: further[row.field] if row.field in further else getattr(self, row.field)
            for row in AXES
            if row.option
        }


_OWN = frozenset(each.name for each in fields(Settings))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(split_commas(text)))
    if not names:
        raise ValueError("one or more names, separated by commas")
    return names


def _compilers(text: str) -> tuple[CompilerSpec, ...]:
    return tuple(dict.fromkeys(CompilerSpec.parse(name) for name in _names(text)))


def _models(text: str) -> tuple[str, ...]:
    """Read references by their form only: what they name is looked for from each test file."""
    names = _names(text)
    for name in names:
        scheme, _, rest = name.partition(":")
        if not scheme or not rest:
            raise ValueError("references with a colon, such as timm:resnet18, onnx:model.onnx or models.py:factory")
    return names


def _whole_numbers(text: str) -> tuple[int, ...]:
    parts = split_commas(text)
    # So many digits are read as a number that may be too large; more are not read at all.
    if not parts or not all(re.fullmatch(r"[1-9][0-9]{0,18}", part) and int(part) <= MOST for part in parts):
        raise ValueError(f"whole numbers >= 1, up to {MOST}, separated by commas, such as 1,8,16")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _steps(text: str) -> tuple[str, ...]:
    """Read what is done to networks by its form only: which optimizers there are is known when tests are collected."""
    return tuple(dict.fromkeys(optimizing.normal(each) for each in _names(text)))


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip() not in choices:
            raise ValueError(", ".join(choices))
        return text.strip()

    return parse


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise ValueError("a fraction between 0 and 1, such as 0.05")
    return value


def _error_rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not LEAST_ERROR_RATE <= value <= MOST_ERROR_RATE:
        raise ValueError("a fraction from 0.000001 to 0.1, such as 0.01")
    return value


def duration(text: str) -> float:
    """Read ``90s``, ``10min``, ``1h`` or plain seconds. Raise ValueError that says what is allowed."""
    match = _DURATION.match(text.strip())
    if match and float(match[1]) > 0:
        return float(match[1]) * _DURATION_SECONDS[match[2]]
    if re.fullmatch(r"\d+(\.\d+)?", text.strip()) and float(text) > 0:
        return float(text)
    raise ValueError("seconds greater than 0, such as 600 or 10min")


def _limit(text: str) -> float | None:
    """Read a duration, or ``none`` for no limit, which lifts the one of the ini file."""
    if text.strip() == "none":
        return None
    try:
        return duration(text)
    except ValueError as error:
        raise ValueError(f"{error}, or none") from None


def _wait(text: str) -> float:
    return 0.0 if re.fullmatch(r"0+(\.0+)?", text.strip()) else duration(text)


def _at_least(minimum: int, most: float = math.inf) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d+", text.strip()) or not minimum <= int(text) <= most:
            raise ValueError(f"a whole number >= {minimum}" + ("" if most == math.inf else f" and <= {most}"))
        return int(text)

    return parse


def _side(text: str) -> str:
    """Read what another side is by its form only: git and packages are asked when tests have been collected."""
    if not split_commas(text):
        raise ValueError("a git revision, merge-base, NAME==VERSION or python:PATH, several with commas")
    return text.strip()


def _flag(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.strip().lower() not in words:
        raise ValueError("true or false")
    return words[text.strip().lower()]


def _path(text: str) -> Path:
    """Read a path whose ``~`` is the home folder: bash leaves one behind an equals sign alone."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError("a file name, without the home folder of a user who has none") from None


def _file(text: str) -> Path:
    path = _path(text)
    if not path.name:
        raise ValueError("a file name")
    if not fits(path):
        raise ValueError(f"names of at most {LONGEST_NAME_BYTES} bytes")
    return path


def fits(path: Path) -> bool:
    """Return whether a file system takes the names in a path, with what is added to them for files beside it."""
    return all(len(os.fsencode(part)) <= LONGEST_NAME_BYTES for part in path.parts)


def _export_paths(text: str) -> tuple[Path, ...]:
    """Read file names, one a line: any other character may be part of one."""
    names = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return tuple(dict.fromkeys(map(_export_path, names)))


def _export_path(text: str) -> Path:
    path = _path(text)
    if not export_format(path):
        raise ValueError(f"a file name that ends in {', '.join(EXPORT_FORMATS)}")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise SpecError(f'{text!r} needs pyarrow, which is not installed: pip install "pytest-ngraph[parquet]"')
    return path


def export_format(path: Path) -> str:
    """Return the format that the name of a file asks for by its end, the longest that fits, or nothing."""
    return max(
        (end for end in EXPORT_FORMATS if path.name.removesuffix(end) not in ("", path.name)), key=len, default=""
    )


def _page_path(text: str) -> Path:
    path = _path(text)
    if path.suffix not in (".html", ".htm"):
        raise ValueError("a file name that ends in .html")
    missing = [name for name in ("altair", "vl_convert") if find_spec(name) is None]
    if missing:
        raise SpecError(f'{text!r} needs {missing[0]}, which is not installed: pip install "pytest-ngraph[report]"')
    return path


def _name_or_file(text: str) -> str:
    """Read the name of a saved baseline, or its file: the text itself, which the rootdir makes a path of."""
    if not text.strip() or not fits(_path(text)):
        raise ValueError("the name of a saved baseline such as main, or its file")
    return str(_path(text)) if text.startswith("~") else text.strip()


def is_file(text: str) -> bool:
    """Return whether a saved baseline is given by its file - a path, or its ending - and not by its name."""
    return "/" in text or text.endswith(".json")


def _summary_path(text: str) -> Path:
    path = _file(text)
    if path.suffix != ".md":
        raise ValueError("a file name that ends in .md")
    return path


def _json_path(text: str) -> Path:
    path = _path(text)
    if path.suffix != ".json":
        raise ValueError("a file name that ends in .json")
    return path


def _state(text: str) -> Reading | None:
    """Read a state of the machine as verdicts name it. The usual one is None, as it is known from the store."""
    return None if text.strip() == "usual" else state_named(text)


def _protocol(text: str) -> Protocol:
    if text.strip() not in PROTOCOLS:
        raise ValueError(", ".join(PROTOCOLS))
    return PROTOCOLS[text.strip()]


_READERS: Mapping[str, Callable[[str], Any]] = {REFERENCES: _models, NUMBERS: _whole_numbers, STEPS: _steps}
_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "devices": _names,
    "compilers": _compilers,
    "baseline": CompilerSpec.parse,
    **{row.field: _READERS[row.values] for row in AXES if row.option and isinstance(row.values, str)},
    "protocol": _protocol,
    "tolerance": _fraction,
    "error_rate": _error_rate,
    "noise_history": _flag,
    "budget": Budget.parse,
    "run_seconds": _limit,
    "timeout_seconds": duration,
    "threads": _at_least(1),
    "seed": _at_least(0, _MOST_SEED),
    "state": _state,
    "inconclusive": _one_of("fail", "warn", "skip"),
    "quick_gates": _one_of("show", "fail"),
    "against": _side,
    "side": _side,
    "against_outputs": _one_of("same", "own"),
    "gate_changes": _flag,
    "strict": _flag,
    "store": _file,
    "resume": _flag,
    "fresh": _flag,
    "offline": _flag,
    "config": _file,
    "bounds": _file,
    "wait_seconds": _wait,
    "compare": _name_or_file,
    "missing_baseline": _one_of("fail", "warn", "record"),
    "report": _page_path,
    "export": _export_paths,
    "summary": _summary_path,
    "benchmark_json": _json_path,
}
# The options that name files to write.
_WRITTEN = ("report", "export", "summary", "benchmark_json")
# What stands between the values of an option that is repeated.
_LISTS: Mapping[Callable[[str], Any], str] = {
    _names: ",",
    _compilers: ",",
    _side: ",",
    _models: ",",
    _whole_numbers: ",",
    _steps: ",",
    _export_paths: "\n",
}


def resolve(
    options: Mapping[str, Sequence[str] | bool | None],
    ini: Mapping[str, object],
    *,
    rootdir: Path,
    invocation_dir: Path,
    environ: Mapping[str, str],
    named: Callable[[Row, object], str] | None = None,
) -> Settings:
    """Resolve every row: command line, then ini, then default.

    ``options`` maps a field to the texts given on the command line (an option may be repeated) or to a flag's
    state. ``ini`` maps an ini name to its text, or to what a TOML file has in its place. Raises SpecError that names
    the option, by default as ``place`` does, the value and what is allowed.
    """
    named = named or place
    values: dict[str, Any] = {}
    for row in ROWS:
        given = options.get(row.field)
        values[row.field] = value = _read(row, given, _in_words(row, ini.get(row.ini, "")), named)
        folder = invocation_dir if given else rootdir
        if isinstance(value, Path):
            values[row.field] = folder / value
        elif row.field == "export":
            values[row.field] = tuple(folder / path for path in value or ())
        elif row.field == "compare" and value is not None and not given and is_file(value):
            values[row.field] = str(folder / value)
        if row.field == "bounds" and value is not None:
            with about(named(row, given)):
                values["bounds"] = read_bounds(values["bounds"])
    if values["inconclusive"] is None:
        values["inconclusive"] = "fail" if environ.get("CI") else "warn"
    exclusive = [named(row, True) for row in ROWS if row.field in ("resume", "fresh", "offline") and values[row.field]]
    if values["fresh"] and len(exclusive) > 1:
        raise SpecError(f"{' and '.join(exclusive)} contradict each other: give one of them")
    _refuse_shared_files(values, lambda row: named(row, options.get(row.field)))
    further = {name: values.pop(name) for name in [*values] if name not in _OWN}
    return Settings(**values, further=further)


def _refuse_shared_files(values: Mapping[str, Any], named: Callable[[Row], str]) -> None:
    """Raise SpecError where two options name one file to write: the second would replace what the first has written."""
    found: dict[str, Row] = {}
    for row in ROWS:
        value = values[row.field] if row.field in _WRITTEN else None
        for path in value if isinstance(value, tuple) else filter(None, [value]):
            other = found.setdefault(os.path.normpath(path), row)
            if other is not row:
                raise SpecError(f"{named(other)} and {named(row)} both write {path}: give each a file of its own")


def takes_several(field: str) -> bool:
    """Return whether an option, by its field, has a list of values."""
    return _PARSERS[field] in _LISTS


def read_value(field: str, text: str, named: Callable[[Row, object], str] | None = None) -> Any:
    """Return what a text given for an option means, by its field. Raise SpecError as ``resolve`` does."""
    return _read(next(row for row in ROWS if row.field == field), [text], "", named or place)


def _in_words(row: Row, value: object) -> object:
    """Return what an ini file says as a text. Of TOML a number is what it says, and so are true and false of a flag."""
    if isinstance(value, bool):
        return str(value).lower() if row.metavar is None else value
    return str(value) if isinstance(value, (int, float)) else value


def _read(row: Row, given: Sequence[str] | bool | None, ini: object, named: Callable[[Row, object], str]) -> Any:
    """Return a row's value from the first place that gives one. Raise SpecError that names this place."""
    text: object = row.default
    if isinstance(given, bool):
        text = "yes" if given else ini or row.default
    elif given:
        # Lists add up when their option is repeated; of anything else the last one counts.
        separator = _LISTS.get(_PARSERS[row.field])
        text = given[-1] if separator is None else separator.join(given)
    elif ini or ini is False:
        text = ini
    try:
        if text is not None and not isinstance(text, str):
            raise ValueError("a string, with commas between several values")
        return None if text is None else _PARSERS[row.field](text)
    except SpecError as error:
        raise SpecError(f"{named(row, given)}: {error}") from None
    except ValueError as error:
        raise SpecError(f"{named(row, given)}: {one_line(repr(text))} is not allowed (expected {error})") from None


def place(row: Row, given: object) -> str:
    """Name where a row's value stands, for messages: its option where that was given, else its ini twin."""
    return row.flag if given else f"ini option {row.ini}"


def nearby(path: Path) -> Path:
    """Return a path as it can be typed here: relative where it is below the current folder."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, OSError):
        # Elsewhere, or this folder is gone.
        return path
