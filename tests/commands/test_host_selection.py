from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from fake_host import FakeHost, refusal
from rich.console import Console

from eaglelab.bundle import Bundle
from eaglelab.commands import hosts
from eaglelab.commands.hosts import connected, select_hosts, take_lock
from eaglelab.context import Options
from eaglelab.errors import HostError
from eaglelab.remote.hints import AgentFailure
from eaglelab.say import Say


def silent() -> Say:
    return Say(Console(file=io.StringIO(), width=200))


class Locked:
    """A client whose host is locked for the first `times` questions."""

    def __init__(self, times: int, code: str = "locked") -> None:
        self.times = times
        self.code = code
        self.asked: list[dict[str, Any]] = []
        self.stolen = False

    def lock(self, holder: dict[str, Any], *, steal: bool = False) -> None:
        self.asked.append(holder)
        self.stolen = steal
        if len(self.asked) <= self.times and not steal:
            other = {"by": "eve@box", "command": "sweep", "since": "noon", "run": "run-1", "doing": "Patch", "pid": 7}
            raise refusal(self.code, "another run is at work on this host", holder=other)


def test_a_lock_that_a_killed_run_lets_go_of_is_waited_for() -> None:
    client, pauses = Locked(3), []
    take_lock(client, "run-2", "bench", silent(), sleep=pauses.append)
    assert pauses == [0.5] * 3
    assert client.asked[0].keys() == {"by", "run", "command", "since"}
    assert (client.asked[0]["run"], client.asked[0]["command"]) == ("run-2", "bench")


def test_a_lock_that_stays_is_given_up_after_ten_seconds() -> None:
    pauses: list[float] = []
    with pytest.raises(AgentFailure, match=r"eve@box runs sweep since noon \(run run-1, at Patch\)") as caught:
        take_lock(Locked(99), "run-2", "bench", silent(), sleep=pauses.append)
    assert sum(pauses) == 9.5
    assert "--steal-lock" in caught.value.hint


def test_whoever_waits_for_a_lock_is_told_once_for_whom() -> None:
    say = silent()
    take_lock(Locked(3), "run-2", "bench", say, sleep=lambda _: None)
    assert say.console.file.getvalue().count("eve@box runs sweep since noon") == 1  # type: ignore[attr-defined]


def test_a_lock_is_taken_over_at_once_and_its_holder_named_first() -> None:
    client, say, pauses = Locked(99), silent(), []
    take_lock(client, "run-2", "bench", say, steal=True, sleep=pauses.append)
    assert (client.stolen, len(client.asked), pauses) == (True, 2, [])
    assert "taking the lock over: another run is at work" in say.console.file.getvalue()  # type: ignore[attr-defined]


def test_a_lock_that_is_free_is_not_stolen() -> None:
    client = Locked(0)
    take_lock(client, "run-2", "bench", silent(), steal=True)
    assert (client.stolen, len(client.asked)) == (False, 1)


def test_what_is_wrong_with_a_lock_otherwise_is_said_at_once() -> None:
    client = Locked(1, "not-writable")
    with pytest.raises(HostError):
        take_lock(client, "run-2", "bench", silent(), sleep=lambda _: None)
    assert len(client.asked) == 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    fake = FakeHost()
    monkeypatch.setattr(hosts, "AgentClient", lambda link, python, **_: fake)
    monkeypatch.setattr(hosts, "_link", lambda host, **_: None)
    return fake


@pytest.mark.parametrize("lock", [None, "bench"])
def test_a_context_is_closed_in_the_end_whatever_happens(own: Path, fake: FakeHost, lock: str | None) -> None:
    selection = select_hosts(own, "a", None)
    there = connected(selection, selection.hosts[0], Bundle(own, "r", "a"), Say.on(json=False), Options(), lock=lock)
    seen = []

    def work() -> None:
        with there:
            seen.append(fake.locked)
            raise HostError("in between")

    with pytest.raises(HostError, match="in between"):
        work()
    assert seen == [lock is not None]
    assert fake.locked is False


def test_the_key_of_the_server_is_that_of_the_environment(
    own: Path, fake: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own / "inventory.yaml"
    path.write_text(path.read_text().replace("  a: {}", "  a: {api_key_env: SGL_KEY}"))
    selection = select_hosts(own, "a", None)
    for value, key in ((None, None), ("s3cret", "s3cret")):
        if value:
            monkeypatch.setenv("SGL_KEY", value)
        with connected(
            selection, selection.hosts[0], Bundle(own, "r", "a"), Say.on(json=False), Options(), lock=None
        ) as context:
            assert context.api_key == key
