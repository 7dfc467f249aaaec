"""Stands for SGLang's launch_server: python fake_server.py FOLDER ... --port N. What it does is in FOLDER/behaviour.json."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[1])
BEHAVIOUR = json.loads((FOLDER / "behaviour.json").read_text())
PORT = int(sys.argv[sys.argv.index("--port") + 1])


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = 200
        if self.path == "/health":
            status = BEHAVIOUR.get("health", 200)
            with (FOLDER / "looks").open("a") as looks:
                looks.write("x")
        self.answer(status, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens = body["sampling_params"]["max_new_tokens"]
        meta = {"completion_tokens": tokens, "finish_reason": {"type": "length"}}
        if body.get("stream"):
            print(BEHAVIOUR.get("canary", ""), flush=True)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"data: %s\n\ndata: [DONE]\n\n" % json.dumps({"meta_info": meta}).encode())
        elif BEHAVIOUR.get("token", True):
            self.answer(200, {"meta_info": meta})
        else:
            self.answer(500, {"error": "the scheduler is gone"})

    def answer(self, status: int, body: dict[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return


def stay(*_: object) -> None:
    """What a server that hangs makes of TERM, until the test lets go of it."""
    if (FOLDER / "let-go").exists():
        os._exit(0)


def main() -> None:
    if "ORPHAN" in os.environ:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    elif BEHAVIOUR.get("ignore_term"):
        signal.signal(signal.SIGTERM, stay)
    with (FOLDER / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    for number in range(BEHAVIOUR.get("lines", 0)):
        print(f"line {number}", flush=True)
    if BEHAVIOUR.get("tell"):
        print(sys.argv, dict(os.environ), flush=True)
    os.write(1, bytes.fromhex(BEHAVIOUR.get("raw", "")))
    for stream in (sys.stdout.buffer, sys.stderr.buffer):
        stream.write(b"x" * 99 + b"\n" if BEHAVIOUR.get("bulk") else b"")
        for _ in range(BEHAVIOUR.get("bulk", 0) // 100 - 1):
            stream.write(b"x" * 99 + b"\n")
        stream.flush()
    time.sleep(BEHAVIOUR.get("load", 0.0))
    if "die" in BEHAVIOUR:
        sys.exit(BEHAVIOUR["die"])
    if BEHAVIOUR.get("orphan") and "ORPHAN" not in os.environ:
        environment = {**os.environ, "ORPHAN": "1"}
        subprocess.Popen([sys.executable, *sys.argv], env=environment, start_new_session=True)
        time.sleep(BEHAVIOUR["orphan"])
        sys.exit(0)
    if BEHAVIOUR.get("deaf"):
        while True:
            time.sleep(0.05)
            if (FOLDER / "let-go").exists():
                sys.exit(0)
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    server.daemon_threads = True
    server.serve_forever()


main()
