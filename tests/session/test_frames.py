"""The way from an assertion to the commit of a visit: how many functions of ours a reader steps through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest_ngraph
from tests.conftest import Suite
from tests.session.test_session import SHORT
from tests.test_reading_order import reading_order

# Each has a job of its own: the assertion, its claim, the decision, the look (but at the first), the test's door to
# the session, the session (whose thread may be another), the group, the launch in the store, the device, the launch on
# it, its sink, the store.
MOST = 12

RECORD = f"""{SHORT}
import json, traceback
from pathlib import Path
import pytest_ngraph
from pytest_ngraph.store.sqlite import Store

committing, file = Store.commit, Path(__file__).with_name("frames.jsonl")

def commit(self):
    # One of ours for the frame of this one.
    stack = [*traceback.extract_stack()[:-1], traceback.FrameSummary(committing.__code__.co_filename, 1, "commit")]
    with file.open("a") as lines:
        lines.write(json.dumps([[frame.filename, frame.name] for frame in stack]) + "\\n")
    committing(self)

Store.commit = commit
"""


def stacks(folder: Path) -> list[list[str]]:
    """Return for each commit of a visit the functions of ours, from the assertion down to it."""
    house = str(Path(pytest_ngraph.__file__).parent)
    found = []
    for line in (folder / "frames.jsonl").read_text(encoding="utf-8").splitlines():
        ours = [f"{Path(file).stem}.{name}" for file, name in json.loads(line) if file.startswith(house)]
        first = next(place for place, name in enumerate(ours) if name.startswith("assertions.assert_"))
        found.append(ours[first:])
    return found


def test_few_functions_lead_from_an_assertion_to_the_commit_of_a_visit(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(RECORD)
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_fails(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=4.0)
@pytest.mark.ngraph(model="block:conv", batch=1, tolerance=1e-9, budget=8)
def test_goes_on(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.0)
""")

    same = ("--ngraph-compiler=null[fixed_us=1000]", "--ngraph-baseline=null[fixed_us=1000]")
    suite.bare(*same, "--ngraph-inconclusive=skip").assert_outcomes(failed=1, skipped=1)

    found = stacks(suite.path)
    assert all(stack[-1] == "sqlite.commit" for stack in found)
    first, *_, last = found
    assert "decide.rows_of" not in first, "the first look is the shortest way"
    assert "decide.rows_of" in last
    longest = max(found, key=len)
    assert len(longest) <= MOST, f"{len(longest)} frames: {' > '.join(longest)}"
    assert len(first) < MOST
    # CONTRIBUTING names all of them to who comes new, and of the helpers one.
    named = {f"{Path(path).stem}.{name.rpartition('.')[2]}" for path, names, _ in reading_order() for name in names}
    assert {name for stack in found for name in stack[1:]} - named == set()
    assert any(name.startswith("assertions.assert_") for name in named)
