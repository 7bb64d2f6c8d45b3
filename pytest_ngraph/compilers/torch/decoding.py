"""A PyTorch module that decodes: prompt and steps, called under inference mode, the cache where they leave it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Decoder
from pytest_ngraph.compilers.torch.shared import Place, Tallied

if TYPE_CHECKING:
    import numpy as np


class TorchDecoder(Tallied, Decoder):
    """Two callables of PyTorch: ``first`` reads a prompt, ``step`` takes a token, a position and the cache."""

    def __init__(
        self,
        parts: tuple[Callable[..., Any], Callable[..., Any]],
        arguments: Callable[[Mapping[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]],
        place: Place,
        placement: Mapping[str, str | int],
    ) -> None:
        """Take what reads a prompt, what takes a token, and how a prompt is given to the first of them."""
        import torch

        self._first, self._step = parts
        self._arguments, self._place = arguments, place
        self._prompt: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self._cache: tuple[Any, ...] = ()
        self._mode = torch.inference_mode()
        self.enqueues = place.accelerator != "cpu"
        self.placement = placement

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Turn the prompt into tensors, where they live."""
        import torch

        there = {name: torch.from_numpy(array).to(self._place.device) for name, array in inputs.items()}
        self._prompt, self._cache = self._arguments(there), ()
        self.synchronize()

    def first(self) -> np.ndarray:
        """Read the prompt."""
        if Place.current is not self._place:
            self._place.settle()
        args, kwargs = self._prompt
        with self._mode:
            logits, *cache = self._first(*args, **kwargs)
        self._cache = tuple(cache)
        return _as_array(logits)

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        """Take a token. Its number and its place are copied to where the module is, as those of any caller would be."""
        import torch

        device = self._place.device
        with self._mode:
            given = torch.from_numpy(token).to(device), torch.tensor([position], device=device)
            logits, *cache = self._step(*given, *self._cache)
        self._cache = tuple(cache)
        return _as_array(logits)

    def synchronize(self) -> None:
        """Wait until a GPU has done all that was enqueued."""
        if self.enqueues:
            import torch

            torch.cuda.synchronize(self._place.device)

    def close(self) -> None:
        """Release the module, the prompt and the cache."""
        self._first = self._step = None  # type: ignore[assignment]
        self._prompt, self._cache = ((), {}), ()


def _as_array(logits: Any) -> np.ndarray:
    """Return logits in the memory of the caller, who waits for them."""
    array: np.ndarray = logits.numpy(force=True).copy()
    return array
