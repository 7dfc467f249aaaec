"""The agent dies before or after every single step on the disk; a fresh one then puts everything back."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hostkit import MODULE, ORIGINAL, PATCHED, Installation, digest, temporaries

OLDER = PATCHED.replace(b"_mark(1)", b"_old_mark(1)")

STEPS = [
    "chmod",
    "chown",
    "fchmod",
    "fsync",
    "ftruncate",
    "makedirs",
    "open",
    "removexattr",
    "rename",
    "setxattr",
    "unlink",
    "write",
]


class Killed(BaseException):
    """SIGKILL: no handler of the agent runs after it."""


@dataclass
class Disk:
    """Counts the steps; kills before (or after) the one at `fatal`. A write is cut in half first."""

    fatal: int = -1
    after: bool = False
    taken: list[str] = field(default_factory=list)

    def step(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def do(*args: Any, **more: Any) -> Any:
            at = len(self.taken)
            self.taken.append(name)
            if at != self.fatal:
                return None if name == "fsync" else real(*args, **more)
            if self.after and name == "write":
                real(*args)
            elif self.after:
                close(real(*args, **more))
            elif name == "write":
                real(args[0], args[1][: len(args[1]) // 2])
            raise Killed(f"{'after' if self.after else 'before'} step {at}: {name}")

        return do

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in STEPS:
            patch.setattr(os, name, self.step(name, getattr(os, name)))
        patch.setattr(builtins, "open", self.step("read", open))

    def die_in(self, work: Callable[[Installation], None], host: Installation) -> None:
        with pytest.MonkeyPatch.context() as patch:
            self.install(patch)
            with pytest.raises(Killed):
                work(host)


def close(opened: Any) -> None:
    """What a death does to the descriptors."""
    if isinstance(opened, io.IOBase):
        opened.close()
    elif type(opened) is int:
        os.close(opened)


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
