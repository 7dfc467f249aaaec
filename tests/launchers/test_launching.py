"""What the host side makes of a launcher: what the agent is told, and how its server is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_host import FakeHost, make_context, make_host, said

from eaglelab.actions import ACTIONS
from eaglelab.server.launching import ended, is_there, launching, named, what_runs
from eaglelab.server.setting import Setting

SLURM = {"launcher": "slurm", "host": "0.0.0.0", "tp_size": 8, "slurm": {"partition": "gpu"}}


class Cluster(FakeHost):
    """A host in memory whose server is a job that first waits, then runs on a node."""

    told: Any = None

    def op_facts(self, launcher: Any = None, host: str = "", **about: Any) -> Any:
        self.told = (launcher, host)
        return super().op_facts(**about)

    def op_start(self, launcher: Any = None, **what: Any) -> Any:
        self.told = launcher
        super().op_start(**what)
        assert self.record is not None
        self.record |= {"launcher": "slurm", "name": "eaglelab-1", "job": "42", "pid": None}
        return dict(self.record)

    def op_status(self) -> Any:
        waits = self.alive and self.ops().count("poll") < 3
        more = {"there": self.alive, "queued": "pending (Resources)" if waits else None}
        return super().op_status() | more | {"members": [], "address": None if waits else "10.0.0.9", "node": "n9"}

    def op_http(self, **what: Any) -> Any:
        self.asked = what["host"]
        return super().op_http(**what)


def perform(context: Any, *names: str) -> Any:
    results = [ACTIONS[name].run(context, ACTIONS[name].args()) for name in names]
    return results[-1]


@pytest.fixture
def fake() -> Cluster:
    return Cluster()


def test_a_process_is_started_without_a_word_about_launchers() -> None:
    assert launching(make_host()) == {}
    assert named({"pid": 7}) == "pid 7"


def test_the_gpus_of_a_job_are_those_of_tensor_parallelism_and_stages_unless_the_inventory_says_otherwise() -> None:
    told = launching(make_host(server=SLURM))
    assert told["launcher"]["gpus"] == 8
    assert launching(make_host(server={**SLURM, "flags": {"pp-size": 2}}))["launcher"]["gpus"] == 16
    assert "queue_timeout" not in told["launcher"]
    assert launching(make_host(server=SLURM), facts=True)["host"] == "0.0.0.0"
    assert launching(make_host(server={**SLURM, "slurm": {"gpus": 0}}))["launcher"]["gpus"] == 0


def test_a_server_of_another_launcher_is_another_setting() -> None:
    setting = Setting(2, None, None, {}, {})
    process, job = make_host(server={"host": "0.0.0.0", "tp_size": 8}), make_host(server=SLURM)
    assert setting.fingerprint(process, {}) != setting.fingerprint(job, {})


def test_inside_an_image_its_own_python_runs_the_server() -> None:
    container = {"image": "sglang:1", "python": "/opt/python", "folders": ["/models"]}
    host = make_host(server={"launcher": "container", "container": container})
    assert Setting(2, None, None, {}, {}).command(host, None)[0] == "/opt/python"


@pytest.mark.parametrize(
    ("record", "name"),
    [
        ({"launcher": "slurm", "name": "eaglelab-1", "job": "42"}, "job 42 of Slurm"),
        ({"launcher": "slurm", "name": "eaglelab-1", "job": None}, "job eaglelab-1 of Slurm"),
        ({"launcher": "container", "name": "eaglelab-1"}, "container eaglelab-1"),
        ({"launcher": "systemd", "name": "eaglelab-1", "unit": "sglang.service"}, "unit sglang.service"),
    ],
)
def test_a_server_is_named_as_one_would_look_for_it(record: dict[str, Any], name: str) -> None:
    assert named(record) == name
    status = {"record": record, "members": [], "there": True}
    assert is_there(status)
    assert what_runs(status) == f"our server, {name}"


def test_what_ended_is_counted_or_named() -> None:
    assert ended({"stopped": [1, 2]}) == "2 processes ended"
    assert ended({"stopped": [1, 2]}, "of the server ") == "2 processes of the server ended"
    assert ended({"stopped": ["eaglelab-1"]}) == "eaglelab-1 ended"


def test_requests_go_to_the_node_and_the_wait_tells_queue_from_load(fake: Cluster, tmp_path: Path) -> None:
    fake.healths = [{"status": 200}]
    context = make_context(fake, tmp_path, host=make_host(server=SLURM))
    perform(context, "doctor", "plan")
    assert fake.told == (launching(context.host)["launcher"], "0.0.0.0")
    perform(context, "start")
    assert fake.told == launching(context.host)["launcher"]
    assert "job 42 of Slurm, log" in said(context)
    waited = perform(context, "wait")
    assert (waited["state"], fake.asked) == ("ready", "10.0.0.9")
    assert waited["queued"] > 0
    assert "s in the queue before it" in said(context)
    assert perform(make_again(fake, tmp_path / "2"), "check_server")["needed"] is True  # not patched: another setting


def make_again(fake: Cluster, folder: Path) -> Any:
    context = make_context(fake, folder, host=make_host(server={**SLURM, "speculative": None}))
    perform(context, "doctor", "plan")
    return context


def test_a_server_that_is_followed_is_asked_on_its_node(fake: Cluster, tmp_path: Path) -> None:
    context = make_context(fake, tmp_path, host=make_host(server=SLURM))
    perform(context, "doctor", "plan", "start", "wait")
    later = make_context(fake, tmp_path / "2", host=make_host(server=SLURM))
    perform(later, "doctor", "plan")
    assert perform(later, "check_server")["needed"] is False
    assert later.server_address == "10.0.0.9"


def test_a_stop_of_what_has_no_process_here_is_still_a_stop(fake: Cluster, tmp_path: Path) -> None:
    context = make_context(fake, tmp_path, host=make_host(server=SLURM))
    perform(context, "doctor", "plan", "start")
    ACTIONS["stop"].preview(context, ACTIONS["stop"].args())
    ACTIONS["rollback"].preview(context, ACTIONS["rollback"].args())
    assert said(context).count("would end our server, job 42 of Slurm") == 2
