"""`invoke logs` on what no person would read: its end is shown, and a line is never shown whole that is huge."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from fake_host import LOG

from eaglelab.commands import last_lines as module
from eaglelab.commands.last_lines import last_lines


def test_a_huge_line_is_shown_by_its_beginning_with_what_it_has_more(invoke: Any, own: Path, fakes: Any) -> None:
    fakes["a"].files[LOG] = b"first\n" + b"y" * 3_000_000 + b"\nlast\n"
    done = invoke("logs", "--lines", "2", "--json")
    assert done.code == 0
    assert "first" not in done.err
    assert f"{'y' * 2000} ... and 2998000 more characters\nlast\n" in done.err
    assert len(done.err) < 10_000
    assert Path(done.json["hosts"]["a"]["log"]).read_bytes() == fakes["a"].files[LOG]


def test_a_hole_of_nuls_is_shown_by_few_of_them(invoke: Any, own: Path, fakes: Any) -> None:
    fakes["a"].files[LOG] = bytes(3_000_000)
    done = invoke("logs", "--lines", "1")
    assert "\\x00\\x00 ... and 2998000 more characters" in done.out
    assert len(done.out) < 10_000


def test_a_secret_that_a_huge_line_has_far_behind_is_masked_in_the_bundle(invoke: Any, own: Path, fakes: Any) -> None:
    fakes["a"].files[LOG] = b"y" * 1_000_000 + b" api_key='QQQ' " + b"z" * 1_000_000
    kept = Path(invoke("logs", "--json").json["hosts"]["a"]["log"]).read_bytes()
    assert kept == b"y" * 1_000_000 + b" api_key=*** " + b"z" * 1_000_000


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 16])
def test_the_last_lines_are_those_of_the_whole_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    path, chance = tmp_path / "log", random.Random(block)
    for _ in range(300):
        text = "".join(chance.choices(["a", "é", "bc", "\n", "\r\n", "\r"], k=chance.randrange(12)))
        path.write_bytes(text.encode())
        count = chance.randrange(6)
        assert list(last_lines(path, count)) == text.splitlines()[-count:] * bool(count), (text, count)


@pytest.mark.parametrize(("size", "shown"), [(1999, ""), (2000, ""), (2001, " ... and 1 more characters")])
def test_only_what_is_longer_than_2000_characters_is_cut(tmp_path: Path, size: int, shown: str) -> None:
    path = tmp_path / "log"
    for end in ("", "\n", "\r\n"):
        path.write_text("x" * size + end, newline="")
        assert list(last_lines(path, 1)) == ["x" * min(size, 2000) + shown]


def test_memory_does_not_grow_with_the_line_or_the_count(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.writelines([b"short\n" * 20_000, b"x" * (32 << 20), b"\n"])
    tracemalloc.start()
    try:
        found = sum(1 for _ in last_lines(path, 1_000_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == 20_001
    assert peak < 8 << 20
