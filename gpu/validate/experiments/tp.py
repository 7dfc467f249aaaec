"""tp: several ranks switch steps in the same cycle, count the same, and the truth; how far their times lie apart; what the
way they talk to each other costs; and whether throughput is predicted there too.

Two ways of all-reduce: SGLang's own kernel (`custom`) and NCCL's (`nccl`). Prefill is NCCL's in both, and so is what is
too large for SGLang's kernel; so NCCL's algorithms and protocols are compared under both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest

from eaglelab.profile.ranking import compare
from gpu.validate.beside import Beside
from gpu.validate.budget import Budget
from gpu.validate.client import Ask
from gpu.validate.experiments.rounds import OneLoad
from gpu.validate.experiments.sweep import TOKENS, accept_length, all_rates, rates
from gpu.validate.experiments.truth import measure, truth_checks
from gpu.validate.part import Experiment, Part
from gpu.validate.probe import Window
from gpu.validate.results import Check, Data
from gpu.validate.setting import WORKERS, Flags, Setting, Worker
from gpu.validate.site import Server, Site

__all__ = ["CANDIDATES", "VARIANTS", "WAYS", "experiment", "setting"]

CANDIDATES = (1, 2, 3, 5, 10)
_CALIBRATED = (2, 5, 10)
WAYS: dict[str, Flags] = {"nccl": (("disable-custom-all-reduce", True),), "custom": ()}
"""NCCL's first: SGLang's own needs memory shared between the GPUs' processes, which not every machine allows."""
VARIANTS = {
    "ring": ("NCCL_ALGO", "Ring"),
    "tree": ("NCCL_ALGO", "allreduce:Tree"),
    "simple": ("NCCL_PROTO", "Simple"),
    "ll": ("NCCL_PROTO", "LL"),
    "ll128": ("NCCL_PROTO", "LL128"),
}
"""One variable at a time, against NCCL's own choice. Tree can do nothing but all-reduce: for all functions it ends the server."""
_REQUESTS, _TOKENS = 6, 500
_SWITCHES, _SHORT = 20, 60
_ROUNDS, _VARIANT_ROUNDS, _VARIANT_STEPS, _VARIANT_TOKENS, _WARM_UP = 8, 8, 3, 192, 2


def setting(gpus: int, worker: Worker, way: str) -> Setting:
    """All step counts in one load over so many GPUs."""
    return Setting(worker, candidates=CANDIDATES, tp_size=gpus, flags=WAYS[way])


def experiment(gpus: int) -> Experiment:
    """For both workers and ways: everything in one load; then NCCL's settings at once beside that same load."""
    parts = []
    for worker in WORKERS:
        for way in WAYS:
            one = setting(gpus, worker, way)
            parts.append(Part(f"tp{gpus}-{worker}-{way}", 120, partial(_run, setting=one), one))
            compared = partial(_run_variants, setting=one, others=_others(gpus, worker, way))
            parts.append(Part(f"tp{gpus}-{worker}-{way}-variants", 240, compared, one))
    return Experiment("tp", parts, partial(_checks, gpus=gpus))


def _others(gpus: int, worker: Worker, way: str) -> dict[str, Setting]:
    alone = Setting(worker, steps=_VARIANT_STEPS, tp_size=gpus, flags=WAYS[way])
    return {name: replace(alone, env=(variable,)) for name, variable in VARIANTS.items()}


def _run(site: Site, budget: Budget, setting: Setting) -> Data:
    server = site.serve(setting, budget)
    steps = {str(count): measure(server, count, 1, _REQUESTS, _TOKENS) for count in setting.candidates}
    switching = _switching(server)
    one = OneLoad(server, TOKENS, _CALIBRATED)
    one.begin()
    for number, prompt in enumerate(server.truth.prompts(_ROUNDS, TOKENS)):
        for _ in one.turns(number, prompt):
            pass
    found = {"acceptance": setting.acceptance, "batch": 1, "steps": steps, "switching": switching}
    return {**server.about(), **found, "rounds": one.data()}


def _switching(server: Server) -> Data:
    """Short requests that each ask for another step count, so that the ranks switch all the time."""
    mark = server.probe.mark()
    for number, prompt in enumerate(server.truth.prompts(_SWITCHES, _SHORT)):
        steps = CANDIDATES[number % len(CANDIDATES)]
        server.client.ask(Ask(f"k={steps}/switch-{number}", prompt, _SHORT))
    window = server.probe.since(mark)
    return {str(rank): _sequence(window.rank(rank)) for rank in window.ranks}


def _sequence(window: Window) -> list[list[object]]:
    """The blocks of a rank in order: steps, cycles, right drafts. Which cycles were timed may differ, these may not."""
    return [[block.steps, block.decode_cycles, list(block.correct_hist)] for block in window.blocks]


def _run_variants(site: Site, budget: Budget, setting: Setting, others: Mapping[str, Setting]) -> Data:
    """Each prompt goes to every server, measured and not; the servers take turns."""
    beside = Beside(site, setting, others)
    try:
        own, servers = beside.serve(budget)
        every = {"default": own, **servers}
        prompts = own.truth.prompts(_VARIANT_ROUNDS, _VARIANT_TOKENS)
        for server in every.values():
            server.lead(_VARIANT_STEPS)
            for number in range(_WARM_UP):
                server.client.ask(Ask(f"k={_VARIANT_STEPS}/p=0/warm-up-{number}", prompts[number], _VARIANT_TOKENS))
        marks = {name: server.probe.mark() for name, server in every.items()}
        answers: dict[str, list[Data]] = {name: [] for name in every}
        for number, prompt in enumerate(prompts):
            for name, measured in _turns(list(every), number):
                ask = Ask(f"k={_VARIANT_STEPS}/p={measured}/variant-{number}", prompt, _VARIANT_TOKENS)
                answer = every[name].client.ask(ask).to_json()
                if not measured:
                    answers[name].append(answer)
        windows = {name: server.probe.since(marks[name]) for name, server in every.items()}
        times = {
            "event_ms": {name: _event_ms(window) for name, window in windows.items()},
            "timed": {name: _timed(window) for name, window in windows.items()},
        }
        loads = {name: server.load_s for name, server in servers.items()}
        return {**own.about(), "variants": answers, **times, "loads": loads, "failed": beside.failed}
    finally:
        beside.close()


def _turns(names: Sequence[str], number: int) -> Iterator[tuple[str, int]]:
    """A round: each starts with another server, and measured comes first as often as not."""
    first = number % len(names)
    for name in [*names[first:], *names[:first]]:
        for measured in (0, 1) if number % 2 else (1, 0):
            yield name, measured


def _event_ms(window: Window) -> Data:
    """Mean ms of each phase by rank."""
    times = {str(rank): window.rank(rank).steps(_VARIANT_STEPS).times for rank in window.ranks}
    return {rank: each.means(each.event_ms) for rank, each in times.items()}


def _timed(window: Window) -> Data:
    """How many cycles of rank 0 these means are of, and how sure that of the whole cycle is (standard error, ms)."""
    first = window.rank(0).steps(_VARIANT_STEPS)
    return {"cycles": first.times.cycles, "error_ms": first.standard_error("total")}


def _checks(results: Mapping[str, Data], gpus: int) -> list[Check]:
    checks = []
    for name, data in results.items():
        if not name.startswith(f"tp{gpus}-"):
            continue
        where = name.split("-", 1)[1]
        if "variants" in data:
            checks += _variant_checks(where, data)
        else:
            checks += truth_checks(name, {name: data})
            checks += [_same_sequence(where, data["switching"], gpus), *_skew(where, data["steps"])]
            if "rounds" in data:
                checks.append(Check(f"{where}: tok/s in one load", "-", all_rates(data["rounds"]["steps"]), None))
    return checks


def _same_sequence(where: str, ranks: Mapping[str, list[list[object]]], gpus: int) -> Check:
    blocks = list(zip_longest(*ranks.values()))
    same = sum(len({str(block) for block in each}) == 1 for each in blocks)
    return Check(
        f"{where}: {_SWITCHES} requests, each with another K: steps, cycles and right drafts, rank by rank",
        f"equal on {gpus} ranks",
        f"{same} of {len(blocks)} blocks equal on {len(ranks)} ranks",
        len(ranks) == gpus and same == len(blocks) > 0,
    )


def _spread(times: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By phase, how far the ranks' means lie apart (ms)."""
    return {phase: max(each[phase] for each in times) - min(each[phase] for each in times) for phase in times[0]}


def _skew(where: str, steps: Mapping[str, Data]) -> list[Check]:
    found = []
    for count, run in steps.items():
        skew = _spread([rank["event_ms"] for rank in run["ranks"].values()])
        found.append(f"K = {count}: " + ", ".join(f"{phase} {ms:.3f}" for phase, ms in skew.items()))
    return [Check(f"{where}: skew between the ranks, ms a cycle", "-", "; ".join(found), None)]


def _variant_checks(where: str, data: Data) -> list[Check]:
    """Answers must not depend on how the ranks talk; how fast they are may."""
    answers = data["variants"]
    lengths = {name: accept_length(each) for name, each in answers.items()}
    shown = ", ".join(f"{name} {length:.4f}" for name, length in lengths.items())
    checks = [Check(f"{where}: accept length", "equal", shown, len(set(lengths.values())) == 1)]
    for name in answers:
        ranks = data["event_ms"].get(name, {})
        phases = ", ".join(f"{phase} {ms:.3f}" for phase, ms in ranks.get("0", {}).items())
        skew = f"; skew {_spread(list(ranks.values()))['total']:.3f}" if all(ranks.values()) and ranks else ""
        timed = data.get("timed", {}).get(name, {})
        sure = f" (standard error {timed['error_ms']:.3f} of {timed['cycles']})" if timed.get("error_ms") else ""
        against = ""
        if name != "default":
            found = compare(rates(answers[name]), rates(answers["default"]))
            low, high = (100 * (end - 1) for end in found.ci95)
            against = f"{found.percent:+.2f} % ({low:+.2f} to {high:+.2f}); "
        figure = f"{where}, {name}: tok/s against NCCL's own choice, ms a cycle"
        checks.append(Check(figure, "-", f"{against}{phases}{sure}{skew}", None))
    checks += [Check(f"{where}: {name} did not come up", "-", why, None) for name, why in data["failed"].items()]
    return checks
