"""A server on the lab host, through its HTTP port and its log."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from labkit import SPECULATIVE, Server, run, serving, wait_until
from serverkit import free_port

from eaglelab.lab.lab import LabInfo
from eaglelab.lab.processes import start_time

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def server(lab: LabInfo, ssh: paramiko.SSHClient) -> Iterator[Server]:
    """Two steps, the worker of 0.5.9 (v1)."""
    with serving(lab, ssh, SPECULATIVE.format(2, 3)) as running:
        yield running


def test_throughput_on_the_simulated_clock_is_that_of_the_model(server: Server) -> None:
    answer = server.generate(600)
    meta = answer["meta_info"]
    assert meta["completion_tokens"] == len(answer["output_ids"]) == 600
    assert 599 / meta["e2e_latency"] == pytest.approx(94.0, rel=0.03)
    assert meta["spec_accept_length"] == pytest.approx(1.745, rel=0.03)
    assert sum(meta["spec_accept_histogram"]) == meta["spec_verify_ct"]
    assert meta["spec_accept_token_num"] == sum(j * n for j, n in enumerate(meta["spec_accept_histogram"]))


def test_the_same_prompt_gives_the_same_text(server: Server) -> None:
    first, second = server.generate(50), server.generate(50)
    assert first["text"] == second["text"]
    assert first["output_ids"] == second["output_ids"]
    assert len(first["text"].split()) == 50


def test_a_stream_is_cumulative_and_ends_with_done(server: Server) -> None:
    sampling = {"max_new_tokens": 30, "ignore_eos": True}
    status, body = server.ask("/generate", {"text": "x", "sampling_params": sampling, "stream": True, "rid": "mine"})
    *chunks, done = [line for line in body.decode().split("\n\n") if line]
    outputs = [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]
    counts = [output["meta_info"]["completion_tokens"] for output in outputs]
    assert (status, done) == (200, "data: [DONE]")
    assert counts == sorted(set(counts))
    assert counts[-1] == len(outputs[-1]["output_ids"]) == 30
    assert {output["meta_info"]["id"] for output in outputs} == {"mine"}
    assert [output["meta_info"]["finish_reason"] for output in outputs[:-1]] == [None] * (len(outputs) - 1)


def test_several_prompts_in_one_request_give_a_list(server: Server) -> None:
    status, body = server.ask("/generate", {"text": ["a", "b"], "sampling_params": {"max_new_tokens": 5}})
    assert status == 200
    assert [answer["meta_info"]["completion_tokens"] for answer in json.loads(body)] == [5, 5]


def test_health_models_and_info_answer_as_the_release_does(server: Server) -> None:
    assert server.ask("/health")[0] == 200
    assert server.ask("/health_generate")[0] == 200
    assert json.loads(server.ask("/v1/models")[1])["data"][0]["id"].endswith("models/target")
    assert json.loads(server.ask("/model_info")[1])["architectures"] == ["LlamaForCausalLM"]
    for path in ("/get_server_info", "/server_info"):
        info = json.loads(server.ask(path)[1])
        assert info["version"] == "0.5.9"
        assert info["simulated"] == {"label": "simulated GPU", "clock_rate": 8.0}
        assert info["speculative_num_steps"] == 2
        assert info["internal_states"][0]["avg_spec_accept_length"] > 1.5
    assert server.ask("/flush_cache", method="POST")[0] == 200
    assert server.ask("/nowhere")[0] == 404
    assert server.ask("/metrics")[0] == 404


def test_a_request_without_a_prompt_is_a_bad_request(server: Server) -> None:
    status, body = server.ask("/generate", {"sampling_params": {}})
    assert status == 400
    assert "should be provided" in json.loads(body)["error"]["message"]


def test_a_client_that_goes_away_aborts_its_request(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.lab.server_port)
    sampling = {"max_new_tokens": 100_000, "ignore_eos": True}
    connection.request("POST", "/generate", json.dumps({"text": "x", "sampling_params": sampling, "stream": True}))
    connection.getresponse().read(10)
    connection.close()
    wait_until(lambda: server.ask("/flush_cache", method="POST")[0] == 200, "the end of the request")


def test_a_client_that_does_not_wait_for_its_answer_aborts_its_request(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.lab.server_port)
    body = {"text": "x", "sampling_params": {"max_new_tokens": 100_000, "ignore_eos": True}}
    connection.request("POST", "/generate", json.dumps(body))
    wait_until(lambda: server.ask("/flush_cache", method="POST")[0] == 400, "the start of the request")
    connection.close()
    wait_until(lambda: server.ask("/flush_cache", method="POST")[0] == 200, "the end of the request")


def test_the_log_tells_the_load_in_order_and_then_the_decode_lines(server: Server) -> None:
    server.generate(120)
    text = server.text()
    stages = (
        "server_args=ServerArgs(",
        "Load weight begin",
        "Load weight end",
        "Capture cuda graph end",
        "Capture draft cuda graph end",
        "max_total_num_tokens=",
        "Uvicorn running on",
        '"POST /generate HTTP/1.1" 200 OK',
        "The server is fired up and ready to roll!",
        "Decode batch, #running-req: 1",
    )
    positions = [text.index(stage) for stage in stages]
    assert positions == sorted(positions)
    assert re.search(r"accept len: 1\.\d\d, accept rate: 0\.\d\d, cuda graph: True", text)


def test_the_processes_and_the_gpu_are_seen_and_gone_after_a_kill(lab: LabInfo, ssh: paramiko.SSHClient) -> None:
    query = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits"
    with serving(lab, ssh, "--port 0 --skip-server-warmup") as plain:
        held = [line.split(b", ") for line in run(ssh, query)[1].splitlines()]
        scheduler = next(pid for pid, _ in held if parent(int(pid)) == plain.pid)
        title = Path(f"/proc/{int(scheduler)}/cmdline").read_bytes()
        assert title.startswith(b"sglang::scheduler\0")
    wait_until(lambda: scheduler not in run(ssh, query)[1], "the end of the scheduler")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_sigterm_ends_the_server_once_it_is_drained(lab: LabInfo, ssh: paramiko.SSHClient) -> None:
    with serving(lab, ssh, "--port 0 --skip-server-warmup") as server:
        run(ssh, f"kill -TERM {server.pid}")
        wait_until(lambda: not start_time(server.pid), "the end of the launcher")
        assert "SIGTERM received." in server.text()
        assert "Gracefully exiting... Remaining number of requests 0." in server.text()


def test_a_worker_that_raises_takes_the_server_down_with_its_traceback(lab: LabInfo, ssh: paramiko.SSHClient) -> None:
    worker = Path(lab.home) / "sglang/python/sglang/srt/speculative/eagle_worker.py"
    original = worker.read_bytes()
    call = b"                spec_info = self.draft(batch)\n"
    assert original.count(call) == 1
    worker.write_bytes(original.replace(call, call + b"                raise ArithmeticError('broken on purpose')\n"))
    try:
        with serving(lab, ssh, f"--port 0 {SPECULATIVE.format(2, 3)}", ready="SIGQUIT received.") as server:
            wait_until(lambda: not start_time(server.pid), "the end of the launcher")
            text = server.text()
        assert "Scheduler hit an exception: Traceback" in text
        assert "ArithmeticError: broken on purpose" in text
        assert str(worker) in text
    finally:
        worker.write_bytes(original)


def test_a_model_that_is_not_there_ends_the_launch_with_a_traceback(lab: LabInfo, ssh: paramiko.SSHClient) -> None:
    code, _, err = run(ssh, "~/ml-env/bin/python3 -m sglang.launch_server --model-path ~/models/none")
    assert code == 1
    assert b"Traceback" in err
    assert b"does not appear to have a file named config.json" in err


def test_the_port_is_closed_while_the_weights_load(lab: LabInfo, ssh: paramiko.SSHClient) -> None:
    port = free_port()
    with serving(lab, ssh, f"--port {port} --load-seconds 20", ready="Load weight begin") as server:
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) != 0
        run(ssh, f"kill -TERM {server.pid}")
        wait_until(lambda: not start_time(server.pid), "the end of the launcher")
        assert "Draining" not in server.text()
