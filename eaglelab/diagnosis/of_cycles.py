"""Facts from the probe's cycles of one setting."""

from __future__ import annotations

from eaglelab.diagnosis.facts import Sheet
from eaglelab.profile.summary import Setting

__all__ = ["put_cycles", "words_of"]


def words_of(steps: int | None, batch: int, variation: str = "") -> str:
    """What a setting is called here: `2 steps, batch 1`."""
    first = "no speculation" if steps is None else f"{steps} step{'' if steps == 1 else 's'}"
    return f"{first}, batch {batch}" + (f", {variation}" if variation else "")


def put_cycles(sheet: Sheet, setting: Setting, source: str) -> None:
    """Phases, acceptance, graphs and ranks."""
    sheet.put("steps", setting.steps, source)
    sheet.put("batch", setting.batch_size, source)
    sheet.put("worker_class", setting.worker, source)
    sheet.put("cycles", setting.cycles, source)
    sheet.put("synchronised", setting.sync, source)
    found = setting.acceptance
    if found is not None:
        sheet.put("accept_length", found.length, source)
        sheet.put("accept_verifies", found.verifies, source)
        if found.survival:
            sheet.put("first_draft_right", found.survival[0], source)
        if 1 <= setting.steps <= len(found.survival):
            sheet.put("last_draft_right", found.survival[setting.steps - 1], source)
    for phase in setting.phases:
        name = "cycle" if phase.name == "total" else phase.name
        sheet.put(f"{name}_ms", phase.event.mean, f"{source}, GPU time")
    if setting.graph is not None and (whole := sum(setting.graph.values())):
        sheet.put("graph_eager", setting.graph["eager"], source)
        sheet.put("graph_share", 1 - setting.graph["eager"] / whole, source)
    _put_ranks(sheet, setting, source)


def _put_ranks(sheet: Sheet, setting: Setting, source: str) -> None:
    """Verify is mostly all-reduces and what is between them: the rank that comes last to each of them waits least."""
    timed = [rank for rank in setting.ranks if rank.event_ms]
    if len(timed) < 2:
        return
    verify = {rank.rank: rank.event_ms["verify"] for rank in timed}
    sheet.put("straggler_rank", min(verify, key=lambda rank: verify[rank]), source)
    sheet.put("skew_ms", max(verify.values()) - min(verify.values()), source)
    cycles = [rank.cycles for rank in setting.ranks]
    sheet.put("ranks_apart", max(cycles) - min(cycles), source)
