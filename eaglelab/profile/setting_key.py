"""What tells one measured setting from another, and what it is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["SettingKey"]


@dataclass(frozen=True)
class SettingKey:
    """A step count and what else is varied.

    `steps` None is the baseline: no speculation. `variation` names the flags and variables that a sweep varies, empty
    where the server was started as the inventory says.
    """

    steps: int | None
    variation: str = ""

    @property
    def words(self) -> str:
        """In a sentence: `2 steps`, `the baseline with NCCL_ALGO=Ring`."""
        steps = "the baseline" if self.steps is None else f"{self.steps} step{'' if self.steps == 1 else 's'}"
        return f"{steps} with {self.variation}" if self.variation else steps

    @property
    def simplicity(self) -> tuple[bool, int, str]:
        """Sorts the simplest first: nothing varied, then the baseline, then fewer steps."""
        return (bool(self.variation), -1 if self.steps is None else self.steps, self.variation)

    def to_json(self) -> dict[str, Any]:
        """`steps` null is the baseline."""
        return {"steps": self.steps, "variation": self.variation}
