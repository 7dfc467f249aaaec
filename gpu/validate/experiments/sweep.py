"""sweep: all step counts in one load against a load for each, without our lines in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from eaglelab.profile.ranking import compare
from eaglelab.profile.stats import describe
from gpu.validate.budget import Budget
from gpu.validate.client import Ask
from gpu.validate.experiments.rounds import OneLoad
from gpu.validate.part import Experiment, Part
from gpu.validate.results import Check, Data
from gpu.validate.setting import CANDIDATES, WORKERS, Setting
from gpu.validate.site import Site

__all__ = ["ROUNDS", "TOKENS", "accept_length", "all_rates", "compared", "experiment", "rates"]

ROUNDS, TOKENS = 12, 256
_WARM_UP = 2
_MOST = 3.0
"""Percent by which the two ways may differ."""


def experiment() -> Experiment:
    """For both workers; the separate loads in the order of what they tell."""
    parts = []
    for worker in WORKERS:
        setting = Setting(worker=worker, candidates=CANDIDATES)
        parts.append(Part(f"sweep-one-{worker}", 75, partial(_run_one, setting=setting), setting))
    for worker in WORKERS:
        for steps in (3, 8, 1, 5, 2):
            alone = Setting(worker=worker, steps=steps, patched=False, probe=False)
            parts.append(Part(f"sweep-k{steps}-{worker}", 10, partial(_run_alone, setting=alone), alone))
    return Experiment("sweep", parts, _checks)


def _run_one(site: Site, budget: Budget, setting: Setting) -> Data:
    one = OneLoad(site.serve(setting, budget), TOKENS)
    one.begin()
    for number, prompt in enumerate(one.server.truth.prompts(ROUNDS, TOKENS)):
        for _ in one.turns(number, prompt):
            pass
    return {**one.server.about(), **one.data()}


def _run_alone(site: Site, budget: Budget, setting: Setting) -> Data:
    server = site.serve(setting, budget)
    prompts = server.truth.prompts(ROUNDS, TOKENS)
    for number, prompt in enumerate(prompts[:_WARM_UP]):
        server.client.ask(Ask(f"warm-up-{number}", prompt, TOKENS))
    answers = [server.client.ask(Ask(f"sweep-{number}", prompt, TOKENS)) for number, prompt in enumerate(prompts)]
    return {**server.about(), "steps": {str(setting.steps): [answer.to_json() for answer in answers]}}


def rates(answers: Sequence[Data]) -> list[float]:
    """Tokens per second of each request after its first token."""
    return [(answer["tokens"] - 1) / (answer["last_s"] - answer["first_s"]) for answer in answers]


def accept_length(answers: Sequence[Data]) -> float:
    """Tokens a verify, bonus included, over all requests, as their clients saw them."""
    return float(sum(answer["tokens"] - 1 for answer in answers) / sum(answer["verifies"] for answer in answers))


def _checks(results: Mapping[str, Data]) -> list[Check]:
    checks = []
    for worker in WORKERS:
        one = results.get(f"sweep-one-{worker}")
        if one is None:
            continue
        loads = [one["load_s"]]
        for steps in CANDIDATES:
            separate = results.get(f"sweep-k{steps}-{worker}")
            if separate is None:
                continue
            loads.append(separate["load_s"])
            checks += compared(f"{worker}, K = {steps}", one["steps"][str(steps)], separate["steps"][str(steps)])
        shown = ", ".join("up already" if load is None else f"{load:.0f}" for load in loads)
        checks.append(Check(f"{worker}: loads in seconds, the one for all first", "-", shown, None))
        checks.append(Check(f"{worker}: tok/s in one load", "-", all_rates(one["steps"]), None))
    return checks


def all_rates(steps: Mapping[str, Sequence[Data]]) -> str:
    """Mean tok/s with the half-width of its interval, and accept length, by step count."""
    found = []
    for count, answers in steps.items():
        stats = describe(rates(answers))
        if stats is not None:
            found.append(f"K = {count}: {stats.mean:.1f} ± {stats.half_width or 0:.1f} ({accept_length(answers):.3f})")
    return "; ".join(found)


def compared(where: str, one: Sequence[Data], separate: Sequence[Data]) -> list[Check]:
    """Equal requests of the one load and of a load of their own."""
    lengths = accept_length(one), accept_length(separate)
    found = compare(rates(one), rates(separate))
    low, high = (100 * (end - 1) for end in found.ci95)
    shown = f"{found.percent:+.2f} % ({low:+.2f} to {high:+.2f})"
    return [
        Check(
            f"{where}: accept length in one load and in its own",
            "equal",
            f"{lengths[0]:.4f} and {lengths[1]:.4f}",
            lengths[0] == lengths[1],
        ),
        Check(
            f"{where}: tok/s in one load against its own, unpatched", f"{_MOST:g} %", shown, abs(found.percent) <= _MOST
        ),
    ]
