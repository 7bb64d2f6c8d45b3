"""What a search has decided, kept in a file: only what was written by it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.bisecting import kept
from pytest_ngraph.bisecting.candidates import Candidate, Line
from pytest_ngraph.bisecting.judging import Judged
from pytest_ngraph.bisecting.search import Answer
from pytest_ngraph.errors import SpecError

BAD = Judged(Answer.BAD, "slower", "null batch1", 0.8, 0.79, 0.81, 4, 1, 7, (("test_it.py::test_it", "null batch1"),))
STEPS = [kept.Step(8, 0.002, BAD), kept.Step(4, 0.002, Judged(Answer.OPEN, "undecided", gates=1))]


def test_steps_are_read_back_as_they_were(tmp_path: Path) -> None:
    kept.write(tmp_path / "steps.json", "key", STEPS)

    assert kept.read(tmp_path / "steps.json", "key", 8) == STEPS


def test_without_a_file_nothing_was_decided(tmp_path: Path) -> None:
    assert kept.read(tmp_path / "steps.json", "key", 8) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("place", 0), ("place", 9), ("place", True), ("place", "8"), ("rate", 0), ("rate", 1.5), ("rate", None),
        ("answer", "worse"), ("answer", 1), ("reason", None), ("subject", 3), ("estimate", "0.8"), ("estimate", None),
        ("low", float("nan")), ("launches", -1), ("launches", 2.5), ("run", None), ("gates", "1"), ("claims", []),
        ("claims", [["one"]]), ("claims", [[1, 2]]), ("claims", "a"), ("more", 1),
    ],
)  # fmt: skip
def test_a_step_with_a_value_that_none_has_is_refused_with_the_file(tmp_path: Path, name: str, value: object) -> None:
    path = tmp_path / "steps.json"
    kept.write(path, "key", STEPS)
    data = json.loads(path.read_text())
    data["steps"][0][name] = value
    path.write_text(json.dumps(data))

    with pytest.raises(SpecError, match=r"steps\.json is not used: step 1 (has|is bad)") as caught:
        kept.read(path, "key", 8)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b"[" * 100_000, b'{"format": 1}',
     b'{"format": 2, "search": "key", "steps": []}', b'{"format": 1, "search": "other", "steps": []}',
     b'{"format": 1, "search": "key", "steps": {}}', b'{"format": 1, "search": "key", "steps": [3]}'],
)  # fmt: skip
def test_garbage_is_refused_with_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "steps.json"
    path.write_bytes(content)

    with pytest.raises(SpecError, match=r"steps\.json is not used: "):
        kept.read(path, "key", 8)


def test_a_candidate_that_was_decided_twice_is_refused(tmp_path: Path) -> None:
    kept.write(tmp_path / "steps.json", "key", [STEPS[0], STEPS[0]])
    with pytest.raises(SpecError, match="twice"):
        kept.read(tmp_path / "steps.json", "key", 8)


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "steps.json").mkdir()
    with pytest.raises(SpecError, match=r"steps\.json is not used: "):
        kept.read(tmp_path / "steps.json", "key", 8)
    with pytest.raises(SpecError, match="cannot be kept"):
        kept.write(tmp_path / "steps.json", "key", STEPS)


def test_what_decides_a_search_is_part_of_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test = tmp_path / "test_it.py"
    test.write_text("one")
    line = Line(Candidate("a", "a"), (Candidate("b", "b"),))

    def key(**other: Any) -> str:
        given = {"line": line, "rest": ["test_it.py::test_it"], "rate": 0.01, "budget": 16, **other}
        return kept.key_of(given["line"], given["rest"], given["rate"], given["budget"])

    first = key()
    assert key() == first
    others = {
        key(rate=0.02),
        key(budget=8),
        key(rest=["test_it.py"]),
        key(line=Line(line.good, (*line.candidates,) * 2)),
    }
    (tmp_path / "conftest.py").write_text("")
    others.add(key())
    (tmp_path / "conftest.py").unlink()
    test.write_text("another")
    others.add(key())
    assert len({first, *others}) == 7
