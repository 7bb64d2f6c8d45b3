"""Adapters that decode and want a time they have not earned; each cheat is an option of ``cheat_tokens``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Compiler, Decoder, Executable, Option
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


class NoDecoder(Executable):
    """What an adapter gives that says it decodes and does not."""


_DOING: Mapping[str, type[Honest]] = {
    "nothing": Honest, "skip": Skips, "forget": Forgets, "cache": Caches, "guess": Guesses
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


COMPILER = CheatingDecoders()
