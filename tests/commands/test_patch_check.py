"""patch-check: whether a local copy of a worker is a released one, and how far it is from the nearest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fake_host import WORKER

from eaglelab.patching.known import FILE, Known
from eaglelab.patching.plan import plan_file
from eaglelab.patching.spec import load_patch


@pytest.fixture
def copy(own: Path) -> Path:
    """A local copy of the worker that the project's patch knows as that of 0.5.9."""
    folder = own / "patches" / "eagle3-profile"
    source = folder.resolve()
    folder.unlink()
    shutil.copytree(source, folder)
    plan = plan_file(WORKER, load_patch(folder), path="srt/speculative/eagle_worker.py")
    (folder / FILE).write_text(Known.of([("0.5.9", plan)]).to_json())
    path = own / "eagle_worker.py"
    path.write_bytes(WORKER)
    return path


def test_a_released_file_is_called_known(invoke, copy: Path) -> None:
    done = invoke("patch-check", "--file", str(copy))
    assert done.code == 0
    assert done.out.splitlines()[-1] == "known: SGLang 0.5.9"


def test_another_file_is_compared_line_by_line_and_nothing_is_refused(invoke, copy: Path) -> None:
    copy.write_bytes(b"import os\n" + WORKER.replace(b"self.draft(batch)", b"self.draft(batch, 3)"))
    done = invoke("patch-check", "--file", str(copy), "--json")
    assert done.code == 0
    drift = done.json["patch"]["drift"]
    assert (drift["kind"], drift["release"]) == ("new", "0.5.9")
    assert "after-draft: line 16 -> 17, moved by +1, the same line" in drift["lines"]
    assert drift["lines"][-1] == "+    16 |                 spec_info = self.draft(batch, 3)"
    assert "not known: no release has it; the nearest is 0.5.9" in done.err
    assert "is refused, unless --accept-drift lets it pass" in done.err


def test_a_patch_that_knows_no_released_files_says_so(invoke, copy: Path) -> None:
    (copy.parent / "patches" / "eagle3-profile" / FILE).unlink()
    done = invoke("patch-check", "--file", str(copy))
    assert done.code == 0
    assert done.out.splitlines()[-1] == "this patch knows no released files to compare with"
