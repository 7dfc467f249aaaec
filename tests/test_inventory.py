from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eaglelab.errors import HostError, InputError
from eaglelab.inventory import Inventory, load_inventory

CASES = Path(__file__).parent / "cases" / "inventory"
SHIPPED = Path(__file__).parent.parent / "inventory.yaml"
Read = Callable[[str], Inventory]

LAB = {
    "address": "127.0.0.1",
    "port": 40022,
    "user": "lab",
    "key": "/lab/id_ed25519",
    "known_hosts": "/lab/known_hosts",
    "pid": 5,
    "python": "~/ml-env/bin/python3",
    "sglang": "~/sglang",
    "log": "~/logs/sglang.log",
    "model_path": "~/models/target",
    "draft_path": "~/models/draft",
    "server_port": 40080,
}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def write_and_load(text: str) -> Inventory:
        path = tmp_path / "inventory.yaml"
        path.write_text(text)
        return load_inventory(path)

    return write_and_load


def names(inventory: Inventory, asked: str | None, **env: str) -> list[str]:
    return [host.name for host in inventory.select(asked, env=env)]


@pytest.mark.parametrize("case", sorted((CASES / "good").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_inventory_is_merged_as_the_expected_file_says(case: Path) -> None:
    inventory = load_inventory(case)
    expected = json.loads(case.with_suffix(".json").read_text())
    assert {name: list(members) for name, members in inventory.groups.items()} == expected["groups"]
    assert names(inventory, None) == expected["default"]
    assert {name: host.redacted() for name, host in inventory.hosts.items()} == expected["hosts"]


@pytest.mark.parametrize("case", sorted((CASES / "bad").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_wrong_inventory_is_refused_with_the_expected_text(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.parent)
    with pytest.raises(InputError) as refused:
        load_inventory(Path(case.name))
    assert str(refused.value) == case.with_suffix(".txt").read_text().rstrip("\n")
    assert refused.value.hint
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "there is no such file"),
        (b"hosts:\n  a: {user: \xff}\n", "the file is not UTF-8 text"),
        (b"hosts:\n  a: {user: \x07}\n", "this is not valid YAML: special characters are not allowed"),
        (b"[" * 5000, "this YAML is nested too deep"),
    ],
)
def test_a_file_that_cannot_be_read_as_text_is_refused(tmp_path: Path, content: bytes | None, what: str) -> None:
    path = tmp_path / "inventory.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=what) as refused:
        load_inventory(path)
    assert refused.value.where == str(path)


@pytest.mark.parametrize("name", ["EVERY", "WARMUP", "TIMED"])
@pytest.mark.parametrize(
    ("value", "right"), [("often", False), ("-1", False), ("'1.5'", False), ("4", True), ("''", True)]
)
def test_a_count_that_would_switch_the_probe_off_is_refused_before_a_load(
    read: Read, name: str, value: str, right: bool
) -> None:
    text = f"hosts:\n  a:\n    address: 127.0.0.1\n    server:\n      env:\n        EAGLE3_PROFILE_{name}: {value}\n"
    plain = value.strip("'")
    if right:
        assert read(text).hosts["a"].server.env[f"EAGLE3_PROFILE_{name}"] == plain
        return
    with pytest.raises(InputError, match=f"EAGLE3_PROFILE_{name} is '{plain}'.*whole number") as refused:
        read(text)
    assert refused.value.where.endswith(":6")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the file cannot be read"):
        load_inventory(tmp_path)


def test_yaml_merge_keys_work_and_an_error_points_at_the_shared_line(read: Read) -> None:
    text = "hosts:\n  a: &a\n    address: 127.0.0.1\n    port: {}\n  b:\n    <<: *a\n    user: me\n"
    host = read(text.format(22)).hosts["b"]
    assert (host.address, host.port, host.user) == ("127.0.0.1", 22, "me")
    with pytest.raises(InputError) as refused:
        read(text.format(0))
    assert refused.value.where.endswith(":4")


def test_the_shipped_inventory_has_the_real_host_and_the_lab() -> None:
    inventory = load_inventory(SHIPPED)
    assert names(inventory, None) == ["eagle"]
    eagle, sim = inventory.hosts["eagle"], inventory.hosts["sim"]
    assert (eagle.connection, eagle.address, eagle.user) == ("ssh", "10.1.230.174", "root")
    assert (eagle.python, eagle.sglang) == ("~/ml-env/bin/python3", "/root/sglang")
    assert eagle.log == "/data/eagle3/synth_100k/logs/sglang_eagle3_profile.log"
    assert (eagle.ready_timeout, eagle.expected_load) == (1800, 900)
    assert eagle.server.tp_size == 8
    assert eagle.server.speculative is not None
    assert eagle.server.speculative.model_dump(exclude={"draft_model_path"}) == {
        "algorithm": "EAGLE3",
        "num_steps": 2,
        "eagle_topk": 1,
        "num_draft_tokens": None,
    }
    assert sim.connection == "lab"
    assert sim.expected_load < 10


def test_the_paths_that_only_the_user_knows_are_named_with_their_lines() -> None:
    eagle = load_inventory(SHIPPED).hosts["eagle"]
    lines = SHIPPED.read_text().splitlines()
    assert eagle.unset() == ["server.model_path", "server.speculative.draft_model_path"]
    for key, meant in (("model_path", "Kimi-K2.5"), ("draft_model_path", "EAGLE3 draft")):
        dotted = next(name for name in eagle.unset() if name.rpartition(".")[2] == key)
        line = next(number for number, text in enumerate(lines, 1) if text.strip().startswith(f"{key}: !unset"))
        with pytest.raises(InputError, match=f"{dotted} of host 'eagle' is not set .*{meant}") as refused:
            eagle.require(dotted)
        assert refused.value.where == f"{SHIPPED}:{line}"
    with pytest.raises(InputError, match=r"server\.model_path"):
        eagle.require()
    eagle.require("address")


def test_a_placeholder_of_the_defaults_is_lifted_by_a_value_and_named_where_it_stands(read: Read) -> None:
    inventory = read(
        "defaults:\n  address: !unset name of the machine\n  server: {model_path: /m}\n"
        "hosts:\n  a: {address: 127.0.0.1}\n  b: {server: {speculative: }}\n"
    )
    assert inventory.hosts["a"].unset() == ["server.speculative.draft_model_path"]
    assert inventory.hosts["b"].unset() == ["address"]
    with pytest.raises(InputError, match=r"address of host 'b' is not set \(name of the machine\)") as refused:
        inventory.hosts["b"].require()
    assert refused.value.where.endswith("inventory.yaml:2")
    with pytest.raises(InputError, match="draft_model_path of host 'a' is not set\n") as refused:
        inventory.hosts["a"].require()
    assert refused.value.where.endswith("inventory.yaml:5")


FOUR = """
default_host: both
groups:
  both: [b, a]
  none: []
hosts:
  a: {address: 127.0.0.1}
  b: {address: 127.0.0.1}
  c: {address: 127.0.0.1}
"""


def test_hosts_are_chosen_by_option_then_environment_then_default(read: Read) -> None:
    inventory = read(FOUR)
    assert names(inventory, "c", EAGLELAB_HOST="a") == ["c"]
    assert names(inventory, None, EAGLELAB_HOST="a") == ["a"]
    assert names(inventory, None) == ["b", "a"]


def test_hosts_and_groups_mix_and_each_host_comes_once_in_the_order_named(read: Read) -> None:
    assert names(read(FOUR), "a, both,c") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("asked", "env", "what", "where"),
    [
        ("bth", {}, "unknown host or group 'bth'", "--host"),
        ("a,", {}, "a host name is empty", "--host"),
        ("", {"EAGLELAB_HOST": "a"}, "a host name is empty", "--host"),
        (None, {"EAGLELAB_HOST": ""}, "a host name is empty", "EAGLELAB_HOST"),
        (None, {"EAGLELAB_HOST": "bth"}, "unknown host or group 'bth'", "EAGLELAB_HOST"),
    ],
)
def test_an_unknown_host_is_refused_with_what_there_is(
    read: Read, asked: str | None, env: dict[str, str], what: str, where: str
) -> None:
    with pytest.raises(InputError, match=what) as refused:
        read(FOUR).select(asked, env=env)
    assert refused.value.where == where
    assert refused.value.hint.endswith("hosts and groups: a, b, c, both, none")
    assert refused.value.hint.startswith("did you mean 'both'?") == ("bth" in what)


def test_a_group_without_hosts_cannot_be_worked_on(read: Read) -> None:
    with pytest.raises(InputError, match="group 'none' has no hosts"):
        read(FOUR).select("none", env={})


def test_without_a_default_host_one_must_be_named(read: Read) -> None:
    with pytest.raises(InputError, match="no host is named and there is no default host"):
        read("hosts:\n  a: {address: 127.0.0.1}\n").select(None, env={})


def test_the_lab_tells_its_host_where_it_is() -> None:
    sim = load_inventory(SHIPPED).hosts["sim"]
    host = sim.with_lab(LAB)
    assert (host.connection, host.name, host.expected_load) == ("lab", "sim", sim.expected_load)
    assert (host.address, host.port, host.user) == ("127.0.0.1", 40022, "lab")
    assert (host.key, host.known_hosts) == ("/lab/id_ed25519", "/lab/known_hosts")
    assert (host.server.port, host.server.model_path) == (40080, "~/models/target")
    assert host.server.speculative is not None
    assert host.server.speculative.draft_model_path == "~/models/draft"
    assert (sim.unset(), host.unset()) == (["server.model_path", "server.speculative.draft_model_path"], [])


def test_a_lab_that_does_not_tell_its_port_is_refused() -> None:
    told: dict[str, Any] = {key: value for key, value in LAB.items() if key != "port"}
    with pytest.raises(HostError, match="the lab's description lacks 'port'"):
        load_inventory(SHIPPED).hosts["sim"].with_lab(told)


def test_the_home_folder_is_written_out_in_every_path_of_the_host() -> None:
    host = load_inventory(SHIPPED).hosts["sim"].with_lab(LAB).at_home("/home/lab/")
    assert host.python == "/home/lab/ml-env/bin/python3"
    assert (host.sglang, host.log) == ("/home/lab/sglang", "/home/lab/logs/sglang.log")
    assert host.server.model_path == "/home/lab/models/target"
    assert host.server.speculative is not None
    assert host.server.speculative.draft_model_path == "/home/lab/models/draft"
    eagle = load_inventory(SHIPPED).hosts["eagle"].at_home("/root")
    assert (eagle.sglang, eagle.python) == ("/root/sglang", "/root/ml-env/bin/python3")
    assert eagle.unset() == ["server.model_path", "server.speculative.draft_model_path"]


SECRETS = """
hosts:
  a:
    address: 127.0.0.1
    api_key_env: SERVING
    secrets: [PASSPHRASE]
    server:
      env: {HF_TOKEN: hf_abcdef, TOKENIZERS_PARALLELISM: "false", PASSPHRASE: x9, NCCL_DEBUG: WARN}
      flags: {api-key: flagkey, served-model-name: says-hf_abcdef}
"""


def test_secrets_of_the_entry_are_masked_and_the_rest_is_kept(read: Read) -> None:
    server = read(SECRETS).hosts["a"].redacted()["server"]
    assert server["env"] == {
        "HF_TOKEN": "***",
        "TOKENIZERS_PARALLELISM": "***",
        "PASSPHRASE": "***",
        "NCCL_DEBUG": "WARN",
    }
    assert server["flags"] == {"api-key": "***", "served-model-name": "says-***"}


def test_the_masker_of_a_host_knows_its_secrets_by_value(read: Read) -> None:
    mask = read(SECRETS).hosts["a"].masker({"SERVING": "from-env", "OTHER": "kept"}).text
    assert mask("from-env hf_abcdef x9 flagkey kept WARN") == "*** *** *** *** kept WARN"
    assert mask("parallel=false") == "parallel=false"


def test_the_api_key_comes_from_the_named_variable_or_the_flag(read: Read) -> None:
    host = read(SECRETS).hosts["a"]
    assert host.api_key({"SERVING": "s3"}) == "s3"
    with pytest.raises(InputError, match="SERVING, which holds the API key of host 'a', is not set") as refused:
        host.api_key({})
    assert refused.value.hint == "export SERVING=..."
    flagged = read(SECRETS.replace("    api_key_env: SERVING\n", "")).hosts["a"]
    assert flagged.api_key({}) == "flagkey"
    assert load_inventory(SHIPPED).hosts["eagle"].api_key({}) is None
