"""The order of models: families by their names, and in each the small ones before the large ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_ngraph.report.results.families import family_of
from pytest_ngraph.report.results.natural import natural

if TYPE_CHECKING:
    from pytest_ngraph.report.results.cells import CellReport

# What libraries call sizes, the smallest first; words of one row are the same size.
_WORDS = (
    ("atto",), ("femto",), ("pico",), ("n", "nano"), ("xxs", "xxsmall"), ("xs", "xsmall"), ("t", "tiny", "mini"),
    ("s", "small"), ("m", "medium"), ("b", "base"), ("l", "large"), ("x", "xl", "xlarge"), ("xxl", "xxlarge"),
    ("h", "huge"), ("g", "giant"), ("gigantic",),
)  # fmt: skip
_RANKS = {word: rank for rank, words in enumerate(_WORDS) for word in words}
_PARTS = re.compile(r"[_\-.:/ ]+")
# A letter behind the number of a version: yolov8n, yolov8s.
_LETTER = re.compile(r"(.*\d)(n|s|m|l|x)")
_Part = tuple[int, object, int]


def models_by_size(reports: Sequence[CellReport]) -> list[str]:
    """Return the models of a run by their families, each the smallest first.

    A size is the bytes of parameters and buffers that the baseline held. Where that of one of a family is not known,
    its models stand as their names say: ``tiny`` before ``small``, 18 before 101.
    """
    found: dict[str, float] = {}
    for report in reports:
        size = report.estimates.get("model_bytes")
        if report.baseline is None and size is not None:
            model = report.cell.workload.model.text
            found[model] = max(found.get(model, 0.0), size.value)
    return in_order(dict.fromkeys(report.cell.workload.model.text for report in reports), found)


def in_order(models: Iterable[str], size_of: Mapping[str, float]) -> list[str]:
    """Return models by family and size: by numbers where all of a family have one, else by their names."""
    families: dict[str, list[str]] = {}
    for model in models:
        families.setdefault(family_of(model), []).append(model)
    return [
        model
        for family in sorted(families, key=natural)
        for model in sorted(families[family], key=lambda one: (_size(families[family], one, size_of), by_name(one)))
    ]


def _size(family: Sequence[str], model: str, size_of: Mapping[str, float]) -> float:
    return size_of[model] if all(one in size_of for one in family) else 0.0


def by_name(model: str) -> tuple[tuple[_Part, ...], str]:
    """Return what to sort the name of a model by: its words of size by what they mean, the rest naturally."""
    return tuple(_part(part) for part in _PARTS.split(model.lower())), model


def _part(part: str) -> _Part:
    if part in _RANKS:
        return 0, (), _RANKS[part]
    found = _LETTER.fullmatch(part)
    return (1, natural(found[1]), _RANKS[found[2]]) if found else (1, natural(part), -1)
