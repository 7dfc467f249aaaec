from __future__ import annotations

import shlex

import pytest
from invoke import Collection, Program
from invoke.parser import Parser

import tasks
from eaglelab.report.reproduce import command_line, lacks_a_secret, show_again, show_log_again


def request(command="sweep", **more):
    found = {"command": command, "playbook": "bench", "hosts": ["sim"], "inventory": None, "vars": {}, "more": {}}
    return {**found, "tags": [], "skip_tags": [], "takeover": False, "accept_drift": False, **more}


SWEEP = request(
    vars={"num_prompts": 8, "concurrency": [1, 4], "temperature": 0.0, "prompts": "my prompts.jsonl"},
    more={
        "steps": [1, 2],
        "client": None,
        "file": None,
        "combine": "zip",
        "no_baseline": True,
        "keep": False,
        "env": {"NCCL_ALGO": ["Ring", "Tree"]},
        "server_args": {"disable-custom-all-reduce": [True, False]},
    },
    hosts=["a", "b c"],
    takeover=True,
)


def test_a_sweep_is_typed_as_it_was():
    assert command_line(SWEEP) == (
        "invoke sweep --host 'a,b c' --num-prompts 8 --concurrency 1,4 --temperature 0.0 --prompts 'my prompts.jsonl' "
        "--steps 1,2 --env NCCL_ALGO=Ring,Tree --server-arg disable-custom-all-reduce=on,off --zip --no-baseline --takeover"
    )


@pytest.mark.parametrize(("array", "typed"), [(True, " --array"), (4, " --array 4"), (False, ""), (None, "")])
def test_a_sweep_as_jobs_is_typed_with_their_number_where_it_had_one(array, typed: str):
    assert command_line(request(more={"steps": [2], "array": array})) == f"invoke sweep --host sim --steps 2{typed}"


def test_a_playbook_has_its_file_variables_and_tags():
    found = request(
        "play", playbook="my book.yaml", vars={"text": "it's $HOME"}, tags=["a", "b"], inventory="/x/i.yaml"
    )
    assert command_line(found) == (
        """invoke play 'my book.yaml' --host sim --inventory /x/i.yaml --var 'text=it'"'"'s $HOME' --tags a,b"""
    )


def test_a_deployment_has_its_steps():
    assert command_line(request("deploy-profiling", vars={"steps": 2, "tokens": 256})) == (
        "invoke deploy-profiling --host sim --steps 2 --tokens 256"
    )


@pytest.mark.parametrize(
    "found",
    [
        SWEEP,
        request("bench", more={"steps": [3], "client": "sglang", "separate_loads": True, "no_probe": True}),
        request("play", playbook="b.yaml", vars={"n": 3}, tags=["t"], skip_tags=["u"], accept_drift=True),
        request("deploy-profiling", vars={"steps": 2, "tokens": 256, "patch": "eagle3-profile"}, inventory="i.yaml"),
    ],
)
def test_the_command_understands_every_word_of_it(found):
    """No option is renamed in tasks.py and left behind here."""
    program = Program(namespace=Collection.from_module(tasks), binary="invoke")
    program.create_config()
    contexts = Collection.from_module(tasks).to_contexts()
    line = command_line(found)
    (parsed,) = Parser(contexts=contexts).parse_argv(shlex.split(line)[1:])
    assert parsed.name == found["command"]


def test_a_run_without_a_record_has_no_command():
    assert command_line({}) is None


def test_a_masked_secret_is_to_be_given_again():
    assert lacks_a_secret(command_line(request("play", vars={"api_key": "***"})))
    assert not lacks_a_secret(command_line(SWEEP))


def test_what_shows_it_again_names_the_host_only_where_there_are_several():
    assert show_again("20261130-000000-sweep-0001", "sim") == "invoke report --run 20261130-000000-sweep-0001"
    assert show_again("r", "b c", several=True) == "invoke report --run 'r:b c'"
    assert show_log_again(["a.log", "b c.log.gz"]) == "invoke report --log a.log --log 'b c.log.gz'"
