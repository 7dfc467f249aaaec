"""No value reaches a shell as anything but itself, whichever shell the login has there."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eaglelab.remote.quoting import quoted, remote_command

SHELLS = {
    "sh": ["sh"],
    "bash": ["bash", "--norc"],
    "dash": ["dash"],
    "zsh": ["zsh", "-f"],
    "busybox": ["busybox", "sh"],
    "fish": ["fish", "--no-config"],
    "tcsh": ["tcsh", "-f"],
}
AWKWARD = " '\"$`!;~*?[]{}()<>|&#\\^=%,@+-.:/\t\r\x01\x1b\x7f\u00e9\u202e\U0001f600"
WORDS = st.lists(
    st.one_of(st.text(AWKWARD, max_size=12), st.text(st.characters(blacklist_categories=["Cs"]))), max_size=4
)


def seen(shell: list[str], words: list[str]) -> list[str]:
    """What a program gets as its arguments when a login shell is given our command line."""
    line = remote_command(["/usr/bin/printf", r"%s\0", *words])
    done = subprocess.run(
        [*shell, "-c", line],
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": "/"},
    )
    assert done.stderr == b""
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


@pytest.mark.parametrize("shell", SHELLS)
@given(words=WORDS)
@example(words=["", "~", "~/x", "-n", "!!", "it's", "a\\", "\\'", "'\\''", "$HOME", "`id`", "$(id)", "\u2028", "{a,b}"])
@example(words=["a\nb", "\n", "'\n!"])
@example(words=["caf\udce9", "x" * 100_000])
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_words_arrive_as_they_are(shell: str, words: list[str]) -> None:
    if not shutil.which(SHELLS[shell][0]):
        pytest.skip(f"{shell} is not installed")
    words = [word.replace("\0", "") for word in words]
    if shell == "tcsh":
        words = [word.replace("\n", "") for word in words]  # csh has no way to write one down
    assert seen(SHELLS[shell], words) == (words or [""])


def test_plain_words_stay_readable() -> None:
    assert quoted("/opt/env-1/bin/python3.11") == "/opt/env-1/bin/python3.11"
    assert remote_command(["~/a b", "~/c"], ["sudo", "-n"]) == "exec sudo -n ~/'a b' '~/c'"
