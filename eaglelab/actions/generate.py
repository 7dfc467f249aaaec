"""generate and measure: requests sent from the host itself, so that the SSH link is in no figure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from eaglelab.actions.base import Action, Arguments
from eaglelab.actions.marks import identity
from eaglelab.context import Context
from eaglelab.errors import HostError
from eaglelab.profile.bench import BENCH_DEFINITIONS, BenchResult, RequestSample, summarise_bench
from eaglelab.remote.hints import AgentFailure
from eaglelab.server.prompts import as_request, prompt
from eaglelab.server.setting import setting_name

__all__ = ["GENERATE", "MEASURE", "UNMEASURED", "flush_probe", "to_sample"]

UNMEASURED = "p=0/"
"""A request whose id begins so is left alone by the probe: measured and unmeasured rounds share one load."""

_IDLE_BEFORE_FLUSH_S = 0.3
"""After this pause on the server's clock (its limit is 0.25 s) the probe writes out what it holds as soon as the next prompt comes in."""


class GenerateArguments(Arguments):
    """One request. `silence`: seconds without a token after which it has failed."""

    prompt: str | None = None
    max_new_tokens: Annotated[int, Field(ge=1)] = 1000
    temperature: Annotated[float, Field(ge=0)] = 0.0
    silence: Annotated[float, Field(gt=0)] = 120.0


class MeasureArguments(Arguments):
    """`num_prompts` requests of `output_len` tokens, one after another, after `warmup` more that are not counted.

    Where the probe is on, each request is sent twice, unmeasured and measured in turn: throughput is ranked by the
    unmeasured ones, and the difference is the probe's own cost.
    """

    num_prompts: Annotated[int, Field(ge=1)] = 6
    output_len: Annotated[int, Field(ge=2)] = 256
    warmup: Annotated[int, Field(ge=0)] = 1
    temperature: Annotated[float, Field(ge=0)] = 0.0
    probed: bool = True
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


def to_sample(answer: Mapping[str, Any], clock_rate: float) -> RequestSample:
    """An agent's answer as a sample, in seconds of the server's own clock (wall time x `clock_rate`)."""
    times = [at * clock_rate for at, _ in answer["chunks"]]
    meta = answer["meta_info"]
    return RequestSample(
        tokens=meta["completion_tokens"],
        ttft_s=times[0],
        e2e_s=times[-1],
        itl_s=tuple(after - before for before, after in itertools.pairwise(times)),
        verifies=meta.get("spec_verify_ct") or None,
    )


def flush_probe(context: Context) -> None:
    """A prompt after a pause makes the probe write out its unfinished block; one token needs no decode cycle."""
    if context.found.probe_folder is None:
        return
    context.sleep(_IDLE_BEFORE_FLUSH_S / context.clock_rate)
    _ask(context, "Hello", f"{UNMEASURED}flush-{context.run}", 1, 0.0, 60.0)


def _generate(context: Context, args: GenerateArguments) -> dict[str, Any]:
    rid = f"eaglelab-{context.run}{_again(context)}"
    answer = _ask(context, _prompt(args), rid, args.max_new_tokens, args.temperature, args.silence)
    context.bundle.json("generate.json", answer)
    sample = to_sample(answer, context.clock_rate)
    if sample.tokens < args.max_new_tokens:
        raise HostError(
            f"only {sample.tokens} of {args.max_new_tokens} tokens came back ({json.dumps(answer['meta_info'].get('finish_reason'))})",
            where=context.host.name,
            hint="see generate.json in the bundle",
        )
    flush_probe(context)
    label = f" ({context.simulated})" if context.simulated else ""
    context.say.line(
        f"  {sample.tokens} tokens in {sample.e2e_s:.2f} s: {sample.tokens / sample.e2e_s:.1f} tok/s, first token after {sample.ttft_s * 1000:.0f} ms{label}"
    )
    return {
        "tokens": sample.tokens,
        "seconds": round(sample.e2e_s, 3),
        "tok_s": round(sample.tokens / sample.e2e_s, 2),
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


def _measure(context: Context, args: MeasureArguments) -> dict[str, Any]:
    answers = kept_answers(context, args) if context.resumed else {}
    asked = requests_of(args)
    if all(name in answers for name in asked):
        context.say.line(f"  all {len(asked)} requests are in the bundle from before")
    else:
        if answers:
            context.say.line(f"  {len(answers)} of {len(asked)} requests are in the bundle from before")
        _warm_up(context, args)
    for number, name in asked:
        if (number, name) in answers:
            continue
        context.say.progress(f"request {number + 1} of {args.num_prompts}, probe {name}")
        rid = f"{UNMEASURED if name == 'off' else ''}eaglelab-{number}-{context.run}{_again(context)}"
        answer = _ask(context, prompt(number), rid, args.output_len, args.temperature, args.silence)
        answers[number, name] = answer
        context.bundle.json(_file_of(context, number, name), {**answer, "asked": _asked(context, args, number)})
    flush_probe(context)
    return _summary(context, args, answers)


def requests_of(args: MeasureArguments) -> list[tuple[int, str]]:
    """Number and probe (`off` or `on`) of each request, in the order in which they are sent.

    In turn, and each first as often as second: a drift of the machine falls on both alike.
    """
    rounds = ("off", "on") if args.probed else ("off",)
    return [
        (number, name)
        for number in range(args.num_prompts)
        for name in (rounds if number % 2 == 0 else reversed(rounds))
    ]


def _warm_up(context: Context, args: MeasureArguments) -> None:
    for number in range(args.warmup):
        context.say.progress(f"warm-up {number + 1} of {args.warmup}")
        rid = f"{UNMEASURED}warm-up-{number}-{context.run}{_again(context)}"
        _ask(context, prompt(-1 - number), rid, args.output_len, args.temperature, args.silence)


def _file_of(context: Context, number: int, name: str) -> str:
    return f"requests/{setting_name(context.found.steps)}-{number:03d}-{name}.json"


def _asked(context: Context, args: MeasureArguments, number: int) -> dict[str, Any]:
    """All that a figure depends on: what was asked for, and the setting of the server that was asked."""
    return {
        "number": number,
        "output_len": args.output_len,
        "temperature": args.temperature,
        "fingerprint": (context.found.record or {}).get("fingerprint"),
    }


def kept_answers(context: Context, args: MeasureArguments) -> dict[tuple[int, str], dict[str, Any]]:
    """Answers in the bundle, by number and probe, that a server of the same setting gave to the same requests."""
    found = {}
    for number, name in requests_of(args):
        answer = context.bundle.read(_file_of(context, number, name))
        asked = _asked(context, args, number)
        if answer is not None and asked["fingerprint"] is not None and answer.get("asked") == asked:
            found[number, name] = answer
    return found


def _summary(
    context: Context, args: MeasureArguments, answers: Mapping[tuple[int, str], Mapping[str, Any]]
) -> dict[str, Any]:
    steps = context.found.steps
    results = {
        name: BenchResult(
            steps=steps,
            batch=1,
            requests=[to_sample(answers[number, name], context.clock_rate) for number in range(args.num_prompts)],
            profiled=name == "on",
        )
        for name in (("off", "on") if args.probed else ("off",))
    }
    context.found.bench.extend(results.values())
    summaries = {name: summarise_bench(measured) for name, measured in results.items()}
    result = {name: summary.to_json() for name, summary in summaries.items()}
    context.bundle.json(
        f"bench-{setting_name(steps)}.json",
        {"definitions": BENCH_DEFINITIONS, "simulated": context.simulated, **result},
    )
    rate = summaries["off"].tok_s
    context.say.line(
        f"  {args.num_prompts} requests of {args.output_len} tokens: {rate.mean:.1f} tok/s"
        if rate
        else "  no request gave a token"
    )
    return {"steps": steps, **result}


def _measure_holds(context: Context, args: MeasureArguments, _: Mapping[str, Any]) -> bool:
    answers = kept_answers(context, args)
    holds = len(answers) == len(requests_of(args))
    if holds:
        _summary(context, args, answers)
    return holds


def _generate_preview(context: Context, args: GenerateArguments) -> dict[str, Any]:
    context.say.line(f"  would ask for {args.max_new_tokens} tokens")
    return {}


def _measure_preview(context: Context, args: MeasureArguments) -> dict[str, Any]:
    context.say.line(
        f"  would send {args.num_prompts} requests of {args.output_len} tokens"
        + (", each with and without the probe" if args.probed else "")
    )
    return {}


GENERATE = Action(
    "generate",
    GenerateArguments,
    "one request, streamed and timed on the host",
    _generate,
    _generate_preview,
    holds=_generate_holds,
)
MEASURE = Action(
    "measure",
    MeasureArguments,
    "a series of requests, with and without the probe in turn",
    _measure,
    _measure_preview,
    holds=_measure_holds,
)
