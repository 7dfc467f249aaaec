"""The agent's error codes as errors for a person: which exit code, and what to type next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eaglelab.errors import AttentionError, EaglelabError, HostError, LockLost

__all__ = ["AgentFailure", "explain", "who_holds"]


class AgentFailure(HostError):
    """An operation on the host did not happen. `code` and `details` are the agent's."""

    def __init__(self, what: str, *, where: str, hint: str, code: str, details: Mapping[str, Any]) -> None:
        super().__init__(what, where=where, hint=hint)
        self.code = code
        self.details = details


_HINTS = {
    "disk-full": "free some space there; nothing was changed",
    "read-only": "the SGLang installation of that host cannot be written; nothing was changed",
    "not-writable": "log in as the owner of that file (`user` in inventory.yaml), or check `lsattr`; nothing was changed",
    "no-such-file": "check `sglang` of this host in inventory.yaml",
    "no-sglang": "set `sglang` of this host in inventory.yaml to its SGLang checkout, or `python` to the Python that has it",
    "other-sglang": "set `sglang` in inventory.yaml to the folder that this Python imports, or install the checkout into it (pip install -e)",
    "no-python": "set `python` of this host in inventory.yaml to the Python that runs SGLang there",
    "changed": "somebody else is at work on this file; run the command again to plan from what is there now",
    "running": "invoke stop ends the server that eaglelab started",
    "load-running": "wait for it, or end it: invoke stop ends the server's loads and the server",
    "port-taken": "stop it yourself, choose another `server.port` in inventory.yaml, or take it over: --takeover",
    "locked": "wait for that run to end, or ask its owner",
    "does-not-compile": "nothing was changed; please report this with the bundle",
    "backup-damaged": "the stored original was changed or deleted by somebody; restore the file from your SGLang release",
    "bad-state": "mend that file; the originals lie in objects/ beside it, named by their sha256, and journal.jsonl there says which belongs to which file",
    "not-stopped": "look at these processes on the host before you start anything there",
    "not-reverted": "mend what the message names, then: invoke rollback",
    "not-allowed": "log in as the user that owns these processes (`user` in inventory.yaml)",
    "not-regular": "check `sglang` of this host in inventory.yaml",
    "attribute-lost": "log in as a user who may set it (`user` in inventory.yaml), or take it off the file; nothing was changed",
    "no-image": "pull it there (a command of yours: it may be large), or correct server.container.image in inventory.yaml",
    "no-engine": "check `server.launcher` of this host in inventory.yaml, and that what it needs runs there; nothing was changed",
    "not-reachable": "server.host: 0.0.0.0 in inventory.yaml lets it be reached there; nothing was changed",
    "no-launcher": "this host's agent is of another version of eaglelab",
    "unsafe-state": "give that folder back to its user alone",
}

_ATTENTION = frozenset({"not-stopped", "not-reverted", "backup-damaged", "bad-state", "unsafe-state"})


def explain(error: Mapping[str, Any], where: str) -> EaglelabError:
    """An answer's `error` part as an exception; its code decides exit code and hint."""
    code, what, details = error["code"], error["what"], error.get("details", {})
    if code == "locked":
        what = f"{what}: {who_holds(details.get('holder') or {})}"
    hint = _hint(code, details, where)
    if code == "lock-lost":
        what = f"{what}: {who_holds(details.get('holder') or {})}"
        return LockLost(
            what,
            where=where,
            hint=f"nothing more was done there; invoke status --host {where} shows who is at work",
        )
    if code in _ATTENTION:
        return AttentionError(what, where=where, hint=hint)
    if code == "bug":
        what = f"the agent failed unexpectedly: {what}"
    return AgentFailure(what, where=where, hint=hint, code=code, details=details)


def _hint(code: str, details: Mapping[str, Any], where: str) -> str:
    if details.get("mend"):
        return f"on the host: {details['mend']}"
    holder = details.get("holder") or {}
    if code == "locked" and details.get("path") and holder.get("pid") and holder["command"] != "an agent of eaglelab":
        return f"end process {holder['pid']} on the host, or wait for it; then: invoke rollback --host {where}"
    return _HINTS.get(code, "")


def who_holds(holder: Mapping[str, Any]) -> str:
    """The one who has the lock; without room to write down a name, only its process is known."""
    if not holder.get("run"):
        pid = holder.get("pid")
        return f"process {pid} of {holder.get('by')}: {holder.get('command')}" if pid else "it left no name"
    doing = f", at {holder['doing']}" if holder.get("doing") else ""
    return f"{holder.get('by')} runs {holder.get('command')} since {holder.get('since')} (run {holder['run']}{doing})"
