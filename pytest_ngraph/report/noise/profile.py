"""What equal code says of a machine: how its launches scatter, which effects a gate can see there, and its file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph import units
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, LaunchRecord, Reading
from pytest_ngraph.spec.states import alike
from pytest_ngraph.stats import LaunchValue, interval, looks_for, smallest_visible, spending

if TYPE_CHECKING:
    from pytest_ngraph.launches.equal_code import EqualLaunches, NoiseProfile

# What the grades are about: a gate of this tolerance, the launches that decide it on a quiet machine, its default
# budget, and the largest that is worth its time.
TOLERANCE, QUIET_BUDGET, USUAL_BUDGET = 0.05, 8, 16
BUDGETS = (3, 4, 6, 8, 12, 16, 24, 32)
_FORMAT = 1
# Parts of the fingerprint that make it another machine; a newer Python does not change how noisy it is.
_MACHINE = ("machine", "system", "cpu", "cpus", "node")


@dataclass(frozen=True, slots=True)
class SessionNoise:
    """How sessions of the same code differ: the standard deviation of the mean of ln over so many sessions.

    ``latency`` is that of a time by the clock, ``ratio`` that of the ratio of two equal processes. ``launches`` is how
    many each session had.
    """

    count: int
    launches: int
    latency: float
    ratio: float


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """The noise of one device of one machine, as ``ngraph doctor --noise`` measured it.

    ``scatter`` is the standard deviation of ln(speed-up) over launches of equal code. ``looks`` gives, for each look of
    a gate with the default budget, the smallest effect it distinguishes from none in nine of ten runs (a fraction).
    ``budgets`` the same for the last look of gates with other budgets. ``launches`` counts all launches of ``subject``,
    ``counted`` those that a gate would have counted. They took ``launch_seconds`` on average. ``visits`` is what
    a few seconds of the same work in this process said.
    """

    device: str
    measured_at: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    subject: str
    scatter: float
    looks: Mapping[int, float]
    budgets: Mapping[int, float]
    launch_seconds: float
    launches: int
    counted: int
    visits: Mapping[str, float | None]
    # Unknown where sessions were not measured.
    sessions: SessionNoise | None = None

    @property
    def grade(self) -> str:
        """Grade the machine: quiet, noisy or unusable, as ``grade_of`` says.

        However alike the others were: where over half of the launches would not have counted it is unusable, where over
        a quarter, noisy at best.
        """
        if self.loses_launches:
            grade = grade_of(self.budgets)
            return "unusable" if 2 * self.counted < self.launches else "noisy" if grade == "quiet" else grade
        return grade_of(self.budgets)

    @property
    def loses_launches(self) -> bool:
        """Return whether over a quarter of the launches would not have counted."""
        return 4 * self.counted < 3 * self.launches

    @property
    def date(self) -> str:
        """Return the day of the measurement, UTC."""
        return self.measured_at[:10]

    def visible_in(self, launches: int) -> float:
        """Return the smallest effect, a fraction, that a gate with so many launches can see, infinite under 3."""
        return next((self.budgets[each] for each in reversed(BUDGETS) if each <= launches), math.inf)


def grade_of(budgets: Mapping[int, float]) -> str:
    """Grade by what a gate of 5 % needs to be decided in nine of ten runs, wherever the truth lies.

    quiet: half of the default budget, 8 launches (a scatter of up to about 2.4 %); noisy: up to 32 launches (about
    6.4 %); unusable: not even these. ``budgets`` are effects by launches.
    """
    if budgets[QUIET_BUDGET] <= TOLERANCE:
        return "quiet"
    return "noisy" if min(budgets.values()) <= TOLERANCE else "unusable"


def visible_effects(scatter: float, looks: Sequence[int]) -> dict[int, float]:
    """Return the smallest effect that a gate can see at each of its looks, a fraction.

    ``scatter`` is the standard deviation of a launch value. The last look is the budget, and the looks share the error
    rate as those of a claim do.
    """
    from pytest_ngraph.claims.decide import ALPHA

    effects = {}
    for look, level in zip(looks, spending(ALPHA, looks, looks[-1]), strict=True):
        # So many values with just this standard deviation.
        steps = [number - (look - 1) / 2 for number in range(look)]
        unit = math.sqrt(math.fsum(step**2 for step in steps) / (look - 1))
        values = [LaunchValue(scatter * step / unit, 0.0, 1) for step in steps]
        effects[look] = smallest_visible(interval(values, level))
    return effects


def effects_by_budget(scatter: float) -> dict[int, float]:
    """Return the smallest effect that a gate can see with each of ``BUDGETS``, a fraction."""
    return {each: visible_effects(scatter, looks_for(each, TOLERANCE))[each] for each in BUDGETS}


def scatter_of(twins: Iterable[tuple[Cell, Cell]], records: Sequence[LaunchRecord]) -> float | None:
    """Return the standard deviation over launches of ln(ratio) of cells and their twins in a second process.

    Each ratio is that of a gate on these launches: within one state of the machine and floored by the scatter within
    launches. Over several twins the root of the mean square, in which a twin of many launches counts for more than one
    of two. None where no twins share two launches that count.
    """
    from pytest_ngraph.quantities.comparisons import throughput_ratio
    from pytest_ngraph.quantities.measurement import Measurement
    from pytest_ngraph.quantities.quantity import NotStored
    from pytest_ngraph.report.results.stored import Stored

    source = Stored([record for record in records if not record.invalid], [], PROTOCOLS["gate"], 1)
    total = degrees = 0.0
    for pair in twins:
        ratio = throughput_ratio(*(Measurement(source, cell, cell) for cell in pair))
        try:
            values = ratio.shown().values()
        except NotStored:
            continue
        if len(values) > 1:
            spread = interval(values, 0.01)
            total, degrees = total + spread.df * spread.s**2, degrees + spread.df
    return math.sqrt(total / degrees) if degrees else None


def states_of(records: Iterable[LaunchRecord]) -> list[Reading]:
    """Return the states of the machine that launches were measured in, each once."""
    states: list[Reading] = []
    for record in records:
        if record.home is not None and not any(alike(known, record.home) for known in states):
            states.append(record.home)
    return states


def profile_of(device: str, equal: EqualLaunches, visits: NoiseProfile) -> MachineProfile | None:
    """Return the profile that launches of equal code make, or None where fewer than two of them count."""
    scatter = scatter_of(equal.twins, equal.records)
    counted = [record.seconds for record in equal.records if not record.invalid]
    if scatter is None:
        return None
    return MachineProfile(
        device=device,
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=environment.fingerprint(),
        versions=environment.versions(),
        subject=equal.what,
        scatter=scatter,
        looks=visible_effects(scatter, looks_for(USUAL_BUDGET, TOLERANCE)),
        budgets=effects_by_budget(scatter),
        launch_seconds=math.fsum(counted) / len(counted),
        launches=len(equal.records),
        counted=equal.counted,
        visits=asdict(visits),
    )


# Beside the store


def profile_path(store: Path, device: str) -> Path:
    """Return where the profile of a device is kept: beside the store."""
    return store.parent / f"noise-{device}.json"


def write_profile(profile: MachineProfile, path: Path) -> None:
    """Keep a profile. Readers see the old or the whole new one. Raises StoreError where it cannot be written."""
    from pytest_ngraph.report.export.files import write_text

    fields = {**asdict(profile), "format": _FORMAT}
    for name in ("looks", "budgets"):
        # JSON has no infinity: an effect without a limit is null.
        fields[name] = {key: value if math.isfinite(value) else None for key, value in fields[name].items()}
    write_text(json.dumps(fields, indent=1, allow_nan=False) + "\n", path)


def read_profile(path: Path, device: str) -> tuple[MachineProfile | None, str]:
    """Return the stored profile of this machine's device, or None with the reason where there is something else."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is damaged"
        return None, f"{path.name} cannot be read: {reason}"
    try:
        version = fields.pop("format")
        if version != _FORMAT:
            return None, f"{path.name} is of another version of pytest-ngraph"
        sessions = fields.pop("sessions", None)
        profile = _checked(MachineProfile(**fields, sessions=None if sessions is None else SessionNoise(**sessions)))
        mine, theirs = environment.fingerprint(), profile.machine
        if profile.device != device or any(mine[key] != theirs[key] for key in _MACHINE):
            return None, f"{path.name} is of another machine"
    except (AttributeError, KeyError, TypeError, ValueError):
        return None, f"{path.name} is damaged"
    return profile, ""


def _checked(profile: MachineProfile) -> MachineProfile:
    """Return the profile as it was written. Raise TypeError, ValueError or KeyError where a field is something else."""
    numbers = (profile.scatter, profile.launch_seconds, profile.launches, profile.counted)
    if not all(isinstance(number, (int, float)) and math.isfinite(number) and number >= 0 for number in numbers):
        raise ValueError(numbers)
    if (sessions := profile.sessions) is not None:
        counted = all(type(number) is int and number > 0 for number in (sessions.count, sessions.launches))
        scatters = (sessions.latency, sessions.ratio)
        if not counted or not all(type(one) is float and math.isfinite(one) and one >= 0 for one in scatters):
            raise ValueError(sessions)
    datetime.fromisoformat(profile.measured_at)
    budgets = _effects(profile.budgets)
    return replace(profile, looks=_effects(profile.looks), budgets={each: budgets[each] for each in BUDGETS})


def _effects(fields: Mapping[Any, Any]) -> dict[int, float]:
    return {int(key): math.inf if value is None else float(value) for key, value in fields.items()}


def percent(fraction: float) -> str:
    """Write an effect or a tolerance, such as ``3.2 %``."""
    if not math.isfinite(fraction):
        return "any effect"
    return units.fraction(fraction)
