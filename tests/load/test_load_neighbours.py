"""Neighbours as they are written and planned: one form, a compiler of their own, and evidence that knows of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.evidence import Evidence
from pytest_ngraph.devices.lab.remote import _models_of
from pytest_ngraph.devices.local import LocalBench
from pytest_ngraph.devices.wire import wire
from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.launches.launch import LaunchPlan
from pytest_ngraph.load.neighbours import cell_beside, normal, parse, with_neighbour, with_neighbours
from pytest_ngraph.load.scenarios import as_compiled
from pytest_ngraph.plan.marker import read_marker
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.report.answer.scoreboard import counted
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.session.launcher import Launcher
from pytest_ngraph.spec.cells import NEIGHBOUR, PROTOCOLS, Cell, CompilerSpec, ModelRef, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.plan.test_grid import grid, mark
from tests.support.measuring import cell, job

ALONE = cell("null")


def beside(one: Cell = ALONE, text: str = "block:mha@null[fixed_us=5]") -> Cell:
    neighbour = parse(text)
    return replace(one, workload=with_neighbour(one.workload, neighbour, parse_model(neighbour.model)))


@pytest.mark.parametrize(
    ("given", "means"),
    [
        (" none ", "none"),
        ("timm:resnet50", "timm:resnet50"),
        ("timm:resnet50+batch=1", "timm:resnet50"),
        ("timm:resnet50 @onnxruntime[threads=1, graph=basic]".replace(" @", "@"),
         "timm:resnet50@onnxruntime[graph=basic,threads=1]"),
        ("timm:resnet18+image_size=64+batch=08@openvino", "timm:resnet18+batch=8+image_size=64@openvino"),
        ("transformers:vit[layers=2]+batch=4", "transformers:vit[layers=2]+batch=4"),
        ("onnx:./v@2/net.onnx", "onnx:./v@2/net.onnx"),
        ("onnx:./v@2/net.onnx@null", "onnx:./v@2/net.onnx@null"),
        ("onnx:a.onnx[S=8]+batch=2@null", "onnx:a.onnx[S=8]+batch=2@null"),
    ],
)  # fmt: skip
def test_neighbours_are_read_into_one_form(given: str, means: str) -> None:
    assert normal(given) == means
    assert normal(means) == means


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "'' is no reference of a model (expected none, or MODEL[+batch=N]"),
        ("resnet50", "'resnet50' is no reference of a model"),
        ("None", "'None' is no reference of a model"),
        ("@onnxruntime", "'' is no reference of a model"),
        ("timm:", "'timm:' is no reference of a model"),
        ("timm:resnet50@", "'' is no compiler"),
        ("timm:resnet50@2fast", "'2fast' is no compiler"),
        ("timm:resnet50@null[a=1,a=2]", "option 'a' is given twice"),
        ("timm:resnet50+batch=0", "'+batch=0' is not allowed"),
        ("timm:resnet50+batch=two", "'+batch=two' is not allowed"),
        ("timm:resnet50+precision=8", "'+precision=8' is not allowed (expected none, or MODEL"),
        ("timm:resnet50+batch=2+batch=3", "batch is given twice"),
    ],
)
def test_what_is_no_neighbour_is_refused_and_it_is_said_what_is_one(given: str, says: str) -> None:
    with pytest.raises(SpecError) as error:
        read_marker([((), {"neighbour": given})])
    assert says in str(error.value)


def test_a_neighbour_is_a_cell_of_its_own_and_compilers_see_nothing_of_it() -> None:
    one = beside(text="block:mha+batch=4+depth=2@null[fixed_us=5]")

    assert cell_beside(ALONE) is None
    found = cell_beside(one)
    assert found is not None
    assert (found.workload, found.replica) == (Workload(parse_model("block:mha"), 4, depth=2), NEIGHBOUR)
    assert found.compiler == CompilerSpec.parse("null[fixed_us=5]")
    assert found.label == "local:null[fixed_us=5] block:mha batch4 depth2 (as a neighbour)"
    assert with_neighbours([one, ALONE, one]) == [one, ALONE, one, found] or with_neighbours([one, ALONE]) == [
        one, ALONE, found,
    ]  # fmt: skip
    assert as_compiled(one) == ALONE
    assert one.label == "local:null block:conv batch1 beside:block:mha+batch=4+depth=2@null[fixed_us=5]"
    assert Cell.from_json(one.to_json()) == one


def test_a_cell_of_which_nobody_knows_where_its_neighbour_is_cannot_be_measured_as_one_alone() -> None:
    lost = replace(ALONE, workload=replace(ALONE.workload, neighbour="block:mha@null"))
    with pytest.raises(SpecError, match="nothing says where its model is found, or what compiles it"):
        cell_beside(lost)


# Planning


def cells_of(compilers: tuple[str, ...] = ("null",), **keywords: Any) -> list[tuple[str, Cell, Cell]]:
    chosen = tuple(map(CompilerSpec.parse, compilers))
    marker = mark(**{"model": "block:conv", "baseline": "null[fixed_us=9]", **keywords})
    points = grid(compilers=chosen).points(marker)
    return [(name, point.cells[0], point.baselines[0]) for name, point in points]


def test_what_compiles_a_neighbour_is_what_compiles_the_cell_and_its_baseline_has_the_same_one() -> None:
    (_, first, its), (_, second, other) = cells_of(("null[fixed_us=1]", "null[fixed_us=2]"), neighbour="block:mha")

    assert first.workload.neighbour == "block:mha@null[fixed_us=1]"
    assert second.workload.neighbour == "block:mha@null[fixed_us=2]"
    assert its.workload == first.workload
    assert other.workload == second.workload
    assert its.compiler == other.compiler == CompilerSpec.parse("null[fixed_us=9]")

    [(name, one, _), (plain, alone, _)] = cells_of(neighbour=["block:mha+batch=2@null[fixed_us=7]", "none"])
    assert cell_beside(one) == Cell(
        "local", CompilerSpec.parse("null[fixed_us=7]"), Workload(parse_model("block:mha"), 2), NEIGHBOUR
    )
    assert name == "local-null-block:conv-beside:block:mha+batch=2@null[fixed_us=7]"
    assert plain == "local-null-block:conv-beside:none"
    assert alone == cells_of()[0][1] == ALONE
    assert alone.to_json() == cells_of()[0][1].to_json()
    assert "neighbour" not in str(alone.to_json())


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"neighbour": "timm:resnet50@nobody"}, "unknown compiler 'nobody'"),
        ({"neighbour": "timm:resnet50@null[fixed=1]"}, "fixed"),
        ({"neighbour": "./there/is/none.onnx:x"}, "neighbour='./there/is/none.onnx:x'"),
        ({"neighbour": "timm:resnet18+depth=2"}, "it does not take depth"),
        ({"neighbour": "timm:resnet18@tvm[tuned]"}, "searches for the best way to compile"),
        ({"neighbour": "block:mha", "scenario": "throughput"}, "beside scenario='throughput': calls that arrive"),
        ({"neighbour": "block:mha", "scenario": "server[rate=20]"}, "beside scenario='server[rate=20]'"),
        ({"neighbour": "block:mha", "shapes": {"batch": {1: 0.5, 2: 0.5}}}, "beside a mix of shapes"),
        ({"neighbour": "block:mha", "model": "net.py:make", "decode": 4}, "decode=4"),
    ],
)
def test_what_cannot_run_beside_a_cell_is_refused_before_anything_is_built(
    keywords: dict[str, Any], says: str, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text("def make(): ...\n")
    marker = mark(**{"model": "block:conv", **keywords})
    with pytest.raises(SpecError) as error:
        grid(search=(tmp_path,)).points(marker)
    assert says in str(error.value)


def test_a_neighbour_that_is_not_installed_is_said_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = grid(compilers=(CompilerSpec("null"),))
    [(_, point)] = chosen.points(mark(model="block:conv", baseline="null[fixed_us=9]", neighbour="block:mha@openvino"))
    monkeypatch.setattr(
        type(chosen.devices), "missing", lambda self, device, name: "not installed" if name == "openvino" else None
    )
    assert chosen.missing(point) == "openvino, of the neighbour, on local: not installed"


# Evidence, and other devices


def key(folder: Path, one: Cell) -> str | None:
    return Evidence(Catalogue(), job(folder), PROTOCOLS["gate"], 0).key(one)


def test_a_neighbour_is_evidence_and_so_is_what_it_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, with_one = key(tmp_path, ALONE), key(tmp_path, beside())
    others = [
        beside(text="block:mha@null[fixed_us=6]"),
        beside(text="block:mha+batch=2@null[fixed_us=5]"),
        beside(text="block:conv@null[fixed_us=5]"),
    ]
    assert len({alone, with_one, *(key(tmp_path, one) for one in others)}) == 5

    (tmp_path / "net.onnx").write_bytes(b"one")
    text = "onnx:net.onnx"
    model = ModelRef(text, "onnx", str(tmp_path / "net.onnx"))
    file = replace(ALONE, workload=with_neighbour(ALONE.workload, parse(f"{text}@onnxruntime"), model))
    # Which files it is made of is known once it was built.
    assert key(tmp_path, file) is None
    content = "a"

    def known(workload: Workload, *rest: Any) -> dict[str, str]:
        return {"/net.onnx": content} if workload.model == model else {}

    monkeypatch.setattr("pytest_ngraph.workloads.keys.known_files", known)
    first = key(tmp_path, file)
    content = "b"
    assert first != key(tmp_path, file) is not None
    assert key(tmp_path, ALONE) == alone


def test_a_changed_runtime_of_the_neighbour_is_another_evidence(tmp_path: Path) -> None:
    one = beside(text="block:mha@onnxruntime")
    evidence = Evidence(Catalogue(), job(tmp_path), PROTOCOLS["gate"], 0)
    before = evidence.key(one)
    evidence._adapters["onnxruntime"] = {**evidence.adapter("onnxruntime"), "onnxruntime": "0.0.1"}
    assert evidence.key(one) != before
    assert evidence.key(ALONE) == key(tmp_path, ALONE)


def test_a_remote_device_gets_the_neighbour_s_model_as_it_gets_the_cell_s() -> None:
    one = beside()

    def there(model: ModelRef) -> ModelRef:
        return replace(model, locator=f"files/{model.locator}")

    assert _models_of([one, ALONE]) == [one.workload.model, one.workload.beside]
    plan = wire.plan_from_json(wire.plan_to_json(wire.plan_moved(LaunchPlan((one,), PROTOCOLS["gate"], 1), there)))
    found = cell_beside(plan.cells[0])
    assert found is not None
    assert found.workload.model.locator == "files/mha"
    assert plan.cells[0].workload.model.locator == "files/conv"


def test_a_cell_of_another_side_has_no_neighbour_and_one_that_cannot_run_here_is_refused(tmp_path: Path) -> None:
    catalogue = Catalogue()
    bench = LocalBench(job(tmp_path), catalogue, PROTOCOLS["gate"], 0)
    there, gpu = replace(beside(), side="main@1a2b3c4"), beside(text="block:mha@tensorrt")

    refused = bench.refusals([ALONE, there, gpu])

    assert refused[there].startswith("a cell with a neighbour is measured as it is here")
    assert refused[gpu].startswith("its neighbour block:mha@tensorrt: ")
    assert ALONE not in refused


@pytest.mark.parametrize("is_first", [True, False])
def test_what_cannot_be_built_is_a_neighbour_only_of_those_beside_it(is_first: bool) -> None:
    alone = cell("identity")
    there = beside(cell("identity", 4), "block:conv@identity")
    cells = [there, alone] if is_first else [alone, there]
    booked: dict[Cell, str] = {}
    launcher: Any = SimpleNamespace(
        _catalogue=Catalogue(),
        _listener=Mock(),
        _bench=SimpleNamespace(
            build=lambda made, progress: [
                {"ok": each.workload.batch == 4, "outcome": "failed", "reason": "it is broken"} for each in made
            ]
        ),
        book=lambda cells, record: booked.update(dict.fromkeys(cells, record.reason)),
    )

    Launcher.build(launcher, cells)

    assert booked == {
        alone: "it is broken",
        there: "its neighbour local:identity block:conv batch1 (as a neighbour): it is broken",
    }


# Claims


def test_what_a_cell_draws_is_not_said_of_one_beside_a_neighbour() -> None:
    source: Any = None
    one = beside()
    with pytest.raises(ClaimError, match="nothing runs beside a cell in a pass for power"):
        Measurement(source, one, one).quantity("joules_per_sample")


def test_no_mean_of_speed_ups_has_cells_with_neighbours() -> None:
    estimate: Any = object()
    reports: list[Any] = [
        CellReport(one, replace(one, compiler=CompilerSpec("identity")), {"speedup": estimate}, None, None)
        for one in (ALONE, beside())
    ]
    assert [one.cell for one in counted(reports)] == [ALONE]
