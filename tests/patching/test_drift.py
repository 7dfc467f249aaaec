"""How a worker stands to the released ones: what is told of it, and which are compared."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from eaglelab.errors import InputError
from eaglelab.lab.provision import cache_folder
from eaglelab.patching.drift import Drift, find_drift
from eaglelab.patching.known import Known, describe, load_known
from eaglelab.patching.plan import FilePlan, plan_file
from eaglelab.patching.spec import PatchSpec

CASES = Path(__file__).parents[1] / "cases" / "patching"
PATH = "srt/speculative/eagle_worker.py"
OLD = (CASES / "h-0.4.8-decode-in-else" / "before.py").read_bytes()
WORKER = (CASES / "l-0.5.9-three-contexts-in-one-with" / "before.py").read_bytes()


@pytest.fixture
def plan(patch: PatchSpec):
    def of(data: bytes, path: str = PATH) -> FilePlan:
        return plan_file(data, patch, path=path)

    return of


@pytest.fixture
def known(plan) -> Known:
    """Two releases have WORKER, an older one has another file."""
    return Known.of([("0.4.8", plan(OLD)), ("0.5.8", plan(WORKER)), ("0.5.9", plan(WORKER))])


@pytest.fixture
def drift(plan, known: Known):
    def of(data: bytes, installed: str | None = "0.5.9", path: str = PATH) -> Drift:
        return find_drift(plan(data, path), known, installed)

    return of


def test_a_file_of_two_releases_is_kept_once(known: Known) -> None:
    assert [file.releases for file in known.files] == [("0.4.8",), ("0.5.8", "0.5.9")]


def test_what_is_known_is_the_same_once_written_and_read(known: Known) -> None:
    assert Known.from_json(known.to_json()) == known


def test_a_patch_without_the_file_knows_nothing_and_says_so(plan, tmp_path: Path) -> None:
    drift = find_drift(plan(WORKER), load_known(tmp_path), "0.5.9")
    assert (drift.kind, drift.lines()) == ("unlisted", [])
    assert drift.headline() == "this patch knows no released files to compare with"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"texts": [], "methods": [], "files": [["a"]]}', '{"texts": 1'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "known.json").write_text(text)
    with pytest.raises(InputError, match="cannot be read") as refused:
        load_known(tmp_path)
    assert refused.value.where == str(tmp_path / "known.json")


@pytest.mark.parametrize("installed", ["0.5.9", "0.5.8", "0.5.9+cu128"])
def test_a_released_file_is_known_by_its_release(drift, installed: str) -> None:
    found = drift(WORKER, installed)
    assert (found.kind, found.lines()) == ("known", [])
    assert found.headline() == f"known: SGLang {installed.partition('+')[0]}"


def test_a_released_file_that_is_patched_is_known_all_the_same(drift, plan) -> None:
    assert drift(plan(WORKER).patched).kind == "known"


def test_a_file_of_another_release_than_the_installed_one_is_named_so(drift) -> None:
    assert drift(WORKER, "0.4.8").headline() == "known: SGLang 0.5.9, though 0.4.8 is installed"
    assert drift(WORKER, None).headline() == "known: SGLang 0.5.9"


def test_an_added_line_is_shown_and_the_anchors_behind_it_are_moved_by_one(drift) -> None:
    found = drift(
        WORKER.replace(b"                spec_info =", b"                print(batch)\n                spec_info =")
    )
    assert found.kind == "edited"
    assert found.headline() == "SGLang 0.5.9 is installed, and this is not the file that came with it"
    assert found.lines() == [
        "import: line 4 -> 4, not moved, the same line",
        "enter: line 9 -> 9, not moved, the same line",
        "begin: line 12 -> 12, not moved, the same line",
        "after-draft: line 16 -> 17, moved by +1, the same line",
        "after-verify: line 20 -> 21, moved by +1, the same line",
        "after-extend: line 31 -> 32, moved by +1, the same line",
        "end: line 31 -> 32, moved by +1, the same line",
        "forward_batch_generation, compared with 0.5.9:",
        "+    15 |                 print(batch)",
    ]


def test_a_changed_anchor_is_shown_as_it_was_and_as_it_is(drift) -> None:
    lines = drift(WORKER.replace(b"return dict(", b"return self.found(")).lines()
    assert "end: line 31 -> 31, not moved, another line: `return dict(` -> `return self.found(`" in lines
    assert lines[-2:] == ["-    31 |             return dict(", "+    31 |             return self.found("]


def test_a_line_that_is_gone_is_named_by_its_number_for_its_text_is_not_kept(drift) -> None:
    lines = drift(WORKER.replace(b"                # NOTE: slow when DP attention is enabled.\n", b"")).lines()
    assert lines[-1] == "-    23 | (a line of the release that is not here)"


def test_a_change_outside_of_the_entry_is_told_by_how_much_longer_the_file_is(drift) -> None:
    lines = drift(WORKER + b"\n\nSPEED = 2\n").lines()
    assert lines[-1].endswith("has the lines of 0.5.9: what differs is elsewhere in the file (+3 lines)")
    assert all("not moved, the same line" in line for line in lines[:-1])


@pytest.mark.parametrize("installed", ["0.5.24", "0.5.10.dev7+g1a2b3c", "0.0.0.dev0"])
def test_a_version_that_is_not_known_is_new_and_compared_with_the_most_similar(drift, installed: str) -> None:
    found = drift(WORKER + b"\n", installed)
    assert found.kind == "new"
    assert found.headline().endswith("is no release that this patch knows; the nearest is 0.5.9")
    assert drift(OLD + b"\n", installed).release == "0.4.8"


def test_the_installed_release_is_compared_with_even_if_another_is_more_similar(drift) -> None:
    assert drift(OLD + b"\n", "0.5.8").release == "0.5.8"


def test_an_anchor_that_only_one_of_the_two_has_is_named(plan, patch: PatchSpec, known: Known) -> None:
    less = patch.model_copy(update={"places": patch.places[1:]})
    missing = find_drift(plan_file(WORKER + b"\n", less, path=PATH), known, None).lines()
    assert missing[-2] == "import: not here (line 4: logger = logging.getLogger(__name__))"
    fewer = Known.of([("0.5.9", plan_file(WORKER, less, path=PATH))])
    assert find_drift(plan(WORKER + b"\n"), fewer, None).lines()[0].startswith("import: not there (line 4")


def test_a_copy_under_another_name_is_compared_with_all(drift) -> None:
    found = drift(WORKER + b"\n", None, "/tmp/copy.py")
    assert (found.kind, found.release) == ("new", "0.5.9")
    assert found.headline() == "not known: no release has it; the nearest is 0.5.9"


def test_the_patches_that_come_along_know_every_release_of_the_list(folder: Path) -> None:
    listed = (Path(__file__).parents[1] / "matrix" / "releases.txt").read_text().splitlines()
    releases = {line.split()[0] for line in listed if line and not line.startswith("#")}
    for patch in (folder, folder.with_name("verify-shapes")):
        assert load_known(patch).releases == releases


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12", "0.5.16", "0.5.23"])
def test_the_workers_of_the_lab_are_known(folder: Path, patch: PatchSpec, version: str) -> None:
    package = cache_folder() / f"sglang-{version}" / "sglang"
    if not package.is_dir():
        pytest.skip(f"SGLang {version} is not in the cache")
    files = [package / target.path for target in patch.targets if (package / target.path).is_file()]
    known = load_known(folder)
    for file in files:
        found = known.find(hashlib.sha256(file.read_bytes()).hexdigest())
        assert found is not None, file.name
        assert version in found.releases


def test_a_file_that_inherits_its_entry_has_no_lines_and_no_anchors(plan) -> None:
    source = (CASES / "nothing-frozen-v2-that-inherits" / "before.py").read_bytes()
    found = describe(plan(source, "srt/speculative/frozen_kv_mtp_worker_v2.py"))
    assert (found.entry, found.prints, found.anchors) == ("", (), ())
