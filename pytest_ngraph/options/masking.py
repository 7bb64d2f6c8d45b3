"""Secrets: what looks like one, and a command line without what may be one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pytest_ngraph.options.table import ROWS

MASK = "***"
_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE_?KEY", re.IGNORECASE)
# A password in an address, and how keys of well-known services begin.
_VALUE = re.compile(r"://[^/\s:@]*:[^/\s@]+@|\b(hf_|gh[pousr]_|sk-|AKIA|glpat-)[A-Za-z0-9_-]{8,}|-----BEGIN ")

# Options whose values are kept: those of this package and what pytest, xdist, rerunfailures and cov bring. Of any other
# the value may be a secret, and what cannot be distinguished from one is none of a store's business.
_OURS = frozenset(row.flag for row in ROWS)
_OUR_INI = frozenset(row.ini for row in ROWS)
_KEPT = _OURS | {
    "--basetemp", "--capture", "--code-highlight", "--color", "--confcutdir", "--config-file", "--cov", "--cov-config",
    "--cov-report", "--deselect", "--dist", "--durations", "--durations-min", "--ignore", "--ignore-glob",
    "--import-mode", "--junit-prefix", "--junit-xml", "--junitprefix", "--junitxml", "--last-failed-no-failures",
    "--lfnf", "--log-cli-level", "--log-file", "--log-file-level", "--log-level", "--maxfail", "--maxprocesses",
    "--numprocesses", "--only-rerun", "--pythonwarnings", "--reruns", "--reruns-delay", "--rootdir", "--show-capture",
    "--tb", "--tx", "--verbosity",
}  # fmt: skip
# Those of a single letter with a value, which may stand in the same word; the others are flags.
_KEPT_SHORT, _SHORT_FLAGS = "cknmprW", "hlqsvxV"
_NO_VALUE = frozenset(row.flag for row in ROWS if row.metavar is None) | {
    "--cache-clear", "--co", "--collect-in-virtualenv", "--collect-only", "--doctest-modules", "--exitfirst",
    "--failed-first", "--ff", "--fixtures", "--full-trace", "--help", "--keep-duplicates", "--last-failed", "--lf",
    "--markers", "--new-first", "--nf", "--no-cov", "--no-header", "--no-showlocals", "--no-summary",
    "--noconftest", "--pdb", "--pyargs", "--quiet", "--setup-only", "--setup-plan", "--setup-show", "--showlocals",
    "--stepwise", "--stepwise-skip", "--strict", "--strict-config", "--strict-markers", "--sw", "--sw-skip", "--trace",
    "--trace-config", "--verbose", "--version", "--xfail-tb",
}  # fmt: skip


def looks_secret(name: str, value: object) -> bool:
    """Return whether a variable of this name and value looks like a password or a key."""
    return bool(_NAME.search(name) or (isinstance(value, str) and _VALUE.search(value)))


def masked_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables, sorted by name, without the values that look like a password or a key."""
    return {name: MASK if looks_secret(name, value) else value for name, value in sorted(variables.items())}


def masked_command(words: Sequence[str], folder: Path | None = None) -> tuple[str, ...]:
    """Return the words of a pytest command, given in a folder, as they may be kept and shown to others.

    Options of this package and of pytest stay, and so do words that are files, folders or tests there. The values of
    all other options and all other words are masked, and in what stays whatever looks like a key. Without a folder, for
    a command of another time or place, a word stays where it is no option's value. What was masked before stays as it
    is.
    """
    modules = "--pyargs" in words

    def stays(word: str, is_value: bool) -> bool:
        if folder is None:
            return not is_value or "::" in word or word.endswith(".py")
        return _exists(folder, word) or (modules and _is_module(word))

    return tuple(_without_keys(word) for word in (*words[:1], *_masked(words[1:], stays)))


def _masked(words: Sequence[str], stays: Callable[[str, bool], bool]) -> Iterator[str]:
    left, is_value = list(words), False
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            yield word if word == MASK or stays(word, is_value) else MASK
            is_value = False
            continue
        is_value = False
        if word in ("-o", "--override-ini"):
            yield word
            if left:
                yield _ini(left.pop(0))
        elif name == "--override-ini":
            yield f"{name}={_ini(value)}"
        elif word.startswith("-o") and len(word) > 2:
            yield f"-o{_ini(word[2:])}"
        elif name in _NO_VALUE or word == "--":
            yield word
        elif name in _KEPT:
            yield word
            if not equals:
                yield from _value(left)
        elif word.startswith("--"):
            is_value = not equals
            yield f"{name}={MASK}" if equals else word
        else:
            is_value = word[-1] not in _SHORT_FLAGS
            yield from _short(word, left)


def _short(word: str, left: list[str]) -> Iterator[str]:
    """Yield a word of single letters, and its value where that is the next one."""
    flags = word[1:].lstrip(_SHORT_FLAGS)
    if flags[:1] and flags[0] in _KEPT_SHORT:
        yield word
        if len(flags) == 1:
            yield from _value(left)
    elif len(flags) > 1:
        yield f"{word[: len(word) - len(flags) + 1]}{MASK}"
    else:
        yield word


def _value(left: list[str]) -> Iterator[str]:
    """Yield the value of an option, which some of them may lack."""
    if left and not left[0].startswith("-"):
        yield left.pop(0)


def _ini(text: str) -> str:
    name, equals, _ = text.partition("=")
    return text if name in _OUR_INI else f"{name}={MASK}" if equals else MASK


def _exists(folder: Path, word: str) -> bool:
    try:
        return (folder / word.partition("::")[0]).exists()
    except (OSError, ValueError):
        return False


def _is_module(word: str) -> bool:
    from importlib.util import find_spec

    top = word.partition("::")[0].partition(".")[0]
    try:
        return top.isidentifier() and find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _without_keys(word: str) -> str:
    return _VALUE.sub(lambda match: f"://{MASK}@" if match[0].startswith("://") else MASK, word)
