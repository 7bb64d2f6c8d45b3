"""Launches beyond the first look: what an undecided gate is about, and what no claim could be sure of either."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite
from tests.support import busy_project
from tests.support.busy_project import slower
from tests.support.git_repository import commit, git
from tests.support.pretended import CONFTEST, TWICE, Pretended

# Calls of these batches, or of these lengths, are a tenth slower or faster than usual from launch to launch. A line of
# the log has the batches of a launch's cells, that of a second process of a baseline with a "+".
SCATTERING = CONFTEST.replace(
    "        sink.prepared(cell,",
    "        is_noisy = cell.workload.batch in NOISY or dict(cell.compiler.options).get('fixed_us') in NOISY\n"
    "        if is_noisy and str(cell.compiler) not in baselines:\n"
    "            wall_ns[cell] *= 0.9 if number % 2 else 1.1\n"
    "        sink.prepared(cell,",
).replace(
    'log.write(f"{time.time()}\\n")',
    'log.write(" ".join(f"{cell.workload.batch}{\'+\' * cell.replica}" for cell in plan.cells) + "\\n")',
)
# Each passes above 1.89x, which launches that scatter by a tenth cannot tell.
IN_ONE_TEST = """
@pytest.mark.ngraph(model="block:conv", batches=[1, 4, 8])
def test_all(ngraph_batches):
    for batch in (8, 4, 1):
        with contextlib.suppress(pytest.skip.Exception):
            assert_speedup(ngraph_batches[batch], at_least=1.99)
    {further}
"""
BY_TEST = """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_each(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.99)
"""


def run(
    suite: Suite, body: str, *noisy: int | str, options: Sequence[str] = TWICE, again: bool = False
) -> list[Counter[str]]:
    """Run a suite whose ``noisy`` cells scatter and return the cells of its launches: two of a batch, and a "+"."""
    if not again:
        (suite.path / "conftest.py").write_text(f"NOISY = {noisy}\n{SCATTERING}")
        suite.write(f"import contextlib\n{body}")
    result = suite.bare(*options, "--ngraph-inconclusive=skip", "-rs")
    assert result.ret == 0, result.stdout.str()
    return [Counter(line.split()) for line in (suite.path / "measured.log").read_text().splitlines()]


def verdicts(suite: Suite) -> dict[str, tuple[str, int]]:
    with Store.open(suite.store, read_only=True) as store:
        rows = store.verdicts(store.runs()[-1].id)
    return {f"{row.nodeid}: {row.claim}": (row.verdict, row.launches) for row in rows}


@pytest.fixture
def pretended(suite: Suite) -> Suite:
    return Pretended(suite.pytester)


def test_only_what_an_undecided_gate_compares_is_launched_on(pretended: Suite) -> None:
    launches = run(pretended, IN_ONE_TEST.format(further=""), 8)

    assert len(launches) == 16
    assert all(one == {"1": 2, "4": 2, "8": 2, "1+": 1} for one in launches[:3])
    # Each has its control as well.
    assert all(one == {"8": 2, "8+": 1} for one in launches[3:])
    assert sorted(verdicts(pretended).values()) == [("inconclusive", 16), ("pass", 3), ("pass", 3)]


@pytest.mark.parametrize(("noisy", "along"), [(("1000",), 2), (("1000", "1001"), 3)], ids=["one", "both"])
def test_a_test_to_come_goes_along_where_its_launches_scatter_too(
    pretended: Suite, noisy: tuple[str, ...], along: int
) -> None:
    compilers = ("--ngraph-compiler=null[fixed_us=1000],null[fixed_us=1001]", TWICE[1])

    launches = run(pretended, BY_TEST, *noisy, options=compilers)

    assert len(launches) == 16
    assert all(one == {"1": 3, "1+": 1} for one in launches[:3])
    assert all(one == {"1": along, "1+": 1} for one in launches[3:])
    second = ("pass", 3) if along == 2 else ("inconclusive", 16)
    assert sorted(verdicts(pretended).values()) == sorted([("inconclusive", 16), second])


def test_what_scatters_as_much_comes_along_and_is_not_measured_again(pretended: Suite) -> None:
    launches = run(pretended, IN_ONE_TEST.format(further=""), 8, 1)

    assert len(launches) == 16
    assert all(one == {"1": 2, "8": 2, "1+": 1} for one in launches[3:])
    assert sorted(verdicts(pretended).values()) == [("inconclusive", 16), ("inconclusive", 16), ("pass", 3)]


def test_a_claim_over_all_cells_gets_launches_that_hold_all_of_them(pretended: Suite) -> None:
    claim = "assert_bsr(ngraph_batches, batch=8, at_least=0.99)"

    launches = run(pretended, IN_ONE_TEST.format(further=claim), 8)

    whole = [one for one in launches if {"1", "8"} <= one.keys()]
    rested_on = [count for verdict, count in verdicts(pretended).values() if verdict == "inconclusive"]
    # The first three launches serve both, and those of the speed-up are of no use to the ratio of batches.
    assert rested_on == [16, 16]
    assert (len(whole), len(launches)) == (16, 29)


def test_what_was_launched_apart_is_judged_again_as_it_was(pretended: Suite) -> None:
    before = run(pretended, IN_ONE_TEST.format(further=""), 8)
    judged = verdicts(pretended)

    after = run(pretended, IN_ONE_TEST.format(further=""), 8, again=True)

    assert after == before
    assert verdicts(pretended) == judged


# All are slower than is claimed, by less than needs no confirmation.
FAILING = """
@pytest.mark.ngraph(model="block:conv", batches=[1, 4, 8])
def test_all(ngraph_batches):
    for batch, bound in ((8, 2.2), (4, {bound}), (1, 2.2)):
        with contextlib.suppress(AssertionError, pytest.skip.Exception):
            assert_speedup(ngraph_batches[batch], at_least=bound)
"""
FAILING_BY_TEST = """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_each(ngraph_cell):
    with contextlib.suppress(AssertionError, pytest.skip.Exception):
        assert_speedup(ngraph_cell, at_least=2.2)
"""


@pytest.mark.parametrize(("bound", "verdict"), [(2.2, ("fail", 7)), (1.9, ("pass", 3)), (5.0, ("fail", 3))])
def test_what_fails_alike_is_confirmed_by_the_same_launches(
    pretended: Suite, bound: float, verdict: tuple[str, int]
) -> None:
    """Of another bound nobody knows before it is claimed: its cell came along in vain. Each rests on its own looks."""
    launches = run(pretended, FAILING.format(bound=bound))

    assert len(launches) == 7
    assert all(one == {"1": 2, "4": 2, "8": 2, "1+": 1} for one in launches[:3])
    assert all({"1", "4", "8"} <= one.keys() for one in launches[3:])
    assert sorted(verdicts(pretended).values()) == sorted([("fail", 7), verdict, ("fail", 7)])


@pytest.mark.parametrize(
    ("other", "along", "verdict"),
    [(1001, True, ("fail", 7)), (900, False, ("pass", 3)), (3000, False, ("fail", 3))],
    ids=["as slow", "fast enough", "far too slow"],
)
def test_a_test_to_come_is_confirmed_along_where_its_launches_fail_too(
    pretended: Suite, other: int, along: bool, verdict: tuple[str, int]
) -> None:
    compilers = (f"--ngraph-compiler=null[fixed_us=1000],null[fixed_us={other}]", TWICE[1])

    launches = run(pretended, FAILING_BY_TEST, options=compilers)

    assert len(launches) == 7
    assert all(one["1"] == (3 if along else 2) for one in launches[3:])
    assert sorted(verdicts(pretended).values()) == sorted([("fail", 7), verdict])


def test_what_was_confirmed_along_is_judged_again_as_it_was(pretended: Suite) -> None:
    before = run(pretended, FAILING.format(bound=2.2))
    judged = verdicts(pretended)

    assert run(pretended, FAILING.format(bound=2.2), again=True) == before
    assert verdicts(pretended) == judged


CHANGED = """
@pytest.mark.ngraph(model="block:conv", batches=[1, 4])
def test_all(ngraph_batches):
    for batch in (1, 4):
        with contextlib.suppress(AssertionError, pytest.skip.Exception):
            assert_no_slower(ngraph_batches[batch])
"""
CHANGED_BY_TEST = """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_each(ngraph_cell):
    with contextlib.suppress(AssertionError, pytest.skip.Exception):
        assert_no_slower(ngraph_cell)
"""


@pytest.mark.parametrize(
    ("there", "along", "verdict"),
    [(0.9, True, ("fail", 7)), (1.0, False, ("pass", 3)), (0.5, False, ("fail", 3))],
    ids=["as slow", "as before", "far slower"],
)
def test_changes_that_fail_alike_are_confirmed_by_the_same_launches(
    pretended: Suite, there: float, along: bool, verdict: tuple[str, int]
) -> None:
    """On the other side calls of batch 1 take nine tenths of the time, and those of batch 4 ``there``."""
    (pretended.path / ".gitignore").write_text(".ngraph/\n__pycache__/\nmeasured.log\n")
    quicker = f"        if cell.side:\n            wall_ns[cell] *= {{1: 0.9, 4: {there}}}[cell.workload.batch]\n"
    text = SCATTERING.replace("        sink.prepared(cell,", quicker + "        sink.prepared(cell,")
    (pretended.path / "conftest.py").write_text(f"NOISY = ()\n{text}")
    pretended.write(f"import contextlib\nfrom pytest_ngraph import assert_no_slower\n{CHANGED}")
    git(pretended.path, "init", "-q", "-b", "main")
    commit(pretended.path, {}, "base")
    launches = []
    for _ in range(2):
        launches.append(run(pretended, "", options=(*TWICE, "--ngraph-against=main,always"), again=True))
        assert sorted(verdicts(pretended).values()) == sorted([("fail", 7), verdict])

    assert len(launches[0]) == 7
    assert all(("4" in one) == along for one in launches[0][3:])
    assert launches[1] == launches[0], "what is stored is not measured again"


def test_what_has_no_time_comes_along_with_nobody(pretended: Suite) -> None:
    """How it compares is unknown however many launches there are: its baseline would be measured in all of them."""
    broken = (
        "Outcome.UNSUPPORTED if (cell.workload.batch, str(cell.compiler)) == (4, 'null[fixed_us=1000]') else Outcome.OK"
    )
    text = SCATTERING.replace("CompileRecord(Outcome.OK", f"CompileRecord({broken}")
    (pretended.path / "conftest.py").write_text(f"NOISY = (8,)\n{text}")
    pretended.write(f"import contextlib\n{IN_ONE_TEST.format(further='')}")

    launches = run(pretended, "", again=True)

    assert len(launches) == 16
    assert all(one == {"8": 2, "8+": 1} for one in launches[3:])


def test_what_is_the_same_on_the_other_side_comes_along_with_nobody(pretended: Suite) -> None:
    text = SCATTERING.replace(
        "        sink.prepared(cell,",
        "        if cell.compiler.name == 'mine' and not cell.side:\n"
        "            wall_ns[cell] *= 0.9 if number % 2 else 1.1\n"
        "        sink.prepared(cell,",
    )
    busy_project.write(pretended.path)
    (pretended.path / ".gitignore").write_text(".ngraph/\n__pycache__/\nmeasured.log\n")
    (pretended.path / "conftest.py").write_text(f"NOISY = ()\n{text}\n{busy_project.CONFTEST}")
    pretended.write(f"import contextlib\nfrom pytest_ngraph import assert_no_slower\n{CHANGED_BY_TEST}")
    commit(pretended.path, {}, "base")
    slower(pretended.path)
    compilers = ("--ngraph-compiler=mine,null[fixed_us=1000]", TWICE[1])

    launches = run(pretended, "", options=(*compilers, "--ngraph-against=main"), again=True)

    assert len(launches) == 16
    # Both sides of the one, with its baseline and the control of that.
    assert all(one == {"1": 3, "1+": 1} for one in launches[3:])


def test_after_a_long_launch_that_did_not_count_nothing_comes_along(pretended: Suite) -> None:
    text = SCATTERING.replace(
        'lambda *_: ""', 'lambda *_: "stolen" if len(LOG.read_text().splitlines()) == 4 else ""'
    ).replace("local.run_launch =", "group_runner._LONG_LAUNCH_SECONDS = 0\nlocal.run_launch =")
    conftest = f"NOISY = ()\nfrom pytest_ngraph.session import group_runner\n{text}"
    (pretended.path / "conftest.py").write_text(conftest)
    pretended.write(f"import contextlib\n{FAILING.format(bound=2.2)}")

    launches = run(pretended, "", again=True)

    assert {"1", "4", "8"} <= launches[3].keys()
    assert all(one == {"8": 2, "8+": 1} for one in launches[4:8])
    assert sorted(verdicts(pretended).values()) == [("fail", 7)] * 3
