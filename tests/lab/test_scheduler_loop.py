from __future__ import annotations

import logging
from typing import Any

import pytest

from eaglelab.lab.standin.args import Release, parse
from eaglelab.lab.standin.batch import Result
from eaglelab.lab.standin.device import Gpu
from eaglelab.lab.standin.request import Request
from eaglelab.lab.standin.scheduler import PlainWorker, Scheduler


class Bench:
    """A scheduler without speculation and what it sent."""

    def __init__(self, gpu: Gpu, flags: str = "") -> None:
        self.sent: list[dict[str, Any]] = []
        args = parse(["--model", "m", *flags.split()])
        worker = PlainWorker(gpu)
        self.scheduler = Scheduler(args, Release.of("0.5.9"), gpu, worker, self.sent.append, 32000, 10_000)

    def ask(
        self, rid: str, tokens: int, prompt: str = "a prompt", stream: bool = False, ignore_eos: bool = True
    ) -> None:
        self.scheduler.handle(
            {
                "kind": "generate",
                "rid": rid,
                "prompt": prompt,
                "prompt_tokens": 2,
                "max_new_tokens": tokens,
                "ignore_eos": ignore_eos,
                "stream": stream,
            }
        )

    def drain(self) -> None:
        while not self.scheduler.idle:
            self.scheduler.turn()

    def tokens(self, rid: str) -> list[int]:
        return [token for message in self.sent if message.get("rid") == rid for token in message["tokens"]]

    def last(self, rid: str) -> dict[str, Any]:
        meta: dict[str, Any] = [message for message in self.sent if message.get("rid") == rid][-1]["meta"]
        return meta


@pytest.fixture
def bench(gpu: Gpu) -> Bench:
    return Bench(gpu)


def test_the_first_token_comes_from_prefill_and_each_step_brings_one(bench: Bench, gpu: Gpu) -> None:
    bench.ask("r", 11)
    bench.drain()
    assert len(bench.tokens("r")) == 11
    assert gpu.clock.now * 1e3 == pytest.approx(12.1 + 10 * 11.236)
    assert bench.last("r")["e2e_latency"] == pytest.approx(gpu.clock.now)
    assert bench.last("r")["finish_reason"] == {"type": "length", "length": 11}


def test_the_same_prompt_gives_the_same_output_alone_and_in_a_batch(bench: Bench) -> None:
    bench.ask("alone", 20)
    bench.drain()
    bench.ask("again", 20)
    bench.ask("other", 30, prompt="another prompt")
    bench.drain()
    assert bench.tokens("again") == bench.tokens("alone")
    assert bench.tokens("other")[:20] != bench.tokens("alone")


def test_a_request_that_arrives_later_joins_the_running_batch(bench: Bench) -> None:
    bench.ask("first", 10)
    for _ in range(4):
        bench.scheduler.turn()
    bench.ask("second", 3)
    bench.scheduler.turn()
    assert [request.rid for request in bench.scheduler.running] == ["first", "second"]
    assert [len(request.output) for request in bench.scheduler.running] == [4, 1]


def test_no_more_requests_run_than_allowed(gpu: Gpu) -> None:
    bench = Bench(gpu, "--max-running-requests 2")
    for rid in "abc":
        bench.ask(rid, 5)
    bench.scheduler.turn()
    assert [request.rid for request in bench.scheduler.running] == ["a", "b"]
    bench.drain()
    assert len(bench.tokens("c")) == 5


def test_a_stream_gets_every_token_as_it_comes_and_others_one_message(bench: Bench) -> None:
    bench.ask("stream", 4, stream=True)
    bench.ask("whole", 4)
    bench.drain()
    assert [len(message["tokens"]) for message in bench.sent if message["rid"] == "stream"] == [1, 1, 1, 1]
    assert [len(message["tokens"]) for message in bench.sent if message["rid"] == "whole"] == [4]


def test_a_request_that_heeds_the_end_of_sequence_stops_by_itself(bench: Bench) -> None:
    bench.ask("r", 5000, ignore_eos=False)
    bench.drain()
    assert bench.last("r")["finish_reason"]["type"] == "stop"
    assert 200 <= len(bench.tokens("r")) < 800


def test_an_aborted_request_is_told_so_and_leaves(bench: Bench) -> None:
    bench.ask("r", 1000)
    bench.scheduler.turn()
    bench.scheduler.handle({"kind": "abort", "rid": "r", "abort_all": False})
    assert bench.last("r")["finish_reason"]["type"] == "abort"
    assert bench.scheduler.idle


def test_the_cache_is_flushed_only_when_nothing_runs(bench: Bench) -> None:
    bench.ask("r", 5)
    bench.scheduler.turn()
    bench.scheduler.handle({"kind": "flush_cache", "id": 1})
    bench.drain()
    bench.scheduler.handle({"kind": "flush_cache", "id": 2})
    replies = [(message["id"], message["value"]) for message in bench.sent if message["kind"] == "reply"]
    assert replies == [(1, False), (2, True)]


def test_a_decode_line_comes_every_interval(gpu: Gpu, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(gpu, "--decode-log-interval 10")
    bench.ask("r", 31)
    with caplog.at_level(logging.INFO):
        bench.drain()
    lines = [record.message for record in caplog.records if record.message.startswith("Decode batch")]
    assert len(lines) == 3
    assert "gen throughput (token/s): 89.00" in lines[-1]


class Drafting(PlainWorker):
    """Each verify accepts what it is told to: the correct drafts of one request, cycle by cycle."""

    draft_tokens = 3

    def __init__(self, gpu: Gpu, correct: list[int]) -> None:
        super().__init__(gpu)
        self._correct = correct

    def decode(self, requests: list[Request]) -> Result:
        super().decode(requests)
        correct = self._correct.pop(0)
        return Result([correct + 1], [correct], lambda: None)


def test_the_gauge_is_of_the_last_interval_and_the_servers_average_of_all(gpu: Gpu) -> None:
    bench = Bench(gpu, "--decode-log-interval 4")
    bench.scheduler.worker = Drafting(gpu, [2, 2, 2, 2, 0, 1, 0, 1, 2])
    bench.scheduler.handle({"kind": "gauges", "id": 1})
    assert bench.sent.pop()["value"] == {"gen_throughput": 0.0, "spec_accept_length": 0.0}
    bench.ask("r", 1 + 12 + 6 + 3)
    bench.drain()
    bench.scheduler.handle({"kind": "gauges", "id": 2})
    assert bench.sent[-1]["value"]["spec_accept_length"] == pytest.approx(6 / 4)
    assert bench.scheduler.internal_state()["avg_spec_accept_length"] == pytest.approx(18 / 8)
    bench.scheduler.handle({"kind": "flush_cache", "id": 3})
    assert "avg_spec_accept_length" not in bench.scheduler.internal_state()
    assert bench.scheduler.gauges()["spec_accept_length"] == pytest.approx(6 / 4)
