"""Podman with a storage of its own, and small images made of this machine's Python and its libraries: no registry."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MISSING", "PYTHONPATH", "TARGET", "VERSION", "WORKER", "Podman", "binary_into", "sglang_into"]

MISSING = [tool for tool in ("podman", "crun", "unshare", "tar") if shutil.which(tool) is None] or (
    ["root"] if os.geteuid() else []
)
TARGET = "srt/speculative/eagle_worker.py"
VERSION = "0.5.9"
WORKER = b"def forward(batch):\n    return 'as released'\n"
PYTHONPATH = "/sgl-workspace/sglang/python"
_PACKAGE = "sgl-workspace/sglang/python/sglang"
_WRAPPER = """#!/bin/sh
# crun takes no mix of both versions of control groups: where there is one, Podman sees the first version only.
[ -d /sys/fs/cgroup/unified ] || exec {podman} --cgroup-manager=cgroupfs "$@"
exec unshare --mount sh -c '
  umount -R /sys/fs/cgroup && mount -t tmpfs none /sys/fs/cgroup
  for kind in blkio cpu cpuacct cpuset devices freezer memory pids; do
    mkdir /sys/fs/cgroup/$kind
    mount -t cgroup -o $kind none /sys/fs/cgroup/$kind 2>/dev/null || rmdir /sys/fs/cgroup/$kind
  done
  mkdir /sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd none /sys/fs/cgroup/systemd
  exec {podman} --cgroup-manager=cgroupfs "$@"' sh "$@"
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
        # In a machine that is itself confined no limit may be raised.
        limits = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\n'
        own = f'[engine]\ntmp_dir = "{self.folder}/tmp"\n'
        (self.folder / "containers.conf").write_text(limits + own)

    def build(self, image: str, fill: Callable[[Path], None], **env: str) -> None:
        """An image of what `fill` lays into a folder, beside Python and a shell, with these variables."""
        root = self.folder / "root"
        python_into(root)
        fill(root)
        changes = [f"--change=ENV {name}={value}" for name, value in env.items()]
        archive = subprocess.run(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE, check=True).stdout
        done = subprocess.run(
            [str(self.bin / "podman"), "import", "--quiet", *changes, "-", image],
            input=archive,
            capture_output=True,
            env={**os.environ, **self.env},
        )
        assert done.returncode == 0, done.stderr.decode()
        shutil.rmtree(root)

    def refusal(self, image: str) -> str | None:
        """Why no container can be run here; None if one can."""
        words = ["run", "--rm", "--network=none", "--entrypoint=/bin/sh", image, "-c", "exit 0"]
        done = subprocess.run(
            [str(self.bin / "podman"), *words], env={**os.environ, **self.env}, capture_output=True, text=True
        )
        return done.stderr.strip()[-300:] if done.returncode else None

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


def sglang_into(root: Path) -> None:
    package = root / _PACKAGE
    worker = package / TARGET
    worker.parent.mkdir(parents=True)
    for folder in (package, package / "srt", package / "srt/speculative"):
        (folder / "__init__.py").touch()
    worker.write_bytes(WORKER)
    (package / "_version.py").write_text(f'__version__ = version = "{VERSION}"\n')
    (package / "launch_server.py").write_text(_SERVER)


def binary_into(root: Path, *binaries: str) -> None:
    """Each with the libraries that it loads."""
    for binary in binaries:
        _copy(binary, root)
        loaded = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout.split()
        for path in (word for word in loaded if word.startswith("/")):
            _copy(path, root)


def python_into(root: Path) -> None:
    python, library = os.path.realpath(sys.executable), Path(os.__file__).parent
    binary_into(root, python, "/bin/sh", str(shutil.which("sleep")), *map(str, (library / "lib-dynload").glob("*.so")))
    skipped = shutil.ignore_patterns("__pycache__", "test", "tests", "idlelib", "lib2to3", "site-packages", "config-*")
    shutil.copytree(library, root / str(library).lstrip("/"), ignore=skipped, dirs_exist_ok=True)
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/python3").unlink(missing_ok=True)
    (root / "usr/bin/python3").symlink_to(python)
    (root / "tmp").mkdir()


def _copy(path: str, root: Path) -> None:
    target = root / path.lstrip("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
