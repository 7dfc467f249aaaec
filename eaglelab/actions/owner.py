"""Whose server it is that runs on a host which several people log in to as one user."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from eaglelab.actions.patch import operator
from eaglelab.context import Context
from eaglelab.errors import EaglelabError, HostError
from eaglelab.server.launching import is_there

__all__ = ["refuse_other", "say_ending", "started_by"]


def started_by(record: Mapping[str, Any]) -> str:
    """Who started a server of ours, and when; a record of an older version does not name them."""
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(record["time"])) if "time" in record else "an unknown time"
    return f"started by {record['by']}, running since {since}" if record.get("by") else f"running since {since}"


def refuse_other(context: Context, record: Mapping[str, Any]) -> None:
    """Raises HostError where a load would end a server that somebody else started, unless --takeover asks for that."""
    by = record.get("by")
    if not by or by == operator() or context.options.takeover:
        return
    steps = "no speculation" if record.get("steps") is None else f"{record['steps']} steps"
    raise HostError(
        f"the load that is needed would end the server of run {record['run']}: {started_by(record)}, "
        f"{steps}, probe {'on' if record.get('profile') else 'off'}",
        where=context.host.name,
        hint=f"ask {by}, or end that server: --takeover",
    )


def say_ending(context: Context) -> None:
    """Names the server that is about to be ended."""
    with contextlib.suppress(EaglelabError):  # a name is not worth a server that stays; who ends it meets this again
        status = context.client.call("status")
        record = status["record"]
        if is_there(status) and record:
            context.say.line(f"  ending the server of run {record['run']}, {started_by(record)}")
