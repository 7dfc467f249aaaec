"""The client of a load against a small server: what is sent when, what is recorded, and every way a server may fail."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loadkit import Streamer, drive, event, load, request, streamer
from serverkit import free_port, until

from eaglelab.remote.agent.driver import Driver
from eaglelab.remote.agent.exchange import HttpAnswer
from eaglelab.remote.agent.outcome import repeated_share

Handler = Any


def thousandths() -> Callable[[], float]:
    """A clock on which a millisecond passes from one look to the next."""
    looks = itertools.count()
    return lambda: next(looks) / 1000


def test_every_request_is_recorded_with_its_times_and_the_server_s_own_account() -> None:
    with streamer(step=4) as server:
        (record,), end = drive(load(server.port, 1), [request("p=0/a", 9)])
    assert [tokens for _, tokens in record["chunks"]] == [1, 5, 9]
    times = [at for at, _ in record["chunks"]]
    assert 0 < times[0] <= times[1] <= times[2] <= round(record["ended"] - record["started"], 6)
    assert (record["rid"], record["index"], record["round"]) == ("p=0/a", 0, 0)
    assert (record["status"], record["error"], record["code"]) == (200, None, None)
    assert record["meta_info"]["finish_reason"] == {"type": "length", "length": 9}
    assert (record["prompt_tokens"], record["cached_tokens"]) == (7, 3)
    digest = hashlib.sha256(b"0,1,2,3,4,5,6,7,8").hexdigest()
    assert record["output"] == {"of": "ids", "sha256": digest, "repeated": 0.0}
    assert (end["reason"], end["sent"], end["finished"], end["tokens"], end["unsent"]) == ("finished", 1, 1, 9, 0)
    assert server.asked[0]["stream"] is True


def test_the_record_says_what_the_client_itself_cost() -> None:
    with streamer() as server:
        _, end = drive(load(server.port, 4), [request(str(n)) for n in range(4)])
    client = end["client"]
    assert client["cpu_us_per_token"] == pytest.approx(client["cpu_s"] / 36 * 1e6, rel=0.01)
    assert 0 < client["busy_share"] <= 1
    assert client["longest_turn_s"] > 0
    assert 0 <= client["cpu_wait_mean_s"] <= client["cpu_wait_s"]
    assert client["late_max_s"] is None  # nothing had a time to start at


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_so_many_requests_run_at_a_time_never_more_and_no_fewer_while_there_are_any(concurrency: int) -> None:
    count = 3 * concurrency + 1

    def wait_for_the_others(_: str, tokens: int) -> None:
        if tokens == 1:
            server.wait_for(lambda: server.running >= concurrency or len(server.asked) == count)

    with streamer(before=wait_for_the_others) as server:
        records, end = drive(load(server.port, count, concurrency), [request(str(n), 5) for n in range(count)])
    assert server.most == concurrency
    assert (end["finished"], end["tokens"]) == (count, 5 * count)
    assert [record["index"] for record in records] == list(range(count))


def test_in_a_closed_loop_the_requests_start_in_their_order() -> None:
    with streamer() as server:
        drive(load(server.port, 6, 1), [request(str(n)) for n in range(6)])
    assert [body["rid"] for body in server.asked] == list("012345")


def test_at_a_rate_each_request_starts_at_its_own_time_whatever_the_others_do() -> None:
    offsets = [0.0, 0.03, 0.031, 0.08, 0.15]

    def hold_all(_: str, tokens: int) -> None:
        if tokens == 1:
            server.wait_for(lambda: len(server.asked) == 5)

    with streamer(before=hold_all) as server:
        requests = [request(str(n), 5, at) for n, at in enumerate(offsets)]
        # A millisecond passes between any two looks at the clock, and nothing else takes time.
        records, end = drive(load(server.port, 5, None, mode="rate"), requests, clock=thousandths())
    assert server.most == 5
    begin = records[0]["due"]
    assert [record["due"] - begin for record in records] == pytest.approx(offsets, abs=1e-5)
    for record in records:
        assert 0 <= record["started"] - record["due"] < 0.02
    assert end["client"]["late_max_s"] == pytest.approx(max(r["started"] - r["due"] for r in records), abs=1e-5)


def test_at_a_rate_with_a_limit_no_more_run_than_that() -> None:
    def wait_for_the_others(_: str, tokens: int) -> None:
        if tokens == 1:
            server.wait_for(lambda: server.running >= 3 or len(server.asked) == 9)

    with streamer(before=wait_for_the_others) as server:
        _, end = drive(load(server.port, 9, 3, mode="rate"), [request(str(n), 5) for n in range(9)])
    assert (server.most, end["finished"]) == (3, 9)


def test_a_round_begins_when_the_one_before_has_ended_and_the_cache_is_flushed_between() -> None:
    rounds = [{"requests": [2, 3]}, {"requests": [0, 1], "flush": True, "pause_s": 0.01}]
    with streamer(flush_answers=[400, 200]) as server:
        spec = load(server.port, 4, 2, rounds=rounds)
        lines: list[dict[str, Any]] = []
        Driver(spec, [request(str(n)) for n in range(4)], lines.append, lambda _: None).run()
    at = server.events.index(("flush", ""))
    before, after = server.events[:at], server.events[at:]
    assert {rid for _, rid in before} == {"2", "3"}
    assert [what for what, _ in before].count("end") == 2
    assert [what for what, _ in after][:3] == ["flush", "flush", "begin"]
    assert next(line["flush"] for line in lines if "flush" in line) | {"at": 0} == {"round": 1, "tries": 2, "at": 0}
    assert {line["index"]: line["round"] for line in lines if "index" in line} == {0: 1, 1: 1, 2: 0, 3: 0}


def test_a_cache_that_cannot_be_flushed_ends_the_load() -> None:
    rounds = [{"requests": [0]}, {"requests": [1], "flush": True}]
    with streamer(flush_answers=[404]) as server:
        records, end = drive(load(server.port, 2, rounds=rounds), [request("0"), request("1")])
    assert (len(records), end["reason"], end["unsent"]) == (1, "flush-failed", 1)
    assert "404" in end["what"]


def test_the_key_goes_into_the_header_of_each_request_and_flush() -> None:
    with streamer() as server:
        spec = load(server.port, 1, key="tops3cret", rounds=[{"requests": [0], "flush": True}])
        _, end = drive(spec, [request("0")])
    assert server.keys == {"Bearer tops3cret"}
    assert "tops3cret" not in str(end)


def whole(status: int, text: bytes) -> Callable[[Handler], None]:
    return lambda handler: handler.whole(status, text)


def pieces(*chunks: bytes) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.head()
        for chunk in chunks:
            handler.chunk(chunk)
        handler.chunk(b"")

    return answer


def cut(*chunks: bytes, reset: bool) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.head()
        for chunk in chunks:
            handler.chunk(chunk)
        if reset:
            handler.wfile.flush()
            handler.reset()
        else:
            handler.close_connection = True
            handler.connection.shutdown(2)

    return answer


def raw(data: bytes) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.wfile.write(data)
        handler.connection.shutdown(2)

    return answer


DONE = b"data: [DONE]\n\n"
ABORT = event("x", 3, 9, finish_reason={"type": "abort", "message": "KV cache is full"})


@pytest.mark.parametrize(
    ("answer", "code", "what"),
    [
        (whole(400, b'{"error": "too long"}'), "http", 'answered 400: {"error": "too long"}'),
        (whole(503, b""), "http", "answered 503"),
        (whole(200, b"hello"), "broken", "without a token"),
        (pieces(DONE), "broken", "without a token"),
        (pieces(event("x", 3, 9), DONE), "broken", "after 3 tokens without a finish reason"),
        (pieces(event("x", 3, 9), b'data: {"error": {"message": "out of memory"}}\n\n', DONE), "http", "out of memory"),
        (pieces(b"data: {half\n\n"), "broken", "cannot be read"),
        (pieces(b'data: {"text": "x"}\n\n'), "broken", "no completion_tokens"),
        (pieces(b"data: [1]\n\n"), "broken", "no completion_tokens"),
        (pieces(b'data: "completion_tokens": 4}\n\n', DONE), "broken", "cannot be read"),
        (pieces(ABORT, DONE), "aborted", "aborted it after 3 tokens: KV cache is full"),
        (cut(event("x", 3, 9), reset=True), "broken", "the connection broke after"),
        (cut(event("x", 3, 9), reset=False), "broken", "closed the connection after 3 tokens"),
        (raw(b"SSH-2.0-OpenSSH_9.2\r\n"), "broken", "no HTTP"),
        (raw(b"HTTP/1.1 twohundred OK\r\n\r\n"), "broken", "cannot be read"),
        (raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"), "broken", "cannot be read"),
        (raw(b""), "broken", "closed the connection after 0 tokens"),
    ],
)
def test_an_answer_that_is_no_result_is_recorded_as_what_it_is_and_the_others_go_on(
    answer: Callable[[Handler], None], code: str, what: str
) -> None:
    with streamer(special={"1": answer}) as server:
        records, end = drive(load(server.port, 3, 1), [request(str(n)) for n in range(3)])
    assert [record["error"] is None for record in records] == [True, False, True]
    assert records[1]["code"] == code
    assert what in records[1]["error"]
    assert (end["reason"], end["finished"], end["failed"]) == ("finished", 2, 1)


def test_a_stream_cut_in_odd_places_is_read_like_a_whole_one() -> None:
    stream = b": a comment\n\n" + event("x", 1, 9) + event("x", 4, 9) + event("x", 9, 9) + DONE

    def bit_by_bit(handler: Handler) -> None:
        handler.head()
        for at in range(0, len(stream), 7):
            handler.chunk(stream[at : at + 7])
        handler.chunk(b"")

    with streamer(special={"0": bit_by_bit}) as server:
        (record,), _ = drive(load(server.port, 1), [request("0")])
    assert [tokens for _, tokens in record["chunks"]] == [1, 4, 9]
    assert record["error"] is None


@given(
    body=st.binary(max_size=300),
    sizes=st.lists(st.integers(1, 40), max_size=20),
    cuts=st.lists(st.integers(0, 600), max_size=20),
    chunked=st.booleans(),
)
def test_an_answer_is_the_same_however_it_is_cut(body: bytes, sizes: list[int], cuts: list[int], chunked: bool) -> None:
    if chunked:
        ends = [0, *itertools.accumulate(sizes), len(body)]
        parts = [part for start, end in itertools.pairwise(ends) if (part := body[start:end])]
        sent = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        sent += b"".join(b"%X;ext=1\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        body = b"".join(parts)
    else:
        sent = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: %d\r\n\r\n%b" % (len(body), body)
    answer, found = HttpAnswer(), b""
    for start, end in itertools.pairwise(sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})):
        assert not answer.over or len(sent) - start <= 4  # the line end after the last chunk says nothing
        found += b"".join(answer.feed(sent[start:end]))
    assert (found, answer.status, answer.over) == (body, 200, True)


def test_a_stream_that_ends_with_its_connection_is_whole() -> None:
    text = b"HTTP/1.0 200 OK\r\n\r\n" + event("x", 9, 9) + DONE
    with streamer(special={"0": raw(text)}) as server:
        (record,), _ = drive(load(server.port, 1), [request("0")])
    assert record["error"] is None
    assert record["chunks"][-1][1] == 9


def test_a_text_that_speaks_of_completion_tokens_does_not_count_as_one() -> None:
    told = event("x", 9, 9).replace(b" x x", b' \\"completion_tokens\\": 4444 x', 1)
    with streamer(special={"0": pieces(event("x", 4, 9), told, DONE)}) as server:
        (record,), _ = drive(load(server.port, 1), [request("0")])
    assert [tokens for _, tokens in record["chunks"]] == [4, 9]


def test_a_server_that_sends_no_ids_has_its_text_digested() -> None:
    told = event("x", 9, 9).replace(b'"output_ids": [0, 1, 2, 3, 4, 5, 6, 7, 8], ', b"")
    with streamer(special={"0": pieces(told, DONE)}) as server:
        (record,), _ = drive(load(server.port, 1), [request("0")])
    text = hashlib.sha256(b" x x x x x x x x x").hexdigest()
    assert record["output"] == {"of": "text", "sha256": text, "repeated": 0.5}


def test_increments_are_counted_but_not_digested() -> None:
    told = event("x", 9, 9).replace(b"[0, 1, 2, 3, 4, 5, 6, 7, 8]", b"[7, 8]")
    with streamer(special={"0": pieces(told, DONE)}) as server:
        (record,), _ = drive(load(server.port, 1), [request("0")])
    assert (record["error"], record["output"], record["chunks"][-1][1]) == (None, None, 9)


def test_a_silent_server_costs_a_request_its_time_and_no_more() -> None:
    release, now = threading.Event(), [0.0]
    lines: list[dict[str, Any]] = []

    def silent(handler: Handler) -> None:
        handler.head()
        handler.chunk(event("x", 3, 9))
        until(lambda: driver._tokens == 3, "the client has read them")
        now[0] += 101.0
        release.wait(60)

    with streamer(special={"0": silent}) as server:
        spec = load(server.port, 2, 1, silence=100.0)
        driver = Driver(spec, [request("0"), request("1")], lines.append, lambda _: None, lambda: now[0])
        driver.run()
        release.set()
    first, second, end = lines
    assert first["code"] == "timeout"
    assert first["error"] == "no byte for 100 s, after 3 tokens"
    assert first["chunks"] == [[0.0, 3]]
    assert second["error"] is None
    assert end["end"]["finished"] == 1


def test_a_request_that_waits_for_its_turn_is_not_silent_while_others_are_served() -> None:
    now, turn = [0.0], threading.Event()
    lines: list[dict[str, Any]] = []

    def one_after_the_other(rid: str, tokens: int) -> None:
        server.wait_for(lambda: server.running == 2 or turn.is_set())
        if rid == "1":
            turn.wait(20)
        else:
            until(lambda: driver._tokens >= tokens - 1, "the client has read all so far")
            now[0] += 10.0
            if tokens == 40:
                turn.set()

    with streamer(step=1, before=one_after_the_other) as server:
        spec = load(server.port, 2, silence=100.0)
        driver = Driver(spec, [request("0", 40), request("1", 3)], lines.append, lambda _: None, lambda: now[0])
        driver.run()
    (waited,) = [line for line in lines if line.get("rid") == "1"]
    assert waited["error"] is None
    assert waited["chunks"][0][0] == 400.0


def test_where_nobody_listens_the_load_soon_gives_up_and_says_so() -> None:
    records, end = drive(load(free_port(), 100, 2), [request(str(n)) for n in range(100)])
    assert {record["code"] for record in records} == {"refused"}
    assert (end["reason"], end["failed"], end["unsent"]) == ("no-answer", 8, 92)


def test_a_server_that_dies_in_the_middle_fails_what_runs_and_the_rest_is_not_sent() -> None:
    dead = threading.Event()

    def die(handler: Handler) -> None:
        handler.head()
        handler.chunk(event("x", 3, 9))
        server.wait_for(lambda: server.running == 4)
        if not dead.is_set():
            dead.set()
            threading.Thread(target=server.stop).start()
        handler.reset()

    def answers(server: Streamer) -> None:
        server.special = {str(n): die for n in range(4, 60)}

    with streamer() as server:
        answers(server)
        records, end = drive(load(server.port, 60, 4), [request(str(n)) for n in range(60)])
    assert (end["reason"], end["finished"]) == ("no-answer", 4)
    assert end["unsent"] > 30
    assert {record["code"] for record in records[4:]} <= {"broken", "refused", "stopped"}


def test_a_load_that_is_told_to_stop_records_what_ran_and_says_so() -> None:
    release = threading.Event()
    lines: list[dict[str, Any]] = []

    def stop_now(_: str, tokens: int) -> None:
        if tokens == 3:
            server.wait_for(lambda: server.running == 2)
            driver.stopping = True
            release.wait(10)

    with streamer(before=stop_now) as server:
        driver = Driver(load(server.port, 9), [request(str(n)) for n in range(9)], lines.append, lambda _: None)
        driver.run()
        release.set()
    assert [line["code"] for line in lines[:-1]] == ["stopped", "stopped"]
    end = lines[-1]["end"]
    assert (end["reason"], end["failed"], end["unsent"]) == ("stopped", 2, 7)


def test_progress_says_how_far_the_load_is() -> None:
    news: list[dict[str, Any]] = []
    with streamer() as server:
        drive(load(server.port, 4), [request(str(n)) for n in range(4)], news)
    last = news[-1]
    assert (last["sent"], last["running"], last["finished"], last["failed"]) == (4, 0, 4, 0)
    assert (last["tokens"], last["requests"]) == (36, 4)


def test_a_name_with_several_addresses_is_tried_until_one_answers() -> None:
    with streamer() as server:
        _, end = drive(load(server.port, 2, host="localhost"), [request("0"), request("1")])
    assert end["finished"] == 2


def test_progress_gives_the_rate_of_the_last_two_looks() -> None:
    seconds = itertools.count()
    news: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []

    def when_it_was_told(_: str, tokens: int) -> None:
        until(lambda: len(news) > 3 * tokens, "progress was told")

    with streamer(step=1, before=when_it_was_told) as server:
        # A second passes between any two looks at the clock, so that each turn has news.
        spec = load(server.port, 1, silence=1e9)
        Driver(spec, [request("0", 9)], lines.append, news.append, lambda: next(seconds)).run()
    told = [(each["elapsed_s"], each["tokens"], each["tok_s"]) for each in news]
    assert (told[0][2], told[-1][1]) == (0.0, 9)
    for (then, before, _), _, (now, after, rate) in zip(told, told[1:], told[2:], strict=False):
        assert rate == round((after - before) / (now - then), 1)
    assert max(rate for _, _, rate in told) > 0


@pytest.mark.parametrize(
    ("items", "share"), [([], 0.0), ([1] * 7, 0.0), ([1] * 108, 0.9901), (list(range(50)), 0.0), ([1, 2] * 8, 0.7778)]
)
def test_text_that_goes_in_circles_is_told_by_its_runs_of_eight(items: list[int], share: float) -> None:
    assert repeated_share(items) == share
