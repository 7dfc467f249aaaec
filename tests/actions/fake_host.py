"""A host in memory that answers what the agent answers, and contexts that talk to it."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import posixpath
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fake_load import FakeLoad
from rich.console import Console

from eaglelab.bundle import Bundle
from eaglelab.context import Context, Options
from eaglelab.host import Host
from eaglelab.masking import Masker
from eaglelab.remote.hints import explain
from eaglelab.say import Say

PROJECT = Path(__file__).parents[2]
CASES = PROJECT / "tests" / "cases"
WORKER = (CASES / "patching" / "l-0.5.9-three-contexts-in-one-with" / "before.py").read_bytes()
RECORDS = (CASES / "profile" / "rank0.jsonl").read_bytes()
CANARY = b"EAGLE3_PROF probe 1.0.0 active: class=EAGLEWorker rank=0/1 sglang=0.5.9 clock=cuda-events\n"

HOME = "/home/u"
STATE = f"{HOME}/.local/state/eaglelab"
PACKAGE = "/srv/sglang/python/sglang"
TARGET = "srt/speculative/eagle_worker.py"
WORKER_PATH = f"{PACKAGE}/{TARGET}"
PROBE_PATH = f"{PACKAGE}/srt/speculative/eaglelab_probe.py"
LOG = f"{HOME}/server.log"
VERSION = "0.5.9.dev1"
"""Its worker is cut down, so it is no release."""


def sha256(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def refusal(code: str, what: str, **details: Any) -> Exception:
    return explain({"code": code, "what": what, "details": details}, "fake")


class Clock:
    """Stands still but for those who sleep on it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeHost:
    """`calls` keeps every operation; `fail` raises instead of answering; the rest is what the host has.

    `begun` are the loads that it was given, in order; `load_faults` what goes wrong in those whose name holds the key
    (see FakeLoad). A server whose command line holds one of `dies_with` dies as it starts. `unknown`: flags and variables that
    its SGLang does not know, each with the nearest that it does.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {WORKER_PATH: WORKER, LOG: b"an older run\n"}
        self.manifest: dict[str, Any] | None = None
        self.objects: dict[str, bytes] = {}
        self.record: dict[str, Any] | None = None
        self.alive = False
        self.exit: dict[str, Any] | None = None
        self.loads: dict[str, list[float]] = {}
        self.models = {"/models/target", "/models/draft"}
        self.boot = b"Load weight begin. avail mem=139.0 GB\n"
        self.healths: list[dict[str, Any]] = [{"error": "refused"}, {"status": 503}, {"status": 200}]
        self.canary = CANARY
        self.records = RECORDS
        self.tokens: int | None = None
        self.facts: dict[str, Any] = {}
        self.holder: dict[str, Any] | None = None
        self.lines: dict[int, str] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.fail: dict[str, BaseException] = {}
        self.proved = False
        self.locked = False
        self.stolen = False
        self.lock_holder: dict[str, Any] | None = None
        self.said: list[str] = []
        self.commands: list[tuple[str | None, bool]] = []
        self.begun: list[FakeLoad] = []
        self.load_faults: dict[str, str] = {}
        self.dies_with: set[str] = set()
        self.topology = ""
        self.unknown: dict[str, str | None] = {}

    def snapshot(self) -> Any:
        """All that a command may change."""
        return copy.deepcopy((self.files, self.manifest, self.record, self.alive, self.loads, self.holder))

    def ops(self) -> list[str]:
        return [op for op, _ in self.calls]

    # The client's side.

    def lock(self, holder: Any) -> None:
        self.locked = True

    def doing(self, text: str) -> None:
        self.said.append(text)

    given_up = False

    def give_up(self) -> None:
        self.given_up = True

    def look(self) -> None:
        if "look" in self.fail:
            raise self.fail["look"]

    def close(self) -> None:
        self.locked = False

    def call(self, op: str, data: bytes = b"", **args: Any) -> dict[str, Any]:
        return self.call_bytes(op, data, **args)[0]

    def call_bytes(
        self, op: str, data: bytes = b"", *, silence: float = 30.0, news: Any = None, **args: Any
    ) -> tuple[dict[str, Any], bytes]:
        self.calls.append((op, args))
        if op in self.fail:
            raise self.fail[op]
        result = getattr(self, f"op_{op}")(**args, **({"data": data} if data else {}))
        return result if isinstance(result, tuple) else (result, b"")

    # The agent's side.

    def describe(self, path: str) -> dict[str, Any]:
        if path not in self.files:
            raise refusal("no-such-file", f"cannot read {path}: no such file")
        marked = b"# eaglelab:" in self.files[path]
        return {"path": path, "sha256": sha256(self.files[path]), "mode": 0o644, "uid": 0, "gid": 0, "marked": marked}

    def states(self) -> list[dict[str, Any]]:
        found = []
        for entry in (self.manifest or {"files": []})["files"]:
            now = sha256(self.files.get(entry["path"]))
            state = "original" if now == entry["original"] else "patched" if now in entry["patched"] else "foreign"
            found.append({"path": entry["path"], "state": state, "sha256": now, "original": entry["original"]})
        return found

    def op_facts(
        self,
        python: str,
        sglang: str,
        targets: list[str],
        port: int,
        log: str,
        env: Any,
        models: Any = None,
        flags: Any = None,
    ) -> Any:
        log = log.replace("~", HOME)
        found = {target: f"{PACKAGE}/{target}" for target in targets if f"{PACKAGE}/{target}" in self.files}
        return {
            "hostname": "fake",
            "user": "u",
            "home": HOME,
            "state": STATE,
            "python": python,
            "python_version": "3.11.0",
            "package": PACKAGE,
            "sglang_version": VERSION,
            "files": {target: self.describe(path) for target, path in found.items()},
            "writable": dict.fromkeys(found, True),
            "log_writable": True,
            "disk_free": {"package": 1 << 40, "home": 1 << 40},
            "gpus": [{"index": "0", "name": "simulated GPU"}],
            "port_holder": self.holder,
            "port_is_ours": False,
            "server": self.op_status(),
            "manifest": copy.deepcopy(self.manifest),
            "states": self.states(),
            "loads": self.loads,
            "log": log,
            "log_size": len(self.files.get(log, b"")),
            **self.facts,
        }

    def objects_at_their_path(self) -> None:
        """Lets the kept originals be read, as the agent lets them."""
        self.files.update({f"{STATE}/objects/{name}": data for name, data in self.objects.items()})

    def op_read(self, path: str) -> Any:
        if path not in self.files:
            raise refusal("no-such-file", f"cannot read {path}: no such file")
        return self.describe(path), self.files[path]

    def op_sed(self, path: str, ranges: list[list[int]]) -> Any:
        lines = dict(enumerate(self.files[path].decode("latin-1").splitlines(), start=1)) | self.lines
        return {"lines": {number: lines[number] for first, last in ranges for number in range(first, last + 1)}}

    def op_backup(self, run: str, patch: str, by: str, files: Any, originals: Any, data: bytes = b"") -> Any:
        earlier = {entry["path"]: entry for entry in (self.manifest or {"files": []})["files"]}
        given, at = {}, 0
        for item in originals:
            given[item["path"]], at = data[at : at + item["size"]], at + item["size"]
        for file in files:
            found = given.get(file["path"], self.files.get(file["path"]))
            if sha256(found) == file["original"] and found is not None:
                self.objects[file["original"]] = found
        entries = [
            {
                "path": file["path"],
                "original": file["original"],
                "patched": [file["patched"], *earlier.get(file["path"], {}).get("patched", [])],
            }
            for file in files
        ]
        self.manifest = {"run": run, "patch": patch, "files": entries}
        return {"run": run, "files": [{"path": entry["path"]} for entry in entries]}

    def op_apply(self, run: str, files: Any, data: bytes = b"") -> Any:
        known = {entry["path"]: entry for entry in (self.manifest or {"files": []})["files"]}
        done, at = [], 0
        for file in files:
            piece, at = data[at : at + file["size"]], at + file["size"]
            assert sha256(piece) == file["sha256"]
            assert sha256(piece) in known[file["path"]]["patched"]
            done.append({"path": file["path"], "changed": self.files.get(file["path"]) != piece})
            self.files[file["path"]] = piece
        return {"files": done}

    def op_rollback(self, run: str) -> Any:
        results = []
        for item, entry in zip(self.states(), (self.manifest or {"files": []})["files"], strict=True):
            path, state = item["path"], item["state"]
            if state == "patched" and entry["original"] is None:
                del self.files[path]
                state = "removed"
            elif state == "patched":
                self.files[path] = self.objects[entry["original"]]
                state = "restored"
            kept = f"{STATE}/objects/{entry['original']}" if entry["original"] else None
            results.append({**item, "state": state, "found": item["sha256"], "kept": kept})
        if all(result["state"] != "foreign" for result in results):
            self.manifest = None
        return {"nothing": not results, "files": results}

    def op_status(self) -> Any:
        members = [4711, 4712] if self.alive else []
        return {
            "record": copy.deepcopy(self.record),
            "alive": self.alive,
            "exit": None if self.alive else self.exit,
            "members": members,
            "lock": self.lock_holder,
            "states": self.states(),
            "manifest": self.manifest,
        }

    def op_start(self, run: str, command: Any, env: Any, log: str, port: int, cwd: str, about: Any) -> Any:
        offset = len(self.files.get(log, b""))
        process = {"pid": 4711, "pid_start": self.ops().count("start"), "boot": "b", "time": 1764440100.0}
        self.record = {**about, **process, "run": run, "command": command, "env": sorted(env), "log": log}
        self.record["log_offset"] = offset
        self.env, self.alive, self.exit, self.proved = env, True, None, False
        self.files[log] = self.files.get(log, b"") + self.boot
        if self.dies_with & {*command, *(f"{name}={value}" for name, value in env.items())}:
            self.files[log] += b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
            self.alive, self.exit = False, {"code": 1, "signal": None}
        return dict(self.record)

    def op_stop(self, run: str, grace: float) -> Any:
        stopped = [4711, 4712] if self.alive else []
        for load in self.begun:
            load.stop()
        self.alive, self.record = False, None
        return {"stopped": stopped, "how": "term" if stopped else "none", "seconds": 0.1}

    def op_stop_foreign(self, run: str, port: int, grace: float) -> Any:
        holder, self.holder = self.holder, None
        return {"stopped": [holder["pid"]] if holder else [], "how": "term", "holder": holder}

    def op_poll(self, path: str, offset: int, http: Any, inode: int | None, before: str | None) -> Any:
        health = self.healths.pop(0) if len(self.healths) > 1 else self.healths[0]
        tail, written = self.op_tail(path, offset, 1 << 20, inode, before)
        return {**self.op_status(), "health": health, **tail}, written

    def op_tail(self, path: str, offset: int, limit: int, inode: int | None, before: str | None = None) -> Any:
        data = self.files.get(path, b"")
        offset = len(data) if offset < 0 else offset
        start = offset if offset <= len(data) else 0
        answer = {"path": path, "size": len(data), "inode": 1, "offset": start, "before": None}
        return answer | ({"truncated": True} if start != offset else {}), data[start : start + limit]

    def op_digest(self, path: str, offset: int, end: int, inode: int | None) -> Any:
        data = self.files.get(path, b"")[offset:end]
        return {"sha256": sha256(data), "bytes": len(data)}

    def op_loaded(self, key: str, seconds: float) -> Any:
        self.loads[key] = [seconds]
        return {}

    def op_list(self, pattern: str) -> Any:
        plain = re.sub(r"\[(.)\]", r"\1", pattern)
        return {"paths": sorted(path for path in {*self.files, *self.models} if fnmatchcase(path, plain))}

    def op_http(self, method: str, path: str, **_: Any) -> Any:
        if path == "/generate":
            return {"status": 200, "body": {"meta_info": {"completion_tokens": 1}}}
        if path == "/server_info":
            return {"status": 404, "body": "not found"}
        return {"status": 200, "body": {"simulated": {"label": "simulated GPU", "clock_rate": 5.0}}}

    def op_generate(self, body: Any, **_: Any) -> Any:
        if self.record and self.record.get("probe_folder") and not body["rid"].startswith("p=0/"):
            if not self.proved:
                self.files[LOG] += self.canary
                self.proved = True
            path = posixpath.join(self.record["probe_folder"], "rank0.1.jsonl")
            self.files[path] = self.files.get(path, b"") + self.records
        asked = body["sampling_params"]["max_new_tokens"]
        tokens = asked if self.tokens is None else min(asked, self.tokens)
        meta = {"completion_tokens": tokens, "spec_verify_ct": max(1, tokens // 2), "finish_reason": {"type": "length"}}
        return {"e2e_s": 2.0, "ttft_s": 0.1, "chunks": [[0.1, 1], [2.0, tokens]], "meta_info": meta, "text": ""}

    def op_keep(self, suffix: str, data: bytes) -> Any:
        path = f"{STATE}/files/{hashlib.sha256(data).hexdigest()[:16]}{suffix}"
        self.files[path] = data
        return {"path": path}

    def op_gpu_state(self) -> Any:
        return {"gpus": [{"index": "0", "clocks.sm": "1980"}]}

    def op_look_up(self, package: str, flags: list[str], variables: list[str]) -> Any:
        def of(names: list[str]) -> Any:
            return {"known": 9, "unknown": {name: near for name, near in self.unknown.items() if name in names}}

        return {"flags": of(flags), "variables": of(variables)}

    def op_topology(self) -> Any:
        return {"text": self.topology}

    def _load(self, id: str, run: str) -> FakeLoad | None:  # noqa: A002 - the wire's word
        return next((load for load in self.begun if (load.id, load.run) == (id, run)), None)

    def op_load_start(self, id: str, run: str, spec: Any, requests: Any) -> Any:  # noqa: A002
        fault = next((fault for name, fault in self.load_faults.items() if name in id), "")
        steps, version = (self.record or {}).get("steps"), self.facts.get("sglang_version", VERSION)
        # As on the wire: what the driver gets is what JSON makes of it.
        spec, requests = json.loads(json.dumps([spec, requests]))
        load = FakeLoad(id, run, spec, requests, steps, version, fault=fault)
        earlier = self._load(id, run)
        if earlier is not None:
            if earlier.digest != load.digest:
                raise refusal("load-exists", f"run {run} has another load named {id}")
            return {"state": earlier.state}
        for other in self.begun:
            if other.state == "running":
                raise refusal("load-running", f"load {other.id} of run {other.run} is still running here")
        self.begun.append(load)
        self._see(load)
        if fault == "server dies":
            self.alive, self.exit = False, {"code": None, "signal": 9}
        return {"state": "running"}

    def _see(self, load: FakeLoad) -> None:
        """The probe's side of a load."""
        if not load.blocks or not (self.record or {}).get("probe_folder"):
            return
        if not self.proved:
            self.files[LOG] += self.canary
            self.proved = True
        path = posixpath.join(self.record["probe_folder"], "rank0.1.jsonl")
        lines = b"".join(json.dumps(block).encode() + b"\n" for block in load.blocks)
        self.files[path] = self.files.get(path, b"") + lines

    def op_load_poll(self, id: str, run: str, offset: int) -> Any:  # noqa: A002
        load = self._load(id, run)
        if load is None:
            raise refusal("no-load", f"run {run} has no load named {id}")
        return load.poll(offset)

    def op_load_stop(self, id: str, run: str) -> Any:  # noqa: A002
        load = self._load(id, run)
        if load is not None:
            load.stop()
        return {"how": "term" if load else "none", "state": load.state if load else None}


def make_host(**settings: Any) -> Host:
    server = {
        "model_path": "/models/target",
        "speculative": {"draft_model_path": "/models/draft", "num_steps": 2},
        **settings.pop("server", {}),
    }
    return Host.build(
        "fake", {"address": "127.0.0.1", "log": LOG, "server": server, **settings}, {}, "inventory.yaml:1"
    )


def make_context(fake: FakeHost, folder: Path, *, host: Host | None = None, env: Any = None, **options: Any) -> Context:
    """A context on `fake` whose output is in `context.say.console.file`."""
    host = host or make_host()
    clock = Clock()
    masker: Masker = host.masker(env or {})
    say = Say(Console(file=io.StringIO(), width=200, highlight=False), clock=clock, masker=masker)
    return Context(
        host=host,
        client=fake,  # type: ignore[arg-type]
        bundle=Bundle(folder, "20260101-000000-test-abcd", host.name, masker=masker, clock=clock),
        say=say,
        options=Options(project=PROJECT, **options),
        api_key=host.api_key(env or {}),
        clock=clock,
        sleep=clock.sleep,
    )


def said(context: Context) -> str:
    return context.say.console.file.getvalue()  # type: ignore[attr-defined, no-any-return]
