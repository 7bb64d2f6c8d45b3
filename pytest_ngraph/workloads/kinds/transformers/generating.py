"""Prompts and steps of the library's language models: a cache in tensors of fixed shapes, which a step gives again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.workloads.kinds.transformers.options import FULL, LENGTHS, Wanted
from pytest_ngraph.workloads.kinds.transformers.sizes import FAMILIES, LANGUAGE

if TYPE_CHECKING:
    import torch

# The families whose networks score the word that follows.
_CAUSAL = ("gpt2", "llama")
_NETWORKS = tuple(FAMILIES[name].networks[LANGUAGE] for name in _CAUSAL)


def decodes(text: str, wanted: Wanted) -> bool:
    """Return whether a network generates text. Raise SpecError where its prompts would not be as long as one another.

    ``text`` is its reference.
    """
    found = wanted.family in _CAUSAL and wanted.head == LANGUAGE
    if found and wanted.mask == LENGTHS:
        raise SpecError(
            f"model {text!r}: texts of lengths of their own (mask={LENGTHS}) are not decoded, since all of a batch "
            f"take their steps at one position (allowed with decode=: mask={FULL}); leave mask={LENGTHS} out"
        )
    return found


def with_steps(made: type[torch.nn.Module], network: torch.nn.Module) -> type[torch.nn.Module]:
    """Return a class of modules that call a network with ``prefill`` and ``step``, where it generates text.

    The cache has the keys and the values of each layer, of (batch, heads, slots, width of a head).
    """
    if type(network).__name__ not in _NETWORKS:
        return made
    import torch
    from torch.nn.functional import pad
    from transformers.cache_utils import Cache

    layer_of = _layers()

    class Generating(made):  # type: ignore[misc]
        def prefill(
            self, input_ids: torch.Tensor, attention_mask: torch.Tensor, *, slots: int
        ) -> tuple[torch.Tensor, ...]:
            layers = [layer_of() for _ in range(self.network.config.num_hidden_layers)]
            logits = self._next(layers, Cache(layers=layers), input_ids=input_ids, attention_mask=attention_mask)
            room = slots - input_ids.shape[1]
            return logits, *(pad(each, (0, 0, 0, room)) for layer in layers for each in (layer.keys, layer.values))

        def step(self, token: torch.Tensor, position: torch.Tensor, *cache: torch.Tensor) -> tuple[torch.Tensor, ...]:
            layers = [layer_of(cache[index : index + 2], position) for index in range(0, len(cache), 2)]
            is_seen = (torch.arange(cache[0].shape[2], device=token.device) <= position)[None, None, None, :]
            if self.network.config._attn_implementation != "sdpa":
                # Added to the scores, where sdpa takes what is seen and what is not.
                is_seen = torch.where(is_seen, 0.0, torch.finfo(cache[0].dtype).min)
            seen = is_seen.expand(len(token), 1, 1, -1)
            given = {"input_ids": token, "attention_mask": seen, "position_ids": position[None]}
            logits = self._next(layers, Cache(layers=layers), **given)
            return logits, *(each for layer in layers for each in (layer.keys, layer.values))

        def _next(self, layers: Sequence[Any], cache: Any, **given: Any) -> torch.Tensor:
            """Return the logits of the token that follows the last one: no other is computed."""
            found = self.network(past_key_values=cache, use_cache=True, logits_to_keep=1, return_dict=True, **given)
            logits: torch.Tensor = found.logits[:, -1]
            return logits

    return Generating


def _layers() -> Any:
    """Return the class of a layer's cache: what a prompt computed, or what was given with a token written in it.

    Made once, outside of what compilers trace.
    """
    from transformers.cache_utils import CacheLayerMixin

    class Written(CacheLayerMixin):  # type: ignore[misc]
        def __init__(self, given: Sequence[torch.Tensor] = (), position: torch.Tensor | None = None) -> None:
            super().__init__()
            self.given, self.position = given, position
            self.is_initialized = bool(given)

        def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
            """Nothing to make."""

        def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            self.keys, self.values = key_states, value_states
            if self.position is not None:
                keys, values = self.given
                self.keys = keys.index_copy(2, self.position, key_states)
                self.values = values.index_copy(2, self.position, value_states)
            return self.keys, self.values

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            return (self.given[0].shape[2] if self.given else query_length), 0

        def get_seq_length(self) -> int:
            return 0

        def get_max_length(self) -> int:
            return -1

    return Written
