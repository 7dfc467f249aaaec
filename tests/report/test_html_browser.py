"""The page as a reader's browser has it: on a screen and a phone, light and dark, on paper, and for a screen reader."""

from __future__ import annotations

import itertools
import zlib

import pytest

from eaglelab.report.charts.palette import DARK, LIGHT, contrast

THEMES = {"light": (False, LIGHT), "dark": (True, DARK)}

# Every element with text of its own: the text's colour, and the nearest background that is not transparent.
TEXT_COLOURS = """
[...document.querySelectorAll("body *")].flatMap(element => {
  const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  if (!own || element.closest("title, desc")) return [];
  const look = getComputedStyle(element);
  let behind = element;
  while (behind && /rgba\\(0, 0, 0, 0\\)/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
  const colour = element instanceof SVGElement ? look.fill : look.color;
  return [[colour, behind ? getComputedStyle(behind).backgroundColor : "none", element.textContent.trim().slice(0, 40)]];
})
"""
CLIPPED = """
[...document.querySelectorAll("svg")].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
      || box.bottom > frame.bottom + 1;
  }).map(text => text.textContent);
})
"""
OVERLAPPING = """
[...document.querySelectorAll("svg")].flatMap(svg => {
  const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([one, a], place) => texts.slice(place + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
    .map(([other]) => one + " / " + other));
})
"""


def rgb(colour):
    parts = [int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return "#" + "".join(f"{part:02x}" for part in parts)


def test_it_opens_without_a_complaint_and_asks_for_nothing(chromium, page_file):
    chromium.open(page_file)
    assert chromium.complaints() == []
    assert chromium.requests() == []
    assert chromium.value("document.querySelectorAll('svg').length") == 10


@pytest.mark.parametrize("theme", THEMES)
def test_every_text_can_be_read(chromium, page_file, theme):
    dark, colours = THEMES[theme]
    chromium.open(page_file, dark=dark)
    assert rgb(chromium.value("getComputedStyle(document.body).backgroundColor")) == colours["surface"]
    found = chromium.value(TEXT_COLOURS)
    assert len(found) > 200
    # A figure within a bar stands on the bar and not on the page; test_report_palette has those.
    hard = [
        (text, rgb(colour), rgb(behind))
        for colour, behind, text in found
        if rgb(colour) != colours["on-phase"] and contrast(rgb(colour), rgb(behind)) < 4.5
    ]
    assert hard == []


def test_no_colour_of_paper_is_left_in_the_dark(chromium, page_file):
    chromium.open(page_file, dark=True)
    found = set(
        chromium.value("""[...document.querySelectorAll("svg *")].flatMap(element =>
        [getComputedStyle(element).fill, getComputedStyle(element).stroke])""")
    )
    shown = {rgb(colour) for colour in found if colour.startswith("rgb(")}
    assert shown & set(LIGHT.values()) == set()


@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
def test_it_fits_any_window(chromium, page_file, width):
    chromium.open(page_file, width=width)
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.value(CLIPPED) == []
    assert chromium.value(OVERLAPPING) == []


def test_text_in_charts_is_large_enough_on_a_phone(chromium, page_file):
    chromium.open(page_file, width=360)
    heights = chromium.value(
        "[...document.querySelectorAll('svg text')].map(text => text.getBoundingClientRect().height)"
    )
    assert min(heights) >= 8


def test_a_screen_reader_finds_landmarks_headings_and_what_charts_show(chromium, page_file):
    chromium.open(page_file)
    nodes = [node for node in chromium.do("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    roles = [node["role"]["value"] for node in nodes]
    for role, count in {"banner": 1, "navigation": 1, "main": 1, "contentinfo": 1}.items():
        assert roles.count(role) == count, role
    drawings = [node for node in nodes if node["role"]["value"] in ("img", "image", "graphics-document", "SvgRoot")]
    assert len(drawings) == 10
    for drawing in drawings:
        assert len(drawing["name"]["value"]) > 60
    levels = chromium.value("[...document.querySelectorAll('h1,h2,h3,h4')].map(head => +head.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_every_chart_has_its_figures_as_a_table(chromium, page_file):
    chromium.open(page_file)
    rows = chromium.value("""[...document.querySelectorAll("figure")].map(figure =>
        [figure.querySelector("h3").textContent, figure.querySelectorAll("details tbody tr").length])""")
    assert all(count > 0 for _, count in rows)
    assert len(rows) == 10


def test_ids_are_unique_and_every_reference_has_its_target(chromium, page_file):
    chromium.open(page_file)
    ids = chromium.value("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))
    targets = chromium.value("""[...document.querySelectorAll("*")].flatMap(element =>
        [...element.attributes].flatMap(found => {
          if (["aria-labelledby"].includes(found.name)) return found.value.split(" ");
          if (found.name === "href" && found.value.startsWith("#")) return [found.value.slice(1)];
          return [...found.value.matchAll(/url\\(#([^)]+)\\)/g)].map(match => match[1]);
        }))""")
    assert len(targets) > 50
    assert set(targets) <= set(ids)


def test_the_keyboard_reaches_the_report_its_contents_and_every_table_in_order(chromium, page_file):
    chromium.open(page_file)
    seen = []
    for _ in range(60):
        for kind in ("keyDown", "keyUp"):
            chromium.do("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        where = chromium.value(
            "[document.activeElement.tagName, document.activeElement.getBoundingClientRect().top + scrollY]"
        )
        if where[0] == "BODY":
            break
        seen.append(where)
    names = [name for name, _ in seen]
    assert names[0] == "A"
    assert names.count("SUMMARY") >= 10
    tops = [top for name, top in seen if name == "SUMMARY"]
    assert all(later >= earlier - 400 for earlier, later in itertools.pairwise(tops))


def test_a_closed_table_opens_with_a_key(chromium, page_file):
    chromium.open(page_file)
    chromium.value("document.querySelector('figure summary').focus()")
    for kind in ("keyDown", "keyUp"):
        chromium.do("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13)
    assert chromium.value("document.querySelector('figure details').open") is True


def test_on_paper_it_is_light_every_table_is_open_and_nothing_is_cut_off(chromium, page_file):
    chromium.open(page_file, width=794, media="print", dark=True)
    assert rgb(chromium.value("getComputedStyle(document.body).color")) == LIGHT["ink"]
    heights = chromium.value(
        "[...document.querySelectorAll('details table')].map(table => table.checkVisibility() ? table.getBoundingClientRect().height : 0)"
    )
    assert min(heights) > 20
    assert chromium.value("document.documentElement.scrollWidth") <= 794
    assert chromium.value("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_it_prints_to_a_pdf_of_some_pages(chromium, page_file):
    chromium.open(page_file)
    printed = chromium.pdf()
    assert printed.startswith(b"%PDF-")
    assert 3 <= printed.count(b"/Type /Page\n") <= 25 or b"/ObjStm" in printed
    assert len(zlib.compress(printed)) > 20_000


def test_without_scripts_it_is_the_same(chromium, page_file):
    assert "<script" not in page_file.read_text(encoding="utf-8").lower()
