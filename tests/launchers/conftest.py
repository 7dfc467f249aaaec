from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
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
