"""The scheduler's process: title, death with its parent, the load, and the loop between pipe and scheduler."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import logging
import os
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from . import logs, nccl, stubs
from .acceptance import Acceptance
from .args import Release, ServerArgs, read_config
from .costs import Costs
from .device import Gpu
from .gpu import Clock, VirtualTime, cuda_namespace
from .nodes import Peers, local_ranks
from .scheduler import Scheduler, make_worker
from .settings import Settings
from .spec import worker_class

__all__ = ["run_detokenizer", "run_scheduler"]

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1


def _set_title(title: str) -> None:
    """Name the process as SGLang does, where the interpreter has setproctitle."""
    try:
        setproctitle = importlib.import_module("setproctitle")
    except ImportError:
        return
    setproctitle.setproctitle(title)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run_detokenizer(pipe: Connection) -> None:
    """A process that is there, as SGLang's is, and ends when its launcher does."""
    _die_with_parent()
    _set_title("sglang::detokenizer")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError):
        while True:
            pipe.recv()


def run_scheduler(
    args: ServerArgs,
    release: Release,
    rank: int,
    pipe: Connection,
    upstream: Connection | None,
    followers: list[Connection],
) -> None:
    """Load, say `ready`, serve until killed. An exception is logged as SGLang does and ends the whole server.

    Rank 0 holds the launcher's `pipe` and tells its `followers`, and the other nodes, what it read in each turn; a rank
    above 0 does the same turns with what it hears `upstream`, or from node 0, and tells its own `followers`.
    """
    prefix = f" TP{rank}" if args.tp_size > 1 else ""
    _die_with_parent()
    _set_title(f"sglang::scheduler{prefix.replace(' ', '_')}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logs.configure(args, prefix)
    if rank != local_ranks(args)[0]:
        logging.getLogger().setLevel(logging.ERROR)
    settings = Settings()
    memory = settings.folder / "run" / f"gpu-{os.getpid()}"
    peers = Peers(args, rank)
    try:
        _load(args, release, settings, rank, memory, peers)
        peers.meet()
        scheduler = _scheduler(args, release, settings, rank, pipe)
        pipe.send({"kind": "ready", "max_total_num_tokens": scheduler.kv_tokens})
        if rank == 0:
            _lead(scheduler, pipe, followers, peers)
        else:
            _follow(scheduler, peers.hear if upstream is None else upstream.recv, followers)
    except Exception:  # noqa: BLE001 - whatever the worker's file raises ends the server, as in SGLang
        logger.error(f"Scheduler hit an exception: {traceback.format_exc()}")
        os.kill(os.getppid(), signal.SIGQUIT)
    finally:
        memory.unlink(missing_ok=True)


def _load(args: ServerArgs, release: Release, settings: Settings, rank: int, memory: Path, peers: Peers) -> None:
    """Take the load's time, line by line, and the GPU memory from the first weights on."""
    model = settings.model
    seconds = settings.load_times(args.load_seconds)[0]
    start = time.monotonic()
    lines = logs.load_lines(
        args, release, seconds, model["kv_cache_tokens"], model["context_length"], model["weights_mib"] / 1024
    )
    for share, line in lines:
        peers.sleep(start + share * seconds - time.monotonic())
        if line.startswith("Load weight begin") and not memory.exists():
            memory.parent.mkdir(exist_ok=True)
            memory.write_text(f"{rank - local_ranks(args)[0]} {model['weights_mib']}\n", encoding="utf-8")
        logger.info(line)
        if line.startswith("Init torch distributed begin"):
            peers.join()
            start = time.monotonic()
        if line.startswith("Capture ") and "begin" in line:
            nccl.capture(os.environ, args.tp_size)
    if args.speculative_algorithm and args.speculative_draft_model_path:
        read_config(args.speculative_draft_model_path)


def _scheduler(args: ServerArgs, release: Release, settings: Settings, rank: int, pipe: Connection) -> Scheduler:
    model = settings.model
    clock = Clock(settings.clock_rate)
    acceptance = Acceptance(model["acceptance"]["seed"], tuple(model["acceptance"]["survival"]))
    gpu = Gpu(clock, Costs.of(model), acceptance)
    _simulate_torch(gpu, rank, args.tp_size)
    stubs.install().replacements["time"] = VirtualTime(clock)
    worker = make_worker(gpu, args, release, worker_class(args, release, os.environ))

    def send(message: dict[str, Any]) -> None:
        if rank == 0:
            pipe.send(message)

    return Scheduler(args, release, gpu, worker, send, model["vocabulary"], model["kv_cache_tokens"])


def _simulate_torch(gpu: Gpu, rank: int, world: int) -> None:
    """Give the stub of torch the simulated GPU and this rank's place in the group."""
    stubs.install()
    torch = importlib.import_module("torch")
    cuda, distributed = importlib.import_module("torch.cuda"), importlib.import_module("torch.distributed")
    vars(cuda).update(cuda_namespace(gpu.stream))
    vars(distributed).update(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda *_group: rank,
        get_world_size=lambda *_group: world,
    )
    vars(torch).update(cuda=cuda, distributed=distributed, get_device_module=lambda *_device: cuda)


def _lead(scheduler: Scheduler, pipe: Connection, followers: list[Connection], peers: Peers) -> None:
    clock = scheduler.gpu.clock
    while True:
        if scheduler.idle:
            peers.wait_for(pipe)
            clock.catch_up()
        messages = []
        while pipe.poll(0):
            messages.append(pipe.recv())
        for follower in followers:
            follower.send((clock.now, messages))
        peers.tell((clock.now, messages))
        _turn(scheduler, messages)


def _follow(scheduler: Scheduler, hear: Callable[[], Any], followers: list[Connection]) -> None:
    while True:
        now, messages = hear()
        for follower in followers:
            follower.send((now, messages))
        scheduler.gpu.clock.wait_until(now)
        _turn(scheduler, messages)


def _turn(scheduler: Scheduler, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        scheduler.handle(message)
    if not scheduler.idle:
        scheduler.turn()
