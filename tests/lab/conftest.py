"""One lab for the whole session, and the pieces to look at it with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest
from labkit import VERSION, importable, log_in, released

from eaglelab.lab.lab import LabInfo, LabOptions, down, up
from eaglelab.lab.model import read_model
from eaglelab.lab.standin.acceptance import Acceptance
from eaglelab.lab.standin.costs import Costs
from eaglelab.lab.standin.device import Gpu
from eaglelab.lab.standin.gpu import Clock
from eaglelab.lab.standin.stubs import Finder


@pytest.fixture(scope="session")
def package() -> Path:
    """The released package, from the cache that labs share."""
    return released(VERSION)


@pytest.fixture(scope="session")
def lab(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabInfo]:
    """A lab that is up. Its server loads in a fifth of a second."""
    root = tmp_path_factory.mktemp("lab") / ".lab"
    try:
        yield up(LabOptions(root=root, sglang=VERSION, load_seconds=0.2), print)
    finally:
        down(root, print)


@pytest.fixture(scope="session")
def ssh(lab: LabInfo) -> Iterator[paramiko.SSHClient]:
    """A client that checks the host key and knows only the lab's key."""
    with log_in(lab) as client:
        yield client


@pytest.fixture
def stubbed(package: Path) -> Iterator[Finder]:
    """The package importable as on the lab host, in this process, for one test."""
    with importable(package) as finder:
        yield finder


@pytest.fixture(scope="session")
def model() -> dict[str, Any]:
    """The lab's own model, as the lab host reads it."""
    settings: dict[str, Any] = json.loads(json.dumps(read_model().as_settings()))
    return settings


@pytest.fixture
def gpu(model: dict[str, Any]) -> Gpu:
    """A simulated GPU without jitter, whose clock nobody waits for."""
    costs = Costs(gpu={**model["gpu_ms"], "jitter": 0.0}, host=model["host_ms"])
    clock = Clock(1.0, wall=lambda: 0.0, sleep=lambda _seconds: None, unix=lambda: 0.0)
    return Gpu(clock, costs, Acceptance(1, (0.4975,)))
