"""A server in a container of Docker or Podman. Patched files are mounted over the image's, read only; it stays as it is."""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

from eaglelab.remote.agent.launchers.contract import Launcher, Order, Seen, climb
from eaglelab.remote.agent.launchers.engine import (
    ask,
    exit_of,
    must_have,
    papers,
    remove_papers,
    shell_runner,
    whole_environment,
)
from eaglelab.remote.agent.launchers.image import Image, find_image, mounts
from eaglelab.remote.agent.marks import MARK
from eaglelab.remote.agent.processes import process_ids, start_ticks
from eaglelab.remote.agent.wire import AgentError, Beat

__all__ = ["ContainerLauncher"]

_POLL_S = 0.2
_END_S = 30.0


class ContainerLauncher(Launcher):
    """`record` has `name` (the container's), `engine` and `image` (its digest).

    The server shares the host's network. It sees the state folder's `runs` and `files` under their own paths, its log,
    the inventory's folders (read only), and nothing else of the host.
    """

    name = "container"

    def check(self, options: dict[str, Any], _host: str) -> None:
        must_have(options["engine"])

    def installation(self, options: dict[str, Any], targets: list[str]) -> Image:
        return find_image(self.state, options["engine"], options["image"], options["python"], targets)

    def start(self, order: Order, record: dict[str, Any]) -> dict[str, Any]:
        options = order.options
        image = self.installation(options, [])
        record.update(engine=options["engine"], image=image.id)
        self.state.write("server.json", record)
        self.clear(record)  # of a start that was cut off before it ran
        # The engine's own logs are no file that can be followed from an offset.
        script = shell_runner(order.command, "exec >>%s 2>&1" % shlex.quote(order.log))
        folder = papers(self.state, record, {"run.sh": script})
        state = self.state.folder
        seen = [(folder, folder, "ro"), (order.log, order.log, "rw")]
        seen += [(os.path.join(state, name), os.path.join(state, name), how) for name, how in _STATE_FOLDERS]
        seen += [(path, path, "ro") for path in options.get("folders", ())]
        seen += [(ours, theirs, "ro") for ours, theirs in mounts(self.state, image)]
        words = [options["engine"], "run", "--detach", "--pull=never", "--name=" + record["name"], "--network=host"]
        words += ["--user=0", "--workdir=" + folder, "--entrypoint=/bin/sh", "--label=eaglelab=" + record["mark"]]
        words += ["--volume=%s:%s:%s" % mount for mount in seen]
        # Without their values, which the engine's client takes from its own environment.
        words += ["--env=" + name for name in sorted([*order.env, MARK])]
        done = ask(
            [*words, *options.get("options", ()), image.id, os.path.join(folder, "run.sh")],
            whole_environment(order.env, record),
        )
        if not done.ok:
            self.clear(record)
            self.state.remove("server.json")
            raise AgentError("start-failed", "%s run: %s" % (options["engine"], done.error))
        return record

    def started(self, record: dict[str, Any]) -> dict[str, Any] | None:
        state = self._state(record)
        return record if state is not None and state["Status"] != "created" else None

    def see(self, record: dict[str, Any]) -> Seen:
        try:
            state = self._state(record)
        except AgentError as error:
            return Seen(there=True, unknown=error.what)
        if state is None or state["Status"] in ("created", "configured", "initialized"):
            return Seen()
        if state["Running"]:
            return Seen(alive=True, there=True, members=_inside(record, int(state["Pid"])))
        why = "the kernel killed it for want of memory" if state.get("OOMKilled") else None
        return Seen(exit=exit_of(int(state["ExitCode"]), why=why))

    def _state(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """None where there is no such container."""
        engine = record.get("engine")
        if engine is None:  # cut off before anything was run
            return None
        found = ask([engine, "container", "inspect", record["name"]])
        if found.ok:
            state: dict[str, Any] = json.loads(found.out)[0]["State"]
            return state
        if "no such container" in found.error.lower():
            return None
        raise AgentError("no-engine", "%s does not answer: %s" % (engine, found.error))

    def end(self, record: dict[str, Any], grace: float, beat: Beat) -> str:
        seen = {pid: start_ticks(pid) for pid in self.see(record).members}
        told: list[str] = []

        def left() -> set[str]:
            try:
                state = self._state(record)
            except AgentError as error:
                raise AgentError("not-stopped", "nothing is proven: %s" % error.what) from error
            alive = {"process %d" % pid for pid, start in seen.items() if start and start_ticks(pid) == start}
            return alive | ({"container " + record["name"]} if state is not None and state["Running"] else set())

        def send(signal: str) -> None:
            if signal not in told:
                ask([record["engine"], "kill", "--signal=" + signal, record["name"]])
                told.append(signal)

        return climb(self, left, lambda _: send("TERM"), lambda *_: send("KILL"), grace, beat, _POLL_S, _END_S)

    def clear(self, record: dict[str, Any]) -> None:
        if self._state(record) is not None:
            ask([record["engine"], "rm", "--force", record["name"]])
        remove_papers(self.state, record["name"])


_STATE_FOLDERS = (("runs", "rw"), ("files", "ro"))


def _inside(record: dict[str, Any], first: int) -> frozenset[int]:
    """Processes in the container, by their numbers on this host."""
    space = _pid_namespace(first)
    if space is not None and space != _pid_namespace(os.getpid()):
        return frozenset(pid for pid in process_ids() if _pid_namespace(pid) == space)
    # Another user's: the engine itself may look.
    which = ["-eo", "pid"] if record["engine"] == "docker" else ["hpid"]
    rows = ask([record["engine"], "top", record["name"], *which]).out.split()
    return frozenset(int(row) for row in rows if row.isdigit())


def _pid_namespace(pid: int) -> str | None:
    try:
        return os.readlink("/proc/%d/ns/pid" % pid)
    except OSError:
        return None
