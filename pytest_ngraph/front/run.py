"""What the plugin keeps for one pytest run: its settings, the items that will run, and a session for each device."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import CodeType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.errors import SpecError, StoreError
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.table import ROWS
from pytest_ngraph.texts.shown import one_line

if TYPE_CHECKING:
    from pytest_ngraph.devices.bench import Bench
    from pytest_ngraph.devices.lab.known import Devices
    from pytest_ngraph.front.ci import Gates
    from pytest_ngraph.front.progress import Progress
    from pytest_ngraph.optimizers.catalogue import Optimizers
    from pytest_ngraph.options.settings import Settings
    from pytest_ngraph.places import Places
    from pytest_ngraph.plan.items import ItemPlan
    from pytest_ngraph.report.pull_request.gates import Noted
    from pytest_ngraph.report.results.offline import Judged
    from pytest_ngraph.session.ledger import Tally
    from pytest_ngraph.session.run_budget import Notes
    from pytest_ngraph.session.session import Session
    from pytest_ngraph.session.side_by_side import Board
    from pytest_ngraph.sides import SidesOfRun
    from pytest_ngraph.spec.cells import Cell
    from pytest_ngraph.store.rows import LeftOut, VerdictRow
    from pytest_ngraph.workloads.kinds import Models


_OF_MEMORY = frozenset(
    {
        "assert_memory",
        "peak_memory_bytes",
        "compile_peak_memory_bytes",
        "run_peak_memory_bytes",
        "peak_gpu_memory_bytes",
    }
)
# Of what outputs are worth: passes evaluate that, and no launch times it.
_OF_WORTH = frozenset({"assert_accuracy", "assert_accuracy_drop", "assert_agreement"})
_TIMED = METRICS.keys() - {"accuracy", "accuracy_drop", "agreement"}


class State:
    """What the plugin keeps for one pytest run. ``uid`` names the run, the same for all workers of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.uid = str(getattr(config, "workerinput", {}).get("testrunuid") or uuid.uuid4().hex)
        self._folder = config.invocation_params.dir
        self.catalogue = CompilersDoor()
        self.items: list[pytest.Item] = []
        self.folders: list[str] = []
        # What the workers of pytest-xdist have done, as ``done`` gives it; empty in a run of one process.
        self.reported: list[Mapping[str, Any]] = []
        # Tests that could not run, functions that claim nothing (see ``Gates``), and by test what is not stored.
        self.skipped: list[tuple[str, str]] = []
        self.claimless: set[str] = set()
        self.left_out: dict[str, int] = {}
        # Whether the tests came to their end, and were not cut short.
        self.ran_through = False
        self.not_stored: dict[str, str] = {}
        # Where tests are that failed or left a gate open; and what to print of what a pull request was given.
        self.noted: dict[str, Noted] = {}
        self.published: list[str] = []
        # By cell, and by key of a sweep, the test in which it is held against the saved baseline.
        self.compared: dict[Cell | str, str] = {}
        self._first_claim = self._undecided = 0
        self._over: set[str] = set()
        self._sessions: dict[str, Session] = {}
        self._is_planned = False
        self._not_installed: list[LeftOut] = []
        self._verdicts: list[VerdictRow] = []

    @cached_property
    def has_options(self) -> bool:
        """Return whether any option of this plugin was given, on the command line or in the ini file."""
        return any(self.config.getoption(row.dest) or self._ini[row.ini] != "" for row in ROWS)

    @cached_property
    def _ini(self) -> Mapping[str, object]:
        """Return what the ini file says, by the names of the ini twins. Raise UsageError for what pytest refuses."""
        try:
            return {row.ini: self.config.getini(row.ini) for row in ROWS}
        except TypeError as error:
            # pytest 9.0 and 9.1 take texts alone, and leave it to us to say so to the user.
            raise pytest.UsageError(f"{error} (write the value in quotes)") from None

    @cached_property
    def settings(self) -> Settings:
        """Return every option, resolved. Raise UsageError for one that cannot be used."""
        from pytest_ngraph.interpreter import standard_library_first
        from pytest_ngraph.options.settings import resolve

        config = self.config
        # There is something to do: what is imported for it from now on must not come from the suite's folders.
        preferring = contextlib.ExitStack()
        preferring.enter_context(standard_library_first())
        config.add_cleanup(preferring.close)
        try:
            settings = resolve(
                {row.field: config.getoption(row.dest) for row in ROWS},
                self._ini,
                rootdir=config.rootpath,
                invocation_dir=config.invocation_params.dir,
                environ=os.environ,
            )
            if settings.compare is not None:
                from pytest_ngraph.report.baselines.file import check, named

                check(named(settings.compare, config.rootpath, config.invocation_params.dir), settings.missing_baseline)
            if settings.against or settings.side:
                from pytest_ngraph.sides import check_sides

                check_sides(settings)
            return settings
        except SpecError as error:
            raise pytest.UsageError(str(error)) from None

    @cached_property
    def models(self) -> Models:
        """Return the kinds of models that this run may name."""
        from pytest_ngraph.workloads.kinds import Models

        return Models()

    @cached_property
    def optimizers(self) -> Optimizers:
        """Return what this run may do to networks."""
        from pytest_ngraph.optimizers.catalogue import Optimizers

        return Optimizers()

    @cached_property
    def devices(self) -> Devices:
        """Return the devices that this run may name."""
        from pytest_ngraph.devices.lab.known import Devices

        return Devices(
            self.settings,
            self.catalogue,
            self.config.rootpath,
            lambda: self.folders,
            self.progress.note,
            collects=bool(self.config.option.collectonly),
            sides=lambda: self.sides,
        )

    @cached_property
    def sides(self) -> SidesOfRun | None:
        """Return the other sides of this run, None where it has none. Raises SpecError for what can be none."""
        asked = {plan.marker.against for item in self.items if not (plan := item.stash[PLAN]).deselected}
        own = {self.settings.against, self.settings.side} if self.items else set()
        # Whoever only lists tests waits neither for git nor for packages.
        if self.config.option.collectonly or not any((*asked, *own)):
            return None
        from pytest_ngraph.sides import SidesOfRun

        return SidesOfRun((*asked, *own), self.settings, self.config.rootpath, self.progress.note)

    @cached_property
    def progress(self) -> Progress:
        """Return what shows a user how far measuring is."""
        from pytest_ngraph.front.progress import Progress

        return Progress(self.config)

    def meet_neighbours(self) -> None:
        """Have plugins that report in a way of their own show undecided gates, where there are any such plugins."""
        if not sys.modules.keys().isdisjoint(("pytest_html", "pytest_sugar")):
            from pytest_ngraph.front.neighbours import meet

            meet(self.config)

    def session(self, device: str) -> Session:
        """Return the session of a device. The first call plans all collected items, on all of their devices.

        Raises SpecError, DeviceOffline or DeviceUnusable for a device that cannot be used.
        """
        self.plan()
        if device not in self._sessions:
            # Of this device no item can run; it is asked for all the same, and says why.
            self._sessions[device] = self._new_session(self.devices.bench(device), None)
        return self._sessions[device]

    @property
    def sessions(self) -> Sequence[Session]:
        """Return the sessions of this run so far."""
        return tuple(self._sessions.values())

    def plan(self) -> None:
        """Give every device that is there a session with the plans of its items, once."""
        if self._is_planned:
            return
        self._is_planned = True
        from pytest_ngraph.plan.items import left_out

        plans: dict[str, list[ItemPlan]] = {}
        lacking: list[ItemPlan] = []
        for item in self.items:
            plan = item.stash[PLAN]
            if plan.cells and plan.missing is None:
                looks_at_memory, is_untimed = _guessed(item)
                named = replace(plan, nodeid=id_of(item), looks_at_memory=looks_at_memory, is_untimed=is_untimed)
                plans.setdefault(plan.device, []).append(named)
            elif plan.cells and item.get_closest_marker("skip") is None:
                # What its author skips anyway nobody asked for.
                lacking.append(plan)
        self._not_installed = left_out(lacking)
        board = None
        if len(plans) > 1:
            from pytest_ngraph.session.side_by_side import Board

            board = Board(self.progress)
        for device, mine in plans.items():
            self._sessions[device] = session = self._new_session(self.devices.bench(device), board)
            session.plan(mine)
            for nodeid in self._over:
                session.finished(nodeid)
        for session in self._sessions.values():
            session.look_ahead()

    def _new_session(self, bench: Bench, board: Board | None) -> Session:
        from pytest_ngraph.options.masking import masked_command

        common: dict[str, Any] = {
            "uid": self.uid,
            "command": masked_command(self._words, self._folder),
            "verdicts": self._verdicts,
            "registered": lambda: self.devices.registry.devices,
            "sides": self.devices.other_sides(bench.device.name),
            "notes": self._notes,
        }
        session: Session
        if board is not None:
            from pytest_ngraph.session.side_by_side import SideBySide

            session = SideBySide(self.settings, self.catalogue, bench, board, **common)
        else:
            from pytest_ngraph.session.session import Session

            session = Session(self.settings, self.catalogue, bench, self.progress, **common)
        # Whichever of them begins the run keeps what is left out on all devices.
        session.leave_out(self._not_installed)
        return session

    @property
    def _words(self) -> Sequence[str]:
        """Return the command that began the run: a worker of pytest-xdist is started with ``-c`` and knows its own."""
        if (given := getattr(self.config, "workerinput", None)) is None:
            return sys.argv
        words: Sequence[str] = given.get("mainargv") or ("pytest", *map(str, self.config.invocation_params.args))
        return words

    @cached_property
    def _notes(self) -> Notes | None:
        """Return what the processes of pytest-xdist share the time of a run by, None where none is shared."""
        settings = self.settings
        if settings.run_seconds is None or settings.offline or not hasattr(self.config, "workerinput"):
            return None
        from pytest_ngraph.session.run_budget import Notes

        return Notes(settings.store.parent, self.uid)

    def over(self, nodeid: str) -> None:
        """Note that a test is over: later launches need not serve it."""
        self._over.add(nodeid)
        if self._notes is not None:
            self._notes.ends(nodeid)
        for session in self._sessions.values():
            session.finished(nodeid)

    @property
    def run_uid(self) -> str:
        """Return the name of the run in the store: that of the run which is resumed, if one is.

        Which one that is the workers of pytest-xdist tell their controller.
        """
        begun = [session.uid for session in self._sessions.values() if session.has_begun]
        told = [each["run"] for each in self.reported if each["run"]]
        return next(iter((*begun, *told)), self.uid)

    @property
    def verdicts(self) -> Sequence[VerdictRow]:
        """Return what this process has judged."""
        return self._verdicts

    @property
    def judged(self) -> Judged | None:
        """Return this process's cells with their evidence, and their baselines, or None where nothing was asked for."""
        if not self._sessions:
            return None
        cells: dict[Cell, str] = {}
        against: dict[Cell, Cell] = {}
        for session in self._sessions.values():
            mine, baselines = session.judged
            cells.update(mine)
            against.update(baselines)
        return cells, against

    @property
    def judged_by_all(self) -> tuple[Sequence[VerdictRow], Judged | None]:
        """Return what this process has judged, and where nothing is written what the workers of pytest-xdist have."""
        from pytest_ngraph.report.results.offline import together

        return together(self.verdicts, self.judged, [each["judged"] for each in self.reported if "judged" in each])

    # What became of each test

    def begin(self, nodeid: str) -> None:
        """Note that a test begins, or begins again: the claims from here on are this try's."""
        self._first_claim, self._undecided = len(self.verdicts), 0
        self.not_stored.pop(nodeid, None)
        self.noted.pop(nodeid, None)
        if self._notes is not None:
            self._notes.begins(nodeid)

    @property
    def claims(self) -> Sequence[VerdictRow]:
        """Return what the running test has claimed so far."""
        return self.verdicts[self._first_claim :]

    def leave_out(self, function: str, reason: str, what: str) -> None:
        """Note that a test of a function cannot run. ``what`` says which compiler and why, whatever its cell."""
        self.skipped.append((function, reason))
        what = one_line(what)
        self.left_out[what] = self.left_out.get(what, 0) + 1

    def leaves_undecided(self, nodeid: str, when: str) -> bool:
        """Return whether the running test left a gate undecided, up to its call or in its tear-down alone."""
        before = self._undecided
        self._undecided = sum(row.is_open for row in self.claims)
        self._undecided += nodeid in self.not_stored
        return self._undecided > (before if when == "teardown" else 0)

    @property
    def noted_by_all(self) -> Mapping[str, Noted]:
        """Return what was noted of tests here and by the workers of pytest-xdist."""
        from pytest_ngraph.report.pull_request.gates import Noted

        there = {nodeid: Noted(**each) for done in self.reported for nodeid, each in done["noted"].items()}
        return {**there, **self.noted}

    @property
    def not_stored_by_all(self) -> Mapping[str, str]:
        """Return what no launch says anything of, by the test that asks for it, here and in the workers of xdist."""
        return {nodeid: noted.why for nodeid, noted in self.noted_by_all.items() if noted.is_open}

    @property
    def tally(self) -> Tally | None:
        """Return what was measured here and by the workers of pytest-xdist, or None where nothing was."""
        from dataclasses import asdict

        reported = [each["tally"] for each in self.reported]
        done = [*reported, *(asdict(session.tally) for session in self._sessions.values())]
        if not any(done):
            return None
        from pytest_ngraph.session.ledger import Tally

        return Tally(**{name: sum(each.get(name, 0) for each in done) for name in next(filter(None, done))})

    @property
    def gates(self) -> Gates:
        """Return what became of the gates here and in the workers of pytest-xdist."""
        from pytest_ngraph.front.ci import Gates

        gates = Gates(skipped=list(self.skipped), claimless=sorted(self.claimless), left_out=dict(self.left_out))
        gates.judged(self.verdicts)
        for reason in self.not_stored.values():
            gates.left_open(reason)
        for each in self.reported:
            gates.add(each["gates"])
        return gates

    @property
    def undecided(self) -> list[str]:
        """Return what to say of a run that had gates and decided none of them where CI is set, else nothing."""
        if not os.environ.get("CI") or not (self.items or self.reported):
            return []
        settings = self.settings
        return self.gates.none_was_decided(offline=settings.offline) if settings.protocol.error_control else []

    @property
    def done(self) -> dict[str, Any]:
        """Return what a worker of pytest-xdist sends to the controller: plain values only."""
        from dataclasses import asdict

        done: dict[str, Any] = {
            "tally": asdict(self.tally) if self.tally is not None else {},
            "gates": asdict(self.gates),
            "noted": {nodeid: asdict(noted) for nodeid, noted in self.noted.items()},
            "run": self.run_uid if self.has_begun else "",
        }
        if self.settings.offline:
            from pytest_ngraph.report.results.offline import written

            done["judged"] = written(self.verdicts, self.judged)
        return done

    @property
    def has_begun(self) -> bool:
        """Return whether there is a run of this process in the store."""
        return any(session.has_begun for session in self._sessions.values())

    def end(self, session: pytest.Session) -> None:
        """End the run in the store. Where that cannot be written it is said, and what the tests said stands."""
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        try:
            # Not by the exit status: a second Ctrl-C while the first is dealt with leaves it at what it was.
            self.close(interrupted=not self.ran_through)
        except StoreError as error:
            if reporter is None:
                raise
            # Such as a full disk, or a run that another process took out.
            reporter.ensure_newline()
            reporter.write_line(f"ngraph: the end of this run is not in the store: {error}", red=True)
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def close(self, *, interrupted: bool) -> None:
        """End the run in the store, if anything was asked of it."""
        for session in self._sessions.values():
            session.close("interrupted" if interrupted else "finished")
        if self._sessions:
            self.devices.close()
        is_controller = self.config.pluginmanager.hasplugin("dsession")
        if is_controller and self.has_options and self.settings.run_seconds is not None:
            # It outlives its processes.
            from pytest_ngraph.session.run_budget import path_of_notes

            with contextlib.suppress(OSError):
                path_of_notes(self.settings.store.parent, self.uid).unlink(missing_ok=True)


def id_of(item: pytest.Item) -> str:
    """Return the id of a test, without the ``@GROUP`` that pytest-xdist puts behind it with ``--dist=loadgroup``."""
    plain = item.nodeid if item.parent is None else f"{item.parent.nodeid}::{item.name}"
    # Who gives a test another id means that.
    return plain if item.nodeid.startswith(f"{plain}@") else item.nodeid


def _guessed(item: pytest.Item) -> tuple[bool, bool]:
    """Return whether a test looks at memory and whether it is untimed, by what its body names.

    What it calls is not searched.
    """
    names = _names_in(getattr(getattr(item, "function", None), "__code__", None))
    claims = {name for name in names if name.startswith("assert_")}
    is_untimed = bool(claims) and claims <= _OF_WORTH and _TIMED.isdisjoint(names)
    return not _OF_MEMORY.isdisjoint(names), is_untimed


def _names_in(code: CodeType | None) -> set[str]:
    """Return what a body names, its inner functions among it."""
    if code is None:
        return set()
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


class CompilersDoor(Catalogue):
    """The catalogue of compilers as conftests and plugins see it: what they add wrongly is a usage error."""

    def add(self, name: str, place: str) -> None:
        """Add a compiler: its name and ``module:ATTRIBUTE`` of its adapter. Raise UsageError where it cannot be."""
        __tracebackhide__ = True
        with _as_usage_error("pytest_ngraph_compilers"):
            super().add(name, place)


class Door:
    """A catalogue as conftests and plugins see it: what they add wrongly is a usage error."""

    def __init__(self, hook: str, catalogue: Callable[[], Places]) -> None:
        """Keep how to get the catalogue, which a run to which nothing is added does not import here."""
        self._hook, self._catalogue = hook, catalogue

    def add(self, name: str, place: str) -> None:
        """Add a name and ``module:ATTRIBUTE`` of what it stands for. Raise UsageError where it cannot be."""
        __tracebackhide__ = True
        with _as_usage_error(self._hook):
            self._catalogue().add(name, place)


@contextlib.contextmanager
def _as_usage_error(hook: str) -> Iterator[None]:
    __tracebackhide__ = True
    try:
        yield
    except SpecError as error:
        raise pytest.UsageError(f"{hook}: {error}") from None


STATE = pytest.StashKey[State]()
# What an ini twin may be in TOML. An older pytest takes texts alone.
IN_TOML: Any = str | bool | int | float if pytest.version_tuple >= (9, 2) else "string"
# The attribute of a report whose test left a gate undecided.
UNDECIDED = "ngraph_undecided"
PLAN = pytest.StashKey["ItemPlan"]()
