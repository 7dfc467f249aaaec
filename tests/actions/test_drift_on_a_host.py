"""Workers that somebody has edited are shown line by line: before the patch, and after."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from fake_host import PROJECT, TARGET, WORKER, WORKER_PATH, FakeHost, make_context, said

from eaglelab.actions import ACTIONS
from eaglelab.context import Context, Options
from eaglelab.errors import HostError
from eaglelab.patching.known import Known
from eaglelab.patching.plan import plan_file
from eaglelab.patching.spec import load_patch

EDITED = WORKER.replace(b"self.draft(batch)", b"self.draft(batch, 3)")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose patch knows WORKER as the file of 0.5.9."""
    folder = shutil.copytree(PROJECT / "patches", tmp_path / "project" / "patches") / "eagle3-profile"
    known = Known.of([("0.5.9", plan_file(WORKER, load_patch(folder), path=TARGET))])
    (folder / "known.json").write_text(known.to_json())
    return tmp_path / "project"


@pytest.fixture
def on(fake: FakeHost, project: Path, tmp_path: Path):
    """A context on a host whose worker holds `worker` and whose SGLang is `version`; then doctor and plan."""

    def make(worker: bytes, version: str, **options: bool) -> Context:
        fake.files[WORKER_PATH], fake.facts["sglang_version"] = worker, version
        context = make_context(fake, tmp_path / "bundle")
        context.options = Options(project=project, **options)
        return context

    return make


def plan(context: Context) -> None:
    for name in ("doctor", "plan"):
        ACTIONS[name].run(context, ACTIONS[name].args())


def test_the_file_of_a_release_is_called_known(on) -> None:
    context = on(WORKER, "0.5.9")
    plan(context)
    assert "anchors at import 4" in said(context)
    assert "; known: SGLang 0.5.9\n" in said(context)


def test_an_edited_worker_of_a_known_release_is_refused_line_by_line(on, fake: FakeHost) -> None:
    with pytest.raises(HostError) as caught:
        plan(on(EDITED, "0.5.9"))
    assert f"{TARGET}: SGLang 0.5.9 is installed, and this is not the file that came with it" in caught.value.what
    assert "+    15 |                 spec_info = self.draft(batch, 3)" in caught.value.what
    assert "after-draft: line 16 -> 16, not moved, the same line" in caught.value.what
    assert caught.value.exit_code == 1
    assert "--accept-drift" in caught.value.hint
    assert fake.files[WORKER_PATH] == EDITED


def test_accepted_drift_is_shown_and_kept_in_the_bundle(on) -> None:
    context = on(EDITED, "0.5.9", accept_drift=True)
    plan(context)
    assert "+    15 |                 spec_info = self.draft(batch, 3)" in said(context)
    kept = json.loads((context.bundle.folder / "plan.json").read_text())["files"][0]["drift"]
    assert (kept["kind"], kept["release"]) == ("edited", "0.5.9")


@pytest.mark.parametrize("version", ["0.5.24", "unknown"])
def test_a_release_that_is_not_known_yet_is_patched_and_its_anchors_are_shown(on, version: str) -> None:
    context = on(b"import os\n" + EDITED, version)
    plan(context)
    assert "not known: " in said(context)
    assert "the nearest is 0.5.9" in said(context)
    assert "after-draft: line 16 -> 17, moved by +1, the same line" in said(context)


@pytest.fixture
def deployed(on, fake: FakeHost) -> Context:
    context = on(WORKER, "0.5.9")
    plan(context)
    for name in ("backup", "patch"):
        ACTIONS[name].run(context, ACTIONS[name].args())
    return context


def test_what_was_changed_since_the_patch_is_shown_line_by_line(deployed: Context, fake: FakeHost) -> None:
    fake.files[WORKER_PATH] = fake.files[WORKER_PATH].replace(b"self.draft(batch)", b"self.draft(batch, 3)")
    fake.objects_at_their_path()
    with pytest.raises(HostError, match="somebody has edited it since they were written") as caught:
        plan(deployed)
    lines = caught.value.what.splitlines()
    assert "-                spec_info = self.draft(batch)" in lines
    assert "+                spec_info = self.draft(batch, 3)" in lines
    assert len([line for line in lines if line.startswith(("+", "-"))]) == 4


def test_a_line_of_ours_that_is_gone_is_shown_too(deployed: Context, fake: FakeHost) -> None:
    ours = next(line for line in fake.files[WORKER_PATH].splitlines(keepends=True) if b"mark(2)" in line)
    fake.files[WORKER_PATH] = fake.files[WORKER_PATH].replace(ours, b"")
    fake.objects_at_their_path()
    with pytest.raises(HostError) as caught:
        plan(deployed)
    assert f"-{ours.decode().rstrip()}" in caught.value.what.splitlines()


def test_after_another_version_of_the_patch_only_the_strangers_lines_are_shown(
    deployed: Context, fake: FakeHost
) -> None:
    fake.manifest["files"][-1]["patched"] = ["0" * 64]
    fake.files[WORKER_PATH] += b"# an edit\n"
    fake.objects_at_their_path()
    with pytest.raises(HostError) as caught:
        plan(deployed)
    changed = [line for line in caught.value.what.splitlines() if line.startswith(("+", "-"))]
    assert changed == ["--- as eaglelab wrote it", "+++ as it is now", "+# an edit"]


def test_without_the_original_the_edit_is_refused_without_its_lines(deployed: Context, fake: FakeHost) -> None:
    fake.files[WORKER_PATH] += b"# an edit\n"
    with pytest.raises(HostError, match="its original is not kept on the host"):
        plan(deployed)
