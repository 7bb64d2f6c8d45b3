"""Models of the user's own: a factory in a file or a module, called with the axes that it takes."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_ngraph.errors import NgraphError, SpecError
from pytest_ngraph.spec import ModelRef
from pytest_ngraph.workloads.axes import AXES, refuse_unless_taken, split_factory
from pytest_ngraph.workloads.modules.building import Built
from pytest_ngraph.workloads.modules.project_files import project_files
from pytest_ngraph.workloads.modules.seeding import seeded

_OFFER_INPUTS = """\
model {text!r}: it does not say what it is fed; offer it as a method of the module or an attribute of the factory:
    def example_inputs(self, batch):
        return torch.randn(batch, 3, 224, 224)  # a tensor, a tuple of tensors, or a dict of keyword arguments"""


def build_from_factory(model: ModelRef, seed: int, axes: Mapping[str, int]) -> Built:
    """Build what a user's factory makes: a Module class, a function that returns a Module, or a Module itself.

    Raises SpecError that names the reference where the factory is not there, fails, does not take an axis that is
    set, or gives something else than a Module.
    """
    from torch import nn

    place, name = split_factory(model)
    before = set(sys.modules)
    with seeded(seed):
        home = _guard(model, "importing it", lambda: _load(model, place))
    with seeded(seed):  # anew, as a file that was imported before draws nothing now
        factory = _look_up(model, home, name)
        module = factory
        if not isinstance(factory, nn.Module):
            _check_signature(model, factory, axes)
            module = _guard(model, "its factory", lambda: factory(**axes))
        elif axes:
            refuse_unless_taken(model, next(iter(axes)), frozenset())
    if not isinstance(module, nn.Module):
        raise SpecError(f"model {model.text!r}: its factory gives {type(module).__name__}, not a torch.nn.Module")
    offered = getattr(module, "example_inputs", None) or getattr(factory, "example_inputs", None)
    if not callable(offered):
        raise SpecError(_OFFER_INPUTS.format(text=model.text))
    return Built(
        module,
        lambda batch: _guard(model, f"example_inputs({batch})", lambda: offered(batch)),
        project_files(home, set(sys.modules) - before),
    )


def _guard(model: ModelRef, what: str, call: Callable[[], Any]) -> Any:
    """Call the user's code; whatever it raises becomes a SpecError that names the reference."""
    try:
        return call()
    except NgraphError:
        raise
    except Exception as error:
        raise SpecError(f"model {model.text!r}: {what} raised {type(error).__name__}: {error}") from error


def _load(model: ModelRef, place: str) -> ModuleType:
    if model.scheme == "import":
        return importlib.import_module(place)
    file = Path(place)
    # The name is the file's own, so that two files of one name live side by side and each is run once.
    name = f"_ngraph_{file.stem}_{hashlib.sha256(place.encode()).hexdigest()[:12]}"
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
            raise SpecError(f"model {model.text!r}: no {part!r} in it (names that are there: {there})")
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
