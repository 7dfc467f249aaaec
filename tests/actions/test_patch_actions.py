from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import yaml
from fake_host import (
    CASES,
    PACKAGE,
    PROBE_PATH,
    PROJECT,
    STATE,
    TARGET,
    WORKER,
    WORKER_PATH,
    make_context,
    refusal,
    said,
)

from eaglelab.actions import ACTIONS
from eaglelab.errors import AttentionError, HostError

PROBE = (PROJECT / "patches" / "eagle3-profile" / "eaglelab_probe.py").read_bytes()
FOREIGN = b"# somebody else's\n"


@pytest.fixture
def planned(do):
    do("doctor")
    return do("plan")


@pytest.fixture
def patched(planned, do):
    do("backup")
    return do("patch")


def test_a_plan_names_the_file_below_the_package_and_its_anchors(context, planned) -> None:
    assert planned == {"changes": 1, "files": [TARGET], "records": True}
    line = next(line for line in said(context).splitlines() if TARGET in line)
    assert "lines to insert in EAGLEWorker; anchors at import" in line
    assert "/srv/sglang" not in line


def test_the_diff_of_a_plan_looks_the_same_on_every_host(context, planned) -> None:
    diff = (context.bundle.folder / "patch.diff").read_text()
    assert diff.startswith(f"--- a/{TARGET}\n+++ b/{TARGET}\n")
    assert [line for line in diff.splitlines()[2:] if line.startswith("-")] == []


def test_what_sed_showed_on_the_host_is_kept(context, planned) -> None:
    shown = (context.bundle.folder / "sed" / "eagle_worker.py.txt").read_text()
    assert shown.startswith("$ sed -n '")
    assert f"p' {WORKER_PATH}\n" in shown


def test_a_plan_whose_lines_read_back_differently_is_refused(fake, context, planned, do) -> None:
    number = context.found.plans[0].edits[-1].line
    fake.lines[number] = "        something else"
    with pytest.raises(HostError, match="something else") as caught:
        do("plan")
    assert caught.value.where == f"fake: {TARGET}:{number}"
    assert "run the command again" in caught.value.hint


def test_a_worker_without_a_place_for_the_patch_is_refused_with_host_file_and_line(fake, do) -> None:
    fake.files[WORKER_PATH] = WORKER.replace(b"self.verify(", b"self.check(")
    do("doctor")
    with pytest.raises(HostError) as caught:
        do("plan")
    assert caught.value.where.startswith(f"fake: {TARGET}")


def test_under_check_the_diff_is_shown_as_it_can_be_copied(fake, tmp_path) -> None:
    context = make_context(fake, tmp_path, check=True)
    for name in ("doctor", "plan"):
        ACTIONS[name].run(context, ACTIONS[name].args())
    assert context.found.diff in said(context)


def test_backup_and_patch_change_the_worker_and_put_the_probe_beside_it(fake, context, patched) -> None:
    assert patched["changed"] == [PROBE_PATH, WORKER_PATH]
    assert fake.files[PROBE_PATH] == PROBE
    assert fake.files[WORKER_PATH] == context.found.plans[0].patched
    assert "2 of 2 files changed" in said(context)


def test_the_same_again_changes_nothing_and_says_so(fake, patched, tmp_path) -> None:
    before = fake.snapshot()
    context = make_context(fake, tmp_path / "second")
    for name in ("doctor", "plan", "backup", "patch"):
        result = ACTIONS[name].run(context, ACTIONS[name].args())
    assert result["changed"] == []
    assert "already in place: nothing changed" in said(context)
    assert fake.files == before[0]
    assert fake.manifest["files"][1]["original"] == before[1]["files"][1]["original"]


def test_what_a_run_changed_stays_on_record_when_a_later_load_of_it_changes_nothing(context, patched, do) -> None:
    diff = (context.bundle.folder / "patch.diff").read_text()
    assert "+" in diff
    assert do("plan")["changes"] == 0
    assert (context.bundle.folder / "patch.diff").read_text() == diff
    assert f"eagle3-profile is in place: {TARGET}" in said(context)


def test_a_patched_file_that_no_manifest_knows_is_backed_up_from_the_plan(fake, patched, tmp_path) -> None:
    fake.manifest = None
    context = make_context(fake, tmp_path / "second")
    for name in ("doctor", "plan", "backup"):
        ACTIONS[name].run(context, ACTIONS[name].args())
    args = dict(fake.calls)["backup"]
    assert [item["path"] for item in args["originals"]] == [WORKER_PATH]
    assert args["originals"][0]["size"] == len(WORKER)


def test_a_probe_of_ours_that_no_manifest_knows_has_no_original(fake, do) -> None:
    fake.files[PROBE_PATH] = PROBE
    for name in ("doctor", "plan", "backup", "patch", "rollback"):
        do(name)
    assert PROBE_PATH not in fake.files


def test_an_older_probe_that_no_manifest_knows_has_no_original_either(fake, do) -> None:
    fake.files[PROBE_PATH] = b"# eaglelab:eagle3-profile\nprobe = None\n"
    for name in ("doctor", "plan", "backup", "patch", "rollback"):
        do(name)
    assert PROBE_PATH not in fake.files


def test_a_server_that_does_not_end_does_not_keep_the_files_from_their_originals(fake, do) -> None:
    for name in ("doctor", "plan", "backup", "patch"):
        do(name)
    fake.fail["stop"] = refusal("not-stopped", "process 7 does not end")
    with pytest.raises(AttentionError, match="process 7"):
        do("rollback")
    assert fake.files[WORKER_PATH] == WORKER
    assert PROBE_PATH not in fake.files


def test_a_file_of_somebody_under_the_probes_name_comes_back(fake, do) -> None:
    fake.files[PROBE_PATH] = FOREIGN
    for name in ("doctor", "plan", "backup", "patch", "rollback"):
        do(name)
    assert fake.files[PROBE_PATH] == FOREIGN


INHERITS = (CASES / "patching" / "nothing-frozen-v2-that-inherits" / "before.py").read_bytes()
SECOND = f"{PACKAGE}/srt/speculative/frozen_kv_mtp_worker_v2.py"


@pytest.fixture
def with_second(fake, context, tmp_path) -> None:
    """The patch has a second target, which on this host leaves its entry to a class of another file."""
    folder = tmp_path / "patches" / "eagle3-profile"
    shutil.copytree(PROJECT / "patches" / "eagle3-profile", folder)
    spec = yaml.safe_load((folder / "patch.yaml").read_text())
    spec["targets"] = [{"path": TARGET}, {"path": SECOND.removeprefix(f"{PACKAGE}/"), "may_inherit": True}]
    (folder / "patch.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    context.options = replace(context.options, project=tmp_path)
    fake.files[SECOND] = INHERITS


@pytest.mark.usefixtures("with_second")
def test_a_file_with_nothing_to_patch_is_neither_backed_up_nor_written_nor_taken_away(fake, context, do) -> None:
    for name in ("doctor", "plan", "backup", "patch"):
        do(name)
    assert "frozen_kv_mtp_worker_v2.py: nothing to patch" in said(context)
    assert {"nothing", "patch"} == {
        file["state"] for file in json.loads((context.bundle.folder / "plan.json").read_text())["files"]
    }
    for op in ("backup", "apply"):
        assert SECOND not in [file["path"] for file in dict(fake.calls)[op]["files"]]
    do("rollback")
    assert fake.files[SECOND] == INHERITS


@pytest.mark.usefixtures("with_second")
def test_a_host_that_has_only_such_files_is_refused(fake, do) -> None:
    del fake.files[WORKER_PATH]
    do("doctor")
    with pytest.raises(HostError, match="nothing that eagle3-profile patches"):
        do("plan")


def test_nothing_is_patched_where_the_backup_failed(fake, planned, do) -> None:
    fake.fail["backup"] = refusal("disk-full", "no space left")
    with pytest.raises(HostError, match="no space left"):
        do("backup")
    assert fake.files[WORKER_PATH] == WORKER


def test_rollback_puts_every_byte_back_and_takes_the_probe_away(fake, context, patched, do) -> None:
    result = do("rollback")
    assert fake.files[WORKER_PATH] == WORKER
    assert PROBE_PATH not in fake.files
    assert sorted(result["restored"]) == [WORKER_PATH, PROBE_PATH]
    assert f"  in {WORKER_PATH.rpartition('/')[0]}:\n    eagle_worker.py: back to the original\n" in said(context)
    assert "    eaglelab_probe.py: removed\n" in said(context)


def test_a_second_rollback_has_nothing_to_do(context, patched, do) -> None:
    do("rollback")
    assert do("rollback")["nothing"] is True
    assert "nothing to do" in said(context)


def test_a_file_of_somebody_else_is_left_alone_and_the_rest_goes_back(fake, context, patched, do) -> None:
    fake.files[WORKER_PATH] = FOREIGN
    with pytest.raises(AttentionError, match=WORKER_PATH) as caught:
        do("rollback")
    assert caught.value.exit_code == 3
    assert f"cp {STATE}/objects/" in caught.value.hint
    assert caught.value.hint.endswith("invoke rollback --host fake")
    assert fake.files[WORKER_PATH] == FOREIGN
    assert "    eaglelab_probe.py: removed\n" in said(context)
    written = json.loads((context.bundle.folder / "rollback.json").read_text())
    assert {item["state"] for item in written["files"]} == {"foreign", "removed"}


def test_a_probe_that_somebody_changed_has_no_original_to_copy(fake, patched, do) -> None:
    fake.files[PROBE_PATH] = FOREIGN
    with pytest.raises(AttentionError) as caught:
        do("rollback")
    assert f"rm {PROBE_PATH}" in caught.value.hint


def test_a_preview_of_rollback_says_what_it_would_do_and_does_nothing(fake, context, patched) -> None:
    before = fake.snapshot()
    ACTIONS["rollback"].preview(context, ACTIONS["rollback"].args())
    assert fake.snapshot() == before
    assert "    eagle_worker.py: would go back to the original\n" in said(context)
    assert "    eaglelab_probe.py: would be removed\n" in said(context)


def test_an_edited_patched_file_is_refused_by_the_plan_already(fake, do) -> None:
    for name in ("doctor", "plan", "backup", "patch"):
        do(name)
    fake.files[WORKER_PATH] += b"# an edit\n"
    do("doctor")
    with pytest.raises(HostError, match="somebody has edited it"):
        do("plan")


def test_a_rollback_that_stops_half_way_says_which_files_are_back_and_wants_attention(fake, context, do) -> None:
    for name in ("doctor", "plan", "backup", "patch"):
        do(name)
    fake.fail["rollback"] = refusal("not-writable", "cannot write eagle_worker.py")
    with pytest.raises(AttentionError, match="2 of 2 files are not back yet") as caught:
        do("rollback")
    assert caught.value.exit_code == 3
    assert "invoke rollback" in caught.value.hint
    assert "eagle_worker.py: patched" in said(context)


def test_a_patched_worker_of_which_nothing_is_on_record_is_not_called_original(fake, do) -> None:
    for name in ("doctor", "plan", "backup", "patch"):
        do(name)
    fake.manifest = None
    with pytest.raises(AttentionError, match="nothing is on record of it") as caught:
        do("rollback")
    assert WORKER_PATH in caught.value.what
