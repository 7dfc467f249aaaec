"""Which of the probe's blocks belong to a measurement: those with the wanted steps and the wanted number of requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eaglelab.profile.findings import Finding, Number, Severity
from eaglelab.profile.records import CycleBlock

__all__ = ["OTHER_BATCH_LIMIT", "Selected", "as_asked", "at_batch", "concurrency_findings"]

OTHER_BATCH_LIMIT = 0.05
"""Share of cycles at another batch size up to which it is not worth telling: rounds begin and end."""


@dataclass(frozen=True)
class Selected:
    """The blocks that count, of all ranks, and what is to be said of the others. Cycles are the lowest rank's."""

    blocks: tuple[CycleBlock, ...]
    cycles: int
    left_out: int
    findings: tuple[Finding, ...]


def at_batch(blocks: Sequence[CycleBlock], wanted: int, *, limit: float = OTHER_BATCH_LIMIT) -> Selected:
    """Keep the blocks of `wanted` running requests, and tell of the others (`concurrency_findings`).

    Give it the blocks of one measurement: a run-out of 4 requests would else count as cycles of 1.
    """
    seen: Counter[int] = Counter()
    for block in _of_lowest_rank(blocks):
        seen[block.batch_size] += block.decode_cycles
    cycles, whole = seen[wanted], seen.total()
    kept = tuple(block for block in blocks if block.batch_size == wanted)
    findings = concurrency_findings(seen, wanted, "cycles", limit=limit)
    return Selected(kept, cycles, whole - cycles, findings)


def concurrency_findings(
    seen: Mapping[int, int], wanted: int, unit: str, *, limit: float = OTHER_BATCH_LIMIT
) -> tuple[Finding, ...]:
    """What to say of `seen`, which counts cycles (or the log's lines, by `unit`) by the number of requests running.

    Fewer than wanted is how a round begins and ends: told where it is more than `limit` of the whole. More than wanted
    means that someone else's requests were served too: told however few they are.
    """
    whole = sum(seen.values())
    other = whole - seen.get(wanted, 0)
    more = sum(count for size, count in seen.items() if size > wanted)
    numbers: dict[str, Number] = {"wanted": wanted, unit: whole, f"other_{unit}": other, f"foreign_{unit}": more}
    numbers |= {f"{unit}_at_{size}": count for size, count in sorted(seen.items())}
    findings = []
    if more:
        sentence = (
            f"{more} of {whole} {unit} ran with more requests than the {wanted} sent: someone else uses this server."
        )
        findings.append(Finding("foreign-requests", "warning", sentence, numbers))
    if whole and other / whole > limit:
        sizes = ", ".join(f"{size} ({count})" for size, count in sorted(seen.items()) if size != wanted and count)
        sentence = (
            f"{100 * other / whole:.1f} % of the {unit} were not at concurrency {wanted} and are left out: {sizes}."
        )
        severity: Severity = "alarm" if other == whole else "warning" if 2 * other > whole else "note"
        findings.append(Finding("wrong-concurrency", severity, sentence, numbers))
    return tuple(findings)


def as_asked(blocks: Sequence[CycleBlock]) -> Selected:
    """Keep the blocks in which every request asked for the very steps that it got; for sweeps within one load.

    A block counts only if each entry of its `steps_from_rid` has `wanted` equal to the block's steps and no `why`. A block
    without that field does not say, and does not count.
    """
    kept = tuple(block for block in blocks if not _mismatches(block))
    refused: Counter[tuple[str, int, str]] = Counter()
    for block in _of_lowest_rank(blocks):
        refused.update(_mismatches(block))
    cycles = sum(block.decode_cycles for block in _of_lowest_rank(kept))
    left_out = sum(block.decode_cycles for block in _of_lowest_rank(blocks)) - cycles
    findings = tuple(
        Finding(
            "steps-mismatch",
            "warning" if kept else "alarm",
            f"{count} cycles ran with {active} steps where the requests asked for {wanted} ({why}); their blocks do not count.",
            {"wanted": wanted, "active": active, "why": why, "cycles": count, "left_out_cycles": left_out},
        )
        for (wanted, active, why), count in sorted(refused.items())
    )
    return Selected(kept, cycles, left_out, findings)


def _of_lowest_rank(blocks: Iterable[CycleBlock]) -> list[CycleBlock]:
    """All ranks go through the same cycles: those of one are the cycles."""
    blocks = list(blocks)
    lowest = min((block.identity.rank for block in blocks), default=0)
    return [block for block in blocks if block.identity.rank == lowest]


def _mismatches(block: CycleBlock) -> Counter[tuple[str, int, str]]:
    wrong: Counter[tuple[str, int, str]] = Counter()
    if block.steps_from_rid is None:
        wrong["what is not recorded", block.steps, "no steps_from_rid"] = block.decode_cycles
        return wrong
    for entry in block.steps_from_rid:
        if entry.why is not None or entry.wanted != block.steps:
            wanted = "no one count" if entry.wanted is None else str(entry.wanted)
            wrong[wanted, block.steps, entry.why or "nothing said"] += entry.cycles
    return wrong
