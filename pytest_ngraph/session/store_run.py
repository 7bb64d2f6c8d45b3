"""A run of one device in the store: begun when something is first asked of it, resumed, and ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_ngraph.devices.bench import Bench
from pytest_ngraph.errors import DeviceLost, DeviceOffline, StoreError
from pytest_ngraph.machine.kinship import Kinship, Machine
from pytest_ngraph.machine.turns import Shared, remove_left
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.session.ledger import Listener
from pytest_ngraph.spec.cells import digest
from pytest_ngraph.store.rows import LeftOut, RunRow, facts_of
from pytest_ngraph.store.sqlite import Store

# What a run that goes on holds, beside the store. It stays for so long where the run was killed and is not resumed.
_LOCK = ".run-{}.lock"
FINISHED = "finished"
_FORGOTTEN_SECONDS = 7 * 24 * 3600.0


class StoreRun:
    """The rows that a run keeps in the store. ``uid`` names it, and ``id`` is 0 until it is there."""

    def __init__(
        self, settings: Settings, bench: Bench, listener: Listener, *, uid: str, command: Sequence[str]
    ) -> None:
        self._settings, self._bench, self._listener, self._command = settings, bench, listener, command
        self.uid, self.id = uid, 0
        # What machine the device was when this process began the run, or went on with it.
        self.facts: Mapping[str, Any] = {}
        # What all processes of this run are called, also where they go on with another one.
        self._own_uid = uid
        self._lock: Shared | None = None
        self._store: Store | None = None
        self._is_closed = False
        self._damage_said = 0
        self._left_out: list[LeftOut] = []

    @property
    def store(self) -> Store:
        """Return the open store. At the first use the run begins in it."""
        if self._is_closed:
            raise StoreError(f"{self._settings.store}: this run has ended; measure and claim before it does")
        if self._store is None:
            store = Store.open(self._settings.store, read_only=self._settings.offline)
            try:
                if not self._settings.offline:
                    self._begin(store)
            except BaseException:
                # What asks again begins from the start.
                store.close()
                self._let_go()
                self.uid = self._own_uid
                raise
            self._store = store
            self.say_damage()
        return self._store

    def leave_out(self, rows: Iterable[LeftOut]) -> None:
        """Keep what the run was asked for and cannot measure. Where it never begins nobody will ask for it."""
        self._left_out += rows
        if self.id:
            self._keep_left_out(self.store)

    def _keep_left_out(self, store: Store) -> None:
        if self._left_out:
            store.leave_out(self.id, self._left_out)
            self._left_out = []

    def say_damage(self) -> None:
        """Name the launches that were found damaged since this was last called. They are measured again."""
        store = self.store
        if len(store.damaged) > self._damage_said:
            for line in store.damage_lines[self._damage_said :]:
                self._listener.note(line.strip())
            self._damage_said = len(store.damaged)

    def _begin(self, store: Store) -> None:
        self.facts = facts = self._bench.facts()
        interrupted = self._interrupted(store, facts) if self._settings.resume else None
        if self._settings.resume:
            self._listener.note(
                f"resuming the run of {interrupted.started_at}" if interrupted else "nothing to resume: a new run"
            )
        if interrupted is not None:
            self.uid = interrupted.uid
        else:
            self._holds(self.uid)
        self.id = store.start_run(
            self.uid,
            command=self._command,
            seed=self._settings.seed,
            protocol=self._settings.protocol,
            device=self._bench.device.name,
            environment=facts,
            fresh=self._settings.fresh,
            resumed=interrupted is not None,
        )
        self._keep_left_out(store)

    def _interrupted(self, store: Store, facts: Mapping[str, Any]) -> RunRow | None:
        """Return the latest run, if it did not finish and measured the same machine by the same protocol and seed.

        Runs that others are measuring just now are left out. The one that is returned is held.
        """
        runs = store.runs()
        if any(run.uid == self.uid for run in runs):
            # Another process, or another device, of this run found nothing to resume.
            return None
        mine = (self._settings.protocol.name, self._settings.seed)
        for run in reversed(runs):
            went_on = run.status in ("running", "interrupted")
            if went_on and not self._holds(run.uid):
                self._listener.note(f"the run of {run.started_at} is still measuring, so it is not resumed")
                continue
            if went_on and (run.protocol, run.seed) == mine:
                change = self._change_since(run, facts)
                if not change:
                    return run
                self._refuse_half(run, change)
                name = self._bench.device.name
                self._listener.note(
                    f"{name} is not the machine that it was in the run of {run.started_at}, so it is not resumed "
                    f"({change})"
                )
            self._let_go()
            return None
        return None

    def _change_since(self, run: RunRow, facts: Mapping[str, Any]) -> str:
        """Return what makes this device another machine than it was in a run, nothing where it is the same.

        So it is where the run did not have this device. Facts that either of them does not know say nothing.
        """
        before = facts_of(run.environment, self._bench.device.name) or {}
        both = [name for name, fact in facts.items() if fact is not None and before.get(name) is not None]
        there, here = (Machine.of({name: each[name] for name in both}) for each in (before, facts))
        if there.kinship(here) is Kinship.SAME:
            return ""
        decisive = {"name", *there.hardware, *here.hardware}
        return "; ".join(
            f"{name}: {was} then, {now} now" for name, was, now in there.differing(here) if name in decisive
        )

    def _refuse_half(self, run: RunRow, change: str) -> None:
        """Raise StoreError where other devices of this run go on with one that this device cannot be part of."""
        if self._lock is not None and not self._lock.is_last():
            raise StoreError(
                f"{self._settings.store}: the run of {run.started_at} is resumed on other devices, and "
                f"{self._bench.device.name} is not the machine that it was in it ({change}); run again without "
                "--ngraph-resume: what was measured counts all the same"
            )

    def _holds(self, uid: str) -> bool:
        """Hold a run, with all processes of this one, for as long as it goes on. Return False where others hold it."""
        path = self._settings.store.resolve()
        lock = Shared(path.with_name(_LOCK.format(digest([path.name, uid])[:16])), self._own_uid)
        if not lock.take():
            return False
        self._lock = lock
        remove_left(path.parent.glob(_LOCK.format("*")), _FORGOTTEN_SECONDS)
        return True

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.give_back()
            self._lock = None

    def close(self, status: str, *, measured: bool) -> None:
        """End the run in the store, ``finished`` or ``interrupted``. ``measured`` says whether it has launches.

        Where other processes, or devices, still go on with it, it has not finished: the last of them says so.
        """
        try:
            if self._store is not None:
                if self.id:
                    facts = self._facts_at_the_end() if measured else None
                    goes_on = status == FINISHED and self._lock is not None and not self._lock.is_last()
                    ended = None if goes_on else status
                    self._store.finish_run(self.id, ended, facts, device=self._bench.device.name)
                self._store.close()
                self._store = None
        finally:
            self._let_go()
        self._is_closed = True

    def _facts_at_the_end(self) -> Mapping[str, Any] | None:
        """Return what machine the device is now, or None where it is gone."""
        try:
            return self._bench.facts()
        except (DeviceLost, DeviceOffline):
            return None
