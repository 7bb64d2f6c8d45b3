"""A module that decodes: its prompt and its steps, their contract, and the tokens that the reference generates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.workloads.kinds.contract import Built, guarded
from pytest_ngraph.workloads.modules import calls

if TYPE_CHECKING:
    import torch

# The input that has the tokens which the steps take, int64 of (batch, steps).
TOKENS = "next_tokens"
# What a step is exported with, beside the cache.
TOKEN, POSITION = "token", "position"
# By less than this share of its largest logit a step that sees no cache would pass for one that does.
_FOLLOWS = 1e-3
_CONTRACT = """\
model {text!r}: it cannot decode: {lacks}; a module that decodes offers both of these (docs/decoding.md):
    def prefill(self, ids, *, slots):         # what example_inputs(batch) gives, and how many tokens there will be
        return logits, *cache                 # of the token that follows, (batch, vocabulary); tensors of fixed shapes
    def step(self, token, position, *cache):  # int64 of (batch, 1), and where it stands, int64 of (1,)
        return logits, *cache                 # with the token written at its position, in the same shapes"""


def generating(text: str, built: Built, batch: int, steps: int) -> Built:
    """Return a model whose call is a prompt and ``steps`` tokens after it: its outputs are the logits of each.

    The tokens are an input: those that the module itself finds likeliest. Raises SpecError for a module that offers no
    prompt and steps, or steps that do not follow their cache.
    """
    lacking = [name for name in ("prefill", "step") if not callable(getattr(built.module, name, None))]
    if lacking:
        kind = type(built.module).__name__
        raise SpecError(_CONTRACT.format(text=text, lacks=f"{kind} has no {' and no '.join(lacking)}"))
    offered = built.example_inputs
    module = _generation(built.module, steps, is_keyword=isinstance(offered(batch), Mapping), text=text)

    def example_inputs(batch: int, **length: int) -> dict[str, torch.Tensor]:
        prompt = calls.read(text, built.module, offered(batch, **length), f"example_inputs({batch})").tensors
        _check_prompt(text, prompt, batch)
        return {**prompt, TOKENS: guarded(text, "prefill() or step()", lambda: module.greedy(prompt))}

    return replace(built, module=module, example_inputs=example_inputs, evaluate=None, calibration_inputs=None)


def _check_prompt(text: str, prompt: Mapping[str, torch.Tensor], batch: int) -> None:
    """Raise SpecError where the first input is no tokens."""
    name, ids = next(iter(prompt.items()))
    if ids.dim() != 2 or ids.shape[0] != batch or ids.is_floating_point():
        raise SpecError(
            f"model {text!r}: decode= needs tokens as its first input, whole numbers of (batch, sequence); {name!r} is "
            f"{str(ids.dtype).removeprefix('torch.')} of {tuple(ids.shape)}"
        )


def _generation(module: torch.nn.Module, steps: int, *, is_keyword: bool, text: str) -> Any:
    import torch
    from torch import Tensor, nn

    class Prefill(nn.Module):  # type: ignore[misc]
        """Reads the prompt, with room for the tokens to come."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *prompt: Tensor, **named: Tensor) -> tuple[Tensor, ...]:
            ids = prompt[0] if prompt else next(iter(named.values()))
            return tuple(calls.flatten(self.module.prefill(*prompt, **named, slots=ids.shape[1] + steps)))

    class Step(nn.Module):  # type: ignore[misc]
        """Takes one token."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, token: Tensor, position: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
            return tuple(calls.flatten(self.module.step(token, position, *cache)))

    class Generation(nn.Module):  # type: ignore[misc]
        """Reads the prompt and takes the given tokens. Gives the logits of each token, in order."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.follows = False

        def parts(self) -> tuple[nn.Module, nn.Module]:
            """Return what reads a prompt, and what takes a token."""
            return Prefill().eval(), Step().eval()

        def arguments(self, prompt: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            """Return the positional and keyword arguments that reading a prompt takes."""
            return calls.arguments(calls.KEYWORD if is_keyword else calls.POSITIONAL, prompt)

        def forward(self, **inputs: Tensor) -> tuple[Tensor, ...]:
            tokens = inputs.pop(TOKENS)
            return self._logits(inputs, lambda index, logits: tokens[:, index : index + 1])

        def greedy(self, prompt: Mapping[str, Tensor]) -> Tensor:
            """Return the tokens that it takes itself: the likeliest each time."""
            taken: list[Tensor] = []

            def likeliest(index: int, logits: Tensor) -> Tensor:
                taken.append(logits.argmax(dim=-1, keepdim=True))
                return taken[-1]

            with torch.no_grad():
                self._logits(prompt, likeliest)
            return torch.cat(taken, dim=1)

        def _logits(self, prompt: Mapping[str, Tensor], token: Callable[[int, Tensor], Tensor]) -> tuple[Tensor, ...]:
            first, step = self.parts()
            args, kwargs = self.arguments(prompt)
            ids = next(iter(prompt.values()))
            logits, *cache = _checked(text, "prefill()", first(*args, **kwargs), len(ids), None)
            found = [logits]
            for index in range(steps):
                position = torch.tensor([ids.shape[1] + index])
                taken = token(index, found[-1])
                if not self.follows:
                    _check_follows(text, step, taken, position, cache)
                    self.follows = True
                logits, *cache = _checked(text, "step()", step(taken, position, *cache), len(ids), cache)
                found.append(logits)
            return tuple(found)

    return Generation().eval()


def _checked(
    text: str, what: str, given: tuple[torch.Tensor, ...], batch: int, cache: list[torch.Tensor] | None
) -> tuple[torch.Tensor, ...]:
    """Raise SpecError for logits or a cache of other shapes than compilers are told."""
    if len(given) < 2 or given[0].dim() != 2 or given[0].shape[0] != batch:
        shapes = ", ".join(str(tuple(each.shape)) for each in given)
        raise SpecError(
            f"model {text!r}: its {what} gave {shapes or 'no tensors'} (expected logits of (batch, vocabulary), here "
            f"({batch}, ...), then the tensors of the cache)"
        )
    if cache is not None and (was := _described(cache)) != (now := _described(given[1:])):
        raise SpecError(
            f"model {text!r}: its {what} was given a cache of {was} and gave one of {now} (expected the same shapes: "
            "prefill() makes room for slots= tokens, and step() writes at its position)"
        )
    return given


def _described(tensors: Any) -> str:
    return ", ".join(f"{str(each.dtype).removeprefix('torch.')} {tuple(each.shape)}" for each in tensors)


def _check_follows(
    text: str, step: Any, token: torch.Tensor, position: torch.Tensor, cache: list[torch.Tensor]
) -> None:
    """Raise SpecError for a step to which its cache is nothing: one that ignored it could not be told from it."""
    import torch

    with torch.no_grad():
        given = step(token, position, *(each.clone() for each in cache))[0]
        without = step(token, position, *(torch.zeros_like(each) for each in cache))[0]
    if float((given - without).abs().max()) <= _FOLLOWS * float(given.abs().max()):
        raise SpecError(
            f"model {text!r}: its step() gives the same logits whatever the cache holds, so nothing would tell a "
            "compiler that loses it; does it attend to what prefill() wrote?"
        )
