"""A package whose every file is a link into a store: the store stays as it was, and the links come back."""

from __future__ import annotations

import os
import py_compile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from crashkit import Disk
from hostkit import MODULE, ORIGINAL, PATCHED, Installation, digest, temporaries

from eaglelab.remote.agent.links import link_into_store
from eaglelab.remote.agent.wire import AgentError


@dataclass
class Links(Installation):
    """As uv makes it with --link-mode=symlink."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.store.mkdir()
        (self.package / "__init__.py").touch()
        for file in list(self.package.iterdir()):
            file.rename(self.store / file.name)
            file.symlink_to(self.store / file.name)

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def entry(self, path: Path, original: bytes | None, patched: bytes) -> dict[str, Any]:
        link = link_into_store(str(self.package), str(path)) if path.exists() else None
        return {**super().entry(path, original, patched), "link": link}

    def assert_store(self) -> None:
        assert {file.name: file.read_bytes() for file in self.store.iterdir()} == {
            "__init__.py": b"",
            **{worker.name: ORIGINAL for worker in self.workers},
        }

    def assert_original(self) -> None:
        self.assert_store()
        there = {file.name: file.readlink() for file in self.package.iterdir()}
        assert there == {file.name: file for file in self.store.iterdir()}


@pytest.fixture
def links(tmp_path: Path) -> Links:
    return Links(tmp_path)


def deploy(host: Links) -> None:
    host.deploy()


def rollback(host: Links) -> None:
    host.rollback()


def test_a_link_gives_way_to_a_file_and_comes_back(links: Links) -> None:
    links.deploy()
    links.assert_patched()
    links.assert_store()
    assert [worker.is_symlink() for worker in links.workers] == [False, False]
    assert links.workers[0].stat().st_mode & 0o777 == 0o640
    links.deploy()  # finds files, and remembers the links
    links.rollback()
    links.assert_original()
    assert links.rollback()["nothing"] is True


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("work", [deploy, rollback])
def test_a_death_at_any_step_leaves_whole_files_and_a_rollback_ends_at_the_links(
    tmp_path: Path, work: Any, after: bool
) -> None:
    counted, disk = Links(tmp_path / "count"), Disk()
    if work is rollback:
        deploy(counted)
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        work(counted)
    assert work is deploy or "symlink" in disk.taken
    for fatal in range(len(disk.taken)):
        host = Links(tmp_path / str(fatal))
        if work is rollback:
            deploy(host)
        Disk(fatal, after).die_in(work, host)
        host.assert_store()
        assert {worker.read_bytes() for worker in host.workers} <= {ORIGINAL, PATCHED}
        host.rollback()
        host.assert_original()
        assert temporaries(host.folder) == []


def test_a_link_that_is_turned_elsewhere_meanwhile_is_left_alone(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    links.backup()
    worker, second = links.workers[0], links.folder / "second.py"
    second.write_bytes(ORIGINAL)
    fchmod = os.fchmod

    def turn(descriptor: int, mode: int) -> None:
        fchmod(descriptor, mode)
        worker.unlink(missing_ok=True)
        worker.symlink_to(second)

    monkeypatch.setattr(os, "fchmod", turn)
    with pytest.raises(AgentError) as refused:
        links.journal.apply("run-1", {str(worker): PATCHED})
    assert refused.value.code == "changed"
    assert (worker.readlink(), second.read_bytes()) == (second, ORIGINAL)
    links.assert_store()


def test_a_file_that_somebody_put_in_the_place_of_ours_is_left_alone(links: Links) -> None:
    links.deploy()
    links.workers[0].write_bytes(b"mine\n")
    found = {Path(item["path"]).name: item["state"] for item in links.rollback()["files"]}
    assert found["eagle_worker.py"] == "foreign"
    assert links.workers[0].read_bytes() == b"mine\n"
    links.assert_store()


@pytest.mark.parametrize("store", [None, b"another release\n"], ids=["emptied", "other bytes"])
def test_where_the_link_would_not_show_the_original_its_bytes_are_put_there(links: Links, store: bytes | None) -> None:
    links.deploy()
    stored = links.store / "eagle_worker.py"
    stored.unlink()
    if store is not None:
        stored.write_bytes(store)
    links.rollback()
    assert (links.workers[0].is_symlink(), links.workers[0].read_bytes()) == (False, ORIGINAL)
    assert links.workers[1].is_symlink()


def test_originals_that_were_put_back_as_files_become_links_again(links: Links) -> None:
    links.deploy()
    for worker in links.workers:
        worker.write_bytes(ORIGINAL)
    assert {item["state"] for item in links.rollback()["files"]} == {"restored", "removed"}
    links.assert_original()


def test_bytecode_is_removed_where_python_keeps_it_and_not_in_the_store(links: Links) -> None:
    stale, theirs = (
        Path(py_compile.compile(str(folder / "eagle_worker.py")) or "") for folder in (links.package, links.store)
    )
    links.deploy()
    assert (stale.exists(), theirs.exists()) == (False, True)
    links.rollback()
    assert theirs.exists()


def test_a_relative_link_is_as_good_as_an_absolute_one(links: Links) -> None:
    for file in links.package.iterdir():
        file.unlink()
        file.symlink_to(f"../store/{file.name}")
    links.deploy()
    links.assert_patched()
    links.assert_store()
    links.rollback()
    assert {str(file.readlink()) for file in links.package.iterdir()} == {
        f"../store/{file.name}" for file in links.store.iterdir()
    }


def test_a_single_link_in_a_package_of_files_is_followed(host: Installation) -> None:
    (host.package / "__init__.py").touch()
    mine = host.folder / "mine.py"
    host.workers[0].rename(mine)
    host.workers[0].symlink_to(mine)
    assert link_into_store(str(host.package), str(host.workers[0])) is None


def test_a_link_within_the_package_is_followed(links: Links) -> None:
    links.workers[1].unlink()
    links.workers[1].symlink_to("eagle_worker.py")
    (links.package / "inner.py").write_bytes(MODULE)
    links.workers[0].unlink()
    links.workers[0].symlink_to("inner.py")
    assert [link_into_store(str(links.package), str(worker)) for worker in links.workers] == [None, None]
    assert digest(links.workers[1].read_bytes()) == digest(MODULE)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_link_of_another_user_than_the_store_s_keeps_its_owner(links: Links) -> None:
    worker = links.workers[0]
    os.chown(worker, 1234, 2345, follow_symlinks=False)
    files = [{**entry, "uid": 1234, "gid": 2345} if entry["path"] == str(worker) else entry for entry in links.files()]
    links.backup(files=files)
    links.apply()
    assert (worker.is_symlink(), worker.lstat().st_uid, worker.lstat().st_gid) == (False, 1234, 2345)
    links.rollback()
    assert (worker.is_symlink(), worker.lstat().st_uid, worker.lstat().st_gid) == (True, 1234, 2345)
    assert (links.store / worker.name).stat().st_uid == os.getuid()


def test_a_damaged_link_in_the_manifest_is_refused(links: Links) -> None:
    links.deploy()
    manifest = links.folder / "state/manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"{links.store}/eagle_worker.py"', "7"))
    with pytest.raises(AgentError) as refused:
        links.rollback()
    assert refused.value.code == "bad-state"
