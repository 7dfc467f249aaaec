"""The server of the moment: started with the project's own playbook, kept while it is the one that is wanted."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu.truth import Truth
from gpu.validate.budget import Budget
from gpu.validate.client import Ask, Client
from gpu.validate.machine import Machine
from gpu.validate.probe import ProbeFolder
from gpu.validate.setting import Setting
from gpu.validate.workspace import CommandError, Done, NoServerError, Workspace

__all__ = ["SERVE", "Server", "Site"]

SERVE = Path(__file__).with_name("serve.yaml")

_IDLE_S = 1.0
"""A pause (s of the server's clock) after which the next prompt makes the probe write."""
_IDLE_RANKS_S = 1.0
"""The same for several ranks, in wall time: those of the lab, where nothing holds them together, may lag a little."""
_LEAD_TOKENS = 40


class Server:
    """One that is up. `load_s`: what its load took, None where it was up already. `records`: where the probe writes, if it does."""

    def __init__(
        self, setting: Setting, client: Client, truth: Truth, records: Path | None, load_s: float | None
    ) -> None:
        self.setting, self.client, self.truth, self.load_s = setting, client, truth, load_s
        self._probe = None if records is None else ProbeFolder(records, self._flush)

    @property
    def probe(self) -> ProbeFolder:
        """Raises CommandError where the server runs without the probe."""
        if self._probe is None:
            raise CommandError(f"{self.setting.name} runs without the probe")
        return self._probe

    def _flush(self) -> None:
        time.sleep(_IDLE_S / self.client.rate if self.setting.tp_size == 1 else _IDLE_RANKS_S)
        self.client.ask(Ask(f"p=0/flush-{time.monotonic_ns()}", self.truth.prompts(1, 2)[0], 1))

    def lead(self, steps: int) -> None:
        """An unmeasured request that switches to `steps`, so that the next one has them from its first cycle."""
        if self.setting.candidates:
            rid = f"k={steps}/p=0/lead-{time.monotonic_ns()}"
            self.client.ask(Ask(rid, self.truth.prompts(1, _LEAD_TOKENS)[0], _LEAD_TOKENS))

    def about(self) -> dict[str, Any]:
        """What a result says of where it comes from."""
        simulated = self.client.rate != 1.0
        return {"setting": self.setting.name, "late": self.setting.late, "load_s": self.load_s, "simulated": simulated}


class Site:
    """A machine, the workspace of its commands, and the server that runs there now."""

    def __init__(self, machine: Machine, workspace: Workspace, say: Callable[[str], None]) -> None:
        self.machine = machine
        self.workspace = workspace
        self.say = say
        self._server: Server | None = None
        self._pristine = workspace.folder / "pristine.json"

    @property
    def setting(self) -> Setting | None:
        """Of the server that is up."""
        return None if self._server is None else self._server.setting

    @property
    def pristine(self) -> dict[str, Any]:
        """What `look` saw before anything was patched or started here. Raises CommandError before `begin`."""
        if not self._pristine.exists():
            raise CommandError("nobody looked at this machine before the first server")
        return dict(json.loads(self._pristine.read_text()))

    def begin(self, setting: Setting, budget: Budget) -> None:
        """Looks at the machine as it is before the first server; a validation that is taken up again has looked before."""
        self.aim(setting)
        if self._pristine.exists():
            return
        self.workspace.invoke("rollback", timeout=budget.limit(180))
        self._pristine.write_text(json.dumps(self.look(budget)), encoding="utf-8")

    def look(self, budget: Budget) -> dict[str, Any]:
        """sha256 of every file beside the workers, and the memory in use on the GPU of one-GPU servers (MiB)."""
        found = self.workspace.invoke("doctor", timeout=budget.limit(60)).host
        folder = Path(found["package"]) / "srt/speculative"
        files = [file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
        return {
            "files": {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
            "memory_mib": next(int(g["memory.used"]) for g in found["gpus"] if g["index"] == str(self.machine.gpu)),
        }

    def serve(self, setting: Setting, budget: Budget) -> Server:
        """A server of `setting`, loaded if need be; its client ends with `budget`.

        Raises NoServerError, CommandError, OutOfTimeError.
        """
        if self._server is None or self._server.setting != setting:
            self._server = self._start(setting, budget)
        self._server.client.budget = budget
        return self._server

    def _start(self, setting: Setting, budget: Budget) -> Server:
        self.aim(setting)
        if not setting.patched:
            self.rollback(budget)  # whatever an earlier server left there
        self._server = None
        self.say(f"server {setting.name}")
        choice = [f"patched={str(setting.patched).lower()}", f"probed={str(setting.probe and setting.patched).lower()}"]
        words = [word for variable in choice for word in ("--var", variable)]
        limit = budget.limit(500)
        try:
            done = self.workspace.invoke("play", str(SERVE), *words, timeout=limit)
        except CommandError as error:
            raise NoServerError(str(error)) from error
        client = Client(self.machine.port, budget)
        simulated = json.loads(client.get("/server_info")).get("simulated")
        client.rate = float(simulated["clock_rate"]) if simulated else 1.0
        needed = done.host["load"]["needed"]
        load_s = float(done.host["ready"]["seconds"]) if needed else None
        self.say("  " + (f"ready after {load_s} s" if needed else "was up already"))
        folder = self._probe_folder(done) if setting.patched and setting.probe else None
        return Server(setting, client, self.machine.truth(setting.acceptance), folder, load_s)

    def aim(self, setting: Setting) -> None:
        """Makes the inventory say `setting`."""
        self.workspace.inventory(self.machine.entry(setting))

    @staticmethod
    def _probe_folder(done: Done) -> Path:
        about = json.loads((Path(done.outcome["bundle"]) / "server.json").read_text())
        env = about.get("env")
        return Path(env["EAGLE3_PROFILE_DIR"] if isinstance(env, dict) else about["probe_folder"])

    def rollback(self, budget: Budget) -> None:
        """Stops the server and puts every original back."""
        self._server = None
        if (self.workspace.folder / "inventory.yaml").exists():
            self.workspace.invoke("rollback", timeout=budget.limit(180))
