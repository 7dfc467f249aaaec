from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.patching.plan import PatchRefused, plan_file, strip
from eaglelab.patching.spec import PatchSpec, load_patch

PATCH = load_patch(Path(__file__).parents[2] / "patches" / "eagle3-profile")
CASES = Path(__file__).parents[1] / "cases" / "patching"
SOURCES = [path.with_name("before.py").read_text() for path in sorted(CASES.glob("[A-Za-z]*-0.*/after.py"))]
WORKER = (CASES / "m-0.5.12-tracing-between-phases-and-adaptive-hook" / "before.py").read_bytes()
LATIN = "# -*- coding: latin-1 -*-\n# caf\u00e9\n"


def changed(**fields: object) -> PatchSpec:
    return PatchSpec.model_validate({**PATCH.model_dump(), **fields})


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A worker in some other style of newline, indentation, encoding and end of file."""
    unit = draw(st.sampled_from(["    ", "\t", "  ", "   "]))
    newline = draw(st.sampled_from([["\n"], ["\r\n"], ["\n", "\r\n"]]))
    lines = draw(st.sampled_from(SOURCES)).splitlines()
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    text = "".join(
        unit * (indent // 4) + line[indent:] + draw(st.sampled_from(newline))
        for indent, line in zip(indents, lines, strict=True)
    )
    text = text if draw(st.booleans()) else text.rstrip("\r\n")
    if draw(st.booleans()):
        return (LATIN + text).encode("latin-1")
    return text.encode("utf-8-sig" if draw(st.booleans()) else "utf-8")


@given(files())
def test_stripping_the_patched_file_gives_back_every_byte(source):
    plan = plan_file(source, PATCH, path="worker.py")
    assert plan.patched != source
    assert strip(plan.patched, PATCH.id) == source


@given(files())
def test_only_whole_lines_are_added_in_the_style_of_their_anchor(source):
    plan = plan_file(source, PATCH, path="worker.py")
    before = source.splitlines(keepends=True)
    added = [line for line in plan.patched.splitlines(keepends=True) if b"# eaglelab:" in line]
    rows = [(row, edit) for edit in plan.edits for row in edit.text]
    for line, (row, edit) in zip(added, rows, strict=True):
        anchor = before[edit.line - 1]
        assert edit.anchor == anchor.rstrip(b"\r\n")
        assert row.startswith(anchor[: len(anchor) - len(anchor.lstrip())])
        # The last line may have no newline to copy.
        style = anchor if anchor.endswith(b"\n") else before[edit.line - 2]
        assert line == row + (b"\r\n" if style.endswith(b"\r\n") else b"\n")


def test_edits_name_the_line_they_go_before():
    plan = plan_file(WORKER, PATCH, path="worker.py")
    lines = WORKER.splitlines()
    assert [(edit.place, edit.line) for edit in plan.edits] == [
        ("import", 4),
        ("enter", 9),
        ("begin", 12),
        ("after-draft", 20),
        ("after-verify", 25),
        ("after-extend", 37),
        ("end", 42),
    ]
    assert all(edit.anchor == lines[edit.line - 1] for edit in plan.edits)
    assert plan.edits[3].text == (b"            if _e3 is not None: _e3.mark(1)  # eaglelab:eagle3-profile",)
    assert (plan.worker_class, plan.entry) == ("EAGLEWorker", "forward_batch_generation")


def test_hashes_are_those_of_the_bytes():
    plan = plan_file(WORKER, PATCH, path="worker.py")
    assert plan.original_sha256 == plan.found_sha256 == hashlib.sha256(WORKER).hexdigest()
    assert plan.patched_sha256 == hashlib.sha256(plan.patched).hexdigest()


def test_sed_ranges_show_two_lines_around_each_anchor_once():
    plan = plan_file(WORKER, PATCH, path="worker.py")
    assert plan.sed_ranges() == [(2, 14), (18, 27), (35, 42)]


def test_lines_read_back_are_compared_with_the_anchors():
    plan = plan_file(WORKER, PATCH, path="worker.py")
    lines = dict(enumerate(WORKER.splitlines(), start=1))
    shown = {number: lines[number] for first, last in plan.sed_ranges() for number in range(first, last + 1)}
    plan.check_readback(shown)
    with pytest.raises(PatchRefused, match="line 20 is now 'something else'") as refused:
        plan.check_readback({**shown, 20: b"  something else"})
    assert refused.value.looked_at == ((20, lines[20].decode()),)
    del shown[42]
    with pytest.raises(PatchRefused, match="line 42 was not read back"):
        plan.check_readback(shown)


def test_an_older_patch_is_replaced_and_read_back_by_the_lines_on_the_host():
    older = changed(places=[{"name": "import", "at": "after imports", "insert": "import eaglelab_old"}])
    found = plan_file(WORKER, older, path="worker.py").patched
    plan = plan_file(found, PATCH, path="worker.py")
    assert plan.state == "patch"
    assert plan.original == WORKER
    assert plan.patched == plan_file(WORKER, PATCH, path="worker.py").patched
    assert plan.found_sha256 == hashlib.sha256(found).hexdigest()
    assert plan.edits[0].line == 4
    assert plan.sed_ranges()[0] == (3, 15)
    plan.check_readback(dict(enumerate(found.splitlines(), start=1)))
    assert "-import eaglelab_old" in plan.diff()


def test_the_diff_is_unified_and_names_the_file():
    diff = plan_file(WORKER, PATCH, path="eagle_worker.py").diff().splitlines()
    assert diff[:2] == ["--- a/eagle_worker.py", "+++ b/eagle_worker.py"]
    assert [line for line in diff[2:] if line.startswith("-")] == []
    assert "+            if _e3 is not None: _e3.mark(2)  # eaglelab:eagle3-profile" in diff


def test_the_diff_says_where_the_last_newline_is_missing():
    source = (CASES / "G-0.5.14-zero-steps" / "before.py").read_bytes().rstrip(b"\n")
    assert plan_file(source, PATCH, path="worker.py").diff().endswith("\\ No newline at end of file\n")


def test_an_extend_inside_verify_is_timed_there():
    source = (CASES / "A-0.5.3.post2-extend-inside-verify" / "before.py").read_bytes()
    plan = plan_file(source, PATCH, path="worker.py")
    places = {edit.place: source.splitlines()[edit.line - 1].strip() for edit in plan.edits}
    assert places["verify-done"] == b"self.draft_model_runner.model.forward("
    assert places["after-verify-and-extend"] == b"return batch_output"
    assert not {"after-verify", "after-extend"} & set(places)
    assert plan.notes[0] == "no extend statement in the decode branch"


@pytest.mark.parametrize(
    ("place", "lines"),
    [
        ({"at": "before text", "text": "batch.spec_info = verify_input"}, [22]),
        ({"at": "after text", "text": '"draft_start"'}, [14]),
        ({"at": "before text", "text": "moe_context(),", "count": 2}, [14, 28]),
        ({"at": "start of function", "function": "forward_batch_generation"}, [9]),
    ],
)
def test_a_text_leads_to_the_statement_that_it_stands_in(place, lines):
    patch = changed(places=[{"name": "here", "insert": "pass", **place}])
    assert [edit.line for edit in plan_file(WORKER, patch, path="worker.py").edits] == lines


def test_the_first_argument_of_another_method_is_named_as_that_method_names_it():
    source = (CASES / "style-counts-hook" / "before.py").read_bytes()
    edit = plan_file(source, PATCH, path="worker.py").edits[-1]
    assert edit.place == "verified"
    assert b"_eaglelab.probe.verified(self, num_correct_drafts_per_req)  #" in edit.text[0]


def test_lone_carriage_returns_are_refused_because_sed_counts_otherwise():
    with pytest.raises(PatchRefused, match="lone carriage return"):
        plan_file(WORKER.replace(b"\n", b"\r", 3), PATCH, path="worker.py")


@pytest.mark.parametrize("source", [b"", b"\0", b"\xff\xfe", b"(" * 5000])
def test_what_is_no_python_is_refused(source):
    with pytest.raises(PatchRefused):
        plan_file(source, PATCH, path="worker.py")


def test_text_that_would_change_the_program_is_refused():
    decorator = changed(places=[{"name": "import", "at": "after imports", "insert": "@print"}])
    source = WORKER.replace(b"logger = logging.getLogger(__name__)\n", b"")
    with pytest.raises(PatchRefused, match="change the meaning of the file"):
        plan_file(source, decorator, path="worker.py")


def test_warnings_of_the_host_file_stay_quiet():
    plan = plan_file(WORKER + b'PATTERN = "\\d" is 1\n', PATCH, path="worker.py")
    assert plan.state == "patch"
