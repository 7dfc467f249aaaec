"""The agent dies before or after every single step on the disk; a fresh one then puts everything back."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from crashkit import STEPS, Disk
from hostkit import MODULE, ORIGINAL, PATCHED, Installation, digest, temporaries

from eaglelab.remote.agent.wire import AgentError

OLDER = PATCHED.replace(b"_mark(1)", b"_old_mark(1)")


def deploy(host: Installation) -> None:
    host.deploy()


def deploy_over_an_older_patch(host: Installation) -> None:
    host.backup(originals={str(worker): ORIGINAL for worker in host.workers if worker.read_bytes() != ORIGINAL})
    host.apply()


def rollback(host: Installation) -> None:
    host.rollback()


def nothing(_: Installation) -> None:
    pass


def older_patch(host: Installation) -> None:
    for worker in host.workers:
        worker.write_bytes(OLDER)


def assert_whole(host: Installation) -> None:
    """The invariant, at every moment: each file is exactly one of those it may be."""
    for worker in host.workers:
        assert worker.read_bytes() in (ORIGINAL, PATCHED, OLDER)
    assert not host.module.exists() or host.module.read_bytes() == MODULE
    for path in (host.folder / "state/objects").glob("*"):
        if not path.name.endswith(".tmp"):
            assert digest(path.read_bytes()) == path.name
    host.journal.states()  # the manifest is whole, or not there


SCENES = [
    pytest.param(nothing, deploy, id="deploy"),
    pytest.param(deploy, rollback, id="rollback"),
    pytest.param(deploy, deploy, id="deploy-again"),
    pytest.param(older_patch, deploy_over_an_older_patch, id="deploy-over-an-older-patch"),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("prepare", "work"), SCENES)
def test_a_death_at_any_step_leaves_whole_files_and_a_rollback_ends_at_the_original(
    tmp_path: Path, prepare: Callable[..., None], work: Callable[..., None], after: bool
) -> None:
    count = steps_of(Installation(tmp_path / "count"), prepare, work)
    assert count > 5
    for fatal in range(count):
        host = Installation(tmp_path / str(fatal))
        prepare(host)
        Disk(fatal, after).die_in(work, host)
        if (host.folder / "state").exists():
            assert_whole(host)
        recover(host)
        host.assert_original()
        assert temporaries(host.folder) == []
        assert host.journal.read("manifest.json") is None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_death_at_any_step_does_not_keep_the_next_deploy_from_working(tmp_path: Path, after: bool) -> None:
    for fatal in range(steps_of(Installation(tmp_path / "count"), nothing, deploy)):
        host = Installation(tmp_path / str(fatal))
        Disk(fatal, after).die_in(deploy, host)
        host.deploy()
        host.assert_patched()
        assert temporaries(host.folder) == []
        host.rollback()
        host.assert_original()


def steps_of(host: Installation, prepare: Callable[..., None], work: Callable[..., None]) -> int:
    prepare(host)
    disk = Disk()
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        work(host)
    return len(disk.taken)


def recover(host: Installation) -> None:
    """What the next operator does. Over a patch that no manifest knew, the plan brings the original along."""
    if host.journal.read("manifest.json") is None and host.workers[0].read_bytes() == OLDER:
        deploy_over_an_older_patch(host)
    host.rollback()


@dataclass
class BadDisk:
    """From step `bad` on, all that touches the disk for writing fails; or that one step alone."""

    error: int
    bad: int = -1
    lasting: bool = True
    taken: int = 0

    def step(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def do(*args: Any, **more: Any) -> Any:
            if name == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR):
                return real(*args, **more)
            at, self.taken = self.taken, self.taken + 1
            if at == self.bad or (self.lasting and 0 <= self.bad < at and name not in ("unlink", "ftruncate")):
                if name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                raise OSError(self.error, os.strerror(self.error))
            return None if name == "fsync" else real(*args, **more)

        return do

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in STEPS:
            patch.setattr(os, name, self.step(name, getattr(os, name)))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EPERM], ids=errno.errorcode.get)
@pytest.mark.parametrize("lasting", [True, False], ids=["from-then-on", "once"])
def test_a_disk_that_fails_at_any_step_is_said_and_leaves_what_a_rollback_can_put_back(
    tmp_path: Path, number: int, lasting: bool
) -> None:
    disk = BadDisk(number)
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        deploy(Installation(tmp_path / "count"))
    for bad in range(disk.taken):
        host = Installation(tmp_path / str(bad))
        with pytest.MonkeyPatch.context() as patch:
            BadDisk(number, bad, lasting).install(patch)
            with contextlib.suppress(AgentError):  # and nothing else; a temporary that stays is no failure
                deploy(host)
        assert_whole(host)
        if not lasting:
            assert len({worker.read_bytes() for worker in host.workers}) == 1  # all or none
        host.rollback()
        host.assert_original()
        assert temporaries(host.folder) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_a_rollback_that_a_bad_disk_stops_anywhere_is_completed_by_the_next(tmp_path: Path, number: int) -> None:
    disk, counted = BadDisk(number), Installation(tmp_path / "count")
    deploy(counted)
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        rollback(counted)
    for bad in range(disk.taken):
        host = Installation(tmp_path / str(bad))
        deploy(host)
        with pytest.MonkeyPatch.context() as patch:
            BadDisk(number, bad).install(patch)
            with contextlib.suppress(AgentError):
                rollback(host)
        assert_whole(host)
        rollback(host)
        host.assert_original()


@pytest.mark.parametrize("most", [1, 7, 4096])
def test_a_disk_that_takes_only_parts_of_what_it_is_given_gets_all_of_it(
    host: Installation, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:most]))
    host.deploy()
    host.assert_patched()
    host.rollback()
    host.assert_original()
