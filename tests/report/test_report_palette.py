from __future__ import annotations

import itertools
import re

import pytest

from eaglelab.report.charts.palette import DARK, LIGHT, SERIES, contrast, series
from eaglelab.report.charts.phases import PARTS

THEMES = {"light": LIGHT, "dark": DARK}
# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
BLINDNESS = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_both_themes_name_the_same_colours_and_no_value_stands_for_two_names():
    assert LIGHT.keys() == DARK.keys()
    for theme in THEMES.values():
        assert len(set(theme.values())) == len(theme)
        assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in theme.values())


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", [name for name in LIGHT if name not in ("surface", "rule", "on-phase", "panel")])
def test_text_and_lines_can_be_read_on_the_page_and_on_a_panel(theme, name):
    colours = THEMES[theme]
    assert contrast(colours[name], colours["surface"]) >= 4.5
    if name in ("ink", "soft", "accent"):
        assert contrast(colours[name], colours["panel"]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("phase", PARTS)
def test_a_figure_within_a_bar_can_be_read(theme, phase):
    assert contrast(THEMES[theme]["on-phase"], THEMES[theme][phase]) >= 4.5


@pytest.mark.parametrize("blindness", [None, *BLINDNESS])
@pytest.mark.parametrize("theme", THEMES)
def test_phases_that_touch_differ_for_the_colour_blind_too(theme, blindness):
    colours = [seen(THEMES[theme][part], blindness) for part in PARTS]
    for one, other in itertools.pairwise(colours):
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 0.12


def test_lines_have_their_own_colours_until_there_are_too_many():
    assert len({series(index) for index in range(SERIES)}) == SERIES
    assert series(SERIES) == series(0)


def seen(colour, blindness):
    """What is left of a colour, as sRGB from 0 to 1."""
    linear = [(int(colour[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5)]
    if blindness is not None:
        rows = BLINDNESS[blindness]
        linear = [sum(weight * part for weight, part in zip(row, linear, strict=True)) for row in rows]
    return [min(max(part, 0), 1) ** (1 / 2.2) for part in linear]
