from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostkit import Installation
from serverkit import ServerHost


@pytest.fixture(autouse=True)
def no_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync protects from a power cut, which no test here makes, and takes as long as the machine's other work lets it."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def host(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


@pytest.fixture
def server_host(tmp_path: Path) -> Iterator[ServerHost]:
    host = ServerHost(tmp_path)
    yield host
    host.close()
