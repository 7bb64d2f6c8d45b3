"""Channels of small magnitude are taken out by torch-pruning, with all that depends on them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.optimizers.contract import Optimizer, Option
from pytest_ngraph.optimizers.counting import called, macs, numbers, shapes, tensors
from pytest_ngraph.optimizers.layers import is_layer
from pytest_ngraph.optimizers.outermost import outermost

if TYPE_CHECKING:
    import torch

# A share of parameters or MACs is looked for until it is as near as this, or in so many tries.
_NEAR, _TRIES = 0.005, 8
_MOST = 0.99
# What attention calls the number of its heads.
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "nhead")


class ChannelPrune(Optimizer):
    """``channel_prune[of=channels|parameters|macs,norm=l1|l2,scope=global|local]=0.5``.

    Half of the channels that can go are gone, those of the smallest norm, with ``of`` half of the parameters or MACs.
    What the network gives keeps its size, and so does attention, with the width that it works at.
    """

    requires = ("torch", "torch_pruning")
    extra = "compress"
    made_by = ("torch", "torch-pruning")
    searches = True
    options = (
        Option("of", "channels", "What the ratio is of", choices=("channels", "parameters", "macs")),
        Option("norm", "l1", "Norm of a channel's weights, by which the smallest go", choices=("l1", "l2")),
        Option("scope", "global", "Smallest of the whole network, or of each layer", choices=("global", "local")),
    )

    def apply(
        self,
        module: torch.nn.Module,
        ratio: float,
        example_inputs: Any,
        seed: int,
        found: Any = None,
        **options: Any,
    ) -> torch.nn.Module:
        """Take channels out. Raise Unsupported where none can go, or where what is left would not run."""
        given = (2 if options["norm"] == "l2" else 1, options["scope"] == "global")
        before = shapes(module, example_inputs)
        if options["of"] == "channels":
            made, went = _pruned(module, ratio, example_inputs, *given)
        else:
            count = numbers if options["of"] == "parameters" else lambda each: macs(each, example_inputs)
            found = {} if found is None else found
            known = _as_before(module, example_inputs, count, found, *given)
            made, went = known or _nearest(module, ratio, example_inputs, count, str(options["of"]), found, *given)
        if not went:
            raise Unsupported(
                "channel_prune: no channel can go without changing what the network gives, so nothing was removed"
            )
        try:
            after = shapes(made, example_inputs)
        except Exception as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise Unsupported(f"channel_prune: what is left of this network does not run: {said[:300]}") from error
        if after != before:
            raise Unsupported(f"channel_prune: outputs of {before} became {after}: channels of them cannot go")
        return made


class _TooMany(Unsupported):
    """All channels of a layer would go, which torch-pruning then leaves whole, without a word."""


class _Strongest:
    """The magnitude of channels, by groups that go together. The largest of each stays, so that no layer is empty."""

    def __init__(self, norm: int) -> None:
        import torch_pruning

        self._magnitude = torch_pruning.importance.GroupMagnitudeImportance(p=norm)
        self.groups = 0

    def __call__(self, group: Any) -> torch.Tensor | None:
        found: torch.Tensor | None = self._magnitude(group)
        if found is None or len(found) == 1:
            return None
        self.groups += 1
        found = found.clone()
        found[found.argmax()] = math.inf
        return found


def _pruned(
    module: torch.nn.Module, ratio: float, example: Any, norm: int, is_global: bool
) -> tuple[torch.nn.Module, int]:
    """Return a module without this ratio of its channels, itself, changed, and how many groups of them went."""
    import torch
    import torch_pruning

    kept = [*outermost(module, example), *_of_attention(module)]
    # Which gradients are asked for is the model's own business.
    asked = {parameter: parameter.requires_grad for parameter in module.parameters()}
    importance = _Strongest(norm)
    try:
        with torch.enable_grad():
            pruner = torch_pruning.pruner.BasePruner(
                module.requires_grad_(True),
                example,
                importance=importance,
                global_pruning=is_global,
                pruning_ratio=ratio,
                ignored_layers=kept,
                forward_fn=_forward,
                output_transform=_first,
            )
            groups = list(pruner.step(interactive=True))
            # With the largest of each kept, layers compared by one threshold are emptied all together or not at all.
            whole = 0 if groups and is_global else max(0, importance.groups - len(groups))
            for group in groups if not whole else ():
                group.prune()
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise Unsupported(f"channel_prune: torch-pruning cannot prune this network: {said[:300]}") from error
    if whole:
        advice = "ask for less" if is_global else "ask for less, or write scope=global, which keeps one of each layer"
        raise _TooMany(
            f"channel_prune: a ratio of {ratio:g} takes all channels of {whole} of {importance.groups} groups of "
            f"layers; {advice}"
        )
    for parameter in module.parameters():
        parameter.requires_grad_(asked.get(parameter, True))
    return module, len(groups)


def _as_before(
    module: torch.nn.Module, example: Any, count: Callable[[torch.nn.Module], int], found: dict[str, Any], *given: Any
) -> tuple[torch.nn.Module, int] | None:
    """Return what is left by the ratio that was found before, or None where that leaves something else now."""
    ratio = found.get("ratio")
    if not isinstance(ratio, float) or not 0 < ratio < 1:
        return None
    try:
        made, went = _pruned(copy.deepcopy(module), ratio, example, *given)
    except Unsupported:
        return None
    return (made, went) if count(made) == found.get("left") else None


def _nearest(
    module: torch.nn.Module,
    share: float,
    example: Any,
    count: Callable[[torch.nn.Module], int],
    of: str,
    found: dict[str, Any],
    *given: Any,
) -> tuple[torch.nn.Module, int]:
    """Return a module without this share of what is counted, as nearly as ratios of channels come to it.

    The ratio is put into ``found``. Raise Unsupported where all that can go are less than that.
    """
    whole = count(module)
    if not whole:
        raise Unsupported("channel_prune: PyTorch counts no multiply-accumulates in it; write of=parameters")
    best: tuple[float, torch.nn.Module, int] | None = None
    most = 0.0
    # Channels go on both sides of most layers, so that what is left is about the square: a first guess.
    ratio, low, high = 1 - math.sqrt(1 - share), (0.0, 0.0), (1.0, 1.0)
    for _ in range(_TRIES):
        try:
            made, went = _pruned(copy.deepcopy(module), ratio, example, *given)
        except _TooMany:
            high = ratio, 1.0
        else:
            left = count(made)
            gone = 1 - left / whole
            if best is None or abs(gone - share) < best[0]:
                best = abs(gone - share), made, went
                found |= {"ratio": ratio, "left": left}
            if best[0] <= _NEAR:
                break
            most = max(most, gone)
            low, high = ((ratio, gone), high) if gone < share else (low, (ratio, gone))
        # Between the two nearest, by their slope, and never at either of them again.
        between = (share - low[1]) / (high[1] - low[1]) if high[1] > low[1] else 0.5
        ratio = low[0] + min(0.9, max(0.1, between)) * (min(high[0], _MOST) - low[0])
    if best is None or (best[0] > _NEAR and most < share):
        raise Unsupported(
            f"channel_prune: of={of}: a share of {share:g} cannot go: with nearly all channels that can, {most:.3g} of "
            "them are gone (what the network gives and attention keep theirs); ask for less, or write of=channels"
        )
    return best[1], best[2]


def _of_attention(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the layers of attention, which splits its channels by numbers that it keeps itself."""
    from torch import nn

    found = []
    for each in module.modules():
        if isinstance(each, nn.MultiheadAttention):
            found += [each, each.out_proj]
        elif any(isinstance(getattr(each, name, None), int) for name in _HEADS):
            found += [layer for layer in each.modules() if is_layer(layer)]
    return found


def _forward(module: torch.nn.Module, example: Any) -> Any:
    return called(module, example)


def _first(outputs: Any) -> Any:
    return tensors(outputs)


OPTIMIZER = ChannelPrune()
