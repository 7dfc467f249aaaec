"""The command line of SGLang's own client, `sglang.bench_serving`, as each release takes it.

Read in the sources of eighteen releases from 0.4.1.post4 to 0.5.23. What is passed here and is not in all of them:

    0.4.5   --flush-cache, --warmup-requests (before: one request of warm-up, and no flush)
    0.5.7   the dataset `custom` (before: `sharegpt`, whose file is one JSON list, and which drops prompts of over
            1024 tokens or under 4)
    0.5.13  --temperature (before: always 0)

Up to 0.4.3 no API key is sent to /generate; from then on it is that of the variable OPENAI_API_KEY.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from eaglelab.errors import InputError
from eaglelab.server.dataset import Prompt
from eaglelab.sweep.one_load import release

__all__ = ["LEAST_OUTPUT", "MODULE", "ServingLoad", "dataset_file", "dataset_name", "must_send_key", "serving_command"]

MODULE = "sglang.bench_serving"
"""There in every release up to 0.5.23; since 0.5.15 it hands on to `sglang.benchmark.serving`."""

LEAST_OUTPUT = 4
"""It refuses to ask for fewer tokens of a given prompt."""

_KEY_SENT, _WARMUP, _CUSTOM, _TEMPERATURE = (0, 4, 4), (0, 4, 5), (0, 5, 7), (0, 5, 13)


@dataclass(frozen=True)
class ServingLoad:
    """One run of it. `dataset`: a file of the host (see `dataset_file`); None for random prompts of `random_*` tokens.

    `request_rate` in requests per second, None for as fast as `concurrency` allows. `output_len`: tokens a request,
    unless they are random.
    """

    num_prompts: int
    concurrency: int
    seed: int
    dataset: str | None = None
    output_len: int = 256
    random_input_len: int = 1024
    random_output_len: int = 256
    random_range_ratio: float = 0.0
    request_rate: float | None = None
    warmup: int = 1
    flush_cache: bool = True
    temperature: float = 0.0


def dataset_name(version: str) -> str:
    """The dataset that takes prompts of a file. An unknown release is taken for a new one."""
    return "custom" if _has(version, _CUSTOM) else "sharegpt"


def dataset_file(version: str, prompts: Sequence[Prompt], source: str) -> bytes:
    """Prompts as that dataset reads them: conversations of two turns, of which the second is only looked at.

    Raises InputError for a prompt of token ids or with a length of its own: it sends texts, all of one length.
    """
    conversations = []
    for number, prompt in enumerate(prompts, 1):
        if not isinstance(prompt.content, str):
            raise InputError(
                f"prompt {number} is token ids, and bench_serving sends texts",
                where=source,
                hint="give texts, or use the built-in client (leave out --client)",
            )
        if prompt.output_len is not None:
            raise InputError(
                f"prompt {number} has an output_len of its own, and bench_serving asks for one length",
                where=source,
                hint="--output-len for all, or use the built-in client (leave out --client)",
            )
        turns = [{"from": "human", "value": prompt.content}, {"from": "gpt", "value": "An answer."}]
        conversations.append({"conversations": turns})
    if dataset_name(version) == "sharegpt":
        return json.dumps(conversations).encode()
    return "".join(json.dumps(each) + "\n" for each in conversations).encode()


def serving_command(
    version: str, load: ServingLoad, *, python: str, host: str, port: int, model: str, tokenizer: str | None, out: str
) -> list[str]:
    """The argv of one run against the server at `host`:`port`, with nothing in it that this release does not know.

    `model` is named, so that it need not be asked for; `tokenizer` where it is another. The row goes to the file `out`.
    Raises InputError where the release cannot do what is asked for.
    """
    argv = [python, "-m", MODULE, "--backend", "sglang", "--host", host, "--port", str(port), "--model", model]
    if tokenizer is not None:
        argv += ["--tokenizer", tokenizer]
    argv += ["--num-prompts", str(load.num_prompts), "--max-concurrency", str(load.concurrency)]
    argv += ["--seed", str(load.seed), *_dataset(version, load)]
    if load.request_rate is not None:
        argv += ["--request-rate", f"{load.request_rate:g}"]
    argv += _warming(version, load)
    if load.temperature:
        if not _has(version, _TEMPERATURE):
            raise _too_old(version, "--temperature", "0.5.13")
        argv += ["--temperature", f"{load.temperature:g}"]
    return [*argv, "--disable-tqdm", "--output-file", out]


def must_send_key(version: str) -> None:
    """Raises InputError for a release whose bench_serving sends no API key to /generate."""
    if not _has(version, _KEY_SENT):
        raise _too_old(version, "an API key", "0.4.4")


def _dataset(version: str, load: ServingLoad) -> list[str]:
    if load.dataset is not None:
        name = dataset_name(version)
        return ["--dataset-name", name, "--dataset-path", load.dataset, "--sharegpt-output-len", str(load.output_len)]
    lengths = ["--random-input-len", str(load.random_input_len), "--random-output-len", str(load.random_output_len)]
    return ["--dataset-name", "random", *lengths, "--random-range-ratio", f"{load.random_range_ratio:g}"]


def _warming(version: str, load: ServingLoad) -> list[str]:
    if _has(version, _WARMUP):
        return ["--warmup-requests", str(load.warmup), *(["--flush-cache"] if load.flush_cache else [])]
    if load.warmup != 1:
        raise _too_old(version, f"--warmup {load.warmup}", "0.4.5")
    return []


def _has(version: str, since: tuple[int, int, int]) -> bool:
    number = release(version)
    return number is None or number >= since


def _too_old(version: str, what: str, since: str) -> InputError:
    return InputError(
        f"bench_serving of SGLang {version} does not take {what} (SGLang {since} and later do)",
        where="--client sglang",
        hint="leave that out, or use the built-in client (leave out --client)",
    )
