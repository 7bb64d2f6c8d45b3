"""What a device says of power and of peaks: read as it was written, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_ngraph.devices.wire import wire
from pytest_ngraph.errors import DeviceUnusable
from pytest_ngraph.spec.cells import CompileRecord, Outcome
from pytest_ngraph.spec.resources.power import Power, Window

POWER = Power(
    covers="ina3221: the whole Jetson module",
    idle=(Window(0, 5.0, 30.0, 0, 0.01),),
    busy=(Window(0, 5.0, 60.0, 100, 0.93, 2400.0),),
    others_cpus=0.02,
    update_seconds=0.05,
    step_watts=0.04,
)
RECORD = CompileRecord(
    Outcome.OK,
    peaks=(("run_peak_memory_bytes", 5),),
    unread=(("compile_peak_memory_bytes", "it was loaded"),),
    power=POWER,
)


def read(data: dict[str, Any]) -> CompileRecord:
    with wire.strictly("a record", str(data)):
        return wire.record_from_json(data)


def test_a_record_is_read_as_it_was_written() -> None:
    assert read(RECORD.to_json()) == RECORD


@pytest.mark.parametrize(
    "power",
    [
        {"busy": [{"block": 0, "seconds": 0.0, "joules": 1.0}]},
        {"busy": [{"block": 0, "seconds": 1.0, "joules": -1.0}]},
        {"busy": [{"block": 0, "seconds": 1.0, "joules": float("nan")}]},
        {"busy": [{"block": 0, "seconds": 1.0, "joules": "1"}]},
        {"busy": [{"block": 0, "seconds": 1.0, "joules": 1.0, "samples": 0.5}]},
        {"busy": [{"block": -1, "seconds": 1.0, "joules": 1.0}]},
        {"busy": [{"block": 0, "seconds": 1.0, "joules": 1.0, "gpu_share": 1.5}]},
        {"busy": [{"block": 0, "seconds": 1.0, "joules": 1.0, "more": 1}]},
        {"idle": [{"block": 0, "seconds": 1.0, "joules": 1.0, "samples": 3}]},
        {"idle": [{"block": 0, "seconds": 1.0, "joules": 1.0}] * 1001},
        {"idle": None},
        {"covers": 7},
        {"invalid": None},
        {"others_cpus": "many"},
        {"update_seconds": -0.1},
        {"step_watts": None},
        {"busy": [{"block": 0, "seconds": 1.0, "joules": 1.0, "megahertz": "fast"}]},
    ],
)
def test_what_cannot_be_is_refused(power: dict[str, Any]) -> None:
    data = RECORD.to_json()
    with pytest.raises(DeviceUnusable):
        read({**data, "power": {**data["power"], **power}})


@pytest.mark.parametrize(
    "wrong",
    [{"peaks": [["rm -rf", 5]]}, {"peaks": [["run_peak_memory_bytes", -5]]}, {"power": 3}, {"unread": [["a"]]}],
)
def test_peaks_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeviceUnusable):
        read({**RECORD.to_json(), **wrong})


def test_texts_are_cleaned() -> None:
    data = RECORD.to_json()
    found = read({**data, "power": {**data["power"], "covers": "a\x1b[31mb", "why_no_load": "c\x00d"}})
    assert found.power is not None
    assert "\x1b" not in found.power.covers
    assert "\x00" not in found.power.why_no_load
