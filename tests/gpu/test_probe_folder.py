"""Records between two marks, rank by rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu.validate.probe import ProbeFolder

PHASES = ("draft", "verify", "extend", "other", "total")


def block(rank: int, steps: int, hist: list[int], times: list[float]) -> dict[str, Any]:
    same = dict.fromkeys(PHASES, times)
    return {
        "kind": "block", "schema": 1, "probe": "1.2.0", "sglang": "0.5.12", "class": "EAGLEWorkerV2", "rank": rank, "world": 2,
        "pid": 1, "time": 1.0, "every": 100, "sync": False, "steps": steps, "batch_size": 1, "decode_cycles": sum(hist),
        "cycles": len(times), "tokens": sum((j + 1) * n for j, n in enumerate(hist)), "correct_hist": hist, "unknown": 0,
        "dropped": {"warmup": sum(hist) - len(times)}, "skipped": 0, "kept_tokens": [1] * len(times),
        "event_ms": same, "host_ms": same,
    }  # fmt: skip


def write(folder: Path, *records: dict[str, Any]) -> None:
    for record in records:
        with (folder / f"rank{record['rank']}.1.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")


def test_only_what_came_after_the_mark_is_counted(tmp_path: Path) -> None:
    flushes: list[int] = []
    folder = ProbeFolder(tmp_path, lambda: flushes.append(1))
    write(tmp_path, block(0, 2, [9, 9, 9], []))
    mark = folder.mark()
    write(tmp_path, block(0, 2, [1, 2, 3], [1.0, 3.0]), block(0, 1, [4, 0], []), block(0, 2, [1, 0, 0], [5.0]))
    write(tmp_path, block(1, 2, [38, 0, 0], [2.0]))
    window = folder.since(mark)
    assert len(flushes) == 2
    assert window.ranks == [0, 1]
    first = window.rank(0)
    assert first.histograms == {1: [4, 0], 2: [2, 2, 3]}
    assert (first.decode_cycles, first.tokens, first.unknown) == (11, 4 + 2 + 4 + 9, 0)
    times = first.steps(2).times
    assert times.cycles == 3
    assert times.means(times.event_ms)["verify"] == pytest.approx(3.0)
    assert first.steps(1).times.means(times.event_ms) == {}


def test_the_cycles_in_which_the_host_was_quickest_are_picked_cycle_by_cycle(tmp_path: Path) -> None:
    folder = ProbeFolder(tmp_path, lambda: None)
    one = block(0, 3, [4, 0, 0, 0], [3.0, 2.7, 3.2, 2.8])
    one["host_ms"] = {**one["host_ms"], "verify": [1.2, 0.7, 1.4, 0.8]}
    write(tmp_path, one)
    window = folder.since({})
    assert window.quickest("verify", 0.5) == pytest.approx({"cycles": 2, "host_ms": 0.75, "event_ms": 2.75})
    assert window.steps(5).quickest("verify", 0.5) == {}


def test_how_sure_a_mean_is_by_its_cycles_over_all_blocks(tmp_path: Path) -> None:
    write(
        tmp_path,
        block(0, 3, [2, 0, 0, 0], [3.0, 5.0]),
        block(0, 3, [2, 0, 0, 0], [4.0, 8.0]),
        block(0, 2, [1, 0, 0], [9.0]),
    )
    window = ProbeFolder(tmp_path, lambda: None).since({})
    assert window.steps(3).standard_error("total") == pytest.approx((14 / 3) ** 0.5 / 2)  # 3, 5, 4, 8: variance 14/3
    assert window.steps(2).standard_error("total") is None


def test_a_record_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rank0.1.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match=r"rank0\.1\.jsonl: line 1: schema None"):
        ProbeFolder(tmp_path, lambda: None).since({})


def test_a_rank_that_writes_late_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path, block(0, 2, [5, 0, 0], []), block(1, 2, [3, 0, 0], []))
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            write(tmp_path, block(1, 2, [2, 0, 0], []))

    window = ProbeFolder(tmp_path, lambda: None, sleep).since({})
    assert len(pauses) == 3
    assert window.rank(1).histograms == window.rank(0).histograms == {2: [5, 0, 0]}


def test_half_a_line_is_left_for_later(tmp_path: Path) -> None:
    folder = ProbeFolder(tmp_path, lambda: None)
    write(tmp_path, block(0, 1, [1, 1], []))
    whole = json.dumps(block(0, 1, [2, 2], []))
    with (tmp_path / "rank0.1.jsonl").open("a") as file:
        file.write(whole[:40])
    assert folder.since({}).histograms == {1: [1, 1]}
    with (tmp_path / "rank0.1.jsonl").open("a") as file:
        file.write(whole[40:] + "\n")
    assert folder.since({}).histograms == {1: [3, 3]}
