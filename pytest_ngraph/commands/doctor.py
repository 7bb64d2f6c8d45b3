"""``ngraph doctor``: what is installed, what can be measured here, and how noisy this machine is."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.commands.base import Commands, add_command, add_store, takes_rest
from pytest_ngraph.commands.profile import add_options, aside, measure_profile, tests_of
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.machine import gpu
from pytest_ngraph.options.settings import duration, resolve
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, Device, Workload
from pytest_ngraph.spec.states import describe
from pytest_ngraph.stats.sessions import LEAST_SESSIONS
from pytest_ngraph.workloads.kinds import parse_model

if TYPE_CHECKING:
    from pytest_ngraph.launches.equal_code import NoiseProfile
    from pytest_ngraph.report.noise.profile import MachineProfile
    from pytest_ngraph.spec.cells import Protocol


# Lines are no shorter than that, however narrow the terminal is.
_NARROWEST = 60
# Where texts begin behind their names, and what of them is not broken: a space that no line ends at stands in it.
_BEHIND_FACTS, _BEHIND_COMPILERS = 12, 12
_COMMAND = re.compile(r"""pip install (?:"[^"]*"|[^\s;,)]+)|ngraph [a-z]+ --\S+""")
_FIXED = "\N{NO-BREAK SPACE}"
# What stands behind -- are the tests of --profile.
TAKES_REST = True


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "doctor", _run, "Say what is installed, what can be measured here, and how noisy it is"
    )
    parser.add_argument(
        "--noise-seconds",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="Time spent on the noise of short visits (default: 5; 0: none)",
    )
    parser.add_argument(
        "--noise",
        action="store_true",
        help="Measure the noise profile: launches of equal code, half a minute or more; later runs warn by it",
    )
    parser.add_argument(
        "--noise-launches",
        type=_launches,
        default=5,
        metavar="NUMBER",
        help="Launches of --noise, at least 3 (default: 5)",
    )
    parser.add_argument(
        "--sessions",
        type=_sessions,
        default=None,
        metavar="NUMBER",
        help="With --noise also how sessions differ, processes begun again and again: saved baselines need it, at "
        f"least {LEAST_SESSIONS}",
    )
    parser.add_argument(
        "--every",
        type=_seconds,
        default=600.0,
        metavar="DURATION",
        help="How often a session of --sessions begins, such as 30min (default: 10min)",
    )
    add_options(parser)
    takes_rest(parser)
    add_store(parser, "Store that the noise profile is for, and beside which models are built")


def _run(given: argparse.Namespace) -> None:
    if given.profile is None and given.rest:
        raise SpecError(f"{given.rest[0]!r} behind --: only --profile takes tests (expected --profile -- TEST)")
    if given.profile is not None:
        tests = tests_of(given)
        if tests:
            from pytest_ngraph.commands.profile_of_tests import profile_tests

            profile_tests(tests, given.store)
        else:
            measure_profile(store_path(given.store), given)
        return
    if given.sessions is not None and not given.noise:
        raise SpecError("--sessions: given without --noise (expected both: sessions are a part of the noise profile)")
    for line in doctor_lines():
        print(line, flush=True)
    if given.noise:
        store = store_path(given.store)
        measure_noise(store, given.noise_seconds, given.noise_launches)
        if given.sessions is not None:
            sessions_of_profile(store, given.sessions, given.every)
    elif given.noise_seconds > 0:
        for line in _noise_lines(given.noise_seconds):
            print(line, flush=True)


def _launches(text: str) -> int:
    """Read the number of launches of a noise profile."""
    if not text.isdecimal() or int(text) < 3:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed (expected a whole number of at least 3)")
    return int(text)


def _sessions(text: str) -> int:
    """Read the number of sessions of a noise profile."""
    if not text.isdecimal() or int(text) < LEAST_SESSIONS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not allowed (expected a whole number of at least {LEAST_SESSIONS})"
        )
    return int(text)


def _seconds(text: str) -> float:
    """Read a duration."""
    try:
        return duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed (expected {error})") from None


def sessions_of_profile(store: Path, count: int, every_seconds: float) -> None:
    """Measure how sessions differ, and keep it in the noise profile of this machine beside the store.

    A session has three launches. Raises SpecError where there is no profile, CompileFailed where none can be measured.
    """
    from pytest_ngraph.commands.noise_session import measure_sessions
    from pytest_ngraph.devices.local import LOCK
    from pytest_ngraph.report.noise.profile import SessionNoise, profile_path, read_profile, write_profile

    path = profile_path(Path.cwd() / store, LOCK)
    profile, reason = read_profile(path, LOCK)
    if profile is None:
        raise SpecError(f"--sessions: no noise profile to keep them in{f': {reason}' if reason else ''}")

    def keep(noise: SessionNoise) -> None:
        write_profile(replace(profile, sessions=noise), path)

    print(f"sessions    {count}, one every {units.seconds(every_seconds)}, each of 3 launches of equal code")
    measure_sessions(store, count, 3, every_seconds, keep=keep, say=lambda text: print(f"  {text}", flush=True))


def doctor_lines() -> Iterator[str]:
    """Yield what a user wants to know of this machine before measuring on it, in lines that the terminal holds."""
    from pytest_ngraph.probes.catalogue import BEHIND_NAMES

    for line in _facts():
        yield from _folded(line, _BEHIND_FACTS)
    yield "probes"
    for line in _probe_lines():
        yield from _folded(line, 2 + BEHIND_NAMES)
    yield "compilers"
    for line in _compiler_lines():
        yield from _folded(line, 2 + _BEHIND_COMPILERS)
    if sys.platform != "linux":
        yield from _folded("limits      parking and run-delay need Linux: gates here are more often inconclusive", 12)


def _folded(line: str, behind: int) -> list[str]:
    """Return a line no wider than the terminal; what continues stands where the text ``behind`` its name begins.

    Paths are looked for and commands copied: they stay whole.
    """
    head, said = line[:behind], _COMMAND.sub(lambda found: found[0].replace(" ", _FIXED), line[behind:])
    width = max(shutil.get_terminal_size().columns, _NARROWEST)
    folded = textwrap.wrap(
        said, width, initial_indent=head, subsequent_indent=" " * behind, break_long_words=False, break_on_hyphens=False
    )
    return [each.replace(_FIXED, " ") for each in folded] or [line]


def _facts() -> Iterator[str]:
    """Yield what the machine is."""
    facts = environment.describe()
    yield f"machine     {environment.summary_line(facts)}"
    yield f"system      {facts['system']} {facts['kernel']}, {facts['machine']}, Python {facts['python']}"
    yield f"governor    {facts['governor'] or 'not readable here'}; boost {facts['boost'] or 'not readable here'}"
    quota = facts["cpu_quota"]
    yield f"CPU limit   {f'{quota:g} CPUs by cgroup: throttling will show as noise' if quota else 'none'}"
    device = Device("local", environment.available_cpus(), len(environment.available_cpus()))
    yield f"device      local: {len(device.cpus)} CPUs, {device.threads} threads a compiler"
    yield from _gpu_lines()


def _compiler_lines() -> Iterator[str]:
    """Yield which compilers can run here, or what they lack."""
    device = Device("local", environment.available_cpus(), len(environment.available_cpus()))
    catalogue, anything = Catalogue(), Workload(parse_model("block:conv"))
    for name in sorted(catalogue):
        adapter = catalogue.get(name)
        missing = adapter.missing() or catalogue.why_not(Cell("local", CompilerSpec(name), anything), device)
        found = {module: environment.version_of_module(module) for module in adapter.requires}
        versions = ", ".join(f"{module} {version}" for module, version in found.items() if version is not None)
        state = f"no: {missing}" if missing else f"yes{'  ' + versions if versions else ''}"
        when = "  (runs when named)" if adapter.named_only and not missing else ""
        yield f"  {name:<{_BEHIND_COMPILERS}}{state}{when}"


def _probe_lines() -> Iterator[str]:
    """Yield where energy and load can be read here, or why not."""
    from pytest_ngraph.probes.catalogue import described

    lines = dict.fromkeys(line for accelerator in ("cpu", "cuda:0") for line in described(accelerator))
    return (f"  {line}" for line in lines)


def _gpu_lines() -> Iterator[str]:
    """Yield the GPUs that ``--ngraph-device=cuda:N`` can name, or why there is none."""
    for number in itertools.count():
        try:
            facts = gpu.find(f"cuda:{number}").facts()
        except SpecError as reason:
            if not number:
                yield f"            cuda: no, {reason}"
            return
        yield f"            cuda:{number}: {facts['name']}, driver {facts['driver']}"


def _noise_lines(seconds: float) -> Iterator[str]:
    """Yield what a few seconds in this process say."""
    from pytest_ngraph.launches.equal_code import noise_profile

    profile = noise_profile(seconds)
    yield f"noise       {profile.grade}, from {profile.visits} visits to the same work"
    yield from _visit_lines(profile)
    if profile.grade != "quiet":
        yield "  what to do: end what else runs here (top), or expect more inconclusive gates and longer runs"
    yield "  which effects a gate can see here: ngraph doctor --noise (about a minute)"


def _visit_lines(profile: NoiseProfile) -> Iterator[str]:
    delay = "not readable" if profile.run_delay_share is None else f"{100 * profile.run_delay_share:.1f} %"
    others = "not readable" if profile.others_cpus is None else f"{profile.others_cpus:.2f} CPUs"
    yield f"  scatter   {100 * profile.visit_scatter:.2f} % between visits, {100 * profile.call_scatter:.2f} % within"
    yield f"  waiting   {delay} of the time ready to run but not running"
    yield f"  others    {others} busy with something else"


def measure_noise(store_path: Path, seconds: float, launches: int, protocol: Protocol | None = None) -> None:
    """Measure this machine's noise profile, print it as it comes, and keep it beside the store.

    ``seconds`` go to visits in this process before so many ``launches`` of equal code, by default by the protocol
    ``gate``. Raises StoreError where nothing can be kept there, CompileFailed where the block cannot be measured.
    """
    from pytest_ngraph.devices.local import LOCK, job, local_device
    from pytest_ngraph.devices.lock import device_lock
    from pytest_ngraph.launches.equal_code import equal_launches, noise_profile
    from pytest_ngraph.report.noise.profile import profile_of, profile_path, read_profile, states_of, write_profile
    from pytest_ngraph.store.sqlite import Store

    def show(text: str) -> None:
        print(f"  {text}", flush=True)

    here = Path.cwd()
    settings = replace(resolve({}, {}, rootdir=here, invocation_dir=here, environ=os.environ), store=here / store_path)
    device, catalogue = local_device(settings), Catalogue()
    has_torch = catalogue.get("identity").missing() is None
    compiler = CompilerSpec("identity") if has_torch else CompilerSpec.parse("null[fixed_us=1000]")
    # Also says now, not after a minute, that the folder cannot be written; it keeps itself out of git.
    Store.open(settings.store).close()
    with device_lock(LOCK, waiting=aside):
        visits = noise_profile(seconds)
        print(f"visits      {visits.visits} to the same work in this process")
        for line in _visit_lines(visits):
            print(line)
        print(f"launches    {launches} of {compiler} against itself: equal code, so what differs is noise")
        equal = equal_launches(
            job(settings, catalogue, device, []),
            compiler,
            reads=catalogue.get(compiler.name).reads,
            launches=launches,
            protocol=protocol or PROTOCOLS["gate"],
            report=show,
        )
    profile = profile_of(device.name, equal, visits)
    known, _ = read_profile(profile_path(settings.store, device.name), device.name)
    if profile is None:
        print("noise       unusable: fewer than two launches would have counted; nothing is kept")
        print("  what to do: end what else runs here (top), or measure on another machine")
        return
    path = profile_path(settings.store, device.name)
    if known is not None:
        # What sessions differ by takes hours to know, and no launch says anything else of it.
        profile = replace(profile, sessions=known.sessions)
    write_profile(profile, path)
    for line in profile_lines(profile, states=[describe(state) for state in states_of(equal.records)]):
        print(line)
    print(f"  kept      {path.relative_to(here) if path.is_relative_to(here) else path}")


def profile_lines(profile: MachineProfile, states: Sequence[str] = ()) -> Iterator[str]:
    """Yield what a noise profile means for gates. ``states`` are the states of the machine that were met."""
    from pytest_ngraph.report.noise.profile import BUDGETS, QUIET_BUDGET, TOLERANCE, USUAL_BUDGET, percent

    usual, seconds = profile.budgets[USUAL_BUDGET], profile.launch_seconds
    enough = next((each for each in BUDGETS if profile.budgets[each] <= TOLERANCE), None)
    uncounted = profile.launches - profile.counted
    if profile.loses_launches:
        meaning = f"{uncounted} of {profile.launches} launches would not have counted"
    elif profile.grade == "quiet":
        meaning = f"a gate of {percent(TOLERANCE)} is decided within {QUIET_BUDGET} launches"
    elif enough is not None:
        within = "within the default budget" if enough <= USUAL_BUDGET else f"--ngraph-budget={enough}"
        meaning = f"a gate of {percent(TOLERANCE)} needs up to {enough} launches ({within})"
    else:
        meaning = f"a gate of {percent(TOLERANCE)} is not decided in {BUDGETS[-1]} launches"
    yield f"noise       {profile.grade}: {meaning}"
    rest = f"; {uncounted} would not have counted" if uncounted else ""
    yield f"  scatter   {percent(profile.scatter)} between launches (a rough figure, from {profile.counted}{rest})"
    yield "  visible   smallest effect on a speed-up that a gate sees in nine of ten runs, at its looks:"
    for look, effect in profile.looks.items():
        yield f"              {look:>2} launches  {percent(effect):>7}  after about {units.seconds(look * seconds)}"
    yield f"              the times are those of this block, {percent(usual)} is what a default budget comes to"
    if (sessions := profile.sessions) is not None:
        clock, ratios = percent(sessions.latency), percent(sessions.ratio)
        yield f"  sessions  {sessions.count} of equal code scatter by {clock} by the clock, {ratios} in ratios"
    if len(states) > 1:
        yield f"  states    the machine was in {len(states)} states; a gate compares launches of one:"
        yield from (f"              {state}" for state in states)
    if profile.grade != "quiet":
        yield "  what to do: end what else runs here (top), a wider tolerance= or a larger --ngraph-budget"
