"""The colours of every chart. A figure is drawn in those for paper; a page replaces each by its variable, so that a dark
theme has its own.

Text on white, and white on each phase, has a contrast of at least 4.5 (WCAG 2.2, 1.4.3); the same holds for the dark
set. Phases differ in lightness as well as in hue, and lines also in their markers, so no chart hangs on colour alone.
"""

from __future__ import annotations

__all__ = ["DARK", "LIGHT", "SERIES", "contrast", "series"]

SERIES = 8
"""Lines that can be told apart; a chart with more begins again, with other markers."""

LIGHT = {
    "surface": "#ffffff",
    "ink": "#1b2027",
    "soft": "#565f6b",
    "rule": "#d5dae1",
    "draft": "#0b62a0",
    "verify": "#b24308",
    "extend": "#0b7055",
    "other": "#636b76",
    "on-phase": "#fefefe",
    "good": "#0a6e54",
    "alarm": "#b0182b",
    "warning": "#8a5300",
    "accent": "#0b5f9c",
    "panel": "#f5f7f9",
    "series-1": "#0a619f",
    "series-2": "#b14207",
    "series-3": "#0a6f54",
    "series-4": "#8b2f7f",
    "series-5": "#7a5b00",
    "series-6": "#2f2fa8",
    "series-7": "#a3173e",
    "series-8": "#4a5a12",
}
"""Every value once, so that a value stands for one name."""

DARK = {
    "surface": "#151a21",
    "ink": "#e7ebf0",
    "soft": "#a5afbb",
    "rule": "#333c48",
    "draft": "#6fb7f2",
    "verify": "#f09a58",
    "extend": "#54c9a4",
    "other": "#818b97",
    "on-phase": "#10141a",
    "good": "#55caa5",
    "alarm": "#ff8f98",
    "warning": "#f0b45a",
    "accent": "#74b9f4",
    "panel": "#1d242d",
    "series-1": "#70b8f3",
    "series-2": "#f19b59",
    "series-3": "#56cba6",
    "series-4": "#df8fd3",
    "series-5": "#dfc04a",
    "series-6": "#a5a5ff",
    "series-7": "#ff8fa6",
    "series-8": "#b4c96a",
}


def series(index: int) -> str:
    """The colour of the `index`-th line (from 0)."""
    return LIGHT[f"series-{index % SERIES + 1}"]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours `#rrggbb`, 1 to 21 (WCAG 2.2, relative luminance)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
