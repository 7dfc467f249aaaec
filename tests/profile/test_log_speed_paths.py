"""The reader by chunks, which looks at few lines, gives what the reader of every line gives."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglelab.profile.block_scan import regular_span
from eaglelab.profile.chunk_scan import ChunkScan
from eaglelab.profile.log_collector import LogCollector
from eaglelab.profile.log_ranges import line_at, lines_from, text_at
from eaglelab.profile.log_source import LONGEST_LINE, whole_lines
from eaglelab.profile.notable import NOTABLE

CASES = Path(__file__).parents[1] / "cases" / "profile"
REAL = [json.loads(line)["line"] for line in (CASES / "decode_lines.jsonl").read_text(encoding="utf-8").splitlines()]
FILES = [
    line
    for name in ("old-block.log", "probe-block.log", "server.log", "rank0.jsonl")
    for line in (CASES / name).read_text(encoding="utf-8").splitlines()
]
PROBE = (CASES / "probe-block.log").read_text(encoding="utf-8").splitlines()
OLD = (CASES / "old-block.log").read_text(encoding="utf-8").splitlines()
PREFIXES = [
    "(pid=N) ",
    "[TPN] ",
    "[TP1] ",
    "9Z",
    "N:30Z ",
    "total: N ms ",
    "\x1b[1m",
    "é ",
    "0 | ",
    "accept len: 1.N ",
    "Draft ",
]
ODD = [
    "",
    "\0\0\0",
    "{",
    '{"schema": 9}',
    "x" * 3_000,
    "é…漢字",
    "[2026-11-29 10:00:00 TP0] Prefill batch, #new-seq: 1, #running-req: 0, #queue-req: 0",
    "[2026-11-29 10:00:00 DP1 TP0] Prefill batch, #new-seq: 1, #running-req: 0, #queue-req: 0",
    "[2026-11-29 10:00:00 TP0] Prefill batch, #new-seq: 1, #running-req: 3, #queue-req: 0",
    "server_args=ServerArgs(model_path='/m', speculative_num_steps=3)",
    "INFO: 127.0.0.1 - POST /generate 200 OK",
    "EAGLE3_PROF (4 cycles)",
    "Decode batch",
    "Decode batch, #running-req: 7, Decode batch, #running-req: 8, #running-req: 9",
    "gen throughput (token/s): 4.00",
    "SpecDecoding metrics: Mean acceptance length: 2.62, Accepted throughput: 15.60 tokens/s",
    "Accept length: 2.10",
    "Finish: text='completion_tokens': 5 'spec_verify_ct': 3', {'completion_tokens': 100, 'spec_verify_ct': 40}",
    "Finish: {'completion_tokens': 1, 'spec_verify_ct': 1}",
    "Finish: {'spec_verify_ct': 12345678901, 'completion_tokens': 1000",
    "'spec_verify_ct': 12",
    "'completion_tokens': ",
    *(words[0] for words in NOTABLE.values()),
]


@st.composite
def regular(draw):
    """Runs of decode lines as one server writes them, with what can go wrong in each place."""
    minute, step = draw(st.integers(0, 70)), draw(st.sampled_from([0, 1, 1, 2, 30]))
    tag = draw(st.sampled_from(["", " TP0", " DP0 TP0", " DP1 TP0", " DP1 TP0 EP1"]))
    anchor = draw(st.sampled_from(["Decode batch,", "Decode batch.", "Decode batch [40],", "\x1b[1mDecode batch,"]))
    lines = []
    for number in range(draw(st.integers(1, 12))):
        running = draw(st.sampled_from(["1", "1", "1", "2", "16", "100000", "", "x"]))
        graph = draw(st.sampled_from(["cuda graph: True", "cuda graph: False", "npu graph: True"]))
        accept = draw(st.sampled_from(["accept len: 1.80, ", "accept len: \x1b[1m2.00\x1b[0m, ", "", "x" * 1_200]))
        more = draw(st.sampled_from(["", "", "", "EAGLE3_PROF (2 cycles)", " server_args={'tp_size': 8}"]))
        second = min(number * step, 99)
        lines.append(
            f"[2026-11-29 10:{minute:02d}:{second:02d}{tag}] {anchor} #running-req: {running}, {accept}{graph}, "
            f"gen throughput (token/s): 9{number}.50, #queue-req: 0{more}"
        )
    return lines


LINES = st.lists(
    st.one_of(
        regular(),
        st.sampled_from([[line] for line in [*REAL, *FILES, *ODD]]),
        st.sampled_from(
            [
                FILES,
                PROBE,
                OLD,
                ["[TP1] " + PROBE[0], *PROBE[1:]],
                PROBE[:6],
                [*PROBE[:3], REAL[1], *PROBE[3:]],
                *(
                    [f"{prefix.replace('N', str(number))}{line}" for number, line in enumerate(block)]
                    for block in (PROBE[:8], OLD[:8])
                    for prefix in PREFIXES
                ),
            ]
        ),
        st.binary(max_size=20).map(lambda raw: [raw.decode("latin-1")]),
    ),
    max_size=12,
).map(lambda parts: [line for part in parts for line in part])


def by_line(text: bytes):
    collector = LogCollector()
    for line in _lines(text):
        collector.feed(line)
    return collector.report().to_json()


def _lines(text: bytes):
    parts = text.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def by_chunk(pieces):
    collector = LogCollector()
    for chunk in whole_lines(iter(pieces)):
        collector.feed_chunk(chunk)
    return collector.report().to_json()


@settings(max_examples=100, deadline=None)
@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(40, 4_000))
def test_chunks_of_any_size_give_the_report_that_single_lines_give(lines, newline, ended, size):
    text = (newline.join(lines) + (newline if ended else "")).encode("utf-8", errors="replace")
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert by_chunk(pieces) == by_line(text)
    assert by_chunk([text] if text else []) == by_line(text)


def test_a_chunk_boundary_after_any_line_gives_the_same_report():
    text = [line.encode() + b"\n" for line in [*REAL, *PROBE, *REAL, *FILES[:30], *PROBE]]
    whole = by_line(b"".join(text))
    for place in range(len(text)):
        assert by_chunk([b"".join(text[:place]), b"".join(text[place:])]) == whole


@pytest.mark.parametrize("block", [PROBE[:8], OLD[:8]])
@pytest.mark.parametrize("prefix", ["", "(pid=N) ", "2026-11-30T01:00:0NZ  "])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_blocks_of_the_usual_shape_are_passed_in_one_step(block, prefix, newline):
    lines = [f"{prefix.replace('N', str(number))}{line}{newline}".encode() for number, line in enumerate(block)]
    start = len(lines[0]) - len(block[0]) - len(newline)
    assert regular_span(b"".join(lines), 0, len(b"".join(lines))) == (start, len(b"".join(lines)))


def by_range(path: Path, cuts, step):
    """As the processes do it: ranges are searched without what comes before, and put together from the file's text."""
    collector = LogCollector()
    with path.open("rb") as opened:
        file = opened.fileno()
        for start, end in pairwise([0, *cuts, path.stat().st_size]):
            scan = ChunkScan()
            for place, chunk in lines_from(file, start, end, step):
                found = pickle.loads(pickle.dumps(scan.find(chunk, again=True)))
                collector.take(found, partial(text_at, file, place, len(chunk)), place)
        collector.rest(partial(line_at, file), partial(text_at, file))
    return collector.report().to_json()


@settings(max_examples=100, deadline=None)
@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(1, 4_000), st.data())
def test_ranges_cut_anywhere_give_the_report_that_single_lines_give(
    tmp_path_factory, lines, newline, ended, step, data
):
    text = (newline.join(lines) + (newline if ended else "")).encode("utf-8", errors="replace")
    path = tmp_path_factory.mktemp("ranges") / "server.log"
    path.write_bytes(text)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(text) - 1, 1)), max_size=4)))
    assert by_range(path, [cut for cut in cuts if cut < len(text)], step) == by_line(text)


def test_a_range_that_ends_at_or_beside_any_newline_gives_the_same_report(tmp_path):
    lines = [
        line.encode() + b"\n" for line in [*REAL, "[TP1] " + PROBE[0], *PROBE, *REAL[:3], *FILES[:30], *PROBE, *ODD]
    ]
    text = b"".join(lines)
    path = tmp_path / "server.log"
    path.write_bytes(text)
    whole = by_line(text)
    for end in accumulate(map(len, lines[:-1])):
        for cut in (end - 1, end, end + 1):
            assert by_range(path, [cut], 1 << 21) == whole, cut


@pytest.mark.parametrize("size", [LONGEST_LINE - 1, LONGEST_LINE, LONGEST_LINE + 1, 5 * LONGEST_LINE])
def test_a_line_over_several_ranges_is_read_once(tmp_path, size):
    line = REAL[1].encode() + b"\n"
    text = line + b'{"schema": 9}' + b"y" * (size - 13) + b"\n" + line + b"Finish: " + b"z" * (2 * LONGEST_LINE)
    path = tmp_path / "server.log"
    path.write_bytes(text)
    cuts = [*range(1 << 19, len(text), 1 << 19)]
    assert by_range(path, cuts, 1 << 19) == by_range(path, [], 1 << 21) == by_line(text)


def test_a_large_file_is_read_by_several_processes_and_gives_the_same_report(tmp_path):
    part = "\n".join([*REAL, *PROBE, *FILES, *ODD, "[TP1] " + PROBE[0], *PROBE[1:], *PROBE[:4], ""]).encode()
    text = part * (5_000_000 // len(part))
    path = tmp_path / "server.log"
    path.write_bytes(text)
    # As in a command: processes are forked only where there are no threads.
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, check=True, timeout=300)
    assert json.loads(done.stdout) == {
        **by_line(text),
        "files": [{"name": str(path), "first_line": 1, "lines": text.count(b"\n")}],
    }


READ = """
import json, os, sys
from eaglelab.profile import log_workers
log_workers.WORTHWHILE = 1 << 20
os.sched_getaffinity = lambda _: range(3)
from eaglelab.profile.logfile import read_logs
started = []
search = log_workers.collect_side_by_side
log_workers.collect_side_by_side = lambda *given: (started.append(given[2]), search(*given))
report = read_logs(sys.argv[1:])
assert started == [3], started
print(json.dumps(report.to_json()))
"""


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_chunks_end_with_lines_and_lose_nothing(size):
    text = b"one\n\ntwo\r\n" + b"x" * 50 + b"\nlast"
    found = list(whole_lines(text[start : start + size] for start in range(0, len(text), size)))
    assert b"".join(found) == text
    assert all(chunk.endswith(b"\n") for chunk in found[:-1])


def test_a_line_of_twenty_megabytes_costs_neither_the_lines_around_it_nor_memory():
    line = REAL[1].encode() + b"\n"
    long = b"y" * (20 << 20) + b"\n"
    text = line + long + line + b"\0" * (3 << 20)
    pieces = [text[start : start + (1 << 21)] for start in range(0, len(text), 1 << 21)]
    report = by_chunk(pieces)
    assert (report["lines"], report["decode"]["lines"]) == (4, 2)
    assert report == by_line(text)
    assert max(map(len, whole_lines(iter(pieces)))) <= (1 << 20) + (1 << 21)
