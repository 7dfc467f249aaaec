"""tp2: two ranks switch steps in the same cycle, count the same, and the truth; and how far their times lie apart."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from gpu.validate.budget import Budget
from gpu.validate.client import Ask
from gpu.validate.experiments.truth import measure, truth_checks
from gpu.validate.part import Experiment, Part
from gpu.validate.probe import Window
from gpu.validate.results import Check, Data
from gpu.validate.setting import CANDIDATES, Setting
from gpu.validate.site import Server, Site

__all__ = ["experiment"]

_SETTING = Setting(candidates=CANDIDATES, tp_size=2, flags=(("disable-custom-all-reduce", True),))
"""NCCL's all-reduce: that of SGLang needs memory shared between the GPUs' processes, which not every machine allows."""
_REQUESTS, _TOKENS = 8, 500
_SWITCHES, _SHORT = 20, 60


def experiment() -> Experiment:
    """Needs two GPUs."""
    return Experiment("tp2", [Part("tp2-v2", 90, _run, _SETTING)], _checks)


def _run(site: Site, budget: Budget) -> Data:
    server = site.serve(_SETTING, budget)
    steps = {str(count): measure(server, count, 1, _REQUESTS, _TOKENS) for count in _SETTING.candidates}
    return {
        **server.about(),
        "acceptance": _SETTING.acceptance,
        "batch": 1,
        "steps": steps,
        "switching": _switching(server),
    }


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


def _checks(results: Mapping[str, Data]) -> list[Check]:
    checks = truth_checks("tp2-", results)
    for name, data in results.items():
        if name.startswith("tp2-"):
            checks += [_same_sequence(data["switching"]), *_skew(data["steps"])]
    return checks


def _same_sequence(ranks: Mapping[str, list[list[object]]]) -> Check:
    blocks = list(zip_longest(*ranks.values()))
    same = sum(len({str(block) for block in each}) == 1 for each in blocks)
    shown = f"{same} of {len(blocks)} blocks equal on {len(ranks)} ranks"
    return Check(
        f"{_SWITCHES} requests, each with another K: steps, cycles and right drafts, rank by rank",
        "equal on 2 ranks",
        shown,
        len(ranks) == 2 and same == len(blocks) > 0,
    )


def _skew(steps: Mapping[str, Data]) -> list[Check]:
    found = []
    for count, run in steps.items():
        times = [rank["event_ms"] for rank in run["ranks"].values()]
        skew = {phase: max(each[phase] for each in times) - min(each[phase] for each in times) for phase in times[0]}
        found.append(f"K = {count}: " + ", ".join(f"{phase} {ms:.3f}" for phase, ms in skew.items()))
    return [Check("skew between the ranks, ms a cycle", "-", "; ".join(found), None)]
