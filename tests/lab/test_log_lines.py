"""The stand-in's log lines against the f-strings of the real source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from eaglelab.lab.standin.args import Release, parse
from eaglelab.lab.standin.logs import DecodeStats, PrefillStats, decode_line, load_lines, prefill_line

RELEASE = Release.of("0.5.9")
DECODE = DecodeStats(
    running=2, queued=1, kv_tokens=1500, kv_usage=0.25, throughput=94.037, accepted=70, verifies=40, draft_tokens=3
)
PREFILL = PrefillStats(sequences=1, tokens=7, kv_usage=0.0, running=0, queued=0, throughput=12.3)


def patterns(file: Path, function: str = "") -> list[str]:
    """Every f-string (or its neighbouring ones, joined) of a file or of one function, as a regular expression."""
    tree: ast.AST = ast.parse(file.read_text(encoding="utf-8"))
    if function:
        tree = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == function)
    return [_pattern(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]


def _pattern(text: ast.JoinedStr) -> str:
    parts = (re.escape(part.value) if isinstance(part, ast.Constant) else "(.*?)" for part in text.values)
    return "".join(str(part) for part in parts)


def one(found: list[str], start: str) -> str:
    (pattern,) = {pattern for pattern in found if pattern.startswith(re.escape(start))}
    return pattern


def test_the_decode_line_is_the_one_of_the_release(package: Path) -> None:
    found = patterns(package / "sglang/srt/managers/scheduler_metrics_mixin.py", "log_decode_stats")
    graph = next(pattern for pattern in found if "gen\\ throughput" in pattern)
    head = one(found, "Decode batch").removesuffix("(.*?)")
    line = head + one(found, "#token: ") + one(found, "accept len: ") + graph
    assert re.fullmatch(line, decode_line(DECODE, RELEASE))
    assert re.fullmatch(head + one(found, "#token: ") + graph, decode_line(DecodeStats(1, 0, 9, 0.0, 89.0), RELEASE))


def test_the_prefill_line_is_the_one_of_the_release(package: Path) -> None:
    found = patterns(package / "sglang/srt/managers/scheduler_metrics_mixin.py", "log_prefill_stats")
    head = one(found, "Prefill batch").replace("(.*?)\\#running", "token\\ usage:\\ (.*?),\\ \\#running")
    line = head + one(found, "input throughput") + "cuda\\ graph:\\ (True|False)"
    assert re.fullmatch(line, prefill_line(PREFILL, RELEASE))


@pytest.mark.parametrize(
    ("release", "rate"), [("0.5.3", ""), ("0.5.9", "accept rate: 0.58, "), ("0.5.12", "accept rate: 0.38, ")]
)
def test_accept_rate_has_the_definition_of_its_release(release: str, rate: str) -> None:
    # 70 tokens in 40 verifies of 3 draft tokens: 70/120, and from 0.5.12 (70-40)/(40*2)
    line = decode_line(DECODE, Release.of(release))
    assert f"accept len: 1.75, {rate}cuda graph: True" in line


def test_older_and_newer_lines_differ_where_the_releases_do() -> None:
    assert decode_line(DECODE, Release.of("0.4.6")).startswith("Decode batch. #running-req: 2")
    assert decode_line(DECODE, Release.of("0.5.8")).endswith("#queue-req: 1, ")
    assert "#pending-token: 0, cuda graph: False, input throughput" in prefill_line(PREFILL, Release.of("0.5.12"))


def test_every_load_line_is_one_of_the_release(package: Path) -> None:
    srt = package / "sglang" / "srt"
    sources = (
        "model_executor/model_runner.py",
        "model_executor/model_runner_kv_cache_mixin.py",
        "mem_cache/memory_pool.py",
        "speculative/eagle_worker.py",
        "managers/scheduler.py",
    )
    known = [pattern for source in sources for pattern in patterns(srt / source)]
    known += [
        re.escape("Init torch distributed begin."),
        r"Loading safetensors checkpoint shards: +\d+% Completed \| \d/4",
    ]
    args = parse(
        [
            "--model",
            "m",
            "--speculative-algorithm",
            "EAGLE3",
            "--speculative-num-steps",
            "2",
            "--speculative-num-draft-tokens",
            "3",
        ]
    )
    lines = [line for _, line in load_lines(args, RELEASE, 900.0, 1000, 4096, 90.0)]
    assert len(lines) == 19
    for line in lines:
        assert any(re.fullmatch(pattern, line) for pattern in known if pattern != "(.*?)"), line


def test_a_load_goes_forward_in_time_and_ends_with_the_pool_size() -> None:
    lines = list(load_lines(parse(["--model", "m"]), RELEASE, 3.0, 1000, 4096, 90.0))
    shares = [share for share, _ in lines]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert lines[-1][1].startswith("max_total_num_tokens=1000, ")
    assert not any("draft" in line for _, line in lines)
