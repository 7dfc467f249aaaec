"""Where the prompts of a load come from: the built-in set, a file, or random token ids."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.errors import InputError
from eaglelab.server.prompts import prompt

__all__ = ["Chat", "Prompt", "built_in_prompts", "parse_prompts", "random_prompts"]

Chat = Callable[[Sequence[Mapping[str, Any]]], str]
"""A model's chat template: messages in, the text of the prompt out."""

_KEYS = ("prompt", "text", "input_ids", "messages")


@dataclass(frozen=True)
class Prompt:
    """A text, or token ids. `output_len`: tokens to ask for, None where the load decides."""

    content: str | tuple[int, ...]
    output_len: int | None = None


def built_in_prompts(count: int) -> list[Prompt]:
    """`count` prompts of the built-in set; after one round of it, each told apart by a number."""
    return [Prompt(prompt(number)) for number in range(count)]


def random_prompts(
    count: int, *, input_len: int, output_len: int, range_ratio: float, vocabulary: int, seed: int
) -> list[Prompt]:
    """Random token ids below `vocabulary`, with lengths as bench_serving draws them.

    Each length is uniform between `range_ratio` of the wanted one (1 at least) and the wanted one. No text reads like
    this, so what a draft model gets right of it says nothing of real prompts.
    """
    if not 0 <= range_ratio <= 1:
        raise InputError(f"--random-range-ratio {range_ratio:g} is not between 0 and 1")
    for flag, value in (("--random-input-len", input_len), ("--random-output-len", output_len)):
        if value < 1:
            raise InputError(f"{flag} {value} is less than 1")
    dice = random.Random(seed)  # noqa: S311 - prompts, not secrets

    def length(wanted: int) -> int:
        return dice.randint(max(1, int(wanted * range_ratio)), wanted)

    lengths = [(length(input_len), length(output_len)) for _ in range(count)]
    return [Prompt(tuple(dice.randrange(vocabulary) for _ in range(given)), asked) for given, asked in lengths]


def parse_prompts(text: str, name: str, *, chat: Chat | None = None, vocabulary: int | None = None) -> list[Prompt]:
    """The prompts of a JSONL file named `name`: an object a line, with one of `prompt` or `text`, `input_ids`, `messages`.

    `output_len` of a line is optional. `chat` turns messages into text. Raises InputError with file and line.
    """
    found = [
        _prompt_of(line, f"{name}:{number}", chat, vocabulary)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]
    if not found:
        raise InputError("the file holds no prompt", where=name, hint='one object a line: {"prompt": "..."}')
    return found


def _prompt_of(line: str, where: str, chat: Chat | None, vocabulary: int | None) -> Prompt:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise InputError(f"this line is not JSON: {error}", where=where) from error
    if not isinstance(entry, dict):
        raise InputError("this line is not a JSON object", where=where, hint='write {"prompt": "..."}')
    given = [key for key in _KEYS if key in entry]
    if len(given) != 1:
        what = f"both {given[0]} and {given[1]}" if given else "none of " + ", ".join(_KEYS)
        raise InputError(f"this line has {what}", where=where, hint="a line holds one prompt")
    unknown = sorted(entry.keys() - {*_KEYS, "output_len"})
    if unknown:
        raise InputError(
            f"unknown key {unknown[0]!r}", where=where, hint="beside the prompt a line may hold output_len"
        )
    output_len = entry.get("output_len")
    if output_len is not None and (not _is_count(output_len) or output_len < 1):
        raise InputError(f"output_len is {json.dumps(output_len)}, not a number of tokens", where=where)
    return Prompt(_content(given[0], entry[given[0]], where, chat, vocabulary), output_len)


def _content(key: str, value: Any, where: str, chat: Chat | None, vocabulary: int | None) -> str | tuple[int, ...]:
    if key == "input_ids":
        return _ids(value, where, vocabulary)
    if key == "messages":
        if chat is None:
            raise InputError(
                "messages need the model's chat template, which is not at hand",
                where=where,
                hint="write the text that the template makes of them as `prompt`, or its ids as `input_ids`",
            )
        if not isinstance(value, list) or not value or not all(isinstance(message, dict) for message in value):
            raise InputError("messages is not a list of objects", where=where)
        return chat(value)
    if not isinstance(value, str) or not value:
        raise InputError(f"{key} is not a text", where=where)
    return value


def _ids(value: Any, where: str, vocabulary: int | None) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(_is_count(token) for token in value):
        raise InputError("input_ids is not a list of token ids", where=where)
    if vocabulary is not None and max(value) >= vocabulary:
        raise InputError(f"token id {max(value)} is not below the model's vocabulary of {vocabulary}", where=where)
    return tuple(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
