from __future__ import annotations

import random
import re
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglelab import pieces
from eaglelab.masking import Masker
from eaglelab.pieces import lines_of, maskable

VALUE = "QéQ s3cret"
MASKER = Masker(values=[VALUE])
PIECE, AHEAD = 1000, 300

FILLER = st.text(st.sampled_from("ab1 =:/,-_{\u20ac\x00\r"), max_size=60)
SECRETS = st.sampled_from(
    [
        VALUE,
        "--api-key QQQQ ",
        "api_key='QQ QQ', ",
        r'{"hf_token": \"QQ, \\ QQ\"} ',
        "Authorization: Bearer QQQQ ",
        "http://user:QQQQ@host/ ",
        "MY_SECRET_KEY=QQQQ\t",
        "api_key=['QQ', 'QQ'] ",
    ]
)
LINES = st.lists(st.one_of(FILLER, SECRETS, st.just("\n"), st.integers(1, 2000).map("x".__mul__)), max_size=60)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "huge" not in request.node.name:
        monkeypatch.setattr(pieces, "_PIECE", PIECE)
        monkeypatch.setattr(pieces, "_AHEAD", AHEAD)


def masked(data: bytes, masker: Masker = MASKER) -> bytes:
    return masker.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def blocks(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.usefixtures("small")
@settings(max_examples=300, deadline=None)
@given(parts=LINES, size=st.integers(1, 3000))
def test_pieces_masked_one_by_one_are_the_whole_masked(parts: list[str], size: int) -> None:
    data = "".join(parts).encode()
    found = list(maskable(blocks(data, size), MASKER))
    assert b"".join(masked(piece) for piece in found) == masked(data)
    assert b"".join(found) == data


@pytest.mark.parametrize("secret", [VALUE, "--api-key QQQQ ", "api_key='QQ QQ'", "MY_TOKEN=QQQQ "])
def test_a_secret_at_every_place_around_a_cut_is_masked(secret: str) -> None:
    for before in range(PIECE - 60, PIECE + 60):
        data = (" " * before + secret + " " * 3 * PIECE).encode()
        found = b"".join(masked(piece) for piece in maskable([data], MASKER))
        assert found == masked(data)
        assert b"Q" not in found


@pytest.mark.parametrize("opening", ["api_key='", 'api_key="', "api_key=[", "api_key=", "--api-key ", "A_KEY="])
def test_of_a_line_with_a_secret_too_long_to_be_told_whole_nothing_is_kept_from_there_on(opening: str) -> None:
    data = ("s" * 1500 + " " + opening + "Q" * 5000 + "'] tail\nnext line\n").encode()
    found = b"".join(masked(piece) for piece in maskable(blocks(data, 700), MASKER))
    assert re.fullmatch(rb"s{1000,}( [-\w]+[= ]\*\*\*)?\*\*\*\nnext line\n", found)


def test_a_known_secret_longer_than_what_is_looked_ahead_is_masked() -> None:
    secret = "".join(random.Random(0).choices("QW", k=2000))
    masker = Masker(values=[secret])
    for before in range(0, 4000, 97):
        data = ("." * before + secret + "." * 4000).encode()
        found = b"".join(masked(piece, masker) for piece in maskable(blocks(data, 900), masker))
        assert found == b"." * before + b"***" + b"." * 4000


@settings(deadline=None)
@given(data=st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\xff", b"line\n"])).map(b"".join), size=st.integers(1, 9))
def test_lines_are_what_a_file_gives(data: bytes, size: int) -> None:
    assert list(lines_of(blocks(data, size))) == [line + b"\n" for line in data.split(b"\n")[:-1]] + (
        [data.rpartition(b"\n")[2]] if data and not data.endswith(b"\n") else []
    )


@pytest.mark.parametrize(
    "noise", [*(bytes(3_000_000 + more) for more in range(0, 65536, 5000)), b"\rLoading: 10%" * 300_000 + b"\r"]
)
def test_what_stands_behind_a_huge_hole_or_bar_is_not_cut(noise: bytes) -> None:
    found = list(lines_of(blocks(noise + b"said after it\nnext\n", 1 << 22)))
    assert b"".join(found) == noise + b"said after it\nnext\n"
    assert max(map(len, found)) <= 2 * pieces.LONGEST_LINE
    assert found[-1] == b"next\n"
    assert found[-2].endswith(b"said after it\n")


@pytest.mark.parametrize(
    "block",
    [
        bytes(1 << 20),
        b"api_key=abc, " * 30_000,
        b"api-key " + b"-" * (1 << 20),
        b"--api" * (1 << 18),
        b"a\n" * (1 << 19),
    ],
    ids=["nul", "secrets", "dashes", "flags", "tiny lines"],
)
def test_memory_stays_small_whatever_a_huge_stream_is(block: bytes) -> None:
    """No time is asserted; what is quadratic would not end."""
    count = 32 if not block.strip(b"\0") else 2
    tracemalloc.start()
    try:
        total = sum(len(piece) for piece in maskable((block for _ in range(count)), MASKER))
        lines = sum(len(line) for line in lines_of(block for _ in range(count)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == lines == count * len(block)
    assert peak < 12 << 20
