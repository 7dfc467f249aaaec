"""Facts from how a server is started: the arguments it settled on, or the flags it was given."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from eaglelab.diagnosis.facts import Sheet
from eaglelab.diagnosis.workers import expected_worker
from eaglelab.sweep.relevance import is_nccl_setting, nccl_relevance

__all__ = ["flags_of_command", "plain_arguments", "put_arguments", "put_nccl", "put_worker"]

Json = Mapping[str, Any]

_GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")
"""What asks for structured output among a request's sampling parameters."""


def plain_arguments(printed: Mapping[str, str]) -> dict[str, Any]:
    """ServerArgs as the log prints them, as values: `None`, `True` and numbers are what they say, the rest is text."""
    return {name: _plain(text) for name, text in printed.items()}


def flags_of_command(command: Collection[str]) -> dict[str, Any]:
    """The flags of a server's command line, named without dashes; True for one without a value, the last one counts."""
    flags: dict[str, Any] = {}
    name = None
    for word in command:
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            flags[name] = _plain(value) if given else True
        elif name is not None:
            flags[name] = _plain(word)
    return flags


def put_arguments(sheet: Sheet, given: Json, source: str) -> None:
    """The server's arguments by their names in ServerArgs. What is left out or null is not known."""
    sheet.put("algorithm", _text(given.get("speculative_algorithm")), source)
    sheet.put("topk", _count(given.get("speculative_eagle_topk")), source)
    sheet.put("draft_tokens", _count(given.get("speculative_num_draft_tokens")), source)
    for name in ("served_steps", "configured_steps"):
        sheet.put(name, _count(given.get("speculative_num_steps")), source)
    sheet.put("tp_size", _count(given.get("tp_size")), source)
    sheet.put("overlap_disabled", _flag(given.get("disable_overlap_schedule")), source)
    sheet.put("graph_disabled", _flag(given.get("disable_cuda_graph")), source)
    sheet.put("adaptive", _flag(given.get("speculative_adaptive")), source)
    sheet.put("max_running_requests", _count(given.get("max_running_requests")), source)
    sheet.put("attention_backend", _text(given.get("attention_backend")), source)
    sheet.put("disaggregation", _text(given.get("disaggregation_mode")), source)
    _put_preferred(sheet, given.get("preferred_sampling_params"), source)
    sheet.put("context_length", _count(given.get("context_length")), source)
    sizes = given.get("cuda_graph_bs")
    listed = [size for size in sizes if _count(size)] if isinstance(sizes, list | tuple) else []
    sheet.put("captured_batch", max(listed, default=None) or _count(given.get("cuda_graph_max_bs")), source)
    if sheet.value("context_length") is None:
        sheet.put(
            "context_length", sheet.value("target_max_positions"), "config.json of the target: nothing else is set"
        )


def _put_preferred(sheet: Sheet, given: object, source: str) -> None:
    """How requests that do not say it themselves are sampled: what `--preferred-sampling-params` (JSON) names."""
    try:
        preferred = _literal(given) if isinstance(given, str) else given
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return
    if not isinstance(preferred, Mapping):
        return
    where = f"preferred_sampling_params in {source}"
    sheet.take("top_p", preferred.get("top_p"), where)
    if any(preferred.get(name) for name in _GRAMMARS):
        sheet.put("grammar", True, where)


def _literal(text: str) -> object:
    """JSON as it is typed, or a dict as a log prints it."""
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def put_worker(sheet: Sheet, flags: Json, env: Mapping[str, str], source: str) -> None:
    """Which worker is to be expected, where release, algorithm and top-k are known already."""
    version, algorithm, topk = (sheet.value(name) for name in ("sglang", "algorithm", "topk"))
    if not (isinstance(version, str) and isinstance(algorithm, str) and isinstance(topk, int)):
        return
    found = expected_worker(version, algorithm, topk, flags, env)
    if found is not None:
        sheet.put("worker_expected", found.worker, source)
        sheet.put("worker_file_expected", found.file, source)
        sheet.put("worker_reason", found.why, source)


def put_nccl(
    sheet: Sheet, flags: Json, env: Collection[str], linked: bool | None, sizes: list[int], source: str
) -> None:
    """The NCCL settings that were given, and whether they can matter to `tp_size` GPUs of one machine."""
    names = tuple(sorted(name for name in (*env, *flags) if is_nccl_setting(name)))
    if not names:
        return
    sheet.put("nccl_settings", names, source)
    world = int(sheet.number("tp_size") or 1)
    nodes = _count(flags.get("nnodes")) or 1
    found = nccl_relevance(world=world, nodes=nodes, linked=linked, flags=dict(flags), message_bytes=sizes)
    sheet.put("nccl_matters", found.matters, "which all-reduce runs")
    sheet.put("nccl_reason", found.why, "which all-reduce runs")


def _plain(text: str) -> Any:
    if re.fullmatch(r"None|True|False|-?\d+(\.\d+)?", text):
        return ast.literal_eval(text)
    return text


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value not in ("", "null") else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
