"""The loads of a sweep before they are spent: what each serves, why, and how long it should take."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from eaglelab.printable import printable
from eaglelab.report.cells import left, note, plain_table
from eaglelab.sweep.plan import Load, SweepPlan

__all__ = ["duration", "plan_table"]


def plan_table(plan: SweepPlan) -> RenderableType:
    """One row a load, then the time that loading takes in all and what one load for several step counts saves."""
    table = left(plain_table("load", "steps", "varied", "why", text=2), 2, 3)
    for number, load in enumerate(plan.loads, 1):
        varied = Text(printable(load.variation.name) or "-")
        table.add_row(str(number), _steps(load), varied, Text(printable(load.why) or "-"))
    count = len(plan.loads)
    total = f"{count} load{'' if count == 1 else 's'} of about {duration(plan.load_s)}: {duration(plan.loading_s)} of loading, then the measuring"
    saved = f"{duration(plan.saved_s)} less than a load for each setting" if plan.saved_s else ""
    return Group(table, *(note(text) for text in (total, saved) if text))


def _steps(load: Load) -> str:
    return "baseline" if load.steps is None else ", ".join(map(str, load.steps))


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `1 h 15 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
