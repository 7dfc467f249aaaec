"""Planted secrets are in no file of a bundle and on no terminal, whatever is done and whatever fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fake_host import FakeHost, refusal

from eaglelab.errors import HostError

FLAG, VARIABLE, NAMED, FOREIGN = "fl4g s3cret/+", "v4riable's s3cret", "n4med-s3cret", "f0reign-s3cret"
PLANTED = (FLAG, VARIABLE, NAMED, FOREIGN)

LOG = "\n".join(
    [
        f"server_args=ServerArgs(api_key={FLAG!r}, ssl_keyfile_password='{FOREIGN}', port=1)",
        json.dumps({"api_key": FLAG, "env": {"HF_TOKEN": VARIABLE}}),
        json.dumps({"error": json.dumps({"authorization": f"Bearer {NAMED}"})}),
        f"GET /x?api_key={quote(FLAG, safe='')}&admin_api_key={FOREIGN}",
        f"environ({{'AWS_SECRET_ACCESS_KEY': '{FOREIGN}', 'MY_OWN': '{NAMED}'}})",
        f"cmdline: ['python', '--api-key', '{FOREIGN}', '--hf-token={FOREIGN}']",
        "x" * 70_000 + f" api_key={FOREIGN} {NAMED}",
        "Load weight begin. avail mem=139.0 GB",
        "",
    ]
).encode()


@pytest.fixture
def planted(own: Path, monkeypatch: pytest.MonkeyPatch, fakes: dict[str, FakeHost]) -> FakeHost:
    monkeypatch.setenv("MY_OWN", NAMED)
    text = (own / "inventory.yaml").read_text()
    more = {"flags": {"api-key": FLAG}, "env": {"HF_TOKEN": VARIABLE, "PLAIN": "plain"}}
    text = text.replace(
        "server: {",
        f"secrets: [MY_OWN]\n  server: {{flags: {json.dumps(more['flags'])}, env: {json.dumps(more['env'])}, ",
    )
    (own / "inventory.yaml").write_text(text)
    fakes["a"].boot = LOG
    return fakes["a"]


def leaks(own: Path, done: Any) -> list[str]:
    """Where a secret is, in any of the ways in which it could be written."""
    places = {"stdout": done.out, "stderr": done.err}
    for path in (own / "logs").rglob("*"):
        if path.is_file():
            places[str(path.relative_to(own))] = path.read_bytes().decode(errors="replace")
    marks = ("s3cret",)  # a part of each, which no encoding changes
    return [name for name, text in places.items() if any(mark in text for mark in marks)]


@pytest.mark.parametrize("more", [(), ("--json",), ("--debug",), ("--check",)])
def test_a_run_that_works(own: Path, planted: FakeHost, invoke: Any, more: tuple[str, ...]) -> None:
    done = invoke("deploy-profiling", *more)
    assert done.code == 0, done.err
    assert leaks(own, done) == []
    if "--check" not in more:  # it came, and was masked
        assert [
            text for path in (own / "logs").rglob("*.log") if "ssl_keyfile_password=***" in (text := path.read_text())
        ]


@pytest.mark.parametrize("more", [(), ("--json",), ("--debug",)])
def test_a_server_that_dies_with_secrets_in_its_last_words(
    own: Path, planted: FakeHost, invoke: Any, more: tuple[str, ...]
) -> None:
    planted.exit = {"code": 1}
    planted.healths = [{"error": "refused"}]
    planted.fail["generate"] = refusal("http-error", f"the server answered 401: {LOG.decode()[:2000]}")
    planted.fail["poll"] = HostError(f"cannot poll: {LOG.decode()[:2000]}", where="a")
    done = invoke("deploy-profiling", *more)
    assert done.code in (1, 3)
    assert leaks(own, done) == []


def test_a_bug_whose_traceback_holds_a_secret(own: Path, planted: FakeHost, invoke: Any) -> None:
    planted.fail["start"] = RuntimeError(f"api_key='{FOREIGN}' {NAMED} {VARIABLE}")
    done = invoke("deploy-profiling", "--debug")
    assert done.code != 0
    assert "Traceback" in done.err
    assert leaks(own, done) == []


@pytest.mark.parametrize("command", ["status", "doctor", "rollback", "logs"])
def test_looking_around(own: Path, planted: FakeHost, invoke: Any, command: str) -> None:
    planted.files["/home/u/server.log"] = LOG
    assert leaks(own, invoke(command, "--json")) == []
    assert leaks(own, invoke(command)) == []
