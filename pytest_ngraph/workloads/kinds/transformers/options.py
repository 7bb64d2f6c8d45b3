"""What stands in the brackets of ``transformers:NAME[layers=2,mask=lengths]``: read, checked and written one way."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_ngraph.errors import NotThere, SpecError
from pytest_ngraph.texts.shown import one_line
from pytest_ngraph.workloads.kinds.transformers.sizes import ARCHITECTURES, FAMILIES, TEXT, Architecture

FULL, LENGTHS = "full", "lengths"
SDPA, EAGER = "sdpa", "eager"
_BEHIND = re.compile(r"\[([^\[\]]*)\]\Z")
# What stands before a name of the table in a reference.
_FRONT = "transformers:"
_NUMBER = re.compile(r"[1-9][0-9]{0,9}\Z")
# Beyond these nothing is built that any machine runs; they keep a misprint from taking an hour to be refused.
MOST = {"layers": 1000, "hidden": 65536, "heads": 1024, "kv_heads": 1024, "intermediate": 1 << 20, "vocab": 1 << 22}
MOST_OTHER = 1 << 20
_LEAST = {"vocab": 4, "positions": 8, "labels": 1}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reference asks for: sizes by our names, what the network ends with, its mask and its attention."""

    family: str
    head: str
    sizes: Mapping[str, int]
    mask: str = FULL
    attention: str = SDPA
    more: Mapping[str, object] | None = None

    @property
    def fed(self) -> str:
        """Return what it is fed: text, images or sound."""
        return FAMILIES[self.family].fed

    @property
    def most_tokens(self) -> int:
        """Return how many tokens a sample may have."""
        return self.sizes["positions"] - self.reserved

    @property
    def reserved(self) -> int:
        """Return how many positions are no token's."""
        return FAMILIES[self.family].reserved


def split(name: str, text: str = "") -> tuple[str, dict[str, str]]:
    """Split a name or a path from the options in brackets behind it. Raise SpecError for what is none.

    ``text`` is the whole reference, for messages.
    """
    found, said = _BEHIND.search(name), one_line(text or name)
    if found is None:
        if set("[]") & set(name):
            raise SpecError(f"model {said!r}: expected NAME or NAME[option=value,...]")
        return name, {}
    given: dict[str, str] = {}
    for part in found.group(1).split(","):
        option, equals, value = (piece.strip() for piece in part.partition("="))
        if not option or not equals or not value:
            raise SpecError(f"model {said!r}: {part.strip()!r} in its brackets (expected option=value)")
        if option in given:
            raise SpecError(f"model {said!r}: {option!r} is given twice")
        given[option] = value
    return name[: found.start()], given


def written(name: str, given: Mapping[str, str]) -> str:
    """Write options behind a name or a path, by name, so that equal ones are written equally."""
    inner = ",".join(f"{option}={value}" for option, value in sorted(given.items()))
    return f"{name}[{inner}]" if inner else name


def normal(name: str) -> str:
    """Return a name of the table with those of its options that change something, in one order."""
    base, given = split(name, _FRONT + name)
    asked = wanted(name)
    for option in [*given]:
        rest = {each: value for each, value in given.items() if each != option}
        if _is_the_same(base, rest, asked):
            given = rest
    return written(base, {option: str(int(value)) if value.isdigit() else value for option, value in given.items()})


def wanted(name: str) -> Wanted:
    """Return what a name of the table with its options asks for. Raise SpecError that says what is allowed."""
    text = _FRONT + name
    base, given = split(name, text)
    if base not in ARCHITECTURES:
        raise NotThere(f"model {one_line(text)!r}: {_unknown(base)}")
    return _resolved(text, ARCHITECTURES[base], given)


def choices(text: str, given: Mapping[str, str], allowed: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return options that are words, the first of those that are allowed where they are not given."""
    found = {}
    for option, words in allowed.items():
        found[option] = given.get(option, words[0])
        if found[option] not in words:
            raise SpecError(
                f"model {one_line(text)!r}: {option}={found[option]} is not allowed (allowed: {', '.join(words)})"
            )
    return found


def refuse_unknown(text: str, given: Mapping[str, str], allowed: list[str]) -> None:
    """Raise SpecError for an option that a model does not take."""
    for option in given:
        if option not in allowed:
            close = difflib.get_close_matches(option, allowed, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise SpecError(
                f"model {one_line(text)!r}: it has no option {option!r} (it takes: {', '.join(allowed)}){hint}"
            )


def _resolved(text: str, row: Architecture, given: Mapping[str, str]) -> Wanted:
    family = FAMILIES[row.family]
    words = {"head": (row.head, *(head for head in family.networks if head != row.head)), "attention": (SDPA, EAGER)}
    if family.fed == TEXT:
        words["mask"] = (FULL, LENGTHS)
    refuse_unknown(text, given, [*family.names, *words])
    chosen = choices(text, given, words)
    sizes = {**row.sizes, **{name: _number(text, name, given[name]) for name in family.names if name in given}}
    if "hidden" in given and "intermediate" not in given:
        # What is four times as wide stays so.
        sizes["intermediate"] = max(1, sizes["hidden"] * row.sizes["intermediate"] // row.sizes["hidden"])
    if "heads" in given and "kv_heads" in sizes and "kv_heads" not in given:
        share = row.sizes["heads"] // row.sizes["kv_heads"]
        sizes["kv_heads"] = sizes["heads"] // share if sizes["heads"] % share == 0 else sizes["heads"]
    _refuse_odd(text, sizes)
    return Wanted(row.family, chosen["head"], sizes, chosen.get("mask", FULL), chosen["attention"], more=dict(row.more))


def _number(text: str, option: str, value: str) -> int:
    least, most = _LEAST.get(option, 1), MOST.get(option, MOST_OTHER)
    if not _NUMBER.match(value) or not least <= int(value) <= most:
        raise SpecError(
            f"model {one_line(text)!r}: {option}={one_line(value)} is not allowed (allowed: a whole number "
            f"from {least} to {most})"
        )
    return int(value)


def _refuse_odd(text: str, sizes: Mapping[str, int]) -> None:
    """Raise SpecError for sizes that do not fit each other."""
    hidden, heads = sizes["hidden"], sizes["heads"]
    if hidden % heads:
        fit = ", ".join(str(each) for each in range(1, 129) if hidden % each == 0)
        raise SpecError(
            f"model {one_line(text)!r}: hidden={hidden} is no multiple of heads={heads} (heads that fit: {fit})"
        )
    if heads % sizes.get("kv_heads", 1):
        raise SpecError(
            f"model {one_line(text)!r}: heads={heads} is no multiple of kv_heads={sizes['kv_heads']}, the heads of "
            "keys and values that they share"
        )
    if "kv_heads" in sizes and hidden // heads % 2:
        raise SpecError(
            f"model {one_line(text)!r}: hidden={hidden} over heads={heads} is {hidden // heads}, which has to be even "
            "for rotary positions"
        )
    if "mels" in sizes and hidden % 2:
        raise SpecError(f"model {one_line(text)!r}: hidden={hidden} is odd, and half of it are sines, half cosines")


def _is_the_same(base: str, given: Mapping[str, str], asked: Wanted) -> bool:
    try:
        return wanted(written(base, given)) == asked
    except SpecError:
        return False


def _unknown(base: str) -> str:
    lower = {name.lower(): name for name in ARCHITECTURES}
    close = difflib.get_close_matches(base.rpartition("/")[2].lower(), lower, n=3, cutoff=0.5)
    names = ", ".join(lower[each] for each in close) if close else ", ".join(ARCHITECTURES)
    return (
        f"no model {one_line(base)!r} in the table of sizes ({'close' if close else 'there are'}: {names}); nothing is "
        "downloaded: another one is measured from its folder, transformers:./FOLDER, with config.json and safetensors"
    )
