"""What is in a container image: its SGLang, and copies of the worker files, which are patched in the image's place."""

from __future__ import annotations

import binascii
import json
import os
from typing import Any

from eaglelab.remote.agent.files import os_error, sha256_of
from eaglelab.remote.agent.launchers.engine import ask
from eaglelab.remote.agent.manifest import manifest_entries
from eaglelab.remote.agent.shapes import is_text
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError
from eaglelab.remote.agent.writing import write_new

__all__ = ["Image", "find_image", "mounts"]

_LOOK = """
import base64, glob, importlib.util, json, os, re, sys
spec = importlib.util.find_spec("sglang")
found = {"package": os.path.realpath(os.path.dirname(spec.origin)) if spec and spec.origin else None, "files": {}}
if found["package"]:
    for target in sys.argv[1:]:
        path = os.path.join(found["package"], target)
        if os.path.exists(path):
            with open(path, "rb") as file:
                found["files"][target] = base64.b64encode(file.read()).decode()
    texts = []
    for path in ("_version.py", "version.py"):
        path = os.path.join(found["package"], path)
        if os.path.exists(path):
            with open(path, errors="replace") as file:
                texts += re.findall("version\\\\s*=\\\\s*[\\"']([0-9][^\\"']*)", file.read())
    for path in glob.glob(os.path.join(os.path.dirname(found["package"]), "sglang-*.dist-info")):
        texts.append(os.path.basename(path)[len("sglang-"):-len(".dist-info")])
    found["version"] = texts[0] if texts else "unknown"
print("EAGLELAB=" + json.dumps(found))
"""
"""Runs inside, under the image's own Python."""


class Image:
    """`id` is the digest of its content, `package` where SGLang lies inside, `copies` the folder of our copies of it."""

    def __init__(self, digest: str, package: str, version: str, copies: str) -> None:
        self.id = digest
        self.package = package
        self.version = version
        self.copies = copies


def find_image(state: StateFolder, engine: str, name: str, python: str, targets: list[str]) -> Image:
    """The image of that name on this host. What of `targets` (below the package) was not copied out of it yet, is now.

    It is never pulled. Raises AgentError `no-image`, `no-sglang`.
    """
    inspected = ask([engine, "image", "inspect", "--format", "{{.Id}}", name])
    if not inspected.ok:
        raise AgentError("no-image", "%s has no image %s on this host: %s" % (engine, name, inspected.error))
    digest = inspected.out.strip().split(":")[-1]
    folder = os.path.join("images", digest[:24])
    known = state.read(os.path.join(folder, "about.json"), {"package": is_text, "version": is_text})
    copies = os.path.join(state.folder, folder, "sglang")
    earlier = set((known or {}).get("looked_for", ()))
    if known is None or not set(targets) <= earlier:
        state.open("images")
        known = _look_into(engine, digest, python, targets)
        _make_folder(copies)
        for target, data in known.pop("files").items():
            _keep_copy(os.path.join(copies, target), binascii.a2b_base64(data))
        state.write(os.path.join(folder, "about.json"), dict(known, looked_for=sorted(earlier.union(targets))))
    return Image(digest, known["package"], known["version"], copies)


def _look_into(engine: str, digest: str, python: str, targets: list[str]) -> dict[str, Any]:
    words = [engine, "run", "--rm", "--pull=never", "--network=none", "--entrypoint=" + python, digest, "-c", _LOOK]
    looked = ask([*words, *targets])
    lines = [line for line in looked.out.splitlines() if line.startswith("EAGLELAB=")]
    if not looked.ok or not lines:
        raise AgentError("no-python", "%s in the image failed: %s" % (python, looked.error))
    found: dict[str, Any] = json.loads(lines[0][len("EAGLELAB=") :])
    if found["package"] is None:
        raise AgentError("no-sglang", "%s in the image finds no package sglang" % python)
    return found


def _keep_copy(path: str, data: bytes) -> None:
    """A copy that is there already may be patched: it stays."""
    if os.path.exists(path):
        return
    _make_folder(os.path.dirname(path))
    write_new(path, data, 0o644)


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise os_error(error, "cannot make the folder %s" % path) from error


def mounts(state: StateFolder, image: Image) -> list[tuple[str, str]]:
    """What lies over the image while a server runs: (file of this host, path inside), for each copy that is patched."""
    found = []
    for entry in manifest_entries(state):
        path = entry["path"]
        if path.startswith(image.copies + os.sep) and sha256_of(path) not in (None, entry["original"]):
            found.append((path, os.path.join(image.package, os.path.relpath(path, image.copies))))
    return found
