"""What the commands print: rich renderables for profiles, logs and benchmarks."""

from __future__ import annotations

from eaglelab.report.log_view import blocks_table, log_report
from eaglelab.report.profile_view import profile_table

__all__ = ["blocks_table", "log_report", "profile_table"]
