from __future__ import annotations

from pathlib import Path

import pytest

from eaglelab.patching.spec import PatchSpec, load_patch

PATCH = Path(__file__).parents[2] / "patches" / "eagle3-profile"


@pytest.fixture(scope="session")
def folder() -> Path:
    return PATCH


@pytest.fixture(scope="session")
def patch() -> PatchSpec:
    return load_patch(PATCH)
