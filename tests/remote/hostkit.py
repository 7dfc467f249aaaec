"""A small installation to patch, and the agent's journal on it, without any connection."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eaglelab.remote.agent.journal import Journal

__all__ = ["MODULE", "ORIGINAL", "PATCHED", "Installation", "digest", "temporaries"]

ORIGINAL = b"def forward(batch):\n    return batch\n"
PATCHED = b"def forward(batch):\n    _mark(1)  # eaglelab:test\n    return batch\n"
MODULE = b"probe = None\n"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def temporaries(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*.tmp")]


@dataclass
class Installation:
    """Two workers, room for a module beside them, and a state folder: `folder/sglang` and `folder/state`."""

    folder: Path

    def __post_init__(self) -> None:
        self.package.mkdir(parents=True)
        for worker in self.workers:
            worker.write_bytes(ORIGINAL)
            worker.chmod(0o640)

    @property
    def package(self) -> Path:
        return self.folder / "sglang"

    @property
    def workers(self) -> tuple[Path, Path]:
        return self.package / "eagle_worker.py", self.package / "eagle_worker_v2.py"

    @property
    def module(self) -> Path:
        return self.package / "probe.py"

    @property
    def journal(self) -> Journal:
        """A fresh one each time, as a fresh agent has it."""
        return Journal(str(self.folder / "state"))

    @property
    def contents(self) -> dict[str, bytes]:
        return {str(self.module): MODULE, **{str(worker): PATCHED for worker in self.workers}}

    def files(self) -> list[dict[str, Any]]:
        entries = [self.entry(worker, ORIGINAL, PATCHED) for worker in self.workers]
        return [self.entry(self.module, None, MODULE), *entries]

    def entry(self, path: Path, original: bytes | None, patched: bytes) -> dict[str, Any]:
        return {
            "path": str(path),
            "found": digest(path.read_bytes()) if path.exists() else None,
            "original": None if original is None else digest(original),
            "patched": digest(patched),
            "mode": 0o640,
            "uid": os.getuid(),
            "gid": os.getgid(),
        }

    def backup(self, originals: dict[str, bytes] | None = None, files: list[dict[str, Any]] | None = None) -> Any:
        return self.journal.backup("run-1", "test 1", "me@here", files or self.files(), originals or {})

    def apply(self) -> list[dict[str, Any]]:
        return self.journal.apply("run-1", self.contents)

    def rollback(self) -> dict[str, Any]:
        return self.journal.rollback("run-2")

    def deploy(self) -> None:
        self.backup()
        self.apply()

    def assert_original(self) -> None:
        """Bytes, mode and owner as they were, and nothing of ours left beside them."""
        for worker in self.workers:
            assert worker.read_bytes() == ORIGINAL
            info = worker.stat()
            assert (info.st_mode & 0o7777, info.st_uid, info.st_gid) == (0o640, os.getuid(), os.getgid())
        assert sorted(path.name for path in self.package.iterdir()) == ["eagle_worker.py", "eagle_worker_v2.py"]

    def assert_patched(self) -> None:
        for path, data in self.contents.items():
            assert Path(path).read_bytes() == data
