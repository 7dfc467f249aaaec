"""What a host does while it waits for others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eaglelab.context import Context

__all__ = ["LOOK_S", "SIGN_S", "Idle", "Sign"]

LOOK_S = 5.0
"""How often a host that waits is asked whether it is this run's still: somebody may have taken its lock over."""

SIGN_S = 60.0
"""How often the holder of the lock says what it is at."""


@dataclass
class Sign:
    """Called a few times a second by who waits: it can be ended there, it hears of it when the host's lock was taken over
    (LockLost), and its agent, which ends after five minutes of silence, hears of it. A lost link ends no waiting."""

    context: Context
    _looked: float = field(init=False)

    def __post_init__(self) -> None:
        self._looked = self.context.clock()

    def __call__(self) -> None:
        context = self.context
        context.sleep(0)
        if context.clock() - self._looked >= LOOK_S:
            context.client.look()
            self._looked = context.clock()


@dataclass
class Idle:
    """The same while `whom` is waited for, which is said: on the screen, and to who looks at the host."""

    context: Context
    whom: str
    _sign: Sign = field(init=False)
    _said: float = field(init=False)

    def __post_init__(self) -> None:
        self._sign, self._said = Sign(self.context), self.context.clock()

    def __call__(self) -> None:
        context = self.context
        self._sign()
        context.say.progress(f"waiting for {self.whom}")
        if context.clock() - self._said >= SIGN_S:
            self._said = context.clock()
            context.client.doing(f"wait for {self.whom}")
