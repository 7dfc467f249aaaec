"""Frames: whole, or not there."""

from __future__ import annotations

import io

import pytest

from eaglelab.remote.agent.wire import decode_header, encode_frame, read_frame


def test_a_frame_carries_a_message_and_raw_bytes_side_by_side() -> None:
    message = {"op": "read", "args": {"path": "/a/é\udc80"}}
    stream = io.BytesIO(encode_frame(message, b"\x00\xff\n") + encode_frame({}, b""))
    assert read_frame(stream) == (message, b"\x00\xff\n")
    assert read_frame(stream) == ({}, b"")
    assert read_frame(stream) is None


def test_a_request_that_was_cut_off_anywhere_was_never_made() -> None:
    whole = encode_frame({"op": "apply"}, b"0123456789")
    for length in range(len(whole)):
        assert read_frame(io.BytesIO(whole[:length])) is None


@pytest.mark.parametrize("line", [b"", b"HTTP/1.1 200 OK", b"EL2 1 2", b"EL1 1", b"EL1 one two", b"EL1 1 2 3"])
def test_a_line_that_is_no_header_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode_header(line)
