"""bench_serving: SGLang's own client on a host in memory, its rows against the recorded contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_host import STATE, make_context, make_host, said
from serving_host import ServingHost

from eaglelab.actions import ACTIONS
from eaglelab.actions.bench_serving import BenchServingArguments
from eaglelab.context import Context
from eaglelab.errors import HostError, InputError
from eaglelab.server.readiness import ServerDied


@pytest.fixture
def fake() -> ServingHost:
    return ServingHost()


@pytest.fixture
def context(fake: ServingHost, tmp_path: Path) -> Context:
    return make_context(fake, tmp_path / "bundle")


@pytest.fixture
def do(context: Context) -> Any:
    def perform(name: str, **args: Any) -> dict[str, Any]:
        action = ACTIONS[name]
        return action.run(context, action.args.model_validate(args))

    return perform


@pytest.fixture
def up(do: Any) -> None:
    """A server with two steps, probe off."""
    do("doctor")
    do("start", profile=False)
    do("wait")


def test_every_concurrency_and_repeat_is_a_run_of_its_own(up: None, do: Any, fake: ServingHost, context: Context):
    settings = do("bench_serving", concurrency=[1, 4], repeats=2, num_prompts=8, folder="k2")["settings"]
    assert list(fake.runs) == ["k2-c1-r0", "k2-c1-r1", "k2-c4-r0", "k2-c4-r1"]
    commands = [run["command"] for run in fake.runs.values()]
    told = [[each[each.index(flag) + 1] for flag in ("--max-concurrency", "--seed")] for each in commands]
    assert told == [["1", "42"], ["1", "43"], ["4", "42"], ["4", "43"]]
    rates = [setting["figures"]["output_throughput"] for setting in settings]
    assert [(rate["mean"], rate["count"]) for rate in rates] == [(100.5, 2), (100.5, 2)]
    assert [(setting["steps"], setting["concurrency"]) for setting in settings] == [(2, 1), (2, 4)]
    assert len(context.found.serving) == 4


def test_the_prompts_are_kept_on_the_host_as_the_dataset_reads_them(up: None, do: Any, fake: ServingHost) -> None:
    do("bench_serving", repeats=1, num_prompts=3)
    (command,) = [run["command"] for run in fake.runs.values()]
    path = command[command.index("--dataset-path") + 1]
    assert path.startswith(f"{STATE}/files/")
    lines = [json.loads(line) for line in fake.files[path].splitlines()]
    assert len(lines) == 3
    assert "hash table" in lines[0]["conversations"][0]["value"]
    assert command[command.index("--sharegpt-output-len") + 1] == "256"


def test_random_prompts_are_its_own_affair(up: None, do: Any, fake: ServingHost) -> None:
    do("bench_serving", repeats=1, random_input_len=100, random_output_len=50, request_rate=2.0)
    assert "keep" not in fake.ops()
    (command,) = [run["command"] for run in fake.runs.values()]
    assert command[command.index("--dataset-name") + 1] == "random"
    assert command[command.index("--random-output-len") + 1] == "50"
    assert command[command.index("--request-rate") + 1] == "2"
    assert command[command.index("--num-prompts") + 1] == "40"


def test_the_key_goes_by_the_environment_and_is_in_no_argument_and_nowhere_in_the_bundle(
    fake: ServingHost, tmp_path: Path
) -> None:
    host = make_host(api_key_env="MY_KEY", server={"env": {"PYTHONPATH": "/opt/sglang"}})
    context = make_context(fake, tmp_path / "bundle", host=host, env={"MY_KEY": "tops3cret-key"})
    fake.output = "calling with tops3cret-key\n"
    for name, args in (("doctor", {}), ("start", {"profile": False}), ("wait", {}), ("bench_serving", {"repeats": 1})):
        ACTIONS[name].run(context, ACTIONS[name].args.model_validate(args))
    (run,) = fake.runs.values()
    assert run["env"]["OPENAI_API_KEY"] == "tops3cret-key"
    assert run["env"]["PYTHONPATH"] == "/opt/sglang"
    assert run["env"]["NO_PROXY"] == "127.0.0.1"
    assert not any("tops3cret" in word for word in run["command"])
    for path in (tmp_path / "bundle").rglob("*"):
        assert path.is_dir() or "tops3cret" not in path.read_text()


@pytest.mark.parametrize("action", ["check_bench_serving", "bench_serving"])
@pytest.mark.parametrize("module", ["aiohttp", "transformers"])
def test_a_module_that_its_python_lacks_is_named_with_the_way_round_it(
    up: None, do: Any, fake: ServingHost, action: str, module: str
) -> None:
    fake.code = 1
    fake.output = f"Traceback (most recent call last):\n  ...\nModuleNotFoundError: No module named '{module}.x'\n"
    with pytest.raises(HostError, match=f"does not start there: its Python has no module {module}.x") as failed:
        do(action)
    assert f"pip install {module} on the host" in failed.value.hint
    assert "leave out --client" in failed.value.hint
    assert len(fake.begun_commands) == 1


def test_another_failure_is_told_by_its_last_lines(up: None, do: Any, fake: ServingHost, context: Context) -> None:
    fake.code, fake.output = 1, "".join(f"line {number}\n" for number in range(20)) + "ValueError: Warmup failed\n"
    with pytest.raises(HostError) as failed:
        do("bench_serving", folder="k2")
    assert failed.value.what.startswith("sglang.bench_serving ended with code 1: line 15 / line 16 / ")
    assert failed.value.what.endswith(" / line 19 / ValueError: Warmup failed")
    assert "line 3\n" in (context.bundle.folder / "k2" / "output-c1-r0.txt").read_text()


def test_a_server_that_died_meanwhile_is_the_reason(up: None, do: Any, fake: ServingHost) -> None:
    fake.code, fake.alive = 1, False
    with pytest.raises(ServerDied, match="the server died while bench_serving was at work"):
        do("bench_serving")


@pytest.mark.parametrize(("row", "answered"), [(False, None), (True, 0)])
def test_a_run_without_an_answered_request_is_a_failure(
    up: None, do: Any, fake: ServingHost, row: bool, answered: int | None
) -> None:
    fake.row, fake.answered = row, answered
    with pytest.raises(HostError, match="bench_serving ended without"):
        do("bench_serving")


def test_a_server_without_a_tokenizer_is_refused(up: None, do: Any, fake: ServingHost, context: Context) -> None:
    context.found.server_info = {"skip_tokenizer_init": True}
    with pytest.raises(InputError, match="has no tokenizer"):
        do("bench_serving")
    assert not fake.runs


def test_what_an_old_release_cannot_send_is_refused(up: None, do: Any, fake: ServingHost) -> None:
    with pytest.raises(InputError, match=r"SGLang 0\.5\.9\.dev1 does not take --temperature"):
        do("bench_serving", temperature=0.5)
    assert not fake.runs


def test_a_worker_that_an_earlier_run_has_patched_is_told_of(do: Any, fake: ServingHost, context: Context) -> None:
    for name, args in (("doctor", {}), ("plan", {}), ("backup", {}), ("patch", {})):
        do(name, **args)
    for name, args in (("doctor", {}), ("start", {"profile": False}), ("wait", {}), ("bench_serving", {"repeats": 1})):
        do(name, **args)
    assert "patched by an earlier run (probe off, one attribute test a cycle)" in said(context)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"prompts": "f", "random_input_len": 5}, "both say where prompts come from"),
        ({"random_output_len": 5}, "needs --random-input-len"),
        ({"prompts": "/nowhere.jsonl"}, "the prompts cannot be read"),
        ({"concurrency": [1, 1]}, "a concurrency is named twice"),
    ],
)
def test_what_no_release_could_send_is_refused_before_a_host_is_contacted(
    context: Context, fake: ServingHost, args: dict[str, Any], why: str
) -> None:
    check = ACTIONS["bench_serving"].check
    assert check is not None
    with pytest.raises(InputError, match=why):
        check(context.options, BenchServingArguments.model_validate(args))
    assert fake.ops() == []


def test_taken_up_again_what_was_measured_is_not_measured_twice(
    up: None, do: Any, fake: ServingHost, context: Context
) -> None:
    do("bench_serving", repeats=2, folder="k2")
    context.resumed, context.found.serving = 1, []
    do("bench_serving", repeats=3, folder="k2")
    assert list(fake.runs) == ["k2-c1-r0", "k2-c1-r1", "k2-c1-r2-1"]
    assert [run.repeat for run in context.found.serving] == [0, 1, 2]


def test_a_run_that_an_earlier_try_began_is_waited_for(up: None, do: Any, fake: ServingHost, context: Context) -> None:
    fake.fail["read"] = HostError("the link is gone", where="fake")
    with pytest.raises(HostError, match="the link is gone"):
        do("bench_serving", repeats=1, folder="k2")
    del fake.fail["read"]
    context.resumed = 1
    do("bench_serving", repeats=1, folder="k2")
    assert list(fake.runs) == ["k2-c1-r0"]
    assert "going on with the load k2-c1-r0" in said(context)
