"""What a model's own config.json on the host says: sizes that a measurement depends on."""

from __future__ import annotations

import json
import posixpath
from typing import Any

from eaglelab.context import Context
from eaglelab.errors import HostError

__all__ = ["hidden_size", "model_config", "vocabulary_size"]


def model_config(context: Context) -> dict[str, Any]:
    """The target's config.json; empty where the model is a name of a hub, or has none that can be read."""
    path = context.host.server.model_path
    if not path or not path.startswith("/"):
        return {}
    try:
        _, data = context.client.call_bytes("read", path=posixpath.join(path, "config.json"))
        config = json.loads(data)
    except (HostError, ValueError):
        return {}
    if not isinstance(config, dict):
        return {}
    text = config.get("text_config")  # models that see have their language model's sizes there
    return {**config, **text} if isinstance(text, dict) else config


def vocabulary_size(context: Context) -> int | None:
    """Token ids that the model knows."""
    return _size(model_config(context), "vocab_size")


def hidden_size(context: Context) -> int | None:
    """Values of a hidden state."""
    return _size(model_config(context), "hidden_size")


def _size(config: dict[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if isinstance(value, int) and value > 0 else None
