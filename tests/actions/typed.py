"""What is left of a command line that was typed in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Done"]


@dataclass
class Done:
    """What a command line left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The last line of stdout."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found
