"""The lines a release of SGLang logs, word for word. Pure, except `configure`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from .args import Release, ServerArgs

__all__ = ["DecodeStats", "PrefillStats", "configure", "decode_line", "load_lines", "prefill_line"]


@dataclass(frozen=True)
class DecodeStats:
    """One interval of decode cycles. Throughput in tokens a second of simulated time."""

    running: int
    queued: int
    kv_tokens: int
    kv_usage: float
    throughput: float
    accepted: int = 0
    verifies: int = 0
    draft_tokens: int = 0


@dataclass(frozen=True)
class PrefillStats:
    """One prefill batch."""

    sequences: int
    tokens: int
    kv_usage: float
    running: int
    queued: int
    throughput: float


def _name(kind: str, release: Release) -> str:
    return f"{kind} batch, " if release >= (0, 5, 6) else f"{kind} batch. "


def _accepted(stats: DecodeStats, release: Release) -> str:
    if not stats.verifies:
        return ""
    text = f"accept len: {stats.accepted / stats.verifies:.2f}, "
    if release < (0, 5, 4):
        return text
    if release >= (0, 5, 12):
        rate = (stats.accepted - stats.verifies) / (stats.verifies * max(1, stats.draft_tokens - 1))
    else:
        rate = stats.accepted / (stats.verifies * stats.draft_tokens)
    return f"{text}accept rate: {rate:.2f}, "


def decode_line(stats: DecodeStats, release: Release) -> str:
    """The `Decode batch` line. Its accept rate counts the bonus token in both parts before 0.5.12, in neither after."""
    return (
        f"{_name('Decode', release)}#running-req: {stats.running}, #token: {stats.kv_tokens}, "
        f"token usage: {stats.kv_usage:.2f}, {_accepted(stats, release)}"
        f"cuda graph: True, gen throughput (token/s): {stats.throughput:.2f}, #queue-req: {stats.queued}"
        + ("" if release >= (0, 5, 9) else ", ")
    )


def prefill_line(stats: PrefillStats, release: Release) -> str:
    text = (
        f"{_name('Prefill', release)}#new-seq: {stats.sequences}, #new-token: {stats.tokens}, #cached-token: 0, "
        f"token usage: {stats.kv_usage:.2f}, #running-req: {stats.running}, #queue-req: {stats.queued}, "
    )
    if release >= (0, 5, 12):
        return f"{text}#pending-token: 0, cuda graph: False, input throughput (token/s): {stats.throughput:.2f}"
    return f"{text}input throughput (token/s): {stats.throughput:.2f}, cuda graph: False"


def _graph(name: str, begin: bool, release: Release, elapsed: float, free: float) -> str:
    """One line of a graph capture. `name`: "" for the target's, "draft ", "draft extend "."""
    if release >= (0, 5, 14):
        kind = {"": "target verify", "draft ": "draft decode", "draft extend ": "draft extend"}[name]
        if begin:
            return f"Capture {kind} CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem={free:.2f} GB"
        return f"Capture {kind} CUDA graph end. elapsed={elapsed:.2f} s, mem usage=0.25 GB, avail mem={free:.2f} GB."
    if begin:
        return f"Capture {name}cuda graph begin. This can take up to several minutes. avail mem={free:.2f} GB"
    return f"Capture {name}cuda graph end. Time elapsed: {elapsed:.2f} s. mem usage=0.25 GB. avail mem={free:.2f} GB."


def load_lines(
    args: ServerArgs, release: Release, seconds: float, kv_tokens: int, context: int, weights_gib: float
) -> Iterator[tuple[float, str]]:
    """What a scheduler logs while it loads, each with the share of the load (0..1) at which it comes."""
    free = 140.0
    yield 0.0, "Init torch distributed begin."
    yield 0.02, f"Init torch distributed ends. elapsed={0.02 * seconds:.2f} s, mem usage=0.41 GB"
    yield 0.03, f"Load weight begin. avail mem={free:.2f} GB"
    for shard in range(1, 5):
        share = 0.03 + 0.62 * shard / 4
        yield share, f"Loading safetensors checkpoint shards: {25 * shard:3d}% Completed | {shard}/4"
    free -= weights_gib
    yield (
        0.66,
        f"Load weight end. elapsed={0.63 * seconds:.2f} s, type=LlamaForCausalLM, dtype=torch.bfloat16, "
        f"avail mem={free:.2f} GB, mem usage={weights_gib:.2f} GB.",
    )
    free -= 24
    yield 0.68, f"KV Cache is allocated. #tokens: {kv_tokens}, K size: 12.00 GB, V size: 12.00 GB"
    yield 0.69, f"Memory pool end. avail mem={free:.2f} GB"
    yield 0.70, _graph("", True, release, 0, free)
    yield 0.86, _graph("", False, release, 0.16 * seconds, free - 0.25)
    if args.speculative_algorithm:
        yield 0.87, f"Load weight begin. avail mem={free:.2f} GB"
        yield (
            0.90,
            f"Load weight end. elapsed={0.03 * seconds:.2f} s, type=LlamaForCausalLMEagle3, dtype=torch.bfloat16, "
            f"avail mem={free - 1.5:.2f} GB, mem usage=1.50 GB.",
        )
        if (args.speculative_num_steps or 0) > 1:
            yield 0.91, _graph("draft ", True, release, 0, free - 1.5)
            yield 0.95, _graph("draft ", False, release, 0.04 * seconds, free - 1.75)
        yield 0.96, _graph("draft extend ", True, release, 0, free - 1.75)
        yield 0.99, _graph("draft extend ", False, release, 0.03 * seconds, free - 2.0)
    yield (
        1.0,
        f"max_total_num_tokens={kv_tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests={args.max_running_requests}, context_len={context}, available_gpu_mem={free - 2:.2f} GB",
    )


def configure(args: ServerArgs, prefix: str = "") -> None:
    """Log to stderr in SGLang's format; `prefix` is ` TP0` and the like."""
    logging.basicConfig(
        level=args.log_level.upper(),
        format=f"[%(asctime)s{prefix}] %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )
