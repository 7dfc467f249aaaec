"""product: the project's own sweep on this host, through `connection: local` and through an sshd; its bundle stays in the workspace."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpu.validate.budget import Budget
from gpu.validate.part import Experiment, Part
from gpu.validate.results import Check, Data
from gpu.validate.setting import CANDIDATES, Setting
from gpu.validate.site import Site
from gpu.validate.workspace import CommandError

__all__ = ["experiment"]

_SETTING = Setting()
_SWEEP = ("sweep", "--steps", ",".join(map(str, CANDIDATES)))
_BENCH = ("bench", "--steps", "3", "--no-baseline")
_REQUESTS, _REPEATS, _TOKENS = 12, 6, 256


def experiment() -> Experiment:
    """A sweep with its baseline: two loads; over SSH one load."""
    return Experiment(
        "product",
        [
            Part("product-local", 300, partial(_run, words=_SWEEP, ssh=False)),
            Part("product-ssh", 130, partial(_run, words=_BENCH, ssh=True)),
        ],
        _checks,
    )


def _run(site: Site, budget: Budget, words: Sequence[str], ssh: bool) -> Data:
    site.rollback(budget)
    folder = site.workspace.folder
    entry = site.machine.entry(_SETTING)
    prompts = folder / "prompts.jsonl"
    lines = [
        json.dumps({"input_ids": ids}) for ids in site.machine.truth(_SETTING.acceptance).prompts(_REQUESTS, _TOKENS)
    ]
    prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    load = ["--num-prompts", str(_REQUESTS), "--repeats", str(_REPEATS), "--output-len", str(_TOKENS)]
    began = time.monotonic()
    server = _Sshd(folder / "sshd") if ssh else None
    try:
        site.workspace.inventory(entry if server is None else {**entry, **server.entry()})
        done = site.workspace.invoke(*words, *load, "--prompts", str(prompts), timeout=budget.limit(580), code=None)
    finally:
        if server is not None:
            server.end()
    measured = done.host.get("measured")
    return {
        "command": " ".join(words),
        "code": done.code,
        "command_s": round(time.monotonic() - began, 1),
        "bundle": Path(str(done.outcome.get("bundle", ""))).name,
        "error": done.outcome.get("error"),
        "said": done.said.splitlines()[-40:],
        "measured": measured if isinstance(measured, dict) else None,
        "sshd": None if server is None else server.version,
    }


class _Sshd:
    """OpenSSH's own server on loopback, for one key. Raises CommandError where there is none, or it does not listen."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        if not Path(program).exists() or shutil.which("ssh-keygen") is None:
            raise CommandError("there is no sshd on this machine")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        for name in ("host", "user"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(keygen, check=True, timeout=20)
        shutil.copy(folder / "user.pub", folder / "authorized")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])
        host_key = (folder / "host.pub").read_text().split()
        (folder / "known").write_text(f"[127.0.0.1]:{self._port} {host_key[0]} {host_key[1]}\n")
        settings = [
            f"Port {self._port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {folder}/host",
            f"AuthorizedKeysFile {folder}/authorized",
            f"PidFile {folder}/pid",
            "PermitRootLogin yes",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            f"SetEnv PATH={os.environ['PATH']} XDG_STATE_HOME={os.environ.get('XDG_STATE_HOME', Path.home() / '.local/state')}",
        ]
        (folder / "config").write_text("\n".join(settings) + "\n")
        Path("/run/sshd").mkdir(exist_ok=True)
        self._folder = folder
        self.version = subprocess.run([program, "-V"], capture_output=True, text=True, check=False).stderr.strip()
        log = (folder / "log").open("w")
        self._process = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "config")], stderr=log)
        log.close()
        self._listens()

    def _listens(self) -> None:
        for _ in range(50):
            with socket.socket() as way:
                if way.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.1)
        self.end()
        raise CommandError(f"sshd does not listen: {(self._folder / 'log').read_text()[-300:]}")

    def entry(self) -> dict[str, Any]:
        """What the inventory's entry of a host says of the way to it."""
        return {
            "connection": "ssh",
            "address": "127.0.0.1",
            "port": self._port,
            "user": "root",
            "key": str(self._folder / "user"),
            "known_hosts": str(self._folder / "known"),
            "ssh_config": False,
        }

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)


def _checks(results: Mapping[str, Data]) -> list[Check]:
    checks = []
    for name, data in results.items():
        if name.startswith("product-"):
            shown = f"exit {data['code']} after {data['command_s']} s, bundle {data['bundle']}"
            shown += f"; {data['sshd']}" if data["sshd"] else ""
            checks.append(
                Check(f"invoke {data['command']}, {name.removeprefix('product-')}", "exit 0", shown, data["code"] == 0)
            )
    return checks
