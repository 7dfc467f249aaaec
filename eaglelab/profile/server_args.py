"""The ServerArgs line that SGLang logs at start: the fields that decide speed, and no others (some are secrets)."""

from __future__ import annotations

import re

__all__ = ["SERVER_ARGS", "parse_server_args", "parse_version"]

SERVER_ARGS = (
    "model_path",
    "speculative_draft_model_path",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_adaptive",
    "tp_size",
    "dp_size",
    "attention_backend",
    "disable_overlap_schedule",
    "disable_cuda_graph",
    "cuda_graph_max_bs",
    "disable_custom_all_reduce",
    "decode_log_interval",
    "disaggregation_mode",
    "preferred_sampling_params",
)

_LINE = re.compile(r"\bserver_args=(?:ServerArgs\(|\{)")
_PAIR = re.compile(
    r"(?<![\w'\"])['\"]?(?P<name>" + "|".join(SERVER_ARGS) + r")['\"]?\s*[=:]\s*"
    r"(?:'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<dict>\{[^{}]*\})|(?P<bare>[\w.+-]+))"
)
_VERSION = re.compile(r"\bsglang(?:\[\w+\])?(?:==|[ _]version[:=]? ?| v)(\d+\.\d+[\w.]*)", re.IGNORECASE)


def parse_server_args(line: str) -> dict[str, str] | None:
    """The fields of `SERVER_ARGS` as printed (quotes off); None for any other line. Both forms: call and dict."""
    start = _LINE.search(line)
    if start is None:
        return None
    pairs = _PAIR.finditer(line, start.end())
    return {
        pair["name"]: next(text for text in pair.group("single", "double", "dict", "bare") if text is not None)
        for pair in pairs
    }


def parse_version(line: str) -> str | None:
    """SGLang's version where a line names it (`sglang==0.5.9`, `sglang version 0.5.9`)."""
    match = _VERSION.search(line)
    return match[1].rstrip(".") if match else None
