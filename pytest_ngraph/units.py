"""Numbers as people read them: times, bytes, factors and rates with their units."""

from __future__ import annotations

import math
from collections.abc import Callable

_TIME_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
# Times the lower end. Over launches that is no time of one thing; one of many samples right is 1,500 times at 99 %.
_WIDEST = 10_000
_BYTE_STEPS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def _digits(value: float) -> str:
    """Write a number with about three significant digits and no exponent."""
    if not math.isfinite(value):
        return "?" if math.isnan(value) else f"{value:+}".replace("+inf", "inf")
    size = abs(value)
    if size >= 100 or value == 0:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.1:
        return f"{value:.2f}"
    return f"{value:.2g}" if size < 1e-3 else f"{value:.3f}"


def seconds(value: float) -> str:
    """Write a duration given in seconds, such as ``12.3 ms``. From two minutes on as ``2 min 05 s``."""
    if math.isfinite(value) and value >= 120:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest:02d} s"
    for step, unit in _TIME_STEPS:
        if abs(value) >= step:
            return f"{_digits(value / step)} {unit}"
    return f"{_digits(value / 1e-9)} ns" if value else "0 s"


def about(value: float) -> str:
    """Write an estimated duration in seconds without digits that it does not have, such as ``77 s`` or ``6.6 s``."""
    rounded = float(f"{value:.2g}")
    for step, unit in _TIME_STEPS:
        if step <= rounded < 120:
            return f"{float(f'{rounded / step:.2g}'):g} {unit}"
    return seconds(rounded)


def joules(value: float) -> str:
    """Write an energy given in joules, such as ``12.3 mJ``."""
    return _stepped(value, "J")


def watts(value: float) -> str:
    """Write a power given in watts, such as ``45.2 W``."""
    return _stepped(value, "W")


def _stepped(value: float, unit: str) -> str:
    for step, prefix in ((1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")):
        if abs(value) >= step or step == 1e-9:
            return f"{_digits(value / step)} {prefix}{unit}" if value else f"0 {unit}"
    return f"? {unit}"


def size(value_bytes: float) -> str:
    """Write a size given in bytes, such as ``46.8 MiB``."""
    for step, unit in _BYTE_STEPS:
        if abs(value_bytes) >= step:
            return f"{_digits(value_bytes / step)} {unit}"
    return f"{value_bytes:.0f} B"


def factor(value: float) -> str:
    """Write a dimensionless factor, such as ``1.23x``."""
    return f"{_digits(value)}x"


def rate(value: float) -> str:
    """Write a throughput given in samples per second, such as ``123 /s``."""
    return f"{_digits(value)} /s"


def fraction(value: float) -> str:
    """Write a fraction as per cent, such as ``3.2 %``."""
    return f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.2g} %"


def share(value: float) -> str:
    """Write a share from 0 to 1, or a difference of two, such as ``0.9722``."""
    return f"{value:.4g}"


def percent(value: float) -> str:
    """Write a value that is a percentage already, such as ``99.8 %``."""
    return f"{_digits(value)} %"


def count(value: int, thing: str, plural: str = "") -> str:
    """Write a number of things, such as ``1 launch`` or ``3 launches``."""
    return f"{value} {thing if value == 1 else plural or thing + 's'}"


def says_nothing(low: float, high: float) -> bool:
    """Return whether an interval is so wide, as that of two launches can be, that its ends are no numbers to read."""
    return 0 < low < high / _WIDEST


def interval(low: float | None, high: float | None, write: Callable[[float], str]) -> str:
    """Write the interval that follows an estimate: `` [1.20x, 1.26x]``.

    Nothing where it has no end, and where it is too wide to say anything that it is.
    """
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    if says_nothing(low, high):
        return " (too few launches for an interval)"
    return f" [{write(low)}, {write(high)}]"


def spread(low: float | None, high: float | None, launches: int, write: Callable[[float], str]) -> str:
    """Write what follows an estimate: `` [1.20x, 1.26x], 8 launches``, or ``, no interval from 1 launch``."""
    over, both = count(launches, "launch", "launches"), interval(low, high, write)
    return f"{both}, {over}" if both else f", no interval from {over}"


def number(value: float) -> str:
    """Write a plain number with about three significant digits."""
    return _digits(value)
