from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hostkit import Installation
from serverkit import ServerHost


@pytest.fixture
def host(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


@pytest.fixture
def server_host(tmp_path: Path) -> Iterator[ServerHost]:
    host = ServerHost(tmp_path)
    yield host
    host.close()
