"""Servers as units, on a real systemd that is process 1 of a container: transient units, and a drop-in for an existing one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from serverkit import until
from systemdkit import SERVICE, Machine

from eaglelab.errors import AttentionError
from eaglelab.remote.client import AgentClient
from eaglelab.remote.hints import AgentFailure

STATE = "/root/.local/state/eaglelab"
DROP_IN = f"/run/systemd/system/{SERVICE}.d/90-eaglelab.conf"
TRANSIENT: dict[str, Any] = {"name": "systemd", "unit": None, "user": False, "properties": {}}
EXISTING = {**TRANSIENT, "unit": SERVICE}
PORTS = itertools.count(31000)


@pytest.fixture
def agent(machine: Machine) -> Iterator[AgentClient]:
    client = machine.agent()
    client.lock({"by": "me@here", "run": "run-1", "command": "bench", "since": "today"})
    yield client
    client.call("stop", run="end of test", grace=0.0)
    client.close()
    assert machine.run(f"ls {STATE}/launch") == ""
    assert machine.run(f"ls {DROP_IN}") == ""
    machine.run("systemctl stop " + SERVICE)


def start(agent: AgentClient, *words: str, launcher: dict[str, Any] = TRANSIENT, **changes: Any) -> dict[str, Any]:
    port = next(PORTS)
    arguments: dict[str, Any] = {
        "run": "run-1",
        "command": ["/usr/bin/python3", "-S", "/srv/serve.py", str(port), *words],
        "env": {},
        "log": f"/root/logs/{port}.log",
        "port": port,
        "cwd": STATE,
        "about": {"steps": 2},
        "launcher": launcher,
    }
    return agent.call("start", **{**arguments, **changes})


def serves(machine: Machine, record: dict[str, Any]) -> str:
    return str(until(lambda: machine.run(f"grep serving {record['log']}"), "the server serves", 20))


@pytest.mark.sample
@pytest.mark.parametrize("launcher", [TRANSIENT, EXISTING], ids=["transient", "existing"])
def test_a_unit_is_on_record_runs_and_goes_with_all_of_its_processes(
    machine: Machine, agent: AgentClient, launcher: dict[str, Any]
) -> None:
    record = start(agent, "child", launcher=launcher)
    assert serves(machine, record).startswith("serving None")
    status = agent.call("status")
    assert (status["record"], status["alive"], status["there"]) == (record, True, True)
    assert status["record"]["unit"] == launcher["unit"] or record["unit"] == f"{record['name']}.service"
    assert int(machine.show(record["unit"], "MainPID")) in status["members"]
    assert len(status["members"]) == 2  # with a child in a session of its own
    result = agent.call("stop", run="run-2", grace=10.0)
    assert (result["how"], result["stopped"]) == ("term", status["members"])
    assert not [pid for pid in status["members"] if machine.run(f"ls /proc/{pid}/status")]
    assert machine.show(record["unit"], "ActiveState") == "inactive"
    assert agent.call("status")["record"] is None


@pytest.mark.sample
def test_a_drop_in_is_written_down_before_it_is_there_and_the_unit_is_its_own_again(
    machine: Machine, agent: AgentClient
) -> None:
    before = machine.run(f"systemctl cat {SERVICE}")
    record = start(agent, launcher=EXISTING)
    assert serves(machine, record) == "serving None of-the-unit"  # what the unit gives its server stays
    assert f"# eaglelab: {record['mark']}" in machine.run(f"systemctl cat {SERVICE}")
    agent.call("stop", run="run-2", grace=10.0)
    assert machine.run(f"systemctl cat {SERVICE}") == before
    assert machine.run(f"ls {DROP_IN}") == ""
    noted = [json.loads(line)["op"] for line in machine.run(f"cat {STATE}/journal.jsonl").splitlines()]
    assert noted[-6:] == ["start", "drop-in", "started", "stop", "stopped", "drop-in removed"]
    machine.run(f"systemctl start {SERVICE}")
    assert "theirs" in machine.run(f"cat /proc/{machine.show(SERVICE, 'MainPID')}/cmdline")


def test_a_unit_that_is_active_is_a_colleagues_and_left_alone(machine: Machine, agent: AgentClient) -> None:
    machine.run(f"systemctl start {SERVICE}")
    pid = machine.show(SERVICE, "MainPID")
    with pytest.raises(AgentFailure, match=f"{SERVICE} is active, and eaglelab did not start it") as refused:
        start(agent, launcher=EXISTING)
    assert refused.value.hint == f"on the host: systemctl stop {SERVICE}"
    agent.call("stop", run="run-2", grace=1.0)
    assert machine.show(SERVICE, "MainPID") == pid


def test_a_drop_in_that_was_written_by_an_agent_killed_before_the_start_goes_with_the_stop(
    machine: Machine, agent: AgentClient
) -> None:
    record = start(agent, launcher=EXISTING)
    machine.run(f"systemctl stop {SERVICE}")  # as it is at that moment: the record, the drop-in, and no process
    assert record["mark"] in machine.run(f"cat {DROP_IN}")
    assert agent.call("status")["there"] is False
    agent.call("stop", run="run-2", grace=1.0)
    assert machine.run(f"ls {DROP_IN}") == ""


def test_a_unit_whose_drop_in_somebody_removed_is_theirs_by_now(machine: Machine, agent: AgentClient) -> None:
    record = start(agent, launcher=EXISTING)
    serves(machine, record)
    machine.run(f"systemctl stop {SERVICE}; /usr/bin/python3 -c 'import os; os.unlink(\"{DROP_IN}\")'")
    machine.run(f"systemctl daemon-reload; systemctl start {SERVICE}")
    pid = machine.show(SERVICE, "MainPID")
    assert agent.call("status")["there"] is False
    agent.call("stop", run="run-2", grace=1.0)
    assert machine.show(SERVICE, "MainPID") == pid != "0"


def test_variables_reach_the_server_and_no_other_user_can_read_them(machine: Machine, agent: AgentClient) -> None:
    record = start(agent, env={"SECRET_TOKEN": "s3cret 'one'; $HOME %n"})
    assert serves(machine, record) == "serving s3cret 'one'; $HOME %n None"
    assert "s3cret" not in machine.run(f"systemctl show {record['unit']}; systemctl cat {record['unit']}")
    assert machine.run(f"ls -l {STATE}/launch/{record['name']}/run.sh").startswith("-rw-------")
    agent.call("stop", run="run-2", grace=10.0)
    assert "s3cret" not in machine.run(f"cat {STATE}/*.json*")


def test_a_server_that_ignores_term_is_killed(machine: Machine, agent: AgentClient) -> None:
    record = start(agent, "deaf", "child")
    serves(machine, record)
    members = agent.call("status")["members"]
    assert agent.call("stop", run="run-2", grace=0.5)["how"] == "kill"
    assert not [pid for pid in members if machine.run(f"ls /proc/{pid}/status")]


def test_how_a_server_ended_is_told(machine: Machine, agent: AgentClient) -> None:
    start(agent, "fail")
    status = until(lambda: not (now := agent.call("status"))["alive"] and now["exit"] and now, "it has ended", 20)
    assert status["exit"] == {"code": 7, "signal": None, "why": None}


def test_the_signal_that_ended_a_server_is_told(machine: Machine, agent: AgentClient) -> None:
    record = start(agent)
    serves(machine, record)
    machine.run(f"systemctl kill --signal=SEGV {record['unit']}")
    status = until(lambda: not (now := agent.call("status"))["alive"] and now["exit"] and now, "it has ended", 20)
    assert status["exit"] == {"code": None, "signal": 11, "why": None}


def test_a_second_request_of_the_same_start_finds_the_unit_of_the_first(machine: Machine, agent: AgentClient) -> None:
    record = start(agent)
    again, _ = agent._ask("start", {**_request(record), "token": record["token"]}, b"", 30.0, None)
    assert again == record
    assert machine.run("systemctl list-units --no-legend --plain 'eaglelab-*'").count(".service") == 1


def _request(record: dict[str, Any]) -> dict[str, Any]:
    return {
        **{key: record[key] for key in ("run", "command", "log", "port")},
        "env": {},
        "cwd": STATE,
        "about": {"steps": 2},
        "launcher": TRANSIENT,
    }


def test_what_systemd_cannot_start_leaves_no_record(machine: Machine, agent: AgentClient) -> None:
    for launcher in ({**TRANSIENT, "properties": {"Nonesuch": "1"}}, {**EXISTING, "unit": "nonesuch.service"}):
        with pytest.raises(AgentFailure, match=r"Nonesuch|no unit nonesuch\.service"):
            start(agent, launcher=launcher)
        assert agent.call("status")["record"] is None


def test_properties_of_the_inventory_hold(machine: Machine, agent: AgentClient) -> None:
    record = start(agent, launcher={**TRANSIENT, "properties": {"LimitNOFILE": "512"}})
    assert machine.show(record["unit"], "LimitNOFILE") == "512"
    assert machine.show(record["unit"], "Restart") == "no"


def test_a_damaged_record_does_not_hide_the_unit(machine: Machine, agent: AgentClient) -> None:
    record = start(agent, launcher=EXISTING)
    serves(machine, record)
    machine.run(f"echo '{{' > {STATE}/server.json")
    assert agent.call("status")["there"] is True
    assert "is not a JSON object" in agent.call("stop", run="run-2", grace=10.0)["damaged"]


def test_while_systemd_does_not_answer_nothing_is_said_to_be_stopped(machine: Machine, agent: AgentClient) -> None:
    record = start(agent)
    serves(machine, record)
    machine.run('/usr/bin/python3 -c \'import os; os.rename("/usr/bin/systemctl", "/usr/bin/systemctl.away")\'')
    try:
        assert "cannot run systemctl" in agent.call("status")["unknown"]
        with pytest.raises(AttentionError, match="nothing can be said of our server"):
            agent.call("stop", run="run-2", grace=1.0)
    finally:
        machine.run('/usr/bin/python3 -c \'import os; os.rename("/usr/bin/systemctl.away", "/usr/bin/systemctl")\'')
    assert agent.call("status")["alive"] is True
