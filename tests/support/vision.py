"""Colours as they are seen: by dichromats, in grey, and how far apart two of them are."""

from __future__ import annotations

import math

Triple = tuple[float, float, float]
# Machado, Oliveira and Fernandes 2009, severity 1.0; they work on linear RGB.
_DICHROMATS: dict[str, tuple[Triple, Triple, Triple]] = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
_LUMINANCE: Triple = (0.2126, 0.7152, 0.0722)
VISIONS = ("usual", *_DICHROMATS, "grey")


def linear(colour: str) -> Triple:
    """Return the linear red, green and blue of ``#rrggbb``, each 0 to 1."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return (_linear(red), _linear(green), _linear(blue))


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def luminance(colour: str) -> float:
    """Return the relative luminance, 0 to 1."""
    return _dot(_LUMINANCE, linear(colour))


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def apart(one: str, other: str, vision: str) -> float:
    """Return how far apart two colours are for a vision: CIEDE2000, where 1 is just seen and 10 at a glance."""
    return ciede2000(_lab(_seen(linear(one), vision)), _lab(_seen(linear(other), vision)))


def _seen(colour: Triple, vision: str) -> Triple:
    if vision == "grey":
        grey = _dot(_LUMINANCE, colour)
        return (grey, grey, grey)
    if vision == "usual":
        return colour
    red, green, blue = (min(1.0, max(0.0, _dot(row, colour))) for row in _DICHROMATS[vision])
    return (red, green, blue)


def _dot(one: Triple, other: Triple) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def _lab(colour: Triple) -> Triple:
    white = (0.95047, 1.0, 1.08883)
    rows = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
    x, y, z = (_curve(_dot(row, colour) / most) for row, most in zip(rows, white, strict=True))
    return (116 * y - 16, 500 * (x - y), 200 * (y - z))


def _curve(value: float) -> float:
    return value ** (1 / 3) if value > (6 / 29) ** 3 else value / (3 * (6 / 29) ** 2) + 4 / 29


def ciede2000(one: Triple, other: Triple) -> float:
    """Return the difference of two colours in CIELAB (Sharma, Wu and Dalal 2005)."""
    (light1, a1, b1), (light2, a2, b2) = one, other
    chroma = ((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2) ** 7
    stretch = 1 + 0.5 * (1 - math.sqrt(chroma / (chroma + 25**7)))
    chroma1, chroma2 = math.hypot(stretch * a1, b1), math.hypot(stretch * a2, b2)
    hue1, hue2 = (math.degrees(math.atan2(b, stretch * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if not chroma1 * chroma2 else (hue2 - hue1 + 180) % 360 - 180
    off = 2 * math.sqrt(chroma1 * chroma2) * math.sin(math.radians(turn / 2))
    light, mean = (light1 + light2) / 2, (chroma1 + chroma2) / 2
    hue = hue1 + hue2 if not chroma1 * chroma2 else (hue1 + hue2) / 2
    if chroma1 * chroma2 and abs(hue1 - hue2) > 180:
        hue += 180 if hue1 + hue2 < 360 else -180
    weight = (
        1
        - 0.17 * math.cos(math.radians(hue - 30))
        + 0.24 * math.cos(math.radians(2 * hue))
        + 0.32 * math.cos(math.radians(3 * hue + 6))
        - 0.20 * math.cos(math.radians(4 * hue - 63))
    )
    scale_light = 1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2)
    scale_chroma, scale_hue = 1 + 0.045 * mean, 1 + 0.015 * mean * weight
    bend = (
        -2 * math.sqrt(mean**7 / (mean**7 + 25**7)) * math.sin(math.radians(60 * math.exp(-(((hue - 275) / 25) ** 2))))
    )
    parts = (light2 - light1) / scale_light, (chroma2 - chroma1) / scale_chroma, off / scale_hue
    return math.sqrt(math.fsum(part**2 for part in parts) + bend * parts[1] * parts[2])
