"""Adapters that decode and want a time they have not earned; each cheat is an option of ``cheat_tokens``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Compiler, Decoder, Executable, Option
from pytest_ngraph.compilers.openvino import OpenVinoCompiler, OpenVinoDecoder, OpenVinoStatefulDecoder
from pytest_ngraph.compilers.torch import inductor
from pytest_ngraph.compilers.torch.decoding import TorchDecoder
from pytest_ngraph.compilers.torch.shared import describe, load_module, take_place
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload


def copied(logits: Any) -> np.ndarray:
    """Return a copy."""
    made: np.ndarray = logits.copy()
    return made


class Honest(Decoder):
    """Does what it is asked to."""

    def __init__(self, inner: TorchDecoder) -> None:
        self.inner, self.placement = inner, inner.placement
        self.taken: tuple[bytes, ...] = ()

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self.taken = tuple(array.tobytes() for array in inputs.values())
        self.prompt = self.taken
        self.inner.bind(inputs)

    def first(self) -> np.ndarray:
        self.taken = self.prompt
        self.logits = self.inner.first()
        return self.again()

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        return self.inner.next(token, position)

    def again(self) -> np.ndarray:
        """Return the logits of the prompt once more."""
        logits: np.ndarray = self.logits.copy()
        return logits

    def close(self) -> None:
        self.inner.close()


class Skips(Honest):
    """Gives the logits of the prompt for every token."""

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        return self.again()


class Forgets(Honest):
    """Takes each token as if there had been nothing before it."""

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        import torch

        with torch.inference_mode():
            self.inner._cache = tuple(torch.zeros_like(each) for each in self.inner._cache)
        return self.inner.next(token, position)


class Caches(Honest):
    """Keeps the logits of each step, by all tokens before it."""

    def __init__(self, inner: TorchDecoder) -> None:
        super().__init__(inner)
        self.kept: dict[tuple[bytes, ...], np.ndarray] = {}

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        self.taken = (*self.taken, token.tobytes())
        if self.taken not in self.kept:
            self.kept[self.taken] = self.inner.next(token, position)
        return copied(self.kept[self.taken])


class Guesses(Honest):
    """Guesses the tokens while it should read the prompt only, and has the steps done before they begin."""

    def first(self) -> np.ndarray:
        given = super().first()
        length = self.inner._prompt[0][0].shape[1]
        self.guessed: list[tuple[bytes, np.ndarray]] = []
        self.is_right = True
        self.at_first = self.inner._cache
        logits = given
        for index in range(4):
            token = logits.argmax(axis=1)[:, None]
            logits = self.inner.next(token, length + index)
            self.guessed.append((token.tobytes(), logits))
        return given

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        index = position - self.inner._prompt[0][0].shape[1]
        if self.is_right and self.guessed[index][0] == token.tobytes():
            return copied(self.guessed[index][1])
        if self.is_right:
            # From here on it has to work: it begins with the cache of the prompt, and takes all tokens up to this one.
            self.is_right, self.inner._cache = False, self.at_first
            for before in range(index):
                self.inner.next(self._as_token(self.guessed[before][0]), position - index + before)
        return self.inner.next(token, position)

    @staticmethod
    def _as_token(content: bytes) -> np.ndarray:
        import numpy as np

        token: np.ndarray = np.frombuffer(content, dtype=np.int64)[:, None].copy()
        return token


class Keeps(Honest):
    """Goes on with what the call before has left in its cache, which on the same prompt changes nothing."""

    left: tuple[Any, ...] = ()

    def first(self) -> np.ndarray:
        logits = super().first()
        self.inner._cache = self.left or self.inner._cache
        return logits

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        logits = super().next(token, position)
        self.left = self.inner._cache
        return logits


class Piles(Keeps):
    """Adds to what the call before has left, until other inputs are bound: each first call on some is right."""

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        super().bind(inputs)
        self.left = ()

    def first(self) -> np.ndarray:
        import torch

        logits, left = Honest.first(self), self.left
        with torch.inference_mode():
            self.inner._cache = (
                tuple(a + b for a, b in zip(self.inner._cache, left, strict=True)) if left else (self.inner._cache)
            )
        return logits


class Recompiles(Honest):
    """Has its step compiled again for each token."""

    recompiles = 0

    def next(self, token: np.ndarray, position: int) -> np.ndarray:
        self.recompiles += 1
        return super().next(token, position)


class NoDecoder(Executable):
    """What an adapter gives that says it decodes and does not."""


_DOING: Mapping[str, type[Honest]] = {
    "nothing": Honest, "skip": Skips, "forget": Forgets, "cache": Caches, "guess": Guesses,
    "keep": Keeps, "pile": Piles, "recompile": Recompiles,
}  # fmt: skip


class CheatingDecoders(Compiler):
    """``cheat_tokens[do=...]``: see the classes above."""

    name = "cheat_tokens"
    requires = ("torch",)
    extra = "torch"
    named_only = True
    decodes = True
    options = (Option("do", "nothing", "Which cheat", choices=(*_DOING, "other")),)

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Load the module and cheat as the option says."""
        if options["do"] == "other":
            return NoDecoder()
        place = take_place(workload, device, options)
        module = load_module(workload, place)
        inner = TorchDecoder(module.parts(), module.arguments, place, describe(module, workload, place))
        return _DOING[options["do"]](inner)


class Remembering(OpenVinoStatefulDecoder):
    """Begins its state with the first prompt, and leaves it to the calls that follow."""

    has_begun = False

    def first(self) -> np.ndarray:
        begin = OpenVinoDecoder.first if self.has_begun else OpenVinoStatefulDecoder.first
        self.has_begun = True
        return begin(self)


class CheatingState(OpenVinoCompiler):
    """``cheat_state``: OpenVINO with a state that outlives its call."""

    name = "cheat_state"
    named_only = True

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Compile as it should be, and call it as it should not."""
        made: Any = super().compile(workload, device, {**options, "stateful": "on"})
        return Remembering(made._first, made._step)


class Traced(inductor.InductorCompiler):
    """``traced``: inductor but for its kernels, which take their time to compile: graphs run as they were captured."""

    name = "traced"
    named_only = True

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Capture the graphs of a workload, and count them."""

        def counting(tally: Any, settings: Any) -> Any:
            def leave(graph: Any, inputs: Any) -> Any:
                tally.graphs += 1
                return graph.forward

            return leave

        kept, inductor._counting = inductor._counting, counting
        try:
            return super().compile(workload, device, options)
        finally:
            inductor._counting = kept


COMPILER, STATE, TRACED = CheatingDecoders(), CheatingState(), Traced()
