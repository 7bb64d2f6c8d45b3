"""``ngraph agent`` whose processes are forked from what has imported their runtimes (``workers``).

``Lab(folder, agents=forking_agent.prepared(folder))``. What an agent starts for a request is a fork, and so are the
workers of that; a request with an interpreter of its own, or with variables that are read as a process starts, is
served as ever. How an agent starts, ends and loses what it started is asked of agents that fork nothing.

``workers`` sets variables when it is imported, which an agent would start again without, time after time: it is
imported in functions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pytest_ngraph.launches.process import OwnProcess

# Agents give up their environment when they start: this file of the lab says where to ask for forks.
_PLACE = "forks.json"
_THEIRS, _OURS = "pytest_ngraph.devices.agent.measuring", "tests.support.forking_agent"


def prepared(folder: Path) -> str:
    """Write into the folder of a lab where its agents ask for forks, and return the module that they run."""
    from tests.support import workers

    forks = {"address": workers.FORK_SERVER.start(), "variables": workers.FORK_SERVER.variables()}
    (folder / _PLACE).write_text(json.dumps(forks))
    return _OURS


def _forks(folder: str) -> dict[str, Any]:
    """Return what was written, by a folder below the lab's."""
    place = next(path for parent in Path(folder).parents if (path := parent / _PLACE).exists())
    forks: dict[str, Any] = json.loads(place.read_text())
    return forks


def begun(module: str, environment: Mapping[str, str], *words: str, **named: Any) -> OwnProcess:
    """Start what measures: in a fork, unless it needs another interpreter or sets what a fork is given."""
    from tests.support import workers

    assert module == _THEIRS
    forks = _forks(words[0])
    given: dict[str, str] = forks["variables"]
    if named.get("python") is not None or given.keys() & environment.keys() & workers.fixed().keys():
        return OwnProcess(_THEIRS, environment, *words, **named)
    _fork(forks["address"])
    return OwnProcess(_OURS, {**given, **environment, workers.ADDRESS: forks["address"]}, *words, **named)


@cache
def _fork(address: str) -> None:
    """Have what this process starts forked."""
    from tests.support import workers

    workers.fork_workers(address, others="measuring")


def main(words: Sequence[str]) -> None:
    """Measure, with workers that are forked: what the module that agents start does."""
    from pytest_ngraph.devices.agent import measuring
    from tests.support import workers

    # What a fork had to be given is none of what the agent and the registry gave.
    for name in _forks(words[3])["variables"].keys() & workers.fixed().keys():
        os.environ.pop(name, None)
    workers.fork_workers(os.environ.pop(workers.ADDRESS))
    measuring.main(list(words))


if __name__ == "__main__":
    from pytest_ngraph.cli import main as ngraph
    from pytest_ngraph.devices.agent import measuring_process

    setattr(measuring_process, "OwnProcess", begun)  # noqa: B010 - a class of theirs
    raise SystemExit(ngraph())
