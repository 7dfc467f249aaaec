from __future__ import annotations

import shutil

import pytest

from eaglelab.errors import InputError
from eaglelab.patching.spec import load_patch


@pytest.fixture
def written(folder, tmp_path):
    """Loads the patch after one change to its patch.yaml; the text to change must be there."""

    def write(old: str, new: str):
        shutil.copytree(folder, tmp_path / "patch", ignore=shutil.ignore_patterns("__pycache__"))
        text = (tmp_path / "patch" / "patch.yaml").read_text()
        assert old in text
        (tmp_path / "patch" / "patch.yaml").write_text(text.replace(old, new, 1))
        return load_patch(tmp_path / "patch")

    return write


def test_the_patch_that_comes_with_the_project_loads(patch):
    assert (patch.id, patch.gate) == ("eagle3-profile", "EAGLE3_PROFILE")
    assert [target.path for target in patch.targets][:2] == [
        "srt/speculative/eagle_worker.py",
        "srt/speculative/eagle_worker_v2.py",
    ]
    assert patch.modules[0].to == "srt/speculative/eaglelab_probe.py"
    assert [place.name for place in patch.places] == [
        "import",
        "enter",
        "begin",
        "after-draft",
        "after-verify",
        "after-extend",
        "end",
    ]


def test_a_folder_without_a_patch_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file") as error:
        load_patch(tmp_path)
    assert str(tmp_path / "patch.yaml") in error.value.where


@pytest.mark.parametrize(
    ("old", "new", "what", "hint"),
    [
        ("title:", "titel: x\ntitle:", "unknown key 'titel'", "title"),
        ("    to: srt", "    dest: srt", "'modules.0.to' is missing", ""),
        ("gate: EAGLE3_PROFILE", "gate: eagle3", "gate", ""),
        ("(?P<rank>", "(?P<rang>", "lacks the named group (?P<rank>...)", ""),
        (r"probe \S+", "probe (", "not a regular expression", ""),
        ("path: srt/speculative/eagle_worker.py", "path: /srt/eagle_worker.py", "below the sglang package", ""),
        ("to: srt/speculative/", "to: ../speculative/", "below the sglang package", ""),
        ("source: eaglelab_probe.py", "source: probe.py", "'probe.py' is not in the folder", "put it into"),
        ("at: after draft", "at: after drafts", "'after drafts' is not a place", "did you mean 'after draft'?"),
        ("at: before return", "at: return", "'return' is not a place", "places: after imports"),
        ("_e3.mark(1)", "_e3.mark(1", "'after-draft' cannot be inserted: '(' was never closed", ""),
        ("probe = None", "probe = '''\n          '''", "leaves no room for the marker", ""),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_was_meant(written, old, new, what, hint):
    with pytest.raises(InputError) as error:
        written(old, new)
    assert what in error.value.what
    assert hint in error.value.hint
    assert error.value.where.rpartition(":")[2].isdigit()


def test_braces_other_than_the_two_names_are_left_alone(written):
    patch = written("_e3.end({bound})", "_e3.end({bound}, {'a': {1}})")
    assert patch.places[-1].filled(batch="b", bound="out") == "if _e3 is not None: _e3.end(out, {'a': {1}})"
