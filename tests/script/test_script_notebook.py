"""A notebook: what a real Jupyter shows of a session, the line of its progress, and a cell that is interrupted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.session.test_resume import HELD, wait_until_held
from tests.support.scripts import environment, finished, start, write

pytestmark = pytest.mark.real

SESSION = """
import tests.support.undisturbed, tests.support.brief
from pytest_ngraph import *
from pytest_ngraph import measure
s = measure.session(compiler="null[sample_us=20]", baseline="null[sample_us=200]", protocol="quick")
"""
# Of IPython only what is asked of it, as it is: its display protocol, and that it has a kernel.
PRETENDED = """
import sys, types

class Shell:
    kernel = KERNEL

shown = []
ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
module.display = lambda bundle, **how: shown.append((bundle["text/plain"], how))
ipython.display, ipython.get_ipython = module, Shell
sys.modules |= {"IPython": ipython, "IPython.display": module}
"""
MEASURED = """
from pytest_ngraph.script import progress
with measure.session(**NULL) as s:
    print(type(s._progress).__name__)
    for batch in (1, 8):
        s._progress._shown_at = 0.0
        s.measure(model="block:conv", batch=batch)
for text, how in shown:
    assert how["raw"] is True and len(how["display_id"]) == 32
print(len({how["display_id"] for _, how in shown}), [how["update"] for _, how in shown].count(False))
print({text.partition(" ")[0] for text, _ in shown}, shown[-1][0] == "")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_the_line_of_progress_in_a_notebook_is_that_of_its_cell_and_goes(folder: Path) -> None:
    source = PRETENDED.replace("KERNEL", "object()") + MEASURED
    status, out, said = finished(start(folder, str(write(folder, source))))

    assert status == 0, said
    # One line for each cell, and what stays is no error.
    lines = [line for line in out.splitlines() if not line.startswith("ngraph: ")]
    assert lines[:2] == ["NotebookProgress", "2 2"]
    assert lines[2:] in (["{'ngraph:', ''} True"], ["{'', 'ngraph:'} True"])
    assert "ngraph: measuring local block:conv: " in out
    assert said == ""


def test_ipython_on_a_terminal_is_no_notebook(folder: Path) -> None:
    source = PRETENDED.replace("KERNEL", "None") + MEASURED.partition("for text")[0]
    status, out, said = finished(start(folder, str(write(folder, source))))

    assert status == 0, said
    assert out == "StreamProgress\n"
    assert "ngraph: measuring local block:conv: " in said


def executed(folder: Path, *sources: str) -> list[Any]:
    """Run the cells of a notebook in a folder, and return them with their outputs. Skip without Jupyter."""
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    where: Mapping[str, Any] = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute(env=environment())
    return list(notebook.cells)


def test_jupyter_shows_tables_and_claims(folder: Path) -> None:
    _, measured, claimed, whole, _ = executed(
        folder,
        SESSION,
        'cells = s.measure(model="block:conv", batch=[1, 8])\ncells',
        "assert_speedup(cells[1], at_least=1.2)",
        "s",
        "s.close()",
    )
    results = [output for output in measured.outputs if output.output_type == "execute_result"]
    assert [set(result.data) for result in results] == [{"text/plain", "text/html"}]
    assert results[0].data["text/plain"].startswith("device local\n")
    assert results[0].data["text/html"].startswith("<table")
    assert claimed.outputs[-1].data["text/plain"].startswith("Estimate(metric='speedup'")
    assert whole.outputs[-1].data["text/html"].startswith("<table")
    # The line of progress is empty, and what stays is no error.
    lines = [output for output in measured.outputs if output.output_type == "display_data"]
    assert {line.data["text/plain"] for line in lines} <= {""}
    assert [output.name for output in measured.outputs if output.output_type == "stream"] == ["stdout"]


def test_an_interrupted_cell_of_jupyter_leaves_its_session_usable(folder: Path) -> None:
    pytest.importorskip("ipykernel")
    start_new_kernel = pytest.importorskip("jupyter_client.manager").start_new_kernel
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder), env=environment())

    def run(source: str) -> Any:
        reply = client.execute_interactive(source, timeout=120, output_hook=lambda message: None)
        return reply["content"]

    try:
        # Long enough to be interrupted.
        slow = SESSION.replace("sample_us", "fixed_us=1000,sample_us").replace(', protocol="quick"', "")
        held = f'import os\nos.environ["{HELD}"] = "2"\nimport tests.support.held\n'
        assert run(held + slow)["status"] == "ok"
        message = client.execute('cells = s.measure(model="block:conv", batches=[1, 4])')
        wait_until_held(folder, 2)
        children = psutil.Process(manager.provisioner.pid).children(recursive=True)
        assert children
        manager.interrupt_kernel()
        while (reply := client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != message:
            pass
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert psutil.wait_procs(children, timeout=60)[1] == []
        assert run('cells = s.measure(model="block:conv", batches=[1, 4])\ncells.bsr(4)')["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
