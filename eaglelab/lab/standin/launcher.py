"""`python -m sglang.launch_server` on the lab host: processes, readiness, signals.

The HTTP port opens once every scheduler has loaded; then comes the warm-up request, then the ready line. Signals do
what they do to SGLang (see `_Server`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import multiprocessing as mp
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from . import logs
from .args import Release, ServerArgs, UsageError, parse, read_config
from .engine import Engine
from .nodes import check_nodes, local_ranks
from .process import run_detokenizer, run_scheduler
from .routes import Routes
from .settings import Settings
from .spec import resolve
from .web import Reply, WebRequest, serve_connection

__all__ = ["main"]

logger = logging.getLogger(__name__)

WAITS_FOR_NODE_0 = (0, 5, 21)
"""From this release on SIGTERM does not end a node above 0."""


@dataclass
class _Children:
    """The processes under the launcher. Killing is by process object, so never a stranger's pid."""

    processes: list[BaseProcess] = field(default_factory=list)

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()

    def kill_all_and_self(self) -> None:
        """SGLang's `kill_process_tree`: the children, then this process, by SIGKILL."""
        self.kill()
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def _start(children: _Children, args: ServerArgs, release: Release) -> list[Connection]:
    """Start this node's schedulers and the detokenizer; the pipes to the schedulers, the lowest rank first."""
    spawn = mp.get_context("spawn")
    ranks = local_ranks(args)
    links = [spawn.Pipe(duplex=False) for _ in ranks[1:]]
    pipes = []
    for at, rank in enumerate(ranks):
        ours, theirs = spawn.Pipe()
        upstream = links[at - 1][0] if at else None
        followers = [] if at else [sender for _, sender in links]
        process = spawn.Process(
            target=run_scheduler,
            args=(args, release, rank, theirs, upstream, followers),
            name=f"scheduler_{rank}",
            daemon=True,
        )
        process.start()
        theirs.close()
        children.processes.append(process)
        pipes.append(ours)
    if args.node_rank > 0:  # no tokenizer, no detokenizer there
        return pipes
    ours, theirs = spawn.Pipe()
    detokenizer = spawn.Process(target=run_detokenizer, args=(theirs,), name="detokenizer", daemon=True)
    detokenizer.start()
    theirs.close()
    children.processes.append(detokenizer)
    pipes.append(ours)
    return pipes


def _await_ready(process: BaseProcess, pipe: Connection, rank: int, release: Release) -> int:
    """Wait for a scheduler's `ready`; the size of its KV cache in tokens.

    Raises:
        EOFError, RuntimeError: it died while it loaded (in the words of the release).
    """
    try:
        return int(pipe.recv()["max_total_num_tokens"])
    except (EOFError, ConnectionResetError):
        process.join()
        if release >= (0, 5, 10):
            raise RuntimeError(
                f"Rank {rank} scheduler died during initialization (exit code: {process.exitcode}). "
                "If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. "
                "Run `dmesg -T | grep -i oom` to check."
            ) from None
        logger.error(f"Rank {rank} scheduler is dead. Please check if there are relevant logs.")
        logger.error(f"Exit code: {process.exitcode}")
        raise


class _Server:
    """The serving phase. SIGTERM drains and then kills the tree, SIGQUIT kills it at once, SIGINT ends the server."""

    def __init__(self, args: ServerArgs, release: Release, routes: Routes, engine: Engine, children: _Children) -> None:
        self._args, self._release, self._routes, self._engine, self._children = args, release, routes, engine, children

    async def run(self, warmup_seconds: float, drain_poll: float) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        drain = asyncio.Event()
        loop.add_signal_handler(signal.SIGINT, stop.set)
        loop.add_signal_handler(signal.SIGTERM, self._on_sigterm, drain)
        loop.add_signal_handler(signal.SIGQUIT, self._on_sigquit)
        self._engine.attach()
        _uvicorn(f"Started server process [{os.getpid()}]")
        _uvicorn("Waiting for application startup.")
        _uvicorn("Application startup complete.")
        serve = functools.partial(serve_connection, handler=self._routes)
        # whatever --host says: nothing of a lab is reachable from outside
        server = await asyncio.start_server(serve, "127.0.0.1", self._args.port, limit=1 << 20)
        _uvicorn(f"Uvicorn running on http://{self._args.host}:{self._args.port} (Press CTRL+C to quit)")
        helpers = [
            asyncio.create_task(self._warm_up(warmup_seconds)),
            asyncio.create_task(self._drain(drain, drain_poll)),
        ]
        if self._release >= (0, 5, 10):
            helpers.append(asyncio.create_task(self._watch_children()))
        await stop.wait()
        _uvicorn("Shutting down")
        server.close()

    def _on_sigterm(self, drain: asyncio.Event) -> None:
        logger.warning("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self._routes.status = "stopping"
        drain.set()

    def _on_sigquit(self) -> None:
        logger.error("SIGQUIT received. signum=3, frame=None. It usually means one child failed.")
        self._children.kill_all_and_self()

    async def _warm_up(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        key = {"authorization": f"Bearer {self._args.api_key}"} if self._args.api_key else {}
        if not self._args.skip_server_warmup:
            body = b'{"text": "The capital city of France is", "sampling_params": {"max_new_tokens": 8}}'
            await self._routes(WebRequest("GET", "/get_model_info", key))
            await self._routes(WebRequest("POST", "/generate", key, body))
        if self._routes.status == "starting":
            self._routes.status = "up"
        logger.info("The server is fired up and ready to roll!")

    async def _drain(self, drain: asyncio.Event, poll: float) -> None:
        await drain.wait()
        while True:
            if os.environ.get("SGL_FORCE_SHUTDOWN", "").lower() in ("1", "true"):
                logger.error("Signal SIGTERM received while force shutdown flag set. Force exiting.")
                break
            rids = self._engine.unfinished
            logger.info(
                f"Gracefully exiting... Remaining number of requests {len(rids)}. "
                f"Remaining requests remaining_rids={rids}."
            )
            if not rids:
                break
            await asyncio.sleep(poll)
        self._children.kill_all_and_self()

    async def _watch_children(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for process in self._children.processes:
                if process.exitcode is not None:
                    logger.error(
                        f"Subprocess {process.name} (pid={process.pid}) crashed with exit code {process.exitcode}."
                    )
                    os.kill(os.getpid(), signal.SIGQUIT)
                    return


def _uvicorn(text: str) -> None:
    sys.stderr.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] INFO:     {text}\n")
    sys.stderr.flush()


def _launch(args: ServerArgs, release: Release, version: str, children: _Children) -> None:
    settings = Settings()
    config = read_config(args.model_path)
    args, warnings = resolve(args, release, os.environ)
    check_nodes(args)
    logs.configure(args)
    for warning in warnings:
        logger.warning(warning)
    logger.info(f"server_args={args}")
    logger.warning(
        f"simulated GPU: all times reported are of a clock {settings.clock_rate:g} times as fast as this one"
    )

    def killed_while_loading(_signum: int, _frame: object) -> None:
        logger.error("Received sigquit from a child process. It usually means the child failed.")
        children.kill_all_and_self()

    signal.signal(signal.SIGQUIT, killed_while_loading)
    pipes = _start(children, args, release)
    if args.node_rank > 0:
        _stand_by(args, release, children, pipes)
        return
    engine = Engine(pipes[0])
    for at, rank in enumerate(local_ranks(args)):
        engine.max_total_num_tokens = _await_ready(children.processes[at], pipes[at], rank, release)
    routes = Routes(args, release, version, engine, config, settings.clock_rate)
    server = _Server(args, release, routes, engine, children)
    asyncio.run(server.run(settings.load_times(args.load_seconds)[1], 5.0 / settings.clock_rate))


def _stand_by(args: ServerArgs, release: Release, children: _Children, pipes: list[Connection]) -> None:
    """What a node above 0 does: nothing but to answer "healthy", until its schedulers have ended.

    SIGTERM ends it like any process; a newer release waits for node 0 to end all of them.
    """
    for at, rank in enumerate(local_ranks(args)):
        _await_ready(children.processes[at], pipes[at], rank, release)
    if release >= (0, 4, 3):
        threading.Thread(target=asyncio.run, args=(_dummy_health(args.port),), daemon=True).start()
    if release >= WAITS_FOR_NODE_0:

        def wait_for_node_0(_signum: int, _frame: object) -> None:
            logger.warning(
                f"SIGTERM received on node_rank {args.node_rank}; waiting for the rank-0 ShutdownReq broadcast to stop "
                "the schedulers."
            )

        signal.signal(signal.SIGTERM, wait_for_node_0)
    for process in children.processes:
        process.join()
        logger.error(f"Scheduler or DataParallelController {process.pid} terminated with {process.exitcode}")


async def _dummy_health(port: int) -> None:
    async def healthy(request: WebRequest) -> Reply:
        return Reply(200 if request.path in ("/ping", "/health", "/health_generate") else 404)

    server = await asyncio.start_server(functools.partial(serve_connection, handler=healthy), "127.0.0.1", port)
    await server.serve_forever()


def main(argv: Sequence[str], version: str) -> int:
    """Run the server of `version` with this command line until a signal ends it."""
    try:
        args = parse(argv)
    except UsageError as error:
        sys.stderr.write(
            f"usage: launch_server.py [-h] --model-path MODEL_PATH ...\nlaunch_server.py: error: {error}\n"
        )
        return 2
    children = _Children()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            _launch(args, Release.of(version), version, children)
    finally:
        children.kill()
    return 0
