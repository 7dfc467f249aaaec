from __future__ import annotations

from typing import Any

import pytest

from eaglelab.host import Host
from eaglelab.server.prompts import PROMPTS, prompt
from eaglelab.server.setting import Setting

SERVER = {"model_path": "/m", "speculative": {"draft_model_path": "/d"}, "env": {"NCCL_DEBUG": "WARN"}}
FILES = {"/p/eagle_worker.py": "aa"}


def host(**server: Any) -> Host:
    return Host.build("h", {"address": "127.0.0.1", "server": {**SERVER, **server}}, {}, "inventory.yaml:1")


def setting(**changes: Any) -> Setting:
    given = {"steps": 2, "gate": "EAGLE3_PROFILE", "probe_folder": "/runs/1/probe", "flags": {}, "env": {}}
    return Setting(**{**given, **changes})


def test_the_probe_is_switched_on_by_the_gate_and_told_its_folder() -> None:
    assert setting().environment(host()) == {
        "NCCL_DEBUG": "WARN",
        "EAGLE3_PROFILE": "1",
        "EAGLE3_PROFILE_DIR": "/runs/1/probe",
    }


def test_without_gate_and_folder_the_environment_is_the_inventorys() -> None:
    assert setting(gate=None, probe_folder=None).environment(host()) == {"NCCL_DEBUG": "WARN"}


def test_the_same_setting_has_the_same_fingerprint_in_another_run() -> None:
    assert setting().fingerprint(host(), FILES) == setting(probe_folder="/runs/2/probe").fingerprint(host(), FILES)


@pytest.mark.parametrize(
    "changes",
    [{"steps": 3}, {"steps": None}, {"gate": None}, {"flags": {"mem-fraction-static": 0.8}}, {"env": {"A": "1"}}],
)
def test_whatever_a_server_would_do_otherwise_changes_the_fingerprint(changes: dict[str, Any]) -> None:
    assert setting(**changes).fingerprint(host(), FILES) != setting().fingerprint(host(), FILES)


def test_another_worker_file_changes_the_fingerprint() -> None:
    assert setting().fingerprint(host(), {"/p/eagle_worker.py": "bb"}) != setting().fingerprint(host(), FILES)


def test_another_port_changes_the_fingerprint() -> None:
    assert setting().fingerprint(host(port=30001), FILES) != setting().fingerprint(host(), FILES)


def test_the_api_key_stands_in_the_command_and_not_in_the_fingerprint() -> None:
    assert setting().command(host(), "s3cret")[-2:] == ["--api-key", "s3cret"]
    assert setting().fingerprint(host(), FILES) == setting().fingerprint(host(), dict(FILES))


def test_prompts_of_a_series_are_all_different() -> None:
    series = [prompt(number) for number in range(-3, 3 * len(PROMPTS))]
    assert len(set(series)) == len(series)
    assert series[3] == PROMPTS[0]
