"""Installations that uv makes: whatever links it uses, its cache stays as it was, and so does every other environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from installkit import (
    MARK,
    PROBE,
    SPECULATIVE,
    WORKERS,
    Machine,
    Seen,
    checked,
    checkout,
    contents,
    direct_url,
    imported,
    is_patched,
    package_in,
    picture,
    venv,
)

MODES = ["hardlink", "symlink", "copy"]


class Uv:
    """uv with a cache of its own, and two environments made of it."""

    def __init__(self, program: str, folder: Path, wheel: Path, mode: str) -> None:
        self.cache, self.program, self.wheel, self.mode = folder / "cache", program, wheel, mode
        self.python, self.other = (self.environment(folder / name) for name in ("env", "other"))

    def environment(self, folder: Path) -> Path:
        checked(self.program, "venv", "-q", "--cache-dir", self.cache, "--python", sys.executable, folder)
        python = folder / "bin/python"
        self.install(python)
        return python

    def install(self, python: Path, *more: str) -> None:
        words = ["pip", "install", "-q", "--no-deps", "--link-mode", self.mode, "--cache-dir", self.cache]
        checked(self.program, *words, "--python", python, *more, self.wheel)

    def stored(self) -> dict[str, Seen]:
        """Every file of the package in the cache."""
        (package,) = self.cache.glob("archive-v*/*/sglang")
        return picture(package)


@pytest.fixture(params=MODES)
def made(request: pytest.FixtureRequest, uv: str, wheel: Path, tmp_path: Path) -> Uv:
    return Uv(uv, tmp_path, wheel, request.param)


def test_the_cache_and_the_other_environment_stay_as_they_were(machine: Machine, made: Uv) -> None:
    cache, other, before = made.stored(), contents(made.other.parent.parent), contents(made.python.parent.parent)
    machine.points_to(made.python)
    said = {
        "hardlink": "worker files are hard links",
        "symlink": "worker files are links into a store",
        "copy": "SGLang",
    }
    assert said[made.mode] in machine.patch()
    assert is_patched(imported(made.python))
    assert not is_patched(imported(made.other))
    patched = made.stored()
    for name, was in cache.items():
        # Of a hard link that gives way the cache's file has one name less.
        gave_way = made.mode == "hardlink" and MARK in (package_in(made.python) / name).read_bytes()
        assert (patched[name].file, patched[name].names) == (was.file, was.names - gave_way)
    machine.rollback()
    assert contents(made.python.parent.parent) == before
    assert {name: seen.file for name, seen in made.stored().items()} == {name: was.file for name, was in cache.items()}
    assert contents(made.other.parent.parent) == other
    machine.patch()
    made.install(made.python, "--reinstall")  # what was patched does not come back with it
    assert {state for name, state in machine.states().items() if not name.endswith(PROBE)} == {"original"}
    machine.rollback()
    assert contents(made.python.parent.parent) == before


@pytest.mark.parametrize("made", ["symlink"], indirect=True)
def test_a_link_whose_cache_was_emptied_meanwhile_becomes_the_original_file(machine: Machine, made: Uv) -> None:
    worker = imported(made.python) / WORKERS[0]
    original = worker.read_bytes()
    machine.points_to(made.python)
    machine.patch()
    checked(made.program, "cache", "clean", "-q", "--cache-dir", made.cache, "--force")
    machine.rollback()
    assert (worker.is_symlink(), worker.read_bytes()) == (False, original)


@pytest.mark.parametrize("made", ["symlink"], indirect=True)
def test_a_patch_that_an_older_eaglelab_wrote_through_the_link_is_taken_out_of_the_cache(
    machine: Machine, made: Uv
) -> None:
    cache = made.stored()
    where = imported(made.python)
    machine.points_to(made.python)
    machine.patch()
    # As it would have been: the patched bytes behind the links.
    for name in WORKERS:
        stored = next(made.cache.glob(f"archive-v*/*/sglang/{SPECULATIVE}/{name}"))
        stored.write_bytes((where / name).read_bytes())
        (where / name).unlink()
        (where / name).symlink_to(stored)
    machine.rollback()
    assert {name: seen.sha256 for name, seen in made.stored().items()} == {n: s.sha256 for n, s in cache.items()}
    assert not is_patched(where)


def test_a_checkout_that_uv_installed_as_editable_is_patched_itself(
    machine: Machine, uv: str, released: Path, setuptools: str, tmp_path: Path
) -> None:
    source, python = checkout(released, tmp_path / "checkout"), venv(tmp_path / "env")
    words = ["pip", "install", "-q", "--no-deps", "--no-build-isolation", "--cache-dir", tmp_path / "cache"]
    checked(uv, *words, "--python", python, "-e", source / "python", PYTHONPATH=setuptools)
    assert direct_url(package_in(python))["dir_info"]["editable"] is True
    before = contents(source)
    machine.points_to(python)
    machine.patch()
    assert is_patched(source / "python/sglang" / SPECULATIVE)
    machine.rollback()
    assert contents(source) == before
