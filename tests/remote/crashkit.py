"""A disk on which the agent dies before or after a given step."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

__all__ = ["STEPS", "Disk", "Killed"]

STEPS = [
    "chmod",
    "chown",
    "fchmod",
    "fchown",
    "fsync",
    "ftruncate",
    "makedirs",
    "mkdir",
    "open",
    "removexattr",
    "rename",
    "setxattr",
    "symlink",
    "unlink",
    "write",
]


class Killed(BaseException):
    """SIGKILL: no handler of the agent runs after it."""


@dataclass
class Disk:
    """Counts the steps; kills before (or after) the one at `fatal`. A write is cut in half first."""

    fatal: int = -1
    after: bool = False
    taken: list[str] = field(default_factory=list)

    def step(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def do(*args: Any, **more: Any) -> Any:
            at = len(self.taken)
            self.taken.append(name)
            if at != self.fatal:
                return None if name == "fsync" else real(*args, **more)
            if self.after:
                with contextlib.suppress(OSError):  # as of an open that finds nothing
                    done = real(*args, **more)
                    close(done if name == "open" else None)
            elif name == "write":
                real(args[0], args[1][: len(args[1]) // 2])
            raise Killed(f"{'after' if self.after else 'before'} step {at}: {name}")

        return do

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in STEPS:
            patch.setattr(os, name, self.step(name, getattr(os, name)))

    def die_in(self, work: Callable[[Any], None], host: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            self.install(patch)
            with pytest.raises(Killed):
                work(host)


def close(opened: int | None) -> None:
    """What a death does to the descriptors."""
    if opened is not None:
        os.close(opened)
