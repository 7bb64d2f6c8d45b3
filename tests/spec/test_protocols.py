"""The protocol that stored launches name: of one that is not known here nothing is promised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pytest_ngraph
from pytest_ngraph.spec.cells import PROTOCOLS, protocol_of


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_a_known_protocol_is_itself(name: str) -> None:
    assert protocol_of(name) is PROTOCOLS[name]


def test_one_of_another_version_is_read_like_gate_and_controls_no_error() -> None:
    found = protocol_of("next")
    assert (found.name, found.error_control, found.clean) == ("next", False, PROTOCOLS["gate"].clean)


def test_nobody_takes_an_unknown_protocol_for_a_gate() -> None:
    folder = Path(pytest_ngraph.__file__).parent
    found = [path.name for path in folder.rglob("*.py") if re.search(r"PROTOCOLS\.get\(", path.read_text("utf-8"))]
    assert found == ["cells.py"]
