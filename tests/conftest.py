"""What holds for every test: nothing but loopback is contacted, and nothing of the user's own set-up is read."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

GUARD = Path(__file__).parent / "guard"
sys.path.insert(0, str(GUARD))

import loopback_guard  # noqa: E402 - found through the line above

loopback_guard.install()
os.environ["EAGLELAB_LOOPBACK_ONLY"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join([str(GUARD), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ.pop("EAGLELAB_HOST", None)
# Started in the background (`&`, nohup), a process ignores these, and so would every command that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)

# How long an example takes is this machine's other work's affair; what an example finds is not.
settings.register_profile("gate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gate")


@pytest.fixture
def project() -> Path:
    """The root of this project: inventory.yaml, playbooks/ and patches/ lie there."""
    return Path(__file__).parent.parent
