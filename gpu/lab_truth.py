"""The embedded lab's simulated GPU as a known truth: which drafts are right is a seeded function of prompt and position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eaglelab.lab.standin.acceptance import Acceptance, token_id

__all__ = ["LabTruth"]

_PROMPT_TOKENS = 32


def _text(prompt: Sequence[int]) -> str:
    """What the stand-in takes for the prompt when it is given ids."""
    return " ".join(map(str, prompt))


@dataclass(frozen=True)
class LabTruth:
    """A lab model whose S_k is `acceptance` to the k, with its `seed` and `vocabulary`."""

    acceptance: float
    seed: int
    vocabulary: int

    def prompts(self, count: int, tokens: int) -> list[list[int]]:
        """Any prompts that differ: each has drafts of its own, however long the answer."""
        return [[number, tokens, *range(_PROMPT_TOKENS - 2)] for number in range(count)]

    def output(self, prompt: Sequence[int], tokens: int) -> list[int]:
        return [token_id(self.seed, _text(prompt), place, self.vocabulary) for place in range(tokens)]

    def correct_drafts(self, prompt: Sequence[int], position: int, steps: int) -> int:
        return Acceptance(self.seed, (self.acceptance,)).correct_drafts(_text(prompt), position, steps)
