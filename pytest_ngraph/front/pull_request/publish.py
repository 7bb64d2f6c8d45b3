"""At the end of a run: the summary's file, GitHub's step summary and annotations, from the store and the tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ngraph.errors import StoreError
from pytest_ngraph.front.summary.files import WRITTEN
from pytest_ngraph.front.summary.shown import run_of
from pytest_ngraph.machine.gpu import name_in
from pytest_ngraph.options.settings import nearby
from pytest_ngraph.report.pull_request.annotations import commands
from pytest_ngraph.report.pull_request.comment import STEP_BYTES, comment, mark_of
from pytest_ngraph.report.pull_request.gates import Gates, gates_of
from pytest_ngraph.report.results.verdicts import family_line
from pytest_ngraph.store.rows import facts_of
from pytest_ngraph.texts.escaping import markdown_code
from pytest_ngraph.texts.shown import clean, one_line

if TYPE_CHECKING:
    from pytest_ngraph.front.run import State
    from pytest_ngraph.store.rows import RunRow, VerdictRow

# pytest-github-actions-annotate-failures, and the object that it registers.
_ANNOTATING = ("pytest_github_actions_annotate_failures", "annotate_errors")


def publish(state: State) -> None:
    """Write what was asked for, and keep the lines to print of it. It never fails a run.

    A run that only collects has nothing to say. Without a terminal reporter lines are printed at once: annotations are
    for a runner, which reads them in either case, and what could not be written is for people.
    """
    plugins = state.config.pluginmanager
    step, wanted = os.environ.get("GITHUB_STEP_SUMMARY"), state.settings.summary
    # GitHub shows ten annotations of a kind: a plugin that makes them of all failed tests needs no second ones.
    annotates = bool(os.environ.get("GITHUB_ACTIONS")) and not any(map(plugins.has_plugin, _ANNOTATING))
    if state.config.option.collectonly or not (wanted or step or annotates):
        return
    rows, run, problem = _judged(state)
    gates = gates_of(rows, state.noted_by_all, state.gates.left_out)
    said: list[str] = []
    if problem:
        said.append(f"ngraph: no verdicts for the pull request: {problem}")
    notes, mark = _notes(state, rows, run, problem), mark_of(state.settings.devices, _suite_of(state.config))
    if wanted is not None:
        said.append(_written(wanted, comment(gates, notes, mark)))
    if step:
        said += _appended(Path(step), gates, notes, mark)
    if annotates:
        # A runner takes what begins a line, of either stream.
        said += commands(gates, lambda path: _in_repository(state.config.rootpath / path, state.config.rootpath))
    state.published = said
    if not plugins.has_plugin("terminalreporter"):
        sys.stderr.write("".join(f"{line}\n" for line in said))


def _judged(state: State) -> tuple[Sequence[VerdictRow], RunRow | None, str]:
    """Return the verdicts of this run, the run where it is stored, and why the store gives none where it should."""
    from pytest_ngraph.store.sqlite import Store

    settings = state.settings
    judged, _ = state.judged_by_all
    if not settings.store.exists():
        return judged, None, ""
    try:
        with Store.open(settings.store, read_only=True) as store:
            run = run_of(store, state)
            return (judged if settings.offline or run is None else store.verdicts(run.id)), run, ""
    except StoreError as error:
        return judged, None, one_line(str(error))


def _notes(state: State, rows: Sequence[VerdictRow], run: RunRow | None, problem: str) -> list[str]:
    """Return what is to be known of all gates: how the run ended, where it ran, and how often gates err."""
    notes = []
    if problem:
        notes.append(f"The store could not be read: {markdown_code(problem)}")
    if not state.ran_through:
        notes.append("The run was cut short: tests that were still to come are not here.")
    device = markdown_code(one_line(", ".join(state.settings.devices)))
    where = f"Device {device}"
    if run is not None:
        machine = _machine_of(run, state.settings.devices)
        where += f" ({markdown_code(machine)})" if machine else ""
        where += f", run {run.id} of its store"
    notes.append(f"{where}, protocol {state.settings.protocol.name}.")
    family = family_line(rows) if state.settings.protocol.error_control else ""
    return [*notes, f"Of {family}."] if family else notes


def _machine_of(run: RunRow, devices: Sequence[str]) -> str:
    """Return processor and GPU of the device of a run, nothing where there are several or it is not known."""
    if len(devices) != 1:
        return ""
    facts = facts_of(run.environment, devices[0]) or {}
    return one_line(", ".join(filter(None, [str(facts.get("cpu") or ""), name_in(facts)])))


def _suite_of(config: pytest.Config) -> str:
    """Return what names the suite from run to run: the paths that were given, from the rootdir on."""
    folder, root = config.invocation_params.dir, config.rootpath
    given = dict.fromkeys(config.args) or {str(root): None}
    return ",".join(_below(folder / one, root) for one in given)


def _below(path: Path, folder: Path) -> str:
    """Return a path as it is below a folder, with slashes; any other as it is."""
    return Path(os.path.relpath(path, folder)).as_posix() if path.drive == folder.drive else path.as_posix()


def _in_repository(path: Path, rootdir: Path) -> str:
    """Return a path from the root of the checkout, or from the rootdir where that is not in it."""
    whole, root, given = path.resolve(), rootdir.resolve(), os.environ.get("GITHUB_WORKSPACE")
    checkout = Path(given).resolve() if given else root
    return clean(_below(whole, checkout if whole.is_relative_to(checkout) else root))


def _written(path: Path, text: str) -> str:
    from pytest_ngraph.report.export.files import write_text

    try:
        write_text(text, path)
    except StoreError as error:
        return f"ngraph: not written: {error}"
    return f"{WRITTEN}{nearby(path)}"


def _appended(path: Path, gates: Gates, notes: Sequence[str], mark: str) -> list[str]:
    """Add the gates to the summary of the job's step, which others may write to as well. Return a warning, if any."""
    try:
        there = path.stat().st_size if path.exists() else 0
        # What was written before may lack the end of its last line, and a table needs an empty one before it.
        text = ("\n\n" if there else "") + comment(gates, notes, mark, STEP_BYTES - there)
        if there + len(text.encode("utf-8", "backslashreplace")) > STEP_BYTES:
            return [f"ngraph: warning: GITHUB_STEP_SUMMARY has {there} bytes, which leaves no room for the gates"]
        with path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return [f"ngraph: warning: GITHUB_STEP_SUMMARY {one_line(str(path))}: {one_line(reason)}; the run goes on"]
    return []
