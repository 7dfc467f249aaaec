"""Draws the report of a run as the README shows it: python docs/picture.py logs/RUN docs/deploy-profiling.svg"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from eaglelab.profile.records import read_records
from eaglelab.profile.summary import summarise
from eaglelab.report.terminal import profile_table


def main(run: str, out: str) -> None:
    bundle = Path(run)
    lines = [line for file in sorted(bundle.glob("probe/*.jsonl")) for line in file.read_bytes().splitlines()]
    simulated = json.loads((bundle / "profile.json").read_text())["simulated"]
    console = Console(record=True, width=86, file=io.StringIO(), force_terminal=True)
    console.print(profile_table(summarise(read_records(lines), simulated=simulated)))
    svg = console.export_svg(title="invoke deploy-profiling", theme=MONOKAI)
    # Rich links its font from the network; any monospaced one does.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.S).replace("Fira Code", "DejaVu Sans Mono")
    Path(out).write_text(re.sub(r"[ \t]+$", "", svg, flags=re.M), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
