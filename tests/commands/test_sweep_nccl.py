"""sweep on settings of NCCL: none that end the server or change nothing, unless they are asked for all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweeping import TARGET_CONFIG, settings

LINKED = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"


@pytest.mark.parametrize(
    ("server", "topology", "why"),
    [
        ("", "", "on one GPU there is no all-reduce"),
        ("tp_size: 2, ", LINKED, "SGLang's own all-reduce carries it: 2 GPUs"),
    ],
)
def test_settings_of_nccl_are_refused_where_they_cannot_matter(sweep, own, fake, server, topology, why) -> None:
    inventory = own / "inventory.yaml"
    inventory.write_text(inventory.read_text().replace("server: {", f"server: {{{server}"))
    fake.topology = topology
    both = ("--env", "NCCL_ALGO=Ring,allreduce:Tree")
    done = sweep("--steps", "2", *both, code=1)
    assert f"NCCL_ALGO cannot change a decode cycle here: {why}" in done.json["error"]["what"]
    assert "--resume" not in done.json["error"]["hint"], "it would be refused again"
    assert "--anyway" in done.json["error"]["hint"]
    assert fake.ops().count("start") == 0
    assert settings(sweep("--steps", "2", *both, "--no-baseline", "--anyway")) == [
        (2, "NCCL_ALGO=Ring"),
        (2, "NCCL_ALGO=allreduce:Tree"),
    ]


NCCL_CARRIES = "tp_size: 2, flags: {disable-custom-all-reduce: true}, "


def serves_with(own: Path, settings: str) -> None:
    inventory = own / "inventory.yaml"
    inventory.write_text(inventory.read_text().replace("server: {", f"server: {{{settings}"))


def test_a_value_that_would_end_the_server_is_refused_with_what_to_give_instead(sweep, own, fake) -> None:
    serves_with(own, NCCL_CARRIES)
    fake.facts["nccl_version"] = "2.28.9"
    error = sweep("--steps", "2", "--env", "NCCL_ALGO=Ring,Tree", code=1).json["error"]
    assert error["what"] == (
        "NCCL_ALGO=Tree leaves NCCL nothing for AllGather (Ring can): "
        "from NCCL 2.24 on that ends the server while it starts"
    )
    assert error["hint"].startswith("give allreduce:Tree for Tree; or spend the loads all the same: --anyway")
    assert fake.ops().count("start") == 0
    done = sweep("--steps", "2", "--env", "NCCL_ALGO=Ring,Tree", "--no-baseline", "--anyway")
    assert settings(done) == [(2, "NCCL_ALGO=Ring"), (2, "NCCL_ALGO=Tree")]
    assert "tried all the same: NCCL_ALGO=Tree leaves" in done.err


def test_where_nccl_is_old_the_plain_value_is_measured_and_one_for_a_function_is_refused(sweep, own, fake) -> None:
    serves_with(own, NCCL_CARRIES)
    fake.facts["nccl_version"] = "2.21.5"
    assert settings(sweep("--steps", "2", "--env", "NCCL_ALGO=Tree", "--no-baseline")) == [(2, "NCCL_ALGO=Tree")]
    error = sweep("--steps", "2", "--env", "NCCL_ALGO=allreduce:Tree", code=1).json["error"]
    assert "NCCL reads a value for one function from 2.24 on, and 2.21.5 is there" in error["what"]
    assert error["hint"].startswith("give Tree for allreduce:Tree; or")


def test_which_nccl_is_there_is_said_to_be_unknown_where_it_is(sweep, own, fake) -> None:
    serves_with(own, NCCL_CARRIES)
    error = sweep("--steps", "2", "--env", "NCCL_ALGO=Rign,Tree", code=1).json["error"]
    assert "NCCL knows no 'Rign' (Tree, Ring," in error["what"]
    assert error["what"].endswith("; which NCCL is there could not be read")
    assert error["hint"].startswith("correct --env (or the sweep file, or server.env in the inventory;")
    assert ", give allreduce:Tree for Tree; or spend" in error["hint"]


def test_what_the_inventory_sets_counts_with_what_is_varied(sweep, own, fake) -> None:
    serves_with(own, "tp_size: 4, flags: {disable-custom-all-reduce: true}, env: {NCCL_PROTO: LL}, ")
    fake.facts["nccl_version"] = "2.28.9"
    error = sweep("--steps", "2", "--env", "NCCL_ALGO=Ring,allreduce:NVLS", code=1).json["error"]
    assert error["what"].startswith(
        "NCCL_ALGO=allreduce:NVLS NCCL_PROTO=LL leaves NCCL nothing for AllReduce (Tree, Ring can)"
    )
    assert fake.ops().count("start") == 0


def test_a_server_that_nccl_would_end_is_not_loaded_for_anything(sweep, own, fake) -> None:
    serves_with(own, NCCL_CARRIES + "env: {NCCL_ALGO: Tree}, ")
    fake.facts["nccl_version"] = "2.28.9"
    error = sweep("--steps", "2", code=1).json["error"]
    assert error["what"].endswith("from NCCL 2.24 on that ends the server while it starts.")
    assert error["hint"].startswith("set NCCL_ALGO to allreduce:Tree in server.env of the inventory")
    assert fake.ops().count("start") == 0


def test_settings_of_nccl_are_measured_where_the_models_size_is_not_known(sweep, own, fake) -> None:
    inventory = own / "inventory.yaml"
    inventory.write_text(inventory.read_text().replace("server: {", "server: {tp_size: 2, "))
    fake.topology = LINKED
    del fake.files[TARGET_CONFIG]
    done = sweep("--steps", "2", "--env", "NCCL_ALGO=Ring", "--no-baseline")
    assert "NCCL_ALGO: it cannot be told how large an all-reduce is" in done.err
