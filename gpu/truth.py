"""What a pair of models with known drafts must do with a prompt, to the token and to the cycle. Pure.

Two pairs are known so well: the crafted one (`CraftedTruth`, for a real GPU) and the embedded lab's (`lab_truth.py`).
What follows from either is the same arithmetic, so the rehearsal on the lab is one of the whole comparison.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

__all__ = ["CraftedTruth", "Cycle", "Truth", "craft_truth", "decode", "histograms", "seen_by_client", "thrown_away"]

PROMPT_TOKENS = 32
"""Length of a prompt. The crafted models look at its last token only; the rest is there to be prefilled."""

_BETWEEN_PROMPTS = 32
"""Tokens left free between two prompts' stretches, for what is drafted or made beyond a request's end."""


class Truth(Protocol):
    """A pair of models whose tokens and right drafts are known."""

    @property
    def acceptance(self) -> float:
        """P, the chance that a draft is right, whatever came before: S_k is P^k."""

    def prompts(self, count: int, tokens: int) -> list[list[int]]:
        """`count` prompts (token ids) whose answers of `tokens` tokens tell of different tokens, as far as there are enough."""

    def output(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """The greedy answer (token ids)."""

    def correct_drafts(self, prompt: Sequence[int], position: int, steps: int) -> int:
        """How many of `steps` drafts are right in the cycle that starts when `position` (>= 1) tokens of output are there."""


@dataclass(frozen=True)
class Cycle:
    """One decode cycle of one request: the draft steps that it ran with and how many drafts were right."""

    steps: int
    correct: int

    @property
    def tokens(self) -> int:
        """What it makes, bonus token included."""
        return self.correct + 1


@dataclass(frozen=True)
class CraftedTruth:
    """The crafted pair: `order` is one long circle of all tokens, and after each token comes the next one of the circle.

    The draft knows the circle too, but for the tokens in `wrong`: what it drafts after one of those is wrong. Each token
    is in `wrong` with the chance 1 - P, independently. A cycle looks at tokens that no other cycle of the stretch looks
    at, so the right drafts of the cycles are independent of each other and of the place, and S_k is P^k.
    """

    acceptance: float
    seed: int
    order: tuple[int, ...]
    wrong: frozenset[int]

    @cached_property
    def _place(self) -> Mapping[int, int]:
        return {token: place for place, token in enumerate(self.order)}

    def _at(self, place: int) -> int:
        return self.order[place % len(self.order)]

    def next(self, token: int) -> int:
        """The token that the target says after `token`."""
        return self._at(self._place[token] + 1)

    def prompts(self, count: int, tokens: int) -> list[list[int]]:
        """Prompts that end at places of the circle far enough apart; the circle is walked again where it is too short."""
        stretch = tokens + _BETWEEN_PROMPTS
        ends = [number * stretch + PROMPT_TOKENS for number in range(count)]
        return [[self._at(end - back) for back in reversed(range(PROMPT_TOKENS))] for end in ends]

    def output(self, prompt: Sequence[int], tokens: int) -> list[int]:
        start = self._place[prompt[-1]] + 1
        return [self._at(start + number) for number in range(tokens)]

    def correct_drafts(self, prompt: Sequence[int], position: int, steps: int) -> int:
        last = self._place[prompt[-1]] + position
        return next((draft for draft in range(steps) if self._at(last + draft) in self.wrong), steps)

    def save(self, path: Path) -> None:
        """As JSON: `acceptance`, `seed`, `order` (token ids round the circle) and `wrong` (token ids, ascending)."""
        about = {"acceptance": self.acceptance, "seed": self.seed, "order": self.order, "wrong": sorted(self.wrong)}
        path.write_text(json.dumps(about), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> CraftedTruth:
        """What `save` wrote. Raises OSError, ValueError or KeyError."""
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(found["acceptance"], found["seed"], tuple(found["order"]), frozenset(found["wrong"]))


def craft_truth(vocabulary: int, acceptance: float, seed: int) -> CraftedTruth:
    """Draws the circle and the tokens that the draft gets wrong, from `seed` alone.

    One seed gives the same circle for every acceptance (so one target serves several drafts), and what is wrong at a
    high acceptance is wrong at a lower one too. Raises ValueError where the pair cannot be made.
    """
    if vocabulary < 2 or not 0 <= acceptance <= 1:
        raise ValueError("a vocabulary of at least 2 and an acceptance between 0 and 1 are needed")
    order = list(range(vocabulary))
    random.Random(f"{seed}/order").shuffle(order)  # noqa: S311 - a known truth, not a secret
    draws = random.Random(f"{seed}/wrong")  # noqa: S311
    wrong = frozenset(token for token in range(vocabulary) if draws.random() >= acceptance)
    if len(wrong) == 1:
        raise ValueError("a single wrong token cannot be crafted: wrong tokens take each other's places")
    return CraftedTruth(acceptance, seed, tuple(order), wrong)


def decode(
    truth: Truth, prompt: Sequence[int], tokens: int, steps: int, *, late: bool, old: tuple[int, int] = (0, 0)
) -> list[Cycle]:
    """Every decode cycle that a worker makes for a request of `tokens` tokens (at least 2), in order.

    The first token is the prefill's. A worker that knows at once when a request is over (v1, `late` False) cuts the right
    drafts of its last cycle there. One that learns it `late` (v2 with overlap) keeps what is beyond the end, and makes one
    more cycle meanwhile. `old`: (steps, cycles), the step count before and how many cycles still run with it.
    """
    if tokens < 2:
        raise ValueError("a request of one token has no decode cycle of its own")
    old_steps, old_cycles = old
    position, cycles, over = 1, list[Cycle](), False
    while not over:
        over = position >= tokens
        if over and not late:
            break
        active = old_steps if len(cycles) < old_cycles else steps
        correct = truth.correct_drafts(prompt, position, active)
        if not late:
            correct = min(correct, tokens - position - 1)
        cycles.append(Cycle(active, correct))
        position += correct + 1
    return cycles


def seen_by_client(cycles: Sequence[Cycle], *, late: bool) -> list[Cycle]:
    """The cycles that count for the client (`spec_verify_ct`): without the one that a late worker makes after the end."""
    return list(cycles[:-1] if late else cycles)


def thrown_away(cycles: Sequence[Cycle], tokens: int) -> int:
    """Tokens that the cycles of a request made and its client never sees."""
    return sum(cycle.tokens for cycle in cycles) - (tokens - 1)


def histograms(cycles: Iterable[Cycle]) -> dict[int, list[int]]:
    """For each step count: how often 0, 1, ... steps drafts were right, as the probe's `correct_hist` has it.

    For a batch the cycles of all its requests: the probe counts request-cycles.
    """
    counts: dict[int, Counter[int]] = {}
    for cycle in cycles:
        counts.setdefault(cycle.steps, Counter())[cycle.correct] += 1
    return {steps: [found[correct] for correct in range(steps + 1)] for steps, found in sorted(counts.items())}
