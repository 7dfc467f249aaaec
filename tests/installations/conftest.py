from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from installkit import Machine, build_wheel, pip, venv
from serverkit import free_port

from eaglelab.errors import EaglelabError
from eaglelab.lab.provision import cache_folder, package_of


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        release = package_of("0.5.12", cache_folder(), print)
    except EaglelabError as error:
        pytest.skip(f"SGLang 0.5.12 is not here: {error}")
    return build_wheel(release, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def released(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as pip unpacks it: to be copied."""
    folder = tmp_path_factory.mktemp("released")
    pip(Path(sys.executable), "install", "-q", "--no-deps", "--no-compile", "--target", folder, wheel)
    return folder / "sglang"


@pytest.fixture
def environment(wheel: Path, tmp_path: Path) -> Path:
    """The Python of a virtual environment into which pip has installed the release."""
    python = venv(tmp_path / "env")
    pip(python, "install", "-q", "--no-deps", "--no-compile", wheel)
    return python


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    (tmp_path / "home").mkdir()
    made = Machine(tmp_path, free_port())
    yield made
    made.close()


@pytest.fixture(scope="session")
def uv() -> str:
    found = shutil.which("uv", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin") or shutil.which("uv")
    if found is None:
        pytest.skip("uv is not here: pip install uv")
    return found


@pytest.fixture(scope="session")
def setuptools() -> str:
    """The folder of a setuptools that builds editable installations, to be lent to pip: nothing is downloaded here."""
    spec = importlib.util.find_spec("setuptools")
    if spec is None or spec.origin is None:
        pytest.skip("setuptools is not here: pip install setuptools")
    version = metadata.version("setuptools")
    if int(version.split(".")[0]) < 71:  # older ones need `wheel` as well
        pytest.skip(f"setuptools {version} is too old to build one by itself")
    return str(Path(spec.origin).parents[1])
