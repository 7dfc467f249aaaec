"""product: the project's own sweep on this host, by `connection: local`, and a bench through an SSH server on loopback.

Their bundles stay in the workspace.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from gpu.validate.budget import Budget
from gpu.validate.loopback_ssh import loopback_server
from gpu.validate.part import Experiment, Part
from gpu.validate.results import Check, Data
from gpu.validate.setting import CANDIDATES, Setting
from gpu.validate.site import Site

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
    server = loopback_server(folder / "sshd") if ssh else None
    try:
        site.workspace.inventory(entry if server is None else site.machine.entry_by(server.entry(), _SETTING))
        done = site.workspace.invoke(*words, *load, "--prompts", str(prompts), timeout=budget.limit(580), code=None)
    finally:
        if server is not None:
            server.end()
            site.workspace.inventory(entry)  # the way that the rollbacks to come can take
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
