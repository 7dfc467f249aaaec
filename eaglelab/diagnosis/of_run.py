"""Facts from all that a run left behind."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from eaglelab.diagnosis.facts import Facts, Sheet
from eaglelab.diagnosis.of_cycles import put_cycles, words_of
from eaglelab.diagnosis.of_gpus import put_clocks, used_by
from eaglelab.diagnosis.of_log import put_log
from eaglelab.diagnosis.of_models import mapping, put_draft, put_target
from eaglelab.diagnosis.of_requests import put_requests
from eaglelab.diagnosis.of_server import flags_of_command, put_arguments, put_nccl, put_worker
from eaglelab.diagnosis.workers import file_of_worker
from eaglelab.profile.log_report import LogReport
from eaglelab.profile.measurement_set import Measurement, rankings
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.summary import Setting
from eaglelab.runs.evidence import LoadEvidence, RunEvidence

__all__ = ["facts_of_run"]

_At = tuple[SettingKey, int]
_LOSES = 0.97
_EARLIER = (
    *("accept_length", "tok_s", "cycle_ms", "draft_ms", "verify_ms", "other_ms"),
    *("worker_class", "graph_share", "cached_share"),
)
_EARLIER_WHOLE = (
    *("driver_version", "attention_backend", "sm_clock_after"),
    *("temperature", "prompt_source", "draft_path"),
)
"""What of another run a rule may hold a run against: of each setting, and of the whole."""


def facts_of_run(run: RunEvidence, log: LogReport | None = None, earlier: RunEvidence | None = None) -> Facts:
    """The facts of one host's run. `log`: its server log, where it was read. `earlier`: a run of the same to hold it against."""
    sheets = _settings(run)
    _put_plain(sheets)
    _put_best(run, sheets)
    if earlier is not None:
        _put_earlier(sheets, _settings(earlier), earlier)
    whole = Sheet()
    _put_whole(whole, run)
    if log is not None:
        put_log(whole, log)
    if earlier is not None:
        _put_earlier_whole(whole, earlier)
    _put_batches(whole, sheets)
    speculative = {
        words_of(key.steps, batch, key.variation): each for (key, batch), each in sheets.items() if key.steps
    }
    for label, each in speculative.items():
        each.put("setting", label, f"run {run.run}")
    return Facts(whole.facts, {label: each.facts for label, each in speculative.items()})


def _settings(run: RunEvidence) -> dict[_At, Sheet]:
    """A sheet for each setting and batch size, the baseline's among them (steps None)."""
    sheets: dict[_At, Sheet] = {}
    measured = () if run.measured is None else run.measured.measurements
    # Rates are those of requests that the probe left alone, where there are such.
    for each in sorted(measured, key=lambda found: found.result.profiled):
        sheet = sheets.setdefault((each.result.key, each.result.batch), Sheet())
        where = f"measurements.json, {words_of(each.result.steps, each.result.batch, each.result.variation)}"
        if each.setting is not None:
            put_cycles(sheet, each.setting, f"{where}, the probe's cycles")
        put_requests(sheet, each.result, where)
        _put_findings(sheet, each, where)
    if not measured:
        for load in run.loads:
            for setting in _profiled(load):
                key = (SettingKey(setting.steps), setting.batch_size)
                put_cycles(sheets.setdefault(key, Sheet()), setting, f"{load.name}/profile.json".lstrip("/"))
    return dict(sorted(sheets.items(), key=lambda item: (item[0][0].simplicity, item[0][1])))


def _profiled(load: LoadEvidence) -> tuple[Setting, ...]:
    return () if load.profile is None else load.profile.settings


def _put_findings(sheet: Sheet, each: Measurement, source: str) -> None:
    for finding in each.findings:
        if finding.code == "closure" and finding.severity == "alarm":
            sheet.take("closure_difference", finding.numbers.get("difference"), source)
        elif finding.code == "client-limited":
            sheet.take("client_busy_share", finding.numbers.get("busy_share"), source)
    if any(reading.agrees is False for reading in each.readings):
        said = "; ".join(f"{reading.source} {reading.value:.3f}" for reading in each.readings)
        sheet.put("sources_disagree", said, source)


def _put_plain(sheets: Mapping[_At, Sheet]) -> None:
    """What the baseline of the same variation (else of none) did at the same batch size; and the smallest batch's length."""
    for (key, batch), sheet in sheets.items():
        if key.steps is None:
            continue
        plain = sheets.get((SettingKey(None, key.variation), batch)) or sheets.get((SettingKey(None), batch))
        if plain is not None:
            _copy(sheet, plain, "plain_tok_s", "tok_s")
            _copy(sheet, plain, "plain_ms", "plain_ms")
            _copy(sheet, plain, "plain_cached_share", "cached_share")
        smallest = min(size for other, size in sheets if other == key)
        if smallest < batch:
            _copy(sheet, sheets[key, smallest], "accept_length_alone", "accept_length")
        slope = _draft_slope(
            [each for at, each in sheets.items() if at[1] == batch and at[0].variation == key.variation]
        )
        sheet.put("draft_slope_ms", slope, "least squares over the step counts from 2 on")


def _draft_slope(sheets: Iterable[Sheet]) -> float | None:
    """Draft time (ms) of one step more. One step runs no draft forward, so the line begins at two."""
    points = [(each.number("steps"), each.number("draft_ms")) for each in sheets]
    known = [(steps, ms) for steps, ms in points if steps is not None and ms is not None and steps >= 2]
    if len({steps for steps, _ in known}) < 2:
        return None
    return statistics.linear_regression(*zip(*known, strict=True)).slope


def _copy(sheet: Sheet, other: Sheet, name: str, of: str) -> None:
    fact = other.facts.get(of)
    if fact is not None:
        sheet.put(name, fact.value, fact.source)


def _put_best(run: RunEvidence, sheets: Mapping[_At, Sheet]) -> None:
    """The best step count at each batch size, by the ranking, which calls small differences none."""
    ranked = {} if run.measured is None else rankings(run.measured)
    for (key, batch), sheet in sheets.items():
        ranking = ranked.get(batch)
        rates = {entry.key: entry for entry in ranking.entries} if ranking else {}
        if ranking is None or key.steps is None or key not in rates:
            continue
        speculative = [entry for entry in ranking.entries if entry.key.steps and entry.key.variation == key.variation]
        best = min(speculative, key=lambda entry: (entry.group, entry.key.simplicity))
        tied = rates[key].group == best.group
        source = f"ranking of {ranking.rounds} rounds at batch {batch}"
        sheet.put("best_steps", key.steps if tied else best.key.steps, source)
        sheet.put("best_gain", 0.0 if tied else best.tok_s / rates[key].tok_s - 1, source)
        plain = sheet.number("plain_tok_s")
        if plain:
            sheet.put("best_speedup", best.tok_s / plain, f"{source}, over no speculation")


def _put_earlier(sheets: Mapping[_At, Sheet], then: Mapping[_At, Sheet], earlier: RunEvidence) -> None:
    for at, sheet in sheets.items():
        if at in then and at[0].steps is not None:
            sheet.put("earlier", earlier.run, f"run {earlier.run}")
            sheet.put("earlier_sglang", earlier.sglang, f"run {earlier.run}")
            for name in _EARLIER:
                fact = then[at].facts.get(name)
                if fact is not None:
                    sheet.put(f"earlier_{name}", fact.value, f"{fact.source} of run {earlier.run}")


def _put_earlier_whole(whole: Sheet, earlier: RunEvidence) -> None:
    then = Sheet()
    _put_whole(then, earlier)
    for name in _EARLIER_WHOLE:
        fact = then.facts.get(name)
        if fact is not None:
            whole.put(f"earlier_{name}", fact.value, f"{fact.source} of run {earlier.run}")


def _put_batches(whole: Sheet, sheets: Mapping[_At, Sheet]) -> None:
    """What only several batch sizes together say, of what is as the inventory says it."""
    plain = [(key, batch) for key, batch in sheets if not key.variation]
    batches = sorted({batch for _, batch in plain})
    if not batches:
        return
    whole.put("batches", tuple(batches), "measurements.json")
    whole.put("baseline", any(key.steps is None for key, _ in plain), "measurements.json")
    best: dict[int, list[int]] = {}
    gains: dict[int, float] = {}
    for key, batch in plain:
        sheet = sheets[key, batch]
        gain = sheet.number("best_speedup")
        if key.steps is not None and gain is not None and sheet.value("best_steps") == key.steps:
            best.setdefault(batch, []).append(key.steps)
            gains[batch] = gain
    if len(best) < 2:
        return
    words = "; ".join(f"{' or '.join(map(str, steps))} at batch {batch}" for batch, steps in sorted(best.items()))
    whole.put("best_steps_words", words, "rankings")
    whole.put("best_steps_differ", not set.intersection(*map(set, best.values())), "rankings")
    wins = [batch for batch, gain in gains.items() if gain >= 1]
    loses = [batch for batch, gain in gains.items() if gain < _LOSES]
    whole.put("wins_up_to_batch", max(wins, default=None), "throughput against no speculation")
    whole.put("loses_from_batch", min(loses, default=None), "throughput against no speculation")


def _put_whole(whole: Sheet, run: RunEvidence) -> None:
    server = mapping(run.inventory.get("server"))
    speculative = mapping(server.get("speculative"))
    whole.take("sglang", run.sglang, "facts.json")
    whole.take(
        "driver_version", next((gpu.get("driver_version") for gpu in _gpus(run.facts, "gpus")), None), "facts.json"
    )
    whole.take("configured_steps", speculative.get("num_steps"), "inventory.json")
    _put_models(whole, run)
    load = next((load for load in reversed(run.loads) if load.steps), None)
    command = flags_of_command(_words(load.fingerprint.get("command") or load.server.get("command")) if load else ())
    # /server_info is of the last server that ran: of several it knows what they share, the command line what they do not.
    info = (run.server_info, "server_info.json") if run.server_info.get("speculative_num_steps") else ({}, "")
    given = (_named(command), "the server's command line")
    for arguments, source in (info, given) if sum(bool(each.steps) for each in run.loads) == 1 else (given, info):
        put_arguments(whole, arguments, source)
    put_arguments(whole, _named(mapping(server.get("flags"))), "inventory.json")
    env = {**mapping(server.get("env")), **dict.fromkeys(_words(load.fingerprint.get("variables")) if load else (), "")}
    put_worker(whole, command, env, "SGLang's release and flags")
    hidden = whole.number("target_hidden_size")
    put_nccl(whole, command, env, None, [] if hidden is None else [int(hidden) * 2], "inventory.json")
    if load is not None:
        whole.put("adaptive_ours", len(load.steps or ()) > 1, "plan.json")
        _put_workers(whole, load)
        _put_workload(whole, load)
        _put_sampling(whole, load, run)
    _put_gpus(whole, run, env)


def _put_models(whole: Sheet, run: RunEvidence) -> None:
    """What doctor read of both models, where the run has it."""
    models = mapping(run.facts.get("models"))
    for which, put in (("target", put_target), ("draft", put_draft)):
        found = mapping(models.get(which))
        put(whole, mapping(found.get("config")), f"config.json of the {which}")
        whole.take(f"{which}_path", found.get("path"), "inventory.json")


def _put_workers(whole: Sheet, load: LoadEvidence) -> None:
    patched = mapping(load.fingerprint.get("workers"))
    names = tuple(sorted(str(path).rpartition("/")[2] for path in patched))
    whole.put("patched_files", names or None, "fingerprint.json")
    ran = sorted({setting.worker for setting in _profiled(load)})
    if len(ran) == 1:
        whole.put("worker_ran", ran[0], "profile.json")
        whole.put("worker_file_ran", file_of_worker(ran[0]), "profile.json")


def _put_workload(whole: Sheet, load: LoadEvidence) -> None:
    for concurrency, asked in load.workloads.items():
        source = f"what was sent at concurrency {concurrency}"
        whole.take("temperature", asked.get("temperature"), source)
        whole.put("random_prompts", asked.get("random_input_len") is not None, source)
        whole.take("prompt_source", asked.get("prompts") or "built-in", source)
    if load.workloads:
        whole.put("ignore_eos", True, "every request of eaglelab's")
    whole.put("largest_batch", max(load.workloads, default=None), "what was sent")


def _put_sampling(whole: Sheet, load: LoadEvidence, run: RunEvidence) -> None:
    """Neither eaglelab's requests nor those of SGLang's own client say it themselves: the server's own words come first."""
    if load.workloads or run.serving is not None:
        source = "the requests do not say it, and the server was given no other default"
        whole.put("top_p", 1.0, source)
        whole.put("grammar", False, source)


def _put_gpus(whole: Sheet, run: RunEvidence, env: Mapping[str, str]) -> None:
    world = int(whole.number("tp_size") or 1)
    ranks = [setting.world for load in run.loads for setting in _profiled(load)]
    whole.put("world", max(ranks, default=world), "profile.json" if ranks else "tp_size")
    states = [(where, state) for load in run.loads for where, state in load.gpus.items()]
    for where, state in sorted(states, key=lambda found: not _held_back(found[1])):
        visible = env.get("CUDA_VISIBLE_DEVICES")
        before, after = (used_by(_gpus(state, when), world, visible) for when in ("before", "after"))
        put_clocks(whole, before, after, f"{where}/gpus.json")


def _held_back(state: Mapping[str, Any]) -> bool:
    sheet = Sheet()
    put_clocks(sheet, _gpus(state, "before"), _gpus(state, "after"), "")
    return sheet.value("throttled") is True


def _gpus(state: Mapping[str, Any], when: str) -> list[Mapping[str, Any]]:
    found = state.get(when)
    return [gpu for gpu in found if isinstance(gpu, Mapping)] if isinstance(found, list) else []


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list | tuple) else []


def _named(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags by their names in ServerArgs."""
    return {name.replace("-", "_"): value for name, value in flags.items()}
