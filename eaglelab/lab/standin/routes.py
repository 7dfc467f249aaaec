"""SGLang's endpoints, with its status codes and shapes, in front of the engine."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

from .args import Release, ServerArgs
from .engine import Engine
from .web import Reply, WebRequest

__all__ = ["Routes"]

logger = logging.getLogger(__name__)

HEALTH_TIMEOUT = 20.0
OPEN_PATHS = ("/health", "/health_generate")
DEPRECATED = {"/get_model_info": "/model_info", "/get_server_info": "/server_info"}


class Routes:
    """The application: a handler a path. `status` is `starting`, `up` or `stopping`."""

    def __init__(
        self,
        args: ServerArgs,
        release: Release,
        version: str,
        engine: Engine,
        config: dict[str, Any],
        clock_rate: float,
    ) -> None:
        self._args, self._release, self._version, self._engine = args, release, version, engine
        self._config = config
        self._clock_rate = clock_rate
        self.status = "starting"
        self._handlers: dict[str, Callable[[WebRequest], Awaitable[Reply]]] = {
            "/health": self._health,
            "/health_generate": self._health,
            "/generate": self._generate,
            "/v1/models": self._models,
            "/get_model_info": self._model_info,
            "/get_server_info": self._server_info,
            "/flush_cache": self._flush_cache,
        }
        if release >= (0, 4, 6):
            self._handlers["/abort_request"] = self._abort
        if release >= (0, 5, 6):
            self._handlers["/model_info"] = self._model_info
            self._handlers["/server_info"] = self._server_info
        if args.enable_metrics:
            self._handlers["/metrics"] = self._metrics

    async def __call__(self, request: WebRequest) -> Reply:
        """Answer and write uvicorn's access line to stdout."""
        reply = await self._answer(request)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        line = f'{request.peer} - "{request.method} {request.path} HTTP/1.1" {reply.status} {HTTPStatus(reply.status).phrase}'
        sys.stdout.write(f"[{stamp}] INFO:     {line}\n")
        sys.stdout.flush()
        return reply

    async def _answer(self, request: WebRequest) -> Reply:
        handler = self._handlers.get(request.path)
        if handler is None:
            return Reply.of_json({"detail": "Not Found"}, 404)
        key = self._args.api_key
        if key and request.path not in OPEN_PATHS and request.headers.get("authorization") != f"Bearer {key}":
            return Reply.of_json({"error": "Unauthorized"}, 401)
        if request.path in DEPRECATED and self._release >= (0, 5, 6):
            logger.warning(
                f"Endpoint '{request.path}' is deprecated and will be removed in a future version. "
                f"Please use '{DEPRECATED[request.path]}' instead."
            )
        try:
            return await handler(request)
        except (ValueError, TypeError, AttributeError) as error:
            logger.error(f"[http_server] Error: {error}")
            return Reply.of_json({"error": {"message": str(error)}}, 400)

    async def _health(self, request: WebRequest) -> Reply:
        if self.status == "stopping":
            logger.info("Health check request received during shutdown. Returning 503.")
            return Reply(503)
        if self.status == "starting" and (self._release >= (0, 5, 1) or request.path != "/health"):
            return Reply(503)
        if request.path == "/health" and self._release < (0, 4, 10):
            return Reply(200)
        began = time.monotonic()
        probe = asyncio.create_task(self._one_token(f"HEALTH_CHECK_{time.time()}"))
        try:
            while time.monotonic() < began + HEALTH_TIMEOUT:
                await asyncio.sleep(1.0 / self._clock_rate)
                if self._engine.last_output > began:
                    return Reply(200)
        finally:
            probe.cancel()
        logger.error(
            "Health check failed. Server couldn't get a response from detokenizer for last "
            f"{HEALTH_TIMEOUT:.0f} seconds."
        )
        return Reply(503)

    async def _one_token(self, rid: str) -> None:
        body = {"input_ids": [0], "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}
        async with aclosing(self._engine.generate(body, rid, stream=False)) as outputs:
            async for _ in outputs:
                pass

    async def _generate(self, request: WebRequest) -> Reply:
        body = request.json()
        if body.get("text") is None and body.get("input_ids") is None:
            raise ValueError("Either text, input_ids or input_embeds should be provided.")
        prompts = self._split(body)
        if body.get("stream"):
            rid = str(body.get("rid") or uuid.uuid4().hex)
            return Reply(200, content_type="text/event-stream", stream=self._events(prompts[0], rid))
        answers = await asyncio.gather(*(self._whole(prompt) for prompt in prompts))
        batched = isinstance(body.get("text"), list) or isinstance((body.get("input_ids") or [0])[0], list)
        return Reply.of_json(answers if batched else answers[0])

    @staticmethod
    def _split(body: dict[str, Any]) -> list[dict[str, Any]]:
        """One body a prompt: `text` and `input_ids` may hold several, and `rid` one for each."""
        text, ids = body.get("text"), body.get("input_ids")
        several = text if isinstance(text, list) else ids if ids and isinstance(ids[0], list) else None
        if several is None:
            return [body]
        if body.get("stream"):
            raise ValueError("The stand-in streams one prompt a request.")
        name = "text" if several is text else "input_ids"
        rids: Any = body.get("rid")
        if not isinstance(rids, list):
            rids = [None] * len(several)
        return [{**body, name: prompt, "rid": rid} for prompt, rid in zip(several, rids, strict=True)]

    async def _whole(self, body: dict[str, Any]) -> dict[str, Any]:
        rid = str(body.get("rid") or uuid.uuid4().hex)
        last: dict[str, Any] = {}
        async with aclosing(self._engine.generate(body, rid, stream=False)) as outputs:
            async for output in outputs:
                last = output
        return last

    async def _events(self, body: dict[str, Any], rid: str) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self._engine.generate(body, rid, stream=True)) as outputs:
                async for output in outputs:
                    yield b"data: " + json.dumps(output).encode() + b"\n\n"
        except ValueError as error:
            logger.error(f"[http_server] Error: {error}")
            yield b"data: " + json.dumps({"error": {"message": str(error)}}).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"

    async def _models(self, _request: WebRequest) -> Reply:
        name = self._args.served_model_name
        card = {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "max_model_len": self._config.get("max_position_embeddings"),
        }
        return Reply.of_json({"object": "list", "data": [card]})

    async def _model_info(self, _request: WebRequest) -> Reply:
        return Reply.of_json(
            {
                "model_path": self._args.model_path,
                "tokenizer_path": self._args.model_path,
                "is_generation": True,
                "weight_version": "default",
                "model_type": self._config.get("model_type"),
                "architectures": self._config.get("architectures"),
            }
        )

    async def _server_info(self, _request: WebRequest) -> Reply:
        state = await self._engine.ask("internal_state")
        return Reply.of_json(
            {
                **self._args.as_dict(),
                "status": "ready",
                "max_total_num_tokens": self._engine.max_total_num_tokens,
                "internal_states": [{**self._args.as_dict(), **state}],
                "version": self._version,
                "simulated": {"label": "simulated GPU", "clock_rate": self._clock_rate},
            }
        )

    async def _flush_cache(self, _request: WebRequest) -> Reply:
        success = await self._engine.ask("flush_cache")
        text = (
            "Cache flushed.\nPlease check backend logs for more details. "
            "(When there are running or waiting requests, the operation will not be performed.)\n"
        )
        return Reply(200 if success else 400, text.encode())

    async def _abort(self, request: WebRequest) -> Reply:
        body = request.json()
        self._engine.abort(str(body.get("rid", "")), bool(body.get("abort_all", False)))
        return Reply(200)

    async def _metrics(self, _request: WebRequest) -> Reply:
        gauges = await self._engine.ask("gauges")
        label = f'{{model_name="{self._args.served_model_name}"}}'
        values = {"num_running_reqs": len(self._engine.unfinished), **gauges}
        lines = (f"# TYPE sglang:{name} gauge\nsglang:{name}{label} {float(value)}\n" for name, value in values.items())
        return Reply(200, "".join(lines).encode(), "text/plain; version=0.0.4; charset=utf-8")
