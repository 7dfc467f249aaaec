"""sweep on hosts in memory: as few loads as it takes, every figure that can be had, and a host that is left as it was."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from fake_host import WORKER, WORKER_PATH, FakeHost
from sweeping import SMALL, TARGET_CONFIG, found, settings

from eaglelab.remote.pipe import LinkLost


def loads(fake: FakeHost) -> list[str]:
    return [load.id for load in fake.begun]


def plan_of(done: Any) -> str:
    """What was said before the first load."""
    return " ".join(done.err.partition("Load 1 of")[0].split())


def test_step_counts_share_one_load_beside_that_of_the_baseline(sweep, fake) -> None:
    done = sweep("--steps", "1,2,5")
    assert "1 baseline - without speculation: a load of its own 2 1, 2, 5 - one load: requests choose" in plan_of(done)
    assert "2 loads of about 3 s: 6 s of loading, then the measuring 6 s less than a load for each" in plan_of(done)
    assert loads(fake) == ["baseline-c1", "k1-2-5-c1"]
    assert fake.ops().count("start") == 2
    assert settings(done) == [(None, ""), (1, ""), (2, ""), (5, "")]


def test_a_release_that_cannot_gets_a_load_for_each_and_the_reason_is_given(sweep, fake) -> None:
    fake.facts["sglang_version"] = "0.5.9.dev1"
    done = sweep("--steps", "1,2")
    reason = "SGLang 0.5.9.dev1 holds one step count a load (0.5.11 and later can hold several)"
    assert plan_of(done).count(reason) == 2
    assert loads(fake) == ["baseline-c1", "k1-c1", "k2-c1"]


def test_a_load_for_each_where_that_is_asked_for(sweep, fake) -> None:
    done = sweep("--steps", "1,2", "--separate-loads", "--no-baseline")
    assert plan_of(done).count("a load for each, as asked for") == 2
    assert loads(fake) == ["k1-c1", "k2-c1"]


def test_check_changes_nothing_and_shows_the_plan_and_what_each_load_would_do(sweep, fake) -> None:
    before = fake.snapshot()
    done = sweep("--steps", "1,2", "--check")
    assert fake.snapshot() == before
    assert fake.begun == []
    assert "one load: requests choose" in plan_of(done)
    assert "--speculative-adaptive" in done.err
    assert "would measure 1 steps, 2 steps at concurrency 1: 4 requests of 64 tokens each, with and without" in done.err
    assert found(done)["measurements"] == []


def test_the_ranking_is_that_of_what_each_setting_costs(sweep) -> None:
    done = sweep("--steps", "1,2,5")
    (ranked,) = found(done)["rankings"]
    assert [each["steps"] for each in ranked["ranking"]["settings"]] == [2, None, 1, 5]
    assert ranked["ranking"]["winner"] == {"steps": 2, "variation": ""}
    assert ranked["ranking"]["loads"] == 2
    codes = {
        finding["code"]: finding["severity"] for each in found(done)["measurements"] for finding in each["findings"]
    }
    assert codes == {"tokens": "ok", "closure": "ok", "accept-length-sources": "ok", "probe-cost": "note"}


def test_every_figure_is_in_the_bundle_in_three_forms_and_in_the_json_line_without_requests(sweep) -> None:
    done = sweep("--steps", "1,2", "--concurrency", "1,2")
    bundle = Path(done.json["bundle"])
    kept = json.loads((bundle / "measurements.json").read_text())
    assert set(found(done)) == {"ok", "measurements", "failed", "findings", "across", "rankings"}
    assert [each["batch"] for each in found(done)["rankings"]] == [1, 2]
    assert len(kept["measurements"]) == len(found(done)["measurements"]) == (1 + 2 * 2) * 2
    assert all(len(each["requests"]) >= 4 for each in kept["measurements"])
    assert all("requests" not in each for each in found(done)["measurements"])
    rows = (bundle / "measurements.csv").read_text().splitlines()
    assert len(rows) == 1 + len(kept["measurements"])
    lines = [json.loads(line) for line in (bundle / "measurements.jsonl").read_text().splitlines()]
    assert len(lines) == sum(len(each["requests"]) for each in kept["measurements"])


def test_a_load_that_fails_is_put_down_and_the_rest_goes_on(sweep, fake) -> None:
    fake.load_faults["k2-c1"] = "killed"
    done = sweep("--steps", "1,2,5", "--separate-loads", code=1)
    (failed,) = found(done)["failed"]
    assert (failed["steps"], failed["what"]) == (2, "load k2-c1 is gone without a result: its process was killed")
    assert settings(done) == [(None, ""), (1, ""), (5, "")]
    assert "2 steps  failed: load k2-c1 is gone" in " ".join(done.err.split()).replace(
        "2 steps failed", "2 steps  failed"
    )
    assert "1 of 4 settings failed: 2 steps; the others were measured" in done.json["error"]["what"]
    assert f"invoke sweep --resume {done.json['run']} goes on with this run" in done.json["error"]["hint"]
    (ranked,) = found(done)["rankings"]
    assert [each["steps"] for each in ranked["ranking"]["settings"]] == [None, 1, 5]


def test_a_failed_setting_is_tried_again_by_resume_and_the_others_hold(sweep, fake) -> None:
    fake.load_faults["k2-c1"] = "killed"
    done = sweep("--steps", "1,2", "--separate-loads", "--no-baseline", code=1)
    fake.load_faults.clear()
    again = sweep("--resume", done.json["run"])
    assert loads(fake) == ["k1-c1", "k2-c1", "k2-c1-1"]
    assert settings(again) == [(1, ""), (2, "")]
    assert found(again)["failed"] == []


@pytest.mark.parametrize("fails", ["k1-c1", "k3-c1"])
def test_the_server_that_ran_before_runs_again_whichever_load_failed(invoke, own, fake, fails: str) -> None:
    assert invoke("deploy-profiling").code == 0
    assert fake.record is not None
    worker, fingerprint = fake.files[WORKER_PATH], fake.record["fingerprint"]
    fake.load_faults[fails] = "killed"
    done = invoke("sweep", "--steps", "1,3", "--separate-loads", "--no-baseline", *SMALL, "--json")
    assert done.code == 1
    assert fake.alive
    assert fake.record["fingerprint"] == fingerprint
    assert fake.files[WORKER_PATH] == worker


def test_a_server_that_ran_without_the_patch_runs_so_again(invoke, own, fake) -> None:
    (own / "plain.yaml").write_text(
        "name: plain\ntasks:\n  - doctor:\n  - plan:\n  - start: {profile: false}\n  - wait:\n"
    )
    assert invoke("play", str(own / "plain.yaml")).code == 0
    assert fake.record is not None
    fingerprint = fake.record["fingerprint"]
    assert invoke("sweep", "--steps", "1,3", *SMALL).code == 0
    assert fake.alive
    assert fake.record["fingerprint"] == fingerprint
    assert fake.files[WORKER_PATH] == WORKER


def test_one_failed_request_is_told_and_does_not_spoil_the_rest(sweep, fake) -> None:
    fake.load_faults["k2-c1"] = "a request fails"
    done = sweep("--steps", "2", "--no-baseline")
    (finding,) = [
        finding
        for each in found(done)["measurements"]
        for finding in each["findings"]
        if finding["code"] == "failed-requests"
    ]
    assert "1 of 4 requests gave no figure: the stream broke off: reset (1)" in finding["sentence"]


def test_a_server_that_dies_with_several_step_counts_is_tried_with_a_load_for_each(sweep, fake) -> None:
    fake.dies_with.add("--speculative-adaptive")
    done = sweep("--steps", "1,2", "--no-baseline")
    assert "the GPU ran out of memory" in done.err
    assert "its step counts are tried again, a load for each" in done.err
    assert loads(fake) == ["k1-c1", "k2-c1"]
    assert settings(done) == [(1, ""), (2, "")]
    assert found(done)["failed"] == []


def test_a_server_that_dies_in_the_middle_of_a_load_is_tried_so_too_and_no_figure_comes_twice(sweep, fake) -> None:
    fake.load_faults["k1-2-c2"] = "server dies"
    done = sweep("--steps", "1,2", "--concurrency", "1,2", "--no-baseline")
    assert "the server died during load k1-2-c2" in done.err
    assert loads(fake) == ["k1-2-c1", "k1-2-c2", "k1-c1", "k1-c2", "k2-c1", "k2-c2"]
    keys = [(each["steps"], each["batch"], each["profiled"]) for each in found(done)["measurements"]]
    assert sorted(keys) == sorted(set(keys))
    assert len(keys) == 8


def test_of_a_setting_that_fails_at_one_concurrency_the_figures_at_the_others_are_shown(sweep, fake) -> None:
    fake.load_faults["k2-c2"] = "server dies"
    done = sweep("--steps", "2", "--concurrency", "1,2", "--no-baseline", code=1)
    assert [each["batch"] for each in found(done)["measurements"]] == [1, 1]
    assert [each["steps"] for each in found(done)["failed"]] == [2]


def test_a_lost_link_ends_it_with_what_was_measured_and_the_command_that_goes_on(sweep, fake, monkeypatch) -> None:
    poll = fake.op_load_poll

    def lost(id: str, **args: Any) -> Any:  # noqa: A002 - the wire's word
        if id.startswith("k1"):
            raise LinkLost("the link is gone", where="a")
        return poll(id=id, **args)

    with monkeypatch.context() as patch:
        patch.setattr(fake, "op_load_poll", lost)
        done = sweep("--steps", "1,2", "--separate-loads", code=1)
    assert loads(fake) == ["baseline-c1", "k1-c1"]
    assert settings(done) == [(None, "")]
    assert done.json["error"]["what"] == "the link is gone"
    assert f"invoke sweep --resume {done.json['run']} goes on with this run" in done.json["error"]["hint"]


def test_values_of_variables_and_flags_are_crossed(sweep, fake) -> None:
    done = sweep("--steps", "2", "--env", "MY_MODE=a,b", "--server-arg", "page-size=1,16", "--no-baseline")
    assert [name for _, name in settings(done)] == [
        "MY_MODE=a page-size=1",
        "MY_MODE=a page-size=16",
        "MY_MODE=b page-size=1",
        "MY_MODE=b page-size=16",
    ]
    started = [args for op, args in fake.calls if op == "start"]
    assert [args["env"]["MY_MODE"] for args in started] == ["a", "a", "b", "b"]
    assert [args["command"][args["command"].index("--page-size") + 1] for args in started] == ["1", "16", "1", "16"]


def test_zipped_values_go_together(sweep) -> None:
    done = sweep("--steps", "2", "--env", "MY_MODE=a,b", "--server-arg", "page-size=1,16", "--zip", "--no-baseline")
    assert [name for _, name in settings(done)] == ["MY_MODE=a page-size=1", "MY_MODE=b page-size=16"]


def test_a_file_says_what_is_varied(sweep, own, fake) -> None:
    (own / "mine.yaml").write_text("steps: [1, 2]\nbaseline: false\nenv: {MY_MODE: [a, b]}\n")
    done = sweep("--file", str(own / "mine.yaml"))
    assert len(loads(fake)) == 2
    assert settings(done) == [(1, "MY_MODE=a"), (2, "MY_MODE=a"), (1, "MY_MODE=b"), (2, "MY_MODE=b")]


def test_a_setting_that_is_named_twice_is_measured_once(sweep, fake) -> None:
    done = sweep("--steps", "2", "--env", "MY_MODE=a,a", "--no-baseline")
    assert len(loads(fake)) == 1
    assert settings(done) == [(2, "MY_MODE=a")]


def test_a_variation_that_fails_does_not_keep_the_others_from_being_measured(sweep, fake) -> None:
    fake.dies_with.add("MY_MODE=b")
    done = sweep("--steps", "2", "--env", "MY_MODE=a,b,c", "--no-baseline", code=1)
    assert settings(done) == [(2, "MY_MODE=a"), (2, "MY_MODE=c")]
    (failed,) = found(done)["failed"]
    assert failed["variation"] == "MY_MODE=b"
    assert "the GPU ran out of memory" in failed["what"]


def test_random_prompts_without_a_known_vocabulary_are_refused_before_a_load_is_spent(sweep, fake) -> None:
    del fake.files[TARGET_CONFIG]
    done = sweep("--steps", "2", "--random-input-len", "16", code=2)
    assert "the size of the model's vocabulary" in done.json["error"]["what"]
    assert fake.ops().count("start") == 0


def killed_in(fake: FakeHost, load: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller dies when it asks how a load whose name fits `load` stands; nothing is put back."""
    poll = fake.op_load_poll

    def dies(id: str, **args: Any) -> Any:  # noqa: A002
        if fnmatchcase(id, load):
            raise SystemExit(137)
        return poll(id=id, **args)

    monkeypatch.setattr(fake, "op_load_poll", dies)


def test_resume_in_the_middle_goes_on_and_measures_nothing_twice(sweep, own, invoke, fake, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        killed_in(fake, "k1-2-*-c2", patch)
        asked = ("--steps", "1,2", "--concurrency", "1,2", "--env", "MY_MODE=a")
        assert invoke("sweep", *asked, *SMALL).code == 137
    begun = loads(fake)
    done = sweep("--resume", "last")
    assert loads(fake) == begun
    assert fake.ops().count("start") == 2
    assert settings(done) == [(None, "MY_MODE=a"), (1, "MY_MODE=a"), (2, "MY_MODE=a")]
    assert len(found(done)["measurements"]) == 2 + 2 * 4
    assert "holds since" in done.err
    assert "concurrency 1: measured before" in done.err
    assert "going on with the load" in done.err


def test_resume_of_a_sweep_whose_file_has_changed_is_refused(sweep, own, invoke, fake, monkeypatch) -> None:
    path = own / "mine.yaml"
    path.write_text("steps: [2]\nbaseline: false\n")
    with monkeypatch.context() as patch:
        killed_in(fake, "k2-c1", patch)
        assert invoke("sweep", "--file", str(path), *SMALL).code == 137
    path.write_text("steps: [3]\nbaseline: false\n")
    done = invoke("sweep", "--resume", "last", "--json")
    assert done.code == 2
    assert "mine.yaml" in done.json["error"]["what"]
    path.write_text("steps: [2]\nbaseline: false\n")
    assert settings(sweep("--resume", "last")) == [(2, "")]


def test_a_finished_sweep_says_so(sweep) -> None:
    run = sweep("--steps", "2", "--no-baseline").json["run"]
    again = sweep("--resume", run)
    assert "nothing is left to do" in again.err
    assert settings(again) == [(2, "")]


def test_at_a_request_rate_nothing_is_ranked(sweep, fake) -> None:
    done = sweep("--steps", "1,2", "--no-baseline", "--request-rate", "2")
    assert fake.begun[0].spec["mode"] == "rate"
    assert "tok/s, " not in done.err.partition("concurrency 1:")[2]


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["--file", "FILE", "--steps", "2"], "a sweep file says all that is varied"),
        (["--file", "none.yaml"], "none.yaml"),
        (["--env", "MY_MODE"], "'MY_MODE' gives no values"),
        (["--env", "my mode=1"], "'my mode'"),
        (["--env", "HF_TOKEN=a,b"], "'HF_TOKEN' holds a secret and is not varied"),
        (["--server-arg", "speculative-num-steps=1,2"], "set by"),
        (["--server-arg", "speculative-adaptive=on"], "is what a sweep itself uses"),
        (["--env", "A=1,2", "--env", "B=1", "--zip"], "zipped values must be as many for each: A has 2, B has 1"),
        (["--concurrency", "1,1"], "a number stands twice in 1,1"),
        (["--concurrency", "0"], "0 is too small"),
        (["--request-rate", "0"], "--request-rate"),
        (["--random-range-ratio", "2", "--random-input-len", "9"], "random_range_ratio"),
        (["--prompts", "none.jsonl"], "the prompts cannot be read"),
        (["--prompts", "FILE", "--random-input-len", "9"], "both say where prompts come from"),
        (["--steps", "2,2"], ""),
    ],
)
def test_what_cannot_be_is_refused_before_any_host_is_contacted(invoke, own, fake, argv, what) -> None:
    (own / "mine.yaml").write_text("steps: [2]\n")
    done = invoke("sweep", *[str(own / "mine.yaml") if word == "FILE" else word for word in argv], "--json")
    assert done.code == 2, done.err
    assert what in done.json["error"]["what"] + done.json["error"]["where"]
    assert fake.calls == []


def test_without_the_probe_only_unmeasured_requests_are_sent(invoke, own, fakes) -> None:
    done = invoke("bench", "--steps", "2", "--no-probe", "--no-baseline", *SMALL, "--json")
    assert done.code == 0, done.err
    measured = done.json["hosts"]["a"]["measurements"]
    assert [(each["steps"], each["profiled"]) for each in measured] == [(2, False)]
