"""One request on the scheduler: its output so far and what was accepted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .acceptance import Acceptance, token_id
from .args import Release
from .stubs import Stub

__all__ = ["Request", "meta_info"]

NATURAL_LENGTH = (200, 600)
"""Where a request that does not ignore the end-of-sequence token ends: at least, and spread over this much more."""


@dataclass(eq=False)
class Request:
    """`position` counts the tokens that the GPU has made, `output` holds those that the host knows of.

    The two differ in the overlapping scheduler, which launches a cycle before it reads the one before.
    """

    rid: str
    prompt: str
    prompt_tokens: int
    max_new_tokens: int
    ignore_eos: bool
    stream: bool
    arrived: float
    position: int = 0
    output: list[int] = field(default_factory=list)
    verifies: int = 0
    correct: int = 0
    histogram: list[int] = field(default_factory=list)
    finish_reason: dict[str, Any] | None = None
    finished: float = 0.0
    sent: int = 0

    def __getattr__(self, name: str) -> Any:
        """A worker may ask a request for anything (`time_stats`, ...): nothing here answers to it."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub()

    def limit(self, seed: int) -> int:
        """How many tokens the answer has in the end."""
        if self.ignore_eos:
            return self.max_new_tokens
        least, spread = NATURAL_LENGTH
        return min(self.max_new_tokens, least + token_id(seed, self.prompt, -1, spread))

    def draw(self, acceptance: Acceptance, steps: int) -> int:
        """The right drafts of the next cycle; the GPU's position moves on past them and the bonus token."""
        correct = acceptance.correct_drafts(self.prompt, self.position, steps)
        self.position += correct + 1
        return correct

    def take(self, count: int, seed: int, vocabulary: int, now: float) -> int:
        """Append up to `count` tokens; finish at the limit. Returns how many were appended."""
        limit = self.limit(seed)
        count = min(count, limit - len(self.output))
        start = len(self.output)
        self.output += [token_id(seed, self.prompt, start + i, vocabulary) for i in range(count)]
        if len(self.output) >= limit:
            length = limit == self.max_new_tokens
            self.finish(
                {"type": "length", "length": limit} if length else {"type": "stop", "matched": self.output[-1]}, now
            )
        return count

    def count_verify(self, correct: int) -> None:
        """One more verified cycle with `correct` right drafts."""
        self.verifies += 1
        self.correct += correct
        self.histogram += [0] * (correct + 1 - len(self.histogram))
        self.histogram[correct] += 1

    def finish(self, reason: dict[str, Any], now: float) -> None:
        self.finish_reason, self.finished = reason, now


def meta_info(request: Request, release: Release, draft_tokens: int) -> dict[str, Any]:
    """`meta_info` of the answer, with the speculative fields under the names of the release. Latency in seconds."""
    meta: dict[str, Any] = {
        "id": request.rid,
        "finish_reason": request.finish_reason,
        "prompt_tokens": request.prompt_tokens,
        "weight_version": "default",
        "total_retractions": 0,
        "completion_tokens": len(request.output),
        "cached_tokens": 0,
    }
    if request.verifies:
        proposed = request.verifies * max(1, draft_tokens - 1)
        meta["spec_verify_ct"] = request.verifies
        if release >= (0, 5, 4):
            meta["spec_accept_rate"] = request.correct / proposed
            meta["spec_accept_length"] = len(request.output) / request.verifies
        if (0, 5, 4) <= release < (0, 5, 12):
            meta["spec_accept_token_num"] = request.correct
            meta["spec_draft_token_num"] = proposed
        if release >= (0, 5, 12):
            meta["spec_num_correct_drafts"] = request.correct
            meta["spec_num_proposed_drafts"] = proposed
            meta["spec_correct_drafts_histogram"] = list(request.histogram)
        if (0, 5, 9) <= release < (0, 5, 20):
            meta["spec_accept_histogram"] = list(request.histogram)
    if request.finish_reason is not None:
        meta["e2e_latency"] = request.finished - request.arrived
    return meta
