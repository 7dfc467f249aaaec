from __future__ import annotations

import json

import pytest
from fake_host import LOG, PACKAGE, WORKER_PATH, FakeHost, make_context, make_host, refusal, said

from eaglelab.actions import ACTIONS
from eaglelab.actions.serve import say_damaged
from eaglelab.context import Context
from eaglelab.errors import HostError, InputError
from eaglelab.host import Host
from eaglelab.server.readiness import ServerDied

READY = [{"status": 200}]


def perform(context, *names, **args):
    result = None
    for name in names:
        action = ACTIONS[name]
        result = action.run(context, action.args(**(args if name == names[-1] else {})))
    return result


@pytest.fixture
def planned(do):
    do("doctor")
    do("plan")


def again(fake: FakeHost, folder, **options):
    """A later run on the same host, as far as the plan."""
    context = make_context(fake, folder, **options)
    perform(context, "doctor", "plan")
    return context


def test_without_a_server_a_load_is_needed(planned, do) -> None:
    assert do("check_server") == {"needed": True, "why": "no server of ours is running"}


def test_a_server_with_another_setting_is_named_and_a_load_is_needed(planned, fake, do, tmp_path) -> None:
    do("backup")
    do("patch")
    do("start", steps=3)
    found = perform(again(fake, tmp_path / "2"), "check_server", steps=2)
    assert found["needed"] is True
    assert "20260101-000000-test-abcd has another setting" in found["why"]


def test_a_server_with_the_same_setting_needs_no_load_and_its_log_is_followed_from_here(
    planned, fake, do, tmp_path
) -> None:
    do("backup")
    do("patch")
    record = do("start")
    probe = f"{fake.record['probe_folder']}/rank0.1.jsonl"
    fake.files[probe] = b"x" * 7
    context = again(fake, tmp_path / "2")
    assert perform(context, "check_server") == {"needed": False, "why": ""}
    assert context.log.offset == len(fake.files[LOG])
    assert [(mark.path, mark.offset) for mark in context.found.probe] == [(probe, 7)]
    assert context.found.steps == record["steps"] == 2
    assert context.found.started is False


def test_a_server_that_runs_another_worker_file_needs_a_load(planned, fake, do, tmp_path) -> None:
    do("start")
    fake.files[WORKER_PATH] += b"# upgraded\n"
    assert perform(again(fake, tmp_path / "2"), "check_server")["needed"] is True


def test_a_server_that_was_started_without_the_patch_is_not_taken_for_one_with_it(planned, fake, do, tmp_path) -> None:
    do("start")
    context = again(fake, tmp_path / "2")
    perform(context, "backup", "patch")
    assert perform(context, "check_server")["needed"] is True


def test_start_gives_the_probe_its_gate_and_folder_and_remembers_where_the_log_began(
    planned, fake, context, do
) -> None:
    do("start", steps=5)
    args = dict(fake.calls)["start"]
    assert args["command"][args["command"].index("--speculative-num-steps") + 1] == "5"
    folder = "/home/u/.local/state/eaglelab/runs/20260101-000000-test-abcd/probe"
    assert args["env"] == {"EAGLE3_PROFILE": "1", "EAGLE3_PROFILE_DIR": folder}
    assert context.log.offset == len(b"an older run\n")
    assert (context.found.steps, context.found.started) == (5, True)


def test_the_baseline_is_started_without_speculation_and_without_the_probe(planned, fake, context, do) -> None:
    do("start", steps="baseline")
    args = dict(fake.calls)["start"]
    assert not [word for word in args["command"] if "speculative" in word]
    assert args["env"] == {}
    assert context.found.probe_folder is None


def test_without_profile_the_probe_stays_off(planned, fake, do) -> None:
    do("start", profile=False)
    assert dict(fake.calls)["start"]["env"] == {}


def test_a_placeholder_is_refused_before_anything_is_touched(fake, tmp_path) -> None:
    host = Host.build("fake", {"address": "127.0.0.1"}, {}, "inventory.yaml:1")
    context = make_context(fake, tmp_path, host=host)
    perform(context, "doctor", "plan")
    before = fake.snapshot()
    with pytest.raises(InputError, match=r"server.model_path of host 'fake' is not set"):
        perform(context, "start")
    assert fake.snapshot() == before


@pytest.mark.parametrize("steps", [0, -1, "x", 1.5, ""])
def test_steps_that_cannot_be_are_refused(steps) -> None:
    with pytest.raises(ValueError, match="steps"):
        ACTIONS["start"].args(steps=steps)


def test_stop_says_how_many_processes_ended_and_how(planned, context, do) -> None:
    do("start")
    assert do("stop")["stopped"] == [4711, 4712]
    assert "2 processes ended after 0.1 s (TERM); port and GPU are free" in said(context)
    do("stop")
    assert "no server of ours is running" in said(context)


def test_a_foreign_server_is_ended_only_where_takeover_was_asked_for(fake, tmp_path) -> None:
    fake.holder = {"pid": 99, "user": "bob", "command": "serve --api-key s3cret"}
    perform(again(fake, tmp_path / "1", takeover=True), "stop")
    assert fake.holder is None
    assert "s3cret" not in (tmp_path / "1" / "taken-over.json").read_text()


def test_previews_of_start_and_stop_change_nothing_and_show_the_command(planned, fake, context, do) -> None:
    before = fake.snapshot()
    for name in ("start", "stop", "wait", "generate", "measure", "backup", "patch", "prove", "fetch_logs", "report"):
        ACTIONS[name].preview(context, ACTIONS[name].args())
    assert fake.snapshot() == before
    assert "would start: EAGLE3_PROFILE=1 EAGLE3_PROFILE_DIR=" in said(context)
    assert "--speculative-num-steps 2" in said(context)
    assert set(fake.ops()) <= {"facts", "list", "read", "sed", "status"}


def test_every_action_that_changes_something_has_a_preview() -> None:
    assert {name for name, action in ACTIONS.items() if action.preview is None} == {
        "doctor",
        "plan",
        "check_owner",
        "check_server",
        "same_node",
        "fail",
    }


def test_wait_ends_with_a_token_and_remembers_how_long_the_load_took(planned, fake, context, do) -> None:
    do("start")
    found = do("wait")
    assert found["state"] == "ready"
    assert fake.loads == {"/models/target tp1": [4.0]}
    assert "ready after 4.0 s: health 200, process alive, a token came back, simulated GPU" in said(context)


def test_while_it_waits_it_says_what_the_server_is_doing(planned, fake, context, do) -> None:
    shown = []
    context.say.progress = shown.append
    do("start")
    do("wait")
    assert shown == [
        "loading weights (0 s, about 900 s left)",
        "warming up: health says 503 (2 s)",
        "ready: a token came back (4 s)",
    ]


def test_what_the_probe_wrote_of_the_servers_own_warm_up_is_not_of_the_run(planned, fake, context, do) -> None:
    do("start")
    path = f"{fake.record['probe_folder']}/rank0.1.jsonl"
    fake.files[path] = b"warm-up\n"
    do("wait")
    assert [(mark.path, mark.offset) for mark in context.found.probe] == [(path, 8)]


def test_the_estimate_is_that_of_the_load_before(planned, fake, do) -> None:
    fake.loads["/models/target tp1"] = [3.0]
    do("doctor")
    do("start")
    assert do("wait")["seconds"] == 0.2  # two pauses of a tenth of a second


def test_an_estimate_that_cannot_be_kept_does_not_spoil_the_load(planned, fake, do) -> None:
    do("start")
    fake.fail["loaded"] = refusal("disk-full", "no space left")
    assert do("wait")["state"] == "ready"


def test_waiting_for_a_server_that_runs_already_is_no_load(planned, fake, do) -> None:
    do("start")
    do("check_server")
    fake.healths = READY
    do("wait")
    assert fake.loads == {}


def test_a_server_that_dies_is_told_with_its_last_lines(planned, fake, do) -> None:
    fake.boot = b"launch_server.py: error: unrecognized arguments: --nope\n"
    do("start")
    fake.alive, fake.exit = False, {"code": 2, "signal": None}
    with pytest.raises(ServerDied, match=r"exit code 2: SGLang does not take.*--nope"):
        do("wait")


def test_generate_reports_in_the_servers_own_time(planned, fake, context, do) -> None:
    do("start")
    do("wait")
    answered = {"pid": 4711, "pid_start": 1, "boot": "b"}
    found = do("generate", max_new_tokens=100)
    assert found == {"tokens": 100, "seconds": 10.0, "tok_s": 10.0, "server": answered}
    assert "first token after 500 ms (simulated GPU)" in said(context)


def test_after_generate_a_request_of_one_token_makes_the_probe_write_what_it_holds(planned, fake, do) -> None:
    do("start")
    do("generate")
    flush = fake.calls[-1][1]["body"]
    assert flush["rid"].startswith("p=0/flush")
    assert flush["sampling_params"]["max_new_tokens"] == 1


def test_without_a_probe_there_is_nothing_to_flush(planned, fake, do) -> None:
    do("start", profile=False)
    do("generate")
    assert fake.ops().count("generate") == 1


def test_fewer_tokens_than_asked_for_are_a_failure(planned, fake, do) -> None:
    do("start")
    fake.tokens = 17
    with pytest.raises(HostError, match=r"only 17 of 1000 tokens came back \(\{\"type\": \"length\"\}\)"):
        do("generate")


def test_a_request_that_fails_says_where_to_look(planned, fake, do) -> None:
    do("start")
    fake.fail["generate"] = refusal("broken", "the stream broke off: reset")
    with pytest.raises(HostError, match="failed: the stream broke off") as caught:
        do("generate")
    assert "invoke logs --host fake" in caught.value.hint


@pytest.mark.parametrize("wrong", [{"num_prompts": 0}, {"output_len": 1}, {"warmup": -1}, {"temperature": -0.1}])
def test_a_measurement_that_cannot_be_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ACTIONS["measure"].args(**wrong)


def test_no_secret_reaches_the_bundle_or_the_screen(fake, tmp_path) -> None:
    env = {"SGL_KEY": "s3cret-key"}
    host = make_host(
        api_key_env="SGL_KEY",
        server={"env": {"HF_TOKEN": "s3cret-token", "MY_SETTING": "s3cret-named"}},
        secrets=["MY_SETTING"],
    )
    context = make_context(fake, tmp_path / "bundle", host=host, env=env)
    fake.boot = b"server_args=ServerArgs(api_key='s3cret-key')\nHF_TOKEN=s3cret-token MY=s3cret-named\n"
    fake.healths = READY
    perform(context, "doctor", "plan")
    ACTIONS["start"].preview(context, ACTIONS["start"].args())
    perform(context, "backup", "patch", "start")
    perform(context, "doctor", "wait", "generate", "prove", "fetch_logs", "report")
    context.bundle.event("a", "b", "failed", error="could not log in with s3cret-key")
    assert "s3cret-key" in fake.record["command"]  # or else this test would show nothing
    written = [file for file in (tmp_path / "bundle").rglob("*") if file.is_file()]
    assert len(written) > 8
    for file in written:
        assert b"s3cret" not in file.read_bytes(), file
    assert "s3cret" not in said(context)
    assert json.loads((tmp_path / "bundle" / "server.json").read_text())["env"]["HF_TOKEN"] == "***"


def test_the_record_of_a_server_is_masked_even_where_its_key_is_not_known_here(fake, tmp_path) -> None:
    fake.record = {"command": ["python", "--api-key", "s3cret"], "log": LOG, "run": "r", "steps": 2}
    context = make_context(fake, tmp_path)
    perform(context, "doctor")
    assert "s3cret" not in (tmp_path / "facts.json").read_text()
    assert PACKAGE in (tmp_path / "facts.json").read_text()


def test_who_carries_our_mark_and_is_none_of_ours_is_named_and_left(context: Context) -> None:
    say_damaged(context, {"strangers": [{"pid": 77, "user": "eve", "command": "bash -i"}]})
    assert "left alone, for somebody else started it: pid 77 of eve (bash -i)" in said(context)
