"""A log that grows while it is read, and what rotations do to it."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from serverkit import ServerHost, until

from eaglelab.remote.agent.tail import digest_range, fingerprint, read_tail
from eaglelab.remote.agent.wire import AgentError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(b"0123456789")
    return path


def tail(path: Path, offset: int, inode: int | None = None, limit: int = 1 << 20) -> tuple[dict[str, Any], bytes]:
    return read_tail(str(path), offset, limit, inode)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_a_file_that_only_grew_is_read_on(log: Path) -> None:
    answer, data = tail(log, 4, inode(log))
    about = {"path": str(log), "size": 10, "inode": inode(log), "offset": 4, "before": sha(b"0123456789")}
    assert (data, answer) == (b"456789", about)
    assert tail(log, 4, limit=2)[1] == b"45"
    assert tail(log, 10, inode(log))[1] == b""


def test_a_file_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    answer, data = tail(tmp_path / "none.log", 0)
    assert (answer["size"], answer["inode"], data) == (0, 0, b"")


def test_the_rest_of_a_renamed_log_comes_before_the_new_one(log: Path) -> None:
    old = inode(log)
    moved = log.rename(log.with_name("server.log.1"))
    log.write_bytes(b"new")
    answer, data = tail(log, 4, old)
    assert data == b"456789"
    assert (answer["rotated"], answer["end"], answer["path"]) == (True, 10, str(moved))
    assert (answer["inode"], answer["follower"]) == (old, inode(log))
    answer, data = tail(log, 0, answer["follower"])
    assert (data, "rotated" in answer, "lost" in answer) == (b"new", False, False)


@pytest.mark.parametrize(
    "names",
    [
        ["server.log.2", "server.log.1"],
        ["server.log.10", "server.log.9"],
        ["server.log-20260101", "server.log-20260102"],
    ],
)
def test_rotations_in_between_are_read_in_their_order(log: Path, names: list[str]) -> None:
    """The mtime says nothing: the server still writes to the oldest."""
    old = inode(log)
    log.rename(log.with_name(names[0]))
    log.write_bytes(b"middle")
    middle = log.rename(log.with_name(names[1]))
    log.write_bytes(b"new")
    (log.parent / "server.log.bak").write_bytes(b"somebody's")
    os.utime(log.with_name(names[0]))
    assert tail(log, 0, old)[0]["follower"] == inode(middle)
    answer, data = tail(log, 0, inode(middle))
    assert (data, answer["follower"]) == (b"middle", inode(log))


def test_a_log_under_any_other_name_that_begins_with_its_own_is_found(log: Path) -> None:
    old = inode(log)
    log.rename(log.with_name("server.log.old"))
    answer, data = tail(log, 4, old)  # no new one yet
    assert (data, answer["rotated"], answer["follower"]) == (b"456789", True, None)


def test_a_log_that_was_cut_to_nothing_is_read_from_its_start_and_said(log: Path) -> None:
    os.truncate(log, 0)
    log.write_bytes(b"new")
    answer, data = tail(log, 4, inode(log))
    assert (data, answer["truncated"], answer["offset"]) == (b"new", True, 0)


def test_a_log_that_was_cut_to_nothing_and_has_grown_past_that_again_is_known_by_what_stood_before(log: Path) -> None:
    first = tail(log, 0, inode(log), limit=4)[0]
    assert first["before"] == sha(b"0123")
    assert read_tail(str(log), 4, 100, inode(log), first["before"])[1] == b"456789"
    os.truncate(log, 0)
    log.write_bytes(b"other and longer")
    answer, data = read_tail(str(log), 4, 100, inode(log), first["before"])
    assert (data, answer["truncated"], answer["offset"]) == (b"other and longer", True, 0)


def test_only_the_last_bytes_before_an_offset_are_looked_at(log: Path) -> None:
    log.write_bytes(bytes(range(256)) * 40)
    end = read_tail(str(log), -1, 0, None)[0]
    assert (end["offset"], end["before"]) == (10240, sha(bytes(range(256))))
    assert fingerprint(str(log), 10240) == end["before"]
    assert fingerprint(str(log.with_name("none")), 0) is None


@pytest.mark.parametrize("new", [b"new", None], ids=["made-anew", "gone"])
def test_a_log_that_is_gone_is_said_to_be_lost(log: Path, new: bytes | None) -> None:
    old = inode(log)
    with gzip.open(log.with_name("server.log.1.gz"), "wb") as packed:
        packed.write(log.read_bytes())
    held = log.open("rb")  # or its inode would be given to the next file
    log.unlink()
    if new is not None:
        log.write_bytes(new)
    answer, data = tail(log, 4, old)
    assert (data, answer["lost"], answer["offset"]) == (new or b"", None, 0)
    assert answer["compressed"] == [str(log) + ".1.gz"]
    held.close()


def test_a_removed_log_that_a_server_of_ours_still_writes_is_read_through_it(server_host: ServerHost) -> None:
    record = server_host.start("import time; print('still here', flush=True); time.sleep(60)")
    until(lambda: server_host.log.read_bytes(), "it has written")
    server_host.log.unlink()
    server_host.log.write_bytes(b"another one's")
    found = read_tail(str(server_host.log), 0, 100, record["log_inode"], None, server_host.server.outputs())
    assert found[1] == b"still here\n"
    assert found[0]["rotated"]
    assert found[0]["follower"] == inode(server_host.log)


def test_a_log_behind_a_link_is_looked_for_where_it_really_lies(log: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "current.log"
    link.symlink_to(log)
    old = inode(log)
    log.rename(log.with_name("server.log.1"))
    log.write_bytes(b"new")
    answer, data = tail(link, 8, old)
    assert (data, answer["rotated"]) == (b"89", True)


def test_a_pipe_or_a_folder_in_the_place_of_a_log_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(AgentError) as refused:
            tail(path, 0)
        assert refused.value.code == "not-regular"
    assert tail(tmp_path / "none", 0, 1)[1] == b""  # the pipe beside it is not opened either


def test_a_pipe_beside_a_rotated_log_is_passed_over(log: Path) -> None:
    os.mkfifo(log.with_name("server.log.0"))
    old = inode(log)
    log.rename(log.with_name("server.log.1"))
    assert tail(log, 8, old)[1] == b"89"
    assert "lost" in tail(log, 8, inode(log.with_name("server.log.0")))[0]


def test_the_sha256_of_a_range_is_that_of_its_bytes_wherever_they_lie(log: Path) -> None:
    beats: list[dict[str, Any]] = []
    wanted = {"sha256": hashlib.sha256(b"3456").hexdigest(), "bytes": 4}
    assert digest_range(str(log), 3, 7, None, beats.append) == wanted
    old = inode(log)
    log.rename(log.with_name("server.log.1"))
    assert digest_range(str(log), 3, 7, old, beats.append) == wanted
    assert beats == [{"hashed": 4}, {"hashed": 4}]
    assert digest_range(str(log), 3, 99, old, beats.append)["bytes"] == 7
    assert digest_range(str(log), 3, 7, 1, beats.append) == {"sha256": hashlib.sha256().hexdigest(), "bytes": 0}
