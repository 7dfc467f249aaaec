"""Prompts for measuring: varied on purpose, since acceptance depends on what is written.

Random or repeated text gives absurd accept lengths, so every request of a measurement has another of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["PROMPTS", "as_request", "prompt"]

PROMPTS = (
    "Explain to a new colleague how a hash table works, with its worst case and what to do about it.",
    "Write a Python function that merges overlapping intervals, then three tests for it.",
    "A train leaves at 9:40 and covers 231 km in 2 h 45 min. Work out its mean speed step by step.",
    "Tell the story of a lighthouse keeper who finds a letter addressed to the sea.",
    "Compare TCP and QUIC for a service whose clients change networks often. Use a table, then a conclusion.",
    "Summarise the causes of the French Revolution for a reader who knows nothing of it.",
    "Draft a polite e-mail that declines a meeting and offers two other times.",
    "Translate into French and explain the grammar: 'Had I known, I would have stayed at home.'",
    "List the steps to diagnose why a database query became slow overnight, most likely causes first.",
    "Describe how photosynthesis turns light into sugar, down to what happens in photosystem II.",
    "Write a SQL query for the three best customers of each month, and explain every clause.",
    "Argue for and against a four-day working week, each side in its strongest form.",
)


def prompt(number: int) -> str:
    """Prompt `number` of an endless series: the set again and again, each round told apart by its count.

    The count keeps a prefix cache from answering a later round for free.
    """
    round_number, index = divmod(number, len(PROMPTS))
    return f"({round_number + 1}) {PROMPTS[index]}" if round_number else PROMPTS[index]


def as_request(text: str, server_info: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a `/generate` body that carries a prompt, as this server takes it.

    A server without a tokenizer (`--skip-tokenizer-init`) takes ids only: each byte of the text then stands for one,
    away from the low ids that models reserve.
    """
    if server_info.get("skip_tokenizer_init"):
        return {"input_ids": [byte + 16 for byte in text.encode()]}
    return {"text": text}
