"""A drawn chart as part of a page: colours become the page's, ids are the chart's own, and a reader hears what it shows."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from eaglelab.printable import printable
from eaglelab.report.charts.canvas import to_svg
from eaglelab.report.charts.chart import Chart
from eaglelab.report.charts.palette import LIGHT

__all__ = ["inline_svg"]

_SPACE = re.compile(r"\{[^}]*\}")
_COLOUR = re.compile("|".join(LIGHT.values()))
_NAMES = {value: name for name, value in LIGHT.items()}
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_FONT = re.compile(r"font(?:-family)?:[^;]*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)px")
_HREF = "{http://www.w3.org/1999/xlink}href"


def inline_svg(chart: Chart) -> str:
    """An `<svg>` element for an HTML document. What it holds of foreign text is escaped."""
    root = ElementTree.fromstring(to_svg(chart))  # noqa: S314 - drawn here, a moment ago
    for parent in list(root.iter()):
        for child in list(parent):
            if _bare(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _bare(element.tag)
        _own(element, chart.name)
    box = root.get("viewBox", "")
    root.attrib.clear()
    labels = f"{chart.name}-title {chart.name}-says"
    root.attrib.update({"viewBox": box, "role": "img", "aria-labelledby": labels, "focusable": "false"})
    for place, (tag, text) in enumerate((("title", chart.title), ("desc", chart.says))):
        told = ElementTree.Element(tag, id=f"{chart.name}-{'says' if tag == 'desc' else tag}")
        told.text = printable(text)
        root.insert(place, told)
    return ElementTree.tostring(root, encoding="unicode")


def _bare(tag: str) -> str:
    return _SPACE.sub("", tag)


def _own(element: ElementTree.Element, name: str) -> None:
    """Turns the ids, references and colours of one element into those of chart `name` on a page."""
    target = element.attrib.pop(_HREF, None)
    if target is not None:
        element.set("href", f"#{name}-{target.removeprefix('#')}")
    if "id" in element.attrib:
        element.set("id", f"{name}-{element.attrib['id']}")
    for key, value in element.attrib.items():
        element.set(key, _REFERENCE.sub(rf"url(#{name}-\1)", value))
    look = element.get("style")
    if look is not None:
        element.set("style", _COLOUR.sub(lambda found: f"var(--{_NAMES[found[0]]})", _fonts(look)))


def _fonts(look: str) -> str:
    """The size stays, the family is the page's."""
    return _FONT.sub(lambda found: f"font-size: {size[1]}px" if (size := _SIZE.search(found[0])) else "", look)
