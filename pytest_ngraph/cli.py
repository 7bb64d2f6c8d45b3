"""The command ``ngraph``: what is not a test run - looking at this machine and taking results out of the store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_ngraph.errors import NgraphError, SpecError

_STORE = Path(".ngraph/results.sqlite")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status: 0, or 2 with the error on standard error."""
    parser = argparse.ArgumentParser(prog="ngraph", description="Graph compilers on real devices, beside pytest")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="Say what is installed, what can be measured here, and how noisy it is")
    doctor.add_argument(
        "--noise-seconds",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="Time spent on the noise (default: 5; 0: none)",
    )
    export = commands.add_parser("export", help="Write a run's results as a tidy table")
    export.add_argument("file", type=Path, metavar="FILE", help="FILE.csv, FILE.json or FILE.md")
    export.add_argument(
        "--store", type=Path, default=_STORE, metavar="FILE", help=f"Store of results (default: {_STORE})"
    )
    export.add_argument("--run", type=int, default=None, metavar="NUMBER", help="Run to export (default: the latest)")
    given = parser.parse_args(arguments)
    try:
        if given.command == "doctor":
            for line in doctor_lines(given.noise_seconds):
                print(line, flush=True)
        else:
            print(export_run(given.file, given.store, given.run))
    except NgraphError as error:
        print(f"ngraph {given.command}: {error}", file=sys.stderr)
        return 2
    return 0


def export_run(file: Path, store_path: Path, number: int | None) -> str:
    """Write one run's tidy table; return what was written. Raises SpecError for a run that is not there."""
    from pytest_ngraph.report.tidy import cell_reports, tidy_rows
    from pytest_ngraph.store.export import write_rows
    from pytest_ngraph.store.sqlite import Store

    if not store_path.exists():
        raise SpecError(f"--store: no file {store_path} (run pytest with ngraph tests first, or name another store)")
    with Store.open(store_path, read_only=True) as store:
        runs = {run.id: run for run in store.runs()}
        if not runs:
            raise SpecError(f"{store_path} holds no run yet")
        chosen = max(runs) if number is None else number
        if chosen not in runs:
            raise SpecError(f"--run: no run {chosen} in {store_path} (there: {', '.join(map(str, runs))})")
        rows = list(tidy_rows(cell_reports(store, chosen)))
    write_rows(rows, file)
    return f"{file}: {len(rows)} rows of run {chosen} ({runs[chosen].started_at}, {runs[chosen].protocol})"


def doctor_lines(noise_seconds: float) -> Iterator[str]:
    """Yield what a user wants to know of this machine before measuring on it."""
    from pytest_ngraph import environment
    from pytest_ngraph.compilers.catalogue import Catalogue
    from pytest_ngraph.spec import Cell, CompilerSpec, Device, ModelRef, Workload

    facts = environment.describe()
    yield f"machine     {environment.summary_line(facts)}"
    yield f"system      {facts['system']} {facts['kernel']}, {facts['machine']}, Python {facts['python']}"
    yield f"governor    {facts['governor'] or 'not readable here'}; boost {facts['boost'] or 'not readable here'}"
    quota = facts["cpu_quota"]
    yield f"CPU limit   {f'{quota:g} CPUs by cgroup: throttling will show as noise' if quota else 'none'}"
    device = Device("local", environment.available_cpus(), len(environment.available_cpus()))
    yield f"device      local: {len(device.cpus)} CPUs, {device.threads} threads a compiler"
    yield "compilers"
    catalogue, anything = Catalogue(), Workload(ModelRef.parse("block:conv"))
    for name in sorted(catalogue):
        adapter = catalogue.get(name)
        missing = adapter.missing() or adapter.why_not(Cell("local", CompilerSpec(name), anything), device)
        versions = ", ".join(f"{key} {value}" for key, value in environment.versions(adapter.requires).items())
        state = f"no: {missing}" if missing else f"yes{'  ' + versions if versions else ''}"
        yield f"  {name:<12}{state}{'  (runs when named)' if adapter.named_only and not missing else ''}"
    if sys.platform != "linux":
        yield "limits      parking and run-delay need Linux: gates here are more often inconclusive"
    if noise_seconds > 0:
        yield from _noise_lines(noise_seconds)


def _noise_lines(seconds: float) -> Iterator[str]:
    from pytest_ngraph.measure.noise import noise_profile

    profile = noise_profile(seconds)
    delay = "not readable" if profile.run_delay_share is None else f"{100 * profile.run_delay_share:.1f} %"
    others = "not readable" if profile.others_cpus is None else f"{profile.others_cpus:.2f} CPUs"
    yield f"noise       {profile.grade}, from {profile.visits} visits to the same work"
    yield f"  scatter   {100 * profile.visit_scatter:.2f} % between visits, {100 * profile.call_scatter:.2f} % within"
    yield f"  waiting   {delay} of the time ready to run but not running"
    yield f"  others    {others} busy with something else"
    if profile.grade != "quiet":
        yield "  what to do: end what else runs here (top), or expect more inconclusive gates and longer runs"


if __name__ == "__main__":
    raise SystemExit(main())
