from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from fake_host import CANARY, LOG, FakeHost, make_context, said

from eaglelab.actions import ACTIONS
from eaglelab.context import Context
from eaglelab.errors import HostError, InputError
from eaglelab.server.readiness import ServerDied

SMALL = {"num_prompts": 4, "rounds": 2, "output_len": 32, "warmup": 1}


@pytest.fixture
def served(fake: FakeHost, do) -> FakeHost:
    """A server with two steps that has given a token."""
    for name in ("doctor", "plan", "backup", "patch", "start", "wait"):
        do(name)
    return fake


@pytest.fixture
def several(fake: FakeHost, do) -> FakeHost:
    """A server that holds 1, 2 and 5 steps."""
    fake.facts["sglang_version"] = "0.5.12.dev1"
    for name in ("doctor", "plan", "backup", "patch"):
        do(name)
    do("start", steps=[1, 2, 5])
    do("wait")
    return fake


def taken_up(context: Context, tries: int = 1) -> Context:
    """The same run, taken up by another controller: all it has is the host and the bundle."""
    found = make_context(context.client, context.bundle.folder)  # type: ignore[arg-type]
    found.resumed = tries
    for name in ("doctor", "plan", "check_server", "wait"):
        ACTIONS[name].run(found, ACTIONS[name].args())
    return found


def measure(context: Context, **args):
    return ACTIONS["measure"].run(context, ACTIONS["measure"].args(**{**SMALL, **args}))


def rids(load) -> list[str]:
    """Request ids without what tells this run from others."""
    return [request["body"]["rid"].partition("eaglelab-")[0] for request in load.requests]


def test_the_requests_of_a_round_carry_the_steps_and_whether_they_are_measured(several, context, do) -> None:
    do("measure", steps=[1, 2], folder="k1-2", **SMALL)
    (load,) = several.begun
    size = 2  # requests a round
    switch1, switch2 = ["k=1/p=0/"], ["k=2/p=0/"]
    assert rids(load) == [
        *["k=1/p=0/", "k=2/p=0/"],  # warming up
        *switch1,
        *["k=1/p=0/"] * size,
        *["k=1/"] * size,
        *switch2,
        *["k=2/"] * size,
        *["k=2/p=0/"] * size,
        *switch2,
        *["k=2/p=0/"] * size,
        *["k=2/"] * size,
        *switch1,
        *["k=1/"] * size,
        *["k=1/p=0/"] * size,
        "p=0/",  # makes the probe write what it holds
    ]
    own = [request["body"]["rid"] for request in load.requests]
    assert len(set(own)) == len(own)
    assert all(context.run in rid for rid in own)


def test_every_setting_gets_the_same_prompts_in_a_round_and_others_in_the_next(several, do) -> None:
    do("measure", steps=[1, 2], **SMALL)
    (load,) = several.begun
    texts: dict[int, set[tuple[str, ...]]] = {}
    for number, about in enumerate(load.spec["rounds"]):
        bodies = [load.requests[index]["body"] for index in about["requests"]]
        if len(bodies) == 2:
            texts.setdefault((number - 2) // 6, set()).add(tuple(body["text"] for body in bodies))
    assert [len(found) for found in texts.values()] == [1, 1]
    (first,), (second,) = texts.values()
    assert not set(first) & set(second)


def test_with_one_step_count_nothing_is_switched_and_ids_choose_nothing(served, do) -> None:
    do("measure", **SMALL)
    assert rids(served.begun[0]) == ["p=0/", *["p=0/"] * 2, *[""] * 2, *[""] * 2, *["p=0/"] * 2, "p=0/"]


def test_the_baseline_is_sent_without_the_probe(fake, do, context) -> None:
    for name in ("doctor", "plan"):
        do(name)
    do("start", steps="baseline")
    do("wait")
    found = do("measure", probed=False, **SMALL)
    assert Counter(rids(fake.begun[0])) == {"p=0/": 5}
    (measured,) = context.found.measurements
    assert (measured.result.steps, measured.result.profiled, measured.setting) == (None, False, None)
    assert found["settings"][0]["steps"] is None


def test_the_cache_is_flushed_before_each_round_and_the_probe_at_the_end(served, do) -> None:
    do("measure", **SMALL)
    *rounds, last = served.begun[0].spec["rounds"]
    assert all(about["flush"] for about in rounds)
    assert (last["flush"], last["pause_s"]) == (False, pytest.approx(1.0 / 5))


def test_samples_carry_the_round_in_which_they_are_compared(several, context, do) -> None:
    do("measure", steps=[1, 2], **SMALL)
    for found in context.found.measurements:
        assert [sample.round for sample in found.result.requests] == [0, 0, 1, 1]
    assert [(found.result.steps, found.result.profiled) for found in context.found.measurements] == [
        (1, False),
        (1, True),
        (2, True),
        (2, False),
    ]


def test_times_are_those_of_the_servers_own_clock(served, context, do) -> None:
    do("measure", **SMALL)
    off = context.found.measurements[0].result.requests[0]
    assert off.ttft_s == pytest.approx(0.02)
    assert (off.tokens - 1) / off.decode_s == pytest.approx(94.0, rel=0.004)


def test_client_probe_and_server_count_the_same_tokens_and_the_cycle_adds_up(several, context, do) -> None:
    do("measure", steps=[1, 2, 5], concurrency=[1, 2], **SMALL)
    for found in context.found.measurements:
        codes = {finding.code: finding.severity for finding in found.findings}
        assert codes == (
            {"tokens": "ok", "closure": "ok", "accept-length-sources": "ok", "probe-cost": "note"}
            if found.result.profiled
            else {}
        )


def test_a_request_that_failed_is_told_of_its_own_setting_only(served, context, do) -> None:
    served.load_faults["c1"] = "a request fails"
    do("measure", **SMALL)
    failed = [found for found in context.found.measurements if any(f.code == "failed-requests" for f in found.findings)]
    assert len(failed) == 1


def test_what_was_measured_is_in_the_bundle(several, context, do) -> None:
    do("measure", steps=[1, 2], folder="k1-2", **SMALL)
    folder = context.bundle.folder / "k1-2"
    lines = [json.loads(line) for line in (folder / "requests-c1.jsonl").read_text().splitlines()]
    assert "begin" in lines[0]
    assert "end" in lines[-1]
    kept = json.loads((folder / "measurements-c1.json").read_text())
    assert len(kept["measurements"]) == 4
    assert (folder / "c1/probe/rank0.1.jsonl").read_text().count('"block"') == 8
    assert json.loads((folder / "load-c1.json").read_text())["load"] == "k1-2-c1"


def test_what_comes_before_is_in_no_figure(served, context, do) -> None:
    do("measure", **SMALL)
    first = context.found.measurements[1].setting
    do("measure", folder="again", **SMALL)
    second = context.found.measurements[3].setting
    assert first is not None
    assert second is not None
    assert second.cycles == first.cycles


def test_what_was_measured_is_not_measured_again_in_the_same_run(served, context, do) -> None:
    do("measure", concurrency=[1], **SMALL)
    later = taken_up(context)
    measure(later, concurrency=[1, 2])
    assert [load.id for load in served.begun] == ["load-c1", "load-c2-1"]
    assert "concurrency 1: measured before, 2 figures are in the bundle" in said(later)
    assert [found.result.batch for found in later.found.measurements] == [1, 1, 2, 2]
    assert later.found.measurements[0] == context.found.measurements[0]


@pytest.mark.parametrize("change", [{"output_len": 33}, {"seed": 7}, {"rounds": 4}, {"temperature": 0.5}])
def test_what_was_asked_otherwise_is_measured_anew(served, context, do, change) -> None:
    do("measure", **SMALL)
    measure(taken_up(context), **change)
    assert [load.id for load in served.begun] == ["load-c1", "load-c1-1"]


def lost_in_the_middle(fake: FakeHost, context: Context, **args) -> None:
    """The controller dies when it looks at a load that runs."""
    poll = fake.op_load_poll

    def dies(id: str, **args):  # noqa: A002 - the wire's word
        if any(load.id == id and load.state == "running" for load in fake.begun):
            raise SystemExit(137)
        return poll(id=id, **args)

    fake.op_load_poll = dies  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        measure(context, **args)
    fake.op_load_poll = poll  # type: ignore[method-assign]


def test_a_load_that_goes_on_is_followed_by_whoever_takes_the_run_up(served, context) -> None:
    lost_in_the_middle(served, context)
    later = taken_up(context)
    measure(later)
    assert len(served.begun) == 1
    assert "going on with the load load-c1, begun " in said(later)
    codes = {finding.code: finding.severity for finding in later.found.measurements[1].findings}
    assert codes["tokens"] == codes["closure"] == "ok"  # the probe's files were marked when the load began


def test_so_is_one_that_has_ended_meanwhile(served, context) -> None:
    lost_in_the_middle(served, context)
    served.begun[0].polls = 5
    measure(taken_up(context))
    assert len(served.begun) == 1


@pytest.mark.parametrize("fault", ["killed", "server dies"])
def test_a_load_that_came_to_nothing_is_begun_anew_under_another_name(served, context, fault) -> None:
    served.load_faults["load-c1"] = fault
    with pytest.raises(HostError):
        measure(context)
    served.load_faults.clear()
    served.alive = True
    later = taken_up(context)
    measure(later)
    assert [load.id for load in served.begun] == ["load-c1", "load-c1-1"]
    assert [len(found.result.requests) for found in later.found.measurements] == [4, 4]


def test_a_load_on_another_server_is_begun_anew(served, context) -> None:
    lost_in_the_middle(served, context)
    served.begun[0].stop()
    assert served.record is not None
    served.record["pid_start"] += 1
    measure(taken_up(context))
    assert [load.id for load in served.begun] == ["load-c1", "load-c1-1"]


def test_a_load_that_was_never_begun_is_begun(served, context) -> None:
    served.fail["load_start"] = SystemExit(137)
    with pytest.raises(SystemExit):
        measure(context)
    served.fail.clear()
    measure(taken_up(context))
    assert [load.id for load in served.begun] == ["load-c1-1"]


def test_the_second_time_it_is_taken_up_it_finds_what_the_first_began(served, context) -> None:
    served.load_faults["load-c1"] = "killed"
    with pytest.raises(HostError):
        measure(context)
    served.load_faults.clear()
    lost_in_the_middle(served, taken_up(context, 1))
    measure(taken_up(context, 2))
    assert [load.id for load in served.begun] == ["load-c1", "load-c1-1"]


def test_a_server_that_dies_ends_it_and_keeps_what_was_measured_before(served, context) -> None:
    served.load_faults["c2"] = "server dies"
    with pytest.raises(ServerDied):
        measure(context, concurrency=[1, 2])
    assert [found.result.batch for found in context.found.measurements] == [1, 1]


def test_random_prompts_are_token_ids_of_the_models_vocabulary(served, context) -> None:
    with pytest.raises(InputError, match="the size of the model's vocabulary"):
        measure(context, random_input_len=9)
    assert served.begun == []
    served.files["/models/target/config.json"] = b'{"vocab_size": 50}'
    measure(context, random_input_len=9, random_range_ratio=1.0)
    ids = [token for request in served.begun[0].requests for token in request["body"].get("input_ids", [])]
    assert len(ids) == 9 * (1 + 2 * 4)
    assert max(ids) < 50
    assert any(finding.code == "random-prompts" for finding in context.found.measurements[1].findings)


def test_prompts_of_a_file_are_sent(served, context, tmp_path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    measure(context, prompts=str(file))
    assert {request["body"]["text"] for request in served.begun[0].requests[:-1]} == {"one", "two"}


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ({"prompts": "none.jsonl"}, "the prompts cannot be read"),
        ({"prompts": __file__}, "test_measure.py"),
        ({"steps": [2, 2]}, "named twice"),
        ({"concurrency": [1, 1]}, "named twice"),
        ({"random_output_len": 9}, "--random-output-len needs --random-input-len"),
        ({"prompts": __file__, "random_input_len": 9}, "both say where prompts come from"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_any_host_is_contacted(context, args, what) -> None:
    measure = ACTIONS["measure"]
    assert measure.check is not None
    with pytest.raises(InputError) as caught:
        measure.check(context.options, measure.args(**args))
    assert what in str(caught.value)


def test_progress_is_shown_while_it_runs(several, context, do) -> None:
    shown: list[str] = []
    context.say.progress = lambda line, *_: shown.append(line)  # type: ignore[method-assign]
    do("measure", steps=[1, 2], **SMALL)
    assert len(shown) == 2
    assert "concurrency 1, k2, round " in shown[0]
    assert "accept length 1.9" in shown[0]


def test_a_log_whose_server_said_other_things_before_is_read_from_the_mark_on(served, context, do) -> None:
    assert CANARY not in served.files[LOG]
    served.files[LOG] += (
        b"Decode batch. #running-req: 7, #token: 1, accept len: 9.00, cuda graph: True, gen throughput (token/s): 1.0\n"
    )
    do("measure", **SMALL)
    codes = [finding.code for finding in context.found.measurements[1].findings]
    assert "foreign-requests" not in codes
    assert replace(context.log).path == LOG
