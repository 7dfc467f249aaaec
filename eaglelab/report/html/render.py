"""A page as HTML: everything escaped but the drawings, which are made here."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from eaglelab.masking import Masker
from eaglelab.printable import printable
from eaglelab.report.charts.chart import Chart
from eaglelab.report.charts.palette import DARK, LIGHT
from eaglelab.report.charts.svg import inline_svg
from eaglelab.report.html.page import Page

__all__ = ["render"]

_MASKER = Masker()
"""Knows no secret of any host, but the shapes in which they stand."""


def render(page: Page) -> str:
    """One HTML document that needs nothing else.

    Raises EaglelabError where matplotlib is missing.
    """
    environment = Environment(
        loader=PackageLoader("eaglelab.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters.update(drawn=_drawn, whole=_whole)
    return environment.get_template("report.html").render(page=page, light=LIGHT, dark=DARK)


def _visible(value: object) -> object:
    """What can be seen and shown to anyone: of a bundle that is all of it, but a log may hold what nobody masked.

    Controls and marks that turn the order of a line stand there as their escape: HTML would hide them.
    """
    return printable(_MASKER.text(value)) if type(value) is str else value


def _drawn(chart: Chart) -> Markup:
    return Markup(inline_svg(chart))  # noqa: S704 - an SVG of our own, whose text ElementTree escaped


def _whole(sentence: str) -> str:
    """A figure and its percent sign stay on one line."""
    return sentence.replace(" %", "\N{NO-BREAK SPACE}%")
