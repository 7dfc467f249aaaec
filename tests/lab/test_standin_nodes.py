"""The stand-in as one of several nodes: the rendezvous, what it hears, and how it learns that another is gone."""

from __future__ import annotations

import multiprocessing as mp
import socket
import threading
from typing import Any

import pytest
from serverkit import free_port

from eaglelab.lab.standin.args import ServerArgs, parse
from eaglelab.lab.standin.nodes import Peers, check_nodes, local_ranks

CLOSED = "Connection closed by peer"


def nodes(count: int, tp: int | None = None) -> list[ServerArgs]:
    address = f"node0:{free_port()}"
    return [
        ServerArgs("m", tp_size=tp or count, nnodes=count, node_rank=rank, dist_init_addr=address)
        for rank in range(count)
    ]


def joined(all_args: list[ServerArgs]) -> list[Peers]:
    peers = [Peers(args, local_ranks(args)[0]) for args in all_args]
    threads = [threading.Thread(target=each.join, daemon=True) for each in reversed(peers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [len(each.lines) for each in peers] == [len(peers) - 1] + [1] * (len(peers) - 1)
    return peers


def hang_up(peers: Peers) -> None:
    for line in peers.lines:
        line.close()


def test_the_flags_are_those_of_sglang() -> None:
    args = parse(["--model-path", "m", "--tp", "4", "--nnodes", "2", "--node-rank", "1", "--nccl-init-addr", "a:5"])
    assert (args.nnodes, args.node_rank, args.dist_init_addr) == (2, 1, "a:5")
    assert list(local_ranks(args)) == [2, 3]


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (ServerArgs("m", tp_size=3, nnodes=2, dist_init_addr="a:5"), "divisible by number of nodes"),
        (ServerArgs("m", tp_size=2, nnodes=2), "please provide --dist-init-addr"),
        (ServerArgs("m", tp_size=2, nnodes=2, dist_init_addr="a"), "please provide --dist-init-addr"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(args: ServerArgs, what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        check_nodes(args)


def test_one_node_has_nobody_to_wait_for() -> None:
    peers = Peers(ServerArgs("m"), 0)
    peers.join()
    peers.meet()
    assert peers.lines == []


def test_all_wait_for_all_and_then_hear_what_node_0_says() -> None:
    first, second, third = joined(nodes(3))
    met: list[str] = []

    def meet(name: str, peers: Peers) -> None:
        peers.meet()
        met.append(name)

    threads = [threading.Thread(target=meet, args=item, daemon=True) for item in (("0", first), ("1", second))]
    for thread in threads:
        thread.start()
    threads[1].join(0.2)
    assert met == []
    meet("2", third)
    for thread in threads:
        thread.join(10)
    assert sorted(met) == ["0", "1", "2"]
    first.tell((1.5, [{"rid": "x"}]))
    assert second.hear() == third.hear() == [1.5, [{"rid": "x"}]]


@pytest.mark.parametrize("waits", ["sleep", "wait_for", "hear", "meet", "tell"])
def test_a_node_that_is_gone_is_noticed_wherever_another_waits(waits: str) -> None:
    first, second = joined(nodes(2))
    ours, _theirs = mp.Pipe()
    calls: dict[str, Any] = {
        "sleep": lambda: first.sleep(30),
        "wait_for": lambda: first.wait_for(ours),
        "meet": first.meet,
        "hear": second.hear,
        "tell": lambda: [first.tell("x" * 100_000) for _ in range(100)],
    }
    hang_up(first if waits == "hear" else second)
    with pytest.raises(RuntimeError, match=CLOSED):
        calls[waits]()


def test_a_request_is_read_while_the_others_only_wait() -> None:
    first, _second = joined(nodes(2))
    ours, theirs = mp.Pipe()
    theirs.send("request")
    first.wait_for(ours)
    assert ours.recv() == "request"


def test_a_port_that_is_taken_is_said_as_torch_says_it() -> None:
    first, _ = nodes(2)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # its port is reserved
        taken.bind(("127.0.0.1", int(str(first.dist_init_addr).split(":")[1])))
        taken.listen()
        with pytest.raises(RuntimeError, match="EADDRINUSE, message: address already in use"):
            Peers(first, 0).join()
