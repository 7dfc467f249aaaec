from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from eaglelab.lab import ports
from eaglelab.lab.ports import lasting_port


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the kernel says which ports it gives away by itself."""
    path = tmp_path / "range"
    monkeypatch.setattr(ports, "_RANGE", path)
    return path


def test_the_kernel_gives_the_port_to_nobody_who_asks_for_any(kernel: Path) -> None:
    kernel.write_text("10100\t65535\n")
    assert {lasting_port() for _ in range(50)} <= set(range(10_000, 10_100))


def test_a_port_that_somebody_has_is_passed_over(kernel: Path) -> None:
    kernel.write_text("32768 60999\n")
    free, chance = lasting_port(), random.Random()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        picked = iter((taken.getsockname()[1], free))
        chance.choice = lambda _: next(picked)  # type: ignore[method-assign]
        assert lasting_port(chance) == free


@pytest.mark.parametrize("text", ["1024\t65535\n", "1 65535"])
def test_where_the_kernel_gives_all_away_any_free_one_will_do(kernel: Path, text: str) -> None:
    kernel.write_text(text)
    port = lasting_port()
    with socket.socket() as mine:
        mine.bind(("127.0.0.1", port))


@pytest.mark.parametrize("text", [None, "", "garbage"])
def test_a_system_that_does_not_say_has_the_usual_range(kernel: Path, text: str | None) -> None:
    if text is not None:
        kernel.write_text(text)
    assert not any(32_768 <= lasting_port() <= 60_999 for _ in range(50))
