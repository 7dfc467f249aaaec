"""Commands of the embedded lab: lab-up, lab-down, and the demo that walks the whole road on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from eaglelab.commands.bench import bench
from eaglelab.commands.hosts import lab_root
from eaglelab.commands.outcome import Outcome
from eaglelab.commands.play import play
from eaglelab.commands.request import Request
from eaglelab.lab import lab
from eaglelab.say import Say

__all__ = ["demo", "lab_down", "lab_up"]


def lab_up(options: lab.LabOptions, outcome: Outcome, say: Say) -> None:
    """Brings the lab up; the outcome carries what it says of itself."""
    outcome.more["lab"] = dataclasses.asdict(lab.up(options, say.line))
    say.line("try: invoke deploy-profiling --host sim")


def lab_down(project: Path, say: Say) -> None:
    """Ends everything the lab started and removes its folder."""
    lab.down(lab_root(project), say.line)


def demo(project: Path, outcome: Outcome, say: Say) -> None:
    """Deploy, bench and rollback on a lab of its own, which goes down in the end. A lab that is up already stays."""
    ours = lab.info(lab_root(project)) is None
    chapter(say, "1 of 5  the lab: an SSH host on loopback with a simulated GPU")
    if ours:
        lab.up(lab.LabOptions(root=lab_root(project)), say.line)
    try:
        deployed = Request("deploy-profiling", project, host="sim")
        chapter(say, "2 of 5  invoke deploy-profiling --host sim")
        play(deployed, "deploy-profiling", outcome, say)
        chapter(say, "3 of 5  invoke bench --steps 2 --host sim")
        few = {"num_prompts": 6, "repeats": 3}
        bench(Request("bench", project, host="sim", vars=few), {"no_baseline": True}, outcome, say)
        chapter(say, "4 of 5  invoke rollback --host sim")
        play(Request("rollback", project, host="sim"), "rollback", outcome, say)
    finally:
        chapter(say, "5 of 5  the lab goes down")
        if ours:
            lab.down(lab_root(project), say.line)


def chapter(say: Say, title: str) -> None:
    say.line(f"\n== {title}", style="bold cyan")
