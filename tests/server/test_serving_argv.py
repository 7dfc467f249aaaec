"""The command line of SGLang's bench_serving, by release, and against the real parsers of four of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eaglelab.errors import EaglelabError, InputError
from eaglelab.lab import provision
from eaglelab.server.bench_serving import ServingLoad, dataset_file, dataset_name, must_send_key, serving_command
from eaglelab.server.dataset import Prompt

RELEASES = ("0.5.9", "0.5.12", "0.5.16", "0.5.23")
PARSER = Path(__file__).with_name("real_parser.py")
TEXTS = ServingLoad(num_prompts=40, concurrency=4, seed=43, dataset="/s/files/ab.jsonl", output_len=128, warmup=2)
RANDOM = ServingLoad(
    num_prompts=40,
    concurrency=1,
    seed=42,
    random_input_len=1000,
    random_output_len=300,
    random_range_ratio=0.5,
    request_rate=2.5,
)


def argv(version: str, load: ServingLoad, **more: Any) -> list[str]:
    about = {"python": "py", "host": "127.0.0.1", "port": 30000, "model": "/models/target", "tokenizer": None}
    return serving_command(version, load, **{**about, "out": "/s/k2.rows", **more})


def real_parser(version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        folder = provision.package_of(version, provision.cache_folder(), print)
    except EaglelabError as error:
        pytest.fail(f"this test needs sglang {version} in the cache (`invoke lab-up --sglang {version}`): {error}")
    command = [sys.executable, str(PARSER), str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def parsed(version: str, load: ServingLoad, **more: Any) -> dict[str, Any]:
    """What the release itself makes of it."""
    done = real_parser(version, *argv(version, load, **more)[3:])
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("version", RELEASES)
def test_the_real_parser_of_a_release_knows_every_flag_of_a_file_of_prompts(version: str) -> None:
    found = parsed(version, TEXTS, tokenizer="/models/tok")
    wanted = {
        "backend": "sglang",
        "host": "127.0.0.1",
        "port": 30000,
        "model": "/models/target",
        "tokenizer": "/models/tok",
        "num_prompts": 40,
        "max_concurrency": 4,
        "seed": 43,
        "dataset_name": "custom",
        "dataset_path": "/s/files/ab.jsonl",
        "sharegpt_output_len": 128,
        "warmup_requests": 2,
        "flush_cache": True,
        "disable_tqdm": True,
        "output_file": "/s/k2.rows",
    }
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize("version", RELEASES)
def test_the_real_parser_of_a_release_knows_every_flag_of_random_prompts(version: str) -> None:
    found = parsed(version, RANDOM)
    wanted = {
        "dataset_name": "random",
        "random_input_len": 1000,
        "random_output_len": 300,
        "random_range_ratio": 0.5,
        "request_rate": 2.5,
        "max_concurrency": 1,
        "tokenizer": None,
    }
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
def test_the_real_parser_of_a_release_takes_the_temperature(version: str) -> None:
    assert parsed(version, ServingLoad(8, 1, 1, dataset="f", temperature=0.7))["temperature"] == 0.7


def test_a_flag_that_a_release_does_not_know_is_refused_by_its_real_parser() -> None:
    done = real_parser("0.5.12", "--temperature", "0.7")
    assert done.returncode == 2
    assert "unrecognized arguments: --temperature 0.7" in done.stderr


def test_the_module_is_named_and_what_is_default_for_all_is_left_out() -> None:
    assert argv("0.5.9", TEXTS)[:3] == ["py", "-m", "sglang.bench_serving"]
    assert not {"--temperature", "--request-rate", "--tokenizer"} & set(argv("0.5.23", TEXTS))


def test_before_0_4_5_neither_flush_nor_warm_up_can_be_asked_for() -> None:
    load = ServingLoad(8, 1, 1, dataset="f")
    assert not {"--flush-cache", "--warmup-requests"} & set(argv("0.4.4.post1", load))
    assert {"--flush-cache", "--warmup-requests"} <= set(argv("0.4.5", load))
    with pytest.raises(InputError, match=r"0\.4\.4\.post1 does not take --warmup 2 \(SGLang 0\.4\.5 and later do\)"):
        argv("0.4.4.post1", TEXTS)


def test_a_temperature_is_refused_where_the_client_always_takes_0() -> None:
    load = ServingLoad(8, 1, 1, dataset="f", temperature=0.7)
    assert argv("0.5.13", load)[-5:-3] == ["--temperature", "0.7"]
    with pytest.raises(InputError, match=r"0\.5\.12 does not take --temperature"):
        argv("0.5.12", load)


def test_a_key_is_refused_where_the_client_sends_none() -> None:
    must_send_key("0.4.4")
    with pytest.raises(InputError, match=r"0\.4\.3 does not take an API key"):
        must_send_key("0.4.3")


@pytest.mark.parametrize(
    ("version", "name"), [("0.5.6", "sharegpt"), ("0.5.7", "custom"), ("0.5.23", "custom"), ("unknown", "custom")]
)
def test_prompts_of_a_file_go_by_the_dataset_that_the_release_has(version: str, name: str) -> None:
    command = argv(version, TEXTS)
    assert command[command.index("--dataset-name") + 1] == name


def test_the_file_of_prompts_is_what_the_dataset_reads() -> None:
    prompts = [Prompt("Why is the sky blue?"), Prompt("¿Por qué?")]
    lines = [json.loads(line) for line in dataset_file("0.5.9", prompts, "f").splitlines()]
    # What `sample_custom_requests` and `sample_sharegpt_requests` look at, in every release.
    read = [[turn.get("content", turn.get("value", "")) for turn in line["conversations"]] for line in lines]
    assert [turns[0] for turns in read] == ["Why is the sky blue?", "¿Por qué?"]
    assert all(len(turns) == 2 and turns[1] for turns in read)
    assert dataset_name("0.4.6") == "sharegpt"
    assert json.loads(dataset_file("0.4.6", prompts, "f")) == lines


@pytest.mark.parametrize(
    ("prompt", "why"),
    [(Prompt((1, 2)), "prompt 2 is token ids"), (Prompt("b", output_len=9), "prompt 2 has an output_len of its own")],
)
def test_what_it_cannot_send_is_refused_with_the_prompt_and_the_other_client(prompt: Prompt, why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        dataset_file("0.5.9", [Prompt("a"), prompt], "mine.jsonl")
    assert refused.value.where == "mine.jsonl"
    assert "leave out --client" in refused.value.hint
