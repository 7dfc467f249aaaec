"""What is asked of Slurm for a job, and what its queue says of when that could begin."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Mapping

from eaglelab.remote.agent.launchers.engine import ask
from eaglelab.remote.agent.wire import AgentError

__all__ = ["asked_for", "pairs", "queue_of", "waited"]

_ANY_JOB = b"#!/bin/sh\n"
_STARTS_AT = r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)"
_STATE_MARKS = "*~#!%$@^-+"
"""What sinfo puts behind a state: no answer, being booted, planned, ..."""


def asked_for(options: Mapping[str, Any]) -> list[str]:
    """Words of sbatch: where, for how long, with what."""
    words = ["--%s=%s" % (key, options[key]) for key in ("partition", "account", "qos", "time") if options.get(key)]
    if options.get("gpus"):
        words.append("--gres=gpu:%d" % options["gpus"])
    if options.get("cpus"):
        words.append("--cpus-per-task=%d" % options["cpus"])
    words += options.get("options", ())
    if options.get("nodelist"):
        words.append("--nodelist=%s" % options["nodelist"])
    return words


def pairs(text: str) -> dict[str, str]:
    """The first line of what `scontrol -o show` prints: Key=value, where a value may hold blanks."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    return {found.group(1): found.group(2).strip() for found in re.finditer(r"(\S+?)=(.*?)(?=\s\S+?=|$)", line)}


def waited(about: Mapping[str, str]) -> float | None:
    """How long (s) a job was in the queue, by what Slurm says of it; None where it does not."""
    try:
        return max(0.0, _moment(about["StartTime"]) - _moment(about["SubmitTime"]))
    except (KeyError, ValueError):
        return None


def _moment(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def queue_of(options: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The queue as a job of these options would find it at `now` (s).

    `nodes`: how many are in each state; `waiting`: jobs of its partition that wait; `starts_in`: seconds until Slurm
    would start it, None where it does not say. Nothing is submitted. Raises AgentError where Slurm does not answer, or
    would refuse the job.
    """
    partition = ["-p", options["partition"]] if options.get("partition") else []
    found = ask(["sinfo", "-h", "-o", "%T %D", *partition])
    waiting = ask(["squeue", "-h", "-t", "PENDING", "-o", "%i", *partition])
    if not found.ok or not waiting.ok:
        raise AgentError("no-engine", "Slurm does not answer: %s" % (found.error or waiting.error))
    nodes: dict[str, int] = {}
    for line in found.out.splitlines():
        state, _, count = line.rpartition(" ")
        state = state.strip().rstrip(_STATE_MARKS)
        nodes[state] = nodes.get(state, 0) + int(count)
    test = ask(["sbatch", "--test-only", "--output=/dev/null", *asked_for(options)], dict(os.environ), _ANY_JOB)
    if not test.ok and "nvalid" in test.error:
        raise AgentError("start-failed", "sbatch: %s" % test.error)
    begins = re.search(_STARTS_AT, test.error) if test.ok else None
    starts_in = None
    if begins is not None:
        starts_in = max(0.0, _moment(begins.group(1)) - now)
    return {"nodes": nodes, "waiting": len(waiting.out.split()), "starts_in": starts_in}
