"""Several installations on one host: which one is meant, which are there as well, and what a rollback puts back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fake_host import said
from installkit import SPECULATIVE, Machine, contents, is_patched, package_in, venv

from eaglelab.errors import HostError


def unpacked(released: Path, python: Path) -> Path:
    """The package in the environment of `python`, as pip would unpack it."""
    package = package_in(python)
    shutil.copytree(released, package)
    return package


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return venv(tmp_path / "first")


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return venv(tmp_path / "second")


def test_a_rollback_puts_back_all_that_were_changed_wherever_the_inventory_points_now(
    machine: Machine, released: Path, first: Path, second: Path
) -> None:
    packages = [unpacked(released, python) for python in (first, second)]
    before = [contents(package) for package in packages]
    machine.points_to(first)
    machine.patch()
    machine.points_to(second)
    words = machine.patch()
    assert f"files of another installation are not original: {packages[0] / SPECULATIVE}; invoke rollback" in words
    assert [is_patched(package / SPECULATIVE) for package in packages] == [True, True]
    machine.rollback()
    assert [contents(package) for package in packages] == before


def test_an_installation_that_was_deleted_while_patched_does_not_keep_another_from_its_originals(
    machine: Machine, released: Path, first: Path, second: Path
) -> None:
    packages = [unpacked(released, python) for python in (first, second)]
    before = contents(packages[1])
    machine.points_to(first)
    machine.patch()
    machine.points_to(second)
    machine.patch()
    shutil.rmtree(first.parent.parent)
    machine.do("doctor")
    words = machine.rollback()
    assert contents(packages[1]) == before
    assert f"{packages[0] / SPECULATIVE}: its SGLang is gone, so there is nothing to put back" in words
    assert set(machine.states().values()) == {"gone"}
    machine.patch()
    machine.rollback()
    assert contents(packages[1]) == before


def test_a_path_in_the_inventory_that_its_python_does_not_import_is_refused_before_anything_is_changed(
    machine: Machine, released: Path, first: Path, second: Path, tmp_path: Path
) -> None:
    runs, other = (unpacked(released, python) for python in (first, second))
    machine.points_to(first, other.parent)
    with pytest.raises(HostError) as refused:
        machine.do("doctor")
    assert refused.value.what == (
        f"{first} imports sglang from {runs}, not from {other}: a patch there would never run"
    )
    assert "set `sglang` in inventory.yaml to the folder that this Python imports" in refused.value.hint
    machine.points_to(first, tmp_path / "nothing")
    with pytest.raises(HostError, match=f"no SGLang package below .*; {first} imports it from {runs}"):
        machine.do("doctor")


def test_a_package_that_the_servers_variables_put_first_is_the_one_and_the_hidden_one_is_named(
    machine: Machine, released: Path, first: Path, tmp_path: Path
) -> None:
    hidden = unpacked(released, first)
    shown = shutil.copytree(released, tmp_path / "copy/sglang")
    machine.points_to(first, None, PYTHONPATH=str(shown.parent))
    words = machine.patch()
    assert f"{hidden} is there as well: this Python does not import it, and it is left alone" in words
    assert [is_patched(package / SPECULATIVE) for package in (shown, hidden)] == [True, False]
    machine.points_to(first)
    machine.do("doctor")
    assert str(shown) in said(machine.context)  # its files are not original
    machine.rollback()
    assert not is_patched(shown / SPECULATIVE)
