"""Facts from a server's log alone."""

from __future__ import annotations

from eaglelab.diagnosis.facts import Facts, Sheet
from eaglelab.diagnosis.of_cycles import put_cycles, words_of
from eaglelab.diagnosis.of_server import plain_arguments, put_arguments, put_worker
from eaglelab.diagnosis.workers import file_of_worker, release_numbers
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.log_report import LogReport

__all__ = ["LOG_FACTS", "facts_of_log", "put_log"]

_COUNTED = {
    "kv-retraction": "retractions",
    "out-of-memory": "memory_errors",
    "watchdog": "stalls",
    "adaptive-steps-changed": "steps_changes",
}
_QUOTED = {
    "spec-v1": "spec_v1_reason",
    "custom-all-reduce-disabled": "own_all_reduce_off",
    "draft-context-overridden": "draft_positions_raised",
    "draft-tokens-adjusted": "draft_tokens_adjusted",
    "graph-capture-failed": "graph_failed",
    "adaptive-refused": "adaptive_refused",
    "context-length": "context_stretched",
}

_TRUE = {"overlap-disabled": "overlap_disabled", "graph-disabled": "graph_disabled"}

LOG_FACTS = frozenset((*_COUNTED.values(), *_QUOTED.values(), *_TRUE.values(), "log_notes"))
"""Facts that are there only where a log has the line: in a log that was read and has none, their absence is known."""


def facts_of_log(log: LogReport) -> Facts:
    """The facts of a log: of the probe's records where it has them, of SGLang's own decode lines, of hand-made blocks."""
    whole = Sheet()
    put_log(whole, log)
    settings: dict[str, Sheet] = {}
    for setting in () if log.profile is None else log.profile.settings:
        sheet = settings.setdefault(words_of(setting.steps, setting.batch_size), Sheet())
        put_cycles(sheet, setting, "the probe's records in the log")
    for group in log.decode:
        steps = _steps(log, group.start)
        if steps is not None:
            _put_group(settings.setdefault(words_of(steps, group.running_requests), Sheet()), group, steps)
    if any(group.accept_length for group in log.decode):
        whole.put("accept_rate_means", _rate_of(release_numbers(log.sglang or "")), "SGLang's release")
    _put_block(settings, log)
    for label, sheet in settings.items():
        sheet.put("setting", label, "the log")
    return Facts(whole.facts, {label: sheet.facts for label, sheet in settings.items()})


def put_log(whole: Sheet, log: LogReport) -> None:
    """What a log says of the server as a whole: its last start, and what it warns of."""
    whole.take("sglang", log.sglang, "the log")
    _put_notable(whole, log)
    for canary in log.canaries[-1:]:
        whole.put("worker_ran", canary.worker, "the probe's line in the log")
        whole.put("worker_file_ran", file_of_worker(canary.worker), "the probe's line in the log")
        whole.put("world", canary.world, "the probe's line in the log")
    if log.server_starts:
        arguments = plain_arguments(log.server_starts[-1])
        put_arguments(whole, arguments, "ServerArgs in the log")
        whole.put("world", whole.value("tp_size"), "ServerArgs in the log")
        overlap = {"disable-overlap-schedule": arguments.get("disable_overlap_schedule")}
        put_worker(whole, overlap, {}, "SGLang's release and ServerArgs in the log")


def _put_notable(whole: Sheet, log: LogReport) -> None:
    """What the last server start in the log warns of."""
    lines = [each for each in log.notable if each.start == len(log.server_starts)]
    for each in lines:
        source = f"line {each.line} of the log"
        if each.code in _COUNTED:
            whole.put(_COUNTED[each.code], each.count, f"{source} is the first")
        if each.code in _QUOTED:
            whole.put(_QUOTED[each.code], each.text, source)
        if each.code in _TRUE:
            whole.put(_TRUE[each.code], True, source)
        if each.code == "spec-v1" and not log.canaries:
            whole.put("worker_ran", "EAGLEWorker", source)
            whole.put("worker_file_ran", file_of_worker("EAGLEWorker"), source)
    whole.put("log_notes", tuple(each.code for each in lines) or None, "the log")


def _rate_of(release: tuple[int, ...] | None) -> str | None:
    """How a release works out the accept rate of its decode lines; None for one that prints none, or is not known."""
    if release is None or release < (0, 5, 3, 3):
        return None
    return "accept length / draft tokens" if release < (0, 5, 12) else "correct drafts / (draft tokens - 1)"


def _steps(log: LogReport, start: int) -> int | None:
    """The one step count of a server start (from 1); None where the log does not say, or it changed."""
    if not 1 <= start <= len(log.server_starts):
        return None
    arguments = plain_arguments(log.server_starts[start - 1])
    steps = arguments.get("speculative_num_steps")
    return steps if isinstance(steps, int) and not arguments.get("speculative_adaptive") else None


def _put_group(sheet: Sheet, group: DecodeGroup, steps: int) -> None:
    source = f"{group.lines} decode lines of the log"
    sheet.put("steps", steps, source)
    sheet.put("batch", group.running_requests, source)
    if group.accept_length is not None:
        sheet.put("accept_length", group.accept_length.mean, source)
    if group.throughput is not None:
        sheet.put("tok_s", group.throughput.mean, source)
    sheet.put("cycles", group.lines, f"{source}, one each")
    sheet.put("graph_eager", group.eager, source)
    sheet.put("graph_share", 1 - group.eager / group.lines, source)


def _put_block(settings: dict[str, Sheet], log: LogReport) -> None:
    """The newest hand-made block: how it prints the accept length."""
    block = next((each for each in reversed(log.blocks) if not each.ours), None)
    if block is None:
        return
    counts, source = block.text.counts, f"line {block.text.line} of the log"
    steps, batch = int(counts.get("steps", 0)) or None, int(counts.get("batch_size", 1))
    label = words_of(steps, batch) if steps else f"the block at line {block.text.line}"
    sheet = settings.setdefault(label, Sheet())
    sheet.put("steps", steps, source)
    sheet.put("batch", batch, source)
    sheet.put("accept_length_printed", block.printed_accept_length, source)
    sheet.put("accept_length", block.accept_length, f"{source}, {block.accept_length_basis}")
    sheet.put("cycle_ms", block.total_ms, f"{source}, host timers")
    sheet.put("clock", "host timers" if "verify" in block.printed_ms else None, source)
