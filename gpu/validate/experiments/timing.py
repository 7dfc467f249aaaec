"""time: phase times against three other clocks: a synchronised run, the client's wall time, SGLang's device timer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from gpu.truth import decode, seen_by_client
from gpu.validate.budget import Budget
from gpu.validate.client import Ask, ServerError
from gpu.validate.part import Experiment, Part
from gpu.validate.results import Check, Data
from gpu.validate.setting import CANDIDATES, WORKERS, Setting
from gpu.validate.site import Server, Site

__all__ = ["device_seconds", "experiment"]

_STEPS = (3, 8)
_REQUESTS, _TOKENS = 10, 400
_CATEGORIES = {"draft": "eagle_draft", "verify": "target_verify", "extend": "eagle_draft_extend"}
_QUICKEST = 0.25
"""Share of cycles in which the host launched verify fastest: there the GPU waited for it least."""
_SERIES = re.compile(r'^sglang:forward_execution_seconds_total\{[^}]*category="(\w+)"[^}]*\} (\S+)$', re.MULTILINE)


def experiment() -> Experiment:
    """The wall time in the truth's own loads; the others in loads of two step counts."""
    parts = []
    for worker in WORKERS:
        whole = Setting(worker=worker, candidates=CANDIDATES)
        sync = Setting(worker=worker, candidates=_STEPS, sync=True)
        parts.append(Part(f"time-wall-{worker}", 25, partial(_run, setting=whole), whole))
        parts.append(Part(f"time-sync-{worker}", 35, partial(_run, setting=sync), sync))
    timer = Setting(candidates=_STEPS, device_timer=True)
    parts.append(Part("time-device-v2", 30, partial(_run, setting=timer), timer))
    return Experiment("time", parts, _checks)


def _run(site: Site, budget: Budget, setting: Setting) -> Data:
    server = site.serve(setting, budget)
    return {**server.about(), "steps": {str(steps): _measure(server, steps) for steps in _STEPS}}


def _measure(server: Server, steps: int) -> Data:
    prompts = server.truth.prompts(_REQUESTS, _TOKENS)
    mark = server.probe.mark()
    server.lead(steps)
    before = _device(server)
    answers = [
        server.client.ask(Ask(f"k={steps}/time-{number}", prompt, _TOKENS)) for number, prompt in enumerate(prompts)
    ]
    window = server.probe.since(mark).rank(0).steps(steps)
    late, times = server.setting.late, window.times
    made = [decode(server.truth, prompt, _TOKENS, steps, late=late) for prompt in prompts]
    found = {
        "timed_cycles": times.cycles,
        "total_error_ms": window.standard_error("total"),
        "event_ms": times.means(times.event_ms),
        "host_ms": times.means(times.host_ms),
        "cycles_seen": sum(len(seen_by_client(cycles, late=late)) for cycles in made),
        "verify_launched_quickest": window.quickest("verify", _QUICKEST),
        "decode_s": round(sum(answer.last_s - answer.first_s for answer in answers), 5),
    }
    return found | _device_ms(before, _device(server), sum(map(len, made)))


def _device(server: Server) -> dict[str, float]:
    return device_seconds(server.client.get("/metrics").decode()) if server.setting.device_timer else {}


def device_seconds(metrics: str) -> dict[str, float]:
    """Seconds of GPU time by category, out of what /metrics says."""
    found: dict[str, float] = {}
    for category, value in _SERIES.findall(metrics):
        found[category] = found.get(category, 0.0) + float(value)
    return found


def _device_ms(before: Mapping[str, float], after: Mapping[str, float], cycles: int) -> Data:
    if not after:
        return {}
    spent = {phase: after.get(name, 0.0) - before.get(name, 0.0) for phase, name in _CATEGORIES.items()}
    if not spent["verify"]:
        raise ServerError(f"SGLang's device timer counted nothing; it knows {', '.join(after) or 'no category'}")
    return {"device_ms": {phase: round(1000 * seconds / cycles, 5) for phase, seconds in spent.items()}}


def _off(value: float, reference: float) -> float:
    """Percent."""
    return 100 * (value / reference - 1)


def _checks(results: Mapping[str, Data]) -> list[Check]:
    checks = []
    for name, data in results.items():
        kind, _, worker = name.removeprefix("time-").partition("-")
        if not name.startswith("time-"):
            continue
        for steps, found in data["steps"].items():
            checks += _KINDS[kind](f"{worker}, K = {steps}", found)
    return checks


def _wall_checks(where: str, found: Data) -> list[Check]:
    wall_ms = 1000 * found["decode_s"] / found["cycles_seen"]
    off = _off(found["event_ms"]["total"], wall_ms)
    shown = f"{found['event_ms']['total']:.3f} ms beside {wall_ms:.3f} ms ({off:+.2f} %"
    if found.get("total_error_ms") is not None:  # earlier results have none
        shown += (
            f", standard error {100 * found['total_error_ms'] / wall_ms:.2f} of {found['timed_cycles']} timed cycles"
        )
    shown += ")"
    host = ", ".join(
        f"{phase} {_off(found['host_ms'][phase], ms):+.0f} %" for phase, ms in found["event_ms"].items() if ms
    )
    return [
        Check(f"{where}: sum of phases beside the client's wall time a cycle", "1 %", shown, abs(off) <= 1),
        Check(f"{where}: host timers beside the events", "-", host, None),
    ]


def _sync_checks(where: str, found: Data) -> list[Check]:
    event, host = found["event_ms"], found["host_ms"]
    off = {phase: _off(event[phase], host[phase]) for phase in ("draft", "verify", "extend", "total")}
    shown = ", ".join(f"{phase} {event[phase]:.3f} ms ({percent:+.1f} %)" for phase, percent in off.items())
    worst = max(map(abs, off.values()))
    return [Check(f"{where}: events beside a synchronised clock, same cycles", "3 %", shown, worst <= 3)]


def _device_checks(where: str, found: Data) -> list[Check]:
    event, device = found["event_ms"], found["device_ms"]
    every = _off(event["verify"], device["verify"])
    rest = ", ".join(f"{phase} {event[phase]:.3f} beside {device[phase]:.3f} ms" for phase in ("draft", "extend"))
    others = Check(f"{where}: draft and extend beside it (graphs only, without the gaps before them)", "-", rest, None)
    quick = found.get("verify_launched_quickest")
    if quick is None:  # a result of 2026-11-29, before cycles were told apart by the host's pace
        shown = f"{event['verify']:.3f} ms beside {device['verify']:.3f} ms ({every:+.1f} %)"
        return [Check(f"{where}: verify beside SGLang's device timer", "5 %", shown, abs(every) <= 5), others]
    verify = _off(quick["event_ms"], device["verify"])
    shown = (
        f"{quick['event_ms']:.3f} ms beside {device['verify']:.3f} ms ({verify:+.1f} %) in the {quick['cycles']} cycles "
        f"with the quickest launches ({quick['host_ms']:.2f} ms); {event['verify']:.3f} ms "
        f"({every:+.1f} %) in all, launched in {found['host_ms']['verify']:.2f} ms"
    )
    name = f"{where}: verify beside SGLang's device timer, the host being quick"
    return [Check(name, "5 %", shown, abs(verify) <= 5), others]


_KINDS = {"wall": _wall_checks, "sync": _sync_checks, "device": _device_checks}
