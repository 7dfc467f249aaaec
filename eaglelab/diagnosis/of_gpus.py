"""Facts from what nvidia-smi says of the GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eaglelab.diagnosis.facts import Sheet

__all__ = ["put_clocks", "used_by"]

Gpu = Mapping[str, Any]

_IDLE = 0x1
_POWER = 0x4
_HELD_BACK = {0x8: "a hardware slowdown", 0x20: "heat (software)", 0x40: "heat (hardware)", 0x80: "the power brake"}
"""Bits of clocks_throttle_reasons.active that mean a machine slower than it should be (nvml.h)."""


def used_by(gpus: Sequence[Gpu], world: int, visible: str | None) -> list[Gpu]:
    """The GPUs that a server of `world` ranks takes: the first ones of CUDA_VISIBLE_DEVICES, where that gives numbers."""
    order = [str(gpu.get("index", number)) for number, gpu in enumerate(gpus)]
    if visible and re.fullmatch(r"\d+(,\d+)*", visible):
        order = visible.split(",")
    wanted = order[:world]
    return [gpu for number, gpu in enumerate(gpus) if str(gpu.get("index", number)) in wanted]


def put_clocks(sheet: Sheet, before: Sequence[Gpu], after: Sequence[Gpu], source: str) -> None:
    """Clocks and what holds them back, of GPUs that a server uses. The clocks of an idle GPU say nothing."""
    reasons = [found for gpu in (*before, *after) if (found := _reasons(gpu)) is not None]
    if reasons:
        held = sorted({words for bits in reasons for bit, words in _HELD_BACK.items() if bits & bit})
        sheet.put("throttled", bool(held), source)
        sheet.put("power_capped", any(bits & _POWER for bits in reasons), source)
        if held:
            sheet.put("throttle_reasons", tuple(held), source)
    first, last = _clocks(before), _clocks(after)
    if len(first) == len(before) and len(last) == len(after) and first and last:
        sheet.put("sm_clock_before", min(first), f"{source}, slowest GPU")
        sheet.put("sm_clock_after", min(last), f"{source}, slowest GPU")
        sheet.put("sm_clock_apart", 1 - min(last) / max(last), source)


def _reasons(gpu: Gpu) -> int | None:
    text = str(gpu.get("clocks_throttle_reasons.active", ""))
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text) else None


def _clocks(gpus: Iterable[Gpu]) -> list[float]:
    """SM clocks (MHz) of those that are known to be at work."""
    found = []
    for gpu in gpus:
        bits, clock = _reasons(gpu), str(gpu.get("clocks.sm", ""))
        if bits is not None and not bits & _IDLE and re.fullmatch(r"\d+(\.\d+)?", clock) and float(clock) > 0:
            found.append(float(clock))
    return found
