from __future__ import annotations

import json

import pytest
from fake_host import LOG, make_context, make_host, said

from eaglelab.actions import ACTIONS, evidence, pull
from eaglelab.context import LogMark
from eaglelab.errors import HostError


@pytest.fixture
def generated(do):
    for name in ("doctor", "plan", "backup", "patch", "start", "wait", "generate"):
        do(name)


def test_prove_names_the_class_that_ran(generated, context, do) -> None:
    assert do("prove") == {"classes": ["EAGLEWorker"], "ranks": [0]}
    assert "the patched code ran in EAGLEWorker on 1 rank(s)" in said(context)


def test_without_its_line_in_the_log_the_patch_never_ran(fake, generated, do) -> None:
    fake.files[LOG] = fake.files[LOG].replace(b"EAGLE3_PROF probe", b"nothing")
    with pytest.raises(HostError, match="the patched code never ran"):
        do("prove")


def test_a_probe_that_switched_itself_off_at_the_start_says_why(fake, generated, do) -> None:
    off = b"EAGLE3_PROF probe off: invalid literal for int() with base 10: 'often'\n"
    fake.files[LOG] = fake.files[LOG].replace(fake.canary, off)
    with pytest.raises(
        HostError, match="the probe switched itself off before it timed anything: invalid literal"
    ) as told:
        do("prove")
    assert "docs/probe.md" in told.value.hint


def test_a_line_from_before_this_servers_start_proves_nothing(fake, do) -> None:
    fake.files[LOG] = fake.canary
    fake.canary = b""
    for name in ("doctor", "plan", "backup", "patch", "start", "wait", "generate"):
        do(name)
    with pytest.raises(HostError, match="never ran"):
        do("prove")


def test_the_proof_of_a_server_that_ran_before_is_found_in_its_own_log(fake, generated, do, tmp_path) -> None:
    context = make_context(fake, tmp_path / "2")
    for name in ("doctor", "plan", "check_server", "prove"):
        result = ACTIONS[name].run(context, ACTIONS[name].args())
    assert result["classes"] == ["EAGLEWorker"]


def test_the_log_is_fetched_from_where_this_run_began(fake, generated, context, do) -> None:
    do("fetch_logs")
    fetched = (context.bundle.folder / "server.log").read_bytes()
    assert fetched.startswith(fake.boot)
    assert b"an older run" not in fetched


def test_records_of_every_rank_are_fetched(fake, generated, context, do) -> None:
    fake.files[f"{context.found.probe_folder}/rank1.2.jsonl"] = b"{}\n"
    assert sorted(do("fetch_logs", folder="k2")["files"]) == [
        "k2/probe/rank0.1.jsonl",
        "k2/probe/rank1.2.jsonl",
        "k2/server.log",
    ]


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
def test_a_secret_that_lies_across_two_pieces_is_masked_all_the_same(fake, tmp_path, monkeypatch, chunk: int) -> None:
    monkeypatch.setattr(pull, "_CHUNK", chunk)
    context = make_context(fake, tmp_path, host=make_host(api_key_env="K"), env={"K": "s3cret-key"})
    fake.files["/log"] = b"one\nkey s3cret-key here\n\xff\xfe\nlast s3cret-key"
    assert evidence.fetch(context, LogMark("/log", 0), "server.log") == len(fake.files["/log"])
    assert (tmp_path / "server.log").read_bytes() == b"one\nkey *** here\n\xff\xfe\nlast ***"


def test_what_is_written_while_a_log_is_fetched_belongs_to_a_later_fetch(fake, context, monkeypatch) -> None:
    monkeypatch.setattr(pull, "_CHUNK", 4)
    fake.files["/log"] = b"12345678"
    tail = fake.op_tail

    def growing(path: str, offset: int, limit: int, inode: int | None, before: str | None):
        found = tail(path, offset, limit, inode, before)
        fake.files["/log"] += b"x" * 100
        return found

    fake.op_tail = growing
    assert evidence.fetch(context, LogMark("/log", 2), "server.log") == 6
    assert (context.bundle.folder / "server.log").read_bytes() == b"345678"


def test_fetching_twice_does_not_append(fake, generated, context, do) -> None:
    do("fetch_logs")
    first = (context.bundle.folder / "server.log").read_bytes()
    do("fetch_logs")
    assert (context.bundle.folder / "server.log").read_bytes() == first


def test_the_report_is_made_from_the_records_and_kept(generated, context, do) -> None:
    do("fetch_logs")
    profile = do("report")
    assert json.loads((context.bundle.folder / "profile.json").read_text()) == profile
    assert profile["simulated"] == "simulated GPU"


def test_a_probe_that_timed_no_cycle_is_a_failure(fake, generated, do) -> None:
    for path in [path for path in fake.files if path.endswith(".jsonl")]:
        fake.files[path] = fake.records.splitlines(keepends=True)[0]
    do("fetch_logs")
    with pytest.raises(HostError, match="the probe wrote no timed cycle"):
        do("report")


def test_a_probe_that_switched_itself_off_is_quoted(fake, generated, do) -> None:
    for path in [path for path in fake.files if path.endswith(".jsonl")]:
        del fake.files[path]
    fake.files[LOG] += b"EAGLE3_PROF probe off: TypeError: why\n"
    do("fetch_logs")
    with pytest.raises(HostError, match=r"no timed cycle: it switched itself off \(TypeError: why\)"):
        do("report")


def test_without_any_record_the_report_fails(generated, do) -> None:
    with pytest.raises(HostError, match="no timed cycle"):
        do("report")


@pytest.mark.parametrize("action", ["stop", "rollback"])
def test_a_damaged_record_of_the_server_is_named_and_does_not_hold_up(fake, generated, context, do, action) -> None:
    stop = fake.op_stop
    fake.op_stop = lambda **args: {**stop(**args), "damaged": "/state/server.json is not a JSON object"}
    do(action)
    assert "set aside as server.json.damaged: /state/server.json is not a JSON object" in said(context)
    assert not fake.alive


def test_a_log_that_was_cut_to_nothing_is_said_and_noted(fake, generated, context, do) -> None:
    fake.files[LOG] = b"new\n"
    do("fetch_logs")
    assert "server.log: /home/u/server.log was cut to nothing on the host" in said(context)
    note = json.loads((context.bundle.folder / "fetch.json").read_text())
    assert note["server.log"]["parts"][0]["truncated"] is True
    assert [part["bytes"] for part in note["probe/rank0.1.jsonl"]["parts"]] == [len(fake.records)]
