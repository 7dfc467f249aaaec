"""The requests of a load, as the host is given them. Options are named as those of SGLang's bench_serving."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.errors import InputError
from eaglelab.server.arrivals import poisson_arrivals
from eaglelab.server.dataset import Prompt, built_in_prompts, parse_prompts, random_prompts
from eaglelab.server.prompts import as_request

__all__ = ["UNMEASURED", "LoadOptions", "Round", "Workload", "as_load", "choose_workload", "request_id"]

UNMEASURED = "p=0/"
"""A request whose id begins so is left alone by the probe."""


def request_id(own: str, *, steps: int | None = None, measured: bool = True) -> str:
    """`own` with the probe's prefixes: `k=N/` for the step count, `p=0/` for a request that it leaves alone."""
    return f"{'' if steps is None else f'k={steps}/'}{'' if measured else UNMEASURED}{own}"


@dataclass(frozen=True)
class LoadOptions:
    """Which prompts the user asks for, and how they are sampled. None of `num_prompts`: all of the file, or 32."""

    num_prompts: int | None = None
    prompts: str | None = None
    random_input_len: int | None = None
    random_output_len: int | None = None
    random_range_ratio: float = 0.0
    output_len: int | None = None
    temperature: float = 0.0
    seed: int = 42

    def __post_init__(self) -> None:
        for flag, value in (
            ("--num-prompts", self.num_prompts),
            ("--output-len", self.output_len),
        ):
            if value is not None and value < 1:
                raise InputError(f"{flag} {value} is less than 1")
        if not self.temperature >= 0:
            raise InputError(f"--temperature {self.temperature:g} is less than 0")
        if self.random and self.prompts is not None:
            raise InputError(
                "--prompts and --random-input-len both say where prompts come from", hint="leave one of them out"
            )
        if self.random_output_len is not None and not self.random:
            raise InputError(
                "--random-output-len needs --random-input-len", hint="for other prompts the option is --output-len"
            )
        if self.random_output_len is not None and self.output_len is not None:
            raise InputError("--random-output-len and --output-len both give the length", hint="leave one of them out")

    @property
    def random(self) -> bool:
        return self.random_input_len is not None


@dataclass(frozen=True)
class Workload:
    """Prompts and how they are sent. `source`: `built-in`, the file's name, or `random`, which no ranking may rest on."""

    prompts: tuple[Prompt, ...]
    source: str
    output_len: int = 256
    temperature: float = 0.0

    def body(
        self,
        number: int,
        own: str,
        server_info: Mapping[str, Any],
        *,
        steps: int | None = None,
        measured: bool = True,
        tokens: int | None = None,
    ) -> dict[str, Any]:
        """One request with prompt `number`; its id is `own` behind the probe's prefixes. `tokens` overrides the length."""
        prompt = self.prompts[number]
        return {
            **self._prompt(prompt, server_info),
            "rid": request_id(own, steps=steps, measured=measured),
            "sampling_params": {
                "max_new_tokens": tokens or prompt.output_len or self.output_len,
                "temperature": self.temperature,
                "ignore_eos": True,
            },
        }

    @staticmethod
    def _prompt(prompt: Prompt, server_info: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(prompt.content, str):
            return as_request(prompt.content, server_info)
        return {"input_ids": list(prompt.content)}


def choose_workload(options: LoadOptions, read: Callable[[str], str], vocabulary: int | None) -> Workload:
    """The workload of `options`. `read` gives the text of the file that --prompts names.

    Raises InputError where the options, the file or the model's vocabulary (None: unknown) do not allow it.
    """
    if options.random_input_len is not None:
        if vocabulary is None:
            raise InputError("random prompts need the size of the model's vocabulary, which is not known")
        prompts = random_prompts(
            options.num_prompts or 32,
            input_len=options.random_input_len,
            output_len=options.random_output_len or options.output_len or 256,
            range_ratio=options.random_range_ratio,
            vocabulary=vocabulary,
            seed=options.seed,
        )
        source = "random"
    elif options.prompts is not None:
        prompts, source = parse_prompts(read(options.prompts), options.prompts, vocabulary=vocabulary), options.prompts
        if options.num_prompts is not None and options.num_prompts > len(prompts):
            raise InputError(
                f"the file holds {len(prompts)} prompts, {options.num_prompts} are asked for",
                where=options.prompts,
                hint="a prompt sent twice is answered from the cache; for more figures use --repeats",
            )
        prompts = prompts[: options.num_prompts]
    else:
        prompts, source = built_in_prompts(options.num_prompts or 32), "built-in"
    return Workload(tuple(prompts), source, options.output_len or 256, options.temperature)


@dataclass(frozen=True)
class Round:
    """Requests that are sent together; the next round begins when all have ended.

    Before it the load pauses for `pause_s` and, with `flush`, empties the server's prefix cache. Rounds with the same
    `seed` have the same start times at a rate, so that settings are compared under the same arrivals.
    """

    bodies: Sequence[Mapping[str, Any]]
    seed: int = 42
    flush: bool = False
    pause_s: float = 0.0


def as_load(
    rounds: Sequence[Round],
    *,
    host: str,
    port: int,
    key: str | None,
    max_concurrency: int | None = None,
    request_rate: float | None = None,
    silence: float = 120.0,
) -> dict[str, Any]:
    """`spec` and `requests` of the agent's `load_start`. Without a rate and a limit one request runs at a time.

    `silence`: seconds without a byte after which a request has failed. `request_rate`: requests a second.
    """
    requests: list[dict[str, Any]] = []
    numbered = []
    for about in rounds:
        first, count = len(requests), len(about.bodies)
        offsets = itertools.repeat(0.0) if request_rate is None else poisson_arrivals(request_rate, count, about.seed)
        requests += [{"body": dict(body), "at": at} for body, at in zip(about.bodies, offsets, strict=False)]
        numbered.append({"requests": list(range(first, first + count)), "flush": about.flush, "pause_s": about.pause_s})
    spec = {
        "host": host,
        "port": port,
        "key": key,
        "mode": "concurrency" if request_rate is None else "rate",
        "concurrency": max_concurrency if request_rate is not None else max_concurrency or 1,
        "silence": silence,
        "rounds": numbered,
    }
    return {"spec": spec, "requests": requests}
