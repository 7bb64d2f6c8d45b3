"""A cell that decodes as the worker sees it: a prompt, then the given tokens one by one, each step timed by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Decoder, Executable
from pytest_ngraph.errors import CompileFailed
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads.decoding.generation import TOKENS

if TYPE_CHECKING:
    import numpy as np


class Decoding(Executable):
    """Feeds a decoder. A call is a prompt and all steps; its outputs are the logits of each token, in order.

    The tokens are the reference's own, whatever the decoder would have chosen: so one token that differs by a hair does
    not make all that follow differ. The decoder is given each of them when its step begins.
    """

    def __init__(self, decoder: Decoder, steps: int) -> None:
        """Take what an adapter made of a workload, and how many tokens a call generates after the first."""
        self.decoder, self.steps = decoder, steps
        self._tokens: Sequence[Any] = [None] * steps
        self._length = 0
        self._logits: list[np.ndarray] = []

    @classmethod
    def of(cls, made: Executable, workload: Workload, compiler: str) -> Executable:
        """Return what an adapter compiled a workload to, fed where it decodes. Raise CompileFailed for no decoder."""
        if workload.decode is None:
            return made
        if not isinstance(made, Decoder):
            raise CompileFailed(
                f"{compiler}: its compile() gave {type(made).__name__} for decode={workload.decode} (expected a "
                "pytest_ngraph.Decoder, or decodes = False in the adapter)"
            )
        return cls(made, workload.decode)

    @property
    def placement(self) -> Mapping[str, str | int]:  # type: ignore[override]
        """Return where the decoder really ran."""
        return self.decoder.placement

    @property
    def model_bytes(self) -> int | None:  # type: ignore[override]
        """Return the bytes that the decoder says it has."""
        return self.decoder.model_bytes

    @property
    def loaded(self) -> bool | None:  # type: ignore[override]
        """Return whether the decoder was loaded from an earlier launch."""
        return self.decoder.loaded

    @property
    def enqueues(self) -> bool:  # type: ignore[override]
        """Return whether the decoder comes back before it has finished."""
        return self.decoder.enqueues

    @property
    def tuning_seconds(self) -> float | None:  # type: ignore[override]
        """Return what tuning the decoder has cost."""
        return self.decoder.tuning_seconds

    @property
    def tuning_trials(self) -> int | None:  # type: ignore[override]
        """Return how often tuning the decoder has tried."""
        return self.decoder.tuning_trials

    @property
    def recompiles(self) -> int | None:  # type: ignore[override]
        """Return how often the decoder was compiled again since it was built."""
        return self.decoder.recompiles

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Give the decoder the prompt, and keep the tokens for their steps."""
        import numpy as np

        prompt = {name: array for name, array in inputs.items() if name != TOKENS}
        if TOKENS in inputs:
            tokens = inputs[TOKENS]
            self._tokens = [np.ascontiguousarray(tokens[:, index : index + 1]) for index in range(self.steps)]
            self._length = int(next(iter(prompt.values())).shape[1])
        self._logits = []
        self.decoder.bind(prompt)

    def prefill(self) -> None:
        """Read the prompt."""
        self._logits = [self.decoder.first()]

    def step(self, index: int) -> None:
        """Take the token of a step."""
        self._logits.append(self.decoder.next(self._tokens[index], self._length + index))

    def run(self) -> None:
        """Read the prompt and take all tokens."""
        self.prefill()
        for index in range(self.steps):
            self.step(index)

    def synchronize(self) -> None:
        """Wait for the last step."""
        self.decoder.synchronize()

    def outputs(self) -> Sequence[np.ndarray] | None:
        """Return the logits of each token of the last call. None where the decoder has none."""
        return None if any(each is None for each in self._logits) else list(self._logits)

    def device_times(self) -> Mapping[str, float] | None:
        """Return what an accelerator says of the decoder."""
        return self.decoder.device_times()

    def close(self) -> None:
        """Release the decoder."""
        self._logits = []
        self.decoder.close()
