"""Servers in containers, on a real Podman: the image stays as it is, the patched worker is what runs."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from podmankit import TARGET, VERSION, WORKER, Podman
from serverkit import ServerHost, alive, until

from eaglelab.remote.agent.facts import facts
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.launchers import container
from eaglelab.remote.agent.processes import listener
from eaglelab.remote.agent.wire import AgentError

PATCHED = WORKER.replace(b"as released", b"as patched")
PROBE = b"probe = None\n"


@pytest.fixture
def launcher(podman: Podman) -> dict[str, Any]:
    return {"name": "container", "engine": "podman", "image": podman.image, "python": "python3"}


def start(host: ServerHost, launcher: dict[str, Any], *more: str, **changes: Any) -> dict[str, Any]:
    command = ["python3", "-m", "sglang.launch_server", "--port", str(host.port), *more]
    return host.start("", **{"command": command, "launcher": launcher, "token": f"port-{host.port}", **changes})


def runs(host: ServerHost) -> dict[str, Any]:
    until(lambda: host.log.exists() and b"serving" in host.log.read_bytes(), "the server serves", 30)
    return host.fresh().status()


def read(host: ServerHost, launcher: dict[str, Any]) -> dict[str, Any]:
    return facts(
        Journal(str(host.folder / "state")),
        "python3",
        None,
        [TARGET, "none.py"],
        host.port,
        str(host.log),
        {},
        launcher=launcher,
    )


def patch(host: ServerHost, launcher: dict[str, Any]) -> Journal:
    """As a deploy does it: the worker that came out of the image, and the module that the patch brings along."""
    found = read(host, launcher)
    worker, probe = found["files"][TARGET]["path"], f"{found['package']}/srt/speculative/probe.py"
    journal = Journal(str(host.folder / "state"))
    files = [_entry(worker, WORKER, PATCHED), _entry(probe, None, PROBE)]
    journal.backup("run-1", "test 1", "me@here", files, {})
    journal.apply("run-1", {worker: PATCHED, probe: PROBE})
    return journal


def _entry(path: str, original: bytes | None, patched: bytes) -> dict[str, Any]:
    before = None if original is None else hashlib.sha256(original).hexdigest()
    digests = {"found": before, "original": before, "patched": hashlib.sha256(patched).hexdigest()}
    return {"path": path, **digests, "mode": 0o644, "uid": os.getuid(), "gid": os.getgid()}


def test_the_facts_of_a_host_are_those_of_its_image(container_host: ServerHost, launcher: dict[str, Any]) -> None:
    found = read(container_host, launcher)
    assert (found["sglang_version"], list(found["files"])) == (VERSION, [TARGET])
    assert Path(found["files"][TARGET]["path"]).read_bytes() == WORKER
    assert found["package"].startswith(str(container_host.folder / "state/images"))
    assert read(container_host, launcher)["files"] == found["files"]


def test_an_image_that_is_not_there_is_not_pulled(container_host: ServerHost, launcher: dict[str, Any]) -> None:
    with pytest.raises(AgentError, match="podman has no image localhost/nonesuch:1 on this host") as refused:
        read(container_host, {**launcher, "image": "localhost/nonesuch:1"})
    assert refused.value.code == "no-image"


def test_a_container_is_on_record_and_its_processes_are_seen_as_this_host_sees_them(
    container_host: ServerHost, launcher: dict[str, Any], podman: Podman
) -> None:
    record = start(container_host, launcher)
    status = runs(container_host)
    assert record == container_host.fresh().record()
    assert record["name"] in podman.containers()
    holder = listener(container_host.port)
    assert holder is not None
    assert holder["pid"] in status["members"]
    assert os.getpid() not in status["members"]
    assert container_host.log.read_bytes() == b"serving as released None\n"


@pytest.mark.sample
def test_the_patched_worker_runs_and_the_image_stays_as_it_is(
    container_host: ServerHost, launcher: dict[str, Any], podman: Podman
) -> None:
    before = podman.ask("image", "inspect", podman.image)
    journal = patch(container_host, launcher)
    record = start(container_host, launcher)
    runs(container_host)
    assert container_host.log.read_bytes() == b"serving as patched None\n"
    inside = f"/sgl-workspace/sglang/python/sglang/{TARGET}"
    assert podman.ask("exec", record["name"], "/bin/sh", "-c", f"echo x >> {inside} || echo refused") == "refused\n"
    container_host.stop()
    journal.rollback("run-2")
    assert podman.ask("image", "inspect", podman.image) == before
    assert podman.inside(f"read first < {inside}; read second < {inside}; echo $first") == "def forward(batch):\n"
    start(container_host, launcher, token=f"next-{container_host.port}")
    until(lambda: b"as released" in container_host.log.read_bytes(), "the original runs again", 30)


def test_variables_reach_the_server_and_stand_on_no_command_line_and_in_no_file(
    container_host: ServerHost, launcher: dict[str, Any]
) -> None:
    start(container_host, launcher, env={"SECRET_TOKEN": "s3cret one; $HOME"})
    runs(container_host)
    assert b"s3cret one; $HOME" in container_host.log.read_bytes()
    for path in (container_host.folder / "state").rglob("*"):
        assert not path.is_file() or b"s3cret" not in path.read_bytes()


def test_a_stop_ends_the_container_and_removes_it(
    container_host: ServerHost, launcher: dict[str, Any], podman: Podman
) -> None:
    other = podman.ask("run", "--detach", "--name=colleague", "--network=none", podman.image, "/usr/bin/sleep", "60")
    record = start(container_host, launcher)
    members = runs(container_host)["members"]
    result = container_host.stop()
    assert (result["how"], result["stopped"]) == ("term", members)
    assert not any(alive(pid) for pid in members)
    assert podman.containers() == ["colleague"]
    assert other
    status = container_host.fresh().status()
    assert (status["record"], status["there"]) == (None, False)
    assert not (container_host.folder / "state/launch" / record["name"]).exists()
    podman.ask("rm", "--force", "--time=0", "colleague")


def test_a_server_that_ignores_term_is_killed(container_host: ServerHost, launcher: dict[str, Any]) -> None:
    start(container_host, launcher, "--deaf")
    members = runs(container_host)["members"]
    assert container_host.stop(grace=0.5)["how"] == "kill"
    assert not any(alive(pid) for pid in members)


@pytest.mark.sample
def test_how_a_server_ended_is_told(container_host: ServerHost, launcher: dict[str, Any]) -> None:
    start(container_host, launcher, "--fail")
    ended = until(lambda: (now := container_host.fresh().status())["exit"] and now, "it has ended", 20)
    assert (ended["alive"], ended["there"]) == (False, False)
    assert ended["exit"] == {"code": 7, "signal": None, "why": None}


def test_the_signal_that_ended_a_server_is_told(container_host: ServerHost, launcher: dict[str, Any]) -> None:
    start(container_host, launcher)
    runs(container_host)
    holder = listener(container_host.port)
    assert holder is not None
    os.kill(holder["pid"], signal.SIGKILL)
    ended = until(lambda: (now := container_host.fresh().status())["exit"] and now, "it has ended", 20)
    assert ended["exit"] == {"code": None, "signal": 9, "why": None}


def test_a_second_request_of_the_same_start_finds_the_container_of_the_first(
    container_host: ServerHost, launcher: dict[str, Any], podman: Podman
) -> None:
    record = start(container_host, launcher)
    container_host.server = container_host.fresh()
    assert start(container_host, launcher) == record
    assert podman.containers() == [record["name"]]


def test_an_agent_killed_before_the_container_runs_leaves_nothing_and_the_next_start_runs_it(
    container_host: ServerHost, launcher: dict[str, Any], monkeypatch: pytest.MonkeyPatch, podman: Podman
) -> None:
    read(container_host, launcher)

    def killed(words: list[str], *more: Any) -> Any:
        if words[1] == "run":
            podman.ask("create", f"--name={words[words.index('--detach') + 2].partition('=')[2]}", podman.image, "x")
            raise KeyboardInterrupt
        return real(words, *more)

    real = container.ask
    with monkeypatch.context() as patched:
        patched.setattr(container, "ask", killed)
        with pytest.raises(KeyboardInterrupt):
            start(container_host, launcher)
    assert container_host.fresh().status()["there"] is False
    container_host.server = container_host.fresh()
    start(container_host, launcher)
    assert runs(container_host)["alive"]


@pytest.mark.parametrize("command", range(3))
def test_an_agent_killed_at_any_command_of_a_start_leaves_nothing_that_a_stop_does_not_end(
    container_host: ServerHost,
    launcher: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    podman: Podman,
    command: int,
) -> None:
    read(container_host, launcher)
    real, asked = container.ask, 0

    def killed(words: list[str], *more: Any) -> Any:
        nonlocal asked
        asked += 1
        answer = real(words, *more)
        if asked > command:
            raise KeyboardInterrupt
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(container, "ask", killed)
        patched.setattr("eaglelab.remote.agent.launchers.image.ask", killed)
        with pytest.raises(KeyboardInterrupt):
            start(container_host, launcher)
    assert container_host.fresh().status()["there"] is (command == 2)  # inspect the image, look for a leftover, run
    container_host.fresh().stop("run-2", 0.0, lambda _: None)
    assert podman.containers() == []
    assert container_host.fresh().record() is None


def test_what_the_engine_refuses_leaves_no_record_and_no_container(
    container_host: ServerHost, launcher: dict[str, Any], podman: Podman
) -> None:
    with pytest.raises(AgentError, match="podman run: ") as refused:
        start(container_host, {**launcher, "folders": ["/nonesuch"]})
    assert refused.value.code == "start-failed"
    assert container_host.fresh().record() is None
    assert podman.containers() == []


def test_a_damaged_record_does_not_hide_the_container(
    container_host: ServerHost, launcher: dict[str, Any], podman: Podman
) -> None:
    start(container_host, launcher)
    runs(container_host)
    Path(container_host.folder, "state/server.json").write_text("{")
    assert container_host.fresh().status()["there"] is True
    assert "is not a JSON object" in container_host.stop()["damaged"]
    assert podman.containers() == []


def test_only_the_folders_that_were_named_are_seen_inside(
    container_host: ServerHost, launcher: dict[str, Any], podman: Podman
) -> None:
    models = container_host.folder / "models"
    models.mkdir()
    record = start(container_host, {**launcher, "folders": [str(models)]})
    runs(container_host)
    mounted = json.loads(podman.ask("container", "inspect", record["name"]))[0]["Mounts"]
    state = f"{container_host.folder}/state"
    assert {(mount["Destination"], mount["RW"]) for mount in mounted} == {
        (f"{state}/launch/{record['name']}", False),
        (f"{state}/runs", True),
        (f"{state}/files", False),
        (str(container_host.log), True),
        (str(models), False),
    }
