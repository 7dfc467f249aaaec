"""What a host does while it waits for others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eaglelab.context import Context

__all__ = ["SIGN_S", "Idle"]

SIGN_S = 60.0
"""How often a host that waits is told that somebody is still there: its agent ends after five minutes of silence."""


@dataclass
class Idle:
    """Called a few times a second while `whom` is waited for: it can be ended there, and gives a sign of life now and then."""

    context: Context
    whom: str
    _said: float = field(init=False)

    def __post_init__(self) -> None:
        self._said = self.context.clock()

    def __call__(self) -> None:
        context = self.context
        context.sleep(0)
        context.say.progress(f"waiting for {self.whom}")
        if context.clock() - self._said >= SIGN_S:
            self._said = context.clock()
            context.client.doing(f"wait for {self.whom}")
