"""turns: loads that are compared are up at once, and take turns request by request.

One load for all step counts beside a load for each, and the patch switched off beside none, two loads of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from eaglelab.profile.ranking import compare
from gpu.validate.beside import Beside
from gpu.validate.budget import Budget
from gpu.validate.client import Ask
from gpu.validate.experiments.rounds import CALIBRATED, OneLoad
from gpu.validate.experiments.sweep import TOKENS, all_rates, compared, rates
from gpu.validate.part import Experiment, Part
from gpu.validate.results import Check, Data
from gpu.validate.setting import CANDIDATES, WORKERS, Setting, Worker
from gpu.validate.site import Server, Site

__all__ = ["experiment"]

_ROUNDS = 16
_WARM_UP = 2
_AGAIN = "-again"
_MOST = 1.0


def _others(worker: Worker) -> dict[str, Setting]:
    """v1, by now the old way, with fewer."""
    counts = (3, 1, 8) if worker == "v2" else (3, 8)
    others = {f"k{steps}": Setting(worker=worker, steps=steps, patched=False, probe=False) for steps in counts}
    others[f"k3{_AGAIN}"] = others["k3"]
    if worker == "v2":
        off = Setting(worker=worker, probe=False)
        others |= {"off": off, f"off{_AGAIN}": off}
    return others


def experiment() -> Experiment:
    """What a part takes beside the load of the one server is mostly the others' loading at the same time."""
    parts = []
    for worker, seconds in zip(WORKERS, (260, 220), strict=True):
        setting = Setting(worker=worker, candidates=CANDIDATES)
        parts.append(Part(f"turns-{worker}", seconds, partial(_run, setting=setting, others=_others(worker)), setting))
    return Experiment("turns", parts, _checks)


def _run(site: Site, budget: Budget, setting: Setting, others: Mapping[str, Setting]) -> Data:
    beside = Beside(site, setting, others)
    try:
        own, servers = beside.serve(budget)
        one = OneLoad(own, TOKENS)
        prompts = own.truth.prompts(_ROUNDS, TOKENS)
        for name, prompt in [(name, prompt) for name in servers for prompt in prompts[:_WARM_UP]]:
            servers[name].client.ask(Ask(f"warm-up-{name}", prompt, TOKENS))
        one.begin()
        answers: dict[str, list[Data]] = {name: [] for name in servers}
        for number, prompt in enumerate(prompts):
            for name, server in _in_turn(servers, number, one.turns(number, prompt)):
                answers[name].append(server.client.ask(Ask(f"turn-{number}", prompt, TOKENS)).to_json())
        loads = {name: server.load_s for name, server in servers.items()}
        found = {"others": answers, "loads": loads, "failed": beside.failed}
        return {**own.about(), **one.data(), **found}
    finally:
        beside.close()


def _in_turn(servers: Mapping[str, Server], number: int, own: Iterator[None]) -> Iterator[tuple[str, Server]]:
    """The other servers, each round another one first, between the requests of the one."""
    names = list(servers)
    first = number % max(1, len(names))
    for name in names[first:] + names[:first]:
        next(own, None)
        yield name, servers[name]
    for _ in own:
        pass


def _checks(results: Mapping[str, Data]) -> list[Check]:
    return [check for name, data in results.items() if name.startswith("turns-") for check in _part(name, data)]


def _part(name: str, data: Data) -> list[Check]:
    worker, others = name.removeprefix("turns-"), data["others"]
    checks = []
    for steps in CANDIDATES:
        if f"k{steps}" in others:
            checks += compared(f"{worker}, K = {steps}", data["steps"][str(steps)], others[f"k{steps}"])
    for kind in ("k3", "off"):
        if kind + _AGAIN in others and kind in others:
            shown, _ = _difference(others[kind + _AGAIN], others[kind])
            checks.append(Check(f"{worker}: two loads of one kind ({kind}), tok/s", "-", shown, None))
    kinds = [[each for again in ("", _AGAIN) for each in others.get(kind + again, [])] for kind in ("off", "k3")]
    if all(kinds) and len(kinds[0]) == len(kinds[1]):
        shown, percent = _difference(*kinds)
        met = None if data["simulated"] else percent >= -_MOST
        goal = f"at most {_MOST:g} % slower"
        checks.append(
            Check(f"{worker}: decode rate, patched and off against unpatched, two loads each", goal, shown, met)
        )
    for steps in CALIBRATED:
        shown, _ = _difference(data["measured"][str(steps)], data["steps"][str(steps)])
        checks.append(Check(f"{worker}, K = {steps}: decode rate, measured against unmeasured", "-", shown, None))
    checks.append(Check(f"{worker}: tok/s in one load", "-", all_rates(data["steps"]), None))
    checks += [Check(f"{worker}: {kind} did not come up", "-", why, None) for kind, why in data["failed"].items()]
    return checks


def _difference(answers: Sequence[Data], reference: Sequence[Data]) -> tuple[str, float]:
    found = compare(rates(answers), rates(reference))
    low, high = (100 * (end - 1) for end in found.ci95)
    return f"{found.percent:+.2f} % ({low:+.2f} to {high:+.2f}; {len(answers)} pairs)", found.percent
