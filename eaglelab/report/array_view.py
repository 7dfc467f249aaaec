"""The jobs of one sweep: what the queue looks like before they are submitted, and what became of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType

from eaglelab.printable import printable
from eaglelab.report.cells import MISSING, figure, left, note, plain_table
from eaglelab.report.plan_view import duration
from eaglelab.sweep.plan import SweepPlan

__all__ = ["array_table", "queue_words"]


def queue_words(
    plan: SweepPlan,
    at_once: int,
    gpus: int,
    partition: str | None,
    queue: Mapping[str, Any],
    limit: str | None,
    idle: float,
) -> list[str]:
    """What is about to be submitted, what the queue says of it (the agent's `queue`), and what ends a forgotten job."""
    count = len(plan.loads)
    each = f"each with {gpus} GPU{'' if gpus == 1 else 's'}" if gpus else "without a reservation of GPUs"
    where = f"partition {partition}" if partition else "the default partition"
    nodes = ", ".join(f"{number} {state}" for state, number in sorted(queue["nodes"].items()))
    starts = queue["starts_in"]
    begins = "Slurm does not say when the first could begin" if starts is None else _begins(starts)
    rounds = math.ceil(count / at_once)
    time = f"{rounds} x {duration(plan.load_s)}" if rounds > 1 else duration(plan.load_s)
    ends = (
        f"after {limit} (server.slurm.time)"
        if limit
        else "only by the time limit of the partition (no server.slurm.time)"
    )
    return [
        f"{count} job{'' if count == 1 else 's'} of Slurm, {each}, {min(at_once, count)} at a time, in {where}",
        f"nodes: {nodes or 'none'}; {queue['waiting']} job{'' if queue['waiting'] == 1 else 's'} waiting there; {begins}",
        f"loading, once they run: {time}, then the measuring; time in the queue counts apart",
        f"a job that is left behind ends when nobody has asked its server for anything for {duration(idle)}, and {ends}",
    ]


def _begins(seconds: float) -> str:
    return "Slurm would start one now" if seconds < 60 else f"Slurm would start one in {duration(seconds)}"


def array_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """One row a job, in the order in which they ended."""
    table = left(plain_table("load", "job", "node", "queued s", "load s", "ended", text=3), 5)
    for row in rows:
        table.add_row(
            printable(row["load"]),
            row["job"] or MISSING,
            row["node"] or MISSING,
            figure(row["queued"], 1),
            figure(row["seconds"], 1),
            printable(row["ended"]),
        )
    return Group(table, note("queued: before the job ran; load: from then until the first token"))
