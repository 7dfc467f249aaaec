"""A tiny stand-in for `python -m sglang.launch_server`: stdlib only, up in a fifth of a second, and as sick as asked.

`~/sick.json` on its host says what is wrong with it: {"how": NAME, "at": PHASE}. It loads in phases with SGLang's own
lines, has a scheduler as a child, answers /health, /server_info and /generate, and writes the probe's line and records
if the worker that lies beside it carries the patch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PHASES = {
    "spawn": "server_args=ServerArgs(simulated GPU)",
    "init": "Init torch distributed begin.",
    "weights": "Loading safetensors checkpoint shards:  50% Completed | 2/4",
    "memory": "Load weight end. elapsed=0.10 s, type=LlamaForCausalLM, avail mem=20.00 GB.",
    "graphs": "Capture cuda graph begin. This can take up to several minutes. avail mem=19.00 GB",
    "draft": "Capture draft cuda graph begin. This can take up to several minutes. avail mem=18.00 GB",
    "serve": "max_total_num_tokens=100000, chunked_prefill_size=8192, context_len=4096",
}
PHASE_S = 0.015
TOKEN_S = 0.004
RATE = 20.0
"""Of the clock it says it has: simulated seconds a second."""

WORKER = Path(__file__).parent / "srt/speculative/eagle_worker.py"
PROBED = b"# eaglelab:eagle3-profile" in WORKER.read_bytes() and os.environ.get("EAGLE3_PROFILE") == "1"


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def sickness() -> dict[str, Any]:
    file = Path.home() / "sick.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


SICK = sickness()


def is_sick(*how: str) -> bool:
    return SICK.get("how") in how


def scheduler() -> None:
    """The child: ends with its parent, unless it went its own way."""
    if is_sick("daemon", "deaf-daemon"):
        if os.fork():
            os._exit(0)
        os.setsid()
    parent = os.getppid()
    if is_sick("deaf", "deaf-daemon"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while is_sick("daemon", "deaf-daemon") or os.getppid() == parent:
        time.sleep(0.05)


def end_at(phase: str) -> None:
    """What a sickness does once its phase has come."""
    if SICK.get("at") != phase:
        return
    how = SICK["how"]
    if how == "exit":
        say("ValueError: no such quantization")
        os._exit(1)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "oom":
        say("Scheduler hit an exception: Traceback (most recent call last):")
        say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
        say("Received sigquit from a child process. It usually means the child failed.")
        os._exit(1)
    if how == "zombie":  # the launcher outlives what it reports dead
        say("Scheduler hit an exception: Traceback (most recent call last):")
        say("RuntimeError: NCCL error: unhandled system error")
    if how in ("hang", "zombie"):
        time.sleep(3600)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    served = 0
    lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, body: Any, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_GET(self) -> None:
        if self.path == "/server_info":
            self.answer({"version": "0.5.9", "simulated": {"label": "simulated GPU", "clock_rate": RATE}})
        elif is_sick("health-503"):
            self.answer({}, 503)
        elif is_sick("health-hang"):
            time.sleep(3600)
        else:
            self.answer({})

    def do_POST(self) -> None:
        if self.path == "/flush_cache":
            self.answer({})
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens = body["sampling_params"]["max_new_tokens"]
        first = tokens == 1
        if is_sick("generate-500"):
            self.answer({"error": {"message": "CUDA error: device-side assert"}}, 500)
            return
        if is_sick("generate-hang"):
            time.sleep(3600)
        if not body.get("stream"):
            self.answer({"text": " a", "meta_info": {"completion_tokens": tokens, "finish_reason": {"type": "length"}}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.stream(tokens, sick=not first)

    def stream(self, tokens: int, sick: bool) -> None:
        for token in range(1, tokens + 1):
            if sick and token == 16:
                self.fall_ill()
            time.sleep(TOKEN_S)
            reason = {"type": "length"} if token == tokens else None
            meta = {"completion_tokens": token, "finish_reason": reason, "spec_verify_ct": max(1, token // 2)}
            self.wfile.write(b"data: " + json.dumps({"text": " a", "meta_info": meta}).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")
        if PROBED:
            record()

    def fall_ill(self) -> None:
        """In the middle of a request."""
        if is_sick("dies-generating"):
            os.kill(os.getpid(), signal.SIGKILL)
        if is_sick("exits-generating"):
            say("Scheduler hit an exception: Traceback (most recent call last):")
            say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
            os._exit(1)
        if is_sick("stalls-generating"):
            time.sleep(3600)
        if is_sick("breaks-generating"):
            self.wfile.write(b'data: {"error": {"message": "aborted"}}\n\n')


def record() -> None:
    """The probe's line in the log, and one block of its records."""
    with Server.lock:
        Server.served += 1
        if Server.served == 1:
            say("EAGLE3_PROF probe 1.0.0 active: class=EAGLEWorker rank=0/1 sglang=0.5.9 clock=cuda-events")
        folder = os.environ.get("EAGLE3_PROFILE_DIR")
        if not folder:
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        cycles = 8
        times = {"draft": 0.5, "verify": 15.8, "extend": 1.3, "other": 1.0, "total": 18.6}
        lists = {phase: [value] * cycles for phase, value in times.items()}
        identity = {
            "schema": 1, "probe": "1.0.0", "sglang": "0.5.9", "class": "EAGLEWorker", "rank": 0, "world": 1,
            "pid": os.getpid(), "time": time.time(), "every": 100, "sync": False,
        }  # fmt: skip
        block = {
            "steps": 2, "batch_size": 1, "decode_cycles": cycles, "cycles": cycles, "tokens": 2 * cycles,
            "correct_hist": [2, 4, 2], "unknown": 0, "dropped": {}, "skipped": 0, "kept_tokens": [2] * cycles,
            "event_ms": lists, "host_ms": lists,
        }  # fmt: skip
        with (Path(folder) / f"rank0.{os.getpid()}.jsonl").open("a") as file:
            if Server.served == 1:
                file.write(json.dumps({"kind": "start", **identity}) + "\n")
            file.write(json.dumps({"kind": "block", **identity, **block}) + "\n")


def main(argv: list[str]) -> int:
    if "--scheduler" in argv:
        scheduler()
        return 0
    port = int(argv[argv.index("--port") + 1])
    child = subprocess.Popen([sys.executable, "-S", "-m", "sglang.launch_server", "--scheduler"])

    def end(*_: object) -> None:
        child.terminate()
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if is_sick("deaf") else end)
    for phase, line in PHASES.items():
        say(line)
        time.sleep(PHASE_S)
        end_at(phase)
    server = Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say(f"INFO:     Uvicorn running on http://127.0.0.1:{port} (Press CTRL+C to quit)")
    end_at("warm-up")
    say("The server is fired up and ready to roll!")
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
