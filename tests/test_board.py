from __future__ import annotations

import io
import threading

from rich.console import Console

from eaglelab.board import Board
from eaglelab.masking import Masker
from eaglelab.say import Say


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def board(names: list[str], **more: object) -> tuple[Board, Console, Clock]:
    clock = Clock()
    console = Console(file=io.StringIO(), width=80, height=10, highlight=False, **more)
    return Board(console, names, clock), console, clock


def shown(board: Board, console: Console) -> str:
    with console.capture() as capture:
        console.print(board)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_it_shows_who_is_at_what_and_counts_the_rest() -> None:
    it, console, _ = board(["a", "long-name", "c", "d"])
    it.at("a", "Patch")
    it.at("long-name", "connecting")
    it.at("a", "loading (12 s)")
    it.at("c", "x")
    it.ended("c", "done")
    assert shown(it, console) == "a          loading (12 s)\nlong-name  connecting\n1 done, 1 to come"


def test_it_is_never_higher_than_the_terminal() -> None:
    it, console, _ = board([f"h{number}" for number in range(100)])
    for number in range(50):
        it.at(f"h{number}", "loading")
    lines = shown(it, console).splitlines()
    assert len(lines) <= 10
    assert lines[-1] == "44 more at work, 50 to come"


def test_what_a_host_says_cannot_steer_the_terminal() -> None:
    it, console, _ = board(["a"])
    it.at("a", "\x1b[2J")
    assert "\x1b[2J" not in shown(it, console)


def test_where_nothing_can_be_redrawn_all_hosts_together_say_a_line_every_ten_seconds() -> None:
    it, console, clock = board(["a", "bb"])
    says = {name: Say(console, clock).for_host(name, Masker([], ["s3cret"]), it) for name in ("a", "bb")}
    for second in range(35):
        clock.now = float(second)
        for say in says.values():
            say.progress(f"s3cret at {second}")
    assert console.file.getvalue() == "a  |   ... *** at 10\na  |   ... *** at 20\na  |   ... *** at 30\n"


def test_the_names_of_hosts_are_as_wide_as_the_widest() -> None:
    it, console, clock = board(["a", "bb"])
    Say(console, clock).for_host("a", Masker(), it).line("one\ntwo")
    assert console.file.getvalue() == "a  | one\na  | two\n"


def test_on_a_terminal_it_is_gone_in_the_end_and_lines_stay() -> None:
    it, console, clock = board(["a"], force_terminal=True)
    with it:
        Say(console, clock).for_host("a", Masker(), it).line("Patch")
        it.ended("a", "done")
    out = console.file.getvalue()
    assert "a | Patch" in out
    assert out.count("\x1b[?25h") == 1  # the cursor is shown again


def test_lines_of_many_threads_are_never_mixed() -> None:
    names = [f"h{number}" for number in range(8)]
    it, console, clock = board(names)

    def talk(name: str) -> None:
        say = Say(console, clock).for_host(name, Masker(), it)
        for number in range(50):
            say.line(f"{name} says {number}\n{name} goes on")

    threads = [threading.Thread(target=talk, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 8 * 50 * 2
    for one, two in zip(lines[::2], lines[1::2], strict=True):
        name = one.split(" | ")[0]
        assert one.startswith(f"{name} | {name} says ")
        assert two == f"{name} | {name} goes on"
