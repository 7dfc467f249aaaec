from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from eaglelab.errors import InputError
from eaglelab.server.prompts import PROMPTS
from eaglelab.server.workload import LoadOptions, Round, Workload, as_load, choose_workload, request_id

PROBE = Path(__file__).parents[2] / "patches" / "eagle3-profile" / "eaglelab_probe.py"
FILE = '{"prompt": "a"}\n{"text": "b", "output_len": 7}\n{"input_ids": [1, 2]}\n'


def choose(vocabulary: int | None = 1000, **options: Any) -> Workload:
    return choose_workload(LoadOptions(**options), {"p.jsonl": FILE}.__getitem__, vocabulary)


def all_bodies(workload: Workload, server_info: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """A request for each prompt."""
    return [workload.body(number, f"own-{number}", server_info or {}) for number in range(len(workload.prompts))]


@pytest.mark.parametrize(
    ("steps", "measured", "prefix"),
    [(None, True, ""), (None, False, "p=0/"), (5, True, "k=5/"), (5, False, "k=5/p=0/")],
)
def test_the_probe_s_prefixes_stand_before_the_request_s_own_id(steps: int | None, measured: bool, prefix: str) -> None:
    assert request_id("mine", steps=steps, measured=measured) == prefix + "mine"


def test_the_probe_reads_from_an_id_what_was_written_into_it() -> None:
    read = runpy.run_path(str(PROBE))["_read"]
    for steps in (None, 5):
        for measured in (True, False):
            assert read(request_id("mine", steps=steps, measured=measured)) == (steps, measured)


def test_without_options_the_built_in_prompts_are_sent() -> None:
    workload = choose()
    assert workload.source == "built-in"
    assert [prompt.content for prompt in workload.prompts] == list(PROMPTS[:32])
    body = workload.body(1, "eaglelab-1.2-run-1", {}, steps=3, measured=False)
    assert body == {
        "text": PROMPTS[1],
        "rid": "k=3/p=0/eaglelab-1.2-run-1",
        "sampling_params": {"max_new_tokens": 256, "temperature": 0.0, "ignore_eos": True},
    }


def test_a_file_s_own_lengths_win_over_the_option() -> None:
    workload = choose(prompts="p.jsonl", output_len=40, temperature=0.7)
    assert workload.source == "p.jsonl"
    bodies = all_bodies(workload)
    assert [body["sampling_params"]["max_new_tokens"] for body in bodies] == [40, 7, 40]
    assert [body.get("text", body.get("input_ids")) for body in bodies] == ["a", "b", [1, 2]]
    assert {body["sampling_params"]["temperature"] for body in bodies} == {0.7}


def test_a_server_without_a_tokenizer_is_given_ids() -> None:
    bodies = all_bodies(choose(prompts="p.jsonl"), {"skip_tokenizer_init": True})
    assert [body["input_ids"] for body in bodies] == [[ord("a") + 16], [ord("b") + 16], [1, 2]]


def test_fewer_of_a_file_s_prompts_may_be_sent_but_not_more() -> None:
    assert len(choose(prompts="p.jsonl", num_prompts=2).prompts) == 2
    with pytest.raises(InputError, match="holds 3 prompts, 4 are asked for") as refused:
        choose(prompts="p.jsonl", num_prompts=4)
    assert "--repeats" in refused.value.hint


def test_random_prompts_are_named_so() -> None:
    workload = choose(random_input_len=8, random_output_len=4, random_range_ratio=1.0, num_prompts=3)
    assert workload.source == "random"
    bodies = all_bodies(workload)
    assert [len(body["input_ids"]) for body in bodies] == [8, 8, 8]
    assert {body["sampling_params"]["max_new_tokens"] for body in bodies} == {4}
    assert workload == choose(random_input_len=8, random_output_len=4, random_range_ratio=1.0, num_prompts=3)


def test_random_prompts_need_the_size_of_the_vocabulary() -> None:
    with pytest.raises(InputError, match="vocabulary"):
        choose(vocabulary=None, random_input_len=8)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"num_prompts": 0}, "--num-prompts 0 is less than 1"),
        ({"output_len": 0}, "--output-len 0"),
        ({"temperature": -1.0}, "--temperature -1"),
        ({"prompts": "p", "random_input_len": 3}, "both say where prompts come from"),
        ({"random_output_len": 3}, "needs --random-input-len"),
        ({"random_input_len": 3, "random_output_len": 3, "output_len": 3}, "both give the length"),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError) as refused:
        LoadOptions(**options)
    assert what in refused.value.what


def bodies(count: int) -> list[dict[str, Any]]:
    return all_bodies(choose(num_prompts=count))


def test_rounds_name_the_requests_of_one_list() -> None:
    rounds = [Round(bodies(2)), Round(bodies(3), flush=True, pause_s=0.5)]
    load = as_load(rounds, host="127.0.0.1", port=3, key="k", max_concurrency=4, silence=9.0)
    assert load["spec"] == {
        "host": "127.0.0.1",
        "port": 3,
        "key": "k",
        "mode": "concurrency",
        "concurrency": 4,
        "silence": 9.0,
        "rounds": [
            {"requests": [0, 1], "flush": False, "pause_s": 0.0},
            {"requests": [2, 3, 4], "flush": True, "pause_s": 0.5},
        ],
    }
    assert [request["body"] for request in load["requests"]] == bodies(2) + bodies(3)
    assert {request["at"] for request in load["requests"]} == {0.0}


def test_without_a_rate_or_a_limit_one_request_runs_at_a_time() -> None:
    spec = as_load([Round(bodies(1))], host="h", port=1, key=None)["spec"]
    assert (spec["mode"], spec["concurrency"]) == ("concurrency", 1)


def test_at_a_rate_rounds_of_one_seed_have_the_same_start_times() -> None:
    rounds = [Round(bodies(4)), Round(bodies(4)), Round(bodies(4), seed=7)]
    load = as_load(rounds, host="h", port=1, key=None, request_rate=2.0)
    times = [request["at"] for request in load["requests"]]
    assert times[:4] == times[4:8] != times[8:]
    assert times[0] == 0.0 < times[1]
    assert (load["spec"]["mode"], load["spec"]["concurrency"]) == ("rate", None)


def test_at_a_rate_a_limit_stays_one() -> None:
    load = as_load([Round(bodies(2))], host="h", port=1, key=None, request_rate=float("inf"), max_concurrency=8)
    assert load["spec"]["concurrency"] == 8
    assert [request["at"] for request in load["requests"]] == [0.0, 0.0]
