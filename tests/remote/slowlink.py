"""A TCP proxy on loopback that treats what passes as badly as a test wants: late, slowly, cut off, or not at all.

    with SlowLink(sshd.port, up=Way(delay=0.3), faults=[Fault("down", 5000, "freeze")]) as way:
        ... connect to 127.0.0.1 port way.port ...

`up` is towards the target, `down` is back. Faults are used up, one a connection: `Fault(direction, at, kind)` strikes
once `at` bytes of that direction have passed; what comes after is lost. Kinds:

    "cut"     both ends see a reset (RST)
    "fin"     both ends see an orderly end
    "freeze"  no byte passes any more, either way, and no end is seen: a host that lost its power

`freeze()`, `cut()` and `fin()` do the same now, to all connections that are open. `refuse()` closes the port until
`accept()`; `Fault(..., refuse=True)` does so as it strikes. All times in seconds, rates in bytes a second.
"""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

__all__ = ["Fault", "SlowLink", "Way", "deaf_port"]

_PIECE = 16 << 10
_UNDERWAY = 64
"""Pieces that are read ahead of their time; more stay with the sender, as on a real line."""


@dataclass(frozen=True)
class Way:
    """One direction. `lost`: the share of pieces that come `again` (least, most) seconds late, as if sent twice."""

    delay: float = 0.0
    rate: float | None = None
    lost: float = 0.0
    again: tuple[float, float] = (0.2, 0.4)
    seed: int = 1


@dataclass(frozen=True)
class Fault:
    direction: Literal["up", "down"]
    at: int
    kind: Literal["cut", "fin", "freeze"]
    refuse: bool = False


class SlowLink:
    """Listens on `port` of `address` while it is open; `passed` counts bytes of the newest connection by direction."""

    def __init__(
        self,
        target: int,
        *,
        up: Way | None = None,
        down: Way | None = None,
        faults: Sequence[Fault] = (),
        address: str = "127.0.0.1",
    ) -> None:
        self.ways = {"up": up or Way(), "down": down or Way()}
        self.faults = list(faults)
        self.connections: list[_Connection] = []
        self._target = (address, target)
        self.port = 0
        self.accept()

    def __enter__(self) -> SlowLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def passed(self) -> dict[str, int]:
        return self.connections[-1].passed

    @property
    def listening(self) -> bool:
        return self._listener.fileno() != -1

    def freeze(self) -> None:
        for connection in self.connections:
            connection.strike("freeze")

    def cut(self) -> None:
        for connection in self.connections:
            connection.strike("cut")

    def fin(self) -> None:
        for connection in self.connections:
            connection.strike("fin")

    def refuse(self) -> None:
        # A close alone does not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def accept(self) -> None:
        address = self._target[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, self.port), family=family)
        self.port = self._listener.getsockname()[1]
        self._server = threading.Thread(target=self._serve, args=(self._listener,), daemon=True)
        self._server.start()

    def close(self) -> None:
        self.refuse()
        self._server.join()
        self.cut()
        for connection in self.connections:
            connection.join()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            fault = self.faults.pop(0) if self.faults else None
            self.connections.append(_Connection(self, near, far, fault))


class _Connection:
    def __init__(self, link: SlowLink, near: socket.socket, far: socket.socket, fault: Fault | None) -> None:
        self.link, self.fault = link, fault
        self.passed = {"up": 0, "down": 0}
        self._ends = (near, far)
        self._frozen = threading.Event()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        for direction, source, sink in (("up", near, far), ("down", far, near)):
            sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pieces: queue.Queue[tuple[float, bytes | None]] = queue.Queue(_UNDERWAY)
            for work, end in ((self._read, source), (self._write, sink)):
                self._threads.append(threading.Thread(target=work, args=(direction, end, pieces), daemon=True))
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def strike(self, kind: str) -> None:
        if kind == "freeze":
            self._frozen.set()
            return
        self._over.set()
        for end in self._ends:
            with contextlib.suppress(OSError):
                if kind == "cut":
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    end.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RD)  # a thread that waits for bytes keeps a closed socket open
            end.close()

    def _read(self, direction: str, source: socket.socket, pieces: queue.Queue[tuple[float, bytes | None]]) -> None:
        """A reset (None) is passed on as everything else is: where an end dies with bytes unread, it sends no other end."""
        way = self.link.ways[direction]
        chance = random.Random(way.seed)
        while not self._frozen.is_set():
            try:
                data: bytes | None = source.recv(_PIECE)
            except OSError:
                data = None
            late = chance.uniform(*way.again) if chance.random() < way.lost else 0.0
            due = time.monotonic() + way.delay + late
            while not self._over.is_set():
                with contextlib.suppress(queue.Full):
                    pieces.put((due, data), timeout=0.05)
                    break
            if not data:
                return

    def _write(self, direction: str, sink: socket.socket, pieces: queue.Queue[tuple[float, bytes | None]]) -> None:
        way = self.link.ways[direction]
        struck = self.fault if self.fault is not None and self.fault.direction == direction else None
        while True:
            if struck is not None and self.passed[direction] >= struck.at:
                if struck.refuse:
                    self.link.refuse()
                self.strike(struck.kind)
                return
            try:
                due, data = pieces.get(timeout=0.05)
            except queue.Empty:
                if self._over.is_set():
                    return
                continue
            if self._over.wait(max(0.0, due - time.monotonic())) or self._frozen.is_set():
                return
            if data is None:
                self.strike("cut")
                return
            if struck is not None:
                data = data[: struck.at - self.passed[direction]] if data else data
            try:
                sink.sendall(data) if data else sink.shutdown(socket.SHUT_WR)
            except OSError:
                return
            self.passed[direction] += len(data)
            if not data or (way.rate and self._over.wait(len(data) / way.rate)):
                return


@contextmanager
def deaf_port() -> Iterator[int]:
    """A port whose machine answers no attempt to connect, as if it were switched off."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):  # the queue is full then, and Linux drops what comes
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield int(server.getsockname()[1])
