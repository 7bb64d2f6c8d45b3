"""What was done to a network, in numbers: how large it was, how large it is, and how much of it was touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Of the network that is left, and with DENSE in front of the one that there was. ``bytes`` are those of parameters and
# buffers, ``packed_bytes`` the same compressed, ``sparse_bytes`` with the weights of layers as compressed sparse rows;
# ``weights`` are those of layers, ``zeros`` how many of them are zero. MACs are of one sample.
COUNTED = ("parameters", "macs", "bytes", "packed_bytes", "sparse_bytes", "weights", "zeros")
DENSE = "dense_"
LAYERS, TOUCHED = "layers", "touched_layers"
NAMES = frozenset((*COUNTED, *(DENSE + name for name in COUNTED), LAYERS, TOUCHED))
# A share of zeros among weights that is no accident.
_ZEROS = 0.01

Achieved = Iterable[tuple[str, int]]


def number(achieved: Achieved, name: str) -> int | None:
    """Return one of the numbers, or None where it is not known."""
    return dict(achieved).get(name)


def removed_percent(achieved: Achieved, name: str) -> float | None:
    """Return how many per cent of what is counted are gone, or None where none is."""
    found = dict(achieved)
    before, after = found.get(DENSE + name), found.get(name)
    return None if not before or after is None or after >= before else 100 * (1 - after / before)


def share_percent(achieved: Achieved, part: str, whole: str) -> float | None:
    """Return how many per cent of one count another is, or None where it is none."""
    found = dict(achieved)
    counted, of = found.get(part), found.get(whole)
    return 100 * counted / of if counted and of else None


def has_zeros(achieved: Mapping[str, int]) -> bool:
    """Return whether weights became zero that were not: what a compiler could leave out."""
    zeros, weights = achieved.get("zeros", 0), achieved.get("weights", 0)
    return zeros - achieved.get(f"{DENSE}zeros", 0) > _ZEROS * weights


def in_words(achieved: Achieved) -> str:
    """Say what was done: what was there and what is left, and what share of it is gone."""
    found, said = dict(achieved), []
    for name, title in (("parameters", "parameters"), ("macs", "MACs")):
        if name in found and f"{DENSE}{name}" in found:
            before, after, gone = found[DENSE + name], found[name], removed_percent(achieved, name)
            said.append(
                f"{after:,} {title} as before"
                if gone is None
                else f"{after:,} of {before:,} {title} ({gone:.1f} % gone)"
            )
    if (zeros := share_percent(achieved, "zeros", "weights")) is not None and has_zeros(found):
        said.append(f"{zeros:.1f} % of the weights are zero")
    said.append(f"{found.get(TOUCHED, 0)} of {found.get(LAYERS, 0)} layers touched")
    return ", ".join(said)
