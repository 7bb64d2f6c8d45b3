"""Compressions in few letters, as the second paper names them: ``CP 50`` for half of the channels."""

from __future__ import annotations

import re
from collections.abc import Iterable

_STEP = re.compile(r"(?P<name>[A-Za-z_][\w-]*?)(?P<options>\[[^\]]*\])?(?:=(?P<ratio>[\d.e-]+))?\Z")
_SHORT = (("weight_prune", "WP"), ("channel_prune", "CP"))


def shortened(compression: str) -> str:
    """Return a compression in short. What is not pruning keeps its name, and options keep what they are of."""
    return "+".join(map(_step, re.split(r"\+(?![^\[]*\])", compression)))


def short_names(compressions: Iterable[str]) -> dict[str, str]:
    """Return the short name of each compression, whole ones where two would be called the same."""
    short = {name: shortened(name) for name in compressions}
    return short if len(set(short.values())) == len(short) else {name: name for name in short}


def _step(step: str) -> str:
    found = _STEP.match(step)
    if found is None:
        return step
    name = next((short for end, short in _SHORT if found["name"].endswith(end)), found["name"])
    of = re.search(r"of=(\w+)", found["options"] or "")
    further = f"({of[1]})" if of else ""
    ratio = f" {round(100 * float(found['ratio']), 1):g}" if found["ratio"] else ""
    return f"{name}{further}{ratio}"
