"""Signals to a process of its own that runs a command: the first ends the work, the second the process."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serverkit import until

from eaglelab.commands import interrupts
from eaglelab.commands.interrupts import Interrupts

PROJECT = Path(__file__).parents[2]
SCRIPT = """
import json, os, signal, socket, sys, threading, time
from eaglelab.commands.outcome import perform
from eaglelab.commands.interrupts import Interrupts
from eaglelab.context import Context

pass_over = Interrupts._pass_over

def passed_over(interrupts):
    pass_over(interrupts)
    open({listening!r}, "w").close()

Interrupts._pass_over = passed_over

def work(outcome, say):
    outcome.hosts["h"] = {{"ok": False}}
    outcome.recover["h"] = "invoke rollback --host h"
    {setup}
    try:
        print("ready", file=sys.stderr, flush=True)
        {hang}
    except KeyboardInterrupt:
        print("putting back", file=sys.stderr, flush=True)
        {put_back}
        raise

sys.exit(perform(work, as_json=True, debug=False))
"""
SLEEP = "time.sleep(600)"


class Command:
    """A command at work; `setup`, `hang` and `put_back` are lines of it."""

    def __init__(self, folder: Path) -> None:
        self.errors = folder / "stderr"
        self.listening = folder / "listening"
        self.process: subprocess.Popen[str] | None = None

    def start(
        self, hang: str = SLEEP, put_back: str = "pass", setup: str = "pass", before: str = "", err: int | None = None
    ) -> Command:
        script = before + SCRIPT.format(hang=hang, put_back=put_back, setup=setup, listening=str(self.listening))
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script],
                cwd=PROJECT,
                stdout=subprocess.PIPE,
                stderr=errors if err is None else err,
                text=True,
            )
        return self

    def until(self, text: str) -> None:
        end = time.monotonic() + 60
        while text not in self.errors.read_text():
            assert self.process.poll() is None, f"it ended before it said {text!r}"
            assert time.monotonic() < end, f"it never said {text!r}"
            time.sleep(0.01)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def until_listening(self) -> None:
        """The first signal is over, with what may have come along with it: the next one is a second."""
        until(self.listening.exists, "it listens again")

    def send_at_once(self, *numbers: int) -> None:
        """All of them lie there when the process goes on, however busy this machine is."""
        self.send(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stands still")
        for number in (*numbers, signal.SIGCONT):
            self.send(number)

    def end(self) -> tuple[int, dict, str]:
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, json.loads(out), self.errors.read_text()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    made = Command(tmp_path)
    yield made
    if made.process:
        made.process.kill()
        made.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_work_says_so_and_has_it_put_back(command: Command, number: int) -> None:
    command.start().until("ready")
    command.send(number)
    code, found, err = command.end()
    assert code == found["exit_code"] == 130
    assert found["hosts"] == {"h": {"ok": False}}
    assert "Ctrl-C again leaves at once" in err
    assert "putting back" in err
    assert found["error"] == {"what": "interrupted", "where": "h", "hint": "invoke rollback --host h"}


@pytest.mark.parametrize(
    ("hang", "put_back"),
    [
        (SLEEP, SLEEP),
        (SLEEP, "hung = threading.Thread(target=time.sleep, args=(600,)); hung.start(); hung.join()"),
        (SLEEP, "threading.Thread(target=time.sleep, args=(600,)).start()"),  # Python waits for it at its end
        (SLEEP, "import atexit; atexit.register(time.sleep, 600)"),
        (SLEEP, "ends = socket.socketpair(); ends[0].recv(1)"),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, [2, signal.SIGURG]); time.sleep(600)", "pass"),  # as in C code
    ],
    ids=["sleep", "join", "thread", "atexit", "socket", "deaf"],
)
def test_the_second_ctrl_c_leaves_whatever_hangs(command: Command, hang: str, put_back: str) -> None:
    command.start(hang, put_back).until("ready")
    command.send(signal.SIGINT)
    command.until("Ctrl-C again leaves at once")
    command.until_listening()
    assert command.process.poll() is None  # it hangs indeed
    command.send(signal.SIGINT)
    code, found, err = command.end()
    assert code == 130
    assert found["exit_code"] == 130
    assert found["error"]["hint"] == "invoke rollback --host h"
    assert "invoke rollback --host h" in err


def test_a_third_signal_changes_nothing(command: Command) -> None:
    command.start(put_back=SLEEP).until("ready")
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGINT):
        try:
            command.send(number)
        except ProcessLookupError:
            break
        command.until_listening()
    assert command.end()[0] == 130


@pytest.mark.parametrize("then", [[signal.SIGHUP], [signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, signal.SIGINT]])
def test_signals_that_come_in_one_go_are_one(command: Command, then: list[int]) -> None:
    command.start(put_back="time.sleep(0.5); print('all back', file=sys.stderr)").until("ready")
    command.send_at_once(signal.SIGHUP, *then)
    code, _, err = command.end()
    assert code == 130
    assert "all back" in err


LATE = """
import time
from eaglelab.commands.interrupts import Interrupts

tell = Interrupts._tell
Interrupts._tell = lambda interrupts: (tell(interrupts), time.sleep(0.5))
"""


def test_they_are_one_however_late_the_second_is_read(command: Command) -> None:
    command.start(put_back="time.sleep(1.5); print('all back', file=sys.stderr)", before=LATE).until("ready")
    command.send_at_once(signal.SIGTERM, signal.SIGINT)
    code, _, err = command.end()
    assert code == 130
    assert "all back" in err


def test_a_terminal_that_closes_late_ends_no_rollback(command: Command) -> None:
    command.start(put_back="time.sleep(1.5); print('all back', file=sys.stderr)").until("ready")
    command.send(signal.SIGTERM)
    command.until_listening()
    command.send(signal.SIGHUP)
    assert "all back" in command.end()[2]


def waiting(pipe: int) -> int:
    """Bytes that nobody has read yet."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])


@pytest.mark.parametrize(
    "how",
    [
        {"put_back": "sys.stderr.write('x' * 100000)"},
        # The first words, too, are then said by the thread that listens, and there is no room for them.
        {"hang": "signal.pthread_sigmask(signal.SIG_BLOCK, [2, signal.SIGURG]); sys.stderr.write('x' * 100000)"},
    ],
    ids=["put-back", "before"],
)
def test_a_reader_who_hangs_holds_nobody(command: Command, how: dict[str, str]) -> None:
    reading, writing = os.pipe()
    with open(reading), open(writing, "w") as theirs:  # noqa: PTH123 - descriptors
        command.start(**how, err=theirs.fileno())
        os.read(reading, 6)
        until(lambda: "hang" not in how or waiting(reading) > 60_000, "it hangs")
        command.send(signal.SIGINT)
        command.until_listening()
        command.send(signal.SIGINT)
        assert command.process.wait(60) == 130


def test_what_is_ignored_when_a_command_begins_stays_ignored(command: Command) -> None:
    command.start("time.sleep(0.5)", before="import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n").until(
        "ready"
    )
    command.send(signal.SIGHUP)
    code, found, _ = command.end()
    assert (code, found["ok"]) == (0, True)


def test_the_last_words_and_all_that_is_waited_for_take_less_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interrupts._WORDS_S + interrupts._NUDGE_S < 1.0
    done: list[Any] = []

    class Timer:
        daemon = False

        def __init__(self, seconds: float, function: Callable[..., Any], arguments: tuple[int]) -> None:
            self.ends = seconds, function, arguments

        def start(self) -> None:
            done.append((*self.ends, self.daemon))

    def leave(code: int) -> None:
        done.append(code)

    monkeypatch.setattr(threading, "Timer", Timer)
    monkeypatch.setattr(os, "_exit", leave)
    Interrupts(lambda: None, lambda: done.append("the last words"))._leave()
    assert done == [(interrupts._WORDS_S, leave, (130,), True), "the last words", 130]


def test_without_a_signal_everything_is_as_before() -> None:
    before = "import signal; was = [signal.getsignal(n) for n in (1, 2, 15)]; import threading\n"
    script = before + SCRIPT.format(hang="pass", put_back="pass", setup="pass", listening="/none").replace(
        "sys.exit(perform", "code = (perform"
    )
    script += "assert was == [signal.getsignal(n) for n in (1, 2, 15)]\nassert threading.active_count() == 1\n"
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
