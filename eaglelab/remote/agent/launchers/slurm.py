"""A server as a job of Slurm: sbatch puts it into the queue, squeue and scontrol tell how it is, scancel ends it.

The node must see the same files as this host (SGLang, the log, the state folder). The job's script looks for itself,
and ends before the server is started where it does not.
"""

from __future__ import annotations

import os
import shlex
import socket
from typing import Any

from eaglelab.remote.agent.files import sha256_of
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
from eaglelab.remote.agent.launchers.slurm_apart import apart, told
from eaglelab.remote.agent.launchers.slurm_queue import asked_for, pairs, waited
from eaglelab.remote.agent.manifest import manifest_entries
from eaglelab.remote.agent.processes import start_ticks, user_name
from eaglelab.remote.agent.wire import AgentError, Beat

__all__ = ["SlurmLauncher"]

_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_RUNNING = ("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
_OWN_END = ("COMPLETED", "FAILED")
"""States of a job that ended by itself; in all other final ones Slurm, or somebody, ended it."""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_KILL_S = 120.0
"""Slurm itself waits between TERM and KILL (KillWait, 30 s by default), and then for the node's epilog."""
_PAUSE_S = 0.5


class SlurmLauncher(Launcher):
    """`record` has `name` (the job's), and `job` (its number) once that is known."""

    name = "slurm"
    here = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._nodes: dict[str, dict[str, str]] = {}

    def check(self, options: dict[str, Any], host: str) -> None:
        must_have("sbatch", "squeue", "scontrol", "scancel")
        partition = ["-p", options["partition"]] if options.get("partition") else []
        nodes = ask(["sinfo", "-h", "-N", "-o", "%N", *partition])
        if not nodes.ok:
            raise AgentError("no-engine", "Slurm does not answer: %s" % nodes.error)
        names = set(nodes.out.split())
        if not names:
            raise AgentError("no-engine", "Slurm has no node in partition %s" % options.get("partition", "(default)"))
        if host in _LOOPBACK and not all(_is_here(self._node(name)) for name in names):
            raise AgentError(
                "not-reachable",
                "a server that binds to %s on a node of Slurm cannot be reached from here" % host,
            )

    def start(self, order: Order, record: dict[str, Any]) -> dict[str, Any]:
        record.update(job=None, apart=bool(order.options.get("apart")))
        self.state.write("server.json", record)
        folder = papers(self.state, record, {})
        how = os.path.join(folder, "exit.json")
        if record["apart"]:
            own = apart(self.state, folder, order.command, order.port, order.log, order.options["idle"])
            before = "%s\n%s" % (self._same_files(folder), own.before)
            script = shell_runner(own.command, before, how, own.beside, own.after)
        else:
            script = shell_runner(order.command, self._same_files(folder), how)
        papers(self.state, record, {"job.sh": script})
        words = ["sbatch", "--parsable", "--job-name=" + record["name"], "--comment=eaglelab run %s" % record["run"]]
        words += ["--output=" + order.log.replace("%", "%%"), "--open-mode=append", "--chdir=" + order.cwd]
        words += ["--export=ALL", "--nodes=1", "--ntasks=1", "--no-requeue", *asked_for(order.options)]
        done = ask([*words, os.path.join(folder, "job.sh")], whole_environment(order.env, record))
        if not done.ok:
            # It may have been taken all the same, with the answer lost on its way.
            if self.started(record) is None:
                self.clear(record)
                self.state.remove("server.json")
                raise AgentError("start-failed", "sbatch: %s" % done.error)
            return record
        record["job"] = done.out.strip().split(";")[0]
        self.state.write("server.json", record)
        return record

    def _same_files(self, folder: str) -> str:
        """Shell lines that end the job with a reason on a node that sees other files than this host does."""
        here = socket.gethostname()
        entries = manifest_entries(self.state.home)
        wanted = [(sha256_of(path), path) for path in (entry["path"] for entry in entries)]
        sums = "\n".join("%s  %s" % (digest, path) for digest, path in wanted if digest is not None)
        refuse = "eaglelab: this node does not see the same %s as " + here + ": both need one file system with it"
        lines = []
        if sums:
            lines.append(
                "printf '%%s\\n' %s | sha256sum --status -c || { echo %s; exit 97; }"
                % (shlex.quote(sums), shlex.quote(refuse % "SGLang"))
            )
        lines.append(
            "[ -f %s ] || { echo %s; exit 97; }"
            % (shlex.quote(os.path.join(folder, "job.sh")), shlex.quote(refuse % ("folder " + self.state.folder)))
        )
        return "\n".join(lines)

    def started(self, record: dict[str, Any]) -> dict[str, Any] | None:
        if record.get("job") is None:
            job = self._find(record)
            if job is None:
                return None
            record["job"] = job
            self.state.write("server.json", record)
        return record

    def _find(self, record: dict[str, Any]) -> str | None:
        found = ask(["squeue", "-h", "-t", "all", "-u", _me(), "--name=" + record["name"], "-o", "%i"])
        if not found.ok:
            raise AgentError("no-engine", "Slurm does not answer: %s" % found.error)
        jobs = found.out.split()
        return jobs[0] if jobs else None

    def see(self, record: dict[str, Any]) -> Seen:
        try:
            job = record.get("job") or self._find(record)
            about = self._about(job) if job else {}
        except AgentError as error:
            return Seen(there=True, unknown=error.what)
        state = about.get("JobState", "")
        if state in _WAITING:
            return Seen(alive=True, there=True, queued="%s (%s)" % (state.lower(), about.get("Reason", "no reason")))
        if state in _RUNNING or state == "COMPLETING":
            return self._running(record, about, alive=state != "COMPLETING")
        return Seen(exit=self._ended(record, about))

    def _running(self, record: dict[str, Any], about: dict[str, str], alive: bool) -> Seen:
        name = about.get("BatchHost") or about.get("NodeList", "")
        node = self._node(name)
        members: frozenset[int] = frozenset()
        if _is_here(node):
            members = _processes(about["JobId"])
        address = node.get("NodeAddr")
        seen = Seen(alive=alive, there=True, members=members, address=address, node=name)
        if not record.get("apart"):
            return seen
        own = told(self.state, record)
        return seen._replace(port=own.port, gpus=own.gpus, waited=waited(about))

    def _about(self, job: str) -> dict[str, str]:
        """What Slurm says of a job; empty once it has forgotten it."""
        found = ask(["scontrol", "-o", "show", "job", job])
        if found.ok:
            return pairs(found.out)
        if "Invalid job id" not in found.error:
            raise AgentError("no-engine", "Slurm does not answer: %s" % found.error)
        from shutil import which  # here, for the sake of hosts without Slurm

        if which("sacct") is None:
            return {}
        past = ask(["sacct", "-n", "-P", "-X", "-j", job, "-o", "State,ExitCode"])
        row = past.out.strip().split("|") if past.ok else []
        # `CANCELLED by 1000`
        return {"JobId": job, "JobState": row[0].split()[0], "ExitCode": row[1]} if len(row) == 2 and row[0] else {}

    def _ended(self, record: dict[str, Any], about: dict[str, str]) -> dict[str, Any] | None:
        if about:
            code, _, signal = about.get("ExitCode", "0:0").partition(":")
            state = about["JobState"]
            why = None if state in _OWN_END else "Slurm ended job %s: %s" % (about.get("JobId"), state.lower())
            why = (told(self.state, record).why if record.get("apart") else None) or why
            return exit_of(int(code), int(signal or 0) or None, why)
        found = self.state.read(os.path.join("launch", record["name"], "exit.json"))
        return dict(found, why=None) if found else None

    def _node(self, name: str) -> dict[str, str]:
        if name not in self._nodes:
            found = ask(["scontrol", "-o", "show", "node", name])
            if not found.ok:
                return {}
            self._nodes[name] = pairs(found.out)
        return self._nodes[name]

    def end(self, record: dict[str, Any], grace: float, beat: Beat) -> str:
        chosen = ["--name=" + record["name"], "-u", _me()]
        seen = {pid: start_ticks(pid) for pid in self.see(record).members}
        done: list[str] = []

        def left() -> set[str]:
            found = ask(["squeue", "-h", *chosen, "-o", "job %i"])
            if not found.ok:
                raise AgentError("not-stopped", "Slurm does not answer, so nothing is proven: %s" % found.error)
            alive = {"process %d" % pid for pid, start in seen.items() if start and start_ticks(pid) == start}
            return set(found.out.splitlines()) | alive

        def term(_: set[str]) -> None:
            if not done:
                ask(["scancel", "--state=PENDING", *chosen])
                # To the script alone, which hands it on to the server's first process.
                ask(["scancel", "--signal=TERM", "--batch", *chosen])
                done.append("term")

        def kill(*_: Any) -> None:
            if "kill" not in done:
                ask(["scancel", *chosen])
                done.append("kill")

        return climb(self, left, term, kill, grace, beat, _PAUSE_S, _KILL_S)

    def clear(self, record: dict[str, Any]) -> None:
        remove_papers(self.state, record["name"])


def _processes(job: str) -> frozenset[int]:
    """Those of a job that runs on this very host."""
    rows = ask(["scontrol", "listpids", job]).out.splitlines()[1:]
    return frozenset(int(row.split()[0]) for row in rows if row.split() and row.split()[0].isdigit())


def _is_here(node: dict[str, str]) -> bool:
    return node.get("NodeHostName") in (socket.gethostname(), socket.gethostname().split(".")[0])


def _me() -> str:
    return user_name(os.getuid())
