"""One lab for the whole session, and the pieces to look at it with."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest
from labkit import VERSION, log_in

from eaglelab.errors import EaglelabError
from eaglelab.lab import provision
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
    try:
        return provision.package_of(VERSION, provision.cache_folder(), print)
    except EaglelabError as error:
        pytest.fail(f"these tests need sglang {VERSION} in the cache (`invoke lab-up` once, online): {error}")


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
    before = set(sys.modules)
    finder = Finder()
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, str(package))
    try:
        yield finder
    finally:
        sys.path.remove(str(package))
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("sglang", "torch"):
                del sys.modules[name]


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
