"""Covariates say what surrounded a batch: who else ran on its CPU, and what the allocator did."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.spec.cells import Visit
from pytest_ngraph.worker.covariates import Covariates, peak_memory_bytes
from tests.support.measuring import SMALL, cell, job, launch

pytestmark = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel keeps no schedstat")
LONG = replace(SMALL, visit_seconds=0.3, blocks=2)


@contextmanager
def spinners(cpu: int, count: int) -> Iterator[None]:
    code = f"import os\nos.sched_setaffinity(0, [{cpu}])\nprint(flush=True)\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for one in busy:
            assert one.stdout is not None
            one.stdout.readline()
        yield
    finally:
        for one in busy:
            one.kill()
            one.communicate()


def delay_share(visits: Iterator[Visit]) -> float:
    """Return the smallest share of a visit that was spent waiting for the CPU."""
    return min(sum(visit.run_delay_ns) / sum(visit.wall_ns) for visit in visits)


@pytest.mark.measures
def test_run_delay_rises_when_others_want_the_same_cpu(tmp_path: Path) -> None:
    cpu, one = min(os.sched_getaffinity(0)), cell("null[fixed_us=2000]")
    alone = launch(job(tmp_path, cpus=(cpu,)), one, protocol=replace(LONG, blocks=4))
    with spinners(cpu, 2):
        crowded = launch(job(tmp_path, cpus=(cpu,)), one, protocol=LONG)
    # Two others want the CPU at least as much; alone there may be whoever else uses this machine.
    assert delay_share(iter(crowded.visits.values())) > 0.3
    assert delay_share(iter(alone.visits.values())) < delay_share(iter(crowded.visits.values())) / 2


@pytest.mark.measures
def test_warming_up_beside_busy_neighbours_takes_no_longer_than_it_must(tmp_path: Path) -> None:
    cpu, one = min(os.sched_getaffinity(0)), cell("null[fixed_us=2000]")
    with spinners(cpu, 1):
        found = launch(job(tmp_path, cpus=(cpu,)), one, protocol=replace(SMALL, blocks=0, warmup_limit_seconds=20.0))
    record = found.records[one]
    assert record.outcome.value == "ok", record.reason
    assert sum(record.warmup_seconds) < 10


def test_fresh_pages_are_counted_as_faults() -> None:
    with closing(Covariates()) as covariates:
        before = covariates.read()[2]
        with mmap.mmap(-1, 400 * mmap.PAGESIZE) as pages:
            if hasattr(mmap, "MADV_NOHUGEPAGE"):
                pages.madvise(mmap.MADV_NOHUGEPAGE)
            for page in range(400):
                pages[page * mmap.PAGESIZE] = 1
        assert covariates.read()[2] - before >= 400


def test_cpu_time_is_that_of_all_threads() -> None:
    with closing(Covariates()) as covariates:
        before = covariates.read()[0]
        thread = threading.Thread(target=lambda: sum(range(3_000_000)))
        thread.start()
        thread.join()
        assert covariates.read()[0] - before > 1_000_000


def test_a_thread_that_ends_takes_nothing_back() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    with closing(Covariates()) as covariates:
        assert covariates.has_run_delay
        before = covariates.read()[1]
        stop.set()
        for thread in threads:
            thread.join()
        time.sleep(0.05)
        assert covariates.read()[1] >= before


def test_covariates_close_what_they_opened() -> None:
    before = os.listdir("/proc/self/fd")
    Covariates().close()
    assert os.listdir("/proc/self/fd") == before


def test_peak_memory_stays_when_memory_is_given_back() -> None:
    held = bytearray(b"x" * (64 << 20))
    with_it = peak_memory_bytes()
    del held
    assert peak_memory_bytes() >= with_it >= 64 << 20
