"""Several nodes as one server: the rendezvous, and the lines between the first schedulers of the nodes.

Node 0 listens at `--dist-init-addr` and waits for all the others; each of them waits for node 0. Over these lines goes
what SGLang broadcasts in each turn. A node that dies closes its line, and the others then fail in the words of Gloo, over
which SGLang sends its requests from rank to rank.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from .args import ServerArgs

__all__ = ["Peers", "check_nodes", "local_ranks"]

_PATIENCE_S = 600.0
_RETRY_S = 0.05
_LOOPBACK = "127.0.0.1"
"""Whatever the address says: nothing of a lab is reachable from outside."""


def local_ranks(args: ServerArgs) -> range:
    """The tensor-parallel ranks that run on this node."""
    size = args.tp_size // args.nnodes
    return range(args.node_rank * size, (args.node_rank + 1) * size)


@dataclass
class Peers:
    """A scheduler's lines to other nodes: node 0's first scheduler has one to the first of each, which has that one.

    All others have none. Every method raises RuntimeError once another node has closed its line.
    """

    args: ServerArgs
    rank: int
    lines: list[Connection] = field(default_factory=list)

    @property
    def leads_node(self) -> bool:
        """Whether this is the scheduler of its node that the lines belong to."""
        return self.args.nnodes > 1 and self.rank == local_ranks(self.args)[0]

    def join(self) -> None:
        """The rendezvous: returns once all nodes are there."""
        if not self.leads_node:
            return
        port = int(str(self.args.dist_init_addr).rpartition(":")[2])
        self.lines = self._gather(port) if self.rank == 0 else [self._reach(port)]

    def meet(self) -> None:
        """Returns once all nodes have come here."""
        if self.rank == 0:
            for line in self.lines:
                self._hear(line)
            self.tell("all are here")
        else:
            self.tell("here")
            for line in self.lines:
                self._hear(line)

    def sleep(self, seconds: float) -> None:
        """As time.sleep, but that a node which ends is noticed."""
        end = time.monotonic() + max(0.0, seconds)
        if not self.lines:
            time.sleep(max(0.0, seconds))
        while self.lines and (left := end - time.monotonic()) > 0:
            self._check(wait(self.lines, left))

    def wait_for(self, pipe: Connection) -> None:
        """Until there is something to read in `pipe`."""
        while True:
            readable = wait([pipe, *self.lines])
            self._check(item for item in readable if item is not pipe)
            if pipe in readable:
                return

    def tell(self, message: Any) -> None:
        data = json.dumps(message).encode()
        for line in self.lines:
            try:
                line.send_bytes(data)
            except OSError:
                raise self._closed() from None

    def hear(self) -> Any:
        """The next word of node 0."""
        return self._hear(self.lines[0])

    def _hear(self, line: Connection) -> Any:
        try:
            return json.loads(line.recv_bytes())
        except (EOFError, OSError):
            raise self._closed() from None

    def _check(self, readable: Iterable[Any]) -> None:
        """What can be read while nobody is to speak is the end of a line, or a word for `meet`."""
        for line in readable:
            if _at_end(line):
                raise self._closed()
            time.sleep(_RETRY_S)

    def _closed(self) -> RuntimeError:
        return RuntimeError(
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
            f"[{_LOOPBACK}]:{str(self.args.dist_init_addr).rpartition(':')[2]}"
        )

    def _gather(self, port: int) -> list[Connection]:
        others, end = self.args.nnodes - 1, time.monotonic() + _PATIENCE_S
        found: dict[int, Connection] = {}
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((_LOOPBACK, port))
            except OSError:
                raise RuntimeError(
                    "The server socket has failed to listen on any local network address. "
                    f"port: {port}, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
                ) from None
            listening.listen(others)
            while len(found) < others:
                listening.settimeout(max(0.01, end - time.monotonic()))
                try:
                    accepted, _ = listening.accept()
                except TimeoutError:
                    raise RuntimeError(
                        f"Timed out after {_PATIENCE_S + 1:.0f} seconds waiting for clients. "
                        f"{len(found) + 1}/{self.args.nnodes} clients joined."
                    ) from None
                line = _line(accepted)
                with contextlib.suppress(EOFError, OSError, ValueError, KeyError, TypeError):
                    found[int(json.loads(line.recv_bytes())["node_rank"])] = line
        return [found[rank] for rank in sorted(found)]

    def _reach(self, port: int) -> Connection:
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                line = _line(socket.create_connection((_LOOPBACK, port)))
                line.send_bytes(json.dumps({"node_rank": self.args.node_rank}).encode())
            except OSError:
                if time.monotonic() > end:
                    raise RuntimeError(
                        f"The client socket has timed out after {_PATIENCE_S * 1000:.0f}ms while trying to connect to "
                        f"({self.args.dist_init_addr})."
                    ) from None
                time.sleep(_RETRY_S)
            else:
                return line


def _line(connected: socket.socket) -> Connection:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setblocking(True)
    return Connection(connected.detach())


def _at_end(line: Connection) -> bool:
    """Whether the other end has closed it; a word that waits there stays."""
    with socket.socket(fileno=line.fileno()) as peeking:
        try:
            return peeking.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            peeking.detach()


def check_nodes(args: ServerArgs) -> None:
    """Raises what SGLang raises for numbers that do not fit."""
    if args.tp_size % args.nnodes:
        raise AssertionError("tp_size must be divisible by number of nodes")
    if args.nnodes > 1 and not _has_port(args.dist_init_addr):
        raise AssertionError("please provide --dist-init-addr as host:port of head node")


def _has_port(address: str | None) -> bool:
    host, _, port = (address or "").rpartition(":")
    return bool(host) and port.isdecimal()
