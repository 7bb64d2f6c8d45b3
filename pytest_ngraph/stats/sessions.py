"""Sessions: what launches of one run share with one another and not with those of another day, and what follows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_ngraph.stats.launches import Interval, LaunchValue, interval

# Fewer sessions say nothing of how sessions scatter.
LEAST_SESSIONS = 6
# One-sided, of a comparison, and the false fails that it is held to (tests/stats/test_stats_sessions.py).
LEVEL, FALSE_FAILS = 0.005, 0.01
# Earlier runs say how the launches of a gate scatter from so many of them and so many degrees of freedom on, and are
# worth no more than so many: scatter differs between runs. It is the same unless F exceeds its quantile.
_LEAST_RUNS, _LEAST_DF, _MOST_DF = 3, 6, 14
_SAME_SCATTER = 0.95


@dataclass(frozen=True, slots=True)
class KnownScatter:
    """How the launches of a gate scattered in earlier runs, each about the mean of its own run.

    ``variance`` is on the metric's working scale, of ``runs`` runs, and has ``df`` degrees of freedom.
    """

    variance: float
    df: int
    runs: int


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of launches of one or more sessions, on the working scale of a metric.

    ``variance`` is that of a launch (never less than its blocks explain), and ``sessions`` says how many launches each
    session has.
    """

    theta: float
    variance: float
    sessions: tuple[int, ...]

    @property
    def launches(self) -> int:
        """Return how many launches there are."""
        return sum(self.sessions)

    @property
    def share(self) -> float:
        """Return what of the variance between sessions is in the mean: 1 for one session, 1/k for k equal ones."""
        return math.fsum((count / self.launches) ** 2 for count in self.sessions)


@dataclass(frozen=True, slots=True)
class Between:
    """How the means of sessions of equal code scatter: their variance, with its degrees of freedom, and who says so."""

    variance: float
    df: int
    source: str = ""


def mean_of(sessions: Sequence[Sequence[LaunchValue]]) -> Mean:
    """Return the mean over the launches of sessions, none of which may be empty."""
    values = [value for session in sessions for value in session]
    spread = interval(values, LEVEL)
    return Mean(spread.theta, spread.s**2, tuple(len(session) for session in sessions))


def between_of(groups: Iterable[Sequence[float]], source: str = "") -> Between | None:
    """Return how session means scatter within groups of equal code, pooled, or None for too few sessions.

    What launches within a session explain of it is not taken off: the variance of a comparison is rather too large
    than too small, and nothing is estimated as a difference of two variances.
    """
    squares, df = [0.0], 0
    for means in groups:
        if len(means) > 1:
            centre = math.fsum(means) / len(means)
            squares += [(mean - centre) ** 2 for mean in means]
            df += len(means) - 1
    return Between(math.fsum(squares) / df, df, source) if df >= LEAST_SESSIONS - 1 else None


def difference(now: Mean, then: Mean, between: Between | None, level: float = LEVEL) -> Interval:
    """Return the interval of ``now - then``: two independent means with a term for what differs between sessions.

    Its variance is s1^2/n1 + s2^2/n2 + b^2 (w1 + w2), w the share of ``Mean``, its degrees of freedom those of
    Satterthwaite (1946). Where one of the means is of one launch, so that nothing is known of its scatter, the interval
    is infinite.
    """
    theta, launches = now.theta - then.theta, min(now.launches, then.launches)
    if launches < 2:
        return Interval(theta, math.inf, -math.inf, math.inf, math.inf, 0, launches, 0.0, 0.0)
    parts = [(one.variance / one.launches, one.launches - 1) for one in (now, then)]
    if between is not None:
        parts.append((between.variance * (now.share + then.share), between.df))
    total = math.fsum(part for part, _ in parts)
    if not total:
        return Interval(theta, 0.0, theta, theta, 0.0, launches - 1, launches, 0.0, 0.0)
    from scipy.special import stdtrit

    df = total**2 / math.fsum(part**2 / of for part, of in parts)
    half = float(stdtrit(df, 1 - level)) * math.sqrt(total)
    spread = math.sqrt(total * launches)
    return Interval(theta, half, theta - half, theta + half, spread, max(1, math.floor(df)), launches, spread, 0.0)


def known_scatter(runs: Iterable[Sequence[LaunchValue]]) -> KnownScatter | None:
    """Return how launches scattered in earlier runs, the latest run first, or None where they say too little.

    It is sum (P_k - 1) s_k^2 / sum (P_k - 1), over three runs at least and as many as are worth 14 degrees of freedom.
    s_k^2 is the variance of the launches of a run, never less than their blocks explain.
    """
    total, df, count = 0.0, 0, 0
    for values in runs:
        if len(values) > 1 and (df < _MOST_DF or count < _LEAST_RUNS):
            spread = interval(values, LEVEL)
            total, df, count = total + spread.df * spread.s**2, df + spread.df, count + 1
    if count < _LEAST_RUNS or df < _LEAST_DF:
        return None
    return KnownScatter(total / df, min(df, _MOST_DF), count)


def scatters_as_known(spread: Interval, known: KnownScatter) -> bool:
    """Return whether launches scatter no more than they did: F = s^2 / variance is within its 95 % quantile."""
    from scipy.special import fdtri

    return spread.df > 0 and spread.s**2 <= known.variance * float(fdtri(spread.df, known.df, _SAME_SCATTER))


def with_known_scatter(spread: Interval, known: KnownScatter, q: float) -> Interval:
    """Return the interval at the one-sided level ``q`` that takes in how launches scattered in earlier runs.

    Its variance is (df s^2 + df_0 s_0^2) / (df + df_0), with so many degrees of freedom. Launches that scatter more
    than they did are judged by themselves.
    """
    if not scatters_as_known(spread, known):
        return spread
    from scipy.special import stdtrit

    df = spread.df + known.df
    s = math.sqrt((spread.df * spread.s**2 + known.df * known.variance) / df)
    half = float(stdtrit(df, 1 - q)) * s / math.sqrt(spread.launches)
    return replace(spread, half_width=half, low=spread.theta - half, high=spread.theta + half, s=s, df=df)
