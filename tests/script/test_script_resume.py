"""A script that is cut short, and one that waits: workers end, samples stay, and one run at a time measures."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pytest_ngraph.devices import lock
from pytest_ngraph.store.sqlite import Store
from tests.session.test_resume import HELD, children_of, stored, wait_until_held
from tests.support.scripts import finished, printed, run, start, write

pytestmark = pytest.mark.real
# Three launches for each of two groups, as in the suite of pytest's own tests of this.
SCRIPT = """
options = {"compiler": "null[fixed_us=1000,sample_us=100]", "baseline": "null[fixed_us=2000,sample_us=200]"}
with measure.session(**options, resume="resume" in sys.argv) as s:
    s.measure(model="block:conv", batches=[1, 4])
    s.measure(model="block:mha", batch=2)
    [session] = s._sessions.values()
    print(session.tally.measured_launches, session.tally.reused_launches)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def begun(folder: Path, source: str = SCRIPT) -> subprocess.Popen[str]:
    """Start a script which stays in its second launch."""
    process = start(folder, str(write(folder, f"import tests.support.held\n{source}")), **{HELD: "2"})
    wait_until_held(folder, 2)
    return process


def statuses(folder: Path) -> list[str]:
    with Store.open(folder / ".ngraph/results.sqlite", read_only=True) as store:
        return [row.status for row in store.runs()]


def test_ctrl_c_ends_the_workers_and_keeps_what_was_measured(folder: Path) -> None:
    process = begun(folder)
    workers = children_of(process)
    process.send_signal(signal.SIGINT)

    _, _, said = finished(process)

    assert "KeyboardInterrupt" in said
    assert "ngraph: cut short; what was measured is kept, resume=True goes on with this run" in said
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    assert statuses(folder) == ["interrupted"]
    kept = len(stored(folder))
    assert kept >= 1

    status, out, said = finished(start(folder, "bench.py", "resume"))
    assert status == 0, said
    assert "resuming the run of" in said
    new, reused = map(int, out.split())
    assert reused == kept
    assert new + reused >= 6
    assert statuses(folder) == ["finished"]


def test_an_interrupted_cell_of_a_notebook_ends_its_workers_and_leaves_the_session_usable(folder: Path) -> None:
    # As in a notebook: the interrupt ends what a cell does, and the session lives on.
    source = """
import psutil
s = measure.session(compiler="null[fixed_us=1000,sample_us=100]", baseline="null[fixed_us=2000,sample_us=200]")
for attempt in range(2):
    try:
        cells = s.measure(model="block:conv", batches=[1, 4])
    except KeyboardInterrupt:
        print("interrupted", psutil.Process().children(recursive=True))
[session] = s._sessions.values()
print(f"{cells!r}", session.tally.measured_launches - session.tally.invalid_launches, cells.bsr(4).value > 0)
s.close()
"""
    process = begun(folder, source)
    process.send_signal(signal.SIGINT)

    status, out, said = finished(process)

    assert status == 0, said
    assert out.startswith("interrupted []\ndevice local\n")
    # What the interrupted cell had finished counts for the next: each of three launches was measured once.
    assert out.split()[-2:] == ["3", "True"], said
    assert statuses(folder) == ["finished"]


def test_a_killed_script_loses_at_most_the_launch_in_flight(folder: Path) -> None:
    process = begun(folder)
    workers = children_of(process)
    process.kill()
    finished(process)

    assert psutil.wait_procs(workers, timeout=60)[1] == [], "the workers of a killed script must end with it"
    kept = len(stored(folder))
    assert kept >= 1
    # Without asking for it the next run counts them as well.
    status, out, said = run(folder, SCRIPT)
    assert status == 0, said
    assert int(out.split()[1]) == kept


def test_an_error_of_the_script_s_own_leaves_a_run_that_can_be_resumed_and_a_claim_does_not(folder: Path) -> None:
    body = 'with measure.session(**NULL) as s:\n    s.measure(model="block:conv")\n    {}\n'

    assert "ZeroDivisionError" in run(folder, body.format("1 / 0"))[2]
    assert "AssertionError" in run(folder, body.format("assert False"))[2]

    assert statuses(folder) == ["interrupted", "finished"]


@pytest.mark.parametrize(
    ("error", "status"),
    [("1 / 0", "interrupted"), ("raise KeyboardInterrupt", "interrupted"), ("assert False", "finished")],
)
def test_so_it_does_without_a_block(folder: Path, error: str, status: str) -> None:
    body = 's = measure.session(**NULL, export="x.csv")\ns.measure(model="block:conv")\n'
    code, _, said = run(folder, body + error)
    assert code
    assert statuses(folder) == [status]
    # Of what was cut short no file says that it is all.
    assert (folder / "x.csv").exists() == (status == "finished")
    assert ("resume=True goes on with this run" in said) == (status == "interrupted")


def test_it_waits_for_the_device_and_says_for_whom(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of this test alone: the machine's own is held by whatever else measures.
    monkeypatch.setenv("NGRAPH_TESTS_LOCKS", str(folder))
    monkeypatch.setattr(lock, "lock_path", lambda device: folder / f"{device}.lock")
    source = 'with measure.session(**NULL) as s: print(s.measure(model="block:conv").speedup.value > 1)\n'
    with lock.device_lock("local", waiting=lambda text: None):
        process = start(folder, str(write(folder, source)))
        assert process.stderr is not None
        said = process.stderr.readline()
        time.sleep(0.2)
        assert process.poll() is None
        assert not stored(folder)
    assert said.startswith("ngraph: waiting for device 'local', held by ")

    assert process.communicate(timeout=120)[0] == "True\n"


def test_one_that_nobody_closes_ends_with_its_process(folder: Path) -> None:
    out = printed(folder, 's = measure.session(**NULL, export="x.csv")\nprint(s.measure(model="block:conv").target)\n')

    assert out == "local:null[sample_us=20]\n"
    assert statuses(folder) == ["finished"]
    assert (folder / "x.csv").exists()
    assert sys.version_info >= (3, 10)
