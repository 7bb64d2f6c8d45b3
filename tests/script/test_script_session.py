"""Measuring from a script: what it gives, claims, shows and writes, and what it shares with pytest runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from pytest_ngraph.store.sqlite import Store
from tests.conftest import ADAPTERS, ROOT, Suite, skip_without
from tests.support.git_repository import make
from tests.support.pages import blocks
from tests.support.scripts import OPTIONS, finished, printed, run, start, write


def launches(folder: Path) -> int:
    with Store.open(folder / ".ngraph" / "results.sqlite", read_only=True) as store:
        return sum(len(store.run_launches(run.id)) for run in store.runs())


def test_a_script_gets_what_a_test_gets(suite: Suite) -> None:
    out = printed(suite.path, """
with measure.session(**NULL) as s:
    one = s.measure(model="block:conv", batch=4)
    assert isinstance(one, Measurement) and one.target == "local:null[sample_us=20]"
    assert one.speedup.value > 2 and one.outcome == "ok"
    several = s.measure(model="block:conv", batch=[1, 8])
    assert isinstance(several, list) and [each.workload.batch for each in several] == [1, 8]
    assert_faster(several[1], several[0])
    assert [one.workload.batch for one in s.measure(model="block:conv", batch=[4])] == [4]
    sweep = s.measure(model="block:conv", batches=[2, 4])
    assert isinstance(sweep, BatchSweep) and list(sweep) == [1, 2, 4] and sweep.bsr(4).value > 1
    depths = s.measure(model="block:conv", depths=[3])
    assert isinstance(depths, DepthSweep) and list(depths) == [1, 3]
    models = s.measure(models=["block:conv", "block:mha"])
    assert isinstance(models, ModelSweep) and list(models) == ["block:conv", "block:mha"]
    two = s.measure(model="block:conv", batches=[2, 4], compilers=["null[sample_us=20]", "null[sample_us=40]"])
    assert [type(one) for one in two] == [BatchSweep, BatchSweep]
    assert [one.target for one in two] == ["local:null[sample_us=20]", "local:null[sample_us=40]"]
    fast, slow = s.measure(model="block:conv", compiler=["null[sample_us=20]", "null[sample_us=90]"])
    assert fast.throughput.value > slow.throughput.value
    other = s.measure(model="block:conv", baseline="null[sample_us=50]")
    assert str(other.baseline.compiler) == "null[sample_us=50]"
    # Each is shown beside its own baseline, and what was measured before stays what it was.
    assert "null[sample_us=50]" in repr(other) and "null[sample_us=50]" not in repr(one)
print("all of it")
""")  # fmt: skip

    assert "all of it" in out


def test_a_script_and_pytest_count_each_other_s_launches(suite: Suite) -> None:
    (suite.path / "pytest.ini").write_text("[pytest]\nngraph_seed = 5\naddopts = --ngraph-threads=1\n")
    suite.write('@pytest.mark.ngraph(model="block:conv", batch=[1, 8])\ndef test_it(ngraph_cell): pass\n')
    script = """
with measure.session(**NULL) as s:
    s.measure(model="block:conv", batch=1), s.measure(model="block:conv", batch=8)
    print(s.settings.seed, s.settings.threads, *(one.tally.measured_launches for one in s._sessions.values()))
"""
    # From another folder of the project, as its tests are.
    assert printed(suite.path, script, name="tools/bench.py").split() == ["5", "1", "2"]

    result = suite.bare(*OPTIONS)

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*measured 0 launches*, reused 2 from the store*"])
    (suite.path / ".ngraph" / "results.sqlite").unlink()
    suite.bare(*OPTIONS).assert_outcomes(passed=2)
    assert printed(suite.path, script, name="tools/bench.py").split() == ["5", "1", "0"]
    assert launches(suite.path) == 2


@pytest.mark.real
def test_they_do_so_for_a_model_of_the_project_s_own(suite: Suite) -> None:
    (suite.path / "pytest.ini").write_text("[pytest]\n")
    (suite.path / "models.py").write_text("""
import torch
from layers import Layer
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Layer()
    def forward(self, x):
        return self.layer(x)
    def example_inputs(self, batch):
        return torch.randn(batch, 64)
""")
    (suite.path / "layers.py").write_text(
        "import torch\nclass Layer(torch.nn.Linear):\n    def __init__(self): super().__init__(64, 64)\n"
    )
    marker = '@pytest.mark.ngraph(model="models.py:Net", batch=2, compilers="torchscript")'
    suite.write(f"{marker}\ndef test_it(ngraph_cell): pass\n", "checks/test_it.py")
    out = printed(suite.path, """
if __name__ == "__main__":
    with measure.session(protocol="quick") as s:
        print(s.measure(model="models.py:Net", batch=2, compilers="torchscript"))
""", name="tools/bench.py")  # fmt: skip
    assert "torchscript" in out

    plugins = suite.bare("--ngraph-protocol=quick", plugins="tests.support.brief")

    plugins.stdout.fnmatch_lines(["*measured 0 launches*, reused 1 from the store*"])


def test_a_claim_says_what_it_says_in_a_test(suite: Suite) -> None:
    script = """
with measure.session(**NULL, quick_gates="fail") as s:
    cell = s.measure(model="block:conv", batch=8)
    assert_speedup(cell, at_least=1.5)
    try:
        assert_speedup(cell, at_least=50)
    except AssertionError as error:
        open("said.txt", "w").write(str(error))
    assert [row.verdict for row in s.verdicts] == ["not judged", "fail"]
    print(s)
"""
    out = printed(suite.path, script)
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=8)
def test_it(ngraph_cell):
    with pytest.raises(AssertionError) as failed:
        assert_speedup(ngraph_cell, at_least=50)
    with open("test.txt", "w") as file:
        file.write(str(failed.value))
""")
    result = suite.bare(*OPTIONS, "--ngraph-quick-gates=fail")

    result.assert_outcomes(passed=1)
    said = (suite.path / "said.txt").read_text()
    assert "claimed at least 50" in said
    assert said == (suite.path / "test.txt").read_text()
    # What was judged is kept under the script's name, and shown.
    assert "FAIL bench.py::measure" in out
    assert "verdicts: 1 fail, 1 not judged" in out
    with Store.open(suite.store, read_only=True) as store:
        first = store.verdicts(store.runs()[0].id)
    assert {row.nodeid for row in first} == {"bench.py::measure"}


def test_what_is_not_decided_is_a_warning_unless_it_shall_fail(suite: Suite) -> None:
    out = printed(suite.path, """
import warnings
terms = {**NULL, "protocol": "gate", "budget": 3}
with measure.session(**terms) as s:
    cell = s.measure(model="block:conv", batch=8)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert_speedup(cell, at_least=cell.speedup.value, tolerance=1e-9)
    assert [one.category for one in seen] == [InconclusiveWarning], seen
    print(seen[0].filename, str(seen[0].message).splitlines()[2])
with measure.session(**terms, inconclusive="fail") as s:
    cell = s.measure(model="block:conv", batch=8)
    try:
        assert_speedup(cell, at_least=cell.speedup.value, tolerance=1e-9)
    except AssertionError as error:
        print("raised", str(error).splitlines()[2])
""", CI="1")  # fmt: skip

    warned, raised = out.splitlines()
    assert warned.startswith(f"{suite.path / 'bench.py'}   inconclusive: ")
    assert raised.startswith("raised   inconclusive: ")


def test_compilers_that_cannot_are_in_the_table_and_said_where_they_are_asked_for(suite: Suite) -> None:
    (suite.path / "adapters.py").write_text(ADAPTERS)
    names = ("mine", "broken", "choosy", "picky", "crashing", "absent")
    added = {name: f"adapters:{name.upper()}" for name in names}
    out = printed(suite.path, f"""
from pytest_ngraph import CellFailed, NarrowedAway
added = {added}
if __name__ == "__main__":
    with measure.session(protocol="quick", baseline="null", add_compilers=added) as s:
        cells = s.measure(model="block:conv", compilers=["mine", "broken", "choosy", "picky", "crashing"])
        print(cells)
        assert cells[0].speedup.value > 0 and [str(one.outcome) for one in cells[1:]] == [
            "failed", "unsupported", "unsupported", "crash"
        ]
        for cell in cells[1:]:
            try:
                cell.latency
            except CellFailed as error:
                print("asked:", type(error).__name__, error)
        try:
            assert_outputs_match(cells[0])
        except NarrowedAway as error:
            print("asked:", type(error).__name__, error)
        try:
            s.measure(model="block:conv", compilers=["mine", "absent"])
        except NgraphError as error:
            print("asked:", type(error).__name__, error)
    print(cells._repr_html_())
    with measure.session(protocol="quick", baseline="null", add_compilers=added, strict=True) as s:
        try:
            s.measure(model="block:conv", compilers=["mine", "picky"])
        except NgraphError as error:
            print("asked:", type(error).__name__, error)
""")  # fmt: skip

    table, *asked = out.partition("asked:")[0], *[line for line in out.splitlines() if line.startswith("asked:")]
    assert "the graph has a cycle" in table
    assert "picky on block:conv batch1: unsupported: it only runs on Sundays" in table
    assert max(map(len, table.splitlines())) <= 80
    assert asked[0] == "asked: CellFailed local:broken block:conv batch1: failed: the graph has a cycle"
    assert "unsupported: it only runs on Sundays" in asked[2]
    assert "mine block:conv batch1 has no outputs to compare" in asked[4]
    assert "absent on local: not installed" in asked[5]
    assert asked[6] == "asked: CellFailed local:picky block:conv batch1: unsupported: it only runs on Sundays"
    assert "<td>unsupported</td>" in out


def test_files_are_written_while_it_is_open_and_afterwards(suite: Suite) -> None:
    pytest.importorskip("altair")
    out = printed(suite.path, """
import os
with measure.session(**NULL, export=["at-end.csv", "at-end.json"], benchmark_json="end.json") as s:
    for asked in (s.report, s.export):
        try:
            asked("x.html")
        except NgraphError as error:
            print(error)
    s.measure(model="block:conv", batch=[1, 8])
    print(os.path.basename(s.export("in.csv")))
    try:
        s.report("x.pdf")
    except NgraphError as error:
        print(error)
print(os.path.basename(s.report("after.html")), os.path.basename(s.benchmark_json("b.json")))
assert open("in.csv").read().splitlines()[1:] and open("in.csv").read() == open("at-end.csv").read()
""")  # fmt: skip

    lines = out.splitlines()
    assert lines[0] == "measure: nothing was measured in this session yet"
    assert lines[1].startswith("measure: export: 'x.html' is not allowed (expected a file name that ends in .csv")
    assert lines[2:] == [
        "in.csv",
        "measure: report: 'x.pdf' is not allowed (expected a file name that ends in .html)",
        "after.html b.json",
    ]
    assert "null[sample_us=20]" in (suite.path / "after.html").read_text()
    assert len(json.loads((suite.path / "end.json").read_text())["benchmarks"]) == 4
    assert (suite.path / "at-end.json").exists()


def test_when_it_is_over_numbers_stay_and_nothing_more_is_measured_or_claimed(suite: Suite) -> None:
    out = printed(suite.path, """
s = measure.session(**NULL)
cells = s.measure(model="block:conv", batch=[1, 8])
s.close()
s.close()
print(cells[1].speedup.value > 1, "batch" in repr(cells))
for ask in (
    lambda: s.measure(model="block:conv"),
    lambda: assert_speedup(cells[0], at_least=1),
    lambda: cells[0].peak_memory_bytes,
):
    try:
        ask()
    except NgraphError as error:
        print(type(error).__name__, error)
""")  # fmt: skip

    assert out.splitlines()[0] == "True True"
    assert out.splitlines()[1].startswith("ClaimError measure: this session is closed")
    assert all("StoreError" in line and "this run has ended" in line for line in out.splitlines()[2:])
    assert len(out.splitlines()) == 4
    with Store.open(suite.store, read_only=True) as store:
        assert [run.status for run in store.runs()] == ["finished"]


def test_offline_shows_what_is_stored_and_measures_nothing(suite: Suite) -> None:
    printed(suite.path, 'with measure.session(**NULL) as s: s.measure(model="block:conv", batch=1)')

    out = printed(suite.path, """
with measure.session(**NULL, offline=True) as s:
    cells = s.measure(model="block:conv", batch=[1, 8])
    alone = s.measure(model="block:conv", batch=1)
    print(alone.speedup.value > 1, cells)
    try:
        cells[1].speedup
    except Exception as error:
        print(type(error).__name__, error)
    s.export("x.csv")
""")  # fmt: skip

    assert out.startswith("True device local")
    assert "NotStored" in out
    assert "not in the store" in out
    assert launches(suite.path) == 1
    assert "speedup" in (suite.path / "x.csv").read_text()


def test_offline_files_are_of_the_run_that_has_the_cells(suite: Suite) -> None:
    for batch in (1, 8):
        printed(suite.path, f'with measure.session(**NULL) as s: s.measure(model="block:conv", batch={batch})')

    out = printed(suite.path, """
with measure.session(**NULL, offline=True) as s:
    s.measure(model="block:conv", batch=1)
    s.export("x.csv"), s.benchmark_json("b.json")
with measure.session(**NULL, offline=True, seed=7) as s:
    s.measure(model="block:conv", batch=1)
    try:
        s.export("none.csv")
    except Exception as error:
        print(type(error).__name__, error)
""")  # fmt: skip

    with (suite.path / "x.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["run"], row["batch"]) for row in rows} == {("1", "1")}
    timed = json.loads((suite.path / "b.json").read_text())
    assert timed["ngraph"] == {"run": 1, "digest": rows[0]["digest"]}
    assert {entry["group"] for entry in timed["benchmarks"]} == {"block:conv batch1"}
    assert "StoreError" in out
    assert "from seed 7 has these cells" in out
    assert not (suite.path / "none.csv").exists()


@pytest.mark.real
def test_the_script_of_the_docs_runs(suite: Suite) -> None:
    skip_without("torch", "timm", "onnxruntime", "openvino", "onnx")
    (suite.path / "pytest.ini").write_text("[pytest]\nngraph_protocol = quick\n")
    first, own = (block.code for block in blocks(ROOT / "docs" / "script.md") if block.info == "python")

    own = own.replace("batch=8", "batch=8, compilers='torchscript'")
    # Two threads beside other tests wait for one another, for as long as warming up may take.
    first, own = (f"import tests.support.one_thread\n{code}" for code in (first, own))

    out = printed(suite.path, first)

    assert "onnxruntime" in out
    assert (suite.path / "resnet18.csv").exists()
    assert "bench.py:Net" in printed(suite.path, own)


# Models and places


def test_a_class_is_refused_with_how_to_name_it(suite: Suite) -> None:
    process = start(suite.path, "-c", """
from pytest_ngraph import measure
class Net: pass
measure.session().measure(model=Net)
""")  # fmt: skip

    status, _, said = finished(process)

    assert status == 1
    assert 'is not a text; write "path/file.py:NAME", the file and the name that it has there' in said
    assert not suite.store.exists()


@pytest.mark.real
def test_a_script_whose_own_model_it_measures_needs_its_guard(suite: Suite) -> None:
    status, out, said = run(suite.path, """
import torch
class Net(torch.nn.Linear):
    def __init__(self): super().__init__(8, 8)
    def example_inputs(self, batch): return torch.randn(batch, 8)
with measure.session(protocol="quick") as s:
    print(s.measure(model="bench.py:Net", compilers="torchscript"))
""")  # fmt: skip

    assert status == 0, said
    assert 'put what measures below if __name__ == "__main__":' in " ".join(out.split())


def test_a_notebook_measures_and_shows_tables(suite: Suite) -> None:
    source = write(suite.path, """
s = measure.session(**NULL)
cells = s.measure(model="block:conv", batch=[1, 8])
shown = cells._repr_html_(), s._repr_html_(), cells[0]._repr_html_()
assert all(one.startswith("<table><caption>device local") for one in shown)
assert "IPython" not in sys.modules
s.close()
print(s.report("x.html").name)
""").read_text()  # fmt: skip
    pytest.importorskip("altair")
    # What a kernel runs has no file.
    status, out, said = finished(start(suite.path, "-c", f"exec({source!r}, {{'__name__': '__main__'}})"))

    assert (status, out) == (0, "x.html\n"), said
    assert suite.store.exists()


def test_importing_the_package_does_not_import_it(suite: Suite) -> None:
    process = start(suite.path, "-c", """
import sys, pytest_ngraph
before = "pytest_ngraph.measure" in sys.modules
from pytest_ngraph import measure
print(before, "numpy" in sys.modules, "pytest_ngraph.script" in sys.modules, measure.session.__name__)
""")  # fmt: skip

    assert finished(process)[1] == "False False False session\n"


def test_a_script_compares_two_sides(suite: Suite) -> None:
    """A null is the same on both sides, and measured on the other one where that is asked."""
    make(suite.path, {".gitignore": ".ngraph/\n"})
    script = """
with measure.session(**NULL, against="{side}") as s:
    cell = s.measure(model="block:conv", batch=1)
    change = assert_no_slower(cell)
    print("launches", change.launches, cell.is_unchanged)
"""

    assert "launches 0 True" in printed(suite.path, script.format(side="HEAD"))
    assert "launches 1 False" in printed(suite.path, script.format(side="HEAD,always"))
    assert "a git revision such as main" in run(suite.path, script.format(side="HEAD,main"))[2]
