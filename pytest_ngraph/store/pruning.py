"""What is removed with a run from a store, and what is kept because another run needs it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_ngraph.store.seals import Sealer


@dataclass(frozen=True, slots=True)
class Pruned:
    """What is taken out: runs and launches by number, and about how many bytes that is. ``kept`` are launches of these
    runs that the last run judges.
    """

    runs: Sequence[int]
    launches: Sequence[int]
    kept: Sequence[int]
    freed_bytes: int


_NEEDED = """
    SELECT DISTINCT prepared.launch_id FROM prepared
    WHERE prepared.evidence IN (SELECT evidence FROM run_cells WHERE run_id = ?)
"""
_BYTES = """
    SELECT coalesce(
        sum(length(wall_ns) + length(cpu_ns) + length(run_delay_ns) + length(faults) + length(request_ns)), 0)
    FROM visits WHERE launch_id = ?
"""


def choose(connection: sqlite3.Connection, runs: Sequence[int], last: int | None) -> Pruned:
    """Return what is removed with these runs. What was measured with the evidence that ``last`` judged stays."""
    measured = sorted(
        launch
        for run in runs
        for (launch,) in connection.execute("SELECT id FROM launches WHERE run_id = ?", (run,)).fetchall()
    )
    needed = {launch for (launch,) in connection.execute(_NEEDED, (last,))} if last is not None else set()
    gone = [launch for launch in measured if launch not in needed]
    freed = sum(connection.execute(_BYTES, (launch,)).fetchone()[0] for launch in gone)
    return Pruned(tuple(runs), gone, [launch for launch in measured if launch in needed], freed)


def take_out(connection: sqlite3.Connection, sealer: Sealer, runs: Iterable[int], pruned: Pruned) -> None:
    """Delete the rows, those that refer to others first."""
    for launch in pruned.launches:
        sealer.let_go(launch)
        for statement in (
            "DELETE FROM visits WHERE launch_id = ?",
            "DELETE FROM prepared WHERE launch_id = ?",
            "DELETE FROM launches WHERE id = ?",
        ):
            connection.execute(statement, (launch,))
    for run in runs:
        for statement in (
            "DELETE FROM verdicts WHERE run_id = ?",
            "DELETE FROM run_cells WHERE run_id = ?",
            "DELETE FROM run_baselines WHERE run_id = ?",
        ):
            connection.execute(statement, (run,))
        if connection.execute("SELECT 1 FROM launches WHERE run_id = ?", (run,)).fetchone():
            connection.execute("UPDATE runs SET status = 'pruned' WHERE id = ?", (run,))
        else:
            connection.execute("UPDATE epochs SET run_id = NULL WHERE run_id = ?", (run,))
            connection.execute("DELETE FROM runs WHERE id = ?", (run,))
    connection.execute(
        "DELETE FROM cells WHERE id NOT IN (SELECT cell_id FROM prepared UNION SELECT cell_id FROM run_cells "
        "UNION SELECT cell_id FROM run_baselines UNION SELECT baseline_id FROM run_baselines)"
    )
