"""Whether one load of the server can serve several step counts, and what it then has to be started with.

SGLang 0.5.11 and later capture the graphs of several step counts at start (`--speculative-adaptive`); the probe then
lets each request choose. Read in the sources of every release from 0.5.11 to 0.5.23 (`adaptive_unsupported_reason`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from eaglelab.host import FlagValue, Speculative

__all__ = ["ADAPTIVE_FLAGS", "adaptive_config", "release", "why_not_one_load"]

ADAPTIVE_FLAGS = ("speculative-adaptive", "speculative-adaptive-config")

_FIRST = (0, 5, 11)
_KEYED_BY_BATCH = (0, 5, 13)

_UNSUPPORTED = (
    "enable-dp-attention",
    "enable-multi-layer-eagle",
    "enable-two-batch-overlap",
    "enable-pdmux",
)
"""With one of these SGLang refuses `--speculative-adaptive` with a warning and stays at one step count."""

_NEVER = 1_000_000_000
"""Batches before SGLang's own policy would move anything: in case it is asked before the probe has taken its place."""


def release(version: str) -> tuple[int, int, int] | None:
    """The first three numbers of a version; None where it has none (`unknown`, `main`). A pre-release counts as its release."""
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def why_not_one_load(version: str, speculative: Speculative, flags: Mapping[str, FlagValue]) -> str | None:
    """Why every step count needs a load of its own there; None where one load serves them all.

    `flags` are all that the server would be started with, the inventory's and the setting's.
    """
    number = release(version)
    if number is None:
        return f"the release of SGLang there is not known ({version})"
    if number < _FIRST:
        return f"SGLang {version} holds one step count a load (0.5.11 and later can hold several)"
    if number == _FIRST and not flags.get("disable-overlap-schedule"):
        return "in SGLang 0.5.11 only the worker without overlap holds several step counts (disable-overlap-schedule)"
    if speculative.algorithm not in ("EAGLE", "EAGLE3"):
        return f"SGLang holds several step counts for EAGLE and EAGLE3 only, not for {speculative.algorithm}"
    if speculative.eagle_topk != 1:
        return f"SGLang holds several step counts with a top-k of 1 only, not of {speculative.eagle_topk}"
    for flag in _UNSUPPORTED:
        if flags.get(flag):
            return f"SGLang holds one step count a load with --{flag}"
    return None


def adaptive_config(version: str, steps: Sequence[int]) -> dict[str, Any]:
    """What `--speculative-adaptive-config` holds so that the graphs of all of `steps` are captured.

    Flat before 0.5.13, by batch size from then on; there one slot serves every batch size.
    """
    config = {"candidate_steps": sorted(steps), "warmup_batches": _NEVER}
    number = release(version)
    return config if number is None or number < _KEYED_BY_BATCH else {"1": config}
