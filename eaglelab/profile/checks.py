"""What can be wrong with a measurement while every figure looks fine. Each check returns findings; none means in order."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.findings import Finding, Number
from eaglelab.profile.pooling import Estimate
from eaglelab.profile.ranking import compare
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.select_blocks import OTHER_BATCH_LIMIT, concurrency_findings
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.summary import Setting

__all__ = [
    "BROKEN_DRAFT",
    "REPEATED_LIMIT",
    "check_accept_lengths",
    "check_cache",
    "check_decode_lines",
    "check_failures",
    "check_graph",
    "check_text",
    "probe_cost",
]

BROKEN_DRAFT = 1.05
"""Tokens per verify below which a draft is of no use: published cases of wrong draft weights or layers show 1.00 to 1.04."""

REPEATED_LIMIT = 0.5
"""Share of an output's 8-grams that occurred before, above which it is a loop and no text."""

_COST_LIMIT = 0.05


def check_accept_lengths(lengths: Mapping[SettingKey, Estimate], batch: int) -> list[Finding]:
    """Look at the accept lengths (tokens per verify, bonus included) of several settings at one concurrency, `batch`.

    About 1.00 means that no draft is right. And under one variation more steps can only accept more: a fall beyond both
    intervals (their half widths added as squares) means a truncated chain, a draft that breaks off, or another text.
    """
    findings = []
    by_variation: dict[str, list[tuple[int, Estimate]]] = {}
    for key in sorted(lengths, key=lambda key: key.simplicity):
        if key.steps is None or key.steps == 0:
            continue
        by_variation.setdefault(key.variation, []).append((key.steps, lengths[key]))
        if lengths[key].value < BROKEN_DRAFT:
            findings.append(_broken_draft(key, lengths[key], batch))
    for variation, found in by_variation.items():
        for fewer, more in itertools.pairwise(found):
            findings += _fall(variation, fewer, more, batch)
    return findings


def _broken_draft(key: SettingKey, length: Estimate, batch: int) -> Finding:
    sentence = (
        f"Accept length at {key.words} and concurrency {batch} is {length.value:.2f}: hardly any draft token is right. Look "
        "for a wrong draft model, wrong hidden-state layers or a quantised draft before looking at times."
    )
    numbers: dict[str, Number] = {**key.to_json(), "batch": batch, "accept_length": length.value}
    return Finding("broken-draft", "alarm", sentence, numbers)


def _fall(variation: str, first: tuple[int, Estimate], second: tuple[int, Estimate], batch: int) -> Iterator[Finding]:
    (fewer, low), (more, high) = first, second
    margin = math.hypot(_half(low), _half(high))
    if low.value - high.value <= margin:
        return
    sentence = (
        f"Accept length falls from {low.value:.3f} at {SettingKey(fewer).words} to {high.value:.3f} at "
        f"{SettingKey(more, variation).words} (concurrency {batch}), beyond its interval of {margin:.3f}. More steps can only "
        "accept more: the chain may be cut short (draft tokens must be steps + 1), or the two did not serve the same text."
    )
    numbers: dict[str, Number] = {
        "variation": variation,
        "batch": batch,
        "fewer_steps": fewer,
        "more_steps": more,
        "accept_length_fewer": low.value,
        "accept_length_more": high.value,
        "margin": margin,
    }
    yield Finding("accept-length-falls", "alarm", sentence, numbers)


def check_graph(setting: Setting) -> list[Finding]:
    """Cycles whose target ran without a CUDA graph, which can take twice as long."""
    if setting.graph is None or not setting.graph["eager"]:
        return []
    eager, cycles = setting.graph["eager"], sum(setting.graph.values())
    sentence = (
        f"{eager} of {cycles} cycles at {setting.steps} steps and {setting.batch_size} requests ran without a CUDA graph: "
        "this batch size or step count may not be captured (--cuda-graph-max-bs)."
    )
    numbers = {"eager_cycles": eager, "cycles": cycles, "steps": setting.steps, "batch": setting.batch_size}
    return [Finding("graph-off", "alarm" if eager == cycles else "warning", sentence, numbers)]


def check_decode_lines(
    groups: Sequence[DecodeGroup], after_idle: int, wanted: int, *, limit: float = OTHER_BATCH_LIMIT
) -> list[Finding]:
    """Look at SGLang's own `Decode batch` lines: the running requests that they name, lines after idle time, graphs.

    `groups` are those of one server start and one measurement; `after_idle` is how many lines were left out already.
    """
    running: Counter[int] = Counter()
    for group in groups:
        running[group.running_requests] += group.lines
    lines = running.total()
    findings = list(concurrency_findings(running, wanted, "lines", limit=limit))
    if after_idle:
        sentence = f"{after_idle} decode lines of the log are left out: idle time is in their throughput."
        findings.append(Finding("lines-after-idle", "note", sentence, {"lines": after_idle, "kept": lines}))
    eager = sum(group.eager for group in groups)
    if eager:
        sentence = f"{eager} of {lines} decode lines of the log say that no graph was used."
        findings.append(Finding("graph-off-log", "warning", sentence, {"eager_lines": eager, "lines": lines}))
    return findings


def check_cache(samples: Iterable[RequestSample]) -> list[Finding]:
    """Prompt tokens from the prefix cache, where it was to be empty: the time to first token is then too good."""
    hits = [sample for sample in samples if sample.cached_tokens]
    if not hits:
        return []
    cached = sum(sample.cached_tokens or 0 for sample in hits)
    prompt = sum(sample.prompt_tokens or 0 for sample in hits)
    sentence = (
        f"{cached} prompt tokens of {len(hits)} requests came from the prefix cache, which should have been flushed: "
        "their times to first token are too short."
    )
    numbers = {"cached_tokens": cached, "prompt_tokens": prompt, "requests": len(hits)}
    return [Finding("cached-tokens", "warning", sentence, numbers)]


def check_failures(samples: Sequence[RequestSample]) -> list[Finding]:
    """Requests that failed or gave nothing, with their reasons."""
    failed = Counter(sample.error or "no output" for sample in samples if not sample.answered)
    if not failed:
        return []
    reasons = "; ".join(f"{reason} ({count})" for reason, count in failed.most_common(3))
    sentence = f"{failed.total()} of {len(samples)} requests gave no figure: {reasons}."
    numbers = {"failed": failed.total(), "requests": len(samples)}
    return [Finding("failed-requests", "alarm" if failed.total() == len(samples) else "warning", sentence, numbers)]


def check_text(samples: Iterable[RequestSample], *, random_prompts: bool = False) -> list[Finding]:
    """Text that says nothing of the accept length of real use: prompts of random tokens, and outputs caught in a loop."""
    findings = []
    if random_prompts:
        sentence = (
            "The prompts are random tokens: the accept length says nothing of real text, however high or low it is."
        )
        findings.append(Finding("random-prompts", "warning", sentence))
    known = [sample.repeated for sample in samples if sample.repeated is not None]
    looping = [share for share in known if share > REPEATED_LIMIT]
    if looping:
        sentence = (
            f"{len(looping)} of {len(known)} outputs repeat themselves ({100 * max(looping):.0f} % of the 8-grams of the worst "
            "occurred before in it): a loop is easy to draft, so the accept length is too good."
        )
        numbers = {"looping": len(looping), "requests": len(known), "worst_share": max(looping)}
        findings.append(Finding("looping-output", "warning", sentence, numbers))
    return findings


def probe_cost(unmeasured: Mapping[int, float], measured: Mapping[int, float]) -> Finding:
    """What the probe costs, from interleaved rounds (tokens per second by round) without and with measuring.

    The mean of the log ratios of paired rounds, Student's t.
    """
    numbers = sorted(set(unmeasured) & set(measured))
    if len(numbers) < 2:
        return Finding("probe-cost", "note", "The probe's cost needs two rounds both with and without measuring.")
    found = compare([measured[number] for number in numbers], [unmeasured[number] for number in numbers])
    low, high = (100 * (1 - end) for end in reversed(found.ci95))
    sentence = (
        f"Measuring costs {-found.percent:.1f} % of the throughput ({low:.1f} to {high:.1f} %, {len(numbers)} rounds)."
    )
    evidence = {"cost_percent": -found.percent, "low_percent": low, "high_percent": high, "rounds": len(numbers)}
    return Finding("probe-cost", "warning" if low > 100 * _COST_LIMIT else "note", sentence, evidence)


def _half(length: Estimate) -> float:
    return 0.0 if length.ci95 is None else (length.ci95[1] - length.ci95[0]) / 2
