"""The worker files of SGLang's releases: taken out of the released wheels once, then kept in the package cache."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Release", "fetched", "folder_of", "releases"]

LIST = Path(__file__).parent / "releases.txt"
KEPT = ("sglang/srt/speculative/", "sglang/__init__.py", "sglang/version.py", "sglang/_version.py")
# The Python in a wheel is the same for every platform: one fixed tag serves every machine that runs this.
TAGS = [
    *("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "none"),
    *("--platform", "manylinux_2_34_x86_64", "--platform", "any"),
]
LIMIT = 300
"""Seconds for one download: the largest wheel has 40 MB."""


@dataclass(frozen=True)
class Release:
    """A line of releases.txt; `families` are the shapes that appear first in it (`a` to `m`: v1, capitals: v2)."""

    version: str
    families: tuple[str, ...]


def releases() -> list[Release]:
    """All of them, oldest first."""
    lines = (line.partition("#")[0].split() for line in LIST.read_text(encoding="utf-8").splitlines())
    return [Release(words[0], tuple(words[1:])) for words in lines if words]


def folder_of(version: str, cache: Path) -> Path:
    """Where a release's files are once fetched: a folder that holds `sglang/`."""
    return cache / f"workers-{version}"


def fetched(version: str, cache: Path) -> Path:
    """The release's folder, downloaded on first use. Raises OSError that says why where that fails."""
    folder = folder_of(version, cache)
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".workers-", dir=cache) as scratch:
        target = Path(scratch) / "files"
        _unpack(_download(version, Path(scratch)), target)
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another run was faster, with the same files
                raise
    return folder


def _unpack(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(KEPT) and name.endswith(".py"):
                archive.extract(name, target)


def _download(version: str, target: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "--no-deps", "--only-binary=:all:", *TAGS, "--dest", str(target), f"sglang=={version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise OSError(f"sglang {version} could not be downloaded within {LIMIT} s") from None
    wheels = list(target.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise OSError(f"sglang {version} could not be downloaded: {lines[-1] if lines else 'pip said nothing'}")
    return wheels[0]
