"""truth: the probe's counts against the computed ones, in every bin, for five step counts in one load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from gpu.truth import Truth, decode, histograms, seen_by_client, thrown_away
from gpu.validate.budget import Budget
from gpu.validate.client import Answer, Ask
from gpu.validate.part import Experiment, Part
from gpu.validate.probe import Window
from gpu.validate.results import Check, Data
from gpu.validate.setting import CANDIDATES, WORKERS, Setting
from gpu.validate.site import Server, Site

__all__ = ["compare", "experiment", "measure", "truth_checks", "worst_z"]

_EACH = 500
"""Tokens of a request."""
_MOST_Z = 3.0
_ACCEPTANCES = (0.6, 0.8)


def experiment(tokens: int) -> Experiment:
    """v2 and v1, P = 0.6 and 0.8, one request at a time and eight; at least `tokens` tokens for each step count."""
    parts = []
    for worker, acceptance in product(WORKERS, _ACCEPTANCES):
        setting = Setting(worker=worker, acceptance=acceptance, candidates=CANDIDATES)
        for batch in (1, 8):
            run = partial(_run, setting=setting, batch=batch, tokens=tokens)
            seconds = (125 if batch == 1 else 35) * tokens / 10_000
            parts.append(Part(f"truth-{worker}-p{acceptance}-b{batch}", seconds, run, setting))
    return Experiment("truth", parts, lambda results: truth_checks("truth-", results))


def _run(site: Site, budget: Budget, setting: Setting, batch: int, tokens: int) -> Data:
    server = site.serve(setting, budget)
    requests = math.ceil(tokens / (_EACH * batch)) * batch
    found = {str(steps): measure(server, steps, batch, requests, _EACH) for steps in setting.candidates}
    return {**server.about(), "acceptance": setting.acceptance, "batch": batch, "steps": found}


def measure(server: Server, steps: int, batch: int, requests: int, tokens: int) -> Data:
    """Sends `requests` requests of `tokens` tokens with `steps`, `batch` at a time, and compares, for each rank."""
    prompts = server.truth.prompts(requests, tokens)
    asks = [Ask(f"k={steps}/truth-b{batch}-{number}", prompt, tokens) for number, prompt in enumerate(prompts)]
    mark = server.probe.mark()
    server.lead(steps)
    groups = [asks[first : first + batch] for first in range(0, requests, batch)]
    answers = [answer for group in groups for answer in server.client.together(group)]
    window = server.probe.since(mark)
    late, truth = server.setting.late, server.truth
    return {
        "requests": requests,
        "tokens_each": tokens,
        "clients": clients(truth, asks, answers, steps, late=late),
        "ranks": {str(rank): compare(truth, asks, steps, window.rank(rank), late=late) for rank in window.ranks},
    }


def clients(truth: Truth, asks: Sequence[Ask], answers: Sequence[Answer], steps: int, *, late: bool) -> Data:
    """How many answers have the computed tokens, and how many the computed number of cycles."""
    ids = verifies = 0
    for ask, answer in zip(asks, answers, strict=True):
        ids += list(answer.ids) == truth.output(ask.prompt, ask.tokens)
        computed = seen_by_client(decode(truth, ask.prompt, ask.tokens, steps, late=late), late=late)
        verifies += answer.verifies == len(computed)
    return {
        "ids_as_computed": ids,
        "verifies_as_computed": verifies,
        "tokens": sum(len(answer.ids) for answer in answers),
        "decode_s": round(sum(answer.last_s - answer.first_s for answer in answers), 4),
    }


def compare(truth: Truth, asks: Sequence[Ask], steps: int, window: Window, *, late: bool) -> Data:
    """What one rank counted beside what had to come."""
    cycles, thrown = [], 0
    for ask in asks:
        made = decode(truth, ask.prompt, ask.tokens, steps, late=late)
        cycles += made
        thrown += thrown_away(made, ask.tokens)
    received = sum(ask.tokens for ask in asks)
    times = window.times
    return {
        "computed": {str(count): bins for count, bins in histograms(cycles).items()},
        "counted": {str(count): bins for count, bins in window.histograms.items()},
        "unknown": window.unknown,
        "decode_cycles": window.decode_cycles,
        "timed_cycles": times.cycles,
        "tokens_computed": received - len(asks) + thrown,
        "tokens_counted": window.tokens,
        "thrown_away": thrown,
        "event_ms": times.means(times.event_ms),
        "host_ms": times.means(times.host_ms),
    }


def worst_z(counted: Sequence[int], acceptance: float) -> tuple[float, int]:
    """The S_k furthest from P^k, in standard errors of a share over that many independent cycles, and its k."""
    total = sum(counted)
    found = []
    for k in range(1, len(counted)):
        expected = acceptance**k
        error = math.sqrt(expected * (1 - expected) / total)
        found.append(((sum(counted[k:]) / total - expected) / error, k))
    return max(found, key=lambda each: abs(each[0]))


def truth_checks(prefix: str, results: Mapping[str, Data]) -> list[Check]:
    """One part after the other, all its step counts and ranks together."""
    return [check for name, data in results.items() if name.startswith(prefix) for check in _part_checks(name, data)]


def _part_checks(name: str, data: Data) -> list[Check]:
    runs = data["steps"]
    ranks: list[tuple[str, Mapping[str, Any]]] = [
        (k, rank) for k, run in runs.items() for rank in run["ranks"].values()
    ]
    bins = [(k, rank["computed"][k], rank["counted"].get(k, [])) for k, rank in ranks]
    equal = sum(a == b for _, left, right in bins for a, b in zip(left, right, strict=False))
    wanted = sum(len(left) for _, left, _ in bins)
    exact = equal == wanted and all(rank["computed"].keys() == rank["counted"].keys() for _, rank in ranks)
    unknown = sum(rank["unknown"] for _, rank in ranks)
    cycles = sum(sum(left) for _, left, _ in bins)
    requests = sum(run["requests"] for run in runs.values())
    ids = sum(run["clients"]["ids_as_computed"] for run in runs.values())
    verifies = sum(run["clients"]["verifies_as_computed"] for run in runs.values())
    off = sum(abs(rank["tokens_counted"] - rank["tokens_computed"]) for _, rank in ranks)
    tokens = sum(rank["tokens_counted"] for _, rank in ranks)
    least = min(run["clients"]["tokens"] for run in runs.values())
    worst = [(worst_z(right, data["acceptance"]), k) for k, _, right in bins if sum(right)]
    z, at = max(worst, key=lambda each: abs(each[0][0]), default=((math.inf, 0), "-"))
    where = name.split("-", 1)[1]
    return [
        Check(
            f"{where}: bins of correct_hist as computed, K = {', '.join(runs)}",
            "all, none unknown",
            f"{equal} of {wanted} ({cycles} request-cycles, {unknown} unknown; at least {least} tokens a K)",
            exact and unknown == 0,
        ),
        Check(f"{where}: answers with the computed tokens", "all", f"{ids} of {requests}", ids == requests),
        Check(f"{where}: answers with the computed verifies", "all", f"{verifies} of {requests}", verifies == requests),
        Check(f"{where}: tokens counted, beside the clients'", "equal", f"{tokens}, off by {off}", off == 0),
        Check(
            f"{where}: S_k against P^k",
            "3 standard errors",
            f"worst {z[0]:+.2f} (K = {at}, k = {z[1]})",
            abs(z[0]) <= _MOST_Z,
        ),
    ]
