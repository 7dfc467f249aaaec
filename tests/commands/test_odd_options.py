"""Names and values from the command line that no host, run or file has: refused, and nothing is contacted."""

from __future__ import annotations

from typing import Any

import pytest
from fake_host import FakeHost

ODD = [
    "$(id)",
    "`id`",
    "a;id",
    "a b",
    "../../etc",
    "a\nb",
    "\x1b[2J",
    "~root",
    "caf\u00e9",
    "--",
    "*",
    "a,",
    "\u202ea",
]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("command", ["status", "deploy-profiling", "rollback"])
def test_a_host_of_such_a_name(command: str, name: str, fakes: dict[str, FakeHost], invoke: Any) -> None:
    done = invoke(command, f"--host={name}", "--json")
    assert done.code == 2
    assert done.json["ok"] is False
    done.out.encode()
    assert [fake.calls for fake in fakes.values()] == [[], []]


@pytest.mark.parametrize("name", [name for name in ODD if name != "--"])
def test_a_run_of_such_a_name(name: str, fakes: dict[str, FakeHost], invoke: Any) -> None:
    done = invoke("report", f"--run={name}", "--json")
    assert done.code == 2
    assert done.json["ok"] is False
