"""`report`, as it is typed."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from eaglelab.commands.report import Wanted
from eaglelab.errors import InputError
from eaglelab.report.write import write_report

BLOCK = (
    "EAGLE3_PROF (400 cycles, 394 accepted)\n  Draft steps:     2.18 ms ( 6.9%)\n  Target verify:  28.45 ms (89.6%)\n"
    "  Draft re-extend: 1.12 ms ( 3.5%)\n  TOTAL:          31.74 ms\n  Accept len: 0.98\n  Eff tok/s: 31.0\n"
)


@pytest.fixture
def profiled(invoke: Any, own: Path, fakes: Any) -> str:
    """A run with a profile."""
    return str(invoke("deploy-profiling", "--json").json["run"])


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    file = tmp_path / "server.log"
    file.write_text(BLOCK)
    return file


def test_a_run_is_headed_by_what_it_says_and_ends_with_the_diagnosis(invoke: Any, profiled: str) -> None:
    done = invoke("report", "--run", profiled)
    assert done.code == 0
    assert "accept length" in done.out.splitlines()[0]
    assert "Diagnosis" in done.out


def test_its_json_has_the_headline_the_profiles_the_model_and_the_diagnosis(invoke: Any, profiled: str) -> None:
    found = invoke("report", "--json").json
    assert found["run"] == profiled
    assert found["headline"]
    assert set(found["profiles"]) == {"."}
    assert found["model"][0]["batch"] == 1
    assert isinstance(found["diagnosis"], list)
    assert found["written"] == []


def test_a_page_goes_into_the_bundle_or_where_it_is_wanted(
    invoke: Any, own: Path, profiled: str, tmp_path: Path
) -> None:
    usual = own / "logs" / profiled / "report.html"
    assert invoke("report", "--html", "--json").json["written"] == [str(usual)]
    assert usual.read_text().startswith("<!doctype html>")
    wanted = tmp_path / "mine.html"
    assert invoke("report", "--run", profiled, "--html", str(wanted), "--json").json["written"] == [str(wanted)]
    assert wanted.read_text() == usual.read_text()


def test_charts_and_a_trace_go_where_they_are_wanted(invoke: Any, profiled: str, tmp_path: Path) -> None:
    plots, trace = tmp_path / "plots", tmp_path / "t.json.gz"
    done = invoke("report", "--plots", str(plots), "--trace", str(trace), "--json")
    assert done.code == 0
    assert {file.suffix for file in plots.iterdir()} == {".svg", ".png"}
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert set(done.json["written"]) == {str(trace), *map(str, plots.iterdir())}


def test_an_old_log_tells_its_history(invoke: Any, log: Path) -> None:
    done = invoke("report", "--log", str(log))
    assert "62.4 tok/s; 1.98 tokens a verify (printed: 0.98, without the bonus token)" in " ".join(done.out.split())


def test_the_page_of_a_log_is_named_after_it_and_lies_here(invoke: Any, log: Path) -> None:
    done = invoke("report", "--log", str(log), "--html", "--json")
    assert done.json["written"] == ["server.log.html"]
    assert "62.4 tok/s" in Path("server.log.html").read_text()


def test_parts_of_a_log_are_one_report(invoke: Any, log: Path) -> None:
    packed = log.with_name("server.log.1.gz")
    packed.write_bytes(gzip.compress(BLOCK.encode()))
    assert invoke("report", "--log", str(packed), "--log", str(log), "--json").json["log"]["block_count"] == 2


def test_a_run_of_several_hosts_is_shown_host_by_host(invoke: Any, own: Path, fakes: Any, tmp_path: Path) -> None:
    run = invoke("deploy-profiling", "--host", "both", "--json").json["run"]
    done = invoke("report", "--run", run, "--html", "--json")
    assert done.json["written"] == [str(own / "logs" / run / host / "report.html") for host in ("a", "b")]
    assert set(done.json["reports"]) == {"a", "b"}
    one = invoke("report", "--run", f"{run}:b", "--html", str(tmp_path / "b.html"), "--json")
    assert one.code == 0
    assert set(one.json["reports"]) == {"b"}
    several = invoke("report", "--run", run, "--html", str(tmp_path / "b.html"), "--json")
    assert several.code == 2
    assert "is one of several hosts: a, b" in several.json["error"]["what"]
    assert invoke("report", "--run", f"{run}:c", "--json").code == 2


def test_the_newest_run_with_figures_is_meant_not_the_newest_run(invoke: Any, profiled: str) -> None:
    assert invoke("rollback").code == 0
    assert invoke("report", "--json").json["run"] == profiled


def test_a_run_that_lies_elsewhere_is_found_by_its_path(invoke: Any, own: Path, profiled: str, tmp_path: Path) -> None:
    shutil.copytree(own / "logs" / profiled, tmp_path / "sent" / profiled)
    shutil.rmtree(own / "logs")
    assert invoke("report", "--run", str(tmp_path / "sent" / profiled), "--json").json["run"] == profiled


def test_a_run_leaves_its_page_in_the_bundle_and_says_so(
    invoke: Any, own: Path, fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eaglelab.report.write.write_report", write_report)
    done = invoke("deploy-profiling", "--json")
    page = own / "logs" / done.json["run"] / "report.html"
    assert page.read_text().startswith("<!doctype html>")
    assert f"report: {page}" in done.err


def test_a_check_leaves_no_page(invoke: Any, own: Path, fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eaglelab.report.write.write_report", write_report)
    run = invoke("deploy-profiling", "--check", "--json").json["run"]
    assert not (own / "logs" / run / "report.html").exists()


def test_a_folder_that_is_no_run_is_not_searched(invoke: Any, own: Path, profiled: str) -> None:
    """Not even one in which runs lie further down."""
    for folder in (own, own / "logs"):
        done = invoke("report", "--run", str(folder), "--json")
        assert done.code == 2
        assert "has no profile and no measurements" in done.json["error"]["what"]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"run": "r", "logs": ["a"]}, "a run and a log are two reports"),
        ({"logs": ["-"], "trace": "t.json"}, "a trace reads the log a second time"),
        ({"logs": [" "]}, "it is empty"),
        ({"run": ""}, "it is empty"),
        ({"page": ""}, "it is empty"),
        ({"plots": ""}, "it is empty"),
        ({"trace": ""}, "it is empty"),
        ({"page": "."}, "it is a folder"),
        ({"trace": "."}, "it is a folder"),
        ({"page": "none/r.html"}, "its folder is not there"),
        ({"plots": "pyproject.toml"}, "it is no folder"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(
    given: dict[str, Any], what: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    with pytest.raises(InputError, match=what):
        Wanted(**given)


def test_a_log_without_cycles_gives_no_trace(invoke: Any, log: Path) -> None:
    done = invoke("report", "--log", str(log), "--trace", "t.json", "--json")
    assert done.code == 2
    assert "no cycle for a trace" in done.json["error"]["what"]
    assert not Path("t.json").exists()


def test_a_run_may_be_named_by_the_end_of_its_name_as_everywhere(invoke: Any, own: Path, fakes: Any) -> None:
    assert invoke("deploy-profiling", "--host", "a").code == 0
    (run,) = [path.name for path in (own / "logs").iterdir() if path.is_dir()]
    shown = invoke("report", "--run", run[-4:], "--json")
    assert shown.code == 0, shown.err
    assert shown.json["run"] == run
