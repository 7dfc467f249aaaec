"""A host on this machine whose loads are kept in the test's own state folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from linkkit import BreakingLink, client
from loadkit import ME

from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.load import Loads
from eaglelab.remote.client import AgentClient


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every agent of a test keeps its state here; what it started is ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("eaglelab.remote.pipe._END_S", 0.3)
    yield tmp_path / "eaglelab"
    Loads(Journal(str(tmp_path / "eaglelab"))).end_all(lambda _: None, 0.0)


@pytest.fixture
def link() -> BreakingLink:
    return BreakingLink()


@pytest.fixture
def agent(link: BreakingLink) -> Iterator[AgentClient]:
    found = client(link)
    found.lock(ME)
    yield found
    found.close()
