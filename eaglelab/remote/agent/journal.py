"""Originals by content, the manifest of what may be changed, and the changes themselves.

Everything a rollback needs lies in one folder on the host, so any machine with access can do it, at any time.
The order is always: original stored, manifest written, then files swapped. What state a file is in is never
remembered: it is its sha256, compared with those that the manifest names.
"""

from __future__ import annotations

import os
import time
from typing import Any

from eaglelab.remote.agent.contents import must_compile
from eaglelab.remote.agent.files import os_error, place_of, read_bytes, sha256, sha256_of
from eaglelab.remote.agent.links import leads_to, put_link
from eaglelab.remote.agent.manifest import manifest_entries, read_manifest
from eaglelab.remote.agent.standing import standing, uninstalled
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError
from eaglelab.remote.agent.writing import fsync_folder, remove_bytecode, replace, temporaries, write_new

__all__ = ["Journal"]


class Journal(StateFolder):
    """Backup, apply and rollback. Each may be repeated at any time, also after a crash at any point of itself."""

    def _object(self, digest: str) -> str:
        return os.path.join(self.folder, "objects", digest)

    def original(self, digest: str) -> bytes:
        """The stored original; refused if its bytes are no longer what its name says."""
        path = self._object(digest)
        try:
            data = read_bytes(path)
        except AgentError as error:
            what = "is gone" if error.code == "no-such-file" else "cannot be read: %s" % error.what
            raise AgentError("backup-damaged", "the stored original %s %s" % (path, what), path=path) from error
        if sha256(data) != digest:
            raise AgentError("backup-damaged", "the stored original %s no longer has its sha256" % path, path=path)
        return data

    def backup(
        self, run: str, patch: str, by: str, files: list[dict[str, Any]], originals: dict[str, bytes]
    ) -> dict[str, Any]:
        """Stores the originals of `files` and names in the manifest what each may become.

        Each file: path, found, original (None: it does not exist yet) and patched (sha256), mode, uid, gid, and `link` where
        a link stands there that is to give way to a file (what it says).
        The bytes of an original are those stored earlier, those of the file now or, where a patch is in place that no
        manifest knows, those in `originals`.
        """
        self.open()
        self.sweep()
        earlier = {entry["path"]: entry for entry in manifest_entries(self)}
        entries = [
            self._backup_one(run, file, earlier.pop(file["path"], None), originals.get(file["path"])) for file in files
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

    def _backup_one(
        self, run: str, file: dict[str, Any], earlier: dict[str, Any] | None, data: bytes | None
    ) -> dict[str, Any]:
        path, original = file["path"], file["original"]
        if earlier is not None and earlier["original"] != original:
            self._supersede(run, file, earlier)
            earlier = None
        # What an earlier plan wrote stays known until the rollback: a crash may leave either in place.
        known = [file["patched"], file["found"]] + (earlier or {}).get("patched", [])
        patched = [
            digest for at, digest in enumerate(known) if digest not in (None, original) and digest not in known[:at]
        ]
        _sweep_temporaries(path)
        if original is not None:
            self._store(path, original, data, known=earlier is not None)
        owner = earlier or file
        link = file.get("link") or (earlier or {}).get("link")  # a file that took its place tells nothing of it
        return {
            "path": path,
            "original": original,
            "patched": patched,
            "mode": owner["mode"],
            "uid": owner["uid"],
            "gid": owner["gid"],
            **({"link": link} if link else {}),
        }

    def _supersede(self, run: str, file: dict[str, Any], earlier: dict[str, Any]) -> None:
        """An upgrade of SGLang puts a new original in the place of a patched one. The old one stays stored.

        Only a file that holds nothing of ours can be a new original; all else is somebody's edit of a patched file.
        """
        path, found = file["path"], file["found"]
        if found is None or found != file["original"] or found in earlier["patched"] or sha256_of(path) != found:
            raise AgentError(
                "changed",
                "%s: the journal of this host holds the original %s, the plan starts from %s"
                % (path, earlier["original"], file["original"]),
                path=path,
            )
        self.note("superseded", run=run, path=path, before=earlier["original"], now=found)

    def _store(self, path: str, original: str, data: bytes | None, known: bool) -> None:
        """`known`: the manifest says that it was stored before."""
        stored = self._object(original)
        now = sha256_of(stored)
        if now == original:
            return
        data = read_bytes(path) if data is None else data
        if sha256(data) != original:
            if now is not None or known:
                self.original(original)  # says that it is damaged or gone: there is nothing to mend it with
            raise AgentError("changed", "%s is no longer the file that was planned" % path, path=path)
        write_new(stored, data, 0o400)

    def apply(self, run: str, contents: dict[str, bytes]) -> list[dict[str, Any]]:
        """Swaps in the patched bytes of every file, in order, or puts back those already swapped and raises.

        All of them must compile under this Python, which is the server's, before the first is touched.
        """
        entries = {entry["path"]: entry for entry in manifest_entries(self)}
        for path, data in contents.items():
            if path not in entries or sha256(data) not in entries[path]["patched"]:
                raise AgentError("no-backup", "%s was not backed up for this patch" % path, path=path)
            must_compile(path, data)
        done: list[dict[str, Any]] = []
        for path, data in contents.items():
            try:
                done.append(self._swap(run, entries[path], data))
            except Exception as error:
                touched = [change["path"] for change in done if change["changed"]] + [path]
                self._revert(run, [entries[name] for name in touched], error)
                raise
        return done

    def _swap(self, run: str, entry: dict[str, Any], data: bytes) -> dict[str, Any]:
        path, wanted, now = entry["path"], sha256(data), sha256_of(entry["path"])
        if now == wanted:
            remove_bytecode(path)
            return {"path": path, "from": now, "to": wanted, "changed": False}
        if now != entry["original"] and now not in entry["patched"]:
            raise AgentError("changed", "%s was changed by somebody else: its sha256 is %s" % (path, now), path=path)
        self.note("swap", run=run, path=path, before=now, after=wanted)
        remove_bytecode(path)  # first, so that where this is refused nothing has changed yet
        replace(path, now, data, entry["mode"], entry["uid"], entry["gid"], entry.get("link"))
        remove_bytecode(path)
        self.note("swapped", run=run, path=path, now=wanted)
        return {"path": path, "from": now, "to": wanted, "changed": True}

    def _revert(self, run: str, entries: list[dict[str, Any]], cause: Exception) -> None:
        left = []
        for entry in reversed(entries):
            try:
                self._restore(run, entry)
            except Exception as error:
                left.append("%s (%s)" % (entry["path"], error))
        if left:
            raise AgentError("not-reverted", "%s; then these could not be put back: %s" % (cause, ", ".join(left)))

    def rollback(self, run: str) -> dict[str, Any]:
        """Puts every original back. Files that are neither original nor ours are left, and named.

        Returns files: [{path, state: restored | original | removed | gone | foreign, ...}] and nothing: true if there was
        nothing to do. The manifest goes only when every file is at its original; what is gone with its installation stays
        in it, for that may be on a disk that is only not mounted. A file that cannot be put back does not keep the others
        from it; its error is raised in the end.
        """
        self.sweep()
        manifest = read_manifest(self)
        if manifest is None:
            return {"nothing": True, "files": []}
        results, failures, folders = [], [], uninstalled(manifest["files"])
        for entry in reversed(manifest["files"]):
            try:
                results.append(self._restore(run, entry, folders))
            except AgentError as error:
                failures.append(error)
                results.append({"path": entry["path"], "state": "failed"})
        states = [[result["path"], result["state"]] for result in results]
        self.note_if_possible("rollback", run=run, of=manifest["run"], files=states)
        if failures:
            raise failures[0]
        gone = [result["path"] for result in results if result["state"] == "gone"]
        if all(result["state"] != "foreign" for result in results):
            self._close(run, manifest, [entry for entry in manifest["files"] if entry["path"] in gone])
        nothing = all(result["state"] in ("original", "gone") for result in results)
        return {"nothing": nothing, "files": results, "of": manifest["run"]}

    def _close(self, run: str, manifest: dict[str, Any], gone: list[dict[str, Any]]) -> None:
        if gone and len(gone) == len(manifest["files"]):
            return  # as it was left
        try:
            self.write(
                os.path.join("history", "%s.json" % manifest["run"]),
                dict(manifest, rolled_back=time.time(), rolled_back_by=run),
            )
        except AgentError:
            pass  # a full disk: that every file is original counts for more than the record of it
        if gone:
            self.write("manifest.json", dict(manifest, files=gone))
        else:
            self.remove("manifest.json")

    def _restore(self, run: str, entry: dict[str, Any], uninstalled: frozenset[str] = frozenset()) -> dict[str, Any]:
        path, original, now = entry["path"], entry["original"], sha256_of(entry["path"])
        _sweep_temporaries(path)
        result = {"path": path, "original": original, "found": now, "state": "original"}
        link = _link_to_put(entry)
        if now is None and os.path.dirname(path) in uninstalled:
            result["state"] = "gone"
        elif now == original:
            if now is not None:
                result["state"] = (
                    self._restore_owner(entry, now)
                    if link is None
                    else put_link(path, now, link, entry["uid"], entry["gid"])
                )
        elif now not in entry["patched"]:
            result.update(state="foreign", kept=self._object(original) if original else None)
        elif original is None:
            self.note_if_possible("remove", run=run, path=path, before=now)
            try:
                os.unlink(path)
                fsync_folder(os.path.dirname(path))
            except OSError as error:
                raise os_error(error, "cannot remove %s" % path) from error
            result["state"] = "removed"
        else:
            self.note_if_possible("swap", run=run, path=path, before=now, after=original)
            if link is None or now is None:
                replace(path, now, self.original(original), entry["mode"], entry["uid"], entry["gid"])
            else:
                put_link(path, now, link, entry["uid"], entry["gid"])
            result["state"] = "restored"
        try:
            remove_bytecode(path)
        except AgentError:
            pass  # Python compiles again what has another time and size; the file itself is what counts
        return result

    def _restore_owner(self, entry: dict[str, Any], now: str) -> str:
        """An original put back by hand may have lost its mode or owner. What it shares with a cache is left as it is."""
        path = entry["path"]
        if entry.get("link") and os.path.islink(path):
            return "original"
        try:
            info = os.stat(path)
            if (info.st_mode & 0o7777, info.st_uid, info.st_gid) == (entry["mode"], entry["uid"], entry["gid"]):
                return "original"
            if info.st_nlink > 1:
                replace(path, now, read_bytes(path), entry["mode"], entry["uid"], entry["gid"])
            else:
                os.chown(path, entry["uid"], entry["gid"])
                os.chmod(path, entry["mode"])
        except OSError as error:
            raise os_error(error, "cannot restore owner and mode of %s" % path) from error
        return "restored"

    def states(self) -> list[dict[str, Any]]:
        """Every file of the manifest and what it is now (see `standing`)."""
        entries = manifest_entries(self)
        folders = uninstalled(entries)
        return [standing(entry, folders) for entry in entries]


def _link_to_put(entry: dict[str, Any]) -> str | None:
    """What the link said that a file of ours stands for, if it would show the original again; else that gets a file."""
    link, path = entry.get("link"), entry["path"]
    return link if link and not os.path.islink(path) and leads_to(path, link) == entry["original"] else None


def _sweep_temporaries(path: str) -> None:
    """What a killed agent may have left beside the file; no living one is at work, since the lock is ours."""
    for left in temporaries(os.path.realpath(path)) + temporaries(place_of(path)):
        try:
            os.unlink(left)
        except OSError:
            continue  # it is in nobody's way
