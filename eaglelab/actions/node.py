"""same_node: figures of jobs go together only where their nodes are equal, which is seen before anything is measured."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from eaglelab.actions.base import Action, Arguments
from eaglelab.context import Context
from eaglelab.errors import HostError

__all__ = ["SAME_NODE"]


class NodeArguments(Arguments):
    """`folder`: where node.json goes, below the bundle."""

    folder: str = ""


def _same_node(context: Context, args: NodeArguments) -> dict[str, Any]:
    """Raises HostError where this server's node has other GPUs than the one that an earlier server of this run had."""
    found, nodes = context.found, context.nodes
    if found.node is None:
        return {}
    about = {"node": found.node, "gpus": list(found.gpus), "waited": found.waited}
    about["job"] = (found.record or {}).get("job")
    context.bundle.json(str(PurePosixPath(args.folder) / "node.json"), about)
    told = None if nodes is None else nodes.see(found.node, found.gpus)
    if told is not None:
        raise HostError(
            f"its node is not like the others, so its figures could not be compared: {told}",
            where=context.host.name,
            hint="narrow the jobs to one kind of node in inventory.yaml: server.slurm.partition, or --constraint=... in options",
        )
    return about


SAME_NODE = Action(
    "same_node", NodeArguments, "see that the server's node is like those of this run's other servers", _same_node
)
