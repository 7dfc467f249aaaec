"""generate: one request, sent from the host itself, so that the SSH link is in no figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from eaglelab.actions.base import Action, Arguments
from eaglelab.actions.marks import identity
from eaglelab.context import Context
from eaglelab.errors import HostError
from eaglelab.remote.hints import AgentFailure
from eaglelab.server.prompts import as_request, prompt
from eaglelab.server.workload import request_id

__all__ = ["GENERATE", "flush_probe"]

_IDLE_BEFORE_FLUSH_S = 1.0
"""After this pause on the server's clock the probe writes out what it holds as soon as the next prompt comes in.

Its limit is 0.25 s, or two cycles of a model that is slower."""


class GenerateArguments(Arguments):
    """One request. `silence`: seconds without a token after which it has failed."""

    prompt: str | None = None
    max_new_tokens: Annotated[int, Field(ge=1)] = 1000
    temperature: Annotated[float, Field(ge=0)] = 0.0
    silence: Annotated[float, Field(gt=0)] = 120.0


def _ask(context: Context, text: str, rid: str, tokens: int, temperature: float, silence: float) -> dict[str, Any]:
    def news(beat: Mapping[str, Any]) -> None:
        context.say.progress(f"{beat['tokens']} of {tokens} tokens")

    body = {
        **as_request(text, context.found.server_info),
        "rid": rid,
        "sampling_params": {"max_new_tokens": tokens, "temperature": temperature, "ignore_eos": True},
    }
    try:
        return context.client.call(
            "generate",
            silence=silence + 20,
            news=news,
            host=context.server_address,
            port=context.port,
            body=body,
            key=context.api_key,
            timeout=silence,
        )
    except AgentFailure as error:
        hint = f"{context.invoke('logs')} shows what the server says"
        raise HostError(f"request {rid} failed: {error.what}", where=context.host.name, hint=hint) from error


def flush_probe(context: Context) -> None:
    """A prompt after a pause makes the probe write out its unfinished block; one token needs no decode cycle."""
    if context.found.probe_folder is None:
        return
    context.sleep(_IDLE_BEFORE_FLUSH_S / context.clock_rate)
    _ask(context, "Hello", request_id(f"flush-{context.run}", measured=False), 1, 0.0, 60.0)


def _generate(context: Context, args: GenerateArguments) -> dict[str, Any]:
    rid = f"eaglelab-{context.run}{_again(context)}"
    answer = _ask(context, _prompt(args), rid, args.max_new_tokens, args.temperature, args.silence)
    context.bundle.json("generate.json", answer)
    tokens = int(answer["meta_info"]["completion_tokens"])
    first, last = (answer["chunks"][at][0] * context.clock_rate for at in (0, -1))  # by the server's own clock
    if tokens < args.max_new_tokens:
        raise HostError(
            f"only {tokens} of {args.max_new_tokens} tokens came back ({json.dumps(answer['meta_info'].get('finish_reason'))})",
            where=context.host.name,
            hint="see generate.json in the bundle",
        )
    flush_probe(context)
    label = f" ({context.simulated})" if context.simulated else ""
    context.say.line(
        f"  {tokens} tokens in {last:.2f} s: {tokens / last:.1f} tok/s, first token after {first * 1000:.0f} ms{label}"
    )
    return {
        "tokens": tokens,
        "seconds": round(last, 3),
        "tok_s": round(tokens / last, 2),
        "server": identity(context.found.record),
    }


def _prompt(args: GenerateArguments) -> str:
    return args.prompt or prompt(0)


def _again(context: Context) -> str:
    """A server may refuse a request id that it has seen: its first request may be at work still."""
    return f"-{context.resumed}" if context.resumed else ""


def _generate_holds(context: Context, _: GenerateArguments, result: Mapping[str, Any]) -> bool:
    """The server that answered is still the one at hand, so that its log and the probe's records fit the answer."""
    server = identity(context.found.record)
    return server is not None and result.get("server") == server and context.bundle.read("generate.json") is not None


def _generate_preview(context: Context, args: GenerateArguments) -> dict[str, Any]:
    context.say.line(f"  would ask for {args.max_new_tokens} tokens")
    return {}


GENERATE = Action(
    "generate",
    GenerateArguments,
    "one request, streamed and timed on the host",
    _generate,
    _generate_preview,
    holds=_generate_holds,
    nodes="first",
)
