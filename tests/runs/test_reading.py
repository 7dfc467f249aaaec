"""A bundle read back: each file that is damaged costs what is in it and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bundle_kit import make

from eaglelab.errors import InputError
from eaglelab.profile.bench import BenchResult, RequestSample
from eaglelab.profile.measurement_set import Measurement, MeasurementSet, to_json
from eaglelab.runs.naming import find_run, named_run
from eaglelab.runs.reading import read_run

SAMPLES = [RequestSample(101, 0.02, 1.0, start_s=0.0, round=0)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bench with a baseline and two step counts in one load."""
    found = make(tmp_path, "20261129-000000-bench-aaaa")
    results = [BenchResult(None, 1, SAMPLES, load="baseline/c1"), BenchResult(2, 1, SAMPLES, load="k2-3/c1")]
    text = to_json(MeasurementSet(tuple(map(Measurement, results)), sglang="0.5.9"))
    (found / "measurements.json").write_text(text)
    for name, steps in (("baseline", []), ("k2-3", [2, 3])):
        (found / name / "c1").mkdir(parents=True)
        (found / name / "fingerprint.json").write_text(json.dumps({"steps": steps}))
        (found / name / "c1" / "gpus.json").write_text(json.dumps({"before": [], "after": []}))
        (found / name / "measured-c1.json").write_text(json.dumps({"concurrency": 1, "args": {"seed": 42}}))
    return found


def test_the_loads_have_their_step_counts_clocks_and_workloads(folder: Path) -> None:
    (found,) = read_run(folder)
    assert {load.name: load.steps for load in found.loads} == {"baseline": (), "k2-3": (2, 3)}
    assert [dict(load.workloads) for load in found.loads] == [{1: {"seed": 42}}] * 2
    assert [list(load.gpus) for load in found.loads] == [[f"{load.name}/c1"] for load in found.loads]
    assert (found.host, found.command, found.finished, found.problems) == ("a", "bench", True, ())
    assert found.measured is not None


def test_a_load_that_was_set_aside_is_not_read(folder: Path) -> None:
    (folder / "set-aside").mkdir()
    (folder / "k2-3").rename(folder / "set-aside" / "k2-3-1")
    (found,) = read_run(folder)
    assert [load.name for load in found.loads] == ["baseline"]


def test_hosts_that_shared_the_loads_of_a_run_are_one_and_each_alone_can_be_asked_for(folder: Path) -> None:
    for host in ("a", "b"):
        (folder / host).mkdir()
        for name in ("facts.json", "inventory.json", "result.json", "events.jsonl"):
            (folder / host / name).write_text((folder / name).read_text())
    request = json.loads((folder / "request.json").read_text())
    for more, hosts in (({"spread": True}, ["a, b"]), ({"spread": False}, ["a", "b"]), ({}, ["a", "b"])):
        (folder / "request.json").write_text(json.dumps({**request, "hosts": ["a", "b"], "more": more}))
        assert [each.host for each in read_run(folder)] == hosts
    (folder / "request.json").write_text(json.dumps({**request, "hosts": ["a", "b"], "more": {"spread": True}}))
    (whole,) = read_run(folder)
    assert (whole.finished, whole.sglang, len(whole.measured.measurements)) == (True, "0.5.9", 2)
    assert [each.host for each in read_run(folder, "b")] == ["b"]
    (folder / "b" / "result.json").unlink()
    assert read_run(folder)[0].finished is False


@pytest.mark.parametrize(
    "name",
    [
        "request.json",
        "result.json",
        "facts.json",
        "inventory.json",
        "measurements.json",
        "k2-3/fingerprint.json",
        "k2-3/measured-c1.json",
        "k2-3/c1/gpus.json",
    ],
)
@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\x00\xff", "[" * 100_000])
def test_a_damaged_file_is_named(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (found,) = read_run(folder)
    assert [problem.split(" ")[0] for problem in found.problems] == [name]
    assert len(found.loads) == 2


@pytest.mark.parametrize("steps", ["null", "3", '"x"', "{}"])
def test_step_counts_that_are_none_are_not_known(folder: Path, steps: str) -> None:
    (folder / "k2-3" / "fingerprint.json").write_text(f'{{"steps": {steps}}}')
    (found,) = read_run(folder)
    assert {load.name: load.steps for load in found.loads} == {"baseline": (), "k2-3": None}


@pytest.mark.parametrize("hosts", ["null", "3", '"ab"', "{}"])
def test_hosts_that_are_no_list_are_passed_over(folder: Path, hosts: str) -> None:
    (folder / "request.json").write_text(f'{{"command": "bench", "hosts": {hosts}}}')
    (found,) = read_run(folder)
    assert (found.host, found.command) == ("", "bench")


def test_a_folder_that_is_no_run_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "below" / "k2").mkdir(parents=True)
    (tmp_path / "below" / "k2" / "server.log").write_text("x")
    with pytest.raises(InputError, match="nothing of a run"):
        read_run(tmp_path / "below")


def test_a_host_that_was_not_in_it_is_said_with_those_that_were(folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_run(folder, "b")
    assert caught.value.hint == "it is of: a"


def test_a_run_is_found_by_its_name_a_beginning_an_end_or_its_path(folder: Path) -> None:
    logs = folder.parent
    for name in (folder.name, "2026", "aaaa", "last", str(folder), f"{logs}/../{logs.name}/{folder.name}"):
        assert find_run(logs, name) == folder, name
    for name in ("", "bbbb", "*", "."):
        assert find_run(logs, name) != folder, name


def test_a_full_name_wins_over_beginnings(folder: Path) -> None:
    make(folder.parent, f"{folder.name}-more")
    assert find_run(folder.parent, folder.name) == folder
    with pytest.raises(InputError, match="any of 2 runs"):
        find_run(folder.parent, "2026")


def test_a_host_behind_a_colon_is_read(folder: Path) -> None:
    (found,) = named_run(folder.parent, "aaaa:a")
    assert found.host == "a"
    with pytest.raises(InputError, match="nothing of host 'b'"):
        named_run(folder.parent, "aaaa:b")
    with pytest.raises(InputError, match="there is no run 'bbbb'"):
        named_run(folder.parent, "bbbb:a")
