"""Import libraries of models without Dynamo, whose import takes a second and which only those who compile need."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_DYNAMO, _UTILS = "torch._dynamo", "torch._dynamo.utils"
# The modules whose functions were decorated here, and import Dynamo when one of them is called.
_decorated: set[str] = set()


@contextmanager
def without_dynamo() -> Iterator[None]:
    """Import in this block what takes two functions of Dynamo while it is imported, but hardly ever calls them.

    torchvision takes ``is_compile_supported``, for calls on a GPU with deterministic algorithms, and timm the decorator
    ``disable``, for one family of models: these wait until they are called. Whatever else is asked of Dynamo here
    imports it, and after the block nothing is in its place: everybody who imports it gets it. Where it is loaded
    already, or PyTorch is not installed, this does nothing.
    """
    finder = None
    if _DYNAMO not in sys.modules:
        with suppress(ModuleNotFoundError):
            importlib.import_module("torch")
            finder = _Finder()
            sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder is not None:
            finder.give_way()


def import_dynamo_for(module: torch.nn.Module) -> None:
    """Import Dynamo where the layers of a model have functions that will: no call of them is to take that long."""
    if not _decorated.isdisjoint(type(layer).__module__ for layer in module.modules()):
        importlib.import_module(_DYNAMO)


class _Finder:
    """Finds a place holder for Dynamo, until it gives way to the real one."""

    def __init__(self) -> None:
        self._holders: dict[str, ModuleType] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the place holder's spec for the two modules that functions are taken from.

        For another module of Dynamo return that of the real one.
        """
        if name in (_DYNAMO, _UTILS):
            return ModuleSpec(name, _HolderLoader(self), is_package=name == _DYNAMO)
        if name.startswith(f"{_DYNAMO}."):
            self.give_way()
            return ModuleSpec(name, _RealLoader(importlib.import_module(name)))
        return None

    def hold(self, module: ModuleType) -> None:
        """Make a module a place holder."""
        self._holders[module.__name__] = module

        def real(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            self.give_way()
            return getattr(importlib.import_module(module.__name__), name)

        offered: Callable[..., Any] = self.disable if module.__name__ == _DYNAMO else self.is_compile_supported
        vars(module).update({"__getattr__": real, offered.__name__: offered})

    def is_compile_supported(self, device_type: Any) -> Any:
        """Ask Dynamo whether it can compile for a type of device."""
        self.give_way()
        return importlib.import_module(_UTILS).is_compile_supported(device_type)

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """Decorate a function so that Dynamo does not compile it, as PyTorch itself does before Dynamo is loaded."""
        import torch

        later = getattr(torch, "_disable_dynamo", None)
        if later is None or not isinstance(fn, FunctionType):
            self.give_way()
            return importlib.import_module(_DYNAMO).disable(fn, recursive, **options)
        _decorated.add(fn.__module__)
        return later(fn, recursive)

    def give_way(self) -> None:
        """Remove the place holders, so that the next import is of the real one."""
        with suppress(ValueError):
            sys.meta_path.remove(self)
        for name, holder in self._holders.items():
            if sys.modules.get(name) is holder:
                del sys.modules[name]
        torch = sys.modules["torch"]
        if vars(torch).get("_dynamo", self) is self._holders.get(_DYNAMO):
            del torch._dynamo


class _HolderLoader(Loader):
    def __init__(self, finder: _Finder) -> None:
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, for an ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """Make it a place holder."""
        self._finder.hold(module)


class _RealLoader(Loader):
    """Gives a module that is loaded, as it was."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that is loaded."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Undo what was noted on it: it was found by another finder."""
        module.__spec__ = self._spec
