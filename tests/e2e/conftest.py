from __future__ import annotations

from collections.abc import Iterator

import pytest
from scene import Scene


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A project whose lab is up (SGLang 0.5.9, a load of half a second)."""
    made = Scene.make(tmp_path_factory.mktemp("project"))
    made.invoke("lab-up", "--load-seconds", "0.5")
    yield made
    made.invoke("lab-down")
