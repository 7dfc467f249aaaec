from __future__ import annotations

from typing import Any

import pytest

from eaglelab.errors import InputError
from eaglelab.inventory import Host
from eaglelab.server.command import parse_steps, server_command, server_env


def host(speculative: dict[str, Any] | None = None, *, without: bool = False, **server: Any) -> Host:
    speculation = None if without else {"draft_model_path": "/m/draft", **(speculative or {})}
    settings = {"model_path": "/m/kimi k2", "speculative": speculation}
    return Host.build("a", {"address": "127.0.0.1", "server": {**settings, **server}}, {}, "inventory.yaml:3")


BASE = ["/py", "-m", "sglang.launch_server", "--model-path", "/m/kimi k2", "--host", "127.0.0.1", "--port", "30000"]


def test_the_command_gives_all_of_speculation_and_one_draft_token_more_than_steps() -> None:
    assert server_command(host(tp_size=8), python="/py", steps=2) == [
        *BASE,
        *("--tp-size", "8"),
        *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/m/draft"),
        *("--speculative-num-steps", "2", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3"),
    ]


def test_other_steps_than_the_inventory_says_move_the_draft_tokens_with_top_k_1() -> None:
    argv = server_command(host({"num_steps": 2, "num_draft_tokens": 3}), python="/py", steps=5)
    assert argv[-6:] == [
        *("--speculative-num-steps", "5", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "6"),
    ]


@pytest.mark.parametrize(("tokens", "given"), [(16, "16"), (None, "4")])
def test_a_tree_keeps_the_draft_tokens_of_the_inventory(tokens: int | None, given: str) -> None:
    argv = server_command(host({"eagle_topk": 4, "num_draft_tokens": tokens}), python="/py", steps=3)
    assert argv[-4:] == ["--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", given]


def test_the_baseline_has_no_flag_of_speculation_wherever_it_comes_from() -> None:
    flags = {"speculative-attention-mode": "decode", "trust-remote-code": True}
    argv = server_command(host(flags=flags), python="/py", steps=None, extra={"speculative-adaptive": True})
    assert argv == [*BASE, "--tp-size", "1", "--trust-remote-code"]


def test_the_baseline_needs_no_draft_model() -> None:
    assert server_command(host(without=True), python="/py", steps=None) == [*BASE, "--tp-size", "1"]


def test_flags_take_values_lists_and_nothing_and_extra_ones_win() -> None:
    flags = {"mem-fraction-static": 0.85, "cuda-graph-bs": [1, 2], "trust-remote-code": True, "log-level": "info"}
    extra = {"log-level": "debug", "trust-remote-code": False, "speculative-adaptive": True}
    argv = server_command(host(flags=flags), python="/py", steps=1, extra=extra)
    after = argv[argv.index("--speculative-num-draft-tokens") + 2 :]
    assert after == [
        *("--mem-fraction-static", "0.85", "--cuda-graph-bs", "1", "2", "--log-level", "debug"),
        "--speculative-adaptive",
    ]


def test_the_api_key_is_given_once() -> None:
    argv = server_command(host(flags={"api-key": "old"}), python="/py", steps=None, api_key="new")
    assert argv[-2:] == ["--api-key", "new"]
    assert argv.count("--api-key") == 1
    assert server_command(host(flags={"api-key": "old"}), python="/py", steps=None)[-2:] == ["--api-key", "old"]


@pytest.mark.parametrize(
    ("which", "steps", "what"),
    [
        (host(model_path=None), None, "server.model_path of host 'a' is not set"),
        (host({"draft_model_path": None}), 2, "server.speculative.draft_model_path of host 'a' is not set"),
        (host(without=True), 2, "2 steps are asked for and server.speculative of host 'a' is empty"),
        (host(), 0, "0 steps are not possible"),
        (host(), 65, "65 steps are not possible: SGLang captures a graph for each"),
    ],
)
def test_a_command_that_cannot_work_is_refused(which: Host, steps: int | None, what: str) -> None:
    with pytest.raises(InputError, match=what):
        server_command(which, python="/py", steps=steps)


def test_an_extra_flag_that_the_inventory_has_a_key_for_is_refused() -> None:
    with pytest.raises(InputError, match=r"flag tp is set by server\.tp_size"):
        server_command(host(), python="/py", steps=None, extra={"tp": 4})


def test_the_environment_of_the_call_wins_over_that_of_the_inventory() -> None:
    env = server_env(host(env={"A": "1", "B": "2"}), {"B": "3", "EAGLE3_PROFILE": "1"})
    assert env == {"A": "1", "B": "3", "EAGLE3_PROFILE": "1"}


@pytest.mark.parametrize(("text", "steps"), [("2", (2,)), ("2,3,64", (2, 3, 64)), (" 5, 1 ", (5, 1))])
def test_steps_are_read_in_the_order_given(text: str, steps: tuple[int, ...]) -> None:
    assert parse_steps(text) == steps


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "a step count is empty"),
        ("2,", "a step count is empty"),
        ("0", "0 steps are not possible: a step count is 1 or more"),
        ("-2", "-2 steps are not possible: a step count is 1 or more"),
        ("-0", "-0 steps are not possible: a step count is 1 or more"),
        ("65", "65 steps are not possible: SGLang captures a graph for each; 64 at most here"),
        ("9" * 5000, "9" * 5000 + " steps are not possible: SGLang captures a graph for each; 64 at most here"),
        ("two", "'two' is not a whole number"),
        ("2.0", "'2.0' is not a whole number"),
        ("--2", "'--2' is not a whole number"),
        ("2 3", "'2 3' is not a whole number"),
        ("²", "'²' is not a whole number"),
        ("2,3,02", "2 steps are asked for twice"),
    ],
)
def test_steps_that_are_none_are_refused(text: str, what: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_steps(text)
    assert refused.value.what == what
    assert str(refused.value) == f"--steps: {what}\n  hint: {refused.value.hint}"
    assert refused.value.exit_code == 2
