"""What goes over the wire: everything comes back as it was, and whatever is broken is said with what was read."""

from __future__ import annotations

import json
import random
import re
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph.devices.wire import values, wire
from pytest_ngraph.devices.wire.course import Course
from pytest_ngraph.errors import CompileFailed, DeviceLost, DeviceUnusable, SpecError
from pytest_ngraph.launches.launch import GroupTooLarge, LaunchPlan
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    ModelRef,
    Outcome,
    Reading,
    Visit,
    Workload,
)
from pytest_ngraph.texts.shown import KEPT_BYTES, clean, one_line
from pytest_ngraph.workloads.kinds import parse_model

WHOLE = st.integers(0, 1 << 62)
WHOLES = st.lists(WHOLE, max_size=4).map(tuple)
SECONDS = st.floats(0, 1e9, allow_nan=False)
TEXTS = st.text(max_size=20)
# What a device says is clean; names that a client gives are as they are.
SAID = TEXTS.map(clean)
LINES = TEXTS.map(one_line)
SOME = st.integers(1, 1 << 62)
READINGS = st.builds(Reading, SOME, st.lists(SOME, max_size=4).map(tuple))


@st.composite
def visits(draw: st.DrawFn) -> Visit:
    batches = draw(st.integers(1, 4))
    walls = st.lists(SOME, min_size=batches, max_size=batches).map(tuple)
    others = st.just(()) | st.lists(WHOLE, min_size=batches, max_size=batches).map(tuple)
    around = tuple(draw(st.lists(st.tuples(READINGS, READINGS), max_size=3)))
    arrays = draw(walls), draw(others), draw(others), draw(others), draw(WHOLES)
    return Visit(draw(SOME), *arrays, around=around, stolen_ns=draw(st.just(0) | SOME))


VISITS = visits()
MODELS = st.builds(ModelRef, TEXTS, st.sampled_from(("timm", "block", "onnx", "file", "import")), TEXTS)
WORKLOADS = st.builds(Workload, MODELS, st.integers(1, 64), st.none() | st.integers(1, 9))
COMPILERS = st.sampled_from(("null", "null[fixed_us=5]", "onnxruntime[graph=basic,threads=1]")).map(CompilerSpec.parse)
CELLS = st.builds(Cell, st.sampled_from(("orin", "local")), COMPILERS, WORKLOADS, st.integers(0, 1), st.booleans())
RECORDS = st.builds(
    CompileRecord,
    outcome=st.sampled_from(Outcome),
    reason=SAID,
    compile_seconds=st.none() | SECONDS,
    loaded=st.booleans(),
    warmup_seconds=st.lists(SECONDS, max_size=3).map(tuple),
    model_bytes=st.none() | WHOLE,
    max_error=st.none() | SECONDS,
    placement=st.lists(st.tuples(LINES, LINES), max_size=2).map(tuple),
    tuning_trials=st.none() | st.integers(0, 99),
    cosine=st.none() | SECONDS,
    centred_cosine=st.none() | SECONDS,
    top1_matches=st.integers(0, 8),
    top1_samples=st.integers(0, 8),
    outputs_told_apart=st.none() | st.booleans(),
)
SNAPSHOT = environment.snapshot()


class Heard:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.told.append((name, *values))


@st.composite
def plans(draw: st.DrawFn) -> LaunchPlan:
    cells = tuple(draw(st.lists(CELLS, min_size=1, max_size=3, unique=True)))
    return LaunchPlan(
        cells,
        draw(st.sampled_from(sorted(PROTOCOLS)).map(PROTOCOLS.__getitem__)),
        draw(WHOLE),
        {cell: draw(TEXTS) for cell in cells if draw(st.booleans())},
        draw(st.booleans()),
        tuple(draw(st.lists(READINGS, max_size=2))),
        draw(SECONDS),
        draw(SECONDS),
        draw(st.floats(0, 1)),
    )


@given(plans())
def test_a_plan_comes_back_as_it_was(plan: LaunchPlan) -> None:
    assert wire.plan_from_json(json.loads(json.dumps(wire.plan_to_json(plan)))) == plan


def test_a_plan_takes_along_what_its_own_cells_read_and_nothing_else() -> None:
    mine, other = cell("null"), cell("null[fixed_us=5]")
    plan = LaunchPlan((mine,), PROTOCOLS["quick"], 1, {mine: "a", other: "b"})
    assert wire.plan_from_json(wire.plan_to_json(plan)).artifacts == {mine: "a"}


@given(
    cells=st.lists(CELLS, min_size=1, max_size=3, unique=True),
    record=RECORDS,
    visit=VISITS,
    readings=st.none() | st.tuples(READINGS, READINGS),
    text=LINES,
    number=WHOLE,
    data=st.data(),
)
def test_events_come_back_as_they_were_and_in_order(
    cells: list[Cell], record: CompileRecord, visit: Visit, readings: Any, text: str, number: int, data: st.DataObject
) -> None:
    lines: list[str] = []
    sent = wire.Lines(lines.append, cells)
    one = data.draw(st.sampled_from(cells))
    told: list[tuple[Any, ...]] = [
        ("surroundings", "begun", SNAPSHOT),
        ("progress", text, number, number),
        ("prepared", one, record),
        ("visited", one, number, number, visit),
        ("block_done", number, readings),
        ("note", text),
    ]
    for name, *arguments in told:
        getattr(sent, name)(*arguments)
    heard = Heard()
    for each, line in enumerate(lines):
        event = wire.event_of(line, cells)
        assert event.number == each
        event.play(heard)
    assert heard.told == told
    (heard_of,) = [event[-1] for event in heard.told if event[0] == "visited"]
    assert (heard_of.around, heard_of.stolen_ns) == (visit.around, visit.stolen_ns)


def test_the_state_of_a_machine_comes_back_in_full() -> None:
    assert wire.snapshot_from_json(json.loads(json.dumps(SNAPSHOT))) == SNAPSHOT


def test_steps_of_the_same_are_told_once_a_second_only() -> None:
    lines: list[str] = []
    sent = wire.Lines(lines.append)
    for step in range(50):
        sent.progress("measuring a cell", step, 50)
    sent.progress("compiling a cell", 0, 1)
    assert [json.loads(line)[2]["doing"] for line in lines] == ["measuring a cell", "compiling a cell"]


def test_texts_for_people_are_told_as_they_are_at_home() -> None:
    lines: list[str] = []
    sent = wire.Lines(lines.append)
    sent.know([cell("null")], lambda text: text.replace("/far/away/", ""))
    sent.prepared(cell("null"), CompileRecord(Outcome.FAILED, "/far/away/models.py:3: no"))
    sent.refuse(SpecError("/far/away/models.py: no"))
    assert [json.loads(line)[2].get("record", json.loads(line)[2])["reason"] for line in lines] == [
        "models.py:3: no",
        "models.py: no",
    ]


# Requests


def request(**asked: Any) -> wire.Request:
    return wire.Request("launch", {"seed": 1}, asked, {"quiet_seconds": 3})


def test_a_request_comes_back_as_it_was() -> None:
    assert wire.Request.from_text(request(cells=[1]).to_text()) == request(cells=[1])


def test_the_same_request_is_known_however_long_it_may_wait() -> None:
    plan = LaunchPlan((cell("null"),), PROTOCOLS["quick"], 1)
    patient = replace(plan, patience_seconds=7.0, states=(Reading(1),), crowding=1.5)
    other = replace(plan, seed=2)
    first, again, another = (request(plan=wire.plan_to_json(each)).digest for each in (plan, patient, other))
    assert first == again != another
    assert replace(request(), terms={"quiet_seconds": 99}).digest == request().digest
    assert replace(request(), bench={"seed": 2}).digest != request().digest


def test_a_request_of_another_protocol_names_both_sides() -> None:
    data = json.loads(request().to_text())
    with pytest.raises(DeviceUnusable, match=rf"speaks protocol {wire.PROTO + 1}, this agent {wire.PROTO}"):
        wire.Request.from_text(json.dumps({**data, "proto": wire.PROTO + 1}))


@pytest.mark.parametrize(
    "change",
    [
        {"proto": "1"},
        {"proto": None},
        {"method": "system"},
        {"method": ["launch"]},
        {"bench": []},
        {"asked": None},
        {"terms": 3},
    ],
)
def test_a_broken_request_is_said_with_what_was_read(change: dict[str, Any]) -> None:
    data = json.dumps({**json.loads(request().to_text()), **change})
    with pytest.raises(DeviceUnusable, match="the request cannot be understood: "):
        wire.Request.from_text(data)


# What is broken


def cell(compiler: str) -> Cell:
    return Cell("orin", CompilerSpec.parse(compiler), Workload(parse_model("block:conv")))


def written() -> list[str]:
    lines: list[str] = []
    one = cell("null")
    sent = wire.Lines(lines.append, [one])
    sent.surroundings("begun", SNAPSHOT)
    sent.prepared(one, CompileRecord(Outcome.OK, warmup_seconds=(0.5,), placement=(("provider", "CPU"),)))
    sent.visited(one, 0, 1, Visit(3, (5, 6), (5, 6), (0, 0), (1, 1)))
    sent.block_done(0, (Reading(5, (6,)), Reading(7, (8,))))
    sent.progress("measuring", 1, 2)
    sent.note("waiting")
    sent.answer(None)
    return lines


@pytest.mark.parametrize(
    "line",
    [
        "",
        "garbage",
        "{}",
        "[]",
        "[1]",
        '["0","note",{"text":"x"}]',
        '[true,"note",{"text":"x"}]',
        '[0,"note",[]]',
        '[0,"note",{}]',
        '[0,"note",{"text":5}]',
        '[0,["note"],{"text":"x"}]',
        '[0,"exec",{"text":"x"}]',
        '[0,"block_done",{"block":0,"readings":[[1,[2]]]}]',
        '[0,"block_done",{"block":0.5,"readings":null}]',
        '[0,"visited",{"cell":1,"block":0,"position":0,"visit":{"calls":1,"wall_ns":[1]}}]',
        '[0,"visited",{"cell":-1,"block":0,"position":0,"visit":{"calls":1,"wall_ns":[1]}}]',
        '[0,"visited",{"cell":0,"block":0,"position":0,"visit":{"calls":1,"wall_ns":["1"]}}]',
        '[0,"visited",{"cell":0,"block":0,"position":0,"visit":{"calls":1,"wall_ns":[1],"more":[1]}}]',
        *(
            f'[0,"visited",{{"cell":0,"block":0,"position":0,"visit":{visit}}}]'
            for visit in (
                '{"calls":0,"wall_ns":[1]}',
                '{"calls":1,"wall_ns":[]}',
                '{"calls":1,"wall_ns":[0]}',
                '{"calls":1,"wall_ns":[-1]}',
                '{"calls":1,"wall_ns":[1,2],"cpu_ns":[1]}',
                '{"calls":1,"wall_ns":[1],"faults":[-1]}',
                '{"calls":1,"wall_ns":[1],"around":[[[1,[2]]]]}',
                '{"calls":1,"wall_ns":[1],"around":[[[1,[2]],[0,[2]]]]}',
                '{"calls":1,"wall_ns":[1],"around":[[[1,[2]],[1,[0]]]]}',
                '{"calls":1,"wall_ns":[1],"around":[[[1,[2]],[1,2]]]}',
                '{"calls":1,"wall_ns":[1],"around":[[1,[2]],[1,[2]]]}',
                '{"calls":1,"wall_ns":[1],"around":null}',
                '{"calls":1,"wall_ns":[1],"stolen_ns":true}',
                '{"calls":1,"wall_ns":[1],"stolen_ns":-1}',
                '{"calls":1,"wall_ns":[1],"around":"12"}',
                f'{{"calls":1,"wall_ns":[{1 << 63}]}}',
                f'{{"calls":{1 << 63},"wall_ns":[1]}}',
                "[]",
            )
        ),
        '[0,"visited",{"cell":0,"block":-1,"position":0,"visit":{"calls":1,"wall_ns":[1]}}]',
        '[0,"progress",{"doing":"x","done":-1,"total":1}]',
        '[0,"block_done",{"block":0,"readings":[[0,[]],[1,[]]]}]',
        '[0,"surroundings",{"when":"never","snapshot":{}}]',
        '[0,"surroundings",{"when":"begun","snapshot":{"at":1}}]',
        '[0,"answer",{"value":1}]',
        '[0,"answer",{"ok":true}]',
        '[0,"answer",{"ok":false,"error":"SystemExit","reason":"x"}]',
        '[0,"answer",{"ok":false,"error":"DeviceLost"}]',
        "[" * 100_000,
    ],
)
def test_a_broken_line_is_said_with_what_was_read(line: str) -> None:
    with pytest.raises(DeviceUnusable) as caught:
        wire.event_of(line, [cell("null")])
    assert repr(line[:200]) in str(caught.value)


@given(st.integers(0, 6), st.integers(0, 1 << 30))
def test_a_line_with_anything_else_in_a_place_is_either_read_or_said(number: int, seed: int) -> None:
    draw = random.Random(seed)
    line = json.loads(written()[number])
    where: Any = line
    while True:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        key = draw.choice(keys)
        if not isinstance(where[key], (dict, list)) or not where[key] or draw.random() < 0.2:
            break
        where = where[key]
    where[key] = draw.choice([None, True, "text", -1, 0.5, [], {}, [["a"]], {"a": 1}, 10**30])
    # Nothing else is raised.
    with suppress(DeviceUnusable):
        wire.event_of(json.dumps(line), [cell("null")]).play(Heard())


def test_every_field_of_a_record_is_checked() -> None:
    good = CompileRecord(Outcome.OK, warmup_seconds=(1.0,), placement=(("a", "b"),)).to_json()
    for field in fields(CompileRecord):
        with pytest.raises((ValueError, TypeError, KeyError)):
            wire.record_from_json({**good, field.name: {"not": "this"}})
    with pytest.raises(TypeError):
        wire.record_from_json({**good, "unknown": 1})


@pytest.mark.parametrize("name", ["compile_seconds", "call_seconds", "warmup_seconds", "model_bytes"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, -1, True, "1"])
def test_no_time_and_no_size_is_infinite_negative_or_none(name: str, value: Any) -> None:
    good = CompileRecord(Outcome.OK).to_json()
    with pytest.raises((ValueError, TypeError)):
        wire.record_from_json({**good, name: [value] if name == "warmup_seconds" else value})


def test_megabytes_of_a_device_are_cut_and_clean() -> None:
    flood = "\x1b[31mbad\x07\n" * 500_000
    for error in (RuntimeError(flood), CompileFailed(flood)):
        lines: list[str] = []
        wire.Lines(lines.append).refuse(error)
        assert len(lines[0]) < 4 * KEPT_BYTES
    told = {"ok": False, "error": "DeviceLost", "reason": flood}
    (answer,) = wire.event_of(json.dumps([0, "answer", told])).values
    assert len(answer["reason"].encode()) <= KEPT_BYTES
    assert answer["reason"].startswith("bad\\x07\nbad")
    record = CompileRecord(Outcome.FAILED, flood, placement=(("a", flood), *[("b", "c")] * 10_000))
    event = wire.event_of(json.dumps([0, "prepared", {"cell": 0, "record": record.to_json()}]), [cell("null")])
    heard = event.values[1]
    assert len(heard.reason.encode()) <= KEPT_BYTES
    assert sum(len(name) + len(fact) for name, fact in heard.placement) <= KEPT_BYTES
    assert wire.event_of(json.dumps([0, "note", {"text": flood}])).values[0] == answer["reason"]


# The course of a launch

COURSE: list[tuple[str, tuple[Any, ...]]] = [
    ("surroundings", ("begun", SNAPSHOT)),
    ("progress", ("compiling", 0, 1)),
    ("prepared", (cell("null"), CompileRecord(Outcome.OK))),
    ("surroundings", ("blocks", SNAPSHOT)),
    ("visited", (cell("null"), 0, 0, Visit(1, (1,)))),
    ("block_done", (0, None)),
    ("visited", (cell("null"), 1, 0, Visit(1, (1,)))),
    ("block_done", (1, None)),
    ("prepared", (cell("null"), CompileRecord(Outcome.MISMATCH))),
    ("surroundings", ("ended", SNAPSHOT)),
    ("note", ("text",)),
    ("answer", ({"ok": True, "value": None},)),
]


def follow(events: list[tuple[str, tuple[Any, ...]]]) -> None:
    course = Course()
    for number, (kind, told) in enumerate(events):
        course.follow(wire.Event(number, kind, told))


def test_a_launch_as_it_goes_is_followed() -> None:
    follow(COURSE)
    follow([("answer", ({"ok": False, "error": "DeviceLost", "reason": ""},))])


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        (COURSE[1:], "'prepared' before the launch began"),
        ([COURSE[0], *COURSE], "'begun' after begun"),
        ([COURSE[-3]], "'ended' after nothing"),
        ([COURSE[0], *COURSE[4:]], "'visited' of a cell that was not prepared"),
        ([*COURSE[:5], COURSE[4]], "'visited' of block 0 again"),
        ([*COURSE[:4], COURSE[6]], "'visited' of block 1 too early or late"),
        ([*COURSE[:6], COURSE[5]], "'block_done' of block 0 after 1 blocks"),
        ([*COURSE[:9], COURSE[-1]], "'answer' without an end of the launch"),
        ([*COURSE[:-1], COURSE[2]], "'prepared' after the launch ended"),
        ([*COURSE[:-1], COURSE[-3]], "'ended' after begun, blocks, ended"),
        (
            [COURSE[0], ("answer", ({"ok": False, "error": "GroupTooLarge", "reason": ""},))],
            "'answer' without an end of the launch",
        ),
    ],
)
def test_what_cannot_be_the_course_of_a_launch_is_refused(events: Any, wrong: str) -> None:
    with pytest.raises(DeviceUnusable, match=f"the device reports what cannot be: .*{re.escape(wrong)}"):
        follow(events)


@pytest.mark.parametrize(
    "change",
    [{"cpu": 5}, {"memory_bytes": "many"}, {"memory_bytes": float("nan")}, {"affinity": []}, {"affinity": [-1]},
     {"affinity": None}, {"gpu": "fast"}, {"versions": []}, {"power_mode": []},
     {"power_mode": {"nvpmodel": 2}}],
)  # fmt: skip
def test_facts_of_a_machine_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    facts = {**environment.describe(), "cpu": "\x1b[31mfast"}
    assert values.facts(facts)["cpu"] == "fast"
    with pytest.raises((TypeError, ValueError, KeyError)):
        values.facts({**facts, **change})


# Results


def test_a_result_is_its_lines_of_which_the_last_is_the_answer() -> None:
    lines = written()
    assert [json.loads(line) for line in wire.lines_of(wire.result_of(lines))] == [json.loads(line) for line in lines]


@pytest.mark.parametrize("text", ["", "[]", "{}", "5", "null", "[5]", '[[0,"note",{"text":"x"}]]', "[[]]"])
def test_a_result_without_an_answer_is_said_with_what_was_read(text: str) -> None:
    with pytest.raises(DeviceUnusable, match="the device's answer cannot be understood"):
        wire.lines_of(text)


@pytest.mark.parametrize("kind", [GroupTooLarge, SpecError, CompileFailed, DeviceLost, DeviceUnusable])
def test_errors_for_users_come_back_as_what_they_were_and_name_the_device(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="device 'orin': too much") as caught:
        wire.value_of({"ok": False, **wire.refusal(kind("too much"))}, "orin")
    assert type(caught.value) is kind


def test_any_other_error_comes_with_its_traceback_as_text() -> None:
    absent: dict[str, str] = {}
    try:
        absent["absent"]
    except KeyError as error:
        said = wire.refusal(error)
    assert said["error"] == "DeviceUnusable"
    assert "KeyError: 'absent'" in said["reason"]
    assert "test_devices_wire.py" in said["reason"]
