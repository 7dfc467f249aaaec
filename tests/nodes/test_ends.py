"""Which node of a server died first."""

from __future__ import annotations

import pytest

from eaglelab.nodes.ends import End, blames_another, died_first
from eaglelab.server.readiness import ServerDied


def end(at: float | None, *, follows: bool = False) -> End:
    return End(ServerDied("died"), at, follows)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:17683",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Read error [10.0.0.2]:1: Connection reset by peer",
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error, NCCL version 2.21",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "[W] [c10d] recvValue failed on SocketImpl(fd=5, addr=[node0]:40, remote=[node1]:20000): failed to recv, got 0 bytes",
    ],
)
def test_a_log_that_says_another_rank_is_gone_blames_it(line: str) -> None:
    assert blames_another(["first", line])


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "Received sigquit from a child process. It usually means the child failed.",
        "Decode batch, #running-req: 1, cuda graph: True",
    ],
)
def test_other_lines_blame_nobody(line: str) -> None:
    assert not blames_another([line])


def test_one_that_blames_nobody_was_first_whatever_its_clock_says() -> None:
    assert died_first({"a": end(1.0, follows=True), "b": end(9.0), "c": None}) == "b"


def test_of_several_that_blame_nobody_the_earliest_was_first() -> None:
    assert died_first({"a": end(None), "b": end(9.0), "c": end(3.0)}) == "c"


def test_where_all_blame_another_the_earliest_was_first() -> None:
    assert died_first({"a": end(2.0, follows=True), "b": end(1.0, follows=True)}) == "b"


def test_where_none_died_none_was_first() -> None:
    assert died_first({"a": None, "b": None}) is None
