"""The commands as a person starts them: another process, the real `invoke`."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from fake_host import PROJECT, WORKER

from eaglelab.commands.outcome import Outcome, perform
from eaglelab.errors import AttentionError, GateMissed, HostError, InputError, Interrupted
from eaglelab.say import Say

COMMANDS = {
    "bench",
    "compare",
    "demo",
    "deploy-profiling",
    "doctor",
    "lab-down",
    "lab-up",
    "logs",
    "patch-check",
    "play",
    "report",
    "rollback",
    "status",
    "stop",
    "sweep",
}

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def start(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "invoke", *argv],
        cwd=PROJECT,
        env={**os.environ, "COLUMNS": "80", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_list_of_commands_has_one_line_each_and_imports_next_to_nothing_of_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "invoke", "--list"],
        cwd=PROJECT,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.split("Available tasks:\n\n")[1].rstrip().splitlines()
    assert {line.split()[0] for line in lines} >= COMMANDS
    assert all(line.startswith("  ") and not line.startswith("   ") for line in lines)
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert "invoke" in imported
    ours = {name for name in imported if name.split(".")[0] == "eaglelab"}
    assert ours == {"eaglelab", "eaglelab.commands", "eaglelab.commands.command", "eaglelab.commands.positionals"}


def test_a_command_keeps_the_bytecode_of_what_it_imports(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    command = [sys.executable, "-m", "invoke", "status", "--host", "nobody"]
    assert subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, check=False).returncode == 2
    assert any(path.name.startswith("inventory.") for path in tmp_path.rglob("*.pyc"))


def test_the_help_of_a_command_shows_every_option_in_full() -> None:
    done = start("--help", "deploy-profiling")
    options = [line.split()[0].split("=")[0] for line in done.stdout.splitlines() if line.startswith("  --")]
    assert options == [
        "--accept-drift",
        "--check",
        "--debug",
        "--forks",
        "--host",
        "--inventory",
        "--json",
        "--on-failure",
        "--patch",
        "--resume",
        "--serial",
        "--steal-lock",
        "--steps",
        "--takeover",
        "--tokens",
    ]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_of_every_command_is_explained(name: str) -> None:
    task = runpy.run_path(str(PROJECT / "tasks.py"))[name.replace("-", "_")]
    assert [argument.name for argument in task.get_arguments() if not argument.help] == []


def test_a_wrong_host_exits_2_with_the_json_object_last_on_stdout() -> None:
    done = start("status", "--host", "eagel", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout.splitlines()[-1])["error"]["what"] == "unknown host or group 'eagel'"
    assert done.stderr.startswith("error: --host: unknown host or group 'eagel'\n  hint: did you mean 'eagle'?")


def test_patch_check_writes_the_patched_file_and_exits_0(tmp_path: Path) -> None:
    source, out = tmp_path / "eagle_worker.py", tmp_path / "patched.py"
    source.write_bytes(WORKER)
    done = start("patch-check", "--file", str(source), "--out", str(out), "--json")
    assert done.returncode == 0
    patch = json.loads(done.stdout)["patch"]
    assert patch["worker_class"] == "EAGLEWorker"
    assert patch["anchors"][0]["line"] > 0
    assert patch["diff"].startswith(f"--- a{source}\n+++ b{source}\n")
    assert f"+++ b{source}" in done.stderr
    kept = [line for line in out.read_bytes().splitlines() if b"# eaglelab:eagle3-profile" not in line]
    assert kept == WORKER.splitlines()


def test_patch_check_of_a_file_without_a_worker_exits_1_with_the_lines_looked_at(tmp_path: Path) -> None:
    source = tmp_path / "eagle_worker.py"
    source.write_bytes(WORKER.replace(b"self.verify(", b"self.check("))
    done = start("patch-check", "--file", str(source))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {source}:")
    assert " | " in done.stderr


def test_a_reader_that_goes_away_does_not_break_a_command(tmp_path: Path) -> None:
    source = tmp_path / "eagle_worker.py"
    source.write_bytes(WORKER)
    out = tmp_path / "patched.py"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "patch-check", "--file", str(source), "--out", str(out)],
        cwd=PROJECT,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert out.exists()


@pytest.mark.parametrize("stderr", ["", "2>/dev/full", "2>&-"])
@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"])
@pytest.mark.parametrize(
    ("words", "code"),
    [("patch-check --file FILE --json", 1), ("patch-check --file none --json", 2), ("patch-check --file none", 2)],
)
def test_an_answer_that_cannot_be_written_leaves_an_exit_code_and_no_traceback(
    tmp_path: Path, stdout: str, stderr: str, words: str, code: int
) -> None:
    (tmp_path / "worker.py").write_bytes(WORKER)
    argv = words.replace("FILE", str(tmp_path / "worker.py"))
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m invoke {argv} {stdout} {stderr}"],
        cwd=PROJECT,
        env=BUFFERED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"])
def test_a_person_who_cannot_be_told_does_not_break_a_command(tmp_path: Path, stdout: str) -> None:
    (tmp_path / "worker.py").write_bytes(WORKER)
    command = f"{sys.executable} -m invoke patch-check --file {tmp_path}/worker.py --out {tmp_path}/out.py {stdout}"
    done = subprocess.run(["sh", "-c", command], cwd=PROJECT, env=BUFFERED, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out.py").exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, 0),
        (HostError("w", where="h", hint="do"), 1),
        (InputError("w", where="h", hint="do"), 2),
        (AttentionError("w", where="h", hint="do"), 3),
        (GateMissed("w", where="h", hint="do"), 4),
        (Interrupted("w", where="h", hint="do"), 130),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError(), 1),
    ],
)
def test_every_end_has_its_exit_code(
    error: BaseException | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(outcome: Outcome, say: Say) -> None:
        if error:
            raise error

    assert perform(work, as_json=True, debug=False) == code
    out, err = capsys.readouterr()
    assert json.loads(out)["exit_code"] == code
    assert json.loads(out)["ok"] is (code == 0)
    assert err.startswith("error: ") is (code != 0)
