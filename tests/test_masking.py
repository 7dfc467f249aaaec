from __future__ import annotations

import json
import shlex
from urllib.parse import quote, quote_plus

import pytest

from eaglelab.masking import MASK, Masker


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
        ("ssl_keyfile_password='a b', port=1", "ssl_keyfile_password=***, port=1"),
        ("ssl_keyfile_password=None, port=1", "ssl_keyfile_password=None, port=1"),
        ("--ssl-keyfile-password abc --port 1", "--ssl-keyfile-password *** --port 1"),
        ("['--api-key', 'abc', '--port', '1']", "['--api-key', ***, '--port', '1']"),
        ("api_key=['abc', 'def'], port=1", "api_key=***, port=1"),
        (r"api_key='a\'b', port=1", "api_key=***, port=1"),
        (r"{\"api_key\": \"abc\", \"port\": 1}", r"{\"api_key\": ***, \"port\": 1}"),
        ("ServerArgs(api_key='abc def", "ServerArgs(api_key=***"),
        ("ServerArgs(api_key='abc\ndef', port=1)", "ServerArgs(api_key=***\ndef', port=1)"),
        ("GET /x?api_key=abc&port=1", "GET /x?api_key=***&port=1"),
        ("api_key%3Dabc", "api_key%3D***"),
        ("Bearer%20abc", "Bearer%20***"),
        ("{'Authorization': 'Basic dXNlcjpwdw=='}", "{'Authorization': 'Basic ***'}"),
        ("x-api-key: abc", "x-api-key: ***"),
        ("https://user:abc@host/path", "https://user:***@host/path"),
        ("http://127.0.0.1:30000/health", "http://127.0.0.1:30000/health"),
        ("environ({'HF_TOKEN': 'abc', 'A': 'b'})", "environ({'HF_TOKEN': ***, 'A': 'b'})"),
        ('{"OPENAI_API_KEY": "abc"}', '{"OPENAI_API_KEY": ***}'),
        ("aws_secret_access_key='abc' client_secret=abc", "aws_secret_access_key=*** client_secret=***"),
        ("sudo: a password is required", "sudo: a password is required"),
        ("eos_token='</s>', next_token_id=5, max_new_tokens=5", "eos_token='</s>', next_token_id=5, max_new_tokens=5"),
        ("ssl_keyfile='/etc/key.pem', tokenizer_path='t'", "ssl_keyfile='/etc/key.pem', tokenizer_path='t'"),
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


@pytest.mark.parametrize("secret", ["s3cr3t/+=k ey", 'it\'s "so" \\ secret', "caf\u00e9-s3cret", "tab\there-secret"])
def test_a_known_value_is_found_however_it_was_encoded(secret: str) -> None:
    masker = Masker(values=[secret])
    body = json.dumps({"key": secret})
    for text in (
        secret,
        repr({"k": secret}),
        repr([secret.encode().decode()]),
        body,
        json.dumps({"error": body}),
        json.dumps({"k": secret}, ensure_ascii=False),
        f"/x?k={quote(secret, safe='')}&y=1",
        f"/x?k={quote_plus(secret)}",
        f"run {shlex.quote(secret)}",
    ):
        assert MASK in masker.text(text)
        assert "cret" not in masker.text(text), text


def test_each_line_of_a_long_secret_is_one() -> None:
    pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
    assert Masker(values=[pem]).text("log: hkiG9w0BAQEFAASC") == "log: ***"


@pytest.mark.parametrize(
    "run", ["-" * 300_000, "--a" * 50_000, "KEY" * 100_000, "api_key='" * 30_000, "://" * 100_000, " " * 300_000]
)
def test_what_a_long_run_costs_does_not_grow_with_its_square(run: str) -> None:
    """No time is asserted: it would take minutes."""
    assert Masker().text(f"api-key {run}! --api-key QQQ").endswith("--api-key ***")


def test_a_flag_is_one_behind_any_number_of_dashes_and_anything_before_them() -> None:
    assert Masker().text(f"x--api-key QQ {'-' * 500}my-api-key QQ --a--hf-token QQ").count("QQ") == 0
