"""wait: until the server has given one real token, saying meanwhile what it is doing."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from eaglelab.actions.asking import server_info
from eaglelab.actions.base import Action, NoArguments
from eaglelab.actions.marks import mark_beginning
from eaglelab.context import Context, LogMark
from eaglelab.errors import HostError
from eaglelab.report.ahead import load_ahead
from eaglelab.server.prompts import as_request
from eaglelab.server.readiness import Budgets, Look, State, Waiting, wait_until_ready

__all__ = ["WAIT", "expected_load", "read_server_info"]


class _HostProbe:
    def __init__(self, context: Context, mark: LogMark) -> None:
        self._context = context
        self._mark = mark

    def _http(self, method: str, path: str, body: dict[str, Any] | None, timeout: float) -> dict[str, Any]:
        context = self._context
        return context.client.call(
            "http",
            silence=timeout + 20,
            host=context.server_address,
            port=context.port,
            method=method,
            path=path,
            body=body,
            key=context.api_key,
            timeout=timeout,
        )

    def poll(self, offset: int) -> tuple[Mapping[str, Any], bytes]:
        context = self._context
        http = {
            "host": context.server_address,
            "port": context.port,
            "path": "/health",
            "key": context.api_key,
            "timeout": 5.0,
        }
        mark = self._mark
        answer, written = context.client.call_bytes(
            "poll", path=mark.path, offset=offset, inode=mark.inode, before=mark.before, http=http
        )
        # A rotation moves the log away from its path; the server goes on writing where it began.
        self._mark = LogMark(mark.path, offset, answer["inode"] or None, answer["before"])
        self._must_come(str(answer.get("queued") or ""))
        found = context.found
        found.address, found.port = answer.get("address"), answer.get("port")
        found.node, found.gpus = answer.get("node"), tuple(answer.get("gpus") or ())
        found.waited = answer.get("waited")
        return answer, written

    def _must_come(self, queued: str) -> None:
        """A job that is bound to a node which is down or drained would wait for as long as a person takes to mend it."""
        node = self._context.start_options.get("nodelist")
        if node and "UnavailableNodes" in queued:
            raise HostError(
                f"node {node} is not available any more: {queued}",
                where=self._context.host.name,
                hint="invoke sweep --resume last goes on once it is back",
            )

    def one_token(self) -> str | None:
        # First whether it has a tokenizer: a text that it cannot take stays with it as a request that never ends, and
        # its shutdown then waits for that request.
        if not self._context.found.server_info:
            read_server_info(self._context)
        request = as_request("Hello", self._context.found.server_info)
        sampling = {"max_new_tokens": 1, "temperature": 0}
        answer = self._http("POST", "/generate", {**request, "sampling_params": sampling}, 60.0)
        body = answer.get("body")
        if answer.get("status") != 200 or not isinstance(body, dict):
            return f"/generate says {answer.get('status') or answer.get('error')}"
        return None if body.get("meta_info", {}).get("completion_tokens", 0) >= 1 else "/generate gave none"


def _key(context: Context) -> str:
    """Loads that take about as long as each other."""
    server = context.host.server
    nodes = f" x{server.nnodes}" if server.nnodes > 1 else ""
    return f"{server.model_path} tp{server.tp_size}{nodes}"


def expected_load(context: Context) -> float:
    """Seconds that a load should take: as the last one of this model there, else as the inventory says."""
    earlier = context.facts["loads"].get(_key(context), [])
    return float(earlier[-1] if earlier else context.host.expected_load)


def _wait(context: Context, _: NoArguments) -> dict[str, Any]:
    load_ahead()
    context.found.server_info = {}
    mark = context.log
    waiting = Waiting(
        probe=_HostProbe(context, mark),
        where=context.host.name,
        budgets=Budgets(total=context.host.ready_timeout, queued=context.host.server.slurm.queue_timeout),
        expected=expected_load(context),
        clock=context.clock,
        offset=mark.offset,
    )

    def say(look: Look) -> None:
        eta = f", about {look.eta:.0f} s left" if look.eta else ""
        state = "" if look.state is State.LOADING else f"{look.state.value}: "
        spent = look.queued if look.state is State.QUEUED else look.elapsed
        context.say.progress(f"{state}{look.doing} ({spent:.0f} s{eta})")

    ready = wait_until_ready(waiting, sleep=context.sleep, say=say)
    if context.found.started:
        with contextlib.suppress(HostError):  # an estimate for next time is not worth the load that just ended well
            context.client.call("loaded", key=_key(context), seconds=ready.elapsed)
    mark_beginning(context)  # the server's own warm-up request has been decoded too
    label = f", {context.simulated}" if context.simulated else ""
    queued = f", {ready.queued:.1f} s in the queue before it" if ready.queued else ""
    context.say.line(
        f"  ready after {ready.elapsed:.1f} s: health 200, process alive, a token came back{queued}{label}"
    )
    return {"seconds": round(ready.elapsed, 1), "queued": round(ready.queued, 1), "state": State.READY.value}


def read_server_info(context: Context) -> None:
    """Keeps what the server says of itself."""
    info = server_info(context)
    if info is not None:
        context.found.server_info = dict(info)
        context.bundle.json("server_info.json", info)


def _preview(context: Context, _: NoArguments) -> dict[str, Any]:
    context.say.line(
        f"  would wait up to {context.host.ready_timeout:.0f} s for a token (a load is expected to take {context.host.expected_load:.0f} s)"
    )
    return {}


def _follow(context: Context, _: NoArguments) -> None:
    """On a node that serves no requests: its files, too, are evidence from here on."""
    mark_beginning(context)


WAIT = Action(
    "wait",
    NoArguments,
    "wait until the server has given a real token",
    _wait,
    _preview,
    nodes="first",
    follow=_follow,
)
