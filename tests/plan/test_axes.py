"""The table of axes: what derives from it, an axis that is added to it, and those of other versions."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph import axes, plugin
from pytest_ngraph.errors import SpecError, StoreError
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.options.table import ROWS
from pytest_ngraph.report.export.tables import TIDY_TYPES
from pytest_ngraph.report.html.content import cell_row
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Workload
from pytest_ngraph.store import schema
from pytest_ngraph.store.soundness import wrong_tables
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.kinds.axes import axis_values
from tests.conftest import ROOT, Suite, skip_without

PLAIN = Workload(parse_model("block:mha"), 2, depth=3)
WHOLE = replace(
    PLAIN,
    sequence=16,
    decode=4,
    width=8,
    image_size=64,
    optimize="mine=0.5",
    precision="int8",
    shapes="dynamic",
    scenario="throughput",
    neighbour="block:conv",
)
# What a version has that knows one axis more; each process of the suite imports it before anything else.
ANOTHER = """
import pytest_ngraph.axes as axes

axes.AXES = (
    *axes.AXES,
    axes.Axis(
        "heads", "attention heads", of="model", option="--ngraph-heads", field="heads", help="Heads to keep",
        stem="heads",
    ),
)
"""
NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self, heads=1):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(heads))

    def forward(self, x):
        return torch.cat([layer(x) for layer in self.layers], dim=1)

    def example_inputs(self, batch):
        return torch.randn(batch, 8)


def make(heads=1):
    return Net(heads)


def fixed():
    return Net()
"""
TEST = """
@pytest.mark.ngraph(model="net.py:make", heads=[4, 2], batch=2)
def test_close(ngraph_cell):
    from pytest_ngraph import assert_outputs_match
    assert_outputs_match(ngraph_cell, at_most=1e-4)
"""


# What derives from a row


def test_every_row_but_the_model_is_a_field_of_a_workload_with_its_default() -> None:
    own = [each for each in fields(Workload) if each.name not in ("further", "optimizers", "beside")]

    assert [row.name for row in axes.AXES] == [each.name for each in own]
    assert [row.default for row in axes.AXES[1:]] == [each.default for each in own[1:]]


def test_every_row_that_names_a_fixture_an_option_or_a_field_has_it() -> None:
    settings = {each.name for each in fields(Settings)}

    for row in axes.AXES:
        assert bool(row.plural) == bool(row.fixture)
        assert not row.fixture or hasattr(plugin, row.fixture)
        assert bool(row.option) == bool(row.field) == bool(row.help)
        assert not row.option or row.option in {each.flag for each in ROWS}
        assert not row.field or row.field in settings
        assert TIDY_TYPES[row.column] is (int if row.is_number else str)


def test_labels_and_ids_are_those_of_before_there_was_a_table() -> None:
    assert WHOLE.label == (
        "block:mha batch2 seq16 decode4 depth3 width8 size64 mine=0.5 int8 dynamic throughput beside:block:conv"
    )
    assert PLAIN.label == "block:mha batch2 depth3"
    assert Workload(PLAIN.model).label == "block:mha batch1"
    others = ("width", "image_size", "optimize", "precision", "shapes", "scenario", "neighbour")
    assert axes.singular() == ("model", "sequence", "decode", *others, "depth", "batch")
    assert dict(axes.plural()) == {
        "models": "model",
        "batches": "batch",
        "sequences": "sequence",
        "depths": "depth",
    }
    assert axes.names("model") == ("depth", "width", "image_size")


def test_what_is_left_out_of_labels_goes_by_the_name_of_an_axis_not_by_how_a_label_begins() -> None:
    theirs = Workload.from_json({**PLAIN.to_json(), "batching": 3, "depth_wise": 1})

    assert theirs.axis_labels() == ["batch2", "depth3", "batching3", "depth_wise1"]
    assert theirs.axis_labels("batch", "depth") == ["batching3", "depth_wise1"]
    assert theirs.axis_labels("batching") == ["batch2", "depth3", "depth_wise1"]
    row = cell_row(Cell("local", CompilerSpec("null"), theirs), device=False)
    assert row["subject"] == "block:mha depth3 batching3 depth_wise1"
    assert row["blocks"] == "block:mha depth3 batching3 depth_wise1"


def test_the_table_of_the_docs_is_the_table() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").partition("## Axes\n")[2]
    lines = [line for line in page.splitlines() if line.startswith("| `")]

    def code(name: str) -> str:
        return f"`{name}`" if name else "-"

    def what(row: axes.Axis) -> str:
        allowed = row.values if isinstance(row.values, str) and row.is_named else ", ".join(row.words)
        return ": ".join(filter(None, (row.what, allowed)))

    assert [line.replace("`", "").strip("| ").split(" | ")[3] for line in lines] == [what(row) for row in axes.AXES]
    assert [line.strip("| ").split(" | ")[:3] for line in lines] == [
        [code(row.name), code(row.plural), code(row.option)] for row in axes.AXES
    ]


def test_every_row_has_its_column_in_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        keep(store, Cell("local", CompilerSpec("null"), WHOLE))
        keep(store, Cell("local", CompilerSpec("null"), Workload(PLAIN.model)), "two")
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            f"SELECT {', '.join(row.name for row in axes.AXES)} FROM cells ORDER BY id"
        ).fetchall()
        kinds = dict(connection.execute("SELECT name, type FROM pragma_table_xinfo('cells')").fetchall())
    defaults = Workload(PLAIN.model)
    assert found == [
        tuple(str(each.model) if row.name == "model" else each.value(row.name) for row in axes.AXES)
        for each in (WHOLE, defaults)
    ]
    assert {row.name: kinds[row.name] for row in axes.AXES} == {
        row.name: "INTEGER" if row.is_number else "TEXT" for row in axes.AXES
    }


# An axis of another version


def test_an_axis_that_is_not_known_is_kept_as_it_was(tmp_path: Path) -> None:
    theirs = {**PLAIN.to_json(), "frames": 128, "colour": "grey"}
    workload = Workload.from_json(theirs)

    assert workload.to_json() == theirs
    # What is not set there is what it is here.
    assert Workload.from_json({**theirs, "heads": None}) == workload
    assert Workload.from_json(workload.to_json()) == workload != PLAIN
    assert workload.label == "block:mha batch2 depth3 colourgrey frames128"
    assert replace(workload, batch=4).value("frames") == 128
    assert PLAIN.value("frames") is None
    cell = Cell("local", CompilerSpec("null"), workload)
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        keep(store, cell)
    with Store.open(path) as store:
        [run] = store.runs()
        assert [kept for kept, _ in store.cells(run.id)] == [cell]


def test_a_store_to_which_a_newer_version_added_axes_is_used_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that knows more axes adds their columns, and raises no schema that would keep this one out."""
    path = tmp_path / "results.sqlite"
    theirs = Cell("local", CompilerSpec("null"), Workload.from_json({**PLAIN.to_json(), "frames": 128}))
    mine = Cell("local", CompilerSpec("null"), PLAIN)
    with Store.open(path) as store:
        keep(store, mine, "before")
    newer = (
        *axes.AXES,
        axes.Axis("frames", "frames of a film"),
        axes.Axis("colour", "", values=("grey",), default="grey"),
    )
    with monkeypatch.context() as patch:
        patch.setattr(schema, "AXES", newer)
        with Store.open(path) as store:
            keep(store, theirs, "newer")
    with Store.open(path, read_only=True) as store:
        assert [kept for kept, _ in store.cells(store.runs()[-1].id)] == [theirs]
    with Store.open(path) as store:
        keep(store, replace(mine, device="desk"), "after")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "AXES", newer)
        with Store.open(path) as store, closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT frames, colour FROM cells ORDER BY id").fetchall()
            assert [kept for kept, _ in store.cells(store.runs()[-1].id)] == [replace(mine, device="desk")]
    assert found == [(None, "grey"), (128, "grey"), (None, "grey")]
    # Nor does it keep a schema of later from being what it has to be.
    later = "ALTER TABLE cells ADD COLUMN note TEXT"
    with closing(sqlite3.connect(path)) as connection, monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, (later,)))
        assert wrong_tables(connection) == ["table cells is not as it was made"]
        connection.execute(later)
        assert wrong_tables(connection) == []


@pytest.mark.parametrize(
    "column",
    [
        "frames TEXT",
        "frames TEXT DEFAULT 'x'",
        "frames INTEGER AS (json_extract(cell, '$.workload.frames')) STORED",
        "frames INTEGER AS (json_extract(cell, '$.device'))",
        "frames INTEGER AS (json_extract(cell, '$.workload.batch'))",
        "frames INTEGER AS (random())",
    ],
)
def test_what_is_added_to_cells_and_is_no_axis_is_refused(tmp_path: Path, column: str) -> None:
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        keep(store, Cell("local", CompilerSpec("null"), PLAIN))
    with closing(sqlite3.connect(path)) as connection:
        text = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'cells'").fetchone()[0]
        connection.execute("PRAGMA writable_schema = ON")
        changed = f"{text[:-1]}, {column})"
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'cells'", (changed,))
        connection.commit()
    with pytest.raises(StoreError, match=r"table cells is not as it was made|is damaged"):
        Store.open(path).close()


def keep(store: Store, cell: Cell, uid: str = "other") -> None:
    from pytest_ngraph.spec.cells import PROTOCOLS

    run = store.start_run(
        uid,
        command=["pytest"],
        seed=0,
        protocol=PROTOCOLS["quick"],
        environment={},
        fresh=False,
        resumed=False,
    )
    store.use_cells(run, {cell: "e" * 64})


def test_a_model_is_not_built_by_an_axis_that_nobody_here_applies() -> None:
    theirs = Workload.from_json({**PLAIN.to_json(), "frames": 128})

    with pytest.raises(SpecError, match=r"model 'block:mha': frames=128 is of another version; this one knows no"):
        axis_values(theirs)
    # One that is not set changes nothing.
    assert axis_values(Workload.from_json({**PLAIN.to_json(), "frames": None})) == axis_values(PLAIN)


@pytest.mark.parametrize(
    "more",
    [{"frames": [1]}, {"frames": {"a": 1}}, {"frames": True}, {"frames": 1.5}, {"two words": 1}, {"": 1}],
)
def test_what_can_be_no_axis_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="is no axis"):
        Workload.from_json({**PLAIN.to_json(), **more})


# One more row


@pytest.fixture
def wider(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A suite in whose processes there is one axis more."""
    (suite.path / "site").mkdir()
    (suite.path / "site" / "sitecustomize.py").write_text(ANOTHER)
    (suite.path / "net.py").write_text(NET)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(suite.path / "site"), str(ROOT)]))
    return suite


def fresh(suite: Suite, *arguments: str) -> pytest.RunResult:
    """Run the suite in an interpreter that begins with the table as it is there."""
    plugins = ("-p", "ngraph", "-p", "tests.support.undisturbed")
    return suite.pytester.runpytest_subprocess(*plugins, "-Werror", "--strict-markers", "-rA", *arguments)


@pytest.mark.real
def test_an_axis_is_a_row_from_the_marker_to_the_report(wider: Suite) -> None:
    skip_without("torch")
    wider.write(TEST)
    files = ("--ngraph-export=table.csv", "--ngraph-report=report.html")
    result = fresh(wider, "--ngraph-compiler=torchscript", "--ngraph-protocol=quick", *files)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(
        [
            "PASSED test_suite.py::test_close[[]local-torchscript-net.py:make-heads2-batch2[]]",
            "PASSED test_suite.py::test_close[[]local-torchscript-net.py:make-heads4-batch2[]]",
            "net.py:make heads4",
        ]
    )
    with (wider.path / "table.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert {row["heads"] for row in rows} == {"2", "4"}
    page = (wider.path / "report.html").read_text(encoding="utf-8")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    # It can be chosen by, since cells differ in it; in nothing else that was added.
    assert data["filters"] == ["device", "compiler", "model", "batch", "heads"]
    assert set(data["cells"]["columns"]["heads"]) == {2, 4}
    # By number, not in the order of the suite.
    summary = result.stdout.str().partition("device local")[2]
    assert summary.index("net.py:make heads2") < summary.index("net.py:make heads4")
    # What was measured is found again, and the option leaves what it names.
    again = fresh(wider, "--ngraph-compiler=torchscript", "--ngraph-protocol=quick", "--ngraph-heads=4")
    again.assert_outcomes(passed=1, deselected=0)
    again.stdout.fnmatch_lines(["measured 0 launches*"])


def test_an_added_axis_is_refused_where_a_model_does_not_take_it_and_by_its_values(wider: Suite) -> None:
    null = ("--ngraph-compiler=null", "--ngraph-baseline=null[sample_us=200]", "--collect-only", "-q")
    wider.write(TEST.replace("make", "fixed"))
    fresh(wider, *null).stdout.fnmatch_lines(["*heads=4, 2: model 'net.py:fixed': it does not take heads*"])
    wider.write(TEST.replace("[4, 2]", "0"))
    fresh(wider, *null).stdout.fnmatch_lines(["*heads=0: 0 is not allowed (expected whole numbers >= 1)*"])
    fresh(wider, *null, "--ngraph-heads=few").stderr.fnmatch_lines(["*--ngraph-heads: 'few' is not allowed*"])


def test_without_the_row_the_keyword_is_unknown(suite: Suite) -> None:
    (suite.path / "net.py").write_text(NET)
    suite.write(TEST)
    suite.collect("--ngraph-compiler=null").stdout.fnmatch_lines(["*unknown keyword 'heads'*"])
