"""A module as it was built, from which another cell of the same worker gets a copy instead of building it once more."""

from __future__ import annotations

import copy
import enum
import functools
import types
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_ngraph.workloads.modules.fingerprint import fingerprint, is_same

if TYPE_CHECKING:
    import torch

# What nobody can change, and a copy may share.
_VALUES = (bool, int, float, complex, str, bytes)
_CONSTANTS = (type(None), type, types.ModuleType, enum.Enum, range, *_VALUES)


class Pristine:
    """Remembers the state of a module when it was built. It is copied only as long as it has not changed.

    Batches of a model share its weights, and drawing, settling and checking them takes longer than a copy. Adapters own
    the module that they get and may fuse, cast or move it, and a model may remember what it was called with: then there
    is no copy, and the next cell builds its own.
    """

    def __init__(self, module: torch.nn.Module, sums: list[list[float]] | None = None) -> None:
        """Record what the module and its parts hold, values by their ``sums``, its fingerprint where that is known."""
        self._module = module
        self._sums = fingerprint(module) if sums is None else sums
        self._held = _held(module)

    def copy(self) -> torch.nn.Module | None:
        """Return a deep copy, or None where the module was changed since, or cannot be copied faithfully."""
        if self._held is None or not self._held.is_alike(_held(self._module)):
            return None
        try:
            made = copy.deepcopy(self._module)
        except Exception:  # noqa: BLE001 - copying runs the user's code, and building is always possible
            return None
        if not self._held.is_apart_from(_held(made)):
            return None
        return made if is_same(self._sums, fingerprint(made)) else None


class _Unseen(Exception):
    """Something may change without its change being seen, or be shared by what should be a copy."""


class _Held:
    """All that a module consists of: ``found`` in order, with the state of its tensors, and what can be changed."""

    def __init__(self) -> None:
        self.found: list[object] = []
        self._changeable: set[int] = set()
        self._addresses: set[int] = set()

    def is_alike(self, other: _Held | None) -> bool:
        """Return whether the same module holds the same objects and values."""
        return (
            other is not None
            and len(self.found) == len(other.found)
            and all(_is_same_object(*pair) for pair in zip(self.found, other.found, strict=True))
        )

    def is_apart_from(self, other: _Held | None) -> bool:
        """Return whether no object that can be changed, and no memory of a tensor, belongs to both."""
        return (
            other is not None
            and self._changeable.isdisjoint(other._changeable)
            and self._addresses.isdisjoint(other._addresses)
        )

    def add(self, value: object) -> Iterable[object]:
        """Add one object, and return what it holds. Raise _Unseen for what cannot be looked into."""
        import torch

        self.found.append(value)
        if isinstance(value, (*_CONSTANTS, torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return ()
        if isinstance(value, torch.Tensor):
            return self._add_tensor(value)
        if isinstance(value, (tuple, frozenset)):
            return value
        if (inside := _behind(value)) is not None:
            return inside
        self._changeable.add(id(value))
        inside = _flat(vars(value)) if hasattr(value, "__dict__") else []
        if isinstance(value, dict):
            return [*inside, *_flat(value)]
        if isinstance(value, (list, set, deque)):
            return [*inside, *value]
        if isinstance(value, torch.nn.Module) or _is_its_attributes(value):
            return inside
        raise _Unseen

    def _add_tensor(self, tensor: torch.Tensor) -> Iterable[object]:
        import torch

        kinds = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        if type(tensor) not in kinds or tensor.layout is not torch.strided or tensor.is_inference():
            raise _Unseen
        address = tensor.untyped_storage().data_ptr()
        self._changeable.add(id(tensor))
        self._addresses |= {address} - {0}
        place = (address, tensor.storage_offset(), *tensor.stride())
        return (*place, tensor._version, str(tensor.dtype), str(tensor.device))


def _held(module: torch.nn.Module) -> _Held | None:
    """Return all objects that a module consists of, or None where it holds what cannot be looked into."""
    held, waiting, seen = _Held(), deque[object]([module]), dict[int, object]()
    try:
        while waiting:
            value = waiting.popleft()
            if type(value) in _VALUES or id(value) in seen:
                held.found.append(value)
                continue
            # Kept, as the number of an object that is gone may become that of another.
            seen[id(value)] = value
            waiting.extend(held.add(value))
    except _Unseen:
        return None
    return held


def _behind(value: Any) -> Iterable[object] | None:
    """Return what a function, a method or a reference leads to, or None for anything else. Raise _Unseen for closures.

    A copy has the same functions. What these hold themselves would still be that of the module that was copied.
    """
    if isinstance(value, types.FunctionType):
        given = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        if value.__closure__ or not all(isinstance(each, _CONSTANTS) for each in given):
            raise _Unseen
        return ()
    if isinstance(value, types.BuiltinFunctionType):
        if not isinstance(value.__self__, (type(None), type, types.ModuleType)):
            raise _Unseen
        return ()
    if isinstance(value, types.MethodType):
        return (value.__self__, value.__func__)
    if type(value) is functools.partial:
        return (value.func, value.args, value.keywords)
    return (value(),) if type(value) is weakref.ref else None


def _flat(held: Mapping[Any, Any]) -> list[object]:
    return [each for pair in held.items() for each in pair]


def _is_its_attributes(value: Any) -> bool:
    """Return whether an object is no more than its ``__dict__``, as Python itself copies such."""
    kind = type(value)
    own = any({"__reduce__", "__reduce_ex__"} & {*vars(each)} for each in kind.__mro__[:-1])
    return hasattr(value, "__dict__") and not own and not any(getattr(each, "__slots__", ()) for each in kind.__mro__)


def _is_same_object(before: object, now: object) -> bool:
    return before is now or (type(before) is type(now) and isinstance(now, _VALUES) and before == now)
