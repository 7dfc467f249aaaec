"""Installations that pip makes: site-packages, and editable checkouts in each of the ways that setuptools knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from installkit import (
    PROBE,
    SPECULATIVE,
    VERSION,
    Machine,
    checkout,
    contents,
    imported,
    is_patched,
    package_in,
    pip,
    venv,
)


def test_a_package_in_site_packages_is_put_back_byte_by_byte_and_pip_works_on_it_while_it_is_patched(
    machine: Machine, environment: Path
) -> None:
    package, before = package_in(environment), contents(environment.parent.parent)
    machine.points_to(environment)
    assert f"SGLang {VERSION} in {package}" in machine.patch()
    assert is_patched(imported(environment))
    machine.do("plan", "backup")
    assert machine.do("patch")["changed"] == []
    machine.rollback()
    assert contents(environment.parent.parent) == before
    assert "nothing to do" in machine.rollback()
    machine.patch()
    assert "No broken requirements" in pip(environment, "check")
    pip(environment, "uninstall", "-q", "-y", "sglang")
    assert [path.name for path in (package / SPECULATIVE).iterdir()] == [PROBE]  # RECORD does not know it
    assert "its SGLang is gone" in machine.rollback()
    assert list((package / SPECULATIVE).iterdir()) == []
    assert set(machine.states().values()) == {"gone"}


@pytest.mark.parametrize("mode", ["lenient", "strict"])
def test_an_editable_checkout_is_patched_where_its_python_imports_it(
    machine: Machine, released: Path, setuptools: str, tmp_path: Path, mode: str
) -> None:
    source = checkout(released, tmp_path / "checkout")
    for name in ("_version.py", "version.py"):
        (source / "python/sglang" / name).unlink()  # as in a clone, whose version comes from its tags
    python = venv(tmp_path / "env")
    words = ["install", "-q", "--no-deps", "--no-build-isolation", "--config-settings", f"editable_mode={mode}"]
    pip(python, *words, "-e", source / "python", PYTHONPATH=setuptools)
    before, own = contents(source), contents(source / "python/sglang")
    machine.points_to(python, source if mode == "lenient" else None)
    assert f"SGLang {VERSION} in" in machine.patch()
    where = imported(python)
    assert is_patched(where)
    if mode == "strict":  # its links give way to files: what runs is patched, and the checkout is not
        assert where != source / "python/sglang" / SPECULATIVE
        assert contents(source / "python/sglang") == own
    machine.rollback()
    assert contents(source) == before
