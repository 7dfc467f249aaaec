"""cost: what measuring costs (on against off within one load) and what the patch costs switched off (against none).

The scatter of a pair does not grow with its length (pace jumps are of all lengths), so short requests give the most for
their time. And they must be short: the probe writes what it holds when it has not been asked for 0.25 s, so after two
unmeasured requests of 192 tokens the work for the measured cycles before them was done in one that is not measured; after
two of 24 on a slow host sometimes.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from eaglelab.profile.ranking import compare
from gpu.validate.budget import Budget
from gpu.validate.client import Ask
from gpu.validate.pairs import LEAST, needed, per_quad, trimmed
from gpu.validate.part import Experiment, Part
from gpu.validate.probe import Window
from gpu.validate.results import Check, Data
from gpu.validate.setting import CANDIDATES, WORKERS, Setting
from gpu.validate.site import Server, Site

__all__ = ["experiment"]

_STEPS = 3
_QUADS = 400
"""A cost of 0.75 % takes 300 to 350 so that its interval ends before 1 %, as quads scattered so far."""
_SHORT = 20
_QUAD_S = {"v2": 0.33, "v1": 0.38}
_SMALL = 100
_THROWN = 2
"""Quads at the start that do not count."""
_ORDER = (1, 0, 0, 1)
_EVERY = 100
"""Cycles after which the probe writes by itself, its default."""
_EARLY = 2.0
"""Percent of the measured cycles that it may have written earlier, which it does in requests that are not measured."""
_TOKENS, _REQUESTS, _WARM_UP = 192, 32, 2
_MOST = 1.0
"""Percent that a switched-on or switched-off probe may take."""


def experiment() -> Experiment:
    """Pairs of equal requests, the probe on and off, for both workers; then two loads each without and with the patch."""
    parts = []
    for worker in WORKERS:
        setting = Setting(worker=worker, candidates=CANDIDATES)
        for name, quads in (("on", _QUADS), ("small", _SMALL)):
            run = partial(_run_quads, setting=setting, quads=quads)
            parts.append(Part(f"cost-{name}-{worker}", 10 + quads * _QUAD_S[worker], run, setting))
    for number in (1, 2):
        for name, patched in (("unpatched", False), ("off", True)):
            setting = Setting(patched=patched, probe=False)
            run = partial(_run_series, setting=setting, fresh=number > 1)
            parts.append(Part(f"cost-{name}-{number}", 24, run, setting, alone=number > 1))
    return Experiment("cost", parts, _checks)


def _run_quads(site: Site, budget: Budget, setting: Setting, quads: int) -> Data:
    server = site.serve(setting, budget)
    server.lead(_STEPS)
    prompts = server.truth.prompts(_THROWN + quads, _SHORT)
    for number, prompt in enumerate(prompts[:_THROWN]):
        _quad(server, f"thrown-{number}", prompt)
    mark = server.probe.mark()
    pairs = [pair for number, prompt in enumerate(prompts[_THROWN:]) for pair in _quad(server, f"{number}", prompt)]
    return {**server.about(), "pairs": pairs, **_written(server.probe.since(mark).rank(0))}


def _quad(server: Server, name: str, prompt: Sequence[int]) -> list[Data]:
    """The same request four times, on off off on: two pairs, what drifts evenly in neither of them."""
    kept = ("tokens", "verifies", "first_s", "last_s")
    answers: list[tuple[str, Data]] = []
    for place, on in enumerate(_ORDER):
        found = server.client.ask(Ask(f"k={_STEPS}/p={on}/cost-{name}-{place}", prompt, _SHORT)).to_json()
        answers.append((("off", "on")[on], {key: found[key] for key in kept}))
    return [dict(answers[:2]), dict(answers[2:])]


def _written(window: Window) -> Data:
    """Measured cycles, those of them whose times were read, and those written before so many had gathered.

    The last block is what was left when the records were asked for: no request of these had it written.
    """
    early = sum(block.decode_cycles for block in window.blocks[:-1] if block.decode_cycles < _EVERY)
    return {"cycles": window.decode_cycles, "timed": window.times.cycles, "written_early": early}


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
    checks = []
    for name, data in results.items():
        kind, _, worker = name.removeprefix("cost-").partition("-")
        if name.startswith("cost-") and kind in ("on", "small"):
            checks += _on_checks(worker, data)
    loads = {
        name: [results[part] for number in (1, 2) if (part := f"cost-{name}-{number}") in results]
        for name in ("unpatched", "off")
    }
    return checks + ([_off_check(loads["off"], loads["unpatched"])] if all(loads.values()) else [])


def _on_checks(worker: str, data: Data) -> list[Check]:
    on, off = ([pair[name] for pair in data["pairs"]] for name in ("on", "off"))
    spent = sum(map(_seconds, on)) - sum(map(_seconds, off))
    each = f"{len(on)} pairs; {1e6 * spent / sum(answer['verifies'] for answer in on):+.0f} us a cycle"
    rates = _rates(on), _rates(off)
    checks = [_check(f"{worker}: decode rate, measured against unmeasured", *rates, each, data)]
    quads = per_quad([a / b for a, b in zip(*rates, strict=True)])
    if len(quads) >= LEAST:
        checks.append(_far_end(worker, quads, data))
    if "written_early" in data:
        share = 100 * data["written_early"] / data["cycles"] if data["cycles"] else 100.0
        shown = f"{share:.1f} % of {data['cycles']} cycles, {data['timed']} of them timed"
        goal = f"at most {_EARLY:g} %"
        met = None if data["simulated"] else share <= _EARLY
        checks.append(Check(f"{worker}: measured cycles that the probe wrote in other requests", goal, shown, met))
    return checks


def _far_end(worker: str, quads: Sequence[float], data: Data) -> Check:
    found = trimmed(quads)
    shown = f"{found.percent:+.2f} % ({found.low:+.2f} to {found.high:+.2f}; {found.count} quads)"
    wanted = needed(found, -_MOST)
    if found.low < -_MOST and wanted is not None:
        shown += f"; {wanted} quads like these would do"
    met = None if data["simulated"] else found.low >= -_MOST
    figure = f"{worker}: the same without the furthest fifth of quads at each end, its whole 95 % interval"
    return Check(figure, f"at most {_MOST:g} % slower", shown, met)


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
