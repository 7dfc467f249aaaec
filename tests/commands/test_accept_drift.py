"""--accept-drift, of every command that patches: an edited worker of a known release passes with it and not without."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fake_host import TARGET, WORKER, WORKER_PATH

from eaglelab.patching.known import FILE, Known
from eaglelab.patching.plan import plan_file
from eaglelab.patching.spec import load_patch

EDITED = WORKER.replace(b"self.draft(batch)", b"self.draft(batch, 3)")


@pytest.mark.parametrize(
    "words",
    [
        ("deploy-profiling", "--host", "a"),
        ("bench", "--host", "a", "--num-prompts", "1"),
        ("play", "deploy-profiling", "--host", "a"),
    ],
    ids=lambda words: words[0],
)
def test_an_edited_worker_is_patched_only_where_that_is_accepted(invoke, own: Path, fakes, words) -> None:
    folder = own / "patches" / "eagle3-profile"
    source = folder.resolve()
    folder.unlink()
    shutil.copytree(source, folder)
    known = Known.of([("0.5.9", plan_file(WORKER, load_patch(folder), path=TARGET))])
    (folder / FILE).write_text(known.to_json())
    host = fakes["a"]
    host.facts["sglang_version"], host.files[WORKER_PATH] = "0.5.9", EDITED
    refused = invoke(*words)
    assert refused.code == 1
    assert "+    15 |                 spec_info = self.draft(batch, 3)" in refused.err
    assert "--accept-drift" in refused.err
    assert host.files[WORKER_PATH] == EDITED
    assert "apply" not in host.ops()
    accepted = invoke(*words, "--accept-drift")
    assert accepted.code == 0
    assert "+    15 |                 spec_info = self.draft(batch, 3)" in accepted.out
    assert "apply" in host.ops()
