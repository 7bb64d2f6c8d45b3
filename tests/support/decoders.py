"""Small decoders under the contract of docs/decoding.md: two layers, 32 wide, learned positions, one head each."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WORDS, POSITIONS, WIDTH, PROMPT = 61, 64, 32, 6


class Layer(nn.Module):  # type: ignore[misc]
    """Attention to what is in the cache, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mixed = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out, self.inner = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: Tensor, positions: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        asked, key, value = self.mixed(self.norm(hidden)).chunk(3, dim=-1)
        keys, values = keys.index_copy(1, positions, key), values.index_copy(1, positions, value)
        is_later = torch.arange(keys.shape[1])[None, :] > positions[:, None]
        weights = (asked @ keys.transpose(1, 2) / WIDTH**0.5).masked_fill(is_later, float("-inf"))
        hidden = hidden + self.out(torch.softmax(weights, dim=-1) @ values)
        return hidden + torch.relu(self.inner(hidden)), keys, values


class Decoder(nn.Module):  # type: ignore[misc]
    """Reads a prompt, then takes a token at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def example_inputs(self, batch: int) -> Tensor:
        return torch.randint(0, WORDS, (batch, PROMPT))

    def forward(self, ids: Tensor) -> Tensor:
        return self._read(ids, torch.arange(ids.shape[1]), self._empty(len(ids), ids.shape[1]))[0]

    def prefill(self, ids: Tensor, *, slots: int) -> tuple[Tensor, ...]:
        logits, cache = self._read(ids, torch.arange(ids.shape[1]), self._empty(len(ids), slots))
        return logits[:, -1], *cache

    def step(self, token: Tensor, position: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        logits, after = self._read(token, position, list(cache))
        return logits[:, -1], *after

    def _empty(self, batch: int, slots: int) -> list[Tensor]:
        return [torch.zeros(batch, slots, WIDTH) for _ in range(2 * len(self.layers))]

    def _read(self, ids: Tensor, positions: Tensor, cache: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        hidden, after = self.words(ids) + self.places(positions), []
        for index, layer in enumerate(self.layers):
            hidden, keys, values = layer(hidden, positions, *cache[2 * index : 2 * index + 2])
            after += [keys, values]
        return self.head(hidden), after


class Summing(nn.Module):  # type: ignore[misc]
    """Follows the sum of all words so far: hardly anything to compile, for compilers that take their time."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)

    def example_inputs(self, batch: int) -> Tensor:
        return torch.randint(0, WORDS, (batch, PROMPT))

    def prefill(self, ids: Tensor, *, slots: int) -> tuple[Tensor, ...]:
        seen = nn.functional.pad(self.words(ids), (0, 0, 0, slots - ids.shape[1]))
        return self.head(seen.sum(dim=1)), seen

    def step(self, token: Tensor, position: Tensor, seen: Tensor) -> tuple[Tensor, ...]:
        seen = seen.index_copy(1, position, self.words(token))
        return self.head(seen.sum(dim=1)), seen


class Named(Decoder):
    """The same with its prompt as a keyword argument, and a mask beside it."""

    def example_inputs(self, batch: int) -> dict[str, Tensor]:
        ids = super().example_inputs(batch)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def prefill(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor, *, slots: int
    ) -> tuple[Tensor, ...]:
        return super().prefill(input_ids, slots=slots)


class Busy(Decoder):
    """The same with work that skipping would pay for: a step takes a millisecond or more."""

    def __init__(self) -> None:
        super().__init__()
        self.work = nn.Linear(1500, 1500)

    def _read(self, ids: Tensor, positions: Tensor, cache: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        logits, after = super()._read(ids, positions, cache)
        more = logits.repeat(1, 25, 25)[:, :, :1500]
        return logits + 1e-3 * self.work(more)[:, -1:, :WORDS], after


class Forgetful(Decoder):
    """Its steps see the token alone."""

    def step(self, token: Tensor, position: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        return super().step(token, position, *(torch.zeros_like(each) for each in cache))


class Counting(Decoder):
    """Counts its steps in a number of Python's, for which graphs are compiled."""

    taken = 0

    def step(self, token: Tensor, position: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        self.taken += 1
        return super().step(token, position + 0 * self.taken, *cache)


class Growing(Decoder):
    """Its cache grows, where compilers are told shapes that stay."""

    def prefill(self, ids: Tensor, *, slots: int) -> tuple[Tensor, ...]:
        return super().prefill(ids, slots=ids.shape[1])

    def step(self, token: Tensor, position: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        return super().step(token, position, *(torch.cat([each, each[:, :1]], dim=1) for each in cache))


class Plain(nn.Module):  # type: ignore[misc]
    """No decoder."""

    def example_inputs(self, batch: int) -> Tensor:
        return torch.randn(batch, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x * 2
