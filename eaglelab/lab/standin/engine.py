"""The launcher's side of the pipe: requests out, outputs in. SGLang's TokenizerManager, as far as it goes here."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Engine", "text_of"]

WORDS = """
the a of to and in is it that was for on as with by this be are from at which or an have not they one can
more time some when new our people way than into only its over these also after first work where most any
between each other through same because while under state system cycle token draft model
""".split()  # noqa: SIM905 - a list of 64 words reads worse


def text_of(tokens: list[int]) -> str:
    """Words for token ids."""
    return "".join(f" {WORDS[token % len(WORDS)]}" for token in tokens)


def _prompt_of(text: str | None, input_ids: list[int] | None) -> tuple[str, int]:
    """What makes a prompt the same prompt, and its length in tokens."""
    if input_ids is not None:
        return " ".join(map(str, input_ids)), len(input_ids)
    return text or "", max(1, len((text or "").split()))


class Engine:
    """Requests by id, each with a queue of outputs. Times of `last_output` are of `time.monotonic`."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._queues: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self.last_output = 0.0
        self.max_total_num_tokens = 0

    @property
    def unfinished(self) -> list[str]:
        return list(self._queues)

    def attach(self) -> None:
        """Read the pipe whenever the running loop sees something in it."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe.fileno(), self._on_readable, loop)

    def _on_readable(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while self._pipe.poll(0):
                self._on_message(self._pipe.recv())
        except (EOFError, ConnectionResetError):
            loop.remove_reader(self._pipe.fileno())

    def _on_message(self, message: dict[str, Any]) -> None:
        if message["kind"] == "reply":
            future = self._replies.pop(message["id"])
            if not future.done():
                future.set_result(message["value"])
            return
        self.last_output = time.monotonic()
        queue = self._queues.get(message["rid"])
        if queue is not None:
            queue.put_nowait(message)

    async def ask(self, kind: str) -> Any:
        """A question to the scheduler: `flush_cache`, `internal_state` or `gauges`."""
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._replies[number] = future
        self._pipe.send({"kind": kind, "id": number})
        return await future

    def abort(self, rid: str, everything: bool) -> None:
        self._pipe.send({"kind": "abort", "rid": rid, "abort_all": everything})

    async def generate(self, body: dict[str, Any], rid: str, stream: bool) -> AsyncGenerator[dict[str, Any], None]:
        """Outputs of one request, cumulative as SGLang's are; the last one has a finish reason.

        A consumer that stops early aborts the request.

        Raises:
            ValueError: the id is in use, or the sampling parameters are not numbers.
        """
        if rid in self._queues:
            raise ValueError(f"Duplicate request ID detected: {rid}")
        sampling = body.get("sampling_params") or {}
        prompt, prompt_tokens = _prompt_of(body.get("text"), body.get("input_ids"))
        queue = self._queues[rid] = asyncio.Queue()
        self._pipe.send(
            {
                "kind": "generate",
                "rid": rid,
                "prompt": prompt,
                "prompt_tokens": prompt_tokens,
                "max_new_tokens": max(1, int(sampling.get("max_new_tokens", 128))),
                "ignore_eos": bool(sampling.get("ignore_eos", False)),
                "stream": stream,
            }
        )
        ids: list[int] = []
        text = ""
        done = False
        try:
            while not done:
                message = await queue.get()
                ids += message["tokens"]
                text += text_of(message["tokens"])
                done = message["meta"]["finish_reason"] is not None
                yield {"text": text, "output_ids": list(ids), "meta_info": message["meta"]}
        finally:
            del self._queues[rid]
            if not done:
                self.abort(rid, False)
