from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import Machine
from sshd import Sshd


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    server = Sshd(tmp_path_factory.mktemp("sshd"), host_keys=("ed25519",))
    yield server
    server.close()


@pytest.fixture
def machine(tmp_path: Path, sshd: Sshd) -> Iterator[Machine]:
    """A host of the test's own behind the one sshd."""
    made = Machine(tmp_path / "machine", sshd)
    yield made
    made.close()
