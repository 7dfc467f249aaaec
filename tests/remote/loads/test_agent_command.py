"""A load that is a command: SGLang's bench_serving, or here a stand-in for it against the recorded contract."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from linkkit import BreakingLink, client, interpreters
from loadkit import ME
from serverkit import alive, until

from eaglelab.profile.serving_row import parse_rows
from eaglelab.remote.client import AgentClient
from eaglelab.remote.hints import AgentFailure
from eaglelab.server.bench_serving import ServingLoad, serving_command

CASES = Path(__file__).parents[2] / "cases" / "serving"
SLEEPER = [sys.executable, "-c", "import time; print('asleep', flush=True); time.sleep(60)"]


@dataclass
class Answers:
    """A server that answers /generate as a whole, once `go` is set."""

    port: int = 0
    keys: set[str | None] = field(default_factory=set)
    asked: list[dict[str, Any]] = field(default_factory=list)
    flushed: int = 0
    go: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def server() -> Iterator[Answers]:
    found = Answers()
    found.go.set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            found.keys.add(self.headers["Authorization"])
            if self.path == "/flush_cache":
                found.flushed += 1
                answer = b"flushed"
            else:
                found.asked.append(json.loads(body))
                assert found.go.wait(20)
                tokens = found.asked[-1]["sampling_params"]["max_new_tokens"]
                answer = json.dumps({"meta_info": {"completion_tokens": tokens}}).encode()
            try:
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:
                pass  # a client that was ended

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        found.port = serving.server_address[1]
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.go.set()
        serving.shutdown()
        thread.join()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A host's installation in which bench_serving is the stand-in."""
    folder = tmp_path / "packages" / "sglang"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    shutil.copy(CASES / "bench_serving.py", folder / "bench_serving.py")
    return folder.parent


def start(agent: AgentClient, command: list[str], env: dict[str, str] | None = None) -> dict[str, Any]:
    return agent.call("load_command", id="k2", run="run-1", command=command, env=env or {}, cwd="/")


def poll(agent: AgentClient) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    found, data = agent.call_bytes("load_poll", id="k2", run="run-1", offset=0)
    return found, [json.loads(line) for line in data.splitlines()]


def end(agent: AgentClient) -> dict[str, Any]:
    until(lambda: poll(agent)[0]["state"] != "running", "the command has ended")
    found, lines = poll(agent)
    assert found["state"] == "done"
    return dict(lines[-1]["end"])


def bench(agent: AgentClient, server: Answers, state: Path, package: Path, version: str = "0.5.9") -> dict[str, Any]:
    dataset = state.parent / "prompts.jsonl"
    turns = [{"value": "Why?"}, {"value": "So."}]
    dataset.write_text(f"{json.dumps({'conversations': turns})}\n" * 6)
    load = ServingLoad(num_prompts=6, concurrency=2, seed=1, dataset=str(dataset), output_len=8)
    command = serving_command(
        version,
        load,
        python=sys.executable,
        host="127.0.0.1",
        port=server.port,
        model="/models/target",
        tokenizer=None,
        out=str(state / "runs/run-1/load/k2.rows"),
    )
    env = {"PYTHONPATH": str(package), "STANDIN_ROW": str(CASES / f"{version}.jsonl"), "OPENAI_API_KEY": "tops3cret"}
    return start(agent, command, env)


def outside(agent: AgentClient, state: Path) -> bytes:
    return (state / "runs/run-1/load/k2.out").read_bytes()


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12", "0.5.16", "0.5.23"])
def test_the_stand_in_takes_our_command_line_and_its_row_is_read_against_the_recorded_contract(
    agent: AgentClient, server: Answers, state: Path, package: Path, version: str
) -> None:
    bench(agent, server, state, package, version)
    assert end(agent)["code"] == 0, outside(agent, state)
    (row,) = parse_rows((state / "runs/run-1/load/k2.rows").read_text(), "k2.rows")
    assert (row.completed, row["total_output_tokens"], row["mean_tpot_ms"]) == (6, 48, 10.47)
    assert [body["text"] for body in server.asked] == ["Why?"] * 7  # with the warm-up
    assert server.flushed == 1


def test_the_key_is_in_its_environment_and_in_no_file_and_no_argument(
    agent: AgentClient, server: Answers, state: Path, package: Path
) -> None:
    server.go.clear()
    record = bench(agent, server, state, package)["record"]
    until(lambda: server.asked, "it asks")
    assert server.keys == {"Bearer tops3cret"}
    assert record["env"] == ["OPENAI_API_KEY", "PYTHONPATH", "STANDIN_ROW"]
    (child,) = [int(pid) for pid in Path(f"/proc/{record['pid']}/task/{record['pid']}/children").read_text().split()]
    for path in [Path(f"/proc/{pid}/cmdline") for pid in (record["pid"], child)]:
        assert b"tops3cret" not in path.read_bytes()
    server.go.set()
    end(agent)
    files = [path for path in state.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"k2.json", "k2.jsonl", "k2.out", "k2.rows"}
    for path in files:
        assert b"tops3cret" not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0


def test_it_outlives_its_agent_and_the_next_one_finds_it(
    agent: AgentClient, link: BreakingLink, server: Answers, state: Path, package: Path
) -> None:
    server.go.clear()
    begun = bench(agent, server, state, package)
    until(lambda: server.asked, "it asks")
    assert os.getsid(begun["record"]["pid"]) == begun["record"]["pid"] != os.getsid(link.pid)
    agent.close()
    later = client()
    later.lock(ME)
    assert bench(later, server, state, package) == begun
    server.go.set()
    assert end(later)["code"] == 0
    assert len(server.asked) == 7
    later.close()


def test_the_end_says_how_and_the_output_is_kept(agent: AgentClient, state: Path) -> None:
    code = "import sys; print('on stdout', flush=True); sys.stderr.write('on stderr\\n'); sys.exit(3)"
    start(agent, [sys.executable, "-c", code])
    found = end(agent)
    assert (found["reason"], found["code"], found["signal"]) == ("finished", 3, None)
    assert found["seconds"] >= 0
    assert outside(agent, state) == b"on stdout\non stderr\n"


def test_stopping_the_server_ends_the_command_and_what_it_has_started(agent: AgentClient, state: Path) -> None:
    inner = f"import subprocess, time; subprocess.Popen({SLEEPER!r}); print('two', flush=True); time.sleep(60)"
    pid = start(agent, [sys.executable, "-c", inner])["record"]["pid"]
    until(lambda: outside(agent, state).count(b"\n") == 2, "both run")
    group = [int(path.name) for path in Path("/proc").glob("[0-9]*") if _group(path) == pid]
    assert len(group) == 3
    agent.call("stop", run="run-1", grace=60.0)
    assert end(agent)["signal"] == signal.SIGTERM
    until(lambda: not any(alive(each) for each in group), "all have ended")


def _group(process: Path) -> int | None:
    try:
        return os.getpgid(int(process.name))
    except OSError:
        return None


def test_a_command_that_does_not_heed_term_is_killed(agent: AgentClient, state: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    start(agent, [sys.executable, "-c", code])
    until(lambda: outside(agent, state) == b"deaf\n", "it ignores TERM")
    assert agent.call("load_stop", id="k2", run="run-1", grace=0.2) == {"how": "kill", "state": "dead"}


def test_a_command_that_cannot_be_started_leaves_nothing_and_may_be_tried_again(agent: AgentClient) -> None:
    with pytest.raises(AgentFailure, match="the load did not begin: FileNotFoundError") as refused:
        start(agent, ["/nowhere/python3", "-m", "sglang.bench_serving"])
    assert refused.value.code == "load-failed"
    start(agent, [sys.executable, "-c", "pass"])
    assert end(agent)["code"] == 0


def test_another_command_of_that_name_and_a_second_load_are_refused(agent: AgentClient) -> None:
    start(agent, SLEEPER)
    with pytest.raises(AgentFailure) as refused:
        start(agent, [*SLEEPER, "more"])
    assert refused.value.code == "load-exists"
    with pytest.raises(AgentFailure) as refused:
        agent.call("load_command", id="k3", run="run-1", command=SLEEPER, env={}, cwd="/")
    assert refused.value.code == "load-running"


def test_a_command_needs_the_lock() -> None:
    unlocked = client()
    with pytest.raises(AgentFailure) as refused:
        start(unlocked, SLEEPER)
    assert refused.value.code == "not-locked"
    unlocked.close()


@pytest.mark.parametrize(
    "python", [path for version, path in interpreters().items() if version in ("3.8", "3.9", "3.13")]
)
def test_old_and_new_pythons_run_a_command(python: str) -> None:
    agent = client(python=python)
    agent.lock(ME)
    start(agent, [sys.executable, "-c", "import sys; sys.exit(7)"])
    assert end(agent)["code"] == 7
    agent.close()
