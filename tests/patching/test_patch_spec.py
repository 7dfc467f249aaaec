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
        "verify-done",
        "after-verify-and-extend",
        "end",
        "verified",
    ]
    assert patch.records


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
        ("at: after text", "at: behind text", "'behind text' is not a place", "after text"),
        ("    text: verify_done.record()\n", "", "'after text' needs the `text` to look for", "docs/patches.md"),
        ("text: verify_done.record()", 'text: "a\\nb"', "a piece of one line", "docs/patches.md"),
        ("text: verify_done.record()", "text: x\n    count: 0", "must be at least 1", ""),
        ("text: verify_done.record()", "txt: x", "unknown key 'places.6.txt'", "did you mean 'text'?"),
        ("    calls: [self.verify]", "    cals: [self.verify]", "'statements.verify.calls' is missing", ""),
        ("    binds:", "    bind:", "unknown key 'statements.verify.bind'", "did you mean 'binds'?"),
        ("at: after draft", "at: after draft\n    text: x", "goes with 'before text' and 'after text' only", ""),
        ("at: after draft", "at: after draft\n    count: 2", "goes with 'before text' and 'after text' only", ""),
        ("at: after draft", "at: after draft\n    function: verify", "'after draft' is a place of the entry", ""),
        ("at: after draft", "at: after draft\n    optional: true", "another `function` can be left out", ""),
        ("unless: extend", "unless: extent", "'extent' is not an optional statement", "did you mean 'extend'?"),
        ("when: extend", "when: draft", "'draft' is not an optional statement", "optional: extend"),
        ("_eaglelab.probe.mark(2)", "_eaglelab.probe.mark({bound})", "'{bound}' has no meaning in this place", ""),
        (
            "_eaglelab.probe.mark(2)",
            "_eaglelab.probe.mark({bound[x]})",
            "'{bound[x]}' has no meaning in this place",
            "",
        ),
        ("_e3.mark(1)", "_e3.mark('\u00e9')", "must be ASCII", ""),
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


def test_the_wrong_line_is_the_one_that_is_named(written, tmp_path):
    with pytest.raises(InputError) as error:
        written("unless: extend", "unless: extent")
    number = int(error.value.where.rpartition(":")[2])
    assert "unless: extent" in (tmp_path / "patch" / "patch.yaml").read_text().splitlines()[number - 1]


def test_braces_other_than_the_names_are_left_alone(written):
    patch = written("_e3.end({bound}, ", "_e3.end({bound}, {'a': {1}}, {args[1]}, ")
    [end] = [place for place in patch.places if place.name == "end"]
    text = end.filled(batch="b", bound="out", args=["b", "publish"])
    assert text == "if _e3 is not None: _e3.end(out, {'a': {1}}, publish, None)"


def test_a_name_beside_the_result_is_filled_in_where_verify_binds_it(patch):
    [end] = [place for place in patch.places if place.name == "end"]
    bound = end.filled(batch="b", bound="out", beside=("logits", "out", "can_run_cuda_graph"), args=["b"])
    assert bound == "if _e3 is not None: _e3.end(out, can_run_cuda_graph)"
    assert end.filled(batch="b", bound="out", beside=("out",), args=["b"]) == "if _e3 is not None: _e3.end(out, None)"


def test_a_statement_called_text_would_be_taken_for_the_place(written):
    with pytest.raises(InputError, match="'text' is taken"):
        written("  draft:\n", "  text:\n")


def test_a_module_that_does_not_name_its_patch_is_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "patch", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "patch" / "eaglelab_probe.py").write_text("probe = None\n")
    with pytest.raises(InputError, match="does not say that it belongs to this patch") as error:
        load_patch(tmp_path / "patch")
    assert error.value.hint == "give it a line '# eaglelab:eagle3-profile'"
