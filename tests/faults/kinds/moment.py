"""When a fault strikes, and what a fault may know of the place where it does."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Moment", "Scene"]

_FORM = re.compile(r"(task|op):(\w+)(?:#(\d+))?(?::(before|during|after))?(?:/(\w+)#(\d+))?")


@dataclass(frozen=True)
class Moment:
    """`task:patch`: before that task (`task:connect`: before the agent is started; `task:end`: after the last). `op:apply#2:after`: the second time that the agent is asked to apply, once it has
    done so and before its answer is read; `before`: before it is asked; `during`: as it begins. `op:apply/rename#3`:
    inside it, before its third `os.rename`."""

    kind: str
    name: str
    nth: int
    when: str
    call: tuple[str, int] | None = None

    @classmethod
    def parse(cls, text: str) -> Moment:
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"not a moment: {text!r}")
        kind, name, nth, when, call, at = found.groups()
        inside = (call, int(at)) if call else None
        return cls(kind, name, int(nth or 1), "during" if inside else when or "before", inside)

    @property
    def inside(self) -> bool:
        return self.when == "during"

    def is_now(self, kind: str, name: str, nth: int, when: str) -> bool:
        if self.kind == "task":
            return (kind, name) == (self.kind, self.name)
        return (kind, name, nth, when) == (self.kind, self.name, self.nth, self.when)


@dataclass
class Scene:
    """The host as a fault sees it, from the driver's process. `agent`: the one that stands at the gate."""

    home: str
    package: str
    state: str
    log: str
    sshd_pid_file: str
    ready_s: float
    control_folder: str
    agent: int | None = None

    @property
    def control(self) -> Path:
        return Path(self.control_folder)

    def fired(self, kind: str) -> None:
        """Notes the moment, for the harness."""
        with (self.control / "fired").open("a") as file:
            file.write(f"{time.time()} {kind}\n")

    def tell(self, verb: str) -> None:
        """Has the harness do something to the way (see `Stage._obey`), and waits until it is done."""
        request = self.control / f"{verb}.do"
        request.touch()
        while not request.with_suffix(".done").exists():
            time.sleep(0.005)
        request.with_suffix(".done").unlink()

    def sessions(self) -> list[int]:
        """Pids of the sshd processes that serve connections."""
        found, todo = [], [int(Path(self.sshd_pid_file).read_text())]
        while todo:
            pid = todo.pop()
            children = Path(f"/proc/{pid}/task/{pid}/children")
            for child in children.read_text().split() if children.exists() else []:
                comm = Path(f"/proc/{child}/comm")
                if comm.exists() and comm.read_text().startswith("sshd"):
                    todo.append(int(child))
                    found.append(int(child))
        return found

    def signal_sessions(self, number: int) -> None:
        for pid in self.sessions():
            os.kill(pid, number)

    def agents(self) -> list[int]:
        """Living agents of this host, whichever controller they serve."""
        mark = f"XDG_STATE_HOME={Path(self.state).parent}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if b"EAGLELAB-PYTHON-TOO-OLD" not in (folder / "cmdline").read_bytes():
                    continue
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found
