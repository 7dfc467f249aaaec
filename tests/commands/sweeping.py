"""What tests of sweep share: a small load, and what came out of it."""

from __future__ import annotations

from typing import Any

SMALL = ("--num-prompts", "4", "--repeats", "4", "--output-len", "64")
TARGET_CONFIG = "/models/target/config.json"


def found(done: Any) -> dict[str, Any]:
    return dict(done.json["hosts"]["a"])


def settings(done: Any) -> list[tuple[int | None, str]]:
    """Those with figures, each once."""
    return list(dict.fromkeys((each["steps"], each["variation"]) for each in found(done)["measurements"]))
