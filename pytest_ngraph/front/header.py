"""The header: what is about to be measured, so that a reader can do it again."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.devices.local import is_known
from pytest_ngraph.errors import DeviceOffline, StoreError
from pytest_ngraph.front.run import PLAN
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.settings import BESIDE_STORE, Budget, Settings, nearby
from pytest_ngraph.plan.costs import Cost
from pytest_ngraph.plan.items import IDENTITY
from pytest_ngraph.report.noise.profile import USUAL_BUDGET, MachineProfile, percent, profile_path, read_profile
from pytest_ngraph.spec.cells import Cell, Device, Protocol
from pytest_ngraph.stats.verdict import CONFIRMING_LOOKS
from pytest_ngraph.workloads.kinds import kind_of

if TYPE_CHECKING:
    from pytest_ngraph.front.run import State
    from pytest_ngraph.plan.items import ItemPlan
    from pytest_ngraph.spec.sides import OtherSide
    from pytest_ngraph.store.rows import VerdictRow

# As many warnings of a kind are shown one by one; more are one line.
_MOST_WARNINGS = 3
_LARGE_BYTES = 10**9


def device_line(device: Device, cpu: str, gpu: str = "") -> str:
    """Return what a device is."""
    cpus, threads = units.count(len(device.cpus), "CPU"), units.count(device.threads, "thread")
    parts = [cpu, cpus, *([gpu] if gpu else []), f"{threads} a compiler"]
    return f"ngraph: device {device.name}: {', '.join(parts)}"


def lines_of_run(state: State, *, collects: bool) -> list[str]:
    """Return what is about to be measured and what it takes. Where the run only ``collects``, without the latter.

    Raises SpecError or DeviceUnusable for a device that cannot be used.
    """
    points = [item.stash[PLAN] for item in state.items]
    lines: list[str] = []
    noise: list[str] = []
    threads: list[str] = []
    compared: dict[str, Mapping[str, OtherSide]] = {}
    for name in dict.fromkeys(point.device for point in points):
        if not state.devices.is_asked(name):
            lines.append(f"ngraph: device {name}: not asked what it has, as nothing is measured")
            continue
        try:
            device = state.devices.bench(name).device
            lines.append(device_line(device, state.devices.cpu(name), state.devices.gpu(name)))
            noise.append(noise_line(state.settings, device))
            threads += thread_lines(device, points)
            compared[name] = state.devices.other_sides(name)
        except DeviceOffline as offline:
            lines.append(f"ngraph: {offline}")
    lines += [
        *header_lines(state.settings, points),
        *_side_lines(state, compared),
        *size_lines(state.settings),
        *noise,
        *threads,
    ]
    if not collects and not state.settings.offline:
        state.plan()
        expected = [session.expected() for session in state.sessions]
        lines += cost_lines(expected, state.settings.protocol, state.settings.run_seconds)
        for session in state.sessions:
            lines += warning_lines(state.settings, session.device, session.plans)
    return lines


def _side_lines(state: State, compared: Mapping[str, Mapping[str, OtherSide]]) -> Iterator[str]:
    """Yield what each other side is called, of an interpreter that devices have of their own on each of them."""
    for text in state.sides.asked if state.sides is not None else ():
        labels = {name: known[text].label for name, known in compared.items()}
        how = "on" if text == state.settings.side else "against"
        for label in dict.fromkeys(labels.values()):
            where = [name for name, its in labels.items() if its == label]
            yield f"ngraph: {how} {label}{'' if len(where) == len(labels) else f' ({_few(where)})'}"


def _default_baselines(cells: Iterable[Cell]) -> str:
    """Name the baseline of most models, and those of kinds that have another one."""
    kinds = {cell.workload.model.scheme: kind_of(cell.workload.model) for cell in cells}
    others = [
        f"{kind.default_baseline} for {kind.plural or f'{name} models'}"
        for name, kind in sorted(kinds.items())
        if kind.default_baseline != IDENTITY.name
    ]
    return f"{IDENTITY} ({', '.join(others)})" if others else str(IDENTITY)


def header_lines(settings: Settings, points: Sequence[ItemPlan]) -> list[str]:
    """Return the lines after collection below those of the devices: compilers, models, protocol, seed and store."""
    # In the order of the tests, the same in each run.
    cells = dict.fromkeys(cell for point in points for cell in point.cells)
    models = _few(cell.workload.model.text for cell in cells)
    compilers = _few(map(str, dict.fromkeys(point.compiler for point in points)))
    baseline = str(settings.baseline) if settings.baseline else _default_baselines(cells)
    items = f"{units.count(len(points), 'item')}, {units.count(len(cells), 'cell')}"
    lines = [
        f"ngraph: {items}; compilers {compilers}; baseline {baseline}",
    ]
    if models:
        lines.append(f"ngraph: models {models}")
    whole = f", {units.seconds(settings.run_seconds)} for the run" if settings.run_seconds else ""
    lines.append(
        f"ngraph: protocol {settings.protocol.name}, tolerance {100 * settings.tolerance:g} %, budget "
        f"{settings.budget}{whole}, seed {settings.seed}"
    )
    lines.append(f"ngraph: store {nearby(settings.store)}")
    return lines


def size_lines(settings: Settings) -> list[str]:
    """Return what to say of a store that, with what is cached beside it, has grown large."""
    from pytest_ngraph.store.soundness import command
    from pytest_ngraph.upkeep.care import file_bytes, folder_bytes

    if not settings.store.exists():
        return []
    # Only what is this package's: with --ngraph-store=results.sqlite the folder is the project's own.
    beside = (settings.store.parent / name for name in BESIDE_STORE)
    held = file_bytes(settings.store) + sum(folder_bytes(folder) for folder in beside if folder.is_dir())
    if held < _LARGE_BYTES:
        return []
    return [
        f"ngraph: store and caches take {units.size(held)}; what is old goes with",
        f"  {command('prune', settings.store)} --older-than=30d",
    ]


def noise_line(settings: Settings, device: Device) -> str:
    """Return how noisy a device was found to be, and which effects a gate can see there."""
    profile, note = read_profile(profile_path(settings.store, device.name), device.name)
    if profile is None:
        how = " (ngraph doctor --noise)" if is_known(device.name) else ""
        return f"ngraph: noise{_of(device)}: not measured{how}{'; ' + note if note else ''}"
    visible = percent(profile.visible_in(USUAL_BUDGET))
    return (
        f"ngraph: noise{_of(device)}: {profile.grade} on {profile.date}, {visible} visible in {USUAL_BUDGET} launches"
    )


def _of(device: Device) -> str:
    return "" if device.name == "local" else f" of {device.name}"


def cost_lines(expected: Sequence[Cost], protocol: Protocol, allowed_seconds: float | None = None) -> list[str]:
    """Return what the run will cost at least, before anything is measured. Devices measure side by side.

    It is compared with what the run is allowed to take, where that is limited.
    """
    groups, stored = sum(each.groups for each in expected), sum(each.stored for each in expected)
    lines = []
    passes = sum(each.passes for each in expected)
    if passes and not groups:
        longest = max(expected, key=lambda cost: cost.seconds)
        building = f", building {units.about(longest.build_seconds)} of it" if longest.build_seconds else ""
        lines.append(
            f"ngraph: to evaluate: {_passes(passes)}, about {units.about(longest.seconds)} at least{building}; nothing "
            "is timed"
        )
    if groups:
        longest = max(expected, key=lambda cost: cost.seconds)
        parts = {"building": longest.build_seconds, "memory": longest.memory_seconds}
        shares = [f"{name} {units.about(seconds)}" for name, seconds in parts.items() if seconds]
        shares += [f"{_passes(longest.passes)} {units.about(longest.pass_seconds)}"] if longest.passes else []
        each = " each" if groups > 1 else ""
        shares.append(
            f"{units.count(longest.launches, 'launch', 'launches')}{each} {units.about(longest.launch_seconds)}"
        )
        least = f"about {units.about(longest.seconds)} at least: {', '.join(shares)}"
        lines.append(f"ngraph: to measure: {units.count(groups, 'launch group')}, {least}")
        if untold := sum(each.untold for each in expected):
            lines.append(
                f"ngraph: nothing says how long calls of {units.count(untold, 'workload')} take: of a large network it "
                "is many times that"
            )
        if allowed_seconds is not None and longest.seconds > allowed_seconds:
            lines.append(
                f"ngraph: warning: that is more than the run's budget of {units.seconds(allowed_seconds)}: some tests "
                "will not be measured; what is measured is kept, and the next run goes on from there"
            )
        if protocol.error_control:
            further = units.about(longest.launch_seconds / max(1, longest.launches * longest.groups))
            lines.append(
                f"ngraph: and {further} for each further launch where a gate is not sure by then; "
                f"{CONFIRMING_LOOKS[0]} to {CONFIRMING_LOOKS[-1]} confirm a fail"
            )
        searches = list(dict.fromkeys(name for each in expected for name in each.searches))
        if searches:
            lines.append(f"ngraph: and the search for code of {_few(searches)}, if it was not done before")
    if stored:
        lines.append(
            f"ngraph: stored: {units.count(stored, 'launch group')}; about "
            f"{units.about(max(each.stored_seconds for each in expected))} if code, versions or options have changed"
        )
    return lines


def _passes(count: int) -> str:
    return f"{units.count(count, 'untimed pass', 'untimed passes')} of outputs"


def thread_lines(device: Device, points: Iterable[ItemPlan]) -> list[str]:
    """Warn of more threads than CPUs: they wait for one another, and the numbers say so rather than how fast it is."""
    cpus = len(device.cpus)
    if not cpus:
        return []
    asked = {"--ngraph-threads": device.threads}
    for point in points:
        given = dict(point.compiler.options).get("threads", "")
        if point.device == device.name and given.isdecimal():
            asked[str(point.compiler)] = int(given)
    return [
        f"ngraph: warning: {name}: {units.count(threads, 'thread')} on the {units.count(cpus, 'CPU')} of {device.name} "
        f"wait for one another; {cpus} at most are measured well"
        for name, threads in asked.items()
        if threads > cpus
    ]


def wrapped(lines: Iterable[str], width: int) -> list[str]:
    """Return the lines of the header no wider than the terminal, where no word is. What continues is indented.

    A command, which stands on an indented line of its own, stays whole: it is there to be copied.
    """
    fill = functools.partial(
        textwrap.wrap, width=width, subsequent_indent=" " * 8, break_on_hyphens=False, break_long_words=False
    )
    return [part for line in lines for part in ([line] if line.startswith("  ") else fill(line))]


def warning_lines(settings: Settings, device: Device, plans: Iterable[ItemPlan]) -> list[str]:
    """Return what will hardly be decided, before it is measured: by the machine's profile and by the stored claims.

    Reads the store only if there is one, with one query however many tests there are.
    """
    if not settings.protocol.error_control:
        return []
    known = {plan.nodeid: plan for plan in plans}
    undecided: dict[str, VerdictRow] = {}
    for row in _undecided_claims(settings):
        if row.nodeid in known:
            undecided.setdefault(row.nodeid, row)
    profile, _ = read_profile(profile_path(settings.store, device.name), device.name)
    # What a test itself has shown says more than the profile.
    others = [plan for nodeid, plan in known.items() if nodeid not in undecided]
    lines = _below_what_is_visible(others, profile) if profile is not None else []
    return [*lines, *_undecided_before(undecided)]


def _below_what_is_visible(plans: Iterable[ItemPlan], profile: MachineProfile) -> list[str]:
    """Warn of tests whose tolerance is smaller than what their budget can show on this machine."""
    terms: dict[tuple[float, int], list[str]] = {}
    for plan in plans:
        launches = _launches(plan.budget)
        if plan.tolerance < profile.visible_in(launches):
            terms.setdefault((plan.tolerance, launches), []).append(plan.nodeid)
    if len(terms) > _MOST_WARNINGS:
        tests = units.count(sum(map(len, terms.values())), "test")
        low, high = percent(min(terms)[0]), percent(max(terms)[0])
        return [
            f"ngraph: warning: {tests}: tolerances ({low} to {high}) are below what this machine can show in their "
            f"budgets ({percent(profile.visible_in(USUAL_BUDGET))} in {USUAL_BUDGET} launches): expect inconclusive; "
            "a wider tolerance=, a larger budget or a quieter machine"
        ]
    return [
        f"ngraph: warning: {_tests(nodeids)}: tolerance {percent(tolerance)} is below the "
        f"{percent(profile.visible_in(launches))} this machine can show in {launches} launches: expect inconclusive; a "
        "wider tolerance=, a larger budget or a quieter machine"
        for (tolerance, launches), nodeids in terms.items()
    ]


def _launches(budget: Budget) -> int:
    """Return the launches of a budget. One of wall time is judged at the looks of the default budget."""
    return budget.launches if budget.launches is not None else USUAL_BUDGET


def _undecided_before(by_test: Mapping[str, VerdictRow]) -> list[str]:
    """Warn of tests whose claims stayed inconclusive in their latest run because their tolerance was too small."""
    end = "expect the same; a wider tolerance=, a larger budget or a quieter machine"
    if len(by_test) > _MOST_WARNINGS:
        return [
            f"ngraph: warning: {units.count(len(by_test), 'test')}: inconclusive in their latest run, which could not "
            f"see their tolerances: {end}"
        ]
    return [
        f"ngraph: warning: {_tests([nodeid])}: inconclusive in its latest run: it could see {_amount(row, 'effect')} "
        f"in {units.count(row.launches, 'launch', 'launches')}, its tolerance is {_amount(row, 'tolerance')}: {end}"
        for nodeid, row in by_test.items()
    ]


def _undecided_claims(settings: Settings) -> Sequence[VerdictRow]:
    from pytest_ngraph.store.sqlite import Store

    if not settings.store.exists():
        return ()
    try:
        with Store.open(settings.store, read_only=True) as store:
            return store.undecided_claims()
    except StoreError:
        # The run itself will say what is wrong with its store.
        return ()


def _amount(row: VerdictRow, which: str) -> str:
    value = (row.smallest_effect if which == "effect" else row.tolerance) or 0.0
    metric = METRICS.get(row.metric)
    return metric.format(value) if metric is not None and metric.scale == "linear" else percent(value)


def _tests(nodeids: Sequence[str]) -> str:
    """Name one test without its file, or say how many there are."""
    if len(nodeids) > 1:
        return f"{len(nodeids)} tests"
    return nodeids[0].partition("::")[2] or nodeids[0]


def _few(names: Iterable[str], most: int = 6) -> str:
    """Return names in order, the first few of many."""
    known = list(dict.fromkeys(names))
    rest = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + rest
