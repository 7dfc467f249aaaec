"""A Slurm on loopback, run by this test as whoever runs it: munged, slurmctld and a slurmd for each node, no service."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from serverkit import free_port

__all__ = ["GPUS", "MISSING", "Cluster"]

GPUS = 2
MISSING = [
    tool
    for tool in ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
    if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin") is None
]

_CONFIG = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={run}/munge.sock
CryptoType=crypto/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=2
MinJobAge=300
MessageTimeout=2
ReturnToService=2
GresTypes=gpu
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

_NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=2000 Gres=gpu:{gpus} "
    "State=UNKNOWN"
)


@dataclass
class Cluster:
    """`folder` must be a short path: a socket lies in it. Its nodes are all this machine, and have 2 GPUs each; where there
    is but one it has the machine's name, else they are n1, n2, ..."""

    folder: Path
    nodes: int = 1
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.folder / "slurm.conf"

    def up(self) -> None:
        run = self.folder / "run"
        for path in (run, self.folder / "state"):
            path.mkdir()
        host = socket.gethostname().split(".")[0]
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        names = [f"n{number}" for number in range(1, self.nodes + 1)] if self.nodes > 1 else [host]
        for number in range(GPUS):
            (self.folder / f"gpu{number}").touch()
        nodes = "\n".join(_NODE.format(name=name, host=host, port=free_port(), gpus=GPUS) for name in names)
        values = {"host": host, "controller": free_port(), "user": getpass.getuser(), "nodes": nodes}
        self.config.write_text(_CONFIG.format(run=run, folder=self.folder, **values))
        gres = [f"NodeName={name} Name=gpu File={self.folder}/gpu[0-{GPUS - 1}]\n" for name in names]
        (self.folder / "gres.conf").write_text("".join(gres))
        (self.folder / "cgroup.conf").touch()
        words = ["--foreground", "--force", f"--key-file={key}", f"--socket={run}/munge.sock"]
        words += [f"--pid-file={run}/munged.pid", f"--log-file={run}/munged.log", f"--seed-file={run}/munged.seed"]
        self._daemon("munged", *words)
        self._until(lambda: (run / "munge.sock").exists(), "munged answers")
        self.control()
        for name in names:
            self.node(name)
        self._until(lambda: self._idle() == self.nodes, "the nodes are idle", 30)

    def node(self, name: str) -> None:
        """Starts the daemon of a node."""
        one = ("-N", name) if self.nodes > 1 else ()
        self._daemon("slurmd", "-D", "-f", str(self.config), *one, called=f"slurmd {name}")

    def _idle(self) -> int:
        rows = self.ask("sinfo", "-h", "-o", "%T %D").splitlines()
        return sum(int(count) for state, count in map(str.split, rows) if state == "idle")

    def control(self) -> None:
        """Starts the controller, which knows of earlier jobs."""
        self._daemon("slurmctld", "-D", "-f", str(self.config))

    def end(self, name: str) -> None:
        daemon = self.daemons.pop(name)
        daemon.terminate()
        daemon.wait(20)

    def down(self) -> None:
        if "slurmctld" in self.daemons:
            self.ask("scancel", "--user", getpass.getuser())
            self._until(lambda: not self.ask("squeue", "-h"), "no job is left", 30)
        for name in reversed(list(self.daemons)):
            self.end(name)

    def ask(self, *words: str) -> str:
        """What a command of Slurm prints; empty where it fails."""
        done = subprocess.run(words, env={**os.environ, "SLURM_CONF": str(self.config)}, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else ""

    def state(self, job: str) -> str:
        return self.ask("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def _daemon(self, name: str, *words: str, called: str = "") -> None:
        path = f"{os.environ['PATH']}:/usr/sbin"
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[called or name] = subprocess.Popen(
                [str(shutil.which(name, path=path)), *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "SLURM_CONF": str(self.config)},
                start_new_session=True,
            )

    def _until(self, condition, what: str, seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                said = "".join(path.read_text(errors="replace")[-500:] for path in self.folder.glob("*.log"))
                raise AssertionError(f"not within {seconds} s: {what}\n{said}")
            time.sleep(0.1)
