"""What the page holds, read as text."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser

import pytest
from bundles import measured_run, profiled_run, record

from eaglelab.errors import EaglelabError
from eaglelab.printable import printable
from eaglelab.profile.findings import Finding
from eaglelab.profile.logfile import read_log
from eaglelab.profile.serving import ServingRun, ServingSet, serving_json
from eaglelab.profile.serving_row import SERVING_FIGURES, ServingRow
from eaglelab.profile.setting_key import SettingKey
from eaglelab.report.html.render import render
from eaglelab.report.reports import report_of_log, report_of_run
from eaglelab.report.write import write_report
from eaglelab.runs.reading import read_run

EVIL = " ".join(
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "'; alert(1)//",
        "</style></title></svg><script>alert(1)</script>",
        "{{ 7 * 7 }}{% include 'style.css' %}",
        "$x^2$ & ]]> \\textbf",
        "\x1b[2J\u202etxt.exe\x00\ud800",
    ]
)


class Elements(HTMLParser):
    """Every element with its attributes, and the text between them."""

    def __init__(self, text):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data.replace("\N{NO-BREAK SPACE}", " ")

    def of(self, *tags):
        return [attrs for tag, attrs in self.found if tag in tags]


def run_text(folder):
    (evidence,) = read_run(folder)
    return render(report_of_run(evidence).page())


def log_text(tmp_path, lines, name="server.log"):
    log = tmp_path / "server.log"
    log.write_text(lines, encoding="utf-8", errors="surrogateescape")
    return render(report_of_log(name, [log], "invoke report --log server.log", read_log(log)).page())


def harmless(text):
    """Nothing in it can run, load, or lead out."""
    page = Elements(text)
    assert not page.of("script", "iframe", "object", "embed", "img", "base", "form", "foreignObject")
    for tag, attrs in page.found:
        assert not [name for name in attrs if name.startswith("on")], (tag, attrs)
        for name in ("src", "href", "srcset", "xlink:href"):
            assert re.match(r"#|data:,", attrs.get(name) or "#"), (tag, attrs)
    styles = " ".join(
        [*re.findall(r"<style>(.*?)</style>", text, re.S), *(attrs.get("style") or "" for _, attrs in page.found)]
    )
    assert "@import" not in styles
    assert set(re.findall(r"url\((.)", styles)) <= {"#"}
    assert "http:" not in text
    return page


@pytest.fixture(scope="session")
def swept_text(swept):
    return render(swept.page())


def test_a_measured_run_has_every_part(swept_text):
    page = harmless(swept_text)
    parts = [attrs["id"] for attrs in page.of("section")]
    assert parts == [
        *("diagnosis", "throughput", "phases", "survival", "levers", "time"),
        *(["checks"] if "checks" in parts else []),
        *("figures", "environment", "words"),
    ]
    assert "simulated GPU" in page.text
    assert "invoke sweep --host sim --num-prompts 12 --concurrency 1,2 --steps 1,2,5" in page.text
    assert "invoke report --run 20261130-000000-sweep-0001" in page.text
    assert "1755 to 1980 MHz" in page.text


def test_its_policy_lets_nothing_in_but_its_own_style(swept_text):
    (policy,) = [attrs["content"] for attrs in Elements(swept_text).of("meta") if "http-equiv" in attrs]
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    assert rules.pop("default-src") == "'none'"
    assert rules.pop("style-src") == "'unsafe-inline'"
    assert rules.pop("img-src") == "data:"
    assert set(rules.values()) == {"'none'"}


def test_a_profile_of_two_ranks_shows_how_they_differ(tmp_path):
    page = harmless(run_text(profiled_run(tmp_path / "20261130-000000-deploy-profiling-0001")))
    assert "ranks" in [attrs["id"] for attrs in page.of("section")]
    # 15.4 ms on rank 0 and 14.9 on rank 1.
    assert "They differ most in verify, by 0.500 ms; rank 1 has the shortest verify" in page.text


def test_what_a_run_s_server_said_is_among_its_evidence(tmp_path):
    folder = profiled_run(tmp_path / "20261130-000000-deploy-profiling-0001")
    line = "[2026-09-01 10:00:01 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1\n"
    (folder / "server.log").write_text(line)
    assert "thrown back 1 time" in run_text(folder)
    (folder / "server.log").write_text("")
    assert "thrown back" not in run_text(folder)


def test_the_page_is_the_same_whenever_it_is_made(swept, swept_text):
    assert render(swept.page()) == swept_text


def test_a_hostile_host_setting_finding_or_command_is_text(tmp_path):
    name = EVIL.encode("utf-8", "replace").decode()
    folder = measured_run(
        tmp_path / "20261130-000000-sweep-0001",
        host=name,
        steps=(1, 2),
        variation=name,
        extra=[Finding("probe-cost", "warning", f"It says {name}.", {f"n {name}": name})],
        request={"hosts": [name], "vars": {"prompts": name}},
    )
    page = harmless(run_text(folder))
    # Host, setting, ranking, finding, its numbers, command.
    assert page.text.count(printable(name)) >= 6


def test_a_hostile_log_is_text(tmp_path):
    block = record(1)
    block["class"] = EVIL.encode("utf-8", "replace").decode()
    lines = (
        f"[2026-01-01 10:00:00] server_args=ServerArgs(model_path='{EVIL}', tp_size=1, speculative_num_steps=1)\n"
        f"EAGLE3_PROF probe 1.0.0 active: class={EVIL} rank=0/1 sglang={EVIL} clock={EVIL}\n{json.dumps(block)}\n"
    )
    harmless(log_text(tmp_path, lines.encode("utf-8", "replace").decode(), name=EVIL))


def test_an_old_block_tells_its_history(tmp_path):
    lines = (
        "EAGLE3_PROF (400 cycles, 394 accepted)\n  Draft steps:     2.18 ms ( 6.9%)\n  Target verify:  28.45 ms (89.6%)\n"
        "  Draft re-extend: 1.12 ms ( 3.5%)\n  TOTAL:          31.74 ms\n  Accept len: 0.98\n  Eff tok/s: 31.0\n"
    )
    page = Elements(log_text(tmp_path, lines))
    assert "62.4 tok/s; 1.98 tokens a verify (printed: 0.98, without the bonus token)" in page.text
    assert "verify 89.6 % of the cycle by host timers" in page.text
    assert "Phases of the printed blocks" in page.text


def test_a_secret_in_a_log_is_not_on_the_page(tmp_path):
    text = log_text(tmp_path, "EAGLE3_PROF probe off: cannot log in with api_key='sk-hidden' at step 3\n")
    assert "cannot log in" in text
    assert "sk-hidden" not in text


def test_a_log_that_says_nothing_is_a_page_that_says_so(tmp_path):
    assert "nothing in this log says anything about speed" in log_text(tmp_path, "hello\n")


def test_a_run_that_was_ended_early_is_told_from_its_records(tmp_path):
    folder = profiled_run(tmp_path / "20261130-000000-deploy-profiling-0001")
    (folder / "profile.json").unlink()
    (folder / "result.json").unlink()
    text = Elements(run_text(folder)).text
    assert "The run did not come to its end" in text
    assert "2 steps, batch size 1: 108.0 tok/s under the probe, accept length 1.90" in text


def test_a_large_run_stays_below_two_megabytes(tmp_path):
    folder = measured_run(
        tmp_path / "20261130-000000-sweep-0001",
        steps=[1, 2, 5],
        concurrency=(1, 2, 4, 8, 16, 32, 64),
        extra=[Finding("probe-cost", "note", f"Finding {n}.", {}) for n in range(300)],
    )
    text = run_text(folder)
    assert len(text.encode()) < 2_000_000
    assert "Not drawn, for want of room: batch size 64." in text


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (RuntimeError("out of ink"), "RuntimeError out of ink"),
        (EaglelabError("charts need matplotlib"), "charts need matplotlib"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_a_report_that_cannot_be_made_fails_no_run(tmp_path, monkeypatch, error, what):
    def broken(_page):
        raise error

    told = []
    folder = profiled_run(tmp_path / "20261130-000000-deploy-profiling-0001")
    monkeypatch.setattr("eaglelab.report.write.render", broken)
    assert write_report(folder, "sim", told.append) is None
    again = "invoke report --run 20261130-000000-deploy-profiling-0001:sim --html"
    assert told == [f"no report.html: {what}; {again} tries again"]
    assert not (folder / "report.html").exists()


def test_a_report_is_left_in_the_bundle_and_said(tmp_path):
    told = []
    folder = profiled_run(tmp_path / "20261130-000000-deploy-profiling-0001")
    assert write_report(folder, "sim", told.append) == folder / "report.html"
    assert told == [f"report: {folder / 'report.html'}"]
    assert {file.name for file in folder.iterdir() if file.name.startswith(".")} == set()


def test_without_matplotlib_it_says_what_to_install(swept, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(EaglelabError, match="charts need matplotlib") as caught:
        render(swept.page())
    assert caught.value.hint == "pip install matplotlib"


def test_what_sglangs_own_client_measured_is_drawn_and_told(tmp_path):
    def asked(steps, rate, repeat):
        row = ServingRow(dict.fromkeys(SERVING_FIGURES) | {"completed": 8, "output_throughput": rate}, {})
        return ServingRun(SettingKey(steps), 4, repeat, repeat, 8, row)

    runs = [asked(steps, rate + n, n) for n in range(3) for steps, rate in ((None, 80.0), (2, 100.0), (5, 70.0))]
    folder = profiled_run(tmp_path / "20261130-000000-bench-0001")
    (folder / "profile.json").unlink()
    shutil.rmtree(folder / "probe")
    (folder / "serving.json").write_text(json.dumps(serving_json(ServingSet(tuple(runs), "simulated GPU", "0.5.12"))))
    page = harmless(run_text(folder))
    assert "Throughput, concurrency 4, sglang.bench_serving" in page.text
    assert "measured: highest at 2 steps with 101.0 tok/s; without speculation 81.0 tok/s" in page.text
    assert "1.247" in page.text  # the mean of 100/80, 101/81 and 102/82


def test_the_environment_names_what_the_figures_hang_on(swept):
    blocks = {block.title: block for block in swept.page().environment}
    assert dict(blocks["Run"].rows)["GPUs"] == "1 x simulated GPU, driver 0.0"
    load = blocks["Load steps"]
    assert dict(load.rows)["step counts"] == "1, 2, 5"
    assert dict(load.rows)["SM clock"] == "1755 to 1980 MHz over all GPUs, before and after"
    assert load.command == "python3 -m sglang.launch_server --model-path '/models/a model'"
    assert dict(blocks["Load baseline"].rows)["step counts"] == "none: the baseline"
