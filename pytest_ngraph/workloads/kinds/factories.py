"""Models of the user's own: a factory in a file or a module, called with the axes that it takes."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_ngraph.errors import NotThere, SpecError
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.workloads.kinds import signatures
from pytest_ngraph.workloads.kinds.axes import AXES, LENGTH, refuse_unless_taken
from pytest_ngraph.workloads.kinds.catalogue import BUILT_IN, WITHOUT_NAME
from pytest_ngraph.workloads.kinds.contract import IN_PROJECT, Built, Kind, find_file, guarded, is_dotted
from pytest_ngraph.workloads.modules.project_files import project_files
from pytest_ngraph.workloads.modules.seeding import seeded

_NAMED = [name for name in BUILT_IN if name not in WITHOUT_NAME]
_OFFER_INPUTS = """\
model {text!r}: it does not say what it is fed; offer it as a method of the module or an attribute of the factory:
    def example_inputs(self, batch):
        return torch.randn(batch, 3, 224, 224)  # a tensor, a tuple of tensors, or a dict of keyword arguments"""


class Factory(Kind):
    """A factory of the user's: a Module class, a function that returns a Module, or a Module itself."""

    is_asked_when_called = True

    def axes(self, model: ModelRef) -> Mapping[str, int | None]:
        """Return the axes among the keyword arguments of the factory and of ``example_inputs``, read from its source.

        All where they cannot be read.
        """
        place, name = split_factory(model)
        source = self._source(place)
        found = signatures.read_signature(source, name) if source is not None else None
        if isinstance(found, signatures.Missing):
            there = ", ".join(found.names) or "none"
            raise NotThere(f"model {model.text!r}: no {found.name!r} in {source} (names that are there: {there})")
        by_inputs = None if source is None else signatures.takes_length(source, name)
        length = {} if by_inputs is False else {LENGTH: None}
        return {axis: None for axis in AXES if found is None or axis in found} | length

    def build(self, model: ModelRef, axes: Mapping[str, int], seed: int) -> Built:
        """Call the factory with the axes that are set.

        Raises SpecError that names the reference where the factory is not there, fails, does not take an axis that is
        set, or gives something else than a Module.
        """
        from torch import nn

        place, name = split_factory(model)
        home = guarded(model.text, "importing it", lambda: self._load(model, place))
        with seeded(seed):  # again, as a file that was imported before draws nothing now
            factory = _look_up(model, home, name)
            module = factory
            if not isinstance(factory, nn.Module):
                _check_signature(model, factory, axes)
                module = guarded(model.text, "its factory", lambda: factory(**axes))
            elif axes:
                refuse_unless_taken(model, next(iter(axes)), frozenset())
        if not isinstance(module, nn.Module):
            raise SpecError(f"model {model.text!r}: its factory gives {type(module).__name__}, not a torch.nn.Module")
        offered = getattr(module, "example_inputs", None) or getattr(factory, "example_inputs", None)
        if not callable(offered):
            raise SpecError(_OFFER_INPUTS.format(text=model.text))
        evaluate = getattr(module, "evaluate", None) or getattr(factory, "evaluate", None)
        calibration = getattr(module, "calibration_inputs", None)
        if calibration is None:
            calibration = getattr(factory, "calibration_inputs", None)
        return Built(module, offered, project_files(home, module), evaluate, calibration)

    def _source(self, place: str) -> Path | None:
        """Return the source file of a factory, or None where that cannot be known without an import."""
        raise NotImplementedError

    def _load(self, model: ModelRef, place: str) -> ModuleType:
        """Import the factory's file or module."""
        raise NotImplementedError


class File(Factory):
    """``path/file.py:factory``."""

    form = "path/file.py:factory"
    travels = IN_PROJECT

    def parse(self, text: str, name: str, search: Sequence[Path]) -> str:
        """Return the path of the file, and the factory."""
        _check_factory(text, name)
        return f"{find_file(text, text[: -len(name) - 1], search)}:{name}"

    def place(self, model: ModelRef) -> str:
        """Return the path of the file."""
        return split_factory(model)[0]

    def moved(self, model: ModelRef, place: str) -> ModelRef:
        """Return the reference with another path."""
        return replace(model, locator=f"{place}:{split_factory(model)[1]}")

    def key_name(self, model: ModelRef) -> str:
        """Return the name of the factory."""
        return split_factory(model)[1]

    def _source(self, place: str) -> Path | None:
        return Path(place)

    def _load(self, model: ModelRef, place: str) -> ModuleType:
        return _load_file(model, Path(place))


class Import(Factory):
    """``pkg.module:factory``, importable wherever it is measured."""

    form = "pkg.module:factory"

    def parse(self, text: str, name: str, search: Sequence[Path]) -> str:
        """Return the reference itself."""
        _check_factory(text, name)
        return text

    def module_of(self, model: ModelRef) -> str:
        """Return the name of the module."""
        return split_factory(model)[0]

    def _source(self, place: str) -> Path | None:
        try:
            return signatures.find_source(place)
        except SpecError as error:
            if "." in place:
                raise
            # What was meant may be a kind of model.
            close = difflib.get_close_matches(place, _NAMED, n=1)
            hint = f"; did you mean {close[0]}:NAME?" if close else ""
            raise NotThere(
                f"{error}; nor is it a kind of model (built in: {', '.join(_NAMED)}; others come through the hook "
                f"pytest_ngraph_models){hint}"
            ) from None

    def _load(self, model: ModelRef, place: str) -> ModuleType:
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if f"{place}.".startswith(f"{error.name}."):
                raise NotThere(f"model {model.text!r}: no module {error.name!r} on the import path") from None
            raise


FILE, IMPORT = File(), Import()


def split_factory(model: ModelRef) -> tuple[str, str]:
    """Split the locator of a factory into its file or module and the (dotted) name in it."""
    place, _, name = model.locator.rpartition(":")
    return place, name


def _check_factory(text: str, name: str) -> None:
    if not is_dotted(name):
        raise SpecError(f"model {text!r}: {name!r} is not the name of a factory (expected MODULE:NAME)")


def _load_file(model: ModelRef, file: Path) -> ModuleType:
    # The name is the file's own, so that two files of one name live side by side and each is run once.
    name = f"_ngraph_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SpecError(f"model {model.text!r}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # a half-run module must not be found the next time
        raise
    return module


def _look_up(model: ModelRef, home: ModuleType, name: str) -> Any:
    found: Any = home
    for part in name.split("."):
        if not hasattr(found, part):
            there = ", ".join(sorted(each for each in vars(found) if not each.startswith("_"))) or "none"
            raise NotThere(f"model {model.text!r}: no {part!r} in it (names that are there: {there})")
        found = getattr(found, part)
    return found


def _check_signature(model: ModelRef, factory: Any, axes: Mapping[str, int]) -> None:
    if not callable(factory):
        raise SpecError(f"model {model.text!r}: {type(factory).__name__} is no factory of a torch.nn.Module")
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    taken = frozenset(parameter.name for parameter in parameters if parameter.kind in by_keyword) & frozenset(AXES)
    for axis in axes:
        refuse_unless_taken(model, axis, taken)
