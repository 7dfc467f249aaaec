"""A real release as a wheel, environments that pip, uv and a hand make of it, and what a file on the disk is."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_host import make_context, said

from eaglelab.actions import ACTIONS
from eaglelab.context import Context
from eaglelab.host import Host
from eaglelab.remote.client import AgentClient
from eaglelab.remote.pipe import LocalLink

VERSION = "0.5.12"
SPECULATIVE = "srt/speculative"
WORKERS = ("eagle_worker.py", "eagle_worker_v2.py")
PROBE = "eaglelab_probe.py"
MARK = b"# eaglelab:"

_KEPT = ("__init__.py", "_version.py", "version.py", "launch_server.py", SPECULATIVE + "/")

PYPROJECT = f"""
[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"
[project]
name = "sglang"
version = "{VERSION}"
[tool.setuptools.packages.find]
include = ["sglang*"]
"""


def build_wheel(release: Path, folder: Path) -> Path:
    """The release's own worker files and metadata as a wheel, without its other 2000 files."""
    package = release / "sglang"
    names = [file.relative_to(release) for file in sorted(package.rglob("*.py"))]
    kept = {
        str(name): (release / name).read_bytes() for name in names if str(name.relative_to("sglang")).startswith(_KEPT)
    }
    info = f"sglang-{VERSION}.dist-info"
    metadata = (release / info / "METADATA").read_bytes().splitlines(keepends=True)
    kept[f"{info}/METADATA"] = b"".join(line for line in metadata if not line.startswith(b"Requires-Dist:"))
    kept[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = [f"{name},sha256={_digest64(data)},{len(data)}" for name, data in kept.items()]
    kept[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    wheel = folder / f"sglang-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in kept.items():
            archive.writestr(name, data)
    return wheel


def _digest64(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def checked(*command: str | Path, **env: str) -> str:
    """Runs a command that must go well. Packages come from files only."""
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "UV_OFFLINE": "1", **env},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def venv(folder: Path) -> Path:
    """Its Python. Without pip, which is run from outside."""
    checked(sys.executable, "-m", "venv", "--without-pip", folder)
    return folder / "bin/python"


def pip(python: Path, *words: str | Path, **env: str) -> str:
    return checked(sys.executable, "-m", "pip", "--python", python, *words, **env)


def package_in(python: Path) -> Path:
    """The package in the environment of `python`."""
    (found,) = python.parent.parent.glob("lib/python*/site-packages")
    return found / "sglang"


def imported(python: Path, **env: str) -> Path:
    """Where that Python itself finds the worker."""
    script = (
        "import importlib.util as u, os; p = os.path.dirname(u.find_spec('sglang').origin); "
        "print(os.path.join(p, 'srt', 'speculative'))"
    )
    return Path(checked(python, "-c", script, **env).strip())


@dataclass(frozen=True)
class Seen:
    """What is at a path. `names`: hard links of the file there."""

    link: str | None
    inode: int
    names: int
    sha256: str
    mode: int
    mtime: int

    @classmethod
    def at(cls, path: Path) -> Seen:
        info = path.lstat()
        link = str(path.readlink()) if path.is_symlink() else None
        return cls(link, info.st_ino, info.st_nlink, digest(path), info.st_mode, info.st_mtime_ns)

    @property
    def file(self) -> tuple[str | None, int, str, int, int]:
        """All but how many names it has: of a hard link that gives way, there is one less."""
        return self.link, self.inode, self.sha256, self.mode, self.mtime

    @property
    def content(self) -> tuple[str | None, str, int]:
        """What a rollback promises: bytes and mode; and a link, where there was one."""
        return self.link, self.sha256, self.mode


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def picture(folder: Path) -> dict[str, Seen]:
    """Every file below a folder, bytecode aside."""
    return {
        str(path.relative_to(folder)): Seen.at(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def contents(folder: Path) -> dict[str, tuple[str | None, str, int]]:
    return {name: seen.content for name, seen in picture(folder).items()}


class Machine:
    """This machine as host `here`, with a home and a state folder of its own: a real agent, under the Python at hand.

    `context` is that of the last `points_to`, which is a run of its own.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.runs = folder, port, 0
        self.client: AgentClient | None = None
        self.context: Context

    def points_to(self, python: Path, sglang: Path | None = None, **server_env: str) -> None:
        """As if the inventory now said so."""
        self.close()
        self.runs += 1
        server = {
            "port": self.port,
            "model_path": "org/target",
            "speculative": {"draft_model_path": "org/draft"},
            "env": server_env,
        }
        settings = {"connection": "local", "python": str(python), "log": str(self.folder / "server.log")}
        if sglang is not None:
            settings["sglang"] = str(sglang)
        host = Host.build("here", {**settings, "server": server}, {}, "inventory.yaml:1")
        self.client = AgentClient(LocalLink("here"), str(python))
        self.context = make_context(self.client, self.folder / f"bundle-{self.runs}", host=host)  # type: ignore[arg-type]
        self.client.lock({"by": "me@here", "run": self.context.run, "command": "test", "since": "now"})

    def close(self) -> None:
        if self.client is not None:
            self.client.close()

    def do(self, *names: str) -> Any:
        for name in names:
            done = ACTIONS[name].run(self.context, ACTIONS[name].args())
        return done

    def patch(self) -> str:
        """Returns what was said so far."""
        self.do("doctor", "plan", "backup", "patch")
        return said(self.context)

    def rollback(self) -> str:
        self.do("rollback")
        return said(self.context)

    def states(self) -> dict[str, str]:
        return {item["path"]: item["state"] for item in self.context.client.call("status")["states"]}


def is_patched(folder: Path) -> bool:
    """Whether all of it is there: both workers and the probe; or nothing of it is."""
    there = {MARK in (folder / name).read_bytes() for name in WORKERS} | {(folder / PROBE).exists()}
    (found,) = there  # neither half way
    return found


def checkout(package: Path, folder: Path) -> Path:
    """A checkout as SGLang's: the package under `python/`."""
    shutil.copytree(package, folder / "python/sglang")
    (folder / "python/pyproject.toml").write_text(PYPROJECT)
    return folder


def direct_url(package: Path) -> dict[str, Any]:
    """What the installer wrote down of where it came from."""
    (file,) = package.parent.glob("sglang-*.dist-info/direct_url.json")
    return dict(json.loads(file.read_text()))
