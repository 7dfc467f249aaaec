"""A large piece of a log is masked as it would be masked line by line, though most of its lines are never looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglelab import masking
from eaglelab.masking import Masker

PLAIN = b"[2026-11-29 18:15:00 TP0] Decode batch, #running-req: 1, #token: 512, accept len: 2.41\n"
PREFILL = b"[2026-11-29 18:15:00 TP0] Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0\n"
LINES = (
    PLAIN,
    PREFILL,
    b"server_args=ServerArgs(api_key='abc def', port=1)\n",
    b"HF_TOKEN=hf_abc python\n",
    b"Authorization: Bearer abc.def\n",
    b"authorization = Basic dXNlcjpwdw==\n",
    b"https://user:abc@host/path\n",
    b"KeyError: 'x'\n",
    "api_\u212aey=abc\n".encode(),
    "AP\u0130_key: abc\n".encode(),
    b"the value is s3cr\xe4t here\n",
    "the value is s3cr\u00e4t here\n".encode(),
    b"\xff\xfe is no UTF-8, api_key=abc\xff\n",
    b"progress \r 10% \r api_key=abc \r 20%\n",
    b"\x0b\x0c\x85 \xc2\x85 api_key='a\n",
    b"\n",
    b"first line of it\nsecond line of it\n",
    b"overlap: abc://def first line of it\n",
)
MASKERS = (
    Masker(),
    Masker([], ["s3cr\u00e4t"]),
    Masker([], ["first line of it\nsecond line of it", "abc://def first"]),
)


@pytest.fixture(autouse=True, scope="module")
def all_is_large() -> Iterator[None]:
    before, masking._LARGE = masking._LARGE, 0
    yield
    masking._LARGE = before


def slowly(masker: Masker, data: bytes) -> bytes:
    return masker.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=12), st.sampled_from(MASKERS), st.booleans())
def test_lines_of_every_kind_come_out_as_if_all_had_been_looked_at(
    lines: list[bytes], masker: Masker, cut: bool
) -> None:
    data = b"".join(lines)[: -1 if cut else None]
    assert masker.data(data) == slowly(masker, data)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.sampled_from(LINES), st.binary(max_size=60))
def test_bytes_that_are_no_text_around_a_secret_change_nothing(before: bytes, line: bytes, after: bytes) -> None:
    data = before + line + after
    assert MASKERS[1].data(data) == slowly(MASKERS[1], data)


def test_each_line_of_a_secret_is_masked_in_the_middle_of_many() -> None:
    for line in LINES[2:7]:
        data = PLAIN * 50 + line + PREFILL * 50
        masked = MASKERS[0].data(data)
        assert b"abc" not in masked
        assert b"dXNl" not in masked
        assert masked.startswith(PLAIN * 50)
        assert masked.endswith(PREFILL * 50)


def test_what_has_nothing_to_hide_is_not_copied() -> None:
    data = PLAIN * 1000
    assert MASKERS[1].data(data) is data
