"""An installation on a file system that cannot be written: said beforehand, with a way out that works as it is typed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from installkit import SPECULATIVE, Machine, checked, contents, is_patched, package_in, venv

from eaglelab.errors import HostError

READ_ONLY = """#!/bin/sh
exec unshare --mount sh -c 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$0/bin/python" "$@"' {env} "$@"
"""


@pytest.fixture
def python(released: Path, tmp_path: Path) -> Path:
    """A Python that sees its own environment read-only, as in a container's image; nobody else does."""
    env = tmp_path / "env"
    shutil.copytree(released, package_in(venv(env)))
    wrapper = tmp_path / "python"
    wrapper.write_text(READ_ONLY.format(env=env))
    wrapper.chmod(0o755)
    done = subprocess.run([wrapper, "-c", ""], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    return wrapper


def test_a_read_only_image_is_refused_by_doctor_and_a_copy_is_patched_instead(
    machine: Machine, python: Path, tmp_path: Path
) -> None:
    package = package_in(tmp_path / "env/bin/python")
    before = contents(package)
    machine.points_to(python)
    with pytest.raises(HostError, match=f"the folder of {package}/.* is on a read-only file system") as refused:
        machine.patch()
    assert contents(package) == before
    assert machine.states() == {}
    hint = refused.value.hint
    found = re.search(r"on the host (mkdir .*?), and in inventory.yaml `sglang: (.*?)` and PYTHONPATH: (\S+) ", hint)
    assert found is not None
    checked("sh", "-c", found[1])
    copied = contents(Path(found[2]))
    machine.points_to(python, Path(found[2]), PYTHONPATH=found[3])
    machine.patch()
    assert is_patched(Path(found[2]) / "sglang" / SPECULATIVE)
    machine.rollback()
    assert contents(Path(found[2])) == copied
    assert contents(package) == before
