"""Text from elsewhere as a terminal may show it: what would steer the terminal, or hide what stands there, is spelt out."""

from __future__ import annotations

import re

__all__ = ["printable"]

# C0 but for tab and newline, DEL, C1 (a terminal may take U+009B for ESC [), line and paragraph separators, marks that
# turn the order of what follows, and halves of a surrogate pair, which no terminal's encoding has.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    r"""`text` with every character that steers a terminal as its escape, such as `\x1b`; newlines and tabs are kept.

    A carriage return before a newline goes: it is how other systems end a line.
    """
    return _STEERING.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
