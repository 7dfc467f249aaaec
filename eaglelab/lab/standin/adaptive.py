"""Several step counts in one load: SGLang's own adaptive controller over states that cost nothing to build here."""

from __future__ import annotations

import importlib
import inspect
import logging
from types import ModuleType
from typing import Any

from .args import Release, ServerArgs
from .stubs import Stub, StubObject

__all__ = ["controller_of"]

logger = logging.getLogger(__name__)

_SHARED_LOGITS = (0, 5, 15)
"""From here on all graphs share one buffer for logits, which has room for the step count of the start and no more,"""
_ROOM_FOR_ALL = (0, 5, 19)
"""until here, where it has room for every step count (`max_decode_logits_rows`)."""


def controller_of(module: ModuleType, worker: Any, args: ServerArgs, release: Release) -> Any:
    """The release's real controller for `worker`, its states built and the first one active; None without the flag.

    The worker's own `apply_runtime_state` switches; only the building of states, which captures graphs, is replaced.

    Raises:
        OSError, ValueError: the configuration file cannot be read or used (SGLang's own checks).
        AssertionError: the release has no room for a step count (its own check, too).
    """
    controller_type = vars(module).get("AdaptiveController")
    if controller_type is None or not args.speculative_adaptive or args.speculative_eagle_topk != 1:
        return None
    config = args.speculative_adaptive_config
    if "config_path" in inspect.signature(controller_type).parameters:
        controller = controller_type(worker, config_path=config)
    else:
        params = importlib.import_module("sglang.srt.speculative.adaptive_spec_params")
        policy = params.AdaptiveSpeculativeParams(initial_steps=worker.speculative_num_steps, cfg_path=config)
        controller = controller_type(worker, policy)

    launched = worker.speculative_num_draft_tokens

    def build(speculative_num_steps: int, speculative_num_draft_tokens: int, **_graphs: Any) -> Any:
        if _SHARED_LOGITS <= release < _ROOM_FOR_ALL and speculative_num_draft_tokens > launched:
            held, needed = (args.max_running_requests * each for each in (launched, speculative_num_draft_tokens))
            raise AssertionError(f"shared logits buffer holds {held} rows but caller needs {needed} (vocab_size=32000)")
        logger.info(f"Built adaptive runtime state steps={speculative_num_steps}: elapsed=0.00s, mem=0.25GB")
        return _State(speculative_num_steps, speculative_num_draft_tokens)

    worker.__dict__["build_adaptive_runtime_state"] = build
    controller.register(_State(worker.speculative_num_steps, worker.speculative_num_draft_tokens))
    controller.init_states()
    return controller


class _State(StubObject):
    """A `SpecRuntimeState` whose backends and graphs are stubs."""

    def __init__(self, steps: int, draft_tokens: int) -> None:
        super().__init__(
            speculative_num_steps=steps, speculative_num_draft_tokens=draft_tokens, target_graph_runner=Stub()
        )
