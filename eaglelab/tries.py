"""What the tasks of a run gave in earlier tries of it, as its bundle tells."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from eaglelab.bundle import Bundle
from eaglelab.playbook import ActionTask, Playbook

__all__ = ["Earlier", "Tries"]


@dataclass(frozen=True)
class Earlier:
    """A result, and when (unix s) its task was really done."""

    result: dict[str, Any]
    since: float

    @property
    def at(self) -> str:
        """The time of day; with the date where that is another one."""
        then, now = time.localtime(self.since), time.localtime()
        return time.strftime("%H:%M" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


class Tries:
    """The results by key.

    A key is one task of one playbook with its filled-in arguments and the playbook's variables, so that another setting
    of a benchmark, or a playbook that has changed, finds none.
    """

    def __init__(self, bundle: Bundle, playbook: Playbook, *, resumed: bool) -> None:
        self._numbers = {id(task): number for number, task in enumerate(playbook.actions())}
        self._scope = [dict(playbook.vars), dict(playbook.extra_vars)]
        events = bundle.events() if resumed else []
        self._found = {
            event["key"]: Earlier(event["result"], event.get("since", event["time"]))
            for event in events
            if event["state"] in ("ok", "held") and {"key", "result"} <= event.keys()
        }

    def key(self, task: ActionTask, args: BaseModel) -> str:
        about = [self._numbers[id(task)], task.name, task.action, args.model_dump(), self._scope]
        return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def result(self, key: str) -> Earlier | None:
        return self._found.get(key)
