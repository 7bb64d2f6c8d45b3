"""The contract of a kind of model: how its references are read, which axes it takes, and how its models are built.

A kind is one module with a subclass of ``Kind`` and an instance of it (``KIND``). Importing the module must be cheap:
it happens in the pytest process. Everything heavy is imported inside the methods.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_ngraph.errors import NgraphError, NotThere, SpecError
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads.modules.project_files import USERS_MAKE_BY

if TYPE_CHECKING:
    import torch

# How a model reaches a remote device: by its name alone, as a file of the project, or as files of its own.
BY_NAME, IN_PROJECT, AS_FILES = "by name", "in the project", "as files"
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Built:
    """A module, how to make example inputs for a batch, and the files that it came from (path to sha256).

    ``example_inputs(batch)`` gives a tensor, a tuple (positional arguments) or a dict (keyword arguments). Of a model
    that takes ``sequence`` it is called as ``example_inputs(batch, sequence=128)``, and so is what else takes that.
    ``evaluate(predict)`` says how good a compiled cell is on data of the model's own: it feeds ``predict`` what example
    inputs are, of as many samples as it likes, and gives for each name of a score whether each sample was right.
    ``calibration_inputs()``, where there is one, gives several of these, of any batch: what int8 is calibrated on.
    """

    module: torch.nn.Module
    example_inputs: Callable[..., Any]
    files: Mapping[str, str] = field(default_factory=dict)
    evaluate: Callable[[Callable[..., Any]], Any] | None = None
    calibration_inputs: Callable[[], Any] | None = None


class Kind:
    """A kind of model: subclasses set the attributes and implement ``build``.

    Its name in the catalogue stands before the colon of its references. ``form`` is what messages
    show of them and ``plural`` what they call several models of it. ``requires`` are import names, probed without
    importing. ``extra`` is the pip extra of this package that brings them (or ``install``, a whole pip requirement, for
    a kind of another package). ``made_by`` are distributions whose versions decide what is built: they are part of the
    key that inputs, reference and launches are kept by. ``default_baseline`` is what relative metrics divide by where
    nobody names a compiler. ``travels`` says how a model reaches a remote device: ``BY_NAME``, ``IN_PROJECT`` (a file
    of the project) or ``AS_FILES`` (what ``files`` gives).

    For kinds of this package only: ``has_files`` is False where no file of a user's decides what is built; ``is_onnx``
    says that the model is an ONNX file, from which modules are converted, and not the other way round; ``takes_dims``
    that its references may end with the sizes of open dimensions (see ``spec.dims``);
    ``is_asked_when_called`` that which axes a model takes is known only when it is built. ``unwritten`` are values of
    axes that keys leave out, as what was kept before there was such an axis has them.
    """

    form: str = ""
    plural: str = ""
    requires: tuple[str, ...] = ("torch",)
    extra: str = "torch"
    install: str = ""
    made_by: tuple[str, ...] = USERS_MAKE_BY
    default_baseline: str = "identity"
    travels: str = BY_NAME
    has_files: bool = True
    is_onnx: bool = False
    takes_dims: bool = False
    is_asked_when_called: bool = False
    unwritten: Mapping[str, int] = {}

    def missing(self) -> str | None:
        """Return how to install what is missing, or None. Nothing is imported to find out."""
        if all(find_spec(module) is not None for module in self.requires):
            return None
        return f'not installed (pip install "{self.install or f"pytest-ngraph[{self.extra}]"}")'

    def parse(self, text: str, name: str, search: Sequence[Path]) -> str:
        """Return a locator, which finds a model from any folder. ``name`` is what follows the colon of the reference.

        ``search`` are the folders that relative paths are looked for in (see ``find_file``). Raises SpecError for what
        cannot be a model of this kind. What would need an import is left to ``names`` and ``build``.
        """
        return name

    def spelled(self, text: str) -> str:
        """Return a reference as it is known, with what stands in its brackets in one order. Of this package's kinds."""
        return text

    def bare(self, text: str) -> str:
        """Return a reference without its brackets, which names the model with any. Of this package's kinds."""
        return text

    def names(self) -> Collection[str] | None:
        """Return the names of all models there are, or None where that is not known. Called before one is built."""
        return None

    def axes(self, model: ModelRef) -> Mapping[str, int | None]:
        """Return the axes that a model takes - of depth, width, image_size and sequence -, each with its default.

        An axis whose default is None is given to ``build`` only where a suite sets it. ``sequence`` is never given to
        ``build`` but to ``example_inputs``, so that the network is the same at every length. Imports nothing heavy.
        """
        return {}

    def check_values(self, model: ModelRef, values: Mapping[str, int]) -> None:
        """Raise SpecError for values of axes that a model is known not to take, such as a length beyond its longest.

        Called when tests are collected, with those that a suite names, and again when a model is built. Imports nothing
        heavy: what is known only then is left to ``build`` and ``example_inputs``.
        """

    def decodes(self, model: ModelRef) -> bool | None:
        """Return whether a model offers ``prefill`` and ``step``, or None where only building it will tell.

        Called where ``decode=`` is asked for. Raises SpecError where it would but for an option of its reference.
        """
        return None if self.has_files and not self.is_onnx else False

    def why_not(self, workload: Workload) -> str | None:
        """Return why a model cannot be run in the precision of a workload, or None."""
        return None

    def build(self, model: ModelRef, axes: Mapping[str, int], seed: int) -> Built:
        """Build a model with the given axes, the same one in every process.

        The global generators of torch, NumPy and Python are seeded, here and when example inputs are made. Raises
        SpecError or Unsupported with the reason where it cannot be built.
        """
        raise NotImplementedError

    def rough_macs(self, model: ModelRef, values: Mapping[str, int]) -> float | None:
        """Return about how many multiply-accumulates a sample is at these values of axes, None where it is not known.

        For estimates of what a run takes, before anything is built. Imports nothing heavy. Of this package's kinds.
        """
        return None

    def outline(self, model: ModelRef, axes: Mapping[str, int]) -> tuple[torch.nn.Module, tuple[int, ...]] | None:
        """Return a module without weights and the shape of one sample, to count what it computes, or None without one.

        Called under ``torch.device("meta")``.
        """
        return None

    def preload(self) -> None:
        """Import early what ``build`` needs and takes a second. What is not installed is left to ``build``."""

    # Files

    def files(self, model: ModelRef) -> Sequence[Path]:
        """Return the files that a model is made of, the one that its locator names first."""
        return ()

    def place(self, model: ModelRef) -> str:
        """Return the part of a locator that is a path, by default all of it."""
        return model.locator

    def moved(self, model: ModelRef, place: str) -> ModelRef:
        """Return a reference with another path, as it is followed on another device."""
        return ModelRef(model.text, model.scheme, place, model.kind)

    def key_name(self, model: ModelRef) -> str:
        """Return the model's name in the key of its content: without a path, since files count by content."""
        return "" if self.travels == AS_FILES else model.locator

    def module_of(self, model: ModelRef) -> str:
        """Return the name of the module that a model comes from, of which each checkout has its own copy."""
        return ""

    # For messages

    def check_name(self, model: ModelRef) -> None:
        """Raise SpecError with close names where ``names`` lacks the one that a reference has."""
        names = self.names()
        if names is not None and model.locator not in names:
            close = difflib.get_close_matches(model.locator, names, n=3, cutoff=0.6)
            hint = f" (close: {', '.join(close)})" if close else f" (there are {len(names)})"
            raise NotThere(f"model {model.text!r}: {model.scheme} has no model {model.locator!r}{hint}")


def guarded(text: str, what: str, call: Callable[[], _T]) -> _T:
    """Call the code of a user. Whatever it raises becomes a SpecError that names the model (``text``) and ``what``."""
    try:
        return call()
    except NgraphError:
        raise
    except Exception as error:
        raise SpecError(f"model {text!r}: {what} raised {type(error).__name__}: {error}") from error


def find_file(text: str, path: str, search: Sequence[Path]) -> Path:
    """Return the file that a path in a reference (``text``) names, looked for in folders, in order.

    Raises SpecError that says where it was looked for.
    """
    candidates = [Path(path)] if Path(path).is_absolute() else [folder / path for folder in search] or [Path(path)]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    for candidate in candidates:
        if candidate.is_dir():
            raise SpecError(f"model {text!r}: {candidate} is a folder; name the file in it")
        if candidate.is_symlink():
            raise SpecError(f"model {text!r}: {candidate} is a link to a file that is not there")
    places = ", ".join(dict.fromkeys(str(candidate.parent) for candidate in candidates))
    raise SpecError(f"model {text!r}: no file {Path(path).name!r} in {places}")


def is_dotted(name: str) -> bool:
    """Return whether a text is a Python name, or several with dots between them."""
    return _DOTTED.match(name) is not None
