"""One release of each shape family, as `make matrix` checks all of them; and that the check can fail."""

from __future__ import annotations

import os
from pathlib import Path

import matrix
import pytest
from wheels import Release, folder_of, releases

from eaglelab.lab.provision import cache_folder
from eaglelab.patching.known import Known

FAMILIES = matrix.chosen(families=True, versions=[])


def files_of(version: str) -> Path:
    folder = folder_of(version, cache_folder())
    if not folder.is_dir():
        missing = (
            f"the worker files of {version} are not in the cache: python tests/matrix/matrix.py --families --fetch"
        )
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    return folder


def test_the_list_is_in_order_and_its_sample_has_every_family_once():
    families = [family for release in releases() for family in release.families]
    assert len(releases()) >= 85
    assert len(families) == len(set(families)) >= 26
    assert {release.version for release in FAMILIES} >= {"0.4.1.post4", "0.5.3.post2", releases()[-1].version}


@pytest.mark.parametrize("release", FAMILIES, ids=lambda release: release.version)
def test_every_worker_of_a_family_is_patched_and_runs(release: Release, tmp_path: Path):
    outcome = matrix.check_release(release.version, files_of(release.version), tmp_path)
    assert outcome.wrong == []
    assert outcome.patched


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch):
    """Checks 0.5.12 with one place of the profile patch left out."""

    def check(place: str, scratch: Path) -> list[str]:
        load = matrix.load_patch

        def load_less(folder: Path):
            spec = load(folder)
            return spec.model_copy(update={"places": tuple(part for part in spec.places if part.name != place)})

        monkeypatch.setattr(matrix, "load_patch", load_less)
        return matrix.check_release("0.5.12", files_of("0.5.12"), scratch).wrong

    return check


@pytest.mark.parametrize("place", ["enter", "begin", "after-draft", "after-verify", "after-extend", "end"])
def test_a_missing_place_is_noticed_in_every_worker(without, place: str, tmp_path: Path):
    wrong = without(place, tmp_path)
    assert {complaint.partition(":")[0].rpartition("/")[2] for complaint in wrong} >= {
        "eagle_worker.py",
        "eagle_worker_v2.py",
        "multi_layer_eagle_worker.py",
        "multi_layer_eagle_worker_v2.py",
        "frozen_kv_mtp_worker.py",
    }


def test_a_file_that_the_patch_does_not_know_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(matrix, "load_known", lambda _: Known())
    wrong = matrix.check_release("0.5.9", files_of("0.5.9"), tmp_path).wrong
    expected = "known.json is not up to date with srt/speculative/eagle_worker.py: matrix.py --known"
    assert f"eagle3-profile: {expected}" in wrong
    assert f"verify-shapes: {expected}" in wrong


def test_an_unknown_release_is_named():
    with pytest.raises(SystemExit, match=r"not in releases\.txt: 9\.9\.9"):
        matrix.chosen(families=False, versions=["9.9.9", "0.5.9"])


def test_a_headline_counts_what_is_wrong(capsys: pytest.CaptureFixture[str]):
    good = matrix.Outcome("0.5.12", patched=["v1", "v2"], nothing=["frozen v2"])
    bad = matrix.Outcome("0.5.13", patched=["v2"], wrong=["eagle_worker_v2.py: decode: [] instead of [1]"])
    assert matrix._headline([good], 1.0) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 releases, 2 worker files: all patched"
    assert matrix._headline([good, bad], 1.0) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 releases, 3 worker files: 1 releases WRONG"
    assert bad.line().splitlines()[1].strip().startswith("eagle_worker_v2.py: decode")
