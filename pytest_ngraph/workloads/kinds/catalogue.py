"""The catalogue of kinds of models: names and where their classes stand, as strings: nothing is imported early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pytest_ngraph.errors import SpecError
from pytest_ngraph.places import Places, load_place
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.texts.shown import unprintable
from pytest_ngraph.workloads.kinds.contract import Kind, guarded, is_dotted

_HERE = "pytest_ngraph.workloads.kinds"
BUILT_IN: Mapping[str, str] = {
    "timm": f"{_HERE}.timm:KIND",
    "torchvision": f"{_HERE}.torchvision:KIND",
    "block": f"{_HERE}.blocks:KIND",
    "onnx": f"{_HERE}.onnx:KIND",
    "transformers": f"{_HERE}.transformers.kind:NAMED",
    "transformers-folder": f"{_HERE}.transformers.kind:FOLDER",
    "file": f"{_HERE}.factories:FILE",
    "import": f"{_HERE}.factories:IMPORT",
}
# Their references do not begin with this name: a path or a module stands there, or the name of another kind.
WITHOUT_NAME = ("file", "import", "transformers-folder")
# Kinds of names whose references another one reads where a path follows, with a slash in it or a dot in front.
_OF_PATHS: Mapping[str, str] = {"transformers": "transformers-folder"}


class Models(Places):
    """Names of kinds and the places of their classes. The references of a suite are read by them."""

    what, part = "kind of model", "class"

    def __init__(self) -> None:
        super().__init__(BUILT_IN)

    def parse(self, text: str, search: Sequence[Path] = ()) -> ModelRef:
        """Read a model reference. Relative paths are looked for in the folders of ``search``, in order.

        Raises SpecError that names the reference, what is allowed and, for a path, where it was looked for.
        """
        if not isinstance(text, str) or not text.strip():
            raise SpecError(f"model {text!r}: expected a reference such as {self._forms()}")
        if odd := unprintable(text):
            raise SpecError(f"model {text!r}: {odd!r} is no letter that can be shown; rename the file or the folder")
        front, colon, name = text.partition(":")
        scheme = self._scheme_of(front, name) if colon and name else None
        if scheme is None:
            raise SpecError(f"model {text!r}: expected a reference such as {self._forms()}")
        place = "" if scheme in BUILT_IN else self._places[scheme]
        spelled = self.spelled(text)
        model = ModelRef(text, scheme, name, place)
        kind = kind_of(model)
        locator = guarded(text, f"parse() of its kind {scheme!r}", lambda: kind.parse(text, name, search))
        if not isinstance(locator, str) or not locator:
            raise SpecError(f"model {text!r}: parse() of its kind {scheme!r} gave {locator!r} (expected a text)")
        return ModelRef(spelled, scheme, locator, place)

    def spelled(self, text: str) -> str:
        """Return a reference as it is known: what stands in its brackets in one order, whatever a suite wrote."""
        kind = self._built_in_of(text)
        return text if kind is None else kind.spelled(text)

    def bare(self, text: str) -> str:
        """Return a reference without what stands in its brackets, which names the model with any of that."""
        kind = self._built_in_of(text)
        return text if kind is None else kind.bare(text)

    def _built_in_of(self, text: str) -> Kind | None:
        """Return the kind of this package that reads a reference, or None."""
        front, colon, name = text.partition(":")
        scheme = self._scheme_of(front, name) if colon and name else None
        return _built_in(scheme) if scheme is not None and scheme in BUILT_IN else None

    def _scheme_of(self, front: str, name: str) -> str | None:
        """Return the kind that a reference is of by what stands before and behind its colon, or None."""
        if front in _OF_PATHS and ("/" in name or name.startswith((".", "~"))):
            return _OF_PATHS[front]
        if front in self._places and front not in WITHOUT_NAME:
            return front
        if front.endswith(".py"):
            return "file"
        return "import" if is_dotted(front) else None

    def _forms(self) -> str:
        """Name the form of each kind, for messages."""
        built_in = [_load(name, place).form for name, place in BUILT_IN.items()]
        return ", ".join([*built_in, *(f"{name}:NAME" for name in self._places if name not in BUILT_IN)])


def parse_model(text: str, search: Sequence[Path] = ()) -> ModelRef:
    """Read the reference of a model of a built-in kind: see ``Models.parse``."""
    return Models().parse(text, search)


def kind_of(model: ModelRef) -> Kind:
    """Return the kind of a model. Raise SpecError where it is unknown or its module cannot be imported."""
    place = model.kind or BUILT_IN.get(model.scheme, "")
    if not place:
        known = ", ".join(BUILT_IN)
        raise SpecError(f"model {model.text!r}: no kind of model is called {model.scheme!r} (built in: {known})")
    return _load(model.scheme, place) if model.kind else _built_in(model.scheme)


@cache
def _built_in(name: str) -> Kind:
    """Return a kind of this package. Each item of a grid asks, and there may be a hundred thousand."""
    return _load(name, BUILT_IN[name])


def _load(name: str, place: str) -> Kind:
    return load_place(f"kind of model {name!r}", "class", place, Kind)
