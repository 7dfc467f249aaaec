from __future__ import annotations

from typing import Any

import pytest

from eaglelab.diagnosis import diagnose
from eaglelab.diagnosis.checks import checked, known_checks
from eaglelab.diagnosis.of_host import facts_of_host
from eaglelab.diagnosis.rule import BEFORE_A_LOAD, known_rules
from eaglelab.host import Host

GIB = 1 << 30
H200 = {"name": "NVIDIA H200", "memory.total": "143771", "memory.used": "4", "driver_version": "570.10"}
FACTS: dict[str, Any] = {
    "sglang_version": "0.5.12",
    "python_version": "3.11.7",
    "torch_version": "2.9.1",
    "files": {name: {"path": f"/s/srt/speculative/{name}"} for name in ("eagle_worker.py", "eagle_worker_v2.py")},
    "disk_free": {"SGLang": 90 * GIB, "the server's log": 80 * GIB},
    "gpus": [{**H200, "index": str(index)} for index in range(8)],
    "port_holder": None,
    "port_is_ours": False,
    "server": {"alive": False},
    "flags": {"known": 411, "unknown": {}},
    "models": {
        "target": {
            "path": "/m/t",
            "weights": 600 * GIB,
            "config": {
                "num_hidden_layers": 61,
                "hidden_size": 7168,
                "vocab_size": 163840,
                "max_position_embeddings": 262144,
            },
        },
        "draft": {
            "path": "/m/d",
            "weights": 3 * GIB,
            "config": {
                "hidden_size": 7168,
                "vocab_size": 163840,
                "max_position_embeddings": 262144,
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]},
            },
        },
    },
}


def host(**server: Any) -> Host:
    paths = {"model_path": "/m/t", "tp_size": 8, "speculative": {"draft_model_path": "/m/d"}}
    return Host(name="eagle", server={**paths, **server})


def states(facts: dict[str, Any], server: dict[str, Any] | None = None, **more: Any) -> dict[str, tuple[str, str]]:
    known = facts_of_host(facts, host(**(server or {})), **more)
    return {row.title: (row.state, row.sentence) for row in checked(known, diagnose(known))}


def test_a_host_in_order_has_every_check_ok_with_what_was_found() -> None:
    clocks = [{"index": str(index), "clocks_throttle_reasons.active": "0x1"} for index in range(8)]
    found = states(FACTS, {"flags": {"mem-fraction-static": 0.8}}, clocks=clocks)
    assert {state for state, _ in found.values()} == {"ok"}
    assert found["worker"][1].startswith("EAGLEWorkerV2 will run, from eagle_worker_v2.py")
    assert found["hidden-state layers"][1] == "[2, 30, 58] of 61: those of the draft's config, [1, 29, 57], + 1"
    assert found["flags"][1] == "all 1 are among the 411 that this release knows"
    assert found["disk"][1] == "80.0 GiB free for the server's log"
    assert "PyTorch 2.9.1, driver 570.10" in found["software"][1]


def draft(**config: Any) -> dict[str, Any]:
    models = FACTS["models"]
    return {"models": {**models, "draft": {**models["draft"], "config": {**models["draft"]["config"], **config}}}}


@pytest.mark.parametrize(
    ("change", "server", "title", "state"),
    [
        (draft(hidden_size=4096), {}, "draft and target", "alarm"),
        (draft(vocab_size=151936), {}, "draft and target", "alarm"),
        (draft(quantization_config={"quant_method": "awq"}), {}, "draft and target", "warning"),
        (draft(eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}), {}, "hidden-state layers", "warning"),
        (draft(eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 40, 77]}), {}, "hidden-state layers", "alarm"),
        (draft(max_position_embeddings=2048), {}, "context length", "warning"),
        (
            {},
            {"speculative": {"draft_model_path": "/m/d", "num_steps": 3, "num_draft_tokens": 2}},
            "draft tokens",
            "warning",
        ),
        (
            {"flags": {"known": 411, "unknown": {"cuda-graph-maxbs": None}}},
            {"flags": {"cuda-graph-maxbs": 1}},
            "flags",
            "alarm",
        ),
        ({}, {"flags": {"disable-cuda-graph": True}}, "flags", "warning"),
        ({}, {"tp_size": 1, "env": {"NCCL_ALGO": "Ring"}}, "flags", "note"),
        ({"files": {"a": {"path": "/s/srt/speculative/eagle_worker.py"}}}, {}, "worker", "warning"),
        ({"gpus": FACTS["gpus"][:4]}, {}, "GPUs", "alarm"),
        ({"gpus": [{**H200, "memory.used": "60000"}] * 8}, {}, "GPU memory", "warning"),
        ({}, {"tp_size": 4}, "GPU memory", "alarm"),
        ({"disk_free": {"SGLang": 10 << 20}}, {}, "disk", "alarm"),
        ({"port_holder": {"pid": 9, "user": "bob", "command": "x"}}, {}, "port", "alarm"),
    ],
)
def test_each_thing_that_is_wrong_is_told_at_its_check(
    change: dict[str, Any], server: dict[str, Any], title: str, state: str
) -> None:
    assert states({**FACTS, **change}, server)[title][0] == state


def test_a_server_of_ours_may_use_the_gpus_and_its_port() -> None:
    ours = {"server": {"alive": True}, "port_is_ours": True, "port_holder": {"pid": 9, "user": "u", "command": "x"}}
    found = states({**FACTS, **ours, "gpus": [{**H200, "memory.used": "120000"}] * 8})
    assert (found["GPU memory"][0], found["port"][0]) == ("ok", "ok")


def test_what_cannot_be_read_is_not_known_and_no_alarm() -> None:
    found = states({"sglang_version": "main", "files": {}}, {"model_path": "org/model"})
    assert found["draft and target"][0] == "not known"
    assert found["hidden-state layers"][0] == "not known"
    assert found["GPUs"][0] == "not known"
    assert "alarm" not in {state for state, _ in found.values()}


def test_clocks_held_back_now_are_an_alarm() -> None:
    clocks = [{"index": "3", "clocks_throttle_reasons.active": "0x40"}]
    assert states(FACTS, clocks=[{"index": str(number)} for number in range(3)] + clocks)["clocks"][0] == "alarm"


def test_a_baseline_server_needs_no_draft() -> None:
    found = states({**FACTS, "models": {"target": FACTS["models"]["target"]}}, {"speculative": None})
    assert "alarm" not in {state for state, _ in found.values()}


def test_nccl_settings_of_eight_joined_gpus_cannot_matter_and_of_separate_ones_can() -> None:
    rows = [" ".join([f"GPU{row}", *("X" if row == column else "{}" for column in range(8))]) for row in range(8)]
    for link, expected in (("NV18", "note"), ("PHB", "ok")):
        found = states(FACTS, {"env": {"NCCL_ALGO": "Ring"}}, topology="\n".join(rows).replace("{}", link))
        assert found["flags"][0] == expected


@pytest.mark.parametrize(
    ("version", "code"), [("2.28.9", "nccl-conflict"), (None, "nccl-conflict-likely"), ("2.21.5", None)]
)
def test_nccl_settings_that_would_end_the_server_are_an_alarm_before_a_load(
    version: str | None, code: str | None
) -> None:
    facts = facts_of_host({**FACTS, "nccl_version": version}, host(env={"NCCL_ALGO": "Tree"}))
    found = {each.code: each for each in diagnose(facts) if each.code.startswith("nccl-conflict")}
    assert list(found) == ([code] if code else [])
    for each in found.values():
        assert each.stops is (version is not None)
        assert each.sentence.startswith("NCCL_ALGO=Tree leaves NCCL nothing for AllGather")
        assert ("which NCCL is there could not be read" in each.sentence) is (version is None)
        assert each.try_next[0] == "set NCCL_ALGO to allreduce:Tree in server.env of the inventory"


def test_a_value_for_one_function_that_an_old_nccl_does_not_read_stops_nothing() -> None:
    facts = facts_of_host({**FACTS, "nccl_version": "2.21.5"}, host(env={"NCCL_ALGO": "allreduce:Tree"}))
    (found,) = [each for each in diagnose(facts) if each.code.startswith("nccl-conflict")]
    assert (found.code, found.stops) == ("nccl-conflict-likely", False)
    assert found.try_next[0] == "set NCCL_ALGO to Tree in server.env of the inventory"


def test_only_what_makes_a_load_pointless_for_certain_stops_a_run() -> None:
    stops = {rule.code for rule in known_rules() if rule.stops}
    assert stops == {"hidden-size-mismatch", "hidden-layers-outside-target", "disk-full", "nccl-conflict"}
    assert all(rule.severity == "alarm" and rule.certainty == "certain" for rule in known_rules() if rule.stops)


def test_what_is_said_before_a_load_needs_no_figures_of_one() -> None:
    assert not [rule.code for rule in known_rules(BEFORE_A_LOAD) if rule.about_settings]


def test_every_check_names_rules_that_are_there() -> None:
    codes = {rule.code for rule in known_rules()}
    assert [code for check in known_checks() for code in check.codes if code not in codes] == []


def test_gpus_asked_for_are_those_of_all_pipeline_stages_divided_by_the_nodes() -> None:
    stages = {"flags": {"pp-size": 2}}
    assert states(FACTS, {"tp_size": 4, **stages})["GPUs"] == ("ok", "8 x NVIDIA H200, 8 asked for")
    assert states(FACTS, {"tp_size": 8, **stages})["GPUs"][0] == "alarm"
    assert states(FACTS, {"tp_size": 8, "nnodes": 2, **stages})["GPUs"][0] == "ok"
    last = [{**H200, "index": str(at), "memory.used": "60000" if at == 7 else "4"} for at in range(8)]
    assert states({**FACTS, "gpus": last}, {"tp_size": 4, **stages})["GPU memory"][0] == "warning"
    assert states(FACTS, {"tp_size": 4, **stages})["GPU memory"][0] == "ok"  # the weights fit in 8, and not in 4


def test_settings_of_nccl_matter_to_a_server_with_one_gpu_on_each_of_two_machines() -> None:
    assert states(FACTS, {"tp_size": 2, "nnodes": 2, "env": {"NCCL_ALGO": "Ring"}})["flags"][0] == "ok"
