"""Logs brought home from a real agent, while the link breaks and the log is rotated."""

from __future__ import annotations

import hashlib
import json
import os
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from fake_host import CANARY, PROJECT, FakeHost, make_context, said
from linkkit import BreakingLink, BreakingPipe, client, interpreters

from eaglelab.actions import pull, witness
from eaglelab.actions.evidence import PROVE
from eaglelab.actions.pull import fetch
from eaglelab.actions.serve import end_of
from eaglelab.actions.wait import _HostProbe
from eaglelab.context import Context, LogMark
from eaglelab.errors import HostError
from eaglelab.patching.spec import load_patch

CHUNK = 1000


@pytest.fixture
def link() -> BreakingLink:
    return BreakingLink()


@pytest.fixture
def real(tmp_path: Path, link: BreakingLink, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    """A context on an agent of this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(pull, "_CHUNK", CHUNK)
    context = make_context(FakeHost(), tmp_path / "bundle")
    context.client = client(link, attempts=6)
    yield context
    context.client.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(b"of an earlier run\n" + lines(200))
    return path


def lines(count: int, seed: int = 0) -> bytes:
    found = random.Random(seed)
    return b"".join(b"%d %x\n" % (number, found.getrandbits(80)) for number in range(count))


def begin(log: Path) -> LogMark:
    return LogMark(str(log), len(b"of an earlier run\n"), log.stat().st_ino)


def noted(context: Context, name: str = "server.log") -> dict[str, Any]:
    return dict(json.loads((context.bundle.folder / "fetch.json").read_text())[name])


def fetched(context: Context) -> bytes:
    return (context.bundle.folder / "server.log").read_bytes()


def between_pieces(context: Context, monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], Any]) -> None:
    """Lets each act happen after one more piece has come."""
    call, todo = context.client.call_bytes, list(acts)

    def then(op: str, *args: Any, **more: Any) -> Any:
        found = call(op, *args, **more)
        if op == "tail" and todo:
            todo.pop(0)()
        return found

    monkeypatch.setattr(context.client, "call_bytes", then)


def test_what_came_is_noted_with_the_sha256_of_the_unmasked_bytes(real: Context, log: Path) -> None:
    log.write_bytes(log.read_bytes() + b"api_key=s3cret\n")
    wanted = log.read_bytes()[18:]
    assert fetch(real, begin(log), "server.log") == len(wanted)
    assert noted(real)["parts"] == [
        {
            "path": str(log),
            "begin": 18,
            "end": 18 + len(wanted),
            "bytes": len(wanted),
            "sha256": hashlib.sha256(wanted).hexdigest(),
        }
    ]
    assert b"s3cret" not in fetched(real)
    assert said(real) == ""


def test_a_link_that_breaks_at_any_byte_changes_nothing_and_costs_a_chunk(
    real: Context, log: Path, link: BreakingLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, asked = log.read_bytes()[18:], []
    call = real.client._ask

    def counting(op: str, args: dict[str, Any], *more: Any) -> Any:
        asked.extend([args["offset"]] if op == "tail" else [])
        return call(op, args, *more)

    monkeypatch.setattr(real.client, "_ask", counting)
    fetch(real, begin(log), "server.log")
    whole = len(asked)
    assert fetched(real) == wanted
    for position in range(0, 6000, 157):
        asked.clear()
        link.pipes[-1].received_left = position  # of all answers: messages, bytes, the digest
        assert fetch(real, begin(log), "server.log") == len(wanted)
        assert fetched(real) == wanted
        assert len(asked) <= whole + 1  # one chunk, asked for twice
        assert asked == sorted(asked)


def test_a_link_that_breaks_again_and_again_brings_the_log_home_all_the_same(
    real: Context, log: Path, link: BreakingLink
) -> None:
    def cut(count: int) -> Callable[[BreakingPipe], None]:
        return lambda pipe: setattr(pipe, "received_left", count)

    real.client.call("status")
    link.pipes[-1].received_left = 500
    link.faults = [cut(count) for count in (1300, 1400, 1500, 1700)]
    fetch(real, begin(log), "server.log")
    assert fetched(real) == log.read_bytes()[18:]
    assert len(link.pipes) >= 5


def test_a_log_that_is_rotated_while_it_is_fetched_comes_whole_with_its_successors(
    real: Context, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, mark, middle, last = log.read_bytes()[18:], begin(log), lines(90, 1), lines(20, 2)

    def rotate() -> None:
        log.rename(log.with_name("server.log.1"))
        log.write_bytes(middle)

    def again() -> None:
        log.with_name("server.log.1").rename(log.with_name("server.log.2"))
        log.rename(log.with_name("server.log.1"))
        log.write_bytes(last)

    between_pieces(real, monkeypatch, rotate, again)
    assert fetch(real, mark, "server.log") == len(first + middle + last)
    assert fetched(real) == first + middle + last
    parts = noted(real)["parts"]
    assert [(part["bytes"], part["begin"]) for part in parts] == [(len(first), 18), (len(middle), 0), (len(last), 0)]
    assert [part["sha256"] for part in parts] == [hashlib.sha256(data).hexdigest() for data in (first, middle, last)]
    assert said(real) == ""  # nothing is lost


def test_a_log_that_was_rotated_before_the_fetch_is_read_where_it_lies_now(real: Context, log: Path) -> None:
    mark = end_of(real, str(log))
    before = hashlib.sha256(log.read_bytes()[-256:]).hexdigest()
    assert mark == LogMark(str(log), log.stat().st_size, log.stat().st_ino, before)
    with log.open("ab") as file:
        file.write(b"rest of the old\n")
    log.rename(log.with_name("server.log.1"))
    log.write_bytes(b"new\n")
    fetch(real, mark, "server.log")
    assert fetched(real) == b"rest of the old\nnew\n"
    assert [part.get("rotated", False) for part in noted(real)["parts"]] == [True, False]
    end = end_of(real, str(log), mark.inode)
    assert (end.offset, end.inode) == (mark.offset + 16, mark.inode)


def test_a_log_that_is_cut_to_nothing_while_it_is_fetched_is_said(
    real: Context, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut() -> None:
        os.truncate(log, 0)
        log.write_bytes(b"new\n")

    between_pieces(real, monkeypatch, cut)
    fetch(real, begin(log), "server.log")  # the first part can no longer be proven: it is fetched once more
    assert fetched(real) == b"new\n"
    assert noted(real)["parts"][0]["truncated"] is True
    assert "was cut to nothing on the host" in said(real)


def test_a_log_that_was_cut_to_nothing_and_is_longer_than_before_comes_from_its_start(real: Context, log: Path) -> None:
    mark, wanted = end_of(real, str(log)), lines(900, 3)
    os.truncate(log, 0)
    log.write_bytes(wanted)
    fetch(real, mark, "server.log")
    assert fetched(real) == wanted
    assert "was cut to nothing on the host" in said(real)


@pytest.mark.parametrize("packed", [True, False])
def test_a_log_that_is_gone_is_said_with_where_the_rest_may_be(real: Context, log: Path, packed: bool) -> None:
    mark = begin(log)
    if packed:
        log.with_name("server.log.1.gz").write_bytes(b"packed")
    with log.open("rb"):  # or its inode would be given to the next file
        log.unlink()
        log.write_bytes(b"new\n")
        fetch(real, mark, "server.log")
    assert fetched(real) == b"new\n"
    assert noted(real)["parts"][0]["lost"] is None
    assert "an unknown number of bytes lost" in said(real)
    assert ("look into" in said(real)) is packed


def test_of_a_log_that_goes_in_the_middle_at_least_the_known_rest_is_counted(
    real: Context, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = log.stat().st_size - 18
    mark, held = begin(log), log.open("rb")
    between_pieces(real, monkeypatch, log.unlink)
    monkeypatch.setattr(pull, "_differing", lambda *_: None)  # nothing is there to compare with
    fetch(real, mark, "server.log")
    held.close()
    assert noted(real)["parts"][1]["lost"] == size - CHUNK
    assert f"at least {size - CHUNK} bytes lost" in said(real)


def damaged(context: Context, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    call, left = context.client.call_bytes, [times]

    def flip(op: str, *args: Any, **more: Any) -> Any:
        answer, data = call(op, *args, **more)
        if op == "tail" and data and left[0] > 0:
            left[0] -= 1
            data = b"X" + data[1:]
        return answer, data

    monkeypatch.setattr(context.client, "call_bytes", flip)
    return left


def test_bytes_that_arrive_damaged_are_fetched_once_more(
    real: Context, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged(real, monkeypatch, 1)
    fetch(real, begin(log), "server.log")
    assert fetched(real) == log.read_bytes()[18:]


def test_bytes_that_arrive_damaged_twice_are_refused_with_both_sums(
    real: Context, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = hashlib.sha256(log.read_bytes()[18:]).hexdigest()
    damaged(real, monkeypatch, 100)
    with pytest.raises(HostError, match=rf"arrived damaged twice: bytes 18 to \d+ have .* here and {wanted} there"):
        fetch(real, begin(log), "server.log")
    assert not (real.bundle.folder / "fetch.json").exists()


def test_every_file_has_its_own_entry_in_the_note(real: Context, log: Path) -> None:
    fetch(real, begin(log), "server.log")
    fetch(real, LogMark(str(log), 0), "probe/rank0.jsonl")
    fetch(real, LogMark(str(log.with_name("none")), 0), "empty.log")
    assert noted(real, "server.log")["bytes"] == noted(real, "probe/rank0.jsonl")["bytes"] - 18
    assert noted(real, "empty.log")["bytes"] == 0


def test_who_waits_for_a_server_follows_its_log_through_a_rotation(real: Context, log: Path) -> None:
    """The server's output stays where it began, wherever a rotation moves it; what takes the old path is not its own."""
    probe, moved = _HostProbe(real, begin(log)), log.with_name("server.log.1")
    answer, written = probe.poll(18)
    assert written == log.read_bytes()[18:]
    log.rename(moved)
    with moved.open("ab") as file:
        file.write(b"ready\n")
    log.write_bytes(b"another one's\n")
    offset = answer["offset"] + len(written)
    answer, written = probe.poll(offset)
    assert (written, answer["offset"]) == (b"ready\n", offset)
    assert probe.poll(offset + 6)[1] == b""
    os.truncate(moved, 0)
    moved.write_bytes(b"anew\n")
    answer, written = probe.poll(offset + 6)
    assert (written, answer["offset"], answer["truncated"]) == (b"anew\n", 0, True)


INTERPRETERS = interpreters()


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13"])
def test_a_rotated_log_comes_home_from_any_python(real: Context, log: Path, version: str) -> None:
    if version not in INTERPRETERS:
        pytest.skip(f"no Python {version} is installed here")
    real.client.close()
    real.client = client(python=INTERPRETERS[version])
    mark, wanted = begin(log), log.read_bytes()[18:]
    log.rename(log.with_name("server.log.1"))
    log.write_bytes(b"new\n")
    fetch(real, mark, "server.log")
    assert fetched(real) == wanted + b"new\n"


@pytest.mark.parametrize("kind", ["hole", "bar", "lines"])
def test_memory_stays_bounded_whatever_the_log_is(
    real: Context, log: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All that reads a log of the host; 32 MB are many times what any of it may hold."""
    monkeypatch.setattr(pull, "_CHUNK", 4 << 20)
    block = {"hole": bytes(1 << 20), "bar": b"x" * (1 << 20), "lines": b"x" * 9999 + b"\n"}[kind]
    with log.open("wb") as file:
        file.writelines(block for _ in range((32 << 20) // len(block)))
        file.write(b"\n" + CANARY)
    real.found.log, real.found.spec = LogMark(str(log), 0), load_patch(PROJECT / "patches" / "eagle3-profile")
    real.client.call("status")
    tracemalloc.start()
    try:
        assert fetch(real, LogMark(str(log), 0), "server.log") == log.stat().st_size
        assert PROVE.run(real, PROVE.args())["classes"] == ["EAGLEWorker"]
        report = witness._log(real, witness.Witness(PurePosixPath(), LogMark(str(log), 0), ()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [canary.worker for canary in report.canaries] == ["EAGLEWorker"]
    assert peak < 40 << 20
    assert hashlib.sha256(fetched(real)).digest() == hashlib.sha256(log.read_bytes()).digest()
