"""The host's own memory: originals by content, the manifest of what may be changed, a journal of what was done.

Everything a rollback needs lies in one folder on the host, so any machine with access can do it, at any time.
The order is always: original stored, manifest written, then files swapped. What state a file is in is never
remembered: it is its sha256, compared with the two that the manifest names.
"""

from __future__ import annotations

import glob
import json
import os
import time
from typing import Any

from eaglelab.remote.agent.files import fsync_folder, os_error, read_bytes, remove_bytecode, replace, sha256, write_new
from eaglelab.remote.agent.wire import AgentError

__all__ = ["Journal", "state_folder"]


def state_folder() -> str:
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "eaglelab")


class Journal:
    """The state folder of one user on one host."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self) -> None:
        try:
            for name in ("objects", "history"):
                os.makedirs(os.path.join(self.folder, name), mode=0o700, exist_ok=True)
        except OSError as error:
            raise os_error(error, "cannot make the state folder %s" % self.folder) from error

    def note(self, op: str, **what: Any) -> None:
        """Appends one line and syncs it: the journal is what a later controller believes."""
        line = json.dumps(dict(what, op=op, time=time.time()), separators=(",", ":")).encode() + b"\n"
        try:
            descriptor = os.open(
                os.path.join(self.folder, "journal.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
            )
            try:
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise os_error(error, "cannot write the journal in %s" % self.folder) from error

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the state folder; None if there is none."""
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return None
        try:
            found = json.loads(read_bytes(path))
        except ValueError as error:
            raise AgentError("bad-state", "%s is not JSON: %s" % (path, error), path=path) from error
        return dict(found)

    def write(self, name: str, content: dict[str, Any]) -> None:
        write_new(os.path.join(self.folder, name), json.dumps(content, indent=1, sort_keys=True).encode())

    def remove(self, name: str) -> None:
        path = os.path.join(self.folder, name)
        if os.path.exists(path):
            os.unlink(path)
            fsync_folder(self.folder)

    def _object(self, digest: str) -> str:
        return os.path.join(self.folder, "objects", digest)

    def original(self, digest: str) -> bytes:
        """The stored original; refused if its bytes are no longer what its name says."""
        path = self._object(digest)
        data = read_bytes(path)
        if sha256(data) != digest:
            raise AgentError("backup-damaged", "the stored original %s no longer has its sha256" % path, path=path)
        return data

    def backup(
        self, run: str, patch: str, by: str, files: list[dict[str, Any]], originals: dict[str, bytes]
    ) -> dict[str, Any]:
        """Stores the originals of `files` and names in the manifest what each may become.

        Each file: path, found, original (None: it does not exist yet) and patched (sha256), mode, uid, gid.
        The bytes of an original are those stored earlier, those of the file now or, where a patch is in place that no
        manifest knows, those in `originals`.
        """
        self.open()
        earlier = {entry["path"]: entry for entry in (self.read("manifest.json") or {"files": []})["files"]}
        entries = [
            self._backup_one(file, earlier.pop(file["path"], None), originals.get(file["path"])) for file in files
        ]
        manifest = {
            "schema": 1,
            "run": run,
            "patch": patch,
            "by": by,
            "time": time.time(),
            "files": entries + list(earlier.values()),
        }
        self.write("manifest.json", manifest)
        self.note(
            "backup", run=run, patch=patch, by=by, files=[[entry["path"], entry["original"]] for entry in entries]
        )
        return manifest

    def _backup_one(self, file: dict[str, Any], earlier: dict[str, Any] | None, data: bytes | None) -> dict[str, Any]:
        path, original = file["path"], file["original"]
        if earlier is not None and earlier["original"] != original:
            raise AgentError(
                "changed",
                "%s: the journal of this host holds the original %s, the plan starts from %s"
                % (path, earlier["original"], original),
                path=path,
            )
        # What an earlier plan wrote stays known until the rollback: a crash may leave either in place.
        known = [file["patched"], file["found"]] + (earlier or {}).get("patched", [])
        patched = [
            digest for at, digest in enumerate(known) if digest not in (None, original) and digest not in known[:at]
        ]
        _sweep_temporaries(path)
        if original is not None and not os.path.exists(self._object(original)):
            data = read_bytes(path) if data is None else data
            if sha256(data) != original:
                raise AgentError("changed", "%s is no longer the file that was planned" % path, path=path)
            write_new(self._object(original), data, 0o400)
        if original is not None:
            self.original(original)
        owner = earlier or file
        return {
            "path": path,
            "original": original,
            "patched": patched,
            "mode": owner["mode"],
            "uid": owner["uid"],
            "gid": owner["gid"],
        }

    def apply(self, run: str, contents: dict[str, bytes]) -> list[dict[str, Any]]:
        """Swaps in the patched bytes of every file, in order, or puts back those already swapped and raises.

        All of them must compile under this Python, which is the server's, before the first is touched.
        """
        manifest = self.read("manifest.json") or {"files": []}
        entries = {entry["path"]: entry for entry in manifest["files"]}
        for path, data in contents.items():
            if path not in entries or sha256(data) not in entries[path]["patched"]:
                raise AgentError("no-backup", "%s was not backed up for this patch" % path, path=path)
            _must_compile(path, data)
        done: list[dict[str, Any]] = []
        try:
            for path, data in contents.items():
                done.append(self._swap(run, entries[path], data))
        except AgentError:
            for change in reversed(done):
                self._restore(run, entries[change["path"]])
            raise
        return done

    def _swap(self, run: str, entry: dict[str, Any], data: bytes) -> dict[str, Any]:
        path, wanted, now = entry["path"], sha256(data), _digest(entry["path"])
        if now == wanted:
            remove_bytecode(path)
            return {"path": path, "from": now, "to": wanted, "changed": False}
        if now != entry["original"] and now not in entry["patched"]:
            raise AgentError("changed", "%s was changed by somebody else: its sha256 is %s" % (path, now), path=path)
        self.note("swap", run=run, path=path, before=now, after=wanted)
        replace(path, now, data, entry["mode"], entry["uid"], entry["gid"])
        self.note("swapped", run=run, path=path, now=wanted)
        return {"path": path, "from": now, "to": wanted, "changed": True}

    def rollback(self, run: str) -> dict[str, Any]:
        """Puts every original back. Files that are neither original nor ours are left, and named.

        Returns files: [{path, state: restored | original | removed | foreign, ...}] and nothing: true if there was
        nothing to do. The manifest goes only when every file is at its original.
        """
        manifest = self.read("manifest.json")
        if manifest is None:
            return {"nothing": True, "files": []}
        results = [self._restore(run, entry) for entry in reversed(manifest["files"])]
        if all(result["state"] != "foreign" for result in results):
            self.write(
                os.path.join("history", "%s.json" % manifest["run"]),
                dict(manifest, rolled_back=time.time(), rolled_back_by=run),
            )
            self.remove("manifest.json")
        nothing = all(result["state"] == "original" for result in results)
        self.note(
            "rollback", run=run, of=manifest["run"], files=[[result["path"], result["state"]] for result in results]
        )
        return {"nothing": nothing, "files": results, "of": manifest["run"]}

    def _restore(self, run: str, entry: dict[str, Any]) -> dict[str, Any]:
        path, original, now = entry["path"], entry["original"], _digest(entry["path"])
        _sweep_temporaries(path)
        result = {"path": path, "original": original, "found": now, "state": "original"}
        if now == original:
            if now is not None:
                result["state"] = self._restore_owner(entry)
        elif now not in entry["patched"]:
            result.update(state="foreign", kept=self._object(original) if original else None)
        elif original is None:
            self.note("remove", run=run, path=path, before=now)
            try:
                os.unlink(path)
                fsync_folder(os.path.dirname(path))
            except OSError as error:
                raise os_error(error, "cannot remove %s" % path) from error
            result["state"] = "removed"
        else:
            self.note("swap", run=run, path=path, before=now, after=original)
            replace(path, now, self.original(original), entry["mode"], entry["uid"], entry["gid"])
            result["state"] = "restored"
        if os.path.isdir(os.path.dirname(path)):
            remove_bytecode(path)
        return result

    def _restore_owner(self, entry: dict[str, Any]) -> str:
        """An original put back by hand may have lost its mode or owner."""
        info = os.stat(entry["path"])
        if (info.st_mode & 0o7777, info.st_uid, info.st_gid) == (entry["mode"], entry["uid"], entry["gid"]):
            return "original"
        try:
            os.chown(entry["path"], entry["uid"], entry["gid"])
            os.chmod(entry["path"], entry["mode"])
        except OSError as error:
            raise os_error(error, "cannot restore owner and mode of %s" % entry["path"]) from error
        return "restored"

    def states(self) -> list[dict[str, Any]]:
        """Every file of the manifest and what it is now: original, patched, foreign or missing."""
        found = []
        for entry in (self.read("manifest.json") or {"files": []})["files"]:
            now = _digest(entry["path"])
            if now == entry["original"]:
                state = "original"
            elif now in entry["patched"]:
                state = "patched"
            else:
                state = "missing" if now is None else "foreign"
            found.append({"path": entry["path"], "state": state, "sha256": now, "original": entry["original"]})
        return found


def _digest(path: str) -> str | None:
    return sha256(read_bytes(path)) if os.path.lexists(path) else None


def _sweep_temporaries(path: str) -> None:
    """What a killed agent may have left beside the file; no living one is at work, since the lock is ours."""
    for left in glob.glob(glob.escape(path) + ".eaglelab-*.tmp"):
        try:
            os.unlink(left)
        except OSError as error:
            raise os_error(error, "cannot remove %s" % left) from error


def _must_compile(path: str, data: bytes) -> None:
    try:
        compile(data, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise AgentError(
            "does-not-compile", "the server's Python cannot compile the patched %s: %s" % (path, error), path=path
        ) from error


def parse_contents(files: list[dict[str, Any]], data: bytes) -> dict[str, bytes]:
    """Path -> bytes from the sizes in `files` and the raw bytes of the frame, checked against each sha256."""
    contents: dict[str, bytes] = {}
    at = 0
    for file in files:
        piece = data[at : at + file["size"]]
        at += file["size"]
        if sha256(piece) != file["sha256"]:
            raise AgentError("transfer-damaged", "the bytes for %s arrived damaged" % file["path"], path=file["path"])
        contents[file["path"]] = piece
    return contents
