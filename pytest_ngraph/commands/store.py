"""``ngraph store``: is it sound, what is in it, and what can go."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from pytest_ngraph import units
from pytest_ngraph.commands.base import Commands, add_store, say
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.settings import BESIDE_STORE, duration

_DAY_SECONDS = 86400.0


def add(commands: Commands) -> None:
    """Add the command and those below it."""
    parser = commands.add_parser(
        "store", help="Check, repair and shrink the store", description="Check, repair and shrink the store of results"
    )
    below = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    kinds: tuple[tuple[str, Callable[[argparse.Namespace], int | None], str], ...] = (
        ("check", _check, "Hold every row and page against what was written; exit 1 where anything is damaged"),
        ("repair", _repair, "Keep what is sound, and the damaged file beside it; what is gone is measured again"),
        ("compact", _compact, "Rewrite the store without its free space"),
        ("size", _size, "Say what takes how much: the store, cached models, what compilers keep, logs"),
        ("prune", _prune, "Take out old runs, or some by number, and what is cached and not used any more"),
    )
    for name, run, help in kinds:
        mine = below.add_parser(name, help=help, description=help)
        mine.set_defaults(run=run)
        add_store(mine, "Store of results")
        if name == "prune":
            _add_prune(mine)


def _add_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=_age, default=None, metavar="AGE", help="Runs and caches of before, such as 30d or 12h"
    )
    parser.add_argument(
        "--run", type=int, action="append", default=[], metavar="NUMBER", dest="runs", help="A run; may be repeated"
    )
    parser.add_argument("--dry-run", action="store_true", help="Only say what would go")
    parser.add_argument("--with-last", action="store_true", help="Also what the last run needs")


def _age(text: str) -> timedelta:
    try:
        days = float(text.strip().removesuffix("d")) if text.strip().endswith("d") else duration(text) / _DAY_SECONDS
        if days < 0:
            raise ValueError
        return timedelta(days=days)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed (expected an age, such as 30d or 12h)") from None


def _there(given: argparse.Namespace) -> Path:
    path = store_path(given.store)
    if not path.exists():
        raise SpecError(f"--store: no file {path} (run pytest with ngraph tests first, or name another store)")
    if path.is_dir():
        raise SpecError(f"--store: {path} is a folder; name a file in it, such as {path / 'results.sqlite'}")
    return path


def _check(given: argparse.Namespace) -> int:
    from pytest_ngraph.upkeep import care

    path = _there(given)
    say(f"store {path}")
    lines = care.damage(path)
    if lines:
        for line in lines:
            say(f"  damaged: {line}")
        say("  nothing of this is counted; ngraph store repair takes it out")
        return 1
    held = care.contents(path)
    amount = f"{units.count(held.runs, 'run')}, {units.count(held.launches, 'launch', 'launches')}"
    say(f"  sound: {amount}, {units.count(held.samples, 'sample')}")
    if held.adopted:
        launches = units.count(held.adopted, "launch", "launches")
        say(f"  {launches} adopted on {held.adopted_at} from a store without seals:")
        say("  whether they were damaged before is not known")
    return 0


def _repair(given: argparse.Namespace) -> None:
    from pytest_ngraph.upkeep import care

    path = _there(given)
    done = care.repair(path)
    say(f"store {path}")
    if done is None:
        say("  sound: nothing to repair")
        return
    for line in done.taken_out:
        say(f"  taken out: {line}")
    if not done.taken_out:
        say("  nothing is lost: its pages were damaged, no row was")
    say(f"  kept: {units.count(done.launches, 'launch', 'launches')}; what is missing is measured again")
    say(f"  as it was: {done.kept}")


def _compact(given: argparse.Namespace) -> None:
    from pytest_ngraph.upkeep import care

    path = _there(given)
    before, after = care.compact(path)
    say(f"store {path}")
    say(f"  {units.size(before)} before, {units.size(after)} now")


def _size(given: argparse.Namespace) -> None:
    from pytest_ngraph.upkeep import care

    path = _there(given)
    sizes = [(path.name, care.file_bytes(path))]
    sizes += [(name, care.folder_bytes(path.parent / name)) for name in BESIDE_STORE if (path.parent / name).is_dir()]
    say(f"store {path}")
    for name, amount in [*sizes, ("in all", sum(amount for _, amount in sizes))]:
        say(f"  {name[:40]:<40}  {units.size(amount):>10}")
    say("  ngraph store prune --older-than=30d takes out what is old (--dry-run: what)")


def _prune(given: argparse.Namespace) -> None:
    from pytest_ngraph.upkeep import caches, care

    path = _there(given)
    if given.older_than is None and not given.runs:
        raise SpecError("prune: nothing to select by (expected --older-than=30d, --run=NUMBER or both)")
    would = "would go" if given.dry_run else "gone"
    # Before runs go: what the last one used stays, whenever that was.
    before = _before(path, given.older_than, with_last=given.with_last) if given.older_than is not None else None
    size = care.file_bytes(path)
    pruned = care.prune(
        path, older_than=given.older_than, runs=given.runs, with_last=given.with_last, dry_run=given.dry_run
    )
    amount = pruned.freed_bytes if given.dry_run else max(0, size - care.file_bytes(path))
    launches = units.count(len(pruned.launches), "launch", "launches")
    say(f"store {path}")
    say(f"  {would}: {units.count(len(pruned.runs), 'run')} with {launches}, {units.size(amount)}")
    if pruned.kept:
        say(f"  kept: {units.count(len(pruned.kept), 'launch', 'launches')} of these that the last run judges")
    if before is not None:
        number, freed = caches.drop_unused(path, before, dry_run=given.dry_run)
        say(f"  {would}: {units.count(number, 'cached folder or log', 'cached folders and logs')}, {units.size(freed)}")


def _before(path: Path, older_than: timedelta, *, with_last: bool) -> float:
    """Return before when something must have been used last to go, in seconds since 1970: before the last run, too."""
    from pytest_ngraph.store.sqlite import Store

    before = time.time() - older_than.total_seconds()
    with Store.open(path, read_only=True) as store:
        runs = store.runs()
    if runs and not with_last:
        before = min(before, datetime.fromisoformat(runs[-1].started_at).timestamp() - 120)
    return before
