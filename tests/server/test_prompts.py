from __future__ import annotations

from eaglelab.server.prompts import PROMPTS, as_request, prompt


def test_no_two_requests_of_a_measurement_have_the_same_prompt() -> None:
    texts = [prompt(number) for number in range(3 * len(PROMPTS))]
    assert len(set(texts)) == len(texts)


def test_the_first_round_is_the_built_in_set() -> None:
    assert tuple(prompt(number) for number in range(len(PROMPTS))) == PROMPTS


def test_a_server_with_a_tokenizer_gets_text() -> None:
    assert as_request("Hi", {"skip_tokenizer_init": False}) == {"text": "Hi"}
    assert as_request("Hi", {}) == {"text": "Hi"}


def test_a_server_without_a_tokenizer_gets_ids_away_from_the_reserved_ones() -> None:
    assert as_request("Hi", {"skip_tokenizer_init": True}) == {"input_ids": [72 + 16, 105 + 16]}
