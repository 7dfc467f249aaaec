"""The agent's code, kept on its host: used where it is whole and nobody else can have written it, else asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from linkkit import BreakingLink, client

from eaglelab.remote.agent import kept
from eaglelab.remote.payload import agent_source

DIGEST = "d" * 64
ME = {"by": "me@here", "run": "r1", "command": "test", "since": "now"}


def code(text: str) -> Any:
    return compile(text, "agent", "exec")


def value(found: Any) -> Any:
    names: dict[str, Any] = {}
    exec(found, names)
    return names["value"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "eaglelab"
    folder.mkdir(0o700)
    kept.keep_code(str(folder), DIGEST, code("value = 1"))
    return folder


def the_file(state: Path) -> Path:
    (found,) = (state / "agent").iterdir()
    return found


def test_what_is_kept_is_found_and_is_its_user_s_alone(state: Path) -> None:
    assert value(kept.kept_code(str(state), DIGEST)) == 1
    assert (state / "agent").stat().st_mode & 0o777 == 0o700
    assert the_file(state).stat().st_mode & 0o777 == 0o600
    assert kept.kept_code(str(state), "e" * 64) is None


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def decay(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)


def other_code_with_the_old_seal(path: Path) -> None:
    import marshal

    path.write_bytes(path.read_bytes()[:32] + marshal.dumps(code("value = 2")))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def writable_by_others(path: Path) -> None:
    path.chmod(0o666)


def a_folder_that_others_enter(path: Path) -> None:
    path.parent.chmod(0o770)


def a_state_that_others_enter(path: Path) -> None:
    path.parent.parent.chmod(0o755)


def a_link(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def a_linked_folder(path: Path) -> None:
    path.parent.rename(path.parent.parent / "elsewhere")
    path.parent.symlink_to(path.parent.parent / "elsewhere")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize(
    "spoil",
    [
        cut,
        decay,
        other_code_with_the_old_seal,
        empty,
        writable_by_others,
        a_folder_that_others_enter,
        a_state_that_others_enter,
        a_link,
        a_linked_folder,
        a_pipe,
    ],
)
def test_what_cannot_be_trusted_is_not_run(state: Path, spoil: Callable[[Path], None]) -> None:
    spoil(the_file(state))
    assert kept.kept_code(str(state), DIGEST) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("part", ["file", "folder", "state"])
def test_what_belongs_to_somebody_else_is_not_run(state: Path, part: str) -> None:
    path = {"file": the_file(state), "folder": state / "agent", "state": state}[part]
    os.chown(path, 65534, 65534)
    assert kept.kept_code(str(state), DIGEST) is None


def test_the_code_of_another_python_is_not_run(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept.sys, "version", "3.99.0 (another build)")
    assert kept.kept_code(str(state), DIGEST) is None


def test_only_the_newest_versions_stay(state: Path) -> None:
    for number in range(6):
        kept.keep_code(str(state), str(number) * 64, code("value = 0"))
        os.utime(state / "agent" / kept._kept_name(str(number) * 64), (number + 10**9, number + 10**9))
    left = sorted(path.name[0] for path in (state / "agent").iterdir())
    assert len(left) == 4
    assert {"3", "4", "5"} <= set(left)


def test_nothing_is_kept_on_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_LEFT", 1 << 62)
    kept.keep_code(str(tmp_path), DIGEST, code("value = 1"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_nothing_is_no_error_and_keeps_nothing_half(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept.os, "rename", full)
    kept.keep_code(str(state), "e" * 64, code("value = 1"))
    assert [path.name for path in (state / "agent").iterdir()] == [kept._kept_name(DIGEST)]


class Counting(BreakingLink):
    """Counts the bytes that a client sends."""

    sent = 0

    def open(self, command: Any) -> Any:
        pipe = super().open(command)
        send = pipe.send

        def counted(data: bytes, timeout: float) -> None:
            self.sent += len(data)
            send(data, timeout)

        pipe.send = counted  # type: ignore[method-assign]
        return pipe


def once(lock: bool) -> int:
    """Bytes that one short visit sends."""
    link = Counting()
    visitor = client(link)
    if lock:
        visitor.lock(ME)
    assert visitor.call("status")["manifest"] is None
    visitor.close()
    return link.sent


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "eaglelab"


def test_an_agent_is_sent_once_and_then_begins_from_what_is_kept(home: Path) -> None:
    assert once(lock=True) > len(agent_source())
    assert once(lock=True) < 10_000
    assert once(lock=False) < 10_000


def test_one_that_only_looks_leaves_nothing(home: Path) -> None:
    once(lock=False)
    assert not home.exists()


def test_after_somebody_spoilt_it_the_agent_is_sent_again_and_kept_anew(home: Path) -> None:
    once(lock=True)
    cut(the_file(home))
    assert once(lock=True) > len(agent_source())
    assert once(lock=True) < 10_000
