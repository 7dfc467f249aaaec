"""The whole road on the embedded lab, as a user walks it: deploy, bench, rollback."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scene import Done, Scene, picture, processes_of

from eaglelab.lab.model import read_model

MARK = "  # eaglelab:eagle3-profile"
WORKERS = "srt/speculative"


@dataclass(frozen=True)
class Road:
    """What the commands left, in order: pictures of the package before, deployed and after."""

    scene: Scene
    package: Path
    originals: dict[str, bytes]
    before: dict[str, Any]
    deploy: Done
    deployed: dict[str, Any]
    patched: dict[str, bytes]
    again: Done
    bench: Done
    rollback: Done
    after: dict[str, Any]
    second: Done


@pytest.fixture(scope="module")
def road(scene: Scene) -> Road:
    package = scene.folder / ".lab/host/home/sglang/python/sglang"
    originals = {path.name: path.read_bytes() for path in (package / WORKERS).glob("*.py")}
    before = picture(package)
    deploy = scene.invoke("deploy-profiling", "--json")
    deployed = picture(package)
    patched = {path.name: path.read_bytes() for path in (package / WORKERS).glob("*.py")}
    again = scene.invoke("deploy-profiling", "--json")
    bench = scene.invoke("bench", "--steps", "2", "--no-baseline", "--num-prompts", "2", "--repeats", "2", "--json")
    rollback = scene.invoke("rollback", "--json")
    after = picture(package)
    second = scene.invoke("rollback", "--json")
    return Road(scene, package, originals, before, deploy, deployed, patched, again, bench, rollback, after, second)


def setting(done: Done) -> dict[str, Any]:
    profile = json.loads((Path(done.json["bundle"]) / "profile.json").read_text())
    return dict(profile["settings"][0])


def test_the_workers_differ_from_the_originals_by_marked_lines_only(road: Road) -> None:
    changed = [name for name, data in road.originals.items() if road.patched[name] != data]
    assert "eagle_worker.py" in changed
    assert "eagle_worker_v2.py" in changed
    for name in changed:
        diff = list(difflib.ndiff(road.originals[name].decode().splitlines(), road.patched[name].decode().splitlines()))
        assert [line for line in diff if line.startswith("- ")] == []
        added = [line for line in diff if line.startswith("+ ")]
        assert len(added) == 11
        assert all(line.endswith(MARK) for line in added)


def test_nothing_else_in_the_package_changes_but_the_probe_beside_the_workers(road: Road) -> None:
    assert set(road.deployed) - set(road.before) == {f"{WORKERS}/eaglelab_probe.py"}
    changed = {name for name in road.before if road.deployed[name] != road.before[name]}
    assert all(name.startswith(WORKERS) and "worker" in name for name in changed)


def test_event_times_agree_with_the_cost_model_within_two_per_cent(road: Road) -> None:
    model = read_model(None)
    costs, host = model.gpu_ms, model.host_ms
    draft = max(costs.draft_forward, host.draft)
    other = host.extend + host.schedule - costs.extend  # the host's work for the next cycle, less what the GPU hides
    expected = {"draft": draft, "verify": costs.verify[2], "extend": costs.extend, "other": other}
    expected["total"] = sum(expected.values())
    phases = setting(road.deploy)["phases"]
    for phase, cost in expected.items():
        assert phases[phase]["event_ms"]["mean"] == pytest.approx(cost, rel=0.02), phase


def test_host_timers_of_the_same_cycles_show_the_known_misattribution(road: Road) -> None:
    phases = setting(road.deploy)["phases"]
    event = {phase: values["event_ms"]["mean"] for phase, values in phases.items()}
    host = {phase: values["host_ms"]["mean"] for phase, values in phases.items()}
    assert host["draft"] < 0.7 * event["draft"]  # a launch, not the draft
    assert host["extend"] < 0.5 * event["extend"]  # a launch too: its GPU time falls into what follows
    assert host["verify"] > event["verify"]  # holds the draft's GPU time
    assert host["total"] == pytest.approx(event["total"], rel=0.005)


def test_throughput_is_the_one_of_the_history_at_two_steps(road: Road) -> None:
    assert road.deploy.json["hosts"]["sim"]["generated"]["tok_s"] == pytest.approx(94.0, rel=0.06)


def test_the_probe_counts_every_token_that_the_client_received(road: Road) -> None:
    # The first token is the prefill's, and the last cycle may run past the end of the request by at most K.
    tokens = setting(road.deploy)["tokens"]
    assert 999 <= tokens <= 999 + 2


def test_a_second_deploy_changes_nothing_and_spends_no_load(road: Road) -> None:
    found = road.again.json["hosts"]["sim"]
    assert found["load"]["needed"] is False
    assert "already in place: nothing changed" in road.again.stderr


def test_bench_reuses_the_load_and_measures_with_and_without_the_probe(road: Road) -> None:
    measured = road.bench.json["hosts"]["sim"]["measurements"]
    assert [(each["steps"], each["profiled"], each["summary"]["requests"]) for each in measured] == [
        (2, False, 2),
        (2, True, 2),
    ]
    assert measured[0]["summary"]["tok_s"]["mean"] == pytest.approx(94.0, rel=0.1)
    assert "no load is needed" in road.bench.stderr


def test_the_bundle_tells_the_whole_story(road: Road) -> None:
    bundle = Path(road.deploy.json["bundle"])
    expected = "inventory.json playbook.yaml plan.json patch.diff manifest.json server.json server_info.json facts.json"
    for name in [*expected.split(), "server.log", "profile.json", "events.jsonl", "generate.json"]:
        assert (bundle / name).stat().st_size > 0, name
    assert "$ sed -n '" in (bundle / "sed/eagle_worker.py.txt").read_text()
    events = [json.loads(line) for line in (bundle / "events.jsonl").read_text().splitlines()]
    done = [event["action"] for event in events if event["state"] == "ok"]
    assert done == [
        "doctor",
        "plan",
        "check_owner",
        "backup",
        "patch",
        "check_server",
        "stop",
        "start",
        "wait",
        "generate",
        "prove",
        "fetch_logs",
        "report",
    ]
    assert json.loads((bundle / "server.json").read_text())["env"]["EAGLE3_PROFILE"] == "1"


def test_the_log_in_the_bundle_begins_where_the_run_began(road: Road) -> None:
    first = (Path(road.deploy.json["bundle"]) / "server.log").read_text()
    later = (Path(road.again.json["bundle"]) / "server.log").read_text()
    assert "The server is fired up and ready to roll!" in first
    assert "The server is fired up and ready to roll!" not in later
    assert "EAGLE3_PROF (" in later


def test_everything_says_simulated_gpu(road: Road) -> None:
    assert "simulated GPU" in road.deploy.stderr
    profile = json.loads((Path(road.deploy.json["bundle"]) / "profile.json").read_text())
    assert profile["simulated"] == "simulated GPU"


def test_rollback_restores_every_byte_mode_and_owner(road: Road) -> None:
    assert road.after == road.before
    assert road.rollback.json["hosts"]["sim"]["rollback"]["nothing"] is False


def test_rollback_leaves_no_process(road: Road) -> None:
    lab = json.loads((road.scene.folder / ".lab/lab.json").read_text())
    left = [line for line in processes_of(lab["mark"]) if "sshd" not in line]
    assert left == []


def test_a_second_rollback_says_that_there_is_nothing_to_do(road: Road) -> None:
    assert road.second.json["hosts"]["sim"]["rollback"]["nothing"] is True
    assert "nothing to do" in road.second.stderr


def test_the_newest_profile_can_be_shown_again(road: Road) -> None:
    shown = road.scene.invoke("report", "--run", road.deploy.json["run"])
    assert "verify limits the loop" in " ".join(shown.stdout.split())


def test_sglangs_own_lines_in_the_log_agree_with_the_probe(road: Road) -> None:
    log = str(Path(road.deploy.json["bundle"]) / "server.log")
    found = road.scene.invoke("report", "--log", log, "--json").json["log"]
    (group,) = found["decode"]["groups"]
    assert group["running_requests"] == 1
    assert group["accept_length"]["mean"] == pytest.approx(
        setting(road.deploy)["acceptance"]["accept_length"], rel=0.06
    )
