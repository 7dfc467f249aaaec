from __future__ import annotations

from typing import Any

from test_on_fake_hosts import CHANGING


def models(**draft: Any) -> dict[str, Any]:
    target = {"hidden_size": 7168, "vocab_size": 163840, "num_hidden_layers": 61, "max_position_embeddings": 4096}
    head = {**target, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}
    return {
        "target": {"path": "/models/target", "config": target, "weights": 0},
        "draft": {"path": "/models/draft", "config": {**head, **draft}, "weights": 0},
    }


def test_a_host_in_order_shows_each_check_and_exits_0(invoke, own, fakes) -> None:
    fakes["a"].facts["models"] = models()
    done = invoke("doctor", "--json")
    assert done.code == 0
    checks = {row["title"]: row for row in done.json["hosts"]["a"]["checks"]}
    assert checks["draft and target"]["state"] == "ok"
    assert checks["worker"]["sentence"].startswith("EAGLEWorker will run, from eagle_worker.py")
    assert checks["clocks"]["state"] == "not known"
    assert "nothing speaks against a run" in done.err


def test_an_alarm_exits_1_with_what_to_do_and_leaves_the_host_untouched(invoke, own, fakes) -> None:
    fakes["a"].facts["models"] = models(hidden_size=4096)
    before = fakes["a"].snapshot()
    done = invoke("doctor", "--json")
    assert done.code == 1
    assert "hidden states of 4096 values and the target has 7168" in done.json["error"]["what"]
    assert "draft_model_path" in done.json["error"]["hint"]
    assert "hidden size of the target: 7168 (config.json of the target)" in done.err
    assert fakes["a"].snapshot() == before
    assert not CHANGING & set(fakes["a"].ops())


def test_a_warning_is_shown_and_exits_0(invoke, own, fakes) -> None:
    fakes["a"].facts["models"] = models(max_position_embeddings=2048)
    done = invoke("doctor")
    assert done.code == 0
    assert "warning: context length (draft-positions-short, likely)" in done.out


def test_what_is_refused_is_shown_beside_the_other_checks(invoke, own, fakes) -> None:
    fakes["a"].facts["disk_free"] = {"SGLang": 5 << 20}
    fakes["a"].facts["models"] = models()
    done = invoke("doctor", "--json")
    assert done.code == 1
    assert "only 5 MiB of disk are free for SGLang" in done.json["error"]["what"]
    assert "alarm: disk (disk-full, certain)" in done.err


def test_a_sweep_stops_before_its_first_load_where_the_draft_is_of_another_target(invoke, own, fakes) -> None:
    fakes["a"].facts["models"] = models(hidden_size=4096)
    done = invoke("sweep", "--steps", "1,2", "--json")
    assert done.code == 1
    assert "hidden states of 4096 values" in done.json["error"]["what"]
    assert not CHANGING & set(fakes["a"].ops())
