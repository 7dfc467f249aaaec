"""The process ends with the exit code that its command has decided, and with all that it said, whatever its threads are at."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from invoke import Program

from eaglelab.commands import ending

ROOT = Path(__file__).parents[2]
MODULE = (sys.executable, "-m", "invoke")
SCRIPT = (str(Path(sys.executable).with_name("invoke")),)
TASKS = """
import atexit, ctypes, os, signal, sys, threading, time
from eaglelab.commands.command import Option, command, needed, switch
from eaglelab.errors import AttentionError, GateMissed, HostError, InputError

PLAIN = {"json": switch("as JSON"), "debug": switch("show tracebacks")}
WRONG = {1: HostError, 2: InputError, 3: AttentionError, 4: GateMissed}

def half_made():
    '''A library that is being loaded: where that does not come to its end, it ends any exit of the process by SIGABRT.'''
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
    loading.set()
    time.sleep(600)

loading = threading.Event()

def load():
    threading.Thread(target=half_made, daemon=True).start()
    loading.wait()

def drawn_ahead():
    '''As after a server that died while it loaded: of what draws reports, the library that reads fonts is half made.'''
    from importlib.machinery import ExtensionFileLoader
    from eaglelab.report.ahead import load_ahead

    execute, calls = ExtensionFileLoader.exec_module, iter(range(10_000))

    def hold(frame, event, argument):
        if event == "call" and next(calls) == 20:
            loading.set()
            time.sleep(600)

    def exec_module(loader, module):
        if module.__name__ == "matplotlib.ft2font":
            sys.setprofile(hold)
        execute(loader, module)
        sys.setprofile(None)

    ExtensionFileLoader.exec_module = exec_module
    library = load_ahead()
    while library.is_alive() and not loading.wait(0.1):
        pass

def slow():
    '''A thread that is to be waited for.'''
    load()
    threading.Thread(target=lambda: (time.sleep(0.3), print("it was waited for"))).start()

def at_the_end():
    load()
    atexit.register(print, "called at the end")

BEFORE = {"nothing": lambda: None, "load": load, "draw": drawn_ahead, "slow": slow, "at-the-end": at_the_end}

@command(PLAIN, code=Option("how it ends", "0"), before=Option("what is begun before", "load"), size=Option("characters", "70000"))
def end(asked, outcome, say):
    '''End.'''
    BEFORE[asked.before]()
    if int(asked.size):  # what is printed past Say is not there for readers who are gone
        print("x" * int(asked.size), end="")
    say.line(f"to end with {asked.code}")
    if int(asked.size):
        print("the last on stderr", file=sys.stderr)
        print("the last on stdout", file=sys.stderr if asked.json else sys.stdout)
    if asked.code == "130":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    if int(asked.code):
        raise WRONG[int(asked.code)]("it went wrong", where="h", hint="do")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


def run(project: Path, *words: str, program: Sequence[str] = MODULE, code: int = 0) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | {"PYTHONPATH": path}
    done = subprocess.run(
        [*program, *words],
        cwd=project,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done


@pytest.mark.parametrize("program", [MODULE, SCRIPT], ids=["module", "script"])
@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 130])
def test_a_library_that_is_half_loaded_changes_no_exit_code_and_takes_no_output(
    project: Path, program: Sequence[str], code: int
) -> None:
    done = run(project, "end", "--code", str(code), program=program, code=code)
    assert done.stdout == "x" * 70_000 + f"to end with {code}\nthe last on stdout\n"
    said = done.stderr.splitlines()
    assert said[0] == "the last on stderr"
    assert ("error: " in done.stderr) == (code != 0)
    assert not any(word in done.stderr for word in ("Fatal", "Traceback", "ignored"))


@pytest.mark.parametrize("code", [0, 1, 130])
def test_the_object_stays_the_last_line(project: Path, code: int) -> None:
    done = run(project, "end", "--json", "--size", "0", "--code", str(code), code=code)
    assert json.loads(done.stdout.splitlines()[-1])["exit_code"] == code
    assert done.stdout.endswith("}\n")


def test_a_server_that_dies_while_what_draws_its_report_is_loaded_is_exit_code_1(project: Path) -> None:
    assert "it went wrong" in run(project, "end", "--before", "draw", "--code", "1", code=1).stderr


def test_of_several_commands_the_last_one_decides_and_all_are_run(project: Path) -> None:
    assert run(project, "end", "end", "--before", "nothing").stdout.count("the last on stdout") == 2
    done = run(project, "end", "end", "--before", "nothing", "--code", "3", code=3)
    assert done.stdout.count("the last on stdout") == 2


def test_a_thread_that_is_to_be_waited_for_is(project: Path) -> None:
    assert run(project, "end", "--before", "slow", "--code", "1", code=1).stdout.endswith("it was waited for\n")


EARLY = """
import atexit
atexit.register(print, "registered before Invoke was loaded")
from invoke.main import program
program.run()
"""


def test_what_is_to_be_called_at_the_end_is_called_once(project: Path) -> None:
    program = (sys.executable, "-c", EARLY)
    done = run(project, "end", "--before", "at-the-end", "--code", "1", program=program, code=1)
    assert done.stdout.splitlines()[-2:] == ["called at the end", "registered before Invoke was loaded"]
    assert done.stdout.count("registered before") == 1


@pytest.mark.parametrize("before", ["nothing", "at-the-end"])
@pytest.mark.parametrize("stdout", [">/dev/full", ">&-", ">/dev/full 2>/dev/full"])
def test_output_that_cannot_be_written_changes_no_exit_code(project: Path, stdout: str, before: str) -> None:
    program = ("sh", "-c", f'exec {sys.executable} -m invoke "$@" {stdout}', "sh")
    run(project, "end", "--before", before, "--size", "0", "--code", "3", program=program, code=3)


def test_a_process_that_is_not_invokes_own_ends_as_it_likes() -> None:
    before = atexit._ncallbacks()
    ending.end_with(1)
    assert atexit._ncallbacks() == before


def test_what_an_earlier_command_has_decided_is_forgotten_while_the_next_is_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered: list[int] = []
    monkeypatch.setattr(sys.modules["__main__"], "program", Program(), raising=False)
    monkeypatch.setattr(atexit, "register", lambda _function, code: registered.append(code))
    monkeypatch.setattr(atexit, "unregister", lambda _function: registered.clear())
    ending.end_with(3)
    assert registered == [3]
    ending.end_with(None)
    assert registered == []
    ending.end_with(0)
    ending.end_with(1)
    assert registered == [1]
