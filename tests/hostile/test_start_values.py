"""What a server is started with arrives byte for byte, and what cannot arrive is refused in words."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from linkkit import client
from serverkit import free_port, until

from eaglelab.errors import HostError
from eaglelab.remote.client import AgentClient
from eaglelab.remote.pipe import LocalLink

DUMP = "import json, os, sys; json.dump([[ascii(a) for a in sys.argv[1:]], {k: ascii(v) for k, v in os.environ.items()}], open(sys.argv[1], 'w')); import time; time.sleep(60)"
VALUES = [
    "a b",
    "it's",
    '"',
    "$(id)",
    "`id`",
    "$HOME",
    "a\nb",
    "a\tb",
    "!!",
    ";id",
    "~",
    "~/x",
    "-n",
    "--",
    "",
    "caf\u00e9 \u65e5\u672c \U0001f600",
    "caf\udce9",
    "\x01\x1b[2J\x7f",
    "*",
    "{a,b}",
    "%s",
    "\\n",
    "x" * 100_000,
]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentClient]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = client(LocalLink("here"))
    found.lock({"by": "me", "run": "run-1", "command": "bench", "since": "today"})
    yield found
    found.call("stop", run="run-1", grace=0.0)
    found.close()


def start(agent: AgentClient, tmp_path: Path, *words: str, env: dict[str, str] | None = None) -> Any:
    return agent.call(
        "start",
        run="run-1",
        command=[sys.executable, "-S", "-c", DUMP, *words],
        env=env or {},
        log=str(tmp_path / "it's a log"),
        port=free_port(),
        cwd=str(tmp_path),
        about={},
    )


def test_arguments_and_variables_arrive_byte_for_byte(agent: AgentClient, tmp_path: Path) -> None:
    out = tmp_path / "seen"
    env = {f"V{number}": value for number, value in enumerate(VALUES)}
    start(agent, tmp_path, str(out), *VALUES, env=env)
    until(lambda: out.exists() and out.read_text().endswith("}]"), "the server has said what it was given")
    argv, environ = json.loads(out.read_text())
    assert argv[1:] == [ascii(value) for value in VALUES]
    assert {name: environ[name] for name in env} == {name: ascii(value) for name, value in env.items()}


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x" * 200_000], ids=["nul", "surrogate", "too-long"])
def test_what_no_process_can_be_given_is_refused_and_nothing_is_left(
    agent: AgentClient, tmp_path: Path, value: str
) -> None:
    for words, env in (((value,), {}), ((), {"V": value})):
        with pytest.raises(HostError) as refused:
            start(agent, tmp_path, str(tmp_path / "seen"), *words, env=env)
        assert "cannot start the server" in refused.value.what
        assert len(str(refused.value)) < 2000
        assert agent.call("status")["alive"] is False
    assert not (tmp_path / "seen").exists()
