"""From where on the server's log and the probe's files belong to this run, also once it is taken up again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from eaglelab.actions.serve import mark_records
from eaglelab.context import Context, LogMark

__all__ = ["identity", "mark_beginning"]


def identity(record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What names one server process for good: its pid alone may be another's by tomorrow."""
    if not record:
        return None
    named = () if record.get("pid") else ("name",)  # a job has no pid here, and each start a name of its own
    return {key: record.get(key) for key in ("pid", "pid_start", "boot", *named)}


def mark_beginning(context: Context) -> None:
    """Marks where the files of the server at hand end now; where an earlier try of this run began, that counts.

    Another server of the same run has files of its own; those that an earlier one has left keep their marks, too: under the
    same setting they are evidence of the same figures.
    """
    found, name = context.found, str(PurePosixPath(context.found.folder) / "marks.json")
    server = identity(found.record)
    earlier = context.bundle.read(name) if context.begun_before else None
    same = earlier is not None and server is not None and earlier["server"] == server
    mark_records(context)
    if earlier is not None:
        known = {mark["path"]: LogMark(**mark) for mark in earlier["probe"]}
        new = () if same else tuple(mark for mark in found.probe if mark.path not in known)
        found.probe = (*known.values(), *new)
    if earlier is not None and same:
        found.log = LogMark(**earlier["log"])
    marks = {"log": dataclasses.asdict(context.log), "probe": [dataclasses.asdict(mark) for mark in found.probe]}
    context.bundle.json(name, {"server": server, **marks})
