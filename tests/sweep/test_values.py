"""Values as people type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglelab.errors import InputError
from eaglelab.sweep.matrix import Matrix
from eaglelab.sweep.values import environments, load_sweep, server_args


def test_values_are_split_at_commas_and_typed() -> None:
    assert environments(["NCCL_ALGO=Ring, Tree", "A=1"]) == {"NCCL_ALGO": ["Ring", "Tree"], "A": ["1"]}
    assert server_args(["disable-custom-all-reduce=on,off", "--chunked-prefill-size=2048", "x=0.5,fa3"]) == {
        "disable-custom-all-reduce": [True, False],
        "chunked-prefill-size": [2048],
        "x": [0.5, "fa3"],
    }


@pytest.mark.parametrize("pair", ["NCCL_ALGO", "=Ring", "NCCL_ALGO=", "NCCL_ALGO=Ring,,Tree", "1A=x", "A B=1", "A\0=1"])
def test_what_gives_no_values_is_refused(pair: str) -> None:
    with pytest.raises(InputError):
        environments([pair])


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="twice"):
        environments(["A=1", "A=2"])


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        ("tp-size=1,2", "server.tp_size"),
        ("speculative-num-steps=1,2", "server.speculative.num_steps"),
        ("speculative-adaptive=on", "a sweep itself uses"),
        ("Bad_Flag=1", "must be the name of a flag"),
    ],
)
def test_flags_that_the_inventory_or_the_sweep_itself_sets_are_not_varied(pair: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        server_args([pair])


@pytest.mark.parametrize("name", ["EAGLE3_PROFILE", "EAGLE3_PROFILE_DIR", "EAGLE3_STEPS_FROM_RID"])
def test_what_every_load_is_given_is_not_varied_under_a_name_of_its_own(name: str) -> None:
    with pytest.raises(InputError, match=r"a sweep itself sets.*: leave it out"):
        environments([f"{name}=0,1"])


@pytest.mark.parametrize("name", ["EAGLE3_PROFILE_EVERY", "EAGLE3_PROFILE_WARMUP", "EAGLE3_PROFILE_TIMED"])
def test_counts_that_switch_the_probe_off_are_refused_before_a_load(name: str) -> None:
    with pytest.raises(InputError, match=r"'often', and the probe takes a whole number") as caught:
        environments([f"{name}=4,often"])
    assert (caught.value.where, caught.value.hint) == ("--env", f"--env {name}=1,4")
    assert environments([f"{name}=0,4"]) == {name: ["0", "4"]}
    assert environments(["EAGLE3_PROFILE_SYNC=often"]), "anything is on there"


def test_a_file_says_what_the_command_line_says(tmp_path: Path) -> None:
    file = tmp_path / "nccl.yaml"
    file.write_text(
        "steps: [2, 3]\ncombine: zip\nenv: {NCCL_ALGO: [Ring, Tree], NCCL_NTHREADS: [256, '512']}\n"
        "server_args:\n  disable-custom-all-reduce: [true, false]\n"
    )
    assert load_sweep(file) == Matrix(
        steps=(2, 3),
        baseline=True,
        combine="zip",
        env={"NCCL_ALGO": ["Ring", "Tree"], "NCCL_NTHREADS": ["256", "512"]},
        flags={"disable-custom-all-reduce": [True, False]},
    )


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("steps: []\n", 1, "steps"),
        ("steps: [2]\nenv:\n  NCCL_ALGO: []\n", 3, "NCCL_ALGO"),
        ("steps: [2]\nserver-args: {x: [1]}\n", 2, "server-args"),
        ("steps: [2]\nserver_args: {tp-size: [1]}\n", 2, "tp_size"),
        ("steps: [0]\n", 1, "at least 1"),
        ("steps: [2]\nenv:\n  EAGLE3_PROFILE_TIMED: [1, often]\n", 3, "whole number"),
        ("steps: [2]\nenv:\n  EAGLE3_PROFILE: [0, 1]\n", 3, "a sweep itself sets"),
        ("- 2\n", 1, "mapping"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load_sweep(file)
    assert caught.value.where == f"{file}:{line}"
    assert what in caught.value.what
