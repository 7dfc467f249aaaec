"""Podman with a storage of its own and one small image: this machine's Python, its libraries, and a package sglang."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MISSING", "TARGET", "VERSION", "WORKER", "Podman"]

MISSING = [tool for tool in ("podman", "crun", "unshare", "tar") if shutil.which(tool) is None] or (
    ["root"] if os.geteuid() else []
)
TARGET = "srt/speculative/eagle_worker.py"
VERSION = "0.5.9"
WORKER = b"def forward(batch):\n    return 'as released'\n"
_PACKAGE = "sgl-workspace/sglang/python/sglang"
_WRAPPER = """#!/bin/sh
# crun takes no mix of both versions of control groups: where there is one, Podman sees the first only.
exec unshare --mount sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec {podman} --cgroup-manager=cgroupfs "$@"' sh "$@"
"""
_SERVER = """
import os, socket, sys, time
from sglang.srt.speculative import eagle_worker
port = int(sys.argv[sys.argv.index("--port") + 1])
listening = socket.create_server(("127.0.0.1", port))
print("serving", eagle_worker.forward(None), os.environ.get("SECRET_TOKEN"), flush=True)
if "--deaf" in sys.argv:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "--fail" in sys.argv:
    raise SystemExit(7)
time.sleep(60)
"""


@dataclass
class Podman:
    """`folder` holds everything: storage, image, and `bin`, which belongs in front of PATH. `env` is for its commands."""

    folder: Path
    image: str = "localhost/eaglelab-sglang:0.5.9"

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def env(self) -> dict[str, str]:
        return {
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
        }

    def up(self) -> None:
        self.bin.mkdir()
        wrapper = self.bin / "podman"
        wrapper.write_text(_WRAPPER.format(podman=shutil.which("podman")))
        wrapper.chmod(0o755)
        storage = f'[storage]\ndriver = "vfs"\ngraphroot = "{self.folder}/graph"\nrunroot = "{self.folder}/run"\n'
        (self.folder / "storage.conf").write_text(storage)
        # In a container that is itself unprivileged no limit may be raised, and no group made.
        limits = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\ncgroups = "disabled"\n'
        (self.folder / "containers.conf").write_text(limits)
        root = self.folder / "root"
        _python_into(root)
        self._sglang_into(root / _PACKAGE)
        change = f"ENV PYTHONPATH=/{Path(_PACKAGE).parent}"
        archive = subprocess.run(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE, check=True).stdout
        done = subprocess.run(
            [str(wrapper), "import", "--quiet", "--change", change, "-", self.image],
            input=archive,
            capture_output=True,
            env={**os.environ, **self.env},
        )
        assert done.returncode == 0, done.stderr.decode()
        shutil.rmtree(root)

    def _sglang_into(self, package: Path) -> None:
        worker = package / TARGET
        worker.parent.mkdir(parents=True)
        for folder in (package, package / "srt", package / "srt/speculative"):
            (folder / "__init__.py").touch()
        worker.write_bytes(WORKER)
        (package / "_version.py").write_text(f'__version__ = version = "{VERSION}"\n')
        (package / "launch_server.py").write_text(_SERVER)

    def ask(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            [str(self.bin / "podman"), *words], env={**os.environ, **self.env}, capture_output=True, text=True
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def containers(self) -> list[str]:
        return self.ask("ps", "--all", "--format", "{{.Names}}").split()

    def inside(self, command: str) -> str:
        """What a shell in a fresh container of the image prints."""
        return self.ask("run", "--rm", "--network=none", self.image, "/bin/sh", "-c", command)

    def down(self) -> None:
        for name in self.containers():
            self.ask("rm", "--force", "--time=0", name, check=False)


def _python_into(root: Path) -> None:
    """This machine's own Python and shell, each with the libraries that it loads."""
    python = Path(os.path.realpath(sys.executable))
    library = Path(os.__file__).parent
    for binary in (python, Path("/bin/sh"), Path(str(shutil.which("sleep")))):
        loaded = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=True).stdout.split()
        for path in {str(binary), *(word for word in loaded if word.startswith("/"))}:
            _copy(path, root)
    for extension in (library / "lib-dynload").glob("*.so"):
        loaded = subprocess.run(["ldd", str(extension)], capture_output=True, text=True, check=False).stdout.split()
        for path in (word for word in loaded if word.startswith("/")):
            _copy(path, root)
    skipped = shutil.ignore_patterns("__pycache__", "test", "tests", "idlelib", "lib2to3", "site-packages", "config-*")
    shutil.copytree(library, root / str(library).lstrip("/"), ignore=skipped)
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/python3").unlink(missing_ok=True)
    (root / "usr/bin/python3").symlink_to(python)
    (root / "tmp").mkdir()


def _copy(path: str, root: Path) -> None:
    target = root / path.lstrip("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
