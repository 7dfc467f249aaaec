from __future__ import annotations

import pytest
from fake_host import FakeHost, refusal, said

from eaglelab.actions.drive import drive, goes_on
from eaglelab.errors import HostError
from eaglelab.remote.pipe import LinkLost
from eaglelab.server.readiness import ServerDied
from eaglelab.server.workload import LoadOptions, Round, as_load, choose_workload


@pytest.fixture
def served(fake: FakeHost) -> FakeHost:
    fake.record, fake.alive = {"steps": 2, "run": "r"}, True
    return fake


def load(count: int = 8):
    workload = choose_workload(LoadOptions(num_prompts=count, output_len=8), str, None)
    rounds = [Round([workload.body(at, f"mine-{at}", {}) for at in range(count)])]
    return as_load(rounds, host="127.0.0.1", port=30000, key="s3cret", max_concurrency=1)


def run(context, watch=lambda *_: None, name: str = "l"):
    whole = load()
    return drive(context, name, whole["spec"], whole["requests"], watch)


def test_every_line_comes_home_once_and_in_order(served, context) -> None:
    result = run(context)
    assert [record["index"] for record in result.records] == list(range(8))
    assert result.lines[0] == {"begin": {"requests": 8}}
    assert result.end["reason"] == "finished"


def test_whoever_watches_is_told_of_each_look(served, context) -> None:
    looks = []
    run(context, lambda told, so_far: looks.append((told["finished"], len(so_far.records))))
    assert looks == [(4, 4), (8, 8)]


def test_it_looks_twice_a_second_as_long_as_the_load_runs(served, context) -> None:
    before = context.clock()
    run(context)
    assert context.clock() - before == 0.5


@pytest.fixture
def in_pieces(served: FakeHost) -> FakeHost:
    """A host that sends one line at a time."""
    whole = served.op_load_poll

    def piece(id: str, run: str, offset: int):  # noqa: A002 - the wire's word
        answer, data = whole(id, run, offset)
        line = data[: data.find(b"\n") + 1]
        return {**answer, "next": offset + len(line), "more": len(line) < len(data)}, line

    served.op_load_poll = piece  # type: ignore[method-assign]
    return served


def test_a_long_result_comes_in_pieces_without_a_pause(in_pieces, context) -> None:
    before = context.clock()
    assert len(run(context).records) == 8
    assert context.clock() == before  # the second look found it done


def test_a_load_goes_on_while_it_runs_and_after_its_proper_end_however_long_its_result_is(in_pieces, context) -> None:
    assert goes_on(context, "l") is False
    whole = load()
    in_pieces.op_load_start("l", context.run, whole["spec"], whole["requests"])
    assert goes_on(context, "l") is True
    assert not in_pieces.begun[0].over
    in_pieces.begun[0].polls = 5
    assert goes_on(context, "l") is True
    in_pieces.begun[0].polls = 0
    in_pieces.begun[0].stop()
    assert goes_on(context, "l") is False


def test_whether_a_load_goes_on_is_not_guessed_over_a_lost_link(served, context) -> None:
    served.fail["load_poll"] = LinkLost("gone", where="fake")
    with pytest.raises(LinkLost):
        goes_on(context, "l")


def test_a_load_that_was_started_already_is_followed_and_not_started_anew(served, context) -> None:
    whole = load()
    served.op_load_start("l", context.run, whole["spec"], whole["requests"])
    assert len(run(context).records) == 8
    assert len(served.begun) == 1


def test_a_server_that_died_is_told_from_a_load_that_something_ended(served, context) -> None:
    served.load_faults["l"] = "server dies"
    with pytest.raises(ServerDied, match=r"the server died during load l \(3 of 8 requests had ended\)") as caught:
        run(context)
    assert caught.value.hint == "invoke logs --host fake shows what the server says"


def test_a_load_that_was_stopped_says_so(served, context) -> None:
    def stop(*_: object) -> None:
        served.op_load_stop("l", context.run)

    with pytest.raises(HostError, match=r"load l: stopped \(4 of 8 requests had ended\)") as caught:
        run(context, stop)
    assert not isinstance(caught.value, ServerDied)


def test_a_load_whose_process_was_killed_has_no_result(served, context) -> None:
    served.load_faults["l"] = "killed"
    with pytest.raises(HostError, match="load l is gone without a result: its process was killed"):
        run(context)


def test_one_request_that_failed_is_a_record_and_no_failure(served, context) -> None:
    served.load_faults["l"] = "a request fails"
    assert [record["code"] for record in run(context).records].count("broken") == 1


def test_a_load_of_which_nothing_was_answered_is_a_failure(served, context) -> None:
    poll = served.op_load_poll

    def broken(**args):
        answer, data = poll(**args)
        return answer, data.replace(b'"code":null,"error":null', b'"code":"http","error":"500 in full"')

    served.op_load_poll = broken
    with pytest.raises(HostError, match="load l: no request was answered: 500 in full"):
        run(context)


def test_what_the_host_refuses_and_a_lost_link_go_up_as_they_are(served, context) -> None:
    served.fail["load_start"] = refusal("load-running", "load x of run y is still running here")
    with pytest.raises(HostError, match="still running") as caught:
        run(context)
    assert "invoke stop" in caught.value.hint
    served.fail = {"load_poll": LinkLost("gone", where="fake")}
    with pytest.raises(LinkLost):
        run(context)


def test_the_servers_key_is_given_to_the_host_and_shown_nowhere(served, context) -> None:
    run(context)
    assert served.begun[0].spec["key"] == "s3cret"
    assert "s3cret" not in said(context)
