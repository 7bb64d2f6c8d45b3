"""A module as it was built, from which another cell of the same worker gets a copy instead of building it once more."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from pytest_ngraph.workloads.modules.fingerprint import fingerprint, is_same

if TYPE_CHECKING:
    import torch


class Pristine:
    """Remembers the state of a module when it was built. It is copied only as long as it has not changed.

    Batches of a model share its weights, and drawing, settling and checking them takes longer than a copy. Adapters own
    the module that they get and may fuse, cast or move it: then there is no copy, and the next cell builds its own.
    """

    def __init__(self, module: torch.nn.Module, sums: list[list[float]] | None = None) -> None:
        """Record what the module and its parts hold, values by their ``sums``, its fingerprint where that is known."""
        self._module = module
        self._sums = fingerprint(module) if sums is None else sums
        self._held = _held(module)

    def copy(self) -> torch.nn.Module | None:
        """Return a deep copy, or None where the module was changed since, or cannot be copied faithfully."""
        if not _is_alike(self._held, _held(self._module)):
            return None
        try:
            made = copy.deepcopy(self._module)
        except Exception:  # noqa: BLE001 - copying runs the user's code, and building is always possible
            return None
        return made if is_same(self._sums, fingerprint(made)) else None


def _held(module: torch.nn.Module) -> list[tuple[Any, ...]]:
    """Return all objects that a module consists of and the state of its tensors, in order."""
    found: list[tuple[Any, ...]] = []
    for part in module.modules():
        found.append((part, type(part)))
        for name, value in vars(part).items():
            # Parameters, buffers, parts and hooks are in dictionaries that stay the same objects.
            inside = (*value.keys(), *value.values()) if isinstance(value, dict) else ()
            found.append((name, value, *inside))
    for tensor in (*module.parameters(), *module.buffers()):
        version = 0 if tensor.is_inference() else tensor._version
        found.append((tensor, tensor.data_ptr(), version, str(tensor.dtype), str(tensor.device), *tensor.stride()))
    return found


def _is_alike(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> bool:
    return len(one) == len(other) and all(
        len(before) == len(now) and all(_is_same_object(*pair) for pair in zip(before, now, strict=True))
        for before, now in zip(one, other, strict=True)
    )


def _is_same_object(before: object, now: object) -> bool:
    return before is now or (type(before) is type(now) and isinstance(now, (int, str)) and before == now)
