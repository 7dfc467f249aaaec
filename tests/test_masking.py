from __future__ import annotations

import pytest

from eaglelab.masking import Masker


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("--api-key abc --port 1", "--api-key *** --port 1"),
        ("--api-key=abc --port 1", "--api-key=*** --port 1"),
        ("ServerArgs(api_key='abc', port=1)", "ServerArgs(api_key=***, port=1)"),
        ("ServerArgs(api_key=None, port=1)", "ServerArgs(api_key=None, port=1)"),
        ('{"admin_api_key": "abc", "port": 1}', '{"admin_api_key": ***, "port": 1}'),
        ("--hf_token=hf_X1 --port 1", "--hf_token=*** --port 1"),
        ("--hf-token hf_X1 --port 1", "--hf-token *** --port 1"),
        ("ServerArgs(hf_token='x', port=1)", "ServerArgs(hf_token=***, port=1)"),
        ("ServerArgs(hf_token=None, port=1)", "ServerArgs(hf_token=None, port=1)"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("env HF_TOKEN=abc python", "env HF_TOKEN=*** python"),
        ("AWS_SECRET_ACCESS_KEY='a b' DB_PASSWORD=x", "AWS_SECRET_ACCESS_KEY=*** DB_PASSWORD=***"),
        (
            "Decode batch, #running-req: 1, #token: 123, token usage: 0.01, accept len: 1.98",
            "Decode batch, #running-req: 1, #token: 123, token usage: 0.01, accept len: 1.98",
        ),
        (
            "max_total_num_tokens=4096, chunked_prefill_size=8192",
            "max_total_num_tokens=4096, chunked_prefill_size=8192",
        ),
        ("skip_tokenizer_init=False", "skip_tokenizer_init=False"),
    ],
)
def test_secrets_of_unknown_value_are_found_by_their_place(text: str, masked: str) -> None:
    assert Masker().text(text) == masked


def test_a_known_value_is_replaced_wherever_and_however_it_is_written() -> None:
    masker = Masker(values=["it's", 'a"b', "", "abc", "abcdef"])
    assert masker.text("abcdef abc xabcx") == "*** *** x***x"
    assert masker.text("""'it'"'"'s' it's""") == "*** ***"
    assert masker.text(r'{"v": "a\"b"}') == '{"v": "***"}'


def test_a_mapping_is_masked_at_any_depth_and_left_as_it_was() -> None:
    data = {"MY_TOKEN": "t", "env": {"OWN": 5, "A_KEY": "k", "EMPTY_KEY": ""}, "list": ["say v4lue", 1, None]}
    masked = Masker(names=["OWN"], values=["v4lue"]).mapping(data)
    assert masked == {
        "MY_TOKEN": "***",
        "env": {"OWN": "***", "A_KEY": "***", "EMPTY_KEY": ""},
        "list": ["say ***", 1, None],
    }
    assert data["MY_TOKEN"] == "t"


def test_a_command_line_keeps_all_but_the_word_of_a_secret_flag() -> None:
    argv = ["python", "--api-key", "a b", "--ssl-keyfile-password=p", "--tokenizer-path", "t", "--tp-size", "8"]
    assert Masker().argv(argv) == [
        "python",
        "--api-key",
        "***",
        "--ssl-keyfile-password=***",
        "--tokenizer-path",
        "t",
        "--tp-size",
        "8",
    ]
