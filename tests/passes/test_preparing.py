"""What a pass is made of, without a worker: its folder, and what is kept of its record."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ngraph.launches.client import Job
from pytest_ngraph.passes.preparing import Refused, done, scratch
from pytest_ngraph.spec.cells import CompileRecord, Device, Outcome


def job_in(folder: Path) -> Job:
    return Job((), Device("local", (), 1), 0, folder, folder, {}, 1.0)


def test_the_folder_of_a_pass_is_gone_also_where_the_cell_was_refused(tmp_path: Path) -> None:
    refusal = CompileRecord(Outcome.UNSUPPORTED, "it takes no such model")

    def refused() -> None:
        with scratch(job_in(tmp_path)) as folder:
            folder.mkdir()
            (folder / "outputs.npz").write_bytes(b"half")
            raise Refused(refusal)

    with pytest.raises(Refused) as raised:
        refused()
    assert raised.value.record is refusal
    assert list(tmp_path.iterdir()) == []


def test_two_passes_at_once_have_a_folder_each(tmp_path: Path) -> None:
    with scratch(job_in(tmp_path)) as one, scratch(job_in(tmp_path)) as other:
        assert one != other


def test_times_of_a_pass_are_no_measurements() -> None:
    record = CompileRecord(Outcome.OK, compile_seconds=3.0, call_seconds=0.1, placement=(("provider", "CPU"),))
    kept = done(record)
    assert kept.placement == (("provider", "CPU"),)
    assert (kept.compile_seconds, kept.call_seconds) == (None, None)
