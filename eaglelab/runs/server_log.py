"""What a run's server said, read from the log in its bundle."""

from __future__ import annotations

from collections.abc import Sequence

from eaglelab.profile.log_report import LogReport
from eaglelab.profile.logfile import read_logs
from eaglelab.runs.evidence import LoadEvidence

__all__ = ["log_of"]


def log_of(loads: Sequence[LoadEvidence]) -> LogReport | None:
    """Of the last load that speculated: retractions, memory, which worker and all-reduce it chose. None without a log."""
    logs = [load.log for load in loads if load.log is not None and load.steps]
    return read_logs([str(logs[-1])]) if logs else None
