"""Frames between controller and agent: a header line, a JSON object, raw bytes.

Raw bytes travel beside the JSON because logs and source files are bytes, not text.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO, Callable, Dict, Tuple

__all__ = ["READY", "AgentError", "Beat", "Reply", "decode_header", "encode_frame", "read_frame"]

READY = b"\nEAGLELAB-AGENT-READY\n"
"""Printed before the first frame: what a login shell printed before it is thrown away."""

_MAGIC = b"EL1"

Beat = Callable[[Dict[str, Any]], None]
"""Called by a long operation with what there is to say; each call also tells the controller that the link lives."""

Reply = Tuple[Dict[str, Any], bytes]


class AgentError(Exception):
    """An operation that did not happen. `code` is what the controller decides by, `details` what it shows."""

    def __init__(self, code: str, what: str, **details: Any) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.details = details


def encode_frame(message: dict[str, Any], data: bytes = b"") -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return b"%s %d %d\n" % (_MAGIC, len(body), len(data)) + body + data


def decode_header(line: bytes) -> tuple[int, int]:
    """Lengths of the JSON and of the raw bytes that follow. Raises ValueError on anything that is no header."""
    magic, body, data = line.split()
    if magic != _MAGIC:
        raise ValueError("not a frame: %r" % line[:80])
    return int(body), int(data)


def read_frame(stream: BinaryIO) -> Reply | None:
    """The next frame, or None at the end of the stream: a request that was cut off was never made."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    body, data = decode_header(line)
    message, raw = stream.read(body), stream.read(data)
    if len(message) + len(raw) < body + data:
        return None
    return json.loads(message), raw
