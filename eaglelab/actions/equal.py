"""What makes two hosts equal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from eaglelab.context import Context

__all__ = ["identity"]


def identity(context: Context) -> dict[str, str]:
    """All that must be the same on two hosts for figures of one to say something about the other, or for one server to
    run on both."""
    facts = context.facts
    server = context.host.server
    settings = server.model_dump(
        exclude={
            **dict.fromkeys(("port", "host", "model_path", "dist_init_host", "dist_init_port"), True),
            "speculative": {"draft_model_path"},
        }
    )
    models = [server.model_path, server.speculative.draft_model_path if server.speculative else None]
    return {
        "GPUs": f"{len(facts['gpus'])} x " + " / ".join(sorted({_gpu(gpu) for gpu in facts["gpus"]})),
        "SGLang": facts["sglang_version"],
        "Python": facts["python_version"],
        "workers": ", ".join(f"{plan.path} {plan.original_sha256[:12]}" for plan in context.found.plans),
        "models": ", ".join(PurePosixPath(path).name for path in models if path),
        "server settings": str(context.bundle.masker.mapping(settings)),
    }


def _gpu(gpu: Mapping[str, str]) -> str:
    return ", ".join(str(gpu.get(key, "?")) for key in ("name", "memory.total", "driver_version"))
