from __future__ import annotations

import gzip
import io
import json
import random
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from eaglelab.errors import InputError
from eaglelab.profile.decode_groups import KEPT_GROUPS, KEPT_LINES
from eaglelab.profile.log_collector import KEPT_BLOCKS, KEPT_RECORDS
from eaglelab.profile.logfile import read_log, read_logs
from eaglelab.profile.records import KEPT_PROBLEMS
from eaglelab.profile.server_args import parse_server_args, parse_version

CASES = Path(__file__).parents[1] / "cases" / "profile"


def decode(second, *, running=1, throughput=90.0, accept="1.80"):
    return (
        f"[2026-11-29 10:{second // 60:02d}:{second % 60:02d}] Decode batch, #running-req: {running}, "
        f"accept len: {accept}, cuda graph: True, gen throughput (token/s): {throughput:.2f}, #queue-req: 0\n"
    )


def without_names(report):
    return {**report.to_json(), "files": [file.lines for file in report.files]}


def test_the_old_block_is_read_from_a_file_as_printed_and_corrected():
    report = read_log(CASES / "old-block.log").to_json()
    (block,) = report["blocks"]
    assert block["source"] == "hand-made"
    assert (block["printed"]["accept_length"], block["printed"]["tok_s"]) == (0.98, 31.0)
    assert (block["corrected"]["accept_length"], block["corrected"]["tok_s"]) == (1.98, 62.4)
    assert json.loads(json.dumps(report)) == report


def test_a_server_log_gives_decode_figures_per_number_of_running_requests():
    report = read_log(CASES / "server.log")
    one, two = report.decode
    assert (report.decode_lines, report.decode_after_idle) == (6, 2)
    assert (one.running_requests, one.lines, one.eager) == (1, 3, 0)
    assert one.throughput.mean == pytest.approx(94)
    assert one.throughput.median == pytest.approx(94)
    assert one.accept_length.mean == pytest.approx(1.8)
    assert (two.running_requests, two.lines, two.eager) == (2, 1, 1)
    assert two.throughput.mean == 120


def test_a_server_log_names_release_probe_and_start_without_secrets():
    report = read_log(CASES / "server.log")
    assert report.sglang == "0.5.9"
    assert [canary.worker for canary in report.canaries] == ["EAGLEWorker"]
    (args,) = report.server_starts
    assert args["speculative_num_steps"] == "2"
    assert args["speculative_draft_model_path"] == "/models/draft"
    assert args["model_path"] == "/models/target"
    assert "do-not-show" not in json.dumps(report.to_json())


def test_lines_without_speculation_have_throughput_but_no_accept_length():
    line = "[2026-11-29 10:00:0{}] Decode batch, #running-req: 1, gen throughput (token/s): 89.00, #queue-req: 0"
    (group,) = read_log(line.format(second) for second in range(3)).decode
    assert group.accept_length is None
    assert group.throughput.count == 2


def test_a_long_gap_between_decode_lines_means_idle_even_without_prefill_lines():
    report = read_log([decode(0), decode(1), decode(2), decode(60, throughput=1.2), decode(61)])
    assert report.decode_after_idle == 2
    assert report.decode[0].throughput.mean == 90


def test_each_data_parallel_rank_has_its_own_first_line():
    lines = [decode(0), decode(0), decode(1), decode(1)]
    tagged = [line.replace("]", f" DP{rank} TP0]", 1) for line, rank in zip(lines, (0, 1, 0, 1), strict=True)]
    report = read_log(tagged)
    assert report.decode_after_idle == 2
    assert report.decode[0].lines == 2


def test_two_server_starts_in_one_log_are_kept_apart():
    start = "server_args=ServerArgs(model_path='/m', speculative_num_steps={})"
    first = [start.format(2), decode(0), decode(1, throughput=94)]
    second = [start.format(10), decode(2), decode(3, throughput=60)]
    report = read_log([*first, *second])
    assert [(group.start, group.throughput.mean) for group in report.decode] == [(1, 94), (2, 60)]
    assert [args["speculative_num_steps"] for args in report.server_starts] == ["2", "10"]


def test_the_probes_json_lines_in_a_log_become_a_profile():
    report = read_log(CASES / "rank0.jsonl")
    assert report.profile.settings[0].cycles == 4
    assert report.to_json()["profile"]["settings"][0]["steps"] == 2


def test_json_lines_of_which_none_is_a_record_are_told():
    report = read_log(['{"kind":"block","schema":9}\n'])
    assert report.profile is None
    assert report.problems == ("line 1: schema 9 is not known; this version reads schema 1",)


def test_gzip_is_known_by_its_first_bytes_and_not_by_its_name(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(gzip.compress((CASES / "server.log").read_bytes()))
    assert without_names(read_log(str(path))) == without_names(read_log(CASES / "server.log"))


def test_zstd_is_read_frame_by_frame(tmp_path):
    path = tmp_path / "log"
    lines = (CASES / "server.log").read_bytes().splitlines(keepends=True)
    halves = (b"".join(lines[:5]), b"".join(lines[5:]))
    path.write_bytes(b"".join(zstandard.compress(half) for half in halves))
    assert without_names(read_log(path)) == without_names(read_log(CASES / "server.log"))


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_file_that_is_cut_short_is_read_as_far_as_it_goes(tmp_path, pack):
    path = tmp_path / "log.packed"
    chance = random.Random(1)
    text = b"".join(decode(second % 3_600, throughput=chance.uniform(1, 900)).encode() for second in range(20_000))
    whole = pack(text)
    path.write_bytes(whole[: len(whole) * 3 // 4])
    report = read_log(path)
    (problem,) = report.problems
    assert problem.startswith(f"{path}: the ")
    assert "damaged or cut short" in problem
    assert 0.5 < report.decode_lines / 20_000 < 0.8
    assert without_names(report)["decode"]["groups"]


def test_several_members_and_padding_of_a_gzip_file_are_read(tmp_path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(decode(0).encode()) + gzip.compress(decode(1).encode()) + b"\0" * 512)
    report = read_log(path)
    assert (report.lines, report.problems) == (2, ())


def test_the_parts_of_a_rotated_log_are_read_as_one_in_the_order_given(tmp_path):
    parts = [tmp_path / "log.1.gz", tmp_path / "log"]
    parts[0].write_bytes(gzip.compress((decode(0) + decode(1)).encode() + b"EAGLE3_PROF (1 cycles)"))
    parts[1].write_text("  Draft steps: 2.00 ms\n" + decode(2))
    report = read_logs([str(part) for part in parts])
    assert (report.lines, report.decode_lines, report.decode_after_idle) == (5, 3, 1)
    assert report.blocks[0].printed_ms == {"draft": 2.0}
    assert report.blocks[0].text.line == 3
    assert [(file.name, file.first_line, file.lines) for file in report.files] == [
        (str(parts[0]), 1, 3),
        (str(parts[1]), 4, 2),
    ]


def test_standard_input_is_read_packed_or_not():
    for content in (b"x\n" + decode(0).encode(), gzip.compress(b"x\n" + decode(0).encode())):
        report = read_logs(["-"], stdin=io.BytesIO(content))
        assert (report.lines, report.decode_lines, report.files[0].name) == (2, 1, "-")


def test_names_are_checked_before_anything_is_read(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        read_logs([str(CASES / "server.log"), str(tmp_path / "no.log")])
    with pytest.raises(InputError, match="no log is named"):
        read_logs([])
    with pytest.raises(InputError, match="only once"):
        read_logs(["-", "-"], stdin=io.BytesIO())


def test_a_line_in_the_json_of_a_container_runtime_is_read():
    wrapped = [json.dumps({"log": decode(second), "stream": "stderr"}) + "\n" for second in range(3)]
    (group,) = read_log(wrapped).decode
    assert (group.lines, group.throughput.mean, group.accept_length.mean) == (2, 90, pytest.approx(1.8))


def test_bytes_that_are_no_utf8_do_not_stop_the_reader():
    report = read_log([b"\xff\xfe\x00 noise \x80\n", *(decode(s).encode() + b"\xff" for s in range(2))])
    assert report.lines == 3
    assert report.decode_lines == 2


def test_a_log_that_names_a_simulated_gpu_labels_all_that_comes_of_it():
    report = read_log(["[2026] device 0: simulated GPU, 80 GB\n", *(CASES / "rank0.jsonl").read_text().splitlines()])
    assert report.simulated == report.profile.simulated == "simulated GPU"
    assert read_log(CASES / "server.log").simulated is None


def test_a_probe_that_turned_itself_off_is_told_with_its_reason():
    report = read_log(["noise\n", "[TP0] EAGLE3_PROF probe off: OSError: disk full\n"])
    assert report.problems == ("line 2: EAGLE3_PROF probe off: OSError: disk full",)


def test_an_empty_log_says_that_it_has_nothing():
    assert read_log([]).empty
    assert not read_log(CASES / "old-block.log").empty


def test_a_missing_file_is_bad_input_with_a_hint(tmp_path):
    with pytest.raises(InputError, match="no such file") as caught:
        read_log(tmp_path / "no.log")
    assert caught.value.hint == "--log takes server logs; gzip and zstd too"
    assert caught.value.where == str(tmp_path / "no.log")


def test_a_folder_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_log(tmp_path)


def test_memory_does_not_grow_with_the_log():
    block = (CASES / "old-block.log").read_text().splitlines()

    def lines(count):
        for number in range(count):
            yield "x" * 100
            if number % 400 == 0:
                yield from block

    tracemalloc.start()
    read_log(lines(2_000))
    _, small = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    read_log(lines(20_000))
    _, large = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert large < small + 300_000


def test_a_clock_that_is_set_back_or_a_slower_pace_does_not_make_all_later_lines_idle():
    back = read_log([decode(100), decode(101), decode(0), decode(1), decode(2), decode(3)])
    assert back.decode_after_idle == 1
    slower = read_log([decode(second) for second in (0, 1, 2, 12, 22, 32, 42)])
    assert slower.decode_after_idle == 2


def test_memory_does_not_grow_with_the_probes_records_nor_with_garbage():
    record = (CASES / "rank0.jsonl").read_text().splitlines()[1]

    def lines(count):
        for _ in range(count):
            yield record
            yield '{"schema": 1, "kind": "garbage"}'

    report = read_log(lines(KEPT_RECORDS + 5))
    (note,) = [note for note in report.profile.notes if "in the log" in note]
    assert note == f"Of {KEPT_RECORDS + 5} blocks in the log the newest {KEPT_RECORDS} are used."
    assert report.profile.notes[-1] == f"probe records, and {KEPT_RECORDS + 5 - KEPT_PROBLEMS} more lines like these"


def test_of_many_numbers_of_running_requests_the_first_are_kept_and_the_rest_told():
    lines = [decode(0), *(decode(0, running=running) for running in range(1, KEPT_GROUPS + 4))]
    report = read_log(lines)
    assert (len(report.decode), report.decode_lines) == (KEPT_GROUPS, KEPT_GROUPS + 4)
    assert report.problems == ("3 decode lines of too many different numbers of running requests",)


def test_of_very_many_lines_and_blocks_the_newest_are_kept_and_all_are_counted():
    report = read_log(["EAGLE3_PROF (1 cycles)"] * (KEPT_BLOCKS + 2))
    assert (report.block_count, len(report.blocks), report.blocks[0].text.line) == (KEPT_BLOCKS + 2, KEPT_BLOCKS, 3)
    report = read_log("Decode batch, #running-req: 1, gen throughput (token/s): 1.0" for _ in range(KEPT_LINES + 3))
    assert (report.decode[0].lines, report.decode[0].throughput.count) == (KEPT_LINES + 2, KEPT_LINES)


def test_server_args_are_read_in_both_of_their_forms():
    call = "[2026] server_args=ServerArgs(model_path='/m, x', tp_size=8, api_key='s', speculative_num_steps=None)"
    mapping = "[2026] server_args={'model_path': '/m, x', 'tp_size': 8, 'api_key': 's', 'speculative_num_steps': None}"
    expected = {"model_path": "/m, x", "tp_size": "8", "speculative_num_steps": "None"}
    assert parse_server_args(call) == parse_server_args(mapping) == expected
    assert parse_server_args("tp_size=8") is None


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("sglang==0.5.9", "0.5.9"),
        ("sglang[all]==0.4.6.post5", "0.4.6.post5"),
        ("SGLang v0.5.12.", "0.5.12"),
        ("sglang", None),
    ],
)
def test_the_release_is_read_where_a_line_names_it(line, version):
    assert parse_version(line) == version
