"""Whether the nodes of one server need a load: all of them do where one does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eaglelab.actions.owner import refuse_other
from eaglelab.context import Context

__all__ = ["needed_on_all"]


def needed_on_all(context: Context, mine: dict[str, Any], found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The result of check_server on a node, by those of all. Raises HostError where another operator's server would end."""
    needing = {name: each for name, each in found.items() if each["needed"]}
    if mine["needed"] or not needing:
        return mine
    record = context.client.call("status")["record"]
    if record is not None:
        refuse_other(context, record)
    name, why = next((name, each["why"]) for name, each in needing.items())
    context.say.line(f"  a load is needed all the same: {name}: {why}")
    return {"needed": True, "why": f"{name}: {why}"}
