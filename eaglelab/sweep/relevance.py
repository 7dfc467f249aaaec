"""Which all-reduce runs in a decode cycle, and so whether NCCL's settings can change anything.

Read in SGLang 0.4.3 to 0.5.23 (`GroupCoordinator.all_reduce`, `CustomAllreduce`): its own all-reduce takes messages of up
to 8 MiB among 2, 4, 6 or 8 GPUs of one machine, where all are joined by NVLink (2 need only reach each other's memory).
What it does not take goes to NCCL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eaglelab.host import FlagValue

__all__ = ["Relevance", "all_reduce_bytes", "fully_linked", "is_nccl_setting", "nccl_relevance"]

_LARGEST = 8192 * 1024
_SIZES = (2, 4, 6, 8)

_OTHER_WAYS = ("enable-mscclpp", "enable-torch-symm-mem", "enable-symm-mem", "enable-flashinfer-allreduce-fusion")
"""Flags that bring in yet another all-reduce: what then reaches NCCL is not worked out here."""


@dataclass(frozen=True)
class Relevance:
    """`matters`: whether NCCL settings can change a decode cycle; None where it cannot be told. `why` is one sentence."""

    matters: bool | None
    why: str


def is_nccl_setting(name: str) -> bool:
    """Whether an environment variable or flag speaks to NCCL only."""
    return name.startswith("NCCL_") or name in ("enable-nccl-nvls",)


def all_reduce_bytes(batch_size: int, steps: int | None, hidden_size: int, bytes_per_value: int = 2) -> int:
    """Bytes of one all-reduce in verify: a hidden state for each of the K+1 tokens of each request (baseline: one)."""
    return batch_size * ((steps or 0) + 1) * hidden_size * bytes_per_value


def fully_linked(topology: str) -> bool | None:
    """From `nvidia-smi topo -m`: whether every pair of GPUs is joined by NVLink. None where that cannot be read."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", topology)
    rows = [line.split() for line in plain.splitlines() if re.match(r"GPU\d+\s", line)]
    if not rows:
        return None
    cells = [row[1 : 1 + len(rows)] for row in rows]
    if any(len(row) != len(rows) for row in cells):
        return None
    return all(cell.startswith("NV") for at, row in enumerate(cells) for to, cell in enumerate(row) if at != to)


def nccl_relevance(
    *,
    world: int,
    nodes: int,
    linked: bool | None,
    flags: Mapping[str, FlagValue],
    message_bytes: Iterable[int],
) -> Relevance:
    """Whether NCCL carries any all-reduce of decode. `world`: ranks in all; `linked`: as `fully_linked` says.

    `message_bytes`: as `all_reduce_bytes`; none where the model's size is not known.
    """
    largest = max(message_bytes, default=None)
    if world == 1:
        return Relevance(False, "on one GPU there is no all-reduce")
    if nodes > 1:
        return Relevance(True, "the ranks are on several machines: NCCL carries every all-reduce")
    if flags.get("disable-custom-all-reduce"):
        return Relevance(True, "disable-custom-all-reduce: NCCL carries every all-reduce")
    if world not in _SIZES:
        return Relevance(True, f"SGLang's own all-reduce is for 2, 4, 6 or 8 GPUs, not for {world}: NCCL carries it")
    if any(flags.get(flag) for flag in _OTHER_WAYS):
        chosen = next(flag for flag in _OTHER_WAYS if flags.get(flag))
        return Relevance(None, f"with {chosen} it cannot be told which all-reduce runs")
    if largest is None:
        return Relevance(None, "it cannot be told how large an all-reduce is: the model's hidden size is not known")
    if largest > _LARGEST:
        return Relevance(True, f"the largest all-reduce has {_mib(largest)} MiB, and above 8 MiB NCCL carries it")
    if linked is None:
        return Relevance(None, "it cannot be told whether the GPUs are joined by NVLink (nvidia-smi topo -m)")
    if not linked and world > 2:
        return Relevance(True, "more than two GPUs without NVLink between all: NCCL carries every all-reduce")
    if not linked:
        return Relevance(None, "two GPUs without NVLink: it depends on whether they reach each other's memory")
    why = f"SGLang's own all-reduce carries it: {world} GPUs, {_mib(largest)} MiB at most (its limit is 8)"
    return Relevance(False, why)


def _mib(size: int) -> str:
    return f"{size / 2**20:.3g}"
