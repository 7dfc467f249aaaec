"""Which hosts of an inventory make one server, in which order, and what such a server cannot be asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eaglelab.errors import InputError
from eaglelab.host import Host, Node

__all__ = ["as_nodes", "nodes_of", "one_server", "refuse_part"]


def nodes_of(name: str, hosts: Mapping[str, Host], groups: Mapping[str, Sequence[str]]) -> tuple[str, list[str]] | None:
    """The group that is the server which a host is a node of, and its hosts in order; None where there is none.

    It has as many hosts as `server.nnodes` of each of them says. Raises InputError where several groups do.
    """
    wanted = hosts[name].server.nnodes
    if wanted == 1:
        return None
    fit = {
        group: list(dict.fromkeys(members))
        for group, members in groups.items()
        if name in members
        and len(set(members)) == wanted
        and all(hosts[member].server.nnodes == wanted for member in members)
    }
    if len({tuple(members) for members in fit.values()}) > 1:
        what = f"groups {' and '.join(fit)} could each be the server that host '{name}' is a node of"
        raise InputError(what, where=hosts[name].where, hint="one of them has to go, or to name other hosts")
    return next(iter(fit.items()), None)


def as_nodes(
    chosen: Sequence[Host],
    hosts: Mapping[str, Host],
    groups: Mapping[str, Sequence[str]],
    address_of: Callable[[Host], str],
) -> tuple[Host, ...]:
    """`chosen`, each with its place in its server; where they are all nodes of one, in the order of their ranks.

    `address_of`: where a host is reached, for rank 0 (asked for where `dist_init_host` does not say it).
    """
    placed = []
    for host in chosen:
        found = nodes_of(host.name, hosts, groups)
        if found is None:
            placed.append(host)
            continue
        group, names = found
        first = hosts[names[0]]
        node = Node(server=group, names=tuple(names), rank=names.index(host.name), address=_address(first, address_of))
        placed.append(host.model_copy(update={"node": node}))
    if one_server(placed) is not None:
        placed.sort(key=lambda host: host.node.rank if host.node else 0)
    return tuple(placed)


def _address(first: Host, address_of: Callable[[Host], str]) -> str:
    host = first.server.dist_init_host or address_of(first)
    return f"{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{first.server.dist_init_port}"


def one_server(hosts: Sequence[Host]) -> Node | None:
    """The place of the first in their server, where these hosts are all the nodes of one; else None."""
    node = hosts[0].node if hosts else None
    if node is not None and {host.name for host in hosts} == set(node.names):
        return node
    return None


def refuse_part(hosts: Sequence[Host], *, forks: int, serial: int | None, on_failure: str) -> None:
    """Raises InputError where a server of several nodes is to be started on some of them, or not on all at once."""
    parts = [host for host in hosts if host.server.nnodes > 1]
    if not parts:
        return
    host, node = parts[0], parts[0].node
    if node is None:
        count = host.server.nnodes
        what = f"server.nnodes of host '{host.name}' is {count}, and it is in no group of {count} such hosts"
        raise InputError(what, where=host.where, hint="name its hosts in one group, in the order of their ranks")
    if one_server(hosts) is None:
        others = ", ".join(name for name in node.names if name != host.name)
        what = f"host '{host.name}' is node {node.rank} of the server {node.server}, with {others}"
        more = ", and nothing beside it" if any(each.name not in node.names for each in hosts) else ""
        raise InputError(what, where="--host", hint=f"its nodes are started together: --host {node.server}{more}")
    count = len(node.names)
    if serial is not None:
        what = f"the {count} nodes of {node.server} are one server, which cannot be started in batches"
        raise InputError(what, where="--serial", hint="leave it out (a playbook's `serial`, too)")
    if forks < count:
        what = f"the {count} nodes of {node.server} are one server, and wait for each other"
        raise InputError(what, where="--forks", hint=f"{count} or more, or leave it out")
    if on_failure == "continue":
        what = f"the {count} nodes of {node.server} are one server: where one fails, all are ended and put back"
        raise InputError(what, where="--on-failure", hint="leave it out")
