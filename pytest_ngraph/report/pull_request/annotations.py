"""Workflow commands that GitHub shows beside the lines of a pull request: fails first, then what is undecided."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_ngraph import units
from pytest_ngraph.report.pull_request.gates import Gate, Gates
from pytest_ngraph.texts.shown import one_line

# GitHub shows no more of a kind for a step.
MOST = 10
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def commands(gates: Gates, path_of: Callable[[str], str]) -> list[str]:
    """Return a command a line. ``path_of`` makes a path of the repository of one from the rootdir."""
    failed = [*gates.failed, *gates.broken]
    return [*_commands("error", failed, "gate failed", "gates failed", path_of),
            *_commands("warning", gates.undecided, "gate is undecided", "gates are undecided", path_of)]  # fmt: skip


def _commands(kind: str, gates: Sequence[Gate], one: str, several: str, path_of: Callable[[str], str]) -> list[str]:
    shown = gates if len(gates) <= MOST else gates[: MOST - 1]
    lines = [_command(kind, gate, path_of) for gate in shown]
    if len(gates) > len(shown):
        left = units.count(len(gates) - len(shown), f"more {one}", f"more {several}")
        lines.append(f"::{kind} title=ngraph::{left}; the log and --ngraph-summary have them")
    return lines


def _command(kind: str, gate: Gate, path_of: Callable[[str], str]) -> str:
    said = [f"{gate.verdict}: {gate.claim}"]
    if gate.measured:
        said.append(f"{gate.measured}, {units.count(gate.launches, 'launch', 'launches')}; claimed {gate.bound}")
    if gate.why:
        said.append(gate.why)
    message = "\n".join(one_line(line) for line in [gate.nodeid, *said])
    path, line = (path_of(gate.noted.path), gate.noted.line) if gate.noted is not None else (gate.nodeid, 0)
    if gate.noted is None:
        # It was judged by a process that did not come to its end; the file is known all the same.
        path = path_of(gate.nodeid.partition("::")[0])
    place = [f"file={_property(path)}", *([f"line={line}"] if line else [])]
    title = _property(one_line(f"{gate.verdict} {gate.nodeid.rpartition('::')[2]}", 120))
    return f"::{kind} {','.join([*place, f'title={title}'])}::{message.translate(_DATA)}"


def _property(text: str) -> str:
    return text.translate(_PROPERTY)
