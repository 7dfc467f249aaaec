"""Refuses settings of NCCL that a sweep varies, before a load is spent on them: those that end a server, those that change nothing."""

from __future__ import annotations

from collections.abc import Sequence

from eaglelab.actions.model import hidden_size
from eaglelab.commands.known_settings import refuse
from eaglelab.context import Context
from eaglelab.errors import Refused
from eaglelab.sweep.matrix import Matrix
from eaglelab.sweep.nccl_choice import nccl_conflict
from eaglelab.sweep.relevance import all_reduce_bytes, fully_linked, is_nccl_setting, nccl_relevance

__all__ = ["refuse_nccl_settings"]


def refuse_nccl_settings(context: Context, matrix: Matrix, concurrency: int, *, anyway: bool) -> None:
    """`concurrency`: the most requests at once, for how large an all-reduce gets. Raises Refused; with `anyway` it is only said."""
    names = [name for name in (*matrix.env, *matrix.flags) if is_nccl_setting(name)]
    if names:
        _refuse_conflicts(context, matrix, anyway=anyway)
        _refuse_irrelevant(context, matrix, names, concurrency, anyway=anyway)


def _refuse_conflicts(context: Context, matrix: Matrix, *, anyway: bool) -> None:
    """What NCCL takes is decided by all of a load's settings together, those of the inventory and those that are varied."""
    server, version = context.host.server, context.facts.get("nccl_version")
    correct = "correct --env (or the sweep file, or server.env in the inventory; docs/sweeps.md)"
    found: dict[str, str] = {}  # why, and what to do about it
    for variation in matrix.variations():
        env, flags = {**server.env, **variation.env}, {**server.flags, **variation.flags}
        conflict = nccl_conflict(env, flags, world=server.tp_size, nodes=server.nnodes, version=version)
        if conflict is not None:
            better = f"give {conflict.instead} for {env.get('NCCL_ALGO')}" if conflict.instead else correct
            found[conflict.why] = better
    if found:
        refuse(context, found, ", ".join(dict.fromkeys(found.values())), anyway=anyway)


def _refuse_irrelevant(
    context: Context, matrix: Matrix, names: Sequence[str], concurrency: int, *, anyway: bool
) -> None:
    """A load costs minutes: settings of NCCL are not tried where NCCL has nothing to do, unless that is asked for."""
    server, hidden = context.host.server, hidden_size(context)
    steps = max(matrix.steps, default=0)
    sizes = [] if hidden is None else [all_reduce_bytes(concurrency, steps, hidden)]
    linked = fully_linked(context.client.call("topology")["text"])
    for variation in matrix.variations():
        flags = {**server.flags, **variation.flags}
        found = nccl_relevance(
            world=server.tp_size, nodes=server.nnodes, linked=linked, flags=flags, message_bytes=sizes
        )
        if found.matters is not False:
            context.say.line(f"  {', '.join(names)}: {found.why}")
            return
    if anyway:
        context.say.line(f"  {', '.join(names)} cannot change a decode cycle here, measured all the same: {found.why}")
        return
    raise Refused(
        f"{', '.join(names)} cannot change a decode cycle here: {found.why}",
        where=context.host.name,
        hint="vary disable-custom-all-reduce with it, or measure it all the same: --anyway",
    )
