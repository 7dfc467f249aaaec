from __future__ import annotations

import pytest

from eaglelab.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, caf\u00e9, \u65e5\u672c, \U0001f600", "plain, caf\u00e9, \u65e5\u672c, \U0001f600"),
        ("a\tb\nc\r\n", "a\tb\nc\n"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x1b]52;c;aGk=\x1b\\", "\\x1b]52;c;aGk=\\x1b\\"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "\\x1b]8;;http://x\\x1b\\link\\x1b]8;;\\x1b\\"),
        ("\x9b31m\x90q\x9c", r"\x9b31m\x90q\x9c"),
        ("password\rharmless", r"password\x0dharmless"),
        ("\x00\x08\x0b\x0c\x7f", r"\x00\x08\x0b\x0c\x7f"),
        ("\u202egpj.exe\u2069\u200f", r"\u202egpj.exe\u2069\u200f"),
        ("a\u2028b", r"a\u2028b"),
        ("\ud800 \udc80", r"\ud800 \udc80"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_steers_a_terminal_is_spelt_out(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
    shown.encode()
