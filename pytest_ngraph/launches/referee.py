"""The referee: compares what a worker gives back with references that no worker is given."""

from __future__ import annotations

import random
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.checks import same_model
from pytest_ngraph.checks.roofline import Work
from pytest_ngraph.launches.client import Job
from pytest_ngraph.spec.cells import TIMED, Cell, CompileRecord, Outcome
from pytest_ngraph.spec.shapes.mixes import STATIC, Shape, is_mix, parse
from pytest_ngraph.worker import handover
from pytest_ngraph.workloads import artifacts, references
from pytest_ngraph.workloads.folders import SCRATCH
from pytest_ngraph.workloads.references import Call, References
from pytest_ngraph.workloads.shapes.elsewhere import elsewhere, lengths, where

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.compilers.toolkit.equality import Agreement

# Asks a worker to call a cell once: where its inputs lie, their names, and where its outputs go. The answer, or the
# record of a cell that was refused.
AskForCall = Callable[[str, list[str], str], "Mapping[str, Any] | CompileRecord"]
# Comparing goes on for no longer than this, but for one call at least: a launch may take 2 % longer for it, and each
# launch begins with other calls of the set (benchmarks/checks.py). Precisions that are held to a centred cosine are
# compared on all of them.
_SECONDS = 0.02
_BYTES = {"f16": 2, "bf16": 2, "int8": 1}  # of a number; 4 in all others
_UNSEEN = "on inputs that it had not seen before"


class Referee:
    """Compares the cells of one launch. ``keys`` are those of what they read, where they are known beforehand.

    It runs in the process that starts the workers, where nothing is compiled. What a worker hands over is read as what
    a stranger sends: see ``handover``.
    """

    def __init__(self, job: Job, keys: Mapping[Cell, str] | None = None) -> None:
        self._job, self._known = job, dict(keys or {})
        # The cells whose workers have given outputs to compare, with the keys of their references.
        self._compared: dict[Cell, str] = {}
        self._folder = job.artifacts / f"{SCRATCH}{uuid.uuid4().hex}"

    @property
    def folder(self) -> str:
        """Return the folder in which outputs are handed over. The first process that has some creates it."""
        return str(self._folder)

    def close(self) -> None:
        """Remove what was handed over."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def first(self, cell: Cell, answer: Mapping[str, Any], record: CompileRecord) -> CompileRecord:
        """Compare what preparing a cell gave, on the inputs that are timed. Return its record with the figures."""
        self._compared.pop(cell, None)
        key: str | None = self._known.get(cell)
        if answer["artifact"] is None and key is None:
            # It reads nothing of the model, so nothing is known of what it should give.
            return record
        key = key or self._find(cell)
        expected = references.find(self._root_of(cell), key) if key else None
        if key is None or expected is None or answer["artifact"] != key:
            reason = f"{cell.workload.label}: its artifact changed while this run measured it; run again"
            return CompileRecord(Outcome.FAILED, reason)
        if answer["outputs"] is None:
            reason = f"{cell.compiler.name}: its outputs() gave None, so nothing can be compared with the reference"
            return CompileRecord(Outcome.FAILED, reason)
        self._compared[cell] = key
        from pytest_ngraph.compilers.toolkit.equality import Comparison

        precision = self.precision_of(cell)
        record = replace(record, held_to="" if precision == cell.workload.base_precision else precision)
        # Not centred: one input may be off by much where eight of them are not.
        comparison, timed = Comparison(precision), expected.timed
        try:
            comparison.add(self._take(answer, timed, self._folder), timed)
        except handover.Unreadable as error:
            return _mismatch(record, str(error))
        return self._first_elsewhere(cell, answer, _judged(record, comparison.agreement()))

    def _first_elsewhere(self, cell: Cell, answer: Mapping[str, Any], record: CompileRecord) -> CompileRecord:
        """Compare what was built for open shapes at the other sizes that it was called at, with that model there."""
        if record.outcome is not Outcome.OK or cell.workload.shapes == STATIC:
            return record
        expected, several = self._reference_elsewhere(cell), self._references_of_lengths(cell)
        if (expected is None and elsewhere(cell.workload) is not None) or None in several.values():
            return _unjudged(record, cell)
        if is_mix(cell.workload.shapes) and parse(cell.workload.shapes).batches and not self._has_rows(cell):
            reason = (
                "outputs of a call do not follow its samples one by one, so nothing is known of its smaller batches"
            )
            return CompileRecord(Outcome.UNSUPPORTED, f"{cell.workload.label}: {reason}", placement=record.placement)
        if expected is None:
            return record
        if "elsewhere" not in answer:
            return CompileRecord(Outcome.FAILED, f"{cell.workload.label}: its worker did not try it at other sizes")
        from pytest_ngraph.compilers.toolkit.equality import Comparison

        comparison = Comparison(self.precision_of(cell))
        try:
            comparison.add(
                self._take(answer["elsewhere"], expected.timed, self._folder / handover.ELSEWHERE), expected.timed
            )
        except handover.Unreadable as error:
            return _mismatch(record, f"{_at(cell)}{error}")
        return _judged(record, comparison.agreement(), _at(cell))

    def _reference_elsewhere(self, cell: Cell) -> References | None:
        """Return what the model of a cell gives at other sizes, whatever its worker says of it.

        None where shapes are static, and of another side, whose files this process does not see.
        """
        other = elsewhere(cell.workload)
        return None if other is None else self._reference_of(replace(cell, workload=other))

    def _references_of_lengths(self, cell: Cell) -> dict[int, References | None]:
        """Return what the model of a cell gives at the further lengths of its mix, None where it is not known."""
        others = lengths(cell.workload).items()
        return {length: self._reference_of(replace(cell, workload=other)) for length, other in others}

    def _reference_of(self, cell: Cell) -> References | None:
        key = self._find(cell)
        return None if key is None else references.find(self._root_of(cell), key)

    def _has_rows(self, cell: Cell) -> bool:
        found = references.find(self._root_of(cell), self._compared[cell])
        return found is not None and found.has_rows

    def check(self, cell: Cell, record: CompileRecord, seed: int, ask: AskForCall) -> CompileRecord:
        """Compare a cell on inputs that its worker has not seen before. Return its record with the figures of both.

        Which of them come first, ``seed`` says: a slow cell is compared on a few in each launch.
        """
        expected = references.find(self._root_of(cell), self._compared[cell]) if cell in self._compared else None
        if expected is None:
            return record
        from pytest_ngraph.compilers.toolkit.equality import MIN_CENTRED_COSINE, Comparison

        means, precision = expected.means, self.precision_of(cell)
        # What follows the inputs shows over the whole set only.
        whole = precision in MIN_CENTRED_COSINE
        comparison, control = (Comparison(precision, means) for _ in range(2))
        until = time.monotonic() + _SECONDS
        record = self._check_elsewhere(cell, record, seed, ask)
        if record.outcome in TIMED:
            record = self._check_mix(cell, record, expected, seed, ask)
        if record.outcome not in TIMED:
            return record
        with self._exchange() as (given, returned):
            for number in random.Random(seed).sample(range(expected.calls), expected.calls):  # noqa: S311 - an order
                call = expected.call(number)
                names = handover.put_named(given, call.inputs)
                answer = ask(str(given), names, str(returned))
                if isinstance(answer, CompileRecord):
                    return answer
                try:
                    comparison.add(self._take(answer, call.outputs, returned), call.outputs, call.rows)
                except handover.Unreadable as error:
                    return _mismatch(record, f"{_UNSEEN}: {error}")
                control.add(expected.foreign(number), call.outputs, call.rows)
                if time.monotonic() >= until and not whole:
                    break
        told_apart = bool(control.agreement().reason)
        return _judged(replace(record, outputs_told_apart=told_apart), comparison.agreement(), f"{_UNSEEN}: ")

    def _check_elsewhere(self, cell: Cell, record: CompileRecord, seed: int, ask: AskForCall) -> CompileRecord:
        """Compare a build for open shapes at its other sizes, on inputs that its worker has not seen before."""
        expected = self._reference_elsewhere(cell)
        if expected is None:
            return record
        from pytest_ngraph.compilers.toolkit.equality import Comparison

        comparison, call = Comparison(self.precision_of(cell)), expected.call(seed % expected.calls)
        with self._exchange() as (given, returned):
            answer = ask(str(given), handover.put_named(given, call.inputs), str(returned))
            if isinstance(answer, CompileRecord):
                return answer
            try:
                comparison.add(self._take(answer, call.outputs, returned), call.outputs)
            except handover.Unreadable as error:
                return _mismatch(record, f"{_UNSEEN}, {_at(cell)}{error}")
        return _judged(record, comparison.agreement(), f"{_UNSEEN}, {_at(cell)}")

    def _check_mix(
        self, cell: Cell, record: CompileRecord, largest: References, seed: int, ask: AskForCall
    ) -> CompileRecord:
        """Compare a mix at each of its shapes: the samples of a batch are the first rows of the largest one."""
        if not is_mix(cell.workload.shapes):
            return record
        from pytest_ngraph.compilers.toolkit.equality import Comparison

        comparison, known = Comparison(self.precision_of(cell)), self._references_of_lengths(cell)
        for shape in parse(cell.workload.shapes).shapes:
            reference = known.get(shape.sequence or 0, largest)
            if reference is None:
                return _unjudged(record, cell)
            call: Call = reference.call(seed % reference.calls)
            inputs = {name: _rows(array, shape) for name, array in call.inputs.items()}
            expected = [_rows(array, shape) for array in call.outputs]
            with self._exchange() as (given, returned):
                answer = ask(str(given), handover.put_named(given, inputs), str(returned))
                if isinstance(answer, CompileRecord):
                    return answer
                try:
                    comparison.add(self._take(answer, expected, returned), expected)
                except handover.Unreadable as error:
                    return _mismatch(record, f"{_UNSEEN}, at {shape} of its mix: {error}")
            agreement = comparison.agreement()
            if agreement.reason:
                return _judged(record, agreement, f"{_UNSEEN}, at {shape} of its mix: ")
        return _judged(record, comparison.agreement())

    def unlike(self, cell: Cell) -> str:
        """Return how the model of a cell of another side differs from that of the same cell here, or nothing.

        Both are held to the reference outputs of here: a changed model must not pass as a faster one. Nothing is said
        where nothing is read of the model, or nothing is built of it here.
        """
        if not cell.side:
            return ""
        here = replace(cell, side="")
        keys = [self._known.get(each) or self._find(each) for each in (here, cell)]
        if not (keys[0] and keys[1]):
            return ""
        said = same_model.difference((self._root_of(here), keys[0]), (self._root_of(cell), keys[1]))
        if said is None:
            return ""
        what, how = said
        return (
            f"the model {what} here than on {cell.side}: {how}; --ngraph-against-outputs=own holds each side to its own"
        )

    def _root_of(self, cell: Cell) -> Path:
        """Return where what was built for a cell lies."""
        return self._job.on(cell.side).artifacts

    def precision_of(self, cell: Cell) -> str:
        """Return the precision whose bounds the outputs of a cell that is compared are held to."""
        return artifacts.bounds_of(self._root_of(cell), self._compared[cell], cell.workload.base_precision)

    def work_of(self, cell: Cell) -> Work | None:
        """Return what a call of a cell that was compared has to do, or None where it is not known."""
        found = artifacts.work_of(self._root_of(cell), self._compared[cell]) if cell in self._compared else None
        if found is None:
            return None
        macs, parameters = found
        if is_mix(cell.workload.shapes):
            macs_of_mix = self._macs_of_mix(cell, macs)
            if macs_of_mix is None:
                return None
            macs = macs_of_mix
        return Work(macs, parameters * _BYTES.get(self.precision_of(cell), 4))

    def _macs_of_mix(self, cell: Cell, largest: int) -> int | None:
        """Return what a call of a mix has to do on average, without padding, by what the largest batch of each has."""
        workload, mix = cell.workload, parse(cell.workload.shapes)
        of_length: dict[int | None, int] = {}
        for length, other in lengths(workload).items():
            key = self._find(replace(cell, workload=other))
            found = artifacts.work_of(self._root_of(cell), key) if key else None
            if found is None:
                return None
            of_length[length] = found[0]
        calls = ((shape.batch or workload.batch, of_length.get(shape.sequence, largest), n) for shape, n in mix.calls)
        return int(sum(batch * macs * count for batch, macs, count in calls) / workload.batch / mix.turn)

    def _find(self, cell: Cell) -> str | None:
        """Return the key of what a cell reads, whatever its worker says of it."""
        if cell.side:
            # By the versions of another side, which this process does not see.
            return None
        for onnx in (True, False):
            found = artifacts.find(cell.workload, self._job.seed, self._job.artifacts, onnx, self._job.sys_path)
            if found is not None:
                return found.key
        return None

    def _take(
        self, answer: Mapping[str, Any], expected: Sequence[np.ndarray[Any, Any]], folder: Path
    ) -> list[np.ndarray[Any, Any]]:
        if answer["outputs"] != len(expected):
            raise handover.Unreadable(f"{answer['outputs']} outputs where the reference has {len(expected)}")
        return handover.take(folder, [array.size for array in expected])

    @contextmanager
    def _exchange(self) -> Iterator[tuple[Path, Path]]:
        """Give two folders, one for what a worker is given and one for what it returns."""
        folders = self._folder / "given", self._folder / "returned"
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            yield folders
        finally:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)


def _judged(record: CompileRecord, agreement: Agreement, where: str = "") -> CompileRecord:
    """Return a record with the figures of a comparison beside those of an earlier one, the worse of the two."""
    if agreement.reason:
        record = _mismatch(record, where + agreement.reason)
    centred = [each for each in (record.centred_cosine, agreement.centred_cosine) if each is not None]
    return replace(
        record,
        max_error=max(record.max_error or 0.0, agreement.max_error),
        cosine=min(1.0 if record.cosine is None else record.cosine, agreement.cosine),
        centred_cosine=min(centred, default=None),
        top1_matches=record.top1_matches + agreement.top1_matches,
        top1_samples=record.top1_samples + agreement.top1_samples,
    )


def _rows(array: np.ndarray[Any, Any], shape: Shape) -> np.ndarray[Any, Any]:
    """Return the first samples of the largest batch, all of them where a mix has one batch."""
    return array if shape.batch is None else array[: shape.batch]


def _at(cell: Cell) -> str:
    return f"at {where(cell.workload)}, which the same build is for: "


def _unjudged(record: CompileRecord, cell: Cell) -> CompileRecord:
    """Return what is kept of a build for open shapes that nothing shows to be one."""
    at = where(cell.workload) or "its other lengths"
    reason = (
        f"shapes={cell.workload.shapes}: what the model gives at {at} is not known here, so nothing "
        "shows that its build is for other sizes (another side is measured with static shapes only)"
    )
    return CompileRecord(Outcome.UNSUPPORTED, reason, placement=record.placement)


def _mismatch(record: CompileRecord, reason: str) -> CompileRecord:
    """Return what is kept of a cell with wrong outputs: no time of it, but the figures of what was compared before."""
    return CompileRecord(
        Outcome.MISMATCH,
        reason,
        placement=record.placement,
        max_error=record.max_error,
        cosine=record.cosine,
        centred_cosine=record.centred_cosine,
        top1_matches=record.top1_matches,
        top1_samples=record.top1_samples,
        outputs_told_apart=record.outputs_told_apart,
        held_to=record.held_to,
    )
