"""What a release makes of the speculative flags and environment: which worker runs, with how many steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .args import Release, ServerArgs

__all__ = ["ENTRIES", "resolve", "worker_class"]

ENTRIES = ("forward_batch_generation", "forward_batch_speculative_generation")
"""Names of the worker's entry: the second up to 0.5.2."""

FALSE = ("0", "false", "no")


def worker_class(args: ServerArgs, release: Release, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The module and class that decode: v1, v2, or None without speculation.

    Rules of the releases: v1 only up to 0.5.3; v2 on request (`SGLANG_ENABLE_SPEC_V2`) up to 0.5.10; v2 by default
    in 0.5.11 and 0.5.12, where top-k above 1, `--disable-overlap-schedule` and the variable choose v1; v2 only from
    0.5.13 on.
    """
    if args.speculative_algorithm is None:
        return None
    v1, v2 = ("eagle_worker", "EAGLEWorker"), ("eagle_worker_v2", "EAGLEWorkerV2")
    wish = environ.get("SGLANG_ENABLE_SPEC_V2", "").lower()
    if release >= (0, 5, 13):
        return v2
    if release >= (0, 5, 11):
        return v1 if wish in FALSE or args.disable_overlap_schedule or (args.speculative_eagle_topk or 1) > 1 else v2
    if release >= (0, 5, 4):
        return v2 if wish not in ("", *FALSE) else v1
    return v1


def _worker_notice(args: ServerArgs, release: Release, environ: Mapping[str, str]) -> list[str]:
    """What 0.5.11 and 0.5.12, which hold both workers, log of their choice."""
    chosen = worker_class(args, release, environ)
    if chosen is None or not (0, 5, 11) <= release < (0, 5, 13):
        return []
    if chosen[0] == "eagle_worker_v2":
        return ["Spec v2 is enabled by default for eagle/eagle3/standalone speculative decoding."]
    reason = "SGLANG_ENABLE_SPEC_V2=False"
    if args.disable_overlap_schedule:
        reason = "overlap schedule is disabled"
    elif (args.speculative_eagle_topk or 1) > 1:
        reason = "spec v2 currently only supports topk = 1"
    return [f"Spec v1 is used for eagle/eagle3/standalone speculative decoding because {reason}."]


def resolve(args: ServerArgs, release: Release, environ: Mapping[str, str]) -> tuple[ServerArgs, list[str]]:
    """Fill in and adjust the step count, top-k and draft tokens as the releases do.

    Returns:
        The arguments and the warnings that SGLang logs on the way.
    """
    if args.speculative_algorithm is None:
        return args, []
    if args.speculative_num_steps is None:
        args = replace(args, speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4)
    steps = args.speculative_num_steps or 0
    topk = args.speculative_eagle_topk or 1
    draft_tokens = args.speculative_num_draft_tokens or steps + 1
    warnings = _worker_notice(args, release, environ)
    if topk == 1 and draft_tokens != steps + 1 and release >= (0, 4, 5):
        warnings.append(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
        )
        draft_tokens = steps + 1
    return replace(args, speculative_eagle_topk=topk, speculative_num_draft_tokens=draft_tokens), warnings
