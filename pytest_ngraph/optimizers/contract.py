"""The contract of an optimizer: what it needs, which options it takes, and what it makes of a network.

An optimizer is one module with a subclass of ``Optimizer`` and an instance of it (``OPTIMIZER``). Importing the module
must be cheap: it happens in the pytest process. Everything heavy is imported inside ``apply``, which runs where the
model is built: in the process that makes its inputs, reference and ONNX file, and in the worker of each compiler that
reads modules.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_ngraph.spec.bracket import Option, resolved
from pytest_ngraph.spec.optimizing import Step

if TYPE_CHECKING:
    import torch

__all__ = ["Optimizer", "Option", "Step"]


class Optimizer:
    """An optimizer: subclasses set the attributes and implement ``apply``.

    Its name in the catalogue stands in front of its ratio: ``optimize="mine[option=value]=0.5"``. ``requires`` are
    import names, probed without importing. ``extra`` is the pip extra of this package that brings them (or
    ``install``, a whole pip requirement, for an optimizer of another package). ``made_by`` are distributions whose
    versions decide what is made: they are part of the key that inputs, reference and launches are kept by, and so are
    the files of the project, or of its own package, that an optimizer from outside is made of. ``options`` are what
    may stand in its brackets. Where it ``searches`` for something that costs time, what it finds is kept.
    """

    requires: tuple[str, ...] = ("torch",)
    extra: str = "torch"
    install: str = ""
    made_by: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    searches: bool = False

    def missing(self) -> str | None:
        """Return how to install what is missing, or None. Nothing is imported to find out."""
        if all(find_spec(module) is not None for module in self.requires):
            return None
        return f'not installed (pip install "{self.install or f"pytest-ngraph[{self.extra}]"}")'

    def resolve(self, step: Step) -> dict[str, Any]:
        """Return every option with its value in its type. Raise SpecError for an unknown option or value."""
        return resolved(self.options, step.options, f"optimizer {str(step)!r}", step.name)

    def apply(
        self, module: torch.nn.Module, ratio: float, example_inputs: Any, seed: int, **options: Any
    ) -> torch.nn.Module:
        """Take a share of a network away, and return what is left: the same module, changed, or another one.

        ``module`` is in eval mode, ``ratio`` above 0 and below 1. ``example_inputs`` are what the model brings for a
        batch of 1: a tensor, a tuple (positional arguments) or a dict (keyword arguments). ``options`` are all of
        ``self.options`` by name, in their types.

        Where ``searches`` is true there is another keyword argument, ``found``: a dict that is empty at first. What a
        call puts into it, as JSON has it, is kept by the content of the network, its seed and the step, and is in it
        when another process or batch asks for the same. It saves the search and must change nothing of what is left.

        It promises the same weights in each process (the global generators of torch, NumPy and Python are seeded, and
        ``seed`` is theirs), a module that takes the same inputs and gives outputs of the same number, shapes and
        types, and that something was removed: fewer parameters, more zeros, or weights that compress better. Each of
        these is checked. Raises Unsupported with the reason where a network cannot be had so, and never returns one
        of which less was removed without saying so.
        """
        raise NotImplementedError
