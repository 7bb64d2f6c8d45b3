"""``ngraph agent`` on a machine of ``fake_machine``: ``-m tests.support.fake_machine_agent agent NAME``.

What measures for it is started as a module of its own, which installs the machine first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_ngraph.cli import main as ngraph
from pytest_ngraph.devices.agent import measuring_process
from pytest_ngraph.launches.process import OwnProcess

VARIABLE = "NGRAPH_TESTS_MACHINE"
# Agents give up their environment when they start: this file of the lab says where the machine is.
PLACE = "fake-machine"
_THEIRS, _OURS = "pytest_ngraph.devices.agent.measuring", "tests.support.fake_machine_agent"


def begun(module: str, environment: Mapping[str, str], *words: str, **named: Any) -> OwnProcess:
    """Start what measures, with the machine's root beside what agents give. Its folder is the first of the words."""
    assert module == _THEIRS
    place = next(path for folder in Path(words[0]).parents if (path := folder / PLACE).exists())
    return OwnProcess(_OURS, {**environment, VARIABLE: place.read_text()}, *words, **named)


def main(words: Sequence[str]) -> None:
    """Measure on the machine: what the module that agents start does."""
    from pytest_ngraph.devices.agent import measuring

    # The first installs the machine; with the other its real clocks are not read, whatever else runs.
    from tests.support import fake_machine, undisturbed  # noqa: F401

    measuring.main(list(words))


if __name__ == "__main__":
    setattr(measuring_process, "OwnProcess", begun)  # noqa: B010 - a class of theirs
    raise SystemExit(ngraph())
