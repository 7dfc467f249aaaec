"""Every shape of decode branch that SGLang has had, cut down; and what must be refused, with the words for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglelab.patching.plan import PatchRefused, plan_file, strip

CASES = Path(__file__).parents[1] / "cases" / "patching"
PLANNED = sorted(path.parent for path in CASES.glob("*/after.py"))
REFUSED = sorted(path.parent for path in CASES.glob("*/error.txt"))


def named(case: Path) -> str:
    return case.name


def test_every_case_has_one_outcome():
    assert len(PLANNED) > 12
    assert len(REFUSED) > 12
    assert sorted(PLANNED + REFUSED) == sorted(path for path in CASES.iterdir() if path.is_dir())


@pytest.mark.parametrize("case", PLANNED, ids=named)
def test_a_known_shape_is_patched(case, patch):
    plan = plan_file((case / "before.py").read_bytes(), patch, path="worker.py")
    assert plan.patched == (case / "after.py").read_bytes()
    assert plan.state == "patch"
    assert strip(plan.patched, patch.id) == plan.original == plan.found


@pytest.mark.parametrize("case", PLANNED, ids=named)
def test_patching_the_patched_file_changes_nothing(case, patch):
    plan = plan_file((case / "after.py").read_bytes(), patch, path="worker.py")
    assert plan.state == "already"
    assert plan.patched == plan.found
    assert plan.original == (case / "before.py").read_bytes()
    assert plan.diff() == ""


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_an_unknown_shape_is_refused_with_the_lines_looked_at(case, patch):
    with pytest.raises(PatchRefused) as refused:
        plan_file((case / "before.py").read_bytes(), patch, path="worker.py")
    without_hint = str(refused.value).partition("\n  hint: it was read as Python")[0]
    assert without_hint + "\n" == (case / "error.txt").read_text()
    assert refused.value.exit_code == 1
