from __future__ import annotations

import pytest
from fake_host import WORKER_PATH, make_context, make_host, refusal, said

from eaglelab.actions import ACTIONS
from eaglelab.context import Options
from eaglelab.errors import HostError, InputError

HOLDER = {"pid": 99, "user": "bob", "command": "python -m sglang.launch_server --api-key s3cret --port 30000"}


def test_a_host_that_is_fit_is_described_and_its_paths_written_out(fake, context, do) -> None:
    context.host = make_host(python="~/env/bin/python3")
    found = do("doctor")
    assert found["sglang_version"] == "0.5.9.dev1"
    assert context.host.python == "/home/u/env/bin/python3"
    assert "u@fake: SGLang 0.5.9.dev1 in /srv/sglang/python/sglang, Python 3.11.0, 1 x simulated GPU" in said(context)
    assert context.log.offset == len(b"an older run\n")


def test_a_release_without_a_worker_is_refused(fake, context, do) -> None:
    del fake.files[WORKER_PATH]
    with pytest.raises(HostError, match="has no EAGLE worker") as caught:
        do("doctor")
    assert "0.4.1.post4" in caught.value.hint


def test_a_full_disk_is_refused_with_what_is_left(fake, do) -> None:
    fake.facts["disk_free"] = {"SGLang": 1 << 40, "the server's log": 5 << 20}
    with pytest.raises(HostError, match="only 5 MiB of disk are free for the server's log"):
        do("doctor")


def test_a_folder_that_cannot_be_written_is_refused(fake, do) -> None:
    fake.facts["writable"] = {"srt/speculative/eagle_worker.py": False}
    with pytest.raises(HostError, match=r"u may not write the folder of /srv/sglang/.*/eagle_worker.py"):
        do("doctor")


def test_a_read_only_package_is_refused_with_the_commands_that_make_a_copy(fake, do) -> None:
    worker = "srt/speculative/eagle_worker.py"
    fake.facts.update(writable={worker: False}, read_only=[worker])
    with pytest.raises(HostError, match=r"the folder of /srv/sglang/.* is on a read-only file system") as caught:
        do("doctor")
    assert "cp -rL /srv/sglang/python/sglang /home/u/sglang-copy/" in caught.value.hint


def test_what_the_package_shares_and_what_else_is_there_is_said(fake, context, do) -> None:
    fake.facts.update(
        other_packages=["/opt/sglang"],
        files={"srt/speculative/eagle_worker.py": {**fake.describe(WORKER_PATH), "links": 3}},
        states=[{"path": "/old/sglang/srt/speculative/eagle_worker.py", "state": "patched", "original": "0" * 64}],
    )
    do("doctor")
    assert "/opt/sglang is there as well: this Python does not import it" in said(context)
    assert "1 worker file is a hard link" in said(context)
    assert "files of another installation are not original: /old/sglang/srt/speculative" in said(context)


@pytest.mark.parametrize("gone", ["/models/target", "/models/draft"])
def test_a_model_that_is_not_there_is_refused_before_a_load_is_spent_on_it(fake, do, gone: str) -> None:
    fake.models.remove(gone)
    with pytest.raises(HostError, match=f"there is no {gone}") as caught:
        do("doctor")
    assert "inventory.yaml" in caught.value.hint


def test_a_model_named_by_its_hub_is_the_servers_business(fake, tmp_path) -> None:
    host = make_host(server={"model_path": "org/model", "speculative": {"draft_model_path": "org/draft"}})
    context = make_context(fake, tmp_path, host=host)
    ACTIONS["doctor"].run(context, ACTIONS["doctor"].args())


def test_too_few_gpus_are_named(fake, tmp_path) -> None:
    context = make_context(fake, tmp_path, host=make_host(server={"tp_size": 8}))
    ACTIONS["doctor"].run(context, ACTIONS["doctor"].args())
    assert "tp_size is 8, and only 1 GPUs are seen there" in said(context)


def test_the_gpus_of_pipeline_stages_are_counted_too(fake, tmp_path) -> None:
    context = make_context(fake, tmp_path, host=make_host(server={"tp_size": 1, "flags": {"pp-size": 2}}))
    ACTIONS["doctor"].run(context, ACTIONS["doctor"].args())
    assert "tp_size is 1, 2 GPUs with all pipeline stages, and only 1 GPUs are seen there" in said(context)


def test_a_port_that_somebody_else_holds_is_refused_with_his_name_and_without_his_secrets(fake, context, do) -> None:
    fake.holder = HOLDER
    with pytest.raises(
        HostError, match="port 30000 is taken by a server that eaglelab did not start: pid 99 of bob"
    ) as caught:
        do("doctor")
    assert "--takeover" in caught.value.hint
    assert "s3cret" not in (context.bundle.folder / "facts.json").read_text()


def test_with_takeover_the_holder_of_the_port_is_only_named(fake, tmp_path) -> None:
    fake.holder = HOLDER
    context = make_context(fake, tmp_path, takeover=True)
    ACTIONS["doctor"].run(context, ACTIONS["doctor"].args())
    assert "pid 99 of bob" in said(context)
    assert "s3cret" not in said(context)


def test_a_holder_that_eaglelab_started_from_another_state_folder_is_named_with_that_folder(fake, do) -> None:
    fake.holder = {**HOLDER, "state": "/home/bob/.local/state/eaglelab"}
    what = "taken by a server started by eaglelab from the state folder /home/bob/.local/state/eaglelab: pid 99 of bob"
    with pytest.raises(HostError, match=what):
        do("doctor")


def test_our_own_server_on_the_port_is_no_obstacle(fake, do) -> None:
    fake.holder, fake.facts["port_is_ours"] = HOLDER, True
    do("doctor")


@pytest.mark.parametrize("code", ["no-python", "no-sglang", "other-sglang"])
def test_what_the_host_itself_refuses_comes_through_with_its_hint(fake, do, code: str) -> None:
    fake.fail["facts"] = refusal(code, "words of the host")
    with pytest.raises(HostError, match="words of the host") as caught:
        do("doctor")
    assert "inventory.yaml" in caught.value.hint


@pytest.mark.parametrize("name", ["doctor", "plan"])
def test_a_patch_that_does_not_exist_is_refused_before_a_host_is_contacted(context, name: str) -> None:
    action = ACTIONS[name]
    with pytest.raises(InputError, match="there is no patch 'eagle-profile'") as caught:
        action.check(Options(project=context.options.project), action.args(patch="eagle-profile"))
    assert "eagle3-profile" in caught.value.hint


@pytest.mark.parametrize("name", ["plan", "backup", "patch", "check_server", "start", "wait", "prove", "fetch_logs"])
def test_an_action_without_doctor_before_it_says_so(do, name: str) -> None:
    with pytest.raises(HostError, match=r"nothing is known of this host yet|no patch is planned yet") as caught:
        do(name)
    assert "in the playbook" in caught.value.hint


def test_a_log_that_cannot_be_written_is_said_before_a_server_is_stopped(fake, do) -> None:
    fake.facts["log_writable"] = False
    with pytest.raises(HostError, match="may not write the server's log") as caught:
        do("doctor")
    assert "set `log` of this host" in caught.value.hint


def configs(**draft: object) -> dict[str, object]:
    target = {"hidden_size": 7168, "num_hidden_layers": 61}
    return {
        "target": {"path": "/models/target", "config": target, "weights": 0},
        "draft": {
            "path": "/models/draft",
            "config": {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 7168, **draft},
            "weights": 0,
        },
    }


def test_the_models_and_the_flags_are_asked_for_in_the_same_look(fake, tmp_path) -> None:
    context = make_context(fake, tmp_path, host=make_host(server={"flags": {"mem-fraction-static": 0.8}}))
    ACTIONS["doctor"].run(context, ACTIONS["doctor"].args())
    (asked,) = [args for op, args in fake.calls if op == "facts"]
    assert asked["models"] == {"target": "/models/target", "draft": "/models/draft"}
    assert asked["flags"] == ["mem-fraction-static"]


def test_a_draft_of_another_target_stops_the_run_before_its_load(fake, do) -> None:
    fake.facts["models"] = configs(hidden_size=4096)
    with pytest.raises(HostError, match="hidden states of 4096 values and the target has 7168") as caught:
        do("doctor")
    assert "server.speculative.draft_model_path" in caught.value.hint
    assert "`anyway: true`" in caught.value.hint


def test_the_playbook_may_go_on_all_the_same(fake, context, do) -> None:
    fake.facts["models"] = configs(hidden_size=4096)
    do("doctor", anyway=True)
    assert "alarm: The draft takes hidden states of 4096 values" in said(context)


def test_what_is_likely_wrong_is_said_and_stops_nothing(fake, context, do) -> None:
    fake.facts["models"] = configs(eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 30, 58]})
    fake.facts["flags"] = {"known": 400, "unknown": {"cuda-graph-maxbs": "cuda-graph-max-bs"}}
    do("doctor")
    assert "warning: The draft's config names hidden-state layers [2, 30, 58]" in said(context)
    assert "alarm: SGLang 0.5.9.dev1 does not know cuda-graph-maxbs" in said(context)


def test_what_the_checks_say_already_is_not_said_twice(fake, tmp_path) -> None:
    context = make_context(fake, tmp_path, host=make_host(server={"tp_size": 8}))
    ACTIONS["doctor"].run(context, ACTIONS["doctor"].args())
    assert said(context).count("1 GPUs are seen there") == 1
