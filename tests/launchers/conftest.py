from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import podmankit
import pytest
from podmankit import Podman
from serverkit import ServerHost
from slurmkit import MISSING, Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Slurm for a module's tests. What it writes stays where it cannot be started."""
    if MISSING:
        pytest.skip(f"there is no Slurm here ({', '.join(MISSING)}): sh tests/ensure-slurm installs it")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    made = Cluster(folder)
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
    yield made
    made.down()
    shutil.rmtree(folder)


@pytest.fixture
def container_host(podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerHost]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for name, value in podman.env.items():
        monkeypatch.setenv(name, value)
    host = ServerHost(tmp_path)
    yield host
    host.stop(grace=0.0)
    host.close()
