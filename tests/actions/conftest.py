from __future__ import annotations

from pathlib import Path

import pytest
from fake_host import FakeHost, make_context

from eaglelab.actions import ACTIONS
from eaglelab.context import Context


@pytest.fixture
def fake() -> FakeHost:
    return FakeHost()


@pytest.fixture
def context(fake: FakeHost, tmp_path: Path) -> Context:
    return make_context(fake, tmp_path / "bundle")


@pytest.fixture
def do(context: Context):
    """Runs an action by its name."""

    def perform(name: str, **args):
        action = ACTIONS[name]
        return action.run(context, action.args.model_validate(args))

    return perform
