"""Takes the pictures of docs/reading-a-report.md from the report of a run: python docs/picture_report.py logs/RUN docs

Needs Chromium and Pillow. Of a section that is longer than its picture the beginning is shown.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "report")]

from browser import Browser, browser  # noqa: E402 - found through the line above

from eaglelab.report.reports import report_of_run  # noqa: E402
from eaglelab.report.write import write_page  # noqa: E402
from eaglelab.runs.reading import read_run  # noqa: E402

WIDTH = 1120
PICTURES = {
    "report-top": ("header", 420, False),
    "report-diagnosis": ("#diagnosis", 460, False),
    "report-throughput": ("#throughput", 560, False),
    "report-phases": ("#phases", 480, False),
    "report-acceptance": ("#survival", 720, False),
    "report-what-if": ("#levers", 480, False),
    "report-time": ("#time", 720, True),
}
"""By name: what is shown, how many pixels of it at most, and whether in the dark."""


def main(run: str, folder: str) -> None:
    (evidence,) = read_run(Path(run))
    with tempfile.TemporaryDirectory() as scratch, browser() as page:
        file = write_page(report_of_run(evidence).page(), Path(scratch) / "report.html")
        for name, (what, height, dark) in PICTURES.items():
            page.open(file, width=WIDTH, dark=dark)
            take(page, what, height, Path(folder) / f"{name}.png")


def take(page: Browser, what: str, height: int, out: Path) -> None:
    top, found = page.value(
        f"(box => [box.top + scrollY, box.height])(document.querySelector('{what}').getBoundingClientRect())"
    )
    clip = {"x": 0, "y": top, "width": WIDTH, "height": min(found, height), "scale": 1}
    shot = page.do("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    picture = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
    picture.quantize(128).save(out, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
