"""ONNX Runtime on a model that decodes: a session for the prompt, and one for a token, whose inputs are the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Decoder
from pytest_ngraph.workloads.decoding.files import CACHE
from pytest_ngraph.workloads.decoding.generation import POSITION, TOKEN

if TYPE_CHECKING:
    import numpy as np


class OnnxRuntimeDecoder(Decoder):
    """Two sessions. The cache goes from the outputs of one call to the inputs of the next without a copy.

    Each step gives a cache in buffers of its own, where the prompt or the step before left another.
    """

    def __init__(self, sessions: tuple[Any, Any], placement: Mapping[str, str | int], place: tuple[str, int]) -> None:
        """Take the session of the prompt and that of a token. ``place`` is where the cache lives."""
        self._first, self._step = sessions
        self._place = place
        self.enqueues = place[0] != "cpu"
        self.placement = placement
        # An exporter drops inputs that the graph does not use.
        self._taken = {each.name for each in self._step.get_inputs()}
        self._prompt: tuple[Any, Any] = (None, ())
        self._binding: Any = None
        self._cache: Sequence[Any] = ()

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Bind the prompt, and leave the buffers of logits and cache to the runtime."""
        self._prompt = self._bound(self._first, {each.name: inputs[each.name] for each in self._first.get_inputs()})
        self._cache = ()

    def first(self) -> np.ndarray:
        """Run the prompt."""
        return self._run(self._first, self._prompt[0])

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        """Run a token on the cache that was given last."""
        import numpy as np

        given = {TOKEN: token, POSITION: np.array([position])}
        taken = {name: array for name, array in given.items() if name in self._taken}
        # On a CPU a value is the array's own memory, so both live until the call has returned.
        binding, _values = self._bound(self._step, taken)
        for index, value in enumerate(self._cache):
            name = CACHE.format(index)
            if name in self._taken:
                binding.bind_ortvalue_input(name, value)
        return self._run(self._step, binding)

    def synchronize(self) -> None:
        """Wait for the outputs where they are on a GPU."""
        if self.enqueues:
            self._binding.synchronize_outputs()

    def close(self) -> None:
        """Release the sessions and what is bound to them."""
        self._first = self._step = self._binding = None
        self._prompt, self._cache = (None, ()), ()

    def _bound(self, session: Any, arrays: Mapping[str, np.ndarray]) -> tuple[Any, Sequence[Any]]:
        """Return a binding to these inputs, and what has to live as long as it is used."""
        from onnxruntime import OrtValue

        binding = session.io_binding()
        values = [OrtValue.ortvalue_from_numpy(array, *self._place) for array in arrays.values()]
        for name, value in zip(arrays, values, strict=True):
            binding.bind_ortvalue_input(name, value)
        for each in session.get_outputs():
            binding.bind_output(each.name, *self._place)
        return binding, values

    def _run(self, session: Any, binding: Any) -> np.ndarray:
        session.run_with_iobinding(binding)
        self._binding = binding
        logits, *self._cache = binding.get_outputs()
        array: np.ndarray = logits.numpy().copy()
        return array
