"""cost: what measuring costs (on against off within one load) and what the patch costs switched off (against none)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from eaglelab.profile.ranking import compare
from gpu.validate.budget import Budget
from gpu.validate.client import Answer, Ask
from gpu.validate.part import Experiment, Part
from gpu.validate.results import Check, Data
from gpu.validate.setting import CANDIDATES, WORKERS, Setting
from gpu.validate.site import Site

__all__ = ["experiment"]

_PAIRS, _TOKENS, _STEPS = 80, 192, 3
_REQUESTS, _WARM_UP = 32, 2
_MOST = 1.0
"""Percent that a switched-on or switched-off probe may take."""


def experiment() -> Experiment:
    """Pairs of equal requests, the probe on and off, for both workers; then two loads each without and with the patch."""
    parts = []
    for worker in WORKERS:
        setting = Setting(worker=worker, candidates=CANDIDATES)
        parts.append(Part(f"cost-on-{worker}", 80, partial(_run_pairs, setting=setting), setting))
    for number in (1, 2):
        for name, patched in (("unpatched", False), ("off", True)):
            setting = Setting(patched=patched, probe=False)
            run = partial(_run_series, setting=setting, fresh=number > 1)
            parts.append(Part(f"cost-{name}-{number}", 24, run, setting, alone=number > 1))
    return Experiment("cost", parts, _checks)


def _run_pairs(site: Site, budget: Budget, setting: Setting) -> Data:
    server = site.serve(setting, budget)
    server.lead(_STEPS)
    pairs: list[dict[str, Answer]] = []
    for number, prompt in enumerate(server.truth.prompts(_PAIRS, _TOKENS)):
        order = (0, 1) if number % 2 else (1, 0)  # each first as often as second
        asks = [Ask(f"k={_STEPS}/p={on}/cost-{number}", prompt, _TOKENS) for on in order]
        pairs.append({("off", "on")[on]: server.client.ask(ask) for on, ask in zip(order, asks, strict=True)})
    return {**server.about(), "pairs": [{name: answer.to_json() for name, answer in pair.items()} for pair in pairs]}


def _run_series(site: Site, budget: Budget, setting: Setting, fresh: bool) -> Data:
    if fresh:
        site.rollback(budget)
    server = site.serve(setting, budget)
    answers = [
        server.client.ask(Ask(f"cost-{number}", prompt, _TOKENS))
        for number, prompt in enumerate(server.truth.prompts(_WARM_UP + _REQUESTS, _TOKENS))
    ]
    return {**server.about(), "answers": [answer.to_json() for answer in answers[_WARM_UP:]]}


def _seconds(answer: Data) -> float:
    """From the first token to the last."""
    return float(answer["last_s"] - answer["first_s"])


def _rates(answers: Sequence[Data]) -> list[float]:
    return [(answer["tokens"] - 1) / _seconds(answer) for answer in answers]


def _checks(results: Mapping[str, Data]) -> list[Check]:
    checks = [_on_check(worker, results[part]) for worker in WORKERS if (part := f"cost-on-{worker}") in results]
    loads = {
        name: [results[part] for number in (1, 2) if (part := f"cost-{name}-{number}") in results]
        for name in ("unpatched", "off")
    }
    return checks + ([_off_check(loads["off"], loads["unpatched"])] if all(loads.values()) else [])


def _on_check(worker: str, data: Data) -> Check:
    on, off = ([pair[name] for pair in data["pairs"]] for name in ("on", "off"))
    spent = sum(map(_seconds, on)) - sum(map(_seconds, off))
    each = f"{len(on)} pairs; {1e6 * spent / sum(answer['verifies'] for answer in on):+.0f} us a cycle"
    return _check(f"{worker}: decode rate, measured against unmeasured", _rates(on), _rates(off), each, data)


def _off_check(off: Sequence[Data], unpatched: Sequence[Data]) -> Check:
    """Equal requests of loads in turn; the loads' own means show what lies between two loads of one kind."""
    both = list(zip(off, unpatched, strict=False))
    pooled = [[rate for pair in both for rate in _rates(pair[side]["answers"])] for side in (0, 1)]
    means = [
        ", ".join(f"{statistics.fmean(_rates(load['answers'])):.1f}" for load in each) for each in (unpatched, off)
    ]
    each = f"equal requests; loads: unpatched {means[0]}, off {means[1]} tok/s"
    return _check("v2: decode rate, patched and off against unpatched", pooled[0], pooled[1], each, off[0])


def _check(figure: str, rates: Sequence[float], reference: Sequence[float], about: str, data: Data) -> Check:
    """On the simulated GPU the probe's CPU time is real and the clock is not: there the figure has no goal."""
    found = compare(rates, reference)
    low, high = (100 * (end - 1) for end in found.ci95)
    shown = f"{found.percent:+.2f} % ({low:+.2f} to {high:+.2f}; {about})"
    met = None if data["simulated"] else found.percent >= -_MOST
    return Check(figure, f"at most {_MOST:g} % slower", shown, met)
