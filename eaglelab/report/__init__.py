"""Profiles, logs and benchmarks for people: terminal tables that also read well without colour and at 80 columns."""

from __future__ import annotations

__all__: list[str] = []
