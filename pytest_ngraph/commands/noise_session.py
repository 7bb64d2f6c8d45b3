"""Sessions of equal code, each in a process of its own: how the means of launches differ from one to the next."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.errors import CompileFailed, NgraphError
from pytest_ngraph.interpreter import command
from pytest_ngraph.spec.cells import PROTOCOLS, CompilerSpec
from pytest_ngraph.stats.sessions import LEAST_SESSIONS
from pytest_ngraph.texts.shown import excerpt

if TYPE_CHECKING:
    from pytest_ngraph.report.noise.profile import SessionNoise


@dataclass(frozen=True, slots=True)
class SessionMeans:
    """What one session says: the means over its launches of ln(seconds per call) and of ln(ratio of two processes)."""

    latency: float
    ratio: float


def measure_sessions(
    store: Path,
    count: int,
    launches: int,
    every_seconds: float,
    *,
    keep: Callable[[SessionNoise], None],
    say: Callable[[str], None],
    one: Callable[[Path, int], SessionMeans | None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure so many sessions, one begun every so many seconds, and ``keep`` what they say as soon as it says much.

    ``one`` measures a session; it is a process of its own unless something else is given. A session in which fewer than
    two launches count is left out. Raises CompileFailed where a session cannot be measured.
    """
    means: list[SessionMeans] = []
    began = clock()
    for number in range(count):
        wait = began + number * every_seconds - clock()
        if wait > 0:
            say(f"next in {units.seconds(wait)}")
            sleep(wait)
        found = (one or in_a_process)(store, launches)
        if found is None:
            say(f"session {number + 1} of {count}: fewer than two of its launches count; left out")
            continue
        means.append(found)
        noise = noise_of(means, launches)
        scatter = ""
        if noise is not None:
            scatter = f"; so far {units.fraction(noise.latency)} by the clock, {units.fraction(noise.ratio)} in ratios"
        say(f"session {number + 1} of {count}: {units.seconds(math.exp(found.latency))} a call{scatter}")
        if noise is not None and noise.count >= LEAST_SESSIONS:
            keep(noise)
    if len(means) < LEAST_SESSIONS:
        say(f"{len(means)} sessions say nothing of how sessions differ ({LEAST_SESSIONS} at least); nothing is kept")


def noise_of(means: Sequence[SessionMeans], launches: int) -> SessionNoise | None:
    """Return how sessions scatter, or None for one."""
    from statistics import stdev

    from pytest_ngraph.report.noise.profile import SessionNoise

    if len(means) < 2:
        return None
    latency, ratio = stdev(one.latency for one in means), stdev(one.ratio for one in means)
    return SessionNoise(len(means), launches, latency, ratio)


def in_a_process(store: Path, launches: int) -> SessionMeans | None:
    """Measure a session in a process of its own, begun for it: nothing of the one before lives on."""
    words = command("pytest_ngraph.commands.noise_session", str(store), str(launches))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    last = done.stdout.splitlines()[-1:]
    try:
        answer = json.loads(last[0]) if last else {}
        if "error" in answer:
            raise CompileFailed(str(answer["error"]))
        return SessionMeans(float(answer["latency"]), float(answer["ratio"])) if answer["counts"] else None
    except (ValueError, KeyError, TypeError):
        raise CompileFailed(f"a session ended with status {done.returncode}: {excerpt(done.stderr)}") from None


def one_session(store: Path, launches: int) -> SessionMeans | None:
    """Measure a session in this process, or None where fewer than two of its launches count."""
    from pytest_ngraph.compilers.catalogue import Catalogue
    from pytest_ngraph.devices.local import LOCK, job, local_device
    from pytest_ngraph.devices.lock import device_lock
    from pytest_ngraph.launches.equal_code import equal_launches
    from pytest_ngraph.options.settings import resolve
    from pytest_ngraph.quantities.comparisons import throughput_ratio
    from pytest_ngraph.quantities.measurement import Measurement
    from pytest_ngraph.quantities.quantity import NotStored
    from pytest_ngraph.report.results.stored import Stored

    def ignore(text: str) -> None:
        """What is said of launches is not shown: only sessions are."""

    here = Path.cwd()
    settings = replace(resolve({}, {}, rootdir=here, invocation_dir=here, environ=os.environ), store=here / store)
    device, catalogue = local_device(settings), Catalogue()
    compiler = CompilerSpec("identity")
    if catalogue.get("identity").missing() is not None:
        compiler = CompilerSpec.parse("null[fixed_us=1000]")
    with device_lock(LOCK, waiting=ignore):
        equal = equal_launches(
            job(settings, catalogue, device, []),
            compiler,
            reads=catalogue.get(compiler.name).reads,
            launches=launches,
            protocol=PROTOCOLS["gate"],
            report=ignore,
        )
    source = Stored([record for record in equal.records if not record.invalid], [], PROTOCOLS["gate"], 1)
    first, twin = (Measurement(source, cell, cell) for cell in equal.twins[0])
    try:
        latency, ratio = first.quantity("latency").values(), throughput_ratio(first, twin).values()
    except NotStored:
        return None
    if min(len(latency), len(ratio)) < 2:
        return None
    return SessionMeans(*(math.fsum(one.value for one in each) / len(each) for each in (latency, ratio)))


def main(words: Sequence[str]) -> int:
    """Measure one session and print what it says as a line of JSON, the last."""
    store, launches = words
    try:
        found = one_session(Path(store), int(launches))
    except NgraphError as error:
        print(json.dumps({"error": str(error)}))
        return 2
    means = {"latency": found.latency, "ratio": found.ratio} if found is not None else {}
    print(json.dumps({"counts": found is not None, **means}))
    return 0
