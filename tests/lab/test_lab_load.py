"""A load against the lab's server: the same tokens for every request, however many run at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import paramiko
import pytest
from labkit import SPECULATIVE, Server, serving
from loadkit import drive

from eaglelab.lab.lab import LabInfo
from eaglelab.server.workload import LoadOptions, Round, as_load, choose_workload

pytestmark = pytest.mark.lab

COUNT, TOKENS = 16, 96


@pytest.fixture(scope="module")
def server(lab: LabInfo, ssh: paramiko.SSHClient) -> Iterator[Server]:
    with serving(lab, ssh, SPECULATIVE.format(2, 3)) as running:
        yield running


def sent(server: Server, concurrency: int, rounds: int = 1, **more: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    options = LoadOptions(num_prompts=COUNT, output_len=TOKENS)
    workload = choose_workload(options, str, None)
    load = as_load(
        [
            Round([workload.body(at, f"{at}.{again}-r{concurrency}", {}) for at in range(COUNT)], flush=again > 0)
            for again in range(rounds)
        ],
        host="127.0.0.1",
        port=server.lab.server_port,
        key=None,
        max_concurrency=concurrency,
        **more,
    )
    return drive(load["spec"], load["requests"])


def test_each_request_has_the_same_tokens_at_every_concurrency(server: Server) -> None:
    digests = []
    for concurrency in (1, 4, 16):
        records, end = sent(server, concurrency)
        assert (end["reason"], end["finished"], end["failed"], end["tokens"]) == ("finished", COUNT, 0, COUNT * TOKENS)
        assert all(record["meta_info"]["completion_tokens"] == TOKENS for record in records)
        digests.append([record["output"]["sha256"] for record in records])
    assert digests[0] == digests[1] == digests[2]
    assert len(set(digests[0])) == COUNT


def test_the_server_agrees_on_how_many_ran_at_a_time(server: Server) -> None:
    seen = len(server.text())
    sent(server, 4)
    lines = [line for line in server.text()[seen:].splitlines() if "Decode batch" in line]
    running = [int(line.partition("#running-req: ")[2].partition(",")[0]) for line in lines]
    assert max(running) == 4


def test_the_cache_is_flushed_between_rounds(server: Server) -> None:
    seen = server.text().count("Cache flushed successfully!")
    _, end = sent(server, 16, rounds=3)
    assert end["finished"] == 3 * COUNT
    assert server.text().count("Cache flushed successfully!") == seen + 2


def test_a_poisson_load_starts_its_requests_when_they_are_due(server: Server) -> None:
    records, end = sent(server, 16, request_rate=40.0)
    assert end["finished"] == COUNT
    begun = [record["started"] - records[0]["started"] for record in records]
    assert begun == sorted(begun)
    assert end["client"]["late_max_s"] is None  # a limit is set, so that late is not the client's doing
