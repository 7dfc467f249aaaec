"""Facts from the config.json of target and draft.

How SGLang takes hidden states for EAGLE-3 (`set_eagle3_layers_to_capture`, 0.4.4 to 0.5.23): as the inputs of some layers
of the target. Without `eagle_config.eagle_aux_hidden_state_layer_ids` in the draft's config these are layers 2, n // 2 and
n - 3 of n; with it, each number there + 1, the output of the layer that the config names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eaglelab.diagnosis.facts import Sheet

__all__ = ["mapping", "put_draft", "put_target"]

Json = Mapping[str, Any]

_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")


def mapping(value: object) -> Json:
    """A JSON object; empty for anything else."""
    return value if isinstance(value, Mapping) else {}


def put_target(sheet: Sheet, config: Json, source: str) -> None:
    """What the target's config says; nothing for an empty one."""
    if not config:
        return
    config = {**config, **mapping(config.get("text_config"))}  # models that see
    _put_shared(sheet, "target", config, source)
    sheet.put("target_hidden_size", _count(config.get("hidden_size")), source)
    layers = _count(config.get("num_hidden_layers"))
    sheet.put("target_layers", layers, source)
    sheet.put("target_experts", next((found for name in _EXPERTS if (found := _count(config.get(name)))), None), source)
    sheet.put("target_experts_per_token", _count(config.get("num_experts_per_tok")), source)
    if layers is not None and layers >= 6:
        sheet.put("default_layers", (2, layers // 2, layers - 3), f"layers in {source}")


def put_draft(sheet: Sheet, config: Json, source: str) -> None:
    """What the draft's config says; nothing for an empty one."""
    if not config:
        return
    config = {**config, **mapping(config.get("text_config"))}  # models that see
    _put_shared(sheet, "draft", config, source)
    size = _count(config.get("target_hidden_size")) or _count(config.get("hidden_size"))
    sheet.put("draft_target_hidden_size", size, source)
    layers = mapping(config.get("eagle_config")).get("eagle_aux_hidden_state_layer_ids")
    named = isinstance(layers, list) and bool(layers) and all(isinstance(each, int) for each in layers)
    sheet.put("draft_says_layers", named, source)
    if named and layers is not None:
        sheet.put("draft_aux_layers", tuple(layers), source)
        sheet.put("captured_layers", tuple(each + 1 for each in layers), f"each layer of {source} + 1")
    norm = config.get("norm_before_fc")
    sheet.put("draft_norm_before_fc", norm if isinstance(norm, bool) else None, source)


def _put_shared(sheet: Sheet, which: str, config: Json, source: str) -> None:
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    sheet.put(f"{which}_architecture", first if isinstance(first, str) else None, source)
    sheet.put(f"{which}_vocab_size", _count(config.get("vocab_size")), source)
    sheet.put(f"{which}_max_positions", _count(config.get("max_position_embeddings")), source)
    dtype = config.get("torch_dtype", config.get("dtype"))
    sheet.put(f"{which}_dtype", dtype if isinstance(dtype, str) else None, source)
    quantised = config.get("quantization_config")
    method = quantised.get("quant_method", "yes") if isinstance(quantised, Mapping) else ""
    sheet.put(f"{which}_quantisation", str(method), source)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
