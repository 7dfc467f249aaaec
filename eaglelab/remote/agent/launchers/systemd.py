"""A server as a unit of systemd: a transient one, or an existing one whose command a drop-in replaces until the stop."""

from __future__ import annotations

import os
import shlex
from typing import Any

from eaglelab.remote.agent.files import os_error, read_bytes
from eaglelab.remote.agent.launchers.contract import Launcher, Order, Seen, climb
from eaglelab.remote.agent.launchers.engine import Answer, ask, exit_of, must_have, papers, remove_papers
from eaglelab.remote.agent.marks import MARK
from eaglelab.remote.agent.processes import process_ids, start_ticks, user_name
from eaglelab.remote.agent.wire import AgentError, Beat
from eaglelab.remote.agent.writing import write_new

__all__ = ["SystemdLauncher"]

_PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "MainPID", "ControlGroup", "Result", "User", "DynamicUser"),
    *("ExecMainCode", "ExecMainStatus", "ExecMainStartTimestampMonotonic"),
)
_OWN_RESULTS = ("success", "exit-code", "signal", "core-dump")
"""Of a server that ended by itself; all other results are systemd's doing."""

_DROP_IN = "90-eaglelab.conf"
_LOGIN = ("PATH", "HOME", "USER", "LANG")
_LOOK_S = 0.1


class SystemdLauncher(Launcher):
    """`record` has `name`, `unit` (the unit's name) and `user` (whether it is the user's own manager's).

    An existing unit is ours as long as the drop-in with our mark is in place, and no longer.
    """

    name = "systemd"

    def check(self, options: dict[str, Any], _host: str) -> None:
        must_have("systemctl", "systemd-run")
        user, unit = options["user"], options.get("unit")
        me = user_name(os.geteuid())
        if not user and os.geteuid() != 0:
            raise AgentError("no-engine", "only root may start units of the system, and you are %s there" % me)
        if user and not os.path.exists("/var/lib/systemd/linger/" + me):
            raise AgentError(
                "no-engine", "what %s starts ends with the login: lingering is off" % me, mend="loginctl enable-linger"
            )
        found = self._show(unit or "eaglelab.service", user)
        if unit is None:
            return
        if found["LoadState"] != "loaded":
            raise AgentError("no-engine", "there is no unit %s (%s)" % (unit, found["LoadState"]))
        if not user and (found.get("User") not in ("", "root", None) or found.get("DynamicUser") == "yes"):
            raise AgentError(
                "no-engine", "%s runs as %s, who may not write where the probe does" % (unit, found["User"] or "nobody")
            )

    def start(self, order: Order, record: dict[str, Any]) -> dict[str, Any]:
        options = order.options
        unit = options.get("unit") or record["name"] + ".service"
        if "%" in order.log + order.cwd:
            raise AgentError("start-failed", "systemd would take the %% in %s for a word of its own" % order.log)
        self.check(options, "")
        if self._show(unit, options["user"])["ActiveState"] not in ("inactive", "failed"):
            what = "%s is active, and eaglelab did not start it" % unit
            raise AgentError("running", what, mend="systemctl stop %s" % unit)
        record.update(unit=unit, user=options["user"], existing=options.get("unit") is not None)
        self.state.write("server.json", record)
        folder = papers(self.state, record, {"run.sh": _script(order, record["mark"])})
        run = "/bin/sh %s" % os.path.join(folder, "run.sh")
        lines = {"WorkingDirectory": order.cwd, "StandardOutput": "append:" + order.log, "Restart": "no"}
        lines.update(StandardError="append:" + order.log, RemainAfterExit="yes", **options.get("properties", {}))
        if record["existing"]:
            self._write_drop_in(record, run, lines)
            done = self._call(record, "start", unit)
        else:
            words = ["systemd-run", *_scope(record), "--quiet", "--unit=" + unit, "--service-type=exec"]
            words += ["--property=%s=%s" % line for line in lines.items()]
            done = ask([*words, *run.split(" ", 1)], _environment(record["user"]))
        if not done.ok:
            self.clear(record)
            self.state.remove("server.json")
            raise AgentError("start-failed", "systemd: %s" % done.error)
        # Once its first process is gone systemd no longer says where the rest is.
        record["group"] = self._show(unit, record["user"])["ControlGroup"]
        self.state.write("server.json", record)
        return record

    def _write_drop_in(self, record: dict[str, Any], run: str, lines: dict[str, str]) -> None:
        path = _drop_in(record)
        replaced = ["ExecStart=", "ExecStart=" + run, "ExecStop=", "ExecStopPost=", "Type=exec"]
        text = ["# eaglelab: " + record["mark"], "[Service]", *replaced]
        text += ["%s=%s" % line for line in lines.items()]
        self.state.note("drop-in", run=record["run"], path=path)  # before it is there
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise os_error(error, "cannot make %s" % os.path.dirname(path)) from error
        write_new(path, "\n".join([*text, ""]).encode(), 0o644)
        self._call(record, "daemon-reload")

    def started(self, record: dict[str, Any]) -> dict[str, Any] | None:
        if not self._is_ours(record):
            return None
        about = self._show(record["unit"], record["user"])
        return record if about.get("ExecMainStartTimestampMonotonic", "0") not in ("", "0") else None

    def see(self, record: dict[str, Any]) -> Seen:
        if not self._is_ours(record):
            return Seen()
        try:
            about = self._show(record["unit"], record["user"])
        except AgentError as error:
            return Seen(there=True, unknown=error.what)
        members = _in_group(about.get("ControlGroup") or record.get("group", ""))
        main = int(about.get("MainPID") or 0)
        alive = main in members
        return Seen(alive, bool(members), members, exit=None if alive else _ended(about))

    def _is_ours(self, record: dict[str, Any]) -> bool:
        """An existing unit without our drop-in is run by somebody else by now."""
        if record.get("unit") is None:  # cut off before anything was run
            return False
        return not record["existing"] or _mark_in(_drop_in(record)) == record["mark"]

    def end(self, record: dict[str, Any], grace: float, beat: Beat) -> str:
        unit = record["unit"]
        seen = {pid: start_ticks(pid) for pid in self.see(record).members}
        told: list[str] = []

        def left() -> set[int]:
            now = self.see(record)
            if now.unknown is not None:
                raise AgentError("not-stopped", "nothing is proven: %s" % now.unknown)
            return set(now.members) | {pid for pid, start in seen.items() if start and start_ticks(pid) == start}

        def tell(what: str, *words: str) -> None:
            if what not in told:
                self._call(record, *words, unit)
                told.append(what)

        def term(_: set[int]) -> None:
            if self.see(record).alive:
                tell("main", "kill", "--kill-who=main", "--signal=TERM")
            else:
                tell("rest", "kill", "--signal=TERM")

        return climb(self, left, term, lambda *_: tell("kill", "kill", "--signal=KILL"), grace, beat, _LOOK_S)

    def clear(self, record: dict[str, Any]) -> None:
        if self._is_ours(record):
            self._call(record, "stop", record["unit"])
            self._call(record, "reset-failed", record["unit"])
            if record["existing"]:
                self._remove_drop_in(record)
        remove_papers(self.state, record["name"])

    def _remove_drop_in(self, record: dict[str, Any]) -> None:
        path = _drop_in(record)
        try:
            os.unlink(path)
            os.rmdir(os.path.dirname(path))
        except OSError as error:
            if os.path.exists(path):
                raise os_error(error, "cannot remove the drop-in %s" % path) from error
        self._call(record, "daemon-reload")
        self.state.note_if_possible("drop-in removed", run=record["run"], path=path)

    def _show(self, unit: str, user: bool) -> dict[str, str]:
        record = {"user": user}
        found = self._call(record, "show", "--property=" + ",".join(_PROPERTIES), unit)
        if not found.ok:
            raise AgentError("no-engine", "systemd does not answer: %s" % found.error)
        return dict(line.split("=", 1) for line in found.out.splitlines() if "=" in line)

    def _call(self, record: dict[str, Any], *words: str) -> Answer:
        return ask(["systemctl", *_scope(record), *words], _environment(record["user"]))


def _scope(record: dict[str, Any]) -> list[str]:
    return ["--user"] if record["user"] else []


def _environment(user: bool) -> dict[str, str]:
    """A login by SSH that is no session of its own does not say where the user's manager is."""
    found = dict(os.environ)
    if user:
        found.setdefault("XDG_RUNTIME_DIR", "/run/user/%d" % os.geteuid())
    return found


def _drop_in(record: dict[str, Any]) -> str:
    """Below /run: a reboot takes it away, too."""
    base = "/run/systemd/system"
    if record["user"]:
        base = os.path.join(_environment(True)["XDG_RUNTIME_DIR"], "systemd", "user")
    return os.path.join(base, record["unit"] + ".d", _DROP_IN)


def _mark_in(path: str) -> str | None:
    try:
        first = read_bytes(path).split(b"\n", 1)[0].decode(errors="replace")
    except AgentError:
        return None
    return first[len("# eaglelab: ") :] if first.startswith("# eaglelab: ") else None


def _script(order: Order, mark: str) -> bytes:
    """Variables stand in here, mode 0600: those of a unit can be read by every user of the host."""
    login = {name: os.environ[name] for name in _LOGIN if name in os.environ}
    env = dict(login, **dict(order.env, **{MARK: mark}))
    lines = ["#!/bin/sh", *("export %s=%s" % (name, shlex.quote(value)) for name, value in env.items())]
    lines.append("exec " + " ".join(shlex.quote(word) for word in order.command))
    return ("\n".join(lines) + "\n").encode()


def _in_group(group: str) -> frozenset[int]:
    """Living processes of a control group and of those below it."""
    found = set()
    for pid in process_ids() if group.strip("/") else ():
        try:
            with open("/proc/%d/cgroup" % pid) as file:
                groups = [line.rstrip("\n").split(":", 2) for line in file]
        except OSError:
            continue
        paths = [path for _, kind, path in groups if kind in ("", "name=systemd")]
        if any(path == group or path.startswith(group + "/") for path in paths) and start_ticks(pid) is not None:
            found.add(pid)
    return frozenset(found)


def _ended(about: dict[str, str]) -> dict[str, Any] | None:
    code, status, result = about.get("ExecMainCode"), int(about.get("ExecMainStatus") or 0), about.get("Result", "")
    why = None if result in _OWN_RESULTS else "systemd says: %s" % result
    if code == "1":
        return exit_of(status, why=why)
    if code in ("2", "3"):
        return exit_of(0, status, why)
    return None
