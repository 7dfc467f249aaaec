"""faults: whatever goes wrong, the files are what they were before, nothing runs on and the GPU's memory is free."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gpu.validate.budget import Budget
from gpu.validate.client import Ask, ServerError
from gpu.validate.part import Experiment, Part
from gpu.validate.results import Check, Data
from gpu.validate.setting import CANDIDATES, Setting
from gpu.validate.site import SERVE, Site
from gpu.validate.workspace import CommandError

__all__ = ["experiment"]

_SETTING = Setting()
_RUNNING = Setting(candidates=CANDIDATES)
_LONG = 7000
"""Tokens of a request that is still running when the rollback comes."""
_MEMORY_MIB = 64
"""GPU memory that may differ: the driver's own comes and goes."""


def experiment() -> Experiment:
    """The rollback shares a load with what was measured before it."""
    parts = [
        Part("faults-rollback", 15, _rollback_while_it_runs, _RUNNING),
        Part(
            "faults-killed",
            60,
            partial(
                _failed_load, fault="server killed in the middle of its load", setting=lambda _: _SETTING, spoil=_kill
            ),
        ),
        Part("faults-memory", 110, partial(_failed_load, fault="asked for too much memory", setting=_too_much)),
    ]
    return Experiment("faults", parts, _checks)


def _too_much(site: Site) -> Setting:
    return replace(_SETTING, flags=site.machine.too_much)


def _kill(site: Site, budget: Budget) -> None:
    """Ends the server in the middle of its load. Its pid stands in the record that its keeper has just written."""
    record = site.machine.state / "server.json"
    began = time.time()
    while True:
        pid = _pid(record, since=began - 30)
        if pid is not None:
            time.sleep(site.machine.mid_load)
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(min(0.1, budget.limit(0.1)))


def _pid(record: Path, since: float) -> int | None:
    try:
        found = json.loads(record.read_text())
    except (OSError, ValueError):
        return None
    return found.get("pid") if found.get("time", 0) > since else None


def _failed_load(
    site: Site,
    budget: Budget,
    fault: str,
    setting: Callable[[Site], Setting],
    spoil: Callable[[Site, Budget], None] | None = None,
) -> Data:
    """A deployment whose server does not come up: the command must fail and have put everything back by itself."""
    wanted = setting(site)
    site.rollback(budget)
    site.aim(wanted)
    command = site.workspace.start("play", str(SERVE), "--json")
    try:
        if spoil is not None:
            spoil(site, budget)
    finally:
        done = site.workspace.end(command, timeout=max(30.0, budget.left))
    error = done.outcome.get("error", {})
    return {
        "fault": fault,
        "code": done.code,
        "said": error.get("what", "nothing"),
        **_afterwards(site, budget),
    }


def _rollback_while_it_runs(site: Site, budget: Budget) -> Data:
    server = site.serve(_RUNNING, budget)
    began, ends = time.monotonic(), list[str]()

    def ask() -> None:
        how = "came to its end"
        try:
            server.client.ask(Ask("k=3/cut-off", server.truth.prompts(1, _LONG)[0], _LONG))
        except (ServerError, ValueError):
            how = "was cut off"
        ends.append(f"the request {how} after {time.monotonic() - began:.1f} s")

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(2 / server.client.rate)
    asked = time.monotonic() - began
    try:
        site.rollback(budget)
        took = time.monotonic() - began
    finally:
        thread.join()
    said = f"{ends[0]}, the rollback was asked for after {asked:.1f} s and done after {took:.1f} s"
    return {"fault": "rollback while a request runs", "code": 0, "said": said, **_afterwards(site, budget)}


def _afterwards(site: Site, budget: Budget) -> Data:
    """What is left, once the driver has had a moment to give the memory back."""
    now = site.look(budget)
    for _ in range(5):
        if now["memory_mib"] - site.pristine["memory_mib"] <= _MEMORY_MIB:
            break
        time.sleep(1)
        now = site.look(budget)
    status = site.workspace.invoke("status", timeout=budget.limit(60)).host
    before = site.pristine["files"]
    changed = sorted(name for name in before.keys() | now["files"].keys() if before.get(name) != now["files"].get(name))
    return {
        "changed_files": changed,
        "files": len(before),
        "more_memory_mib": now["memory_mib"] - site.pristine["memory_mib"],
        "processes": len(_members(status)),
    }


def _members(status: Mapping[str, Any]) -> list[int]:
    found = status.get("members", status.get("server", {}).get("members", []))
    if not isinstance(found, list):
        raise CommandError("status does not say which processes of ours live")
    return found


def _checks(results: Mapping[str, Data]) -> list[Check]:
    checks = []
    for name, data in results.items():
        if not name.startswith("faults-"):
            continue
        wanted = 0 if name == "faults-rollback" else 1
        shown = (
            f"exit {data['code']}; {len(data['changed_files'])} of {data['files']} files changed; "
            f"{data['processes']} processes; {data['more_memory_mib']:+d} MiB. It said: {data['said'].splitlines()[0]}"
        )
        whole = not data["changed_files"] and not data["processes"] and data["more_memory_mib"] <= _MEMORY_MIB
        goal = f"exit {wanted}, every file as before, no process, GPU memory back"
        checks.append(Check(data["fault"], goal, shown, whole and data["code"] == wanted))
    return checks
