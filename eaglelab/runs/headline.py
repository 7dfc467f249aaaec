"""What a run found, in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["headline"]


def headline(result: Mapping[str, Any]) -> str:
    """`result` is the result.json of a run that came to its end. Raises KeyError or TypeError where it is none."""
    rankings = result.get("rankings") or []
    if rankings:
        return " ".join(
            f"[{each['batch']}] {each['sentences'][0]}" if len(rankings) > 1 else each["sentences"][0]
            for each in rankings
        )
    if result.get("measurements"):
        return "; ".join(_measured(each) for each in result["measurements"] if not each["profiled"])
    if result.get("settings"):
        return "; ".join(_served(each) for each in result["settings"][:3])
    settings = (result.get("profile") or {}).get("settings") or []
    if settings:
        return "; ".join(_profiled(each) for each in settings[:3])
    return "done"


def _measured(found: Mapping[str, Any]) -> str:
    steps = "no speculation" if found["steps"] is None else f"{found['steps']} steps"
    rate = found["summary"]["tok_s_in_all"]
    return f"{steps}: {rate:.1f} tok/s at concurrency {found['batch']}" if rate else steps


def _served(found: Mapping[str, Any]) -> str:
    steps = "no speculation" if found["steps"] is None else f"{found['steps']} steps"
    rate = found["figures"]["output_throughput"]
    return f"{steps}: {rate['mean']:.1f} tok/s at concurrency {found['concurrency']}" if rate else steps


def _profiled(setting: Mapping[str, Any]) -> str:
    rate, accepted = setting.get("tok_s") or {}, setting.get("acceptance") or {}
    limit = setting.get("limit") or {}
    parts = [
        f"{rate['in_all']:.1f} tok/s" if rate.get("in_all") else "",
        f"accept length {accepted['accept_length']:.2f}" if accepted.get("accept_length") else "",
        f"{limit['phase']} limits" if limit.get("phase") else "",
    ]
    return f"{setting['steps']} steps, batch {setting['batch_size']}: " + ", ".join(filter(None, parts))
