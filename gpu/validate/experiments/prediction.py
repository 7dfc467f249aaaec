"""prediction: tok/s at every step count out of the phases and the survival at two of them, against what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from gpu.validate.budget import Budget
from gpu.validate.client import Ask
from gpu.validate.experiments.sweep import ROUNDS, TOKENS, rates
from gpu.validate.part import Experiment, Part
from gpu.validate.results import Check, Data
from gpu.validate.setting import CANDIDATES, WORKERS, Setting
from gpu.validate.site import Site

__all__ = ["experiment", "predict"]

_LOW, _HIGH = 2, 8
"""Not 1: without a second draft forward it is off the line of the others."""
_MOST = 5.0
_TIE = 1.0


def experiment() -> Experiment:
    """The two step counts measured with the sweep's own prompts, so that their luck is in both figures."""
    parts = []
    for worker in WORKERS:
        setting = Setting(worker=worker, candidates=CANDIDATES)
        parts.append(Part(f"prediction-{worker}", 20, partial(_run, setting=setting), setting))
    return Experiment("prediction", parts, _checks)


def _run(site: Site, budget: Budget, setting: Setting) -> Data:
    server = site.serve(setting, budget)
    found = {}
    for steps in (_LOW, _HIGH):
        mark = server.probe.mark()
        server.lead(steps)
        for number, prompt in enumerate(server.truth.prompts(ROUNDS, TOKENS)):
            server.client.ask(Ask(f"k={steps}/calibrate-{number}", prompt, TOKENS))
        window = server.probe.since(mark).rank(0).steps(steps)
        times = window.times
        found[str(steps)] = {"event_ms": times.means(times.event_ms), "correct_hist": window.histograms[steps]}
    return {**server.about(), "steps": found}


def predict(low: Data, high: Data, steps: Sequence[int]) -> dict[int, float]:
    """tok/s = 1000 AL(K) / T(K) for one request at a time.

    AL(K) = 1 + S_1 + ... + S_K, with the survival of the higher step count; T(K), the cycle's ms, on the line through both.
    """
    bins = high["correct_hist"]
    survival = [sum(bins[k:]) / sum(bins) for k in range(1, len(bins))]
    totals = low["event_ms"]["total"], high["event_ms"]["total"]
    slope = (totals[1] - totals[0]) / (_HIGH - _LOW)
    return {k: 1000 * (1 + sum(survival[:k])) / (totals[0] + slope * (k - _LOW)) for k in steps}


def _checks(results: Mapping[str, Data]) -> list[Check]:
    checks = []
    for worker in WORKERS:
        data, sweep = results.get(f"prediction-{worker}"), results.get(f"sweep-one-{worker}")
        if data is None or sweep is None:
            continue
        measured = {int(steps): statistics.fmean(rates(answers)) for steps, answers in sweep["steps"].items()}
        predicted = predict(data["steps"][str(_LOW)], data["steps"][str(_HIGH)], list(measured))
        off = {steps: 100 * (predicted[steps] / rate - 1) for steps, rate in measured.items()}
        shown = ", ".join(f"K = {k}: {predicted[k]:.1f} for {measured[k]:.1f} ({off[k]:+.1f} %)" for k in measured)
        best, chosen = max(measured, key=measured.__getitem__), max(predicted, key=predicted.__getitem__)
        loss = 100 * (1 - measured[chosen] / measured[best])
        checks += [
            Check(
                f"{worker}: tok/s predicted from K = {_LOW} and {_HIGH}",
                f"{_MOST:g} %",
                shown,
                max(map(abs, off.values())) <= _MOST,
            ),
            Check(
                f"{worker}: best step count predicted",
                f"within {_TIE:g} % of the best",
                f"{chosen} for {best} ({loss:.2f} % slower)",
                loss <= _TIE,
            ),
        ]
    return checks
