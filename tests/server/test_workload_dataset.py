from __future__ import annotations

import statistics
from typing import Any

import pytest

from eaglelab.errors import InputError
from eaglelab.server.dataset import Prompt, built_in_prompts, parse_prompts, random_prompts
from eaglelab.server.prompts import PROMPTS


def test_the_built_in_set_is_large_and_varied_enough_for_32_requests() -> None:
    assert len(PROMPTS) >= 32
    assert len({text.split()[0] for text in PROMPTS}) > len(PROMPTS) / 2
    assert sum(not text.isascii() for text in PROMPTS) >= 5
    contents = [prompt.content for prompt in built_in_prompts(3 * len(PROMPTS))]
    assert len(set(contents)) == len(contents)


def test_every_way_to_write_a_prompt_is_read_in_the_order_of_the_file() -> None:
    text = '{"prompt": "a"}\n\n{"text": "b", "output_len": 7}\n{"input_ids": [1, 0, 99]}\n'
    assert parse_prompts(text, "p.jsonl") == [Prompt("a"), Prompt("b", 7), Prompt((1, 0, 99))]


def test_messages_become_text_where_a_chat_template_is_at_hand() -> None:
    text = '{"messages": [{"role": "user", "content": "Hi"}]}'
    found = parse_prompts(text, "p.jsonl", chat=lambda messages: f"<{messages[0]['role']}>{messages[0]['content']}")
    assert found == [Prompt("<user>Hi")]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{half", "not JSON"),
        ("[1]", "not a JSON object"),
        ('"text"', "not a JSON object"),
        ("{}", "none of prompt, text, input_ids, messages"),
        ('{"prompt": "a", "text": "a"}', "both prompt and text"),
        ('{"prompt": ""}', "prompt is not a text"),
        ('{"prompt": ["a"]}', "prompt is not a text"),
        ('{"text": null}', "text is not a text"),
        ('{"input_ids": []}', "not a list of token ids"),
        ('{"input_ids": [1, -1]}', "not a list of token ids"),
        ('{"input_ids": [1, true]}', "not a list of token ids"),
        ('{"input_ids": [1.0]}', "not a list of token ids"),
        ('{"input_ids": [100]}', "100 is not below the model's vocabulary of 100"),
        ('{"messages": [{"role": "user", "content": "Hi"}]}', "chat template"),
        ('{"prompt": "a", "output_len": 0}', "output_len is 0"),
        ('{"prompt": "a", "output_len": "9"}', 'output_len is "9"'),
        ('{"prompt": "a", "output_len": true}', "output_len is true"),
        ('{"prompt": "a", "max_tokens": 3}', "unknown key 'max_tokens'"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_by_file_and_line(line: str, what: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_prompts('{"prompt": "fine"}\n' + line + "\n", "my/p.jsonl", vocabulary=100)
    assert what in refused.value.what
    assert refused.value.where == "my/p.jsonl:2"


@pytest.mark.parametrize("messages", ["[]", '["Hi"]', '"Hi"'])
def test_messages_that_are_none_are_refused(messages: str) -> None:
    with pytest.raises(InputError, match="not a list of objects"):
        parse_prompts(f'{{"messages": {messages}}}', "p", chat=lambda _: "x")


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="holds no prompt"):
        parse_prompts(text, "p.jsonl")


def some(**changes: Any) -> list[Prompt]:
    wanted = {"input_len": 100, "output_len": 20, "range_ratio": 0.5, "vocabulary": 1000, "seed": 1, **changes}
    return random_prompts(400, **wanted)


def test_random_prompts_have_lengths_between_the_ratio_and_the_whole_and_ids_of_the_vocabulary() -> None:
    prompts = some()
    given = [len(prompt.content) for prompt in prompts]
    asked = [prompt.output_len or 0 for prompt in prompts]
    assert (min(given), max(given)) == (50, 100)
    assert (min(asked), max(asked)) == (10, 20)
    assert statistics.mean(given) == pytest.approx(75, abs=2)
    ids = {token for prompt in prompts for token in prompt.content}
    assert ids == set(range(1000))


def test_the_same_seed_gives_the_same_random_prompts() -> None:
    assert some() == some() != some(seed=2)


def test_a_ratio_of_one_fixes_the_lengths() -> None:
    assert {(len(prompt.content), prompt.output_len) for prompt in some(range_ratio=1.0)} == {(100, 20)}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"range_ratio": 1.5}, "--random-range-ratio 1.5"),
        ({"range_ratio": -0.1}, "--random-range-ratio -0.1"),
        ({"input_len": 0}, "--random-input-len 0"),
        ({"output_len": 0}, "--random-output-len 0"),
    ],
)
def test_lengths_that_cannot_be_are_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        some(**changes)
