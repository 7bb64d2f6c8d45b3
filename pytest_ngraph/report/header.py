"""The header: what is about to be measured, so that a reader can do it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.devices.local import is_known
from pytest_ngraph.errors import StoreError
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.report.profile import USUAL_BUDGET, MachineProfile, percent, profile_path, read_profile
from pytest_ngraph.settings import BESIDE_STORE, Budget, Settings
from pytest_ngraph.spec import Device

if TYPE_CHECKING:
    from pytest_ngraph.grid import Point
    from pytest_ngraph.planner import ItemPlan
    from pytest_ngraph.store.rows import VerdictRow

# As many warnings of a kind are shown one by one; more are one line.
_MOST_WARNINGS = 3
_LARGE_BYTES = 10**9


def device_line(device: Device, cpu: str) -> str:
    """Return what a device is."""
    cpus, threads = units.count(len(device.cpus), "CPU"), units.count(device.threads, "thread")
    return f"ngraph: device {device.name}: {cpu}, {cpus}, {threads} a compiler"


def header_lines(settings: Settings, points: Sequence[Point]) -> list[str]:
    """Return the lines after collection below those of the devices: compilers, models, protocol, seed and store."""
    cells = {cell for point in points for cell in point.cells}
    models = _few(cell.workload.model.text for cell in cells)
    compilers = _few(str(point.compiler) for point in points)
    baseline = str(settings.baseline) if settings.baseline else "identity (onnxruntime[graph=disabled] for ONNX files)"
    items = f"{units.count(len(points), 'item')}, {units.count(len(cells), 'cell')}"
    lines = [
        f"ngraph: {items}; compilers {compilers}; baseline {baseline}",
    ]
    if models:
        lines.append(f"ngraph: models {models}")
    lines.append(
        f"ngraph: protocol {settings.protocol.name}, tolerance {100 * settings.tolerance:g} %, budget "
        f"{settings.budget}, seed {settings.seed}; store {settings.store}"
    )
    return lines


def size_lines(settings: Settings) -> list[str]:
    """Return what to say of a store that, with what is cached beside it, has grown large."""
    from pytest_ngraph.store.care import file_bytes, folder_bytes
    from pytest_ngraph.store.soundness import command

    if not settings.store.exists():
        return []
    # Only what is ours: with --ngraph-store=results.sqlite the folder is the project's own.
    beside = (settings.store.parent / name for name in BESIDE_STORE)
    held = file_bytes(settings.store) + sum(folder_bytes(folder) for folder in beside if folder.is_dir())
    if held < _LARGE_BYTES:
        return []
    return [
        f"ngraph: the store and what is cached beside it take {units.size(held)}; what is old goes with",
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


def cost_lines(expected: Sequence[tuple[int, float]]) -> list[str]:
    """Return what the run will cost at least, before anything is measured.

    ``expected`` are the launch groups of each device and the seconds they take; devices measure side by side.
    """
    groups, seconds = sum(each for each, _ in expected), max((each for _, each in expected), default=0.0)
    if not groups:
        return []
    return [
        f"ngraph: to measure: {units.count(groups, 'launch group')}, about {units.seconds(seconds)} where nothing is "
        "stored and the first look decides"
    ]


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
    """Return the launches of a budget; one of wall time is judged at the looks of the default budget."""
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
