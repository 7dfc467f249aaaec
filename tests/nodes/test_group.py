"""Which hosts are one server, and where they meet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from eaglelab.errors import InputError
from eaglelab.host import Server
from eaglelab.inventory import Inventory, load_inventory
from eaglelab.nodes.group import as_nodes, one_server

PROJECT = Path(__file__).parents[2]
HEAD = "defaults: {address: 10.0.0.1, server: {model_path: /m, speculative: {draft_model_path: /d}}}\n"


def read(tmp_path: Path, text: str) -> Inventory:
    path = tmp_path / "inventory.yaml"
    path.write_text(text)
    return load_inventory(path)


def placed(inventory: Inventory, names: str) -> dict[str, tuple[int, str] | None]:
    """Rank and address of each, in the order in which they are worked on."""
    chosen = inventory.select(names, env={})
    hosts = as_nodes(chosen, inventory.hosts, inventory.groups, lambda host: str(host.address))
    return {host.name: (host.node.rank, host.node.address) if host.node else None for host in hosts}


def test_the_inventory_of_the_manual_is_one_server(tmp_path: Path) -> None:
    text = (PROJECT / "docs/many-hosts.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    inventory = read(tmp_path, snippet)
    meeting = "192.168.7.10:20000"
    assert placed(inventory, "kimi") == {"n0": (0, meeting), "n1": (1, meeting)}


def test_the_order_of_the_group_is_that_of_the_ranks_however_they_are_named(tmp_path: Path) -> None:
    server = "{nnodes: 2, tp_size: 2, dist_init_port: 5}"
    inventory = read(
        tmp_path, f"{HEAD}groups: {{g: {{hosts: [b, a], server: {server}}}}}\nhosts: {{a: {{}}, b: {{}}}}\n"
    )
    assert list(placed(inventory, "a,b")) == ["b", "a"]
    assert placed(inventory, "a") == {"a": (1, "10.0.0.1:5")}


def test_a_host_alone_or_with_others_is_not_the_server(tmp_path: Path) -> None:
    text = f"{HEAD}groups: {{g: {{hosts: [a, b], server: {{nnodes: 2, tp_size: 2}}}}}}\nhosts: {{a: {{}}, b: {{}}, c: {{}}}}\n"
    inventory = read(tmp_path, text)
    for names, whole in (("g", True), ("a,b", True), ("a", False), ("a,b,c", False), ("c", False)):
        chosen = inventory.select(names, env={})
        hosts = as_nodes(chosen, inventory.hosts, inventory.groups, lambda _: "x")
        assert (one_server(hosts) is not None) is whole, names


def test_pipeline_stages_count_as_ranks(tmp_path: Path) -> None:
    server = "{nnodes: 2, tp_size: 3, flags: {pp-size: 2}}"
    text = f"{HEAD}groups: {{g: {{hosts: [a, b], server: {server}}}}}\nhosts: {{a: {{}}, b: {{}}}}\n"
    assert placed(read(tmp_path, text), "g")["a"] is not None
    with pytest.raises(InputError, match="cannot be shared out evenly"):
        read(tmp_path, text.replace("pp-size: 2", "pp-size: 1"))


def test_a_group_may_leave_the_number_of_its_nodes_open(tmp_path: Path) -> None:
    text = f"{HEAD}groups: {{g: {{hosts: [a, b], server: {{nnodes: !unset how many}}}}}}\nhosts: {{a: {{}}, b: {{}}}}\n"
    assert "server.nnodes" in read(tmp_path, text).hosts["a"].unset()


@pytest.mark.parametrize(
    ("server", "gpus"),
    [
        ({"tp_size": 8}, (8, 8)),
        ({"tp_size": 8, "nnodes": 2}, (8, 4)),
        ({"tp_size": 8, "nnodes": 2, "flags": {"pp-size": 2}}, (16, 8)),
        ({"tp_size": 4, "flags": {"pipeline-parallel-size": 3}}, (12, 12)),
        ({"tp_size": 4, "flags": {"pp-size": 0}}, (4, 4)),  # SGLang will refuse it
    ],
)
def test_a_server_takes_the_gpus_of_all_its_stages_on_all_its_nodes(server: dict[str, Any], gpus) -> None:
    made = Server.model_validate(server)
    assert (made.gpus, made.gpus_a_node) == gpus
