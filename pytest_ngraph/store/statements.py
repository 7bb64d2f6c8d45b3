"""Every statement of the store: fixed texts, values only as parameters."""

from __future__ import annotations

ADD_CELL = "INSERT OR IGNORE INTO cells (cell) VALUES (?)"

ADD_RUN = """
    INSERT INTO runs (uid, started_at, command, seed, protocol, environment, fresh, resumed)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    -- Another process of the run may have come to its end before this one began.
    ON CONFLICT (uid) DO UPDATE SET status = 'running', finished_at = NULL
"""
REOPEN_RUN = "UPDATE runs SET status = 'running', finished_at = NULL, resumed = 1 WHERE uid = ?"
RUN_ID = "SELECT id, environment FROM runs WHERE uid = ?"
ENVIRONMENT = "SELECT environment FROM runs WHERE id = ?"
SET_ENVIRONMENT = "UPDATE runs SET environment = ? WHERE id = ?"
END_OF_RUN = "SELECT environment_end FROM runs WHERE id = ?"
SET_END_OF_RUN = "UPDATE runs SET environment_end = ? WHERE id = ?"
FINISH_RUN = "UPDATE runs SET status = ?, finished_at = ?, environment_end = ? WHERE id = ?"
RUNS = """
    SELECT id, uid, started_at, finished_at, status, command, seed, protocol_name, environment, fresh, resumed,
        environment_end
    FROM runs ORDER BY id
"""
LAST_SIGN = """
    SELECT max(sign) FROM (
        SELECT max(started_at, coalesce(finished_at, '')) AS sign FROM runs WHERE id = :run
        UNION ALL SELECT max(started_at, coalesce(finished_at, '')) FROM launches
        WHERE run_id = :run AND NOT is_damaged(id)
        UNION ALL SELECT judged_at FROM verdicts WHERE run_id = :run
    )
"""
COUNTS_OF_RUNS = """
    SELECT id, (SELECT count(*) FROM launches WHERE run_id = runs.id AND finished_at IS NOT NULL),
        (SELECT count(DISTINCT cell_id) FROM run_cells WHERE run_id = runs.id)
    FROM runs
"""

# How long a launch took, by the device's own clock, which neither steps nor counts while the machine sleeps. Without
# both of its ends, or after a restart, only the time of day is known, which may have been put back.
_AT, _AT_END = "json_extract(launches.environment, '$.at')", "json_extract(launches.environment_end, '$.at')"
_SECONDS = f"""CASE WHEN {_AT_END} >= {_AT} THEN {_AT_END} - {_AT}
        ELSE max(0.0, (julianday(launches.finished_at) - julianday(launches.started_at)) * 86400) END"""

REMEMBERED = f"""
    SELECT launch_group, cell_order, {_SECONDS}, invalid FROM launches
    WHERE kind = 'timed' AND protocol_name = ? AND finished_at IS NOT NULL AND NOT is_damaged(launches.id)
    ORDER BY id DESC LIMIT ?
"""  # noqa: S608 - texts of this file

USE_CELL = """
    INSERT OR IGNORE INTO run_cells (run_id, cell_id, evidence)
    VALUES (?, (SELECT id FROM cells WHERE cell = ?), ?)
"""
USE_BASELINE = """
    INSERT OR IGNORE INTO run_baselines (run_id, cell_id, baseline_id)
    VALUES (?, (SELECT id FROM cells WHERE cell = ?), (SELECT id FROM cells WHERE cell = ?))
"""
BASELINES_OF_RUN = """
    SELECT mine.cell, other.cell
    FROM run_baselines JOIN cells AS mine ON mine.id = cell_id JOIN cells AS other ON other.id = baseline_id
    WHERE run_id = ?
"""
CELLS_OF_RUN = """
    SELECT cells.cell, used.evidence
    FROM (
        SELECT cell_id, evidence FROM run_cells WHERE run_id = :run
        UNION
        SELECT prepared.cell_id, prepared.evidence
        FROM launches JOIN prepared ON prepared.launch_id = launches.id
        WHERE launches.run_id = :run AND NOT is_damaged(launches.id)
    ) AS used
    JOIN cells ON cells.id = used.cell_id
    -- A resumed run may have a cell with old and with new evidence: the newest is last, and what is read as a mapping.
    ORDER BY cells.id, coalesce((
        SELECT max(latest.launch_id) FROM prepared AS latest
        WHERE latest.cell_id = used.cell_id AND latest.evidence = used.evidence), 0)
"""

# Of two in a resumed run the newest one, as in ``CELLS_OF_RUN``.
LATEST_EVIDENCE = """
    SELECT used.evidence
    FROM run_cells AS used JOIN cells ON cells.id = used.cell_id JOIN runs ON runs.id = used.run_id
    WHERE cells.cell = :cell
      AND (:protocol IS NULL OR runs.protocol_name = :protocol) AND (:seed IS NULL OR runs.seed = :seed)
    ORDER BY used.run_id DESC, coalesce((
        SELECT max(latest.launch_id) FROM prepared AS latest
        WHERE latest.cell_id = used.cell_id AND latest.evidence = used.evidence), 0) DESC
    LIMIT 1
"""

EVIDENCE_BY_RUN = """
    SELECT DISTINCT launches.run_id, prepared.evidence
    FROM prepared
        JOIN launches ON launches.id = prepared.launch_id
        JOIN cells ON cells.id = prepared.cell_id
    WHERE cells.cell = ? AND launches.finished_at IS NOT NULL AND launches.invalid = '' AND NOT is_damaged(launches.id)
    ORDER BY launches.id
"""

ADD_LAUNCH = """
    INSERT INTO launches (run_id, kind, launch_group, number, seed, protocol, cell_order, environment, started_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
FINISH_LAUNCH = """
    UPDATE launches SET finished_at = ?, invalid = ?, environment_end = ?, readings = ? WHERE id = ?
"""
LAUNCHES_OF_RUN = """
    SELECT id, number, seed, invalid, environment, environment_end
    FROM launches
    WHERE run_id = ? AND kind = 'timed' AND finished_at IS NOT NULL AND NOT is_damaged(id)
    ORDER BY id
"""
FINISHED_LAUNCHES = "SELECT id FROM launches WHERE finished_at IS NOT NULL"

INCOMPLETE_LAUNCHES = "SELECT count(*) FROM launches WHERE run_id = ? AND finished_at IS NULL"
ADD_PREPARED = """
    INSERT INTO prepared (launch_id, cell_id, evidence, record)
    VALUES (?, (SELECT id FROM cells WHERE cell = ?), ?, ?)
    ON CONFLICT (launch_id, cell_id) DO UPDATE SET evidence = excluded.evidence, record = excluded.record
"""
ADD_VISIT = """
    INSERT INTO visits (
        launch_id, cell_id, block, position, calls, wall_ns, cpu_ns, run_delay_ns, faults, request_ns, around
    )
    VALUES (?, (SELECT id FROM cells WHERE cell = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

# Which launches count for a cell: finished, begun in this epoch, of this kind, not damaged, and valid unless asked
# otherwise. They are found by evidence, which knows a model by its content: another checkout has the same one at
# another path, so all of the cell's text but the model, and that of its neighbour, agrees. Of several such cells in a
# launch the one that is asked for comes last.
_PLACES = "'$.workload.model', '$.workload.beside'"
_SINCE = "launches.id >= coalesce((SELECT first_launch FROM epochs WHERE epochs.evidence = prepared.evidence), 0)"
_WHOLE = """launches.finished_at IS NOT NULL
      AND NOT is_damaged(launches.id)"""
_COUNTS = f"""{_SINCE}
      AND {_WHOLE}"""
_OF_CELL = f"""FROM prepared
        JOIN launches ON launches.id = prepared.launch_id
        JOIN cells ON cells.id = prepared.cell_id
    WHERE prepared.evidence = :evidence
      AND json_remove(cells.cell, {_PLACES}) = json_remove(:cell, {_PLACES})
      AND {_WHOLE}"""
PREPARED = f"""
    SELECT launches.id, prepared.cell_id, prepared.record
    {_OF_CELL}
      AND launches.kind = :kind
      AND (launches.invalid = '' OR :include_invalid)
      AND (:any_epoch OR {_SINCE})
    ORDER BY launches.id, cells.cell = :cell, cells.id DESC
"""
LAST_RECORD = f"""
    SELECT prepared.record
    {_OF_CELL}
      AND launches.kind NOT IN ('memory', 'evaluation', 'agreement', 'power')
      AND {_SINCE}
    ORDER BY launches.id DESC, cells.cell = :cell DESC, cells.id LIMIT 1
"""
LAUNCH = f"""
    SELECT number, seed, protocol_name, invalid, {_SECONDS}, readings,
        json_extract(environment, '$.usual_state'), coalesce(json_extract(environment_end, '$.shared'), ''), run_id,
        coalesce(json_extract(environment_end, '$.unsteady'), '[]'),
        coalesce(json_extract(environment_end, '$.stolen'), '[]'), json_extract(environment_end, '$.alone')
    FROM launches WHERE id = ?
"""  # noqa: S608 - texts of this file
# In which states a device was of late: what the reference kernel read in each launch, how long that took, on which
# machine, and how crowded that was.
READINGS = f"""
    SELECT launches.readings, {_SECONDS}, runs.environment, json_extract(launches.environment_end, '$.crowding'),
        json_extract(launches.environment_end, '$.fastest')
    FROM launches JOIN runs ON runs.id = launches.run_id
    WHERE launches.kind = 'timed' AND {_WHOLE}
      AND (launches.invalid = '' OR :include_invalid)
      AND launches.readings <> '[]'
      AND EXISTS (
        SELECT 1 FROM prepared JOIN cells ON cells.id = prepared.cell_id
        WHERE prepared.launch_id = launches.id AND cells.device = :device
      )
    ORDER BY launches.id DESC LIMIT :most
"""  # noqa: S608 - texts of this file
VISITS = """
    SELECT block, position, calls, wall_ns, cpu_ns, run_delay_ns, faults, request_ns
    FROM visits
    WHERE launch_id = ? AND cell_id = ?
    ORDER BY block
"""

# The same for a whole run: what counts for each of many cells, given as a JSON list of pairs of evidence and cell, and
# then all that a launch holds. What a cell gave is not looked at here: that is spread over the whole file.
LAUNCHES_OF_CELLS = f"""
    SELECT wanted.key, launches.id, prepared.cell_id, launches.kind, launches.invalid
    FROM json_each(:wanted) AS wanted
        CROSS JOIN prepared ON prepared.evidence = json_extract(wanted.value, '$[0]')
        JOIN launches ON launches.id = prepared.launch_id
        JOIN cells ON cells.id = prepared.cell_id
    WHERE (
        cells.cell = json_extract(wanted.value, '$[1]')
        OR json_remove(cells.cell, {_PLACES}) = json_remove(json_extract(wanted.value, '$[1]'), {_PLACES})
      )
      AND {_COUNTS}
    ORDER BY wanted.key, launches.id, cells.cell = json_extract(wanted.value, '$[1]'), cells.id DESC
"""  # noqa: S608 - texts of this file
PREPARED_IN_LAUNCH = "SELECT cell_id, record FROM prepared WHERE launch_id = ?"
RECORD_IN_LAUNCH = "SELECT record FROM prepared WHERE launch_id = ? AND cell_id = ?"
# All that a seal is of, in the order in which it is, so that what was read is checked as it is.
VISITS_IN_LAUNCH = """
    SELECT launch_id, cell_id, block, position, calls, wall_ns, cpu_ns, run_delay_ns, faults, request_ns, around
    FROM visits WHERE launch_id = ? ORDER BY cell_id, block
"""

# Within one run an epoch begins once: a sibling's or a resumed process's second call keeps what the run has measured.
START_EPOCH = """
    INSERT INTO epochs (evidence, first_launch, run_id, started_at)
    VALUES (?, (SELECT coalesce(max(id), 0) + 1 FROM launches), ?, ?)
    ON CONFLICT (evidence) DO UPDATE
    SET first_launch = excluded.first_launch, run_id = excluded.run_id, started_at = excluded.started_at
    WHERE excluded.run_id IS NULL OR epochs.run_id IS NOT excluded.run_id
"""

EPOCH = "SELECT first_launch FROM epochs WHERE evidence = ?"

EXPLAIN = """
    INSERT INTO explanations (evidence, cell, explanation, explained_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (evidence) DO UPDATE
    SET cell = excluded.cell, explanation = excluded.explanation, explained_at = excluded.explained_at
"""
EXPLANATION = "SELECT explanation, explained_at FROM explanations WHERE evidence = ?"
EXPLAINED = "SELECT evidence FROM explanations"

ADD_VERDICT = """
    INSERT INTO verdicts (run_id, nodeid, claim, metric, bound, at_least, tolerance, estimate, low, high, launches,
        verdict, smallest_effect, extra, judged_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# A claim that was judged again within a run, on more launches or in a re-run, counts as it was judged last.
VERDICTS_OF_RUN = """
    SELECT nodeid, claim, metric, bound, at_least, tolerance, estimate, low, high, launches, verdict,
        smallest_effect, extra
    FROM verdicts
    WHERE id IN (SELECT max(id) FROM verdicts WHERE run_id = ? GROUP BY nodeid, claim)
    ORDER BY id
"""
# Claims that their tolerance left open in the latest run of their test; a test is looked up in the index only.
UNDECIDED_CLAIMS = """
    SELECT mine.nodeid, claim, metric, bound, at_least, tolerance, estimate, low, high, launches, verdict,
        smallest_effect, extra
    FROM (SELECT nodeid, max(run_id) AS run_id FROM verdicts GROUP BY nodeid) AS latest
    JOIN verdicts AS mine ON mine.nodeid = latest.nodeid AND mine.run_id = latest.run_id
    -- What is claimed without a tolerance is not asked to see any.
    WHERE verdict = 'inconclusive' AND tolerance > 0 AND smallest_effect > tolerance
      AND NOT EXISTS (
        SELECT 1 FROM verdicts AS later
        WHERE later.nodeid = mine.nodeid AND later.run_id = mine.run_id AND later.claim = mine.claim
          AND later.id > mine.id
      )
    ORDER BY mine.id
"""
# The first time that a claim was judged on some evidence; a gate without launches was not.
FIRST_JUDGEMENT = """
    SELECT nodeid, claim, metric, bound, at_least, tolerance, estimate, low, high, launches, verdict,
        smallest_effect, extra
    FROM verdicts
    WHERE nodeid = :nodeid AND claim = :claim AND launches > 0 AND json_extract(extra, '$.evidence') = :evidence
    ORDER BY id LIMIT 1
"""
LAST_SETTLED = """
    SELECT max(run_id) FROM verdicts
    WHERE json_extract(extra, '$.reason') = :reason AND json_extract(extra, '$.subject') = :subject
        AND json_extract(extra, '$.side') = :side
"""
CLAIMS_OF_TEST = """
    SELECT nodeid, claim, metric, bound, at_least, tolerance, estimate, low, high, launches, verdict,
        smallest_effect, extra
    FROM verdicts
    WHERE id IN (
        SELECT max(id) FROM verdicts
        WHERE nodeid = :nodeid AND run_id = (SELECT max(run_id) FROM verdicts WHERE nodeid = :nodeid)
        GROUP BY claim
    )
    ORDER BY id
"""
