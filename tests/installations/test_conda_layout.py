"""The layout of a conda environment, made by hand, for conda itself is no package that a test could install."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from installkit import VERSION, Machine, contents, imported, is_patched, package_in, picture, venv

NAME = f"sglang-{VERSION}-pyhd8ed1ab_0"


@pytest.fixture
def python(released: Path, tmp_path: Path) -> Path:
    """Of an environment whose files are hard links into pkgs/, with records in conda-meta; it is never activated."""
    python = venv(tmp_path / "conda/envs/llm")
    cache, site = tmp_path / "conda/pkgs" / NAME, package_in(python).parent
    (cache / "info").mkdir(parents=True)
    (cache / "info/index.json").write_text("{}")
    for file in sorted(released.rglob("*.py")):
        name = file.relative_to(released.parent)
        for place in (cache / "site-packages" / name, site / name):
            place.parent.mkdir(parents=True, exist_ok=True)
        (cache / "site-packages" / name).write_bytes(file.read_bytes())
        os.link(cache / "site-packages" / name, site / name)
    meta = tmp_path / "conda/envs/llm/conda-meta"
    meta.mkdir()
    (meta / "history").touch()
    (meta / f"{NAME}.json").write_text("{}")
    return python


def test_the_package_cache_keeps_inode_bytes_mode_and_time(machine: Machine, python: Path, tmp_path: Path) -> None:
    cache = tmp_path / "conda/pkgs" / NAME
    before, stored = contents(tmp_path / "conda"), picture(cache)
    machine.points_to(python)
    assert (
        "worker files are hard links: what else bears their name, as in a cache, keeps the original" in machine.patch()
    )
    assert is_patched(imported(python))
    assert {name: seen.file for name, seen in picture(cache).items()} == {
        name: was.file for name, was in stored.items()
    }
    machine.rollback()
    assert contents(tmp_path / "conda") == before
    assert {name: seen.file for name, seen in picture(cache).items()} == {
        name: was.file for name, was in stored.items()
    }


def test_a_mode_that_somebody_changed_is_put_back_without_the_cache(machine: Machine, python: Path) -> None:
    worker = imported(python) / "eagle_worker.py"
    machine.points_to(python)
    machine.patch()
    machine.rollback()
    stored = next(python.parents[3].glob("pkgs/*/site-packages/**/eagle_worker.py"))
    machine.patch()
    worker.unlink()
    os.link(stored, worker)  # conda install --force-reinstall
    stored.chmod(0o600)
    machine.rollback()
    assert (worker.stat().st_mode & 0o777, stored.stat().st_mode & 0o777) == (0o644, 0o600)
