"""In which order the settings of one load are measured: rounds in which they take turns.

Whatever drifts (clocks, temperature, neighbours) then falls on all alike: every second round goes through the settings
backwards (A-B-C, C-B-A), and with and without the probe each come first as often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Slot", "requests_a_round", "schedule"]

_SWITCH_TOKENS = 16


@dataclass(frozen=True)
class Slot:
    """Requests sent together: `prompts` (indexes) under one setting. `steps` None: as the server was started.

    `round` is equal for all settings that are compared with each other; None for what is not counted: warming up, and
    the few `tokens` (None: as many as asked for) after which a server has surely switched its step count.
    """

    steps: int | None
    measured: bool
    prompts: tuple[int, ...]
    round: int | None
    tokens: int | None = None


def requests_a_round(num_prompts: int, concurrency: int, rounds: int) -> int:
    """How many requests a round holds, so that `rounds` of them hold at least `num_prompts` and `concurrency` are always at work.

    A multiple of the concurrency: a round that ends with fewer would be measured at another one.
    """
    return concurrency * math.ceil(num_prompts / (rounds * concurrency))


def schedule(
    steps: Sequence[int | None],
    *,
    prompts: int,
    num_prompts: int,
    concurrency: int,
    rounds: int,
    warmup: int,
    probed: bool,
    switching: bool = False,
) -> list[Slot]:
    """All slots of one load at one concurrency. `prompts`: how many there are to choose from; they are used in turn.

    Every setting gets the same prompts in a round. `warmup` requests of each setting come first, unmeasured.
    `switching`: requests choose the step count; up to SGLang 0.5.12 the first cycles of a request still have the one before.
    """
    size = requests_a_round(num_prompts, concurrency, rounds)
    probes = (False, True) if probed else (False,)
    warm = tuple(-1 - number % prompts for number in range(warmup))
    slots = [Slot(count, False, tuple(at % prompts for at in warm), None) for count in steps if warm]
    for number in range(rounds):
        chosen = tuple((number * size + at) % prompts for at in range(size))
        order = list(enumerate(steps))
        for place, count in order if number % 2 == 0 else reversed(order):
            turn = probes if (number + place) % 2 == 0 else probes[::-1]
            if switching:
                slots.append(Slot(count, False, chosen[:1], None, _SWITCH_TOKENS))
            slots += [Slot(count, measured, chosen, number) for measured in turn]
    return slots
