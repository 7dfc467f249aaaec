from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
from scene import Scene

NEEDS_PYTHON = {"0.5.23": (3, 11)}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A project whose lab is up (SGLang 0.5.9, a load of half a second)."""
    made = Scene.make(tmp_path_factory.mktemp("project"))
    made.invoke("lab-up", "--load-seconds", "0.5")
    yield made
    made.invoke("lab-down")


@pytest.fixture(scope="module")
def scene_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Scene]]:
    """The project whose lab runs a release; one for all that a module does with it."""
    scenes: dict[str, Scene] = {}

    def of(version: str) -> Scene:
        if sys.version_info < NEEDS_PYTHON.get(version, (3, 10)):
            pytest.skip(f"SGLang {version} has no wheel for Python {sys.version_info[0]}.{sys.version_info[1]}")
        if version not in scenes:
            scenes[version] = Scene.make(tmp_path_factory.mktemp("project"))
            scenes[version].invoke("lab-up", "--sglang", version, "--load-seconds", "0.3")
        return scenes[version]

    yield of
    for scene in scenes.values():
        scene.invoke("lab-down")
