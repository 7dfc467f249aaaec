from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import podmankit
import pytest
import systemdkit
from podmankit import PYTHONPATH, Podman, sglang_into
from serverkit import ServerHost
from slurmkit import MISSING, Cluster
from systemdkit import Machine

ENGINES = {"cluster", "pair", "podman", "machine"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A real engine takes its time: all of its tests are for `make test-launchers`, a sample is for every day."""
    if os.environ.get("EAGLELAB_ALL_LAUNCHERS"):
        return
    skipped = pytest.mark.skip(reason="make test-launchers runs it")
    for item in items:  # of all folders, in which others have fixtures of these names
        if (
            Path(__file__).parent in item.path.parents
            and ENGINES & set(getattr(item, "fixturenames", ()))
            and item.get_closest_marker("sample") is None
        ):
            item.add_marker(skipped)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Slurm for a module's tests."""
    yield from _slurm(1)


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """The same with two nodes."""
    yield from _slurm(2)


def _slurm(nodes: int) -> Iterator[Cluster]:
    """What it writes stays where it cannot be started."""
    if MISSING:
        pytest.skip(f"there is no Slurm here ({', '.join(MISSING)}): sh tests/ensure-slurm installs it")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    made = Cluster(folder, nodes)
    try:
        made.up()
        yield made
    finally:
        made.down()
    shutil.rmtree(folder)


@pytest.fixture
def slurm_host(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerHost]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setenv("SLURM_CONF", str(cluster.config))
    host = ServerHost(tmp_path)
    yield host
    if "slurmctld" not in cluster.daemons:
        cluster.control()
    host.stop(grace=0.0)
    host.close()


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    """A Podman that has the image. What it wrote stays where it cannot be made."""
    if podmankit.MISSING:
        pytest.skip(f"Podman cannot be run here ({', '.join(podmankit.MISSING)}): sh tests/ensure-podman installs it")
    folder = Path(tempfile.mkdtemp(prefix="podman-"))
    made = Podman(folder)
    made.up()
    made.build(made.image, sglang_into, PYTHONPATH=PYTHONPATH)
    refusal = made.refusal(made.image)
    if refusal is None:
        yield made
        made.down()
    shutil.rmtree(folder)
    if refusal is not None:
        pytest.skip(f"Podman cannot run a container here: {refusal}")


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A container whose process 1 is systemd, with a root of its own: nothing of this machine is seen in it."""
    if podmankit.MISSING or systemdkit.MISSING:
        what = ", ".join([*podmankit.MISSING, *systemdkit.MISSING])
        pytest.skip(f"systemd cannot be run in a container here ({what}): sh tests/ensure-podman")
    folder = Path(tempfile.mkdtemp(prefix="systemd-"))
    podman = Podman(folder)
    podman.up()
    made = Machine(podman)
    refusal = made.up()
    if refusal is None:
        yield made
    podman.down()
    shutil.rmtree(folder)
    if refusal is not None:
        pytest.skip(f"systemd cannot be run in a container here: {refusal}")


@pytest.fixture
def container_host(podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerHost]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for name, value in podman.env.items():
        monkeypatch.setenv(name, value)
    host = ServerHost(tmp_path)
    yield host
    host.stop(grace=0.0)
    host.close()
