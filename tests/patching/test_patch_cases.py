"""Every shape of decode branch that SGLang has had, cut down; and what must be refused, with the words for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglelab.patching.plan import PatchRefused, plan_file, strip
from eaglelab.patching.spec import PatchSpec

CASES = Path(__file__).parents[1] / "cases" / "patching"
PLANNED = sorted(path.parent for path in CASES.glob("*/after.py"))
REFUSED = sorted(path.parent for path in CASES.glob("*/error.txt"))
NOTHING = sorted(path.parent for path in CASES.glob("*/nothing.txt"))


def named(case: Path) -> str:
    return case.name


def original_of(case: Path) -> bytes:
    """What the file was before any patch of ours: `before.py` itself, unless an older patch is in that already."""
    older = case / "original.py"
    return (older if older.is_file() else case / "before.py").read_bytes()


def test_every_case_has_one_outcome():
    assert len(PLANNED) > 12
    assert len(REFUSED) > 12
    assert sorted(PLANNED + REFUSED + NOTHING) == sorted(path for path in CASES.iterdir() if path.is_dir())


@pytest.mark.parametrize("case", PLANNED, ids=named)
def test_a_known_shape_is_patched(case, patch):
    plan = plan_file((case / "before.py").read_bytes(), patch, path="worker.py")
    assert plan.patched == (case / "after.py").read_bytes()
    assert plan.state == "patch"
    assert strip(plan.patched, patch.id) == plan.original == original_of(case)


@pytest.mark.parametrize("case", PLANNED, ids=named)
def test_patching_the_patched_file_changes_nothing(case, patch):
    plan = plan_file((case / "after.py").read_bytes(), patch, path="worker.py")
    assert plan.state == "already"
    assert plan.patched == plan.found
    assert plan.original == original_of(case)
    assert plan.diff() == ""


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_an_unknown_shape_is_refused_with_the_lines_looked_at(case, patch):
    with pytest.raises(PatchRefused) as refused:
        plan_file((case / "before.py").read_bytes(), patch, path="worker.py")
    without_hint = str(refused.value).partition("\n  hint: it was read as Python")[0]
    assert without_hint + "\n" == (case / "error.txt").read_text()
    assert refused.value.exit_code == 1


@pytest.fixture
def inheriting(patch):
    target = {"path": "srt/speculative/frozen_kv_mtp_worker_v2.py", "may_inherit": True}
    return PatchSpec.model_validate({**patch.model_dump(exclude_unset=True), "targets": [target]})


@pytest.mark.parametrize("case", NOTHING, ids=named)
def test_a_target_that_inherits_its_entry_is_left_alone(case, inheriting):
    source = (case / "before.py").read_bytes()
    plan = plan_file(source, inheriting, path="srt/speculative/frozen_kv_mtp_worker_v2.py")
    assert plan.state == "nothing"
    assert plan.found == plan.original == plan.patched == source
    assert (plan.edits, plan.sed_ranges(), plan.diff()) == ((), [], "")
    assert plan.notes == tuple((case / "nothing.txt").read_text().splitlines())
    plan.check_readback({})


@pytest.mark.parametrize("case", NOTHING, ids=named)
def test_a_target_that_must_have_an_entry_is_refused_without_one(case, inheriting):
    with pytest.raises(PatchRefused, match="no class defines"):
        plan_file((case / "before.py").read_bytes(), inheriting, path="srt/speculative/eagle_worker_v2.py")


@pytest.mark.parametrize(
    ("before", "reason"),
    [("refused-draft-after-verify", "verify stands before draft"), ("refused-without-an-entry", "no class defines")],
)
def test_a_target_that_may_inherit_is_refused_once_it_decodes_in_another_shape(before, reason, inheriting):
    """The second of these is an entry that was renamed: something there still verifies."""
    with pytest.raises(PatchRefused, match=reason):
        plan_file((CASES / before / "before.py").read_bytes(), inheriting, path="frozen_kv_mtp_worker_v2.py")
