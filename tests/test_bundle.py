from __future__ import annotations

import json
from pathlib import Path

import pytest

from eaglelab.bundle import Bundle, new_run
from eaglelab.errors import HostError
from eaglelab.masking import Masker


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return Bundle(tmp_path / "run", "run", "h", Masker([], ["s3cret"]), clock=lambda: 12.3456)


def test_a_runs_name_has_its_time_first_and_only_plain_letters() -> None:
    name = new_run("Deploy profiling/äö", 1_000_000_000.0, token=lambda: "3fa9")
    assert name.endswith("-deploy-profiling-3fa9")
    assert name[:8].isdecimal()
    assert new_run("a", 0.0) != new_run("a", 0.0)


def test_nothing_is_made_before_something_is_written(bundle: Bundle) -> None:
    assert not bundle.folder.exists()


def test_texts_and_objects_are_written_masked(bundle: Bundle) -> None:
    assert bundle.text("a/b.txt", "key s3cret").read_text() == "key ***"
    written = json.loads(bundle.json("c.json", {"API_KEY": "x", "list": ["s3cret", {"d": "s3cret"}]}).read_text())
    assert written == {"API_KEY": "***", "list": ["***", {"d": "***"}]}


def test_a_command_line_is_masked_after_its_secret_flag_even_if_the_key_is_not_known(bundle: Bundle) -> None:
    written = json.loads(
        bundle.json("c.json", {"record": {"command": ["x", "--api-key", "unknown", "--port", "1"]}}).read_text()
    )
    assert written["record"]["command"] == ["x", "--api-key", "***", "--port", "1"]


def test_logs_grow_masked_and_keep_bytes_that_are_no_text(bundle: Bundle) -> None:
    bundle.append("log", b"one s3cret\n")
    bundle.append("log", b"\xff\n")
    assert (bundle.folder / "log").read_bytes() == b"one ***\n\xff\n"


def test_an_event_is_a_line_with_time_run_host_task_and_state(bundle: Bundle) -> None:
    bundle.event("Patch", "patch", "started", check=False)
    bundle.event("Patch", "patch", "failed", error="s3cret", path=Path("p"))
    first, second = map(json.loads, (bundle.folder / "events.jsonl").read_text().splitlines())
    assert first == {
        "time": 12.346,
        "run": "run",
        "host": "h",
        "task": "Patch",
        "action": "patch",
        "state": "started",
        "check": False,
    }
    assert (second["error"], second["path"]) == ("***", "p")


def test_a_folder_that_cannot_be_made_is_an_error_with_a_hint(bundle: Bundle) -> None:
    bundle.folder.write_text("a file")
    with pytest.raises(HostError, match="the bundle cannot be written") as caught:
        bundle.text("a", "b")
    assert "make room" in caught.value.hint


def test_an_event_that_cannot_be_written_stops_nobody(bundle: Bundle) -> None:
    bundle.folder.write_text("a file")
    bundle.event("Roll back", "rollback", "started")


def test_only_the_owner_may_enter_a_bundle_and_the_folders_made_for_it(tmp_path: Path) -> None:
    Bundle(tmp_path / "logs/run", "run", "h").text("probe/a.txt", "b")
    made = (tmp_path / "logs", tmp_path / "logs/run", tmp_path / "logs/run/probe")
    assert [folder.stat().st_mode & 0o777 for folder in made] == [0o700] * 3


def test_a_file_is_replaced_whole_or_stays_as_it_was(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle.json("a.json", {"n": 1})

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        bundle.json("a.json", {"n": 2})
    assert bundle.read("a.json") == {"n": 1}


def test_what_is_missing_or_no_json_object_reads_as_nothing(bundle: Bundle) -> None:
    assert bundle.read("a.json") is None
    for text in ("{half", "[1]", ""):
        bundle.text("a.json", text)
        assert bundle.read("a.json") is None


def test_an_event_after_a_line_that_was_cut_off_stands_on_a_line_of_its_own(bundle: Bundle) -> None:
    assert bundle.events() == []
    bundle.event("Patch", "patch", "started")
    with (bundle.folder / "events.jsonl").open("ab") as file:
        file.write(b'{"task": "Pat')
    bundle.event("Patch", "patch", "ok")
    assert [event["state"] for event in bundle.events()] == ["started", "ok"]


def test_what_is_moved_keeps_its_content_and_what_is_removed_may_be_gone_already(bundle: Bundle) -> None:
    bundle.text("k2/done.json", "{}")
    bundle.move("k2", "set-aside/k2-1")
    assert (bundle.folder / "set-aside/k2-1/done.json").read_text() == "{}"
    assert not (bundle.folder / "k2").exists()
    bundle.remove("set-aside/k2-1/done.json")
    bundle.remove("set-aside/k2-1/done.json")
    with pytest.raises(HostError, match="the bundle cannot be written"):
        bundle.move("k2", "set-aside/k2-2")
