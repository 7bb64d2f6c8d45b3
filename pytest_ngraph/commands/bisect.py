"""``ngraph bisect``: the first commit, or the first release of a package, that made a test's cells slower."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.commands.base import Commands, add_command, add_store, path, takes_rest
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.settings import LEAST_ERROR_RATE, read_value

if TYPE_CHECKING:
    from pytest_ngraph.bisecting.candidates import Line
    from pytest_ngraph.bisecting.judging import Judge
    from pytest_ngraph.bisecting.kept import Step
    from pytest_ngraph.bisecting.search import Answer, Found

TAKES_REST = True
_NOT_FOUND, _INTERRUPTED = 1, 130
_MOST_SHOWN = 20


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "bisect", _run, "Find the first commit, or release of a package, that made tests slower"
    )
    parser.add_argument(
        "good", metavar="GOOD", help="A revision that was fast, or NAME==FIRST..LAST, the releases of a package"
    )
    parser.add_argument(
        "bad", nargs="?", default=None, metavar="BAD", help="A revision after it that is slow (not with releases)"
    )
    parser.add_argument(
        "--error-rate",
        default="0.01",
        metavar="FRACTION",
        help="How often a whole search may be wrong, shared out to its judgements (default: 0.01)",
    )
    parser.add_argument(
        "--budget",
        default="16",
        metavar="LAUNCHES",
        help="Launches a judgement may cost at first; an undecided one gets two, then four times as many (default: 16)",
    )
    parser.add_argument(
        "--report", type=path, default=None, metavar="FILE.html", help="Write what decided it as one page"
    )
    add_store(parser, "Store of results")
    takes_rest(parser)


def _run(given: argparse.Namespace) -> int:
    from pytest_ngraph.bisecting import kept
    from pytest_ngraph.bisecting.judging import OURS, Judge

    if refused := next((word for word in given.rest if word.partition("=")[0] in OURS), ""):
        raise SpecError(f"{refused} is for the search to say (behind -- expected tests and pytest's other options)")
    budget = read_value("budget", given.budget, lambda *_: "--budget").launches
    if budget is None:
        raise SpecError(f"--budget: {given.budget!r} is not allowed (expected a number of launches >= 3 such as 16)")
    rate = read_value("error_rate", given.error_rate, lambda *_: "--error-rate")
    if given.report is not None:
        read_value("report", str(given.report), lambda *_: "--report")
    line = _line(given.good, given.bad)
    store = store_path(given.store).absolute()
    store.parent.mkdir(parents=True, exist_ok=True)
    key = kept.key_of(line, given.rest, rate, budget)
    judge = Judge(line.good.side, given.rest, store, store.parent / f"bisect-{key}.log", budget)
    search = _Search(line, judge, rate, store.parent / f"bisect-{key}.json", key)
    try:
        found = search.go()
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", flush=True)
        return _INTERRUPTED
    status = 0 if found is not None and found.is_decided else _NOT_FOUND
    for text in search.ending(found, given.rest):
        print(text, flush=True)
    if given.report is not None:
        from pytest_ngraph.commands.report import report_run

        for text in report_run(given.report, store, search.shown_run(found), None, ["svg"]):
            print(text, flush=True)
    return status


def _line(good: str, bad: str | None) -> Line:
    """Return what is searched."""
    from pytest_ngraph.bisecting.candidates import commits_between, is_range, releases_between

    if is_range(good):
        if bad is not None:
            raise SpecError(f"{bad!r} behind {good!r}: releases are given as one word, NAME==FIRST..LAST")
        return releases_between(good)
    if bad is None:
        raise SpecError(f"{good!r} by itself is not allowed (expected GOOD BAD, or NAME==FIRST..LAST)")
    return commits_between(good, bad, Path.cwd())


class _Search:
    """A search that prints what it does, and keeps what it has decided."""

    def __init__(self, line: Line, judge: Judge, rate: float, path: Path, key: str) -> None:
        self._line, self._judge, self._rate, self._path, self._key = line, judge, rate, path, key
        self._steps: list[Step] = []
        self._answers: dict[int, Answer] = {}
        self._is_spent = False

    def go(self) -> Found | None:
        """Search to the end. Return what is known then, None where the last candidate is not bad."""
        from pytest_ngraph.bisecting import kept
        from pytest_ngraph.bisecting.search import Answer, following, found, judgements, rate_of

        count = len(self._line.candidates)
        print(
            f"{units.count(count, 'candidate')} after {self._line.good}, up to {self._line.candidates[-1]}", flush=True
        )
        if self._line.note:
            print(self._line.note, flush=True)
        print(
            f"at most {units.count(judgements(count), 'judgement')} where each decides, all of them wrong in at most "
            f"{units.fraction(self._rate)} of searches",
            flush=True,
        )
        self._resume()
        while (place := following(count, self._answers)) is not None:
            if self._copied(place):
                continue
            number = len(self._steps) + 1
            rate = rate_of(number, count, self._rate)
            if rate < _least_rate():
                self._is_spent = True
                break
            candidate = self._line.candidates[place - 1]
            print(f"{number}. {candidate}: measuring it against {self._line.good.name}", flush=True)
            claims = self._steps[0].judged.claims if self._steps else ()
            step = kept.Step(place, rate, self._judge.judge(candidate.side, rate, claims))
            self._steps.append(step)
            self._answers[place] = step.judged.answer
            kept.write(self._path, self._key, self._steps)
            self._show(step)
        return found(count, self._answers) if self._answers.get(count) is Answer.BAD else None

    def _resume(self) -> None:
        """Take what was decided before, as long as it is what this search would have asked."""
        from pytest_ngraph.bisecting import kept
        from pytest_ngraph.bisecting.search import following, rate_of

        count = len(self._line.candidates)
        try:
            before = kept.read(self._path, self._key, count)
            for number, step in enumerate(before, 1):
                while (place := following(count, self._answers)) is not None and self._copied(place, quietly=True):
                    continue
                if step.place != place or step.rate != rate_of(number, count, self._rate):
                    raise SpecError(f"{self._path} is not used: step {number} is none of this search")
                self._answers[place] = step.judged.answer
            self._steps = before
        except SpecError as error:
            print(f"{error}; the search begins again", flush=True)
            self._steps, self._answers = [], {}
        for number, step in enumerate(self._steps, 1):
            print(f"{number}. {self._line.candidates[step.place - 1]}: decided before", flush=True)
            self._show(step)

    def _copied(self, place: int, *, quietly: bool = False) -> bool:
        """Return whether a candidate is the same in every file as one that is decided, and then take its answer."""
        from pytest_ngraph.bisecting.search import Answer

        known = {self._line.good.content: (self._line.good, Answer.GOOD)}
        for other, answer in self._answers.items():
            if answer is not Answer.OPEN:
                candidate = self._line.candidates[other - 1]
                known.setdefault(candidate.content, (candidate, answer))
        mine = self._line.candidates[place - 1]
        if not mine.content or mine.content not in known:
            return False
        twin, self._answers[place] = known[mine.content]
        if not quietly:
            print(f"   {mine}: unchanged, every file is that of {twin.name}: {self._answers[place]}", flush=True)
        return True

    def _show(self, step: Step) -> None:
        judged = step.judged
        print(f"   {judged.answer}: {judged.words} ({judged.reason})", flush=True)

    def shown_run(self, found: Found | None) -> int | None:
        """Return the run of the store that has what decided the search."""
        runs = {step.place: step.judged.run for step in self._steps if step.judged.run}
        place = len(self._line.candidates) if found is None else found.bad
        return runs.get(place) or max(runs.values(), default=None)

    def ending(self, found: Found | None, rest: Sequence[str]) -> list[str]:
        """Return what the search comes to."""
        from pytest_ngraph.bisecting.judging import error_of

        good, candidates = self._line.good, self._line.candidates
        if found is None:
            return self._without_a_bad_one()
        first = candidates[found.bad - 1]
        step = next((step for step in self._steps if step.place == found.bad), self._steps[0])
        lines = []
        if found.is_decided:
            lines += [f"first bad: {first.side if first.words else first.name}"]
            lines += [f"  {first.words}"] if first.words else []
        else:
            left = candidates[found.good : found.bad]
            lines += [f"not decided: the first bad one is one of {len(left)}"]
            lines += [f"  {each}" for each in left[:_MOST_SHOWN]]
            lines += [f"  ... {len(left) - _MOST_SHOWN} more"] if len(left) > _MOST_SHOWN else []
            lines += ["  the error rate of the search is spent"] if self._is_spent else []
        before = candidates[found.good - 1] if found.good else good
        lines += [f"  {first.name} over {good.name}: {step.judged.words} ({step.judged.reason})"]
        last_good = next((step for step in self._steps if step.place == found.good), None)
        if last_good is not None:
            lines += [f"  {before.name} over {good.name}: {last_good.judged.words} ({last_good.judged.reason})"]
        else:
            lines += [f"  {before.name} is what the others are compared with"] if not found.good else []
        error = min(1.0, sum(error_of(step.judged, step.rate) for step in self._steps))
        lines += [
            f"at most {units.fraction(error)} that this is wrong, where launches scatter evenly and what is slower "
            "stays slower",
            f"again: {shlex.join(['ngraph', 'compare', good.side, first.side, '--', *rest])}",
        ]
        return lines

    def _without_a_bad_one(self) -> list[str]:
        """Return what is said where the last candidate is not bad: that nothing is slower, or that nobody can see."""
        from pytest_ngraph.bisecting.search import Answer

        good, last = self._line.good, self._line.candidates[-1]
        step = self._steps[0] if self._steps else None
        reason = "every file is the same" if step is None else f"{step.judged.words} ({step.judged.reason})"
        if self._answers[len(self._line.candidates)] is not Answer.GOOD:
            return [f"this machine cannot see that {last.name} is slower than {good.name}: {reason}"]
        lines = [f"nothing here is slower: {last.name} against {good.name}: {reason}"]
        if step is None or not step.judged.launches:
            return [*lines, "nothing that is measured differs between them, so that no chance is in this"]
        chance = units.fraction(step.rate)
        return [
            *lines,
            f"at most {chance} that what is slower by the tolerance is called so, where launches scatter evenly; where "
            f"nothing differs a commit is named in at most {units.fraction(self._rate)} of searches",
        ]


def _least_rate() -> float:
    """Return the lowest rate of a judgement: its gates share it, and none is judged at a lower one than there is."""
    from pytest_ngraph.bisecting.judging import WIDENING

    return len(WIDENING) * LEAST_ERROR_RATE
