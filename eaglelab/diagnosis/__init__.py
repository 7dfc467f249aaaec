"""Says what limits a server, or will, from what is known of it: an engine, and rules as data."""

from __future__ import annotations

from eaglelab.diagnosis.diagnosis import Certainty, Diagnosis, not_said_again
from eaglelab.diagnosis.engine import diagnose
from eaglelab.diagnosis.facts import Fact, Facts
from eaglelab.diagnosis.of_log import facts_of_log
from eaglelab.diagnosis.of_run import facts_of_run

__all__ = [
    "Certainty",
    "Diagnosis",
    "Fact",
    "Facts",
    "diagnose",
    "facts_of_log",
    "facts_of_run",
    "not_said_again",
]
